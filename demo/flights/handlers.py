"""What happens when an aircraft has departed."""

from __future__ import annotations

from dataclasses import asdict

from django.db import transaction
from django.db.models import F

from demo.flights import trouble
from demo.flights.models import Aircraft
from groupqueue import Delivery, handler


@handler("flights.departed")
def flight_departed(delivery: Delivery) -> None:
    """Enter the flight in its aircraft's record, once, however often it is delivered.

    A delivery comes again when its worker died, or fell silent, between the commit and
    the acknowledgement. Two things tell: the message is the one entered last, since a
    group does not move on before its head is settled; or the fencing token is not newer
    than the last one seen, so that a worker with a lost lease comes too late.
    """
    trouble.befall(delivery)
    with transaction.atomic():
        row, _ = Aircraft.objects.select_for_update().get_or_create(tail_number=delivery.group)
        aircraft = Aircraft.objects.filter(tail_number=delivery.group)
        entered = row.last_message != delivery.id and aircraft.filter(
            fence__lt=delivery.fencing_token
        ).update(
            fence=delivery.fencing_token,
            last_message=delivery.id,
            **asdict(row.record.after(delivery.payload)),
        )
        if not entered:
            aircraft.update(duplicates=F("duplicates") + 1)
