"""What is in the data file: flights, and rows that are none."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypedDict, cast

DATA_FILE = Path(__file__).resolve().parent.parent / "data" / "flights-2013-01.csv.gz"
MISSING = "NA"

TEXTS = ("scheduled_departure", "carrier", "tail_number", "origin", "destination")
NUMBERS = ("flight", "distance_mi")
# Missing for cancelled flights, and for those that were diverted.
NUMBERS_OR_NONE = ("departure_delay_min", "arrival_delay_min", "air_time_min")


class Flight(TypedDict):
    """One row of the file, and the payload of its message."""

    scheduled_departure: str
    carrier: str
    flight: int
    tail_number: str
    origin: str
    destination: str
    departure_delay_min: int | None
    arrival_delay_min: int | None
    air_time_min: int | None
    distance_mi: int


class RejectedRow(NamedTuple):
    """One row that cannot be a message, and why."""

    line: int
    reason: str
    text: str


class NotATimetable(Exception):
    """The data file is not what the demo knows how to read."""


def read_rows(
    path: Path = DATA_FILE, *, limit: int | None = None
) -> Iterator[Flight | RejectedRow]:
    """Yield what each row of the file is, in the file's order; raises NotATimetable."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            absent = {*TEXTS, *NUMBERS, *NUMBERS_OR_NONE}.difference(reader.fieldnames or ())
            if absent:
                raise NotATimetable(f"{path} lacks the columns {', '.join(sorted(absent))}")
            for row in islice(reader, limit):
                yield _read_row(reader.line_num, row)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise NotATimetable(f"{path} cannot be read: {error}") from error


def tier_of(carrier: str) -> int:
    """Return the tier of a carrier's aircraft, 4 the most urgent.

    The rule is the carrier's class: the farther its aircraft fly from here, the longer it
    takes to find another for one that is late, and the sooner we want to know of it.

    4  long haul    Hawaiian, whose only route is the longest of the file
    3  transcontinental    Alaska and Virgin America, which fly coast to coast alone
    2  network    American, Delta, United, US Airways
    1  low cost    JetBlue, Frontier, AirTran, Southwest
    0  regional    Endeavor, ExpressJet, Envoy, SkyWest, Mesa, and whoever else comes

    No aircraft of the file changes its carrier, so each has one tier throughout.
    """
    return _TIERS.get(carrier, 0)


_TIERS = {
    "HA": 4,
    **dict.fromkeys(("AS", "VX"), 3),
    **dict.fromkeys(("AA", "DL", "UA", "US"), 2),
    **dict.fromkeys(("B6", "F9", "FL", "WN"), 1),
}


def _read_row(line: int, row: Mapping[str | None, str | None]) -> Flight | RejectedRow:
    def rejected(reason: str) -> RejectedRow:
        return RejectedRow(line, reason, ",".join(str(value) for value in row.values()))

    if None in row or None in row.values():
        return rejected("wrong number of columns")
    values: dict[str, str | int | None] = {}
    for name, value in cast(Mapping[str, str], row).items():
        if name in TEXTS:
            if value in (MISSING, ""):
                return rejected(f"no {name.replace('_', ' ')}")
            values[name] = value
        elif name in NUMBERS_OR_NONE and value == MISSING:
            values[name] = None
        elif name in NUMBERS or name in NUMBERS_OR_NONE:
            try:
                values[name] = int(value)
            except ValueError:
                return rejected(f"{name} is not a whole number")
    return cast(Flight, values)
