"""Which values a setting or a handler's option may have.

A check takes the value's path, such as GROUPQUEUE['default']['ARRIVAL'], and the
value. It returns what is to be used, or raises ConfigurationError naming both.
"""

from __future__ import annotations

import datetime
import difflib
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeGuard

from groupqueue.exceptions import ConfigurationError

Check = Callable[[str, object], Any]

LONGEST_SECONDS = 7 * 24 * 3600
"""A week: a longer lease or pause between attempts is a slip of the pen."""


def number(demand: str, *, low: float, high: float) -> Check:
    """Return a check for an int or float within limits."""

    def check(path: str, value: object) -> float:
        if _is_number(value) and low <= value <= high:  # NaN fails both
            return float(value)
        raise refusal(path, demand, value)

    return check


def integer(demand: str, *, low: int, high: float = float("inf")) -> Check:
    """Return a check for an int within limits."""

    def check(path: str, value: object) -> int:
        if type(value) is int and low <= value <= high:
            return value
        raise refusal(path, demand, value)

    return check


def seconds(path: str, value: object) -> float:
    """Accept a positive number of seconds up to a week, or a timedelta."""
    return _seconds(path, value, LONGEST_SECONDS)


def long_seconds(path: str, value: object) -> float:
    """The same up to ten years."""
    return _seconds(path, value, 10 * 366 * 24 * 3600)


def _seconds(path: str, value: object, longest: int) -> float:
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    if not _is_number(value) or not value > 0:
        raise refusal(path, "a positive number of seconds", value)
    # The server counts in whole milliseconds.
    if not 0.001 <= value <= longest:
        raise refusal(path, f"from 0.001 to {longest} seconds", value)
    return float(value)


def optional(check: Check) -> Check:
    """Return a check that accepts None as well."""

    def check_unless_none(path: str, value: object) -> Any:
        return None if value is None else check(path, value)

    return check_unless_none


def one_of(choices: Collection[str]) -> Check:
    """Return a check for one of several words."""
    demand = " or ".join(repr(choice) for choice in choices)

    def check(path: str, value: object) -> str:
        if isinstance(value, str) and value in choices:
            return value
        raise refusal(path, demand, value)

    return check


def backoff(path: str, value: object) -> dict[str, float]:
    """Accept `(base, cap)` or a mapping with `base`, `cap` or both, in seconds.

    Returns the fields of a RetryPolicy that were given.
    """
    match value:
        case (base, cap):
            given = {"base": base, "cap": cap}
        case Mapping() if value:
            given = dict(value)
        case _:
            raise refusal(path, "(base, cap) or {'base': …, 'cap': …} in seconds", value)
    refuse_unknown(path, given, ("base", "cap"))
    parts = {name: seconds(f"{path}[{name!r}]", part) for name, part in given.items()}
    if parts.get("base", 0) > parts.get("cap", LONGEST_SECONDS):
        raise refusal(path, "a base no longer than its cap", value)
    return {f"backoff_{name}_seconds": part for name, part in parts.items()}


def refuse_unknown(path: str, given: Iterable[object], known: Collection[str]) -> None:
    """Raise ConfigurationError for the first key that is not a known one."""
    for key in given:
        if key not in known:
            raise ConfigurationError(f"{path}[{key!r}] is unknown{_meant(key, known)}")


def refusal(path: str, demand: str, value: object) -> ConfigurationError:
    """Return the error for a value that is not what its path demands."""
    return ConfigurationError(f"{path} must be {demand}, not {_shown.repr(value)}")


def _is_number(value: object) -> TypeGuard[int | float]:
    # Not isinstance: True is an int to it.
    return type(value) in (int, float)


def _meant(key: object, known: Collection[str]) -> str:
    """Return a hint at the key that was probably meant."""
    if isinstance(key, str):
        by_lower = {name.lower(): name for name in known}
        close = difflib.get_close_matches(key.lower(), by_lower, n=1)
        if close:
            return f"; did you mean {by_lower[close[0]]!r}?"
    return f"; the keys are {', '.join(known)}"


_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 80
