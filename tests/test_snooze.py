"""Until when does Snooze put a message off, and which moments does it refuse?"""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from groupqueue.exceptions import InvalidArgument, Snooze

UTC = datetime.UTC


@pytest.mark.parametrize(
    ("until", "seconds"),
    [(0, 0), (90, 90), (0.5, 0.5), (10**9, 10**9), (datetime.timedelta(minutes=2), 120)],
)
def test_a_length_of_time_is_taken_as_it_is(until: Any, seconds: float):
    assert Snooze(until).delay_seconds == seconds


@pytest.mark.parametrize("zone", [UTC, datetime.timezone(datetime.timedelta(hours=-9))])
def test_an_aware_moment_is_so_far_away(zone: datetime.tzinfo):
    before = datetime.datetime.now(tz=UTC)
    until = (before + datetime.timedelta(hours=1)).astimezone(zone)

    delay_seconds = Snooze(until).delay_seconds

    after = datetime.datetime.now(tz=UTC)
    assert (until - after).total_seconds() <= delay_seconds <= (until - before).total_seconds()


def test_a_moment_that_has_passed_is_now():
    assert Snooze(datetime.datetime(2000, 1, 1, tzinfo=UTC)).delay_seconds == 0


@pytest.mark.parametrize(
    "until",
    [
        datetime.datetime(2030, 1, 1),  # noqa: DTZ001 - what is refused
        -1,
        float("nan"),
        float("inf"),
        datetime.timedelta(seconds=-1),
        # As far as no script could count, which would be found when it is settled.
        10**9 + 1,
        datetime.timedelta(days=365 * 32),
        datetime.datetime(9999, 1, 1, tzinfo=UTC),
    ],
)
def test_what_is_no_moment_to_come_is_refused(until: Any):
    with pytest.raises(InvalidArgument, match="Snooze"):
        Snooze(until)
