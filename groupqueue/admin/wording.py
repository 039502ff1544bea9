"""How numbers, times and strangers' strings become table cells that people can read.

Group ids and errors come from outside. Django's templates escape them; here they lose
what cannot be seen, such as control characters and marks that turn the reading direction.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext as _

MOST_ID_CHARACTERS = 48
MOST_ERROR_CHARACTERS = 120

NOTHING = "—"

MINUTE, HOUR, DAY = 60, 3600, 86_400


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table."""

    text: str
    title: str = ""
    """What the text leaves out, shown on hover."""
    style: str = ""
    """CSS classes of the cell."""
    badge: str = ""
    """CSS classes of a badge around the text; empty for none."""
    link: str = ""


def count(number: int, *, link: str = "", alarming: bool = False) -> Cell:
    """Return a number; zeros stand back, and alarming ones that are not zero stand out."""
    if not number:
        return Cell("0", style="number quiet")
    badge = "badge warning" if alarming else ""
    return Cell(grouped(number), style="number", badge=badge, link=link)


def length(seconds: float, *, alarming: bool = False) -> Cell:
    """Return a length of time in two units at most, the exact seconds as its title."""
    exact = _("%(seconds)s s") % {"seconds": number_format(seconds, 3, force_grouping=True)}
    return Cell(humanised(seconds), exact, "number", "badge warning" if alarming else "")


def since(then: datetime.datetime | None, now: datetime.datetime, *, more: str = "") -> Cell:
    """Return how long ago a moment was, the moment itself as its title."""
    if then is None:
        return Cell(NOTHING, more, "number quiet")
    title = f"{exact_time(then)} {more}".rstrip()
    return Cell(humanised((now - then).total_seconds()), title, "number")


def clock_time(moment: datetime.datetime) -> Cell:
    """Return a moment to the second, to the millisecond as its title."""
    return Cell(timezone.localtime(moment).strftime("%Y-%m-%d %H:%M:%S"), exact_time(moment))


def identifier(text: str) -> Cell:
    """Return an id: shortened, its full length as the title."""
    visible = printable(text)
    return Cell(shortened(visible, MOST_ID_CHARACTERS), visible, "identifier")


def prose(text: str) -> Cell:
    """Return a reason or an error: one line of it, all of it as the title."""
    full = "\n".join(printable(line) for line in text.splitlines())
    return Cell(shortened(" ".join(full.split()), MOST_ERROR_CHARACTERS), full, "long-text")


def plain(text: str) -> Cell:
    """Return a short text, made printable; a dash when there is none."""
    visible = printable(text)
    short = shortened(visible, MOST_ID_CHARACTERS)
    return (
        Cell(short, "" if short == visible else visible) if text else Cell(NOTHING, style="quiet")
    )


def grouped(number: int) -> str:
    """Return a number with the language's thousands separators."""
    return number_format(number, force_grouping=True)


def humanised(seconds: float) -> str:
    """Return a length of time in two units at most: "0.4 s", "3 min 20 s", "4 d 3 h"."""
    seconds = max(0.0, seconds)
    if seconds < 1:
        return _("%(seconds)s s") % {"seconds": number_format(int(seconds * 10) / 10, 1)}
    if seconds < MINUTE:
        return _("%(seconds)s s") % {"seconds": int(seconds)}
    if seconds < HOUR:
        minutes, rest = divmod(int(seconds), MINUTE)
        return _("%(minutes)d min %(seconds)d s") % {"minutes": minutes, "seconds": rest}
    if seconds < DAY:
        hours, rest = divmod(int(seconds), HOUR)
        return _("%(hours)d h %(minutes)d min") % {"hours": hours, "minutes": rest // MINUTE}
    days, rest = divmod(int(seconds), DAY)
    return _("%(days)d d %(hours)d h") % {"days": days, "hours": rest // HOUR}


def exact_time(moment: datetime.datetime) -> str:
    """Return a moment to the millisecond, in the current time zone."""
    return timezone.localtime(moment).isoformat(sep=" ", timespec="milliseconds")


def printable(text: str) -> str:
    """Return the text with every character that cannot be seen written as an escape."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def shortened(text: str, most: int) -> str:
    """Return at most so many characters, an ellipsis for the rest."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
