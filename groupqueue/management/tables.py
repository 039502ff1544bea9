"""How tables, lengths of time and strangers' strings are written to a terminal.

Group ids, errors and payloads come from outside: what could steer a terminal is
written as an escape.
"""

from __future__ import annotations

import datetime
import unicodedata
from collections.abc import Sequence

from django.utils import timezone

Cell = str | int

NOTHING = "-"
MOST_ID_CHARACTERS = 60
MOST_NOTE_CHARACTERS = 80
_GAP = "  "


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, empty: str = "") -> str:
    """Return aligned columns below their names, numbers to the right; `empty` without rows."""
    if not rows:
        return empty
    texts = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    widths = [
        max(_width(name), *(_width(row[place]) for row in texts))
        for place, name in enumerate(columns)
    ]
    is_number = [isinstance(cell, int) for cell in rows[0]]

    def line(cells: Sequence[str]) -> str:
        padded = (
            " " * (width - _width(cell)) + cell if right else cell + " " * (width - _width(cell))
            for cell, width, right in zip(cells, widths, is_number, strict=True)
        )
        return _GAP.join(padded).rstrip()

    return "\n".join(map(line, ([name.upper() for name in columns], *texts)))


def pairs(rows: Sequence[tuple[str, str]]) -> str:
    """Return names and values in two columns, without the empty values."""
    shown = [(name, value) for name, value in rows if value]
    width = max(len(name) for name, _ in shown)
    return "\n".join(f"{name.ljust(width)}{_GAP}{value}" for name, value in shown)


def printable(text: str) -> str:
    """Return the text with every character that cannot be seen written as an escape."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def identifier(text: str) -> str:
    """Return an id as a cell."""
    return shortened(printable(text), MOST_ID_CHARACTERS)


def note(text: str, most: int = MOST_NOTE_CHARACTERS) -> str:
    """Return the beginning of a longer text as a cell."""
    return shortened(printable(" ".join(text.split())), most)


def shortened(text: str, most: int) -> str:
    """Return at most so many characters, an ellipsis for the rest."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def humanised(seconds: float) -> str:
    """Return a length of time in two units at most: "0.4 s", "3 min 20 s", "4 d 3 h"."""
    if seconds < 1:
        return f"{int(max(0.0, seconds) * 10) / 10:.1f} s"
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days:,} d {hour} h"
    if hours:
        return f"{hours} h {minute} min"
    return f"{minutes} min {second} s" if minutes else f"{second} s"


def ago(then: datetime.datetime | None, now: datetime.datetime) -> str:
    """Return how long ago a moment was, or how far away it is; a dash for None."""
    if then is None:
        return NOTHING
    passed = (now - then).total_seconds()
    return f"in {humanised(-passed)}" if passed < 0 else f"{humanised(passed)} ago"


def clock_time(then: datetime.datetime | None) -> str:
    """Return a moment to the second, in the current time zone; empty for None."""
    return "" if then is None else f"{timezone.localtime(then):%Y-%m-%d %H:%M:%S}"


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.combining(character)
        else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )
