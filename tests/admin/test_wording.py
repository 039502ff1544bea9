"""How do numbers, times and strangers' strings read?"""

from __future__ import annotations

import datetime

import pytest
from django.test import override_settings
from django.utils import translation

from groupqueue.admin import wording


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0.0 s"),
        (0.05, "0.0 s"),
        (0.49, "0.4 s"),
        (0.999, "0.9 s"),
        (1, "1 s"),
        (59.9, "59 s"),
        (60, "1 min 0 s"),
        (200.5, "3 min 20 s"),
        (3599, "59 min 59 s"),
        (7500, "2 h 5 min"),
        (86_399, "23 h 59 min"),
        (86_400 * 4 + 3600 * 3 + 59, "4 d 3 h"),
    ],
)
def test_a_length_of_time_has_two_units_at_most(seconds: float, words: str) -> None:
    assert wording.humanised(seconds) == words


def test_numbers_follow_the_language() -> None:
    with translation.override("de"):
        assert wording.count(1234567).text == "1.234.567"
        assert wording.length(0.5).text == "0,5 s"
        assert wording.length(1234.5).title == "1.234,500 s"


def test_a_moment_is_exact_and_in_the_current_time_zone() -> None:
    moment = datetime.datetime(2026, 11, 30, 2, 3, 4, 567_000, tzinfo=datetime.UTC)

    with override_settings(TIME_ZONE="Europe/Vienna"):
        cell = wording.clock_time(moment)

    assert cell.text == "2026-11-30 03:03:04"
    assert cell.title == "2026-11-30 03:03:04.567+01:00"


def test_a_moment_that_is_not_known_is_a_dash() -> None:
    now = datetime.datetime.now(tz=datetime.UTC)

    assert wording.since(None, now).text == wording.NOTHING


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("order-17", "order-17"),
        ("日本 é", "日本 é"),
        ("a\nb", "a\\nb"),
        ("\x00", "\\x00"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\udc80", "\\udc80"),
    ],
)
def test_what_cannot_be_seen_is_written_as_an_escape(text: str, shown: str) -> None:
    assert wording.printable(text) == shown


def test_an_error_of_many_lines_is_one_line_and_whole_on_hover() -> None:
    cell = wording.prose("ValueError: no\n  File x, line 3\x07")

    assert cell.text == "ValueError: no File x, line 3\\x07"
    assert cell.title == "ValueError: no\n  File x, line 3\\x07"
