"""The aircraft."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies: ClassVar = []

    operations: ClassVar = [
        migrations.CreateModel(
            name="Aircraft",
            fields=[
                ("tail_number", models.CharField(max_length=20, primary_key=True, serialize=False)),
                ("flights", models.PositiveIntegerField(default=0)),
                ("last_airport", models.CharField(blank=True, max_length=4)),
                (
                    "delay_min",
                    models.IntegerField(default=0, verbose_name="cumulative delay (min)"),
                ),
                ("chain", models.CharField(blank=True, max_length=64, verbose_name="hash chain")),
                ("last_message", models.CharField(blank=True, max_length=32)),
                ("fence", models.BigIntegerField(default=0, verbose_name="last fencing token")),
                (
                    "duplicates",
                    models.PositiveIntegerField(
                        default=0,
                        help_text="Deliveries of messages that had been handled before; left out.",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "aircraft",
                "ordering": ("tail_number",),
            },
        ),
    ]
