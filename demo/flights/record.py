"""What is known of an aircraft after some flights, and whether that is what it should be."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from demo.flights.timetable import Flight


@dataclass(frozen=True, slots=True)
class Record:
    """One aircraft's flights so far, summed up."""

    flights: int = 0
    last_airport: str = ""
    delay_min: int = 0
    """Sum of the departure delays; early departures count against it, cancelled flights not."""
    chain: str = ""
    """SHA-256 over the chain before and the flight: another order, another chain."""

    def after(self, flight: Flight) -> Record:
        """Return the record after one more flight."""
        is_cancelled = flight["departure_delay_min"] is None
        canonical = json.dumps(flight, sort_keys=True, separators=(",", ":"))
        return Record(
            flights=self.flights + 1,
            last_airport=flight["origin"] if is_cancelled else flight["destination"],
            delay_min=self.delay_min + (flight["departure_delay_min"] or 0),
            chain=hashlib.sha256((self.chain + canonical).encode()).hexdigest(),
        )


def out_of_order(flights: Iterable[Flight], records: Mapping[str, Record]) -> list[str]:
    """Return the aircraft whose record is not that of their first flights, one after the other.

    A plain loop over the file says what each record should be. An aircraft with flights
    still to come is right if the ones it has are the first ones, in order.
    """
    right: set[str] = set()
    expected: dict[str, Record] = {}
    for flight in flights:
        tail_number = flight["tail_number"]
        record = expected.get(tail_number, Record()).after(flight)
        expected[tail_number] = record
        if records.get(tail_number) == record:
            right.add(tail_number)
    return sorted(records.keys() - right)
