"""Are the file's rows read as they are, and the dirty ones rejected by name?"""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from demo.flights.timetable import (
    DATA_FILE,
    Flight,
    NotATimetable,
    RejectedRow,
    read_rows,
    tier_of,
)

HEADER = (
    "scheduled_departure,carrier,flight,tail_number,origin,destination,"
    "departure_delay_min,arrival_delay_min,air_time_min,distance_mi"
)


def flights_of(path: Path = DATA_FILE) -> list[Flight]:
    """Return the flights of a file."""
    return [row for row in read_rows(path) if not isinstance(row, RejectedRow)]


def write(path: Path, *lines: str) -> Path:
    """Write a file like the demo's."""
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def test_the_file_has_27004_rows_of_which_155_have_no_tail_number() -> None:
    rows = list(read_rows())
    rejected = [row for row in rows if isinstance(row, RejectedRow)]
    assert len(rows) == 27_004
    assert Counter(row.reason for row in rejected) == {"no tail number": 155}


def test_a_rejected_row_names_its_line_and_its_text() -> None:
    rejected = next(row for row in read_rows() if isinstance(row, RejectedRow))
    lines = gzip.decompress(DATA_FILE.read_bytes()).decode().splitlines()
    assert lines[rejected.line - 1] == rejected.text


def test_a_flight_is_its_row_with_numbers_as_numbers() -> None:
    assert next(read_rows()) == {
        "scheduled_departure": "2013-01-01T10:15Z",
        "carrier": "UA",
        "flight": 1545,
        "tail_number": "N14228",
        "origin": "EWR",
        "destination": "IAH",
        "departure_delay_min": 2,
        "arrival_delay_min": 11,
        "air_time_min": 227,
        "distance_mi": 1400,
    }


def test_cancelled_flights_are_flights_without_a_delay() -> None:
    cancelled = [flight for flight in flights_of() if flight["departure_delay_min"] is None]
    assert len(cancelled) == 366


def test_an_aircraft_has_one_tier_throughout() -> None:
    tiers = defaultdict(set)
    for flight in flights_of():
        tiers[flight["tail_number"]].add(tier_of(flight["carrier"]))
    assert {len(found) for found in tiers.values()} == {1}
    assert set().union(*tiers.values()) == {0, 1, 2, 3, 4}


def test_a_limit_reads_the_first_rows() -> None:
    assert len(list(read_rows(limit=7))) == 7


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("2013-01-01T10:15Z,UA,1545,N14228,EWR,IAH,2,11,227", "wrong number of columns"),
        ("2013-01-01T10:15Z,UA,1545,N14228,EWR,IAH,2,11,227,1400,1", "wrong number of columns"),
        ("2013-01-01T10:15Z,UA,1545,,EWR,IAH,2,11,227,1400", "no tail number"),
        ("2013-01-01T10:15Z,UA,NA,N14228,EWR,IAH,2,11,227,1400", "flight is not a whole number"),
        (
            "2013-01-01T10:15Z,UA,1,N14228,EWR,IAH,late,11,227,1400",
            "departure_delay_min is not a whole number",
        ),
    ],
)
def test_a_dirty_row_is_rejected_with_its_reason(tmp_path: Path, line: str, reason: str) -> None:
    (row,) = read_rows(write(tmp_path / "dirty.csv.gz", HEADER, line))
    assert isinstance(row, RejectedRow)
    assert row.reason == reason


def test_a_file_with_other_columns_is_refused_naming_those_it_lacks(tmp_path: Path) -> None:
    path = write(tmp_path / "other.csv.gz", HEADER.replace("carrier", "airline"), "")
    with pytest.raises(NotATimetable, match="lacks the columns carrier"):
        list(read_rows(path))


def test_a_file_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.csv.gz"
    path.write_bytes(DATA_FILE.read_bytes()[:100_000])
    with pytest.raises(NotATimetable, match="cannot be read"):
        list(read_rows(path))
