"""Does the comparison with the file find every way in which a record can be wrong?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from demo.flights.record import Record, out_of_order
from demo.flights.timetable import Flight


def flight(tail_number: str, number: int, *, delay_min: int | None = 5) -> Flight:
    """Return a flight from JFK to LAX."""
    return Flight(
        scheduled_departure="2013-01-01T10:15Z",
        carrier="AA",
        flight=number,
        tail_number=tail_number,
        origin="JFK",
        destination="LAX",
        departure_delay_min=delay_min,
        arrival_delay_min=None,
        air_time_min=None,
        distance_mi=2475,
    )


def record_of(flights: Sequence[Flight]) -> Record:
    """Return the record after these flights."""
    record = Record()
    for each in flights:
        record = record.after(each)
    return record


FIRST = [flight("N1", 1), flight("N1", 2), flight("N1", 3)]
SECOND = [flight("N2", 1), flight("N2", 2)]
# Two aircraft take turns, as in the file.
FILE = [FIRST[0], SECOND[0], FIRST[1], SECOND[1], FIRST[2]]
RIGHT = {"N1": record_of(FIRST), "N2": record_of(SECOND)}


def test_a_record_sums_its_flights_up() -> None:
    record = record_of([flight("N1", 1, delay_min=30), flight("N1", 2, delay_min=-4)])
    assert (record.flights, record.last_airport, record.delay_min) == (2, "LAX", 26)


def test_a_cancelled_flight_counts_without_a_delay_and_goes_nowhere() -> None:
    record = record_of([flight("N1", 1, delay_min=None)])
    assert (record.flights, record.last_airport, record.delay_min) == (1, "JFK", 0)


def test_records_in_the_files_order_are_right() -> None:
    assert out_of_order(FILE, RIGHT) == []


def test_two_flights_that_changed_places_are_found() -> None:
    swapped = record_of([FIRST[1], FIRST[0], FIRST[2]])
    assert out_of_order(FILE, RIGHT | {"N1": swapped}) == ["N1"]


def test_a_tampered_chain_is_found() -> None:
    tampered = replace(RIGHT["N2"], chain="0" * 64)
    assert out_of_order(FILE, RIGHT | {"N2": tampered}) == ["N2"]


def test_a_flight_that_was_left_out_is_found() -> None:
    assert out_of_order(FILE, RIGHT | {"N1": record_of([FIRST[0], FIRST[2]])}) == ["N1"]


def test_a_flight_that_was_entered_twice_is_found() -> None:
    twice = record_of([FIRST[0], FIRST[0], FIRST[1]])
    assert out_of_order(FILE, RIGHT | {"N1": twice}) == ["N1"]


def test_a_wrong_sum_is_found_though_the_chain_is_right() -> None:
    assert out_of_order(FILE, RIGHT | {"N1": replace(RIGHT["N1"], delay_min=0)}) == ["N1"]


def test_an_aircraft_that_the_file_does_not_have_is_found() -> None:
    assert out_of_order(FILE, RIGHT | {"N3": record_of([flight("N3", 1)])}) == ["N3"]


def test_an_aircraft_with_flights_to_come_is_in_order_so_far() -> None:
    assert out_of_order(FILE, {"N1": record_of(FIRST[:2])}) == []
