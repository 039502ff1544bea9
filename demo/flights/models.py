"""What the demo's database holds: one row per aircraft."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from demo.flights.record import Record


class Aircraft(models.Model):
    """One aircraft as its flights have left it."""

    tail_number = models.CharField(max_length=20, primary_key=True)
    flights = models.PositiveIntegerField(default=0)
    last_airport = models.CharField(max_length=4, blank=True)
    delay_min = models.IntegerField("cumulative delay (min)", default=0)
    chain = models.CharField("hash chain", max_length=64, blank=True)
    last_message = models.CharField(max_length=32, blank=True)
    fence = models.BigIntegerField("last fencing token", default=0)
    duplicates = models.PositiveIntegerField(
        default=0, help_text="Deliveries of messages that had been handled before; left out."
    )

    objects: ClassVar[models.Manager[Aircraft]] = models.Manager()

    class Meta:
        verbose_name_plural = "aircraft"
        ordering = ("tail_number",)

    def __str__(self) -> str:
        return self.tail_number

    @property
    def record(self) -> Record:
        """What its flights sum up to."""
        return Record(self.flights, self.last_airport, self.delay_min, self.chain)
