"""Is a rate read as people mean it, and written so that they read the same?"""

from __future__ import annotations

import pytest

from groupqueue.core.rates import Rate, parse_rate, rate_text
from groupqueue.exceptions import InvalidArgument

SECOND, MINUTE = 1_000_000, 60_000_000


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1/s", Rate(SECOND)),
        ("10/m", Rate(6 * SECOND)),
        ("10/m:4", Rate(6 * SECOND, 4)),
        ("100/h", Rate(36 * SECOND)),
        ("1/d", Rate(86_400 * SECOND)),
        ("1/5m", Rate(5 * MINUTE)),
        ("3/2s:9", Rate(666_667, 9)),
        (" 10 / m : 4 ", Rate(6 * SECOND, 4)),
        ("999999999/s", Rate(1)),
        ("1/3660d", Rate(3660 * 86_400 * SECOND)),
    ],
)
def test_a_rate_is_one_message_each_interval_and_a_burst(text: str, rate: Rate):
    assert parse_rate(text) == rate


def test_a_rate_never_lets_more_go_than_it_says():
    for count in (3, 7, 9, 11, 1001, 300_000):
        assert parse_rate(f"{count}/m").interval_us * count >= MINUTE


@pytest.mark.parametrize(
    "text",
    ["", "10", "10/", "/m", "10/x", "10/M", "0/m", "10/0m", "10/m:0", "-1/s", "1.5/s", "10/m:",
     "٣/m", "none", "1/3661d", "2/d:7321", "1/999999d:999999999", None, 10, b"10/m"],
)  # fmt: skip
def test_what_is_no_rate_is_refused_with_an_example(text: str):
    with pytest.raises(InvalidArgument, match="is no rate"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("10/m", "10/m"),
        ("10/m:4", "10/m:4"),
        ("7/m", "7/m"),
        ("1/5m", "12/h"),
        ("60/h", "1/m"),
        ("1/7s", "1/7s"),
        ("11/7s", "11/7s"),
        ("1/2d", "1/2d"),
        ("100/s", "100/s"),
        ("1/1000d", "1/86400000s"),
    ],
)
def test_people_are_shown_a_rate_as_they_write_it(given: str, shown: str):
    assert parse_rate(given).text == shown


@pytest.mark.parametrize("unit", ["s", "m", "h", "d", "7s", "90m"])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 10, 11, 97, 1000])
def test_what_is_shown_means_the_same_rate(count: int, unit: str):
    rate = parse_rate(f"{count}/{unit}:3")

    assert parse_rate(rate.text) == rate
    assert rate_text(rate.argument.encode()) == rate.text


@pytest.mark.parametrize("told", ["none", "", "what somebody else wrote"])
def test_what_is_no_rate_on_the_server_is_shown_as_it_is(told: str):
    assert rate_text(told.encode()) == told


@pytest.mark.parametrize("told", ["0 1", "1000 0", "5 x", "9" * 5000 + " 1", "² 1"])
def test_what_lets_nothing_through_or_is_no_number_is_shown_as_it_is(told: str):
    assert rate_text(told.encode()) == told
