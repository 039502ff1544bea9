"""Do the words of a command line become the values that they mean, or a clear refusal?"""

from __future__ import annotations

import argparse
import datetime

import pytest
from django.utils import timezone

from groupqueue.core.views import LetterFilter
from groupqueue.management import arguments
from tests.operating.conftest import Bench, operate

UTC = datetime.UTC


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T09:30:00+02:00", datetime.datetime(2026, 1, 31, 7, 30, tzinfo=UTC)),
        ("2026-01-31T09:30:00Z", datetime.datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        ("2026-01-31 09:30", datetime.datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        ("2026-01-31", datetime.datetime(2026, 1, 31, tzinfo=UTC)),
    ],
)
def test_a_moment_is_iso_8601(text: str, expected: datetime.datetime) -> None:
    assert arguments.moment(text) == expected


def test_a_moment_without_a_zone_is_in_the_current_one() -> None:
    with timezone.override("Asia/Tokyo"):
        found = arguments.moment("2026-01-31T09:30")

    assert found == datetime.datetime(2026, 1, 31, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("2h", 7200), ("1.5h", 5400), ("7d", 604_800)]
)
def test_a_moment_may_be_a_while_ago(text: str, seconds: float) -> None:
    before = timezone.now()
    found = arguments.moment(text)
    after = timezone.now()

    length = datetime.timedelta(seconds=seconds)
    assert before <= found + length <= after


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2h ago", "-2h", "99999999d", "2026-13-01", "2026-02-30T10:00", "h"]
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        arguments.moment(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90), ("0.5", 0.5), ("90s", 90), ("1.5h", 5400), ("7d", 604_800)]
)
def test_a_length_of_time_is_seconds_or_says_its_unit(text: str, expected: float) -> None:
    assert arguments.length(text) == expected


@pytest.mark.parametrize("text", ["", "-5", "2w", "nan", "h", "soon"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="seconds"):
        arguments.length(text)


def test_a_moment_to_come_is_not_a_while_ago() -> None:
    expected = datetime.datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
    assert arguments.moment_to_come("2026-01-31T09:30Z") == expected
    with pytest.raises(argparse.ArgumentTypeError):
        arguments.moment_to_come("2h")


@pytest.mark.parametrize("text", ["", "one", "1.5", "-1", "5", "nan"])
def test_what_is_no_tier_is_refused_with_what_was_given(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="0 to 4"):
        arguments.tier(text)


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "x"])
def test_what_is_no_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="seconds"):
        arguments.seconds(text)


def test_a_selection_in_words() -> None:
    moment = datetime.datetime(2026, 1, 31, tzinfo=UTC)
    wanted = LetterFilter(
        entries=("1-0", "2-0", "1-0"),
        group="g\n",
        topic="t",
        reason="r",
        since=moment,
        until=moment,
    )

    assert arguments.selection_in_words(wanted) == (
        "2 by entry id, group 'g\\n', topic 't', reason 'r',"
        " since 2026-01-31T00:00:00+00:00, until 2026-01-31T00:00:00+00:00"
    )
    assert arguments.selection_in_words(LetterFilter()) == "all"


@pytest.mark.parametrize(
    "given",
    [
        ("stats", "--max-lag=--"),
        ("stats", "--max-dead=--"),
        ("dead", "--since=--"),
        ("redrive", "--until=--"),
        ("drop", "--yes", "--since=--"),
        ("doctor", "--fail-level=--"),
        ("watch", "--count=--"),
    ],
)
def test_two_dashes_are_no_number_moment_or_choice(bench: Bench, given: tuple[str, ...]) -> None:
    bench.bury("group")

    said = operate(*given)

    assert said.code in (1, 2)
    assert "argument" in said.trouble
    assert bench.queue.dead_letters().total == 1


@pytest.mark.parametrize(
    "given",
    [
        ("pause", "--why=--", "group"),
        ("stop", "--yes", "--why=--"),
        ("skip", "--yes", "--", "group", "--"),
        ("drop", "--yes", "--group=--"),
        ("drop", "--yes", "--topic=--"),
        ("purge", "--yes", "--queue=--", "group"),
        ("rate", "--group=--", "5/s"),
    ],
)
def test_two_dashes_are_taken_as_text_or_refused(bench: Bench, given: tuple[str, ...]) -> None:
    """Which of the two depends on the version of argparse."""
    bench.bury("other")
    bench.publish("group")

    said = operate(*given)

    assert said.code in (0, 1, 2)
    assert bool(said.code) == bool(said.trouble)
    assert bench.waiting("group") == [1]
    assert bench.queue.dead_letters().total == 1
    assert bench.queue.snapshot().rate == "", "a group's rate is not taken for the queue's"


@pytest.mark.parametrize("verb", [("cancel", "--yes"), ("reschedule", "--delay", "5")])
def test_a_message_may_be_named_by_bytes_that_are_no_text(
    bench: Bench, verb: tuple[str, ...]
) -> None:
    said = operate(*verb, "--", "\udcff")

    assert said.code == 1
    assert "Traceback" not in said.trouble
