"""What may be said of a single message beside its content, checked and made ready."""

from __future__ import annotations

import datetime
import hashlib
from typing import Any

from groupqueue.core.messages import EnvelopeOptions, Outgoing
from groupqueue.exceptions import InvalidMessage

MAX_DEDUP_KEY_BYTES = 512
MAX_WIDTH = 1000
LONGEST_DELAY_MS = 100 * 366 * 24 * 3600 * 1000


def envelope_options(
    message: Outgoing, content: bytes, *, default_dedup_window: float, aware_only: bool
) -> EnvelopeOptions:
    """Return what a message's options come to.

    `content` is its encoded topic and payload, for telling a duplicate from a conflict.
    Raises InvalidMessage naming the value.
    """
    due = _due(message.delay, message.eta, aware_only=aware_only)
    if message.hold and not due:
        raise InvalidMessage("hold=True needs a delay or an eta: until when is the group held?")
    if message.dedup_window is not None and message.dedup_key is None:
        raise InvalidMessage("dedup_window needs a dedup_key")
    expires_in = message.expires_in
    options = EnvelopeOptions(
        expires_ms=None if expires_in is None else _milliseconds("expires_in", expires_in, least=1),
        due=due,
        hold=bool(message.hold),
        width=_checked_width(message.width, message.group),
    )
    if message.dedup_key is None:
        return options
    window = default_dedup_window if message.dedup_window is None else message.dedup_window
    return options._replace(
        dedup_key=_checked_key(message.dedup_key),
        dedup_ms=_milliseconds("dedup_window", window, least=1),
        digest=_digest(message.group, content),
    )


def due_text(
    delay: float | datetime.timedelta | None, eta: datetime.datetime | None, *, aware_only: bool
) -> str:
    """Return when something is due as the scripts read it; raises InvalidMessage."""
    due = _due(delay, eta, aware_only=aware_only)
    if not due:
        raise InvalidMessage("give a delay or an eta")
    return due


def _due(
    delay: float | datetime.timedelta | None, eta: datetime.datetime | None, *, aware_only: bool
) -> str:
    if delay is not None and eta is not None:
        raise InvalidMessage("delay and eta exclude each other")
    if delay is not None:
        return f"+{_milliseconds('delay', delay, least=0)}"
    if eta is None:
        return ""
    if not isinstance(eta, datetime.datetime):
        raise InvalidMessage(f"eta must be a datetime, not {eta!r}")
    if aware_only and eta.tzinfo is None:
        raise InvalidMessage(f"eta must be an aware datetime under USE_TZ, not {eta!r}")
    try:
        return str(max(1, round(eta.timestamp() * 1000)))
    except (ValueError, OverflowError, OSError) as error:  # a naive one at the calendar's ends
        raise InvalidMessage(f"eta {eta!r} is not a moment that can be told") from error


def _milliseconds(name: str, value: Any, *, least: int) -> int:
    seconds = value.total_seconds() if isinstance(value, datetime.timedelta) else value
    if type(seconds) not in (int, float) or not least <= seconds * 1000 <= LONGEST_DELAY_MS:
        demand = "0" if least == 0 else "0.001"
        raise InvalidMessage(
            f"{name} must be from {demand} seconds to 100 years, or such a timedelta, not {value!r}"
        )
    return round(seconds * 1000)


def _checked_width(width: object, group: str | None) -> int | None:
    if width is None:
        return None
    if type(width) is not int or not 1 <= width <= MAX_WIDTH:
        raise InvalidMessage(f"width must be an integer from 1 to {MAX_WIDTH}, not {width!r}")
    if group is None:
        raise InvalidMessage("width needs a group: group=None gives each message one of its own")
    return width


def _checked_key(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidMessage(f"dedup_key must be a str, not {key!r}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"dedup_key {key!r} cannot be written as UTF-8") from error
    if not 0 < size <= MAX_DEDUP_KEY_BYTES:
        raise InvalidMessage(f"a dedup_key has 1 to {MAX_DEDUP_KEY_BYTES} bytes, not {size}")
    return key


def _digest(group: str | None, body: bytes) -> str:
    digest = hashlib.blake2b(body, digest_size=16, key=b"" if group is None else _short(group))
    return digest.hexdigest()


def _short(group: str) -> bytes:
    return hashlib.blake2b(group.encode(), digest_size=32).digest()
