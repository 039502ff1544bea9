"""How the words of a command line become values: numbers, moments, selections of letters."""

from __future__ import annotations

import argparse
import datetime
import re
from collections.abc import Callable
from typing import TypeVar

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from groupqueue.core.rates import parse_rate
from groupqueue.core.views import LetterFilter
from groupqueue.exceptions import InvalidArgument
from groupqueue.management.verbs import EXIT_USAGE, Options

N = TypeVar("N", int, float)

_LENGTH = re.compile(r"(\d{1,9}(?:\.\d+)?)([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def number(
    convert: Callable[[str], N], demand: str, low: float, high: float = 1e9
) -> Callable[[str], N]:
    """Return an option's parser, which says what it demands and what it was given."""

    def parse(text: str) -> N:
        try:
            value = convert(text)
        except ValueError:
            value = None
        if value is not None and low <= value <= high:  # NaN fails both
            return value
        raise argparse.ArgumentTypeError(f"{text!r} is not {demand}")

    return parse


count = number(int, "a whole number of 1 or more", 1)
whole = number(int, "a whole number of 0 or more", 0)
seconds = number(float, "a number of seconds", 0)
interval = number(float, "a number of seconds from 0.01 up", 0.01)
tier = number(int, "a tier from 0 to 4", 0, 4)


def rate(text: str) -> str:
    """Return a rate as it was given, if it is one, "none" or "default"."""
    if text not in ("none", "default"):
        try:
            parse_rate(text)
        except InvalidArgument as error:
            raise argparse.ArgumentTypeError(str(error)) from error
    return text


def moment(text: str) -> datetime.datetime:
    """Return an aware moment: ISO 8601, in the current time zone unless it says which, or
    how long ago, such as 90s, 15m, 2h or 7d."""
    if (ago := _length_seconds(text)) is not None:
        try:
            return timezone.now() - datetime.timedelta(seconds=ago)
        except OverflowError:
            raise argparse.ArgumentTypeError(f"{text!r} is too long ago") from None
    if found := _iso_moment(text):
        return found
    raise argparse.ArgumentTypeError(f"{text!r} is neither a time such as 2026-01-31T09:30 nor 2h")


def moment_to_come(text: str) -> datetime.datetime:
    """Return an aware moment: ISO 8601, in the current time zone unless it says which."""
    if found := _iso_moment(text):
        return found
    raise argparse.ArgumentTypeError(f"{text!r} is no time such as 2026-01-31T09:30")


def length(text: str) -> float:
    """Return a length of time in seconds, given as such or as 90s, 15m, 2h or 7d."""
    found = _length_seconds(text)
    return _plain_length(text) if found is None else found


_plain_length = number(float, "a number of seconds, nor a length of time such as 90s or 2h", 0)


def _length_seconds(text: str) -> float | None:
    found = _LENGTH.fullmatch(text)
    return float(found[1]) * _UNITS[found[2]] if found else None


def _iso_moment(text: str) -> datetime.datetime | None:
    try:
        found = parse_datetime(text)
        if found is None and (day := parse_date(text)):
            found = datetime.datetime.combine(day, datetime.time())
    except ValueError:
        found = None
    return timezone.make_aware(found) if found and found.tzinfo is None else found


def refuse_lost_values(options: Options) -> None:
    """Raise CommandError for a value that argparse has lost.

    Before Python 3.13 it takes `--` for the end of options even in `--why=--`, and has an empty
    list for what is one value.
    """
    for name, value in options.items():
        if value == [] and name not in _TAKING_LISTS:
            raise CommandError(
                f"argument {name.replace('_', '-')}: expected one argument, which may not be --",
                returncode=EXIT_USAGE,
            )


_TAKING_LISTS = ("queues", "entries")


def add_group(parser: CommandParser) -> None:
    """Take the group that a verb is about."""
    parser.add_argument("group", metavar="GROUP")


def add_letter_filters(parser: CommandParser) -> None:
    """Take what narrows dead letters down."""
    parser.add_argument("--group", help="letters of this group")
    parser.add_argument("--topic", help="letters of this topic")
    parser.add_argument("--reason", help="letters set aside for this reason")
    parser.add_argument(
        "--since", type=moment, metavar="TIME", help="set aside at or after: ISO 8601, or 2h (ago)"
    )
    parser.add_argument("--until", type=moment, metavar="TIME", help="set aside before")


def add_letter_selection(parser: CommandParser) -> None:
    """Take which dead letters are to be changed: never all by omission."""
    parser.add_argument("entries", nargs="*", metavar="ENTRY", help="letters by their entry id")
    parser.add_argument("--all", action="store_true", help="every dead letter of the queue")
    add_letter_filters(parser)


def letter_filter(options: Options) -> LetterFilter:
    """Return which letters `dead` is to show."""
    return LetterFilter(
        entries=tuple(options.get("entries", ())),
        group=options["group"],
        topic=options["topic"],
        reason=options["reason"],
        since=options["since"],
        until=options["until"],
    )


def letter_selection(options: Options) -> LetterFilter:
    """Return which letters are to be changed; raises CommandError when nothing says so."""
    wanted = letter_filter(options)
    is_everything = wanted == LetterFilter()
    if is_everything and not options["all"]:
        raise CommandError(
            "say which dead letters: entry ids, --group, --topic, --reason, --since, --until"
            " or --all",
            returncode=EXIT_USAGE,
        )
    if options["all"] and not is_everything:
        raise CommandError(
            "--all means every dead letter: leave it out to select some", returncode=EXIT_USAGE
        )
    return wanted


def selection_in_words(wanted: LetterFilter) -> str:
    """Return which letters are meant, for a question."""
    parts = [f"{len(set(wanted.entries))} by entry id"] if wanted.entries else []
    for name in ("group", "topic", "reason"):
        if value := getattr(wanted, name):
            parts.append(f"{name} {value!r}")
    if wanted.since:
        parts.append(f"since {wanted.since.isoformat()}")
    if wanted.until:
        parts.append(f"until {wanted.until.isoformat()}")
    return ", ".join(parts) or "all"
