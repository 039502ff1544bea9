"""What people are shown of single groups, messages and dead letters, as named values."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from groupqueue.core.codec import Codec, Content
from groupqueue.core.messages import moment, split_element
from groupqueue.core.snapshot import GroupState, GroupView, group_view, stop_of, text, whole_number
from groupqueue.exceptions import CorruptMessage, InvalidArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """One message as it lies in the queue."""

    id: str
    topic: str
    """Empty when the bytes cannot be decoded."""
    payload: Any = field(repr=False)
    headers: Mapping[str, Any] = field(repr=False)
    published_at: datetime.datetime
    size_bytes: int


class Peeked(NamedTuple):
    """Some of a group's messages."""

    depth: int
    """How many messages the group has."""
    messages: tuple[StoredMessage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message set aside, with what was known of it then."""

    entry: str
    """The id to redrive or drop it by; its first part is the ms at which it was set aside."""
    group: str
    tier: int
    reason: str
    error: str
    deliveries: int
    failures: int
    died_at: datetime.datetime
    message: StoredMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A message that is not due yet."""

    id: str
    group: str
    due_at: datetime.datetime
    is_held: bool
    """Whether it lies in its group already and holds it until it is due."""
    message: StoredMessage | None
    """None for a held one: see the group."""


class Agenda(NamedTuple):
    """Some of the scheduled messages."""

    total: int
    """How many there are in all."""
    messages: tuple[Scheduled, ...]


class Letters(NamedTuple):
    """Some of the dead letters."""

    total: int
    """How many there are in all."""
    letters: tuple[DeadLetter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Which dead letters are meant; what is left out lets all through."""

    entries: Collection[str] = ()
    group: str | None = None
    topic: str | None = None
    reason: str | None = None
    since: datetime.datetime | None = None
    """Set aside at or after this moment; aware."""
    until: datetime.datetime | None = None
    """Set aside before this moment; aware."""

    def __post_init__(self) -> None:
        for moment_ in (self.since, self.until):
            if moment_ is not None and moment_.tzinfo is None:
                raise InvalidArgument(f"since and until must be aware datetimes, not {moment_!r}")

    def lets_through(self, letter: DeadLetter) -> bool:
        """Say whether a letter is meant."""
        return (
            (not self.entries or letter.entry in self.entries)
            and self.group in (None, letter.group)
            and self.topic in (None, letter.message.topic)
            and self.reason in (None, letter.reason)
            and (self.since is None or self.since <= letter.died_at)
            and (self.until is None or letter.died_at < self.until)
        )

    @property
    def is_about_time(self) -> bool:
        """Whether all letters between two moments are meant."""
        return not self.entries and (self.group, self.topic, self.reason) == (None, None, None)

    def stretches(self, *, newest_first: bool) -> list[tuple[str, str]]:
        """Return first and last entry id of each stretch to read, in reading order."""
        if self.entries:
            entries = sorted(set(self.entries), key=entry_order, reverse=newest_first)
            return [(entry, entry) for entry in entries]
        oldest = "-" if self.since is None else f"{_milliseconds(self.since)}-0"
        newest = "+" if self.until is None else _before(self.until)
        return [(newest, oldest) if newest_first else (oldest, newest)]


EVERY_LETTER = LetterFilter()


def entry_order(entry: str) -> tuple[int, int]:
    """Return the key by which entry ids sort in time; raises InvalidArgument for what is none."""
    moment_ms, _, number = entry.partition("-")
    if not (entry.isascii() and moment_ms.isdecimal() and number.isdecimal()):
        raise InvalidArgument(f"{entry!r} is no dead letter's entry id, such as 1796007627120-0")
    return int(moment_ms), int(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a group is where it is."""

    group: GroupView
    state: GroupState | Literal["empty"]
    """As the group's, but for a group without messages that nobody holds."""
    reason: str
    """One sentence for people."""
    groups_ahead: int
    """Due groups that have waited longer, in all tiers; 0 unless the group is due."""
    groups_above: int
    """Due groups in higher tiers; 0 unless the group is due."""
    leased_since: datetime.datetime | None
    holder: Mapping[str, str]
    """What the holder says of itself: host, pid, name…; empty when nobody holds it."""
    stopped_since: datetime.datetime | None
    """Since when all of the queue is paused; None while it is not."""
    stopped_reason: str


def peeked_decoder(codec: Codec) -> Callable[[Any], Peeked]:
    """Return the decoder of a `peek` reply."""
    return lambda reply: Peeked(
        reply[0], tuple(stored_message(element, codec) for element in reply[1])
    )


def letters_decoder(codec: Codec) -> Callable[[Any], Letters]:
    """Return the decoder of a `letters` reply."""
    return lambda reply: Letters(
        reply[0], tuple(_letter(entry, pairs, codec) for entry, pairs in reply[1])
    )


def agenda_decoder(codec: Codec) -> Callable[[Any], Agenda]:
    """Return the decoder of an `agenda` reply."""
    return lambda reply: Agenda(reply[0], tuple(_scheduled(row, codec) for row in reply[1]))


def explanation(reply: Any) -> Explanation:
    """Decode an `explain` reply."""
    now_ms, row, (ahead, above), pairs, stopped, queue_free_us, doom = reply
    view = group_view(row, now_ms)
    stopped_since, stopped_reason = stop_of(stopped)
    reason = _reason(view)
    if doom:
        count, _, behind = text(doom).partition(" ")
        reason += f"; {count} of its messages are to be set aside with message {behind}"
    if stopped_since is not None:
        why = f": {stopped_reason}" if stopped_reason else ""
        reason = f"{reason}; all of the queue is stopped{why}"
    elif view.state == "due" and whole_number(queue_free_us) > now_ms * 1000:
        wait_seconds = int(queue_free_us) / 1_000_000 - now_ms / 1000
        reason += f"; the queue's rate lets no message go for another {wait_seconds:.1f} seconds"
    return Explanation(
        group=view,
        state=_state(view),
        reason=reason,
        groups_ahead=ahead,
        groups_above=above,
        # A token is the server's clock in µs when the lease was given, or a little later.
        leased_since=None if view.token is None else moment(view.token // 1000),
        holder={
            text(name): text(value) for name, value in zip(pairs[::2], pairs[1::2], strict=True)
        },
        stopped_since=stopped_since,
        stopped_reason=stopped_reason,
    )


def stored_message(element: bytes, codec: Codec) -> StoredMessage:
    """Return what an element holds; undecodable bytes have no topic."""
    identifier, published_ms, _, body = split_element(element)
    try:
        content = codec.decode(body)
    except CorruptMessage:
        content = Content("", None, {})
    return StoredMessage(
        id=identifier,
        topic=content.topic,
        payload=content.payload,
        headers=content.headers,
        published_at=moment(published_ms),
        size_bytes=len(body),
    )


def _scheduled(row: list[bytes], codec: Codec) -> Scheduled:
    identifier, due, noted = row
    is_held = noted.startswith(b"H")
    # What somebody else wrote is shown as a message that cannot be decoded.
    ends_at = 10 + (int(noted[6:10]) if noted[6:10].isdigit() else 0)
    return Scheduled(
        id=text(identifier),
        group=(noted[1:] if is_held else noted[10:ends_at]).decode(errors="surrogateescape"),
        due_at=moment(float(due)),
        is_held=is_held,
        message=None if is_held else stored_message(noted[ends_at:], codec),
    )


def _letter(entry: bytes, pairs: list[bytes], codec: Codec) -> DeadLetter:
    # Somebody else may have written into the stream: what is missing is empty.
    fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
    identifier = text(entry)
    return DeadLetter(
        entry=identifier,
        group=fields.get(b"group", b"").decode(errors="surrogateescape"),
        tier=whole_number(fields.get(b"tier")),
        reason=text(fields.get(b"reason", b"")),
        error=text(fields.get(b"error", b"")),
        deliveries=whole_number(fields.get(b"deliveries")),
        failures=whole_number(fields.get(b"failures")),
        died_at=moment(int(identifier.partition("-")[0])),
        message=stored_message(fields.get(b"element", b""), codec),
    )


def _before(until: datetime.datetime) -> str:
    """Return the last entry id before a moment; nothing is before the first one, 0-0."""
    milliseconds = _milliseconds(until)
    return f"({milliseconds}-0" if milliseconds else "0-0"


def _milliseconds(when: datetime.datetime) -> int:
    return max(0, math.ceil(when.timestamp() * 1000))


def _state(view: GroupView) -> GroupState | Literal["empty"]:
    if view.held_since is not None:
        return view.state
    if view.in_flight:
        return "leased"
    if view.depth:
        return view.state
    return "halted" if view.halted else "parked" if view.started else "empty"


# Why the next message of a wide group is not started, places aside.
_WHY_NOT = {
    "scheduled": "the next one was published to hold the group until it is due",
    "rate-limited": "its rate does not let the next one go yet",
}


def _reason_of_wide(view: GroupView) -> str:
    parts = [f"{view.in_flight} of {view.width} messages are in flight, {view.depth} wait"]
    if parked := view.started - view.in_flight - view.halted:
        parts.append(f"{parked} wait for another attempt or a place")
    if view.halted:
        parts.append(f"{view.halted} were given up: resume the group or skip them")
    if view.depth and view.state in _WHY_NOT:
        parts.append(_WHY_NOT[view.state])
    if view.held_since:
        parts.append("it is paused" + (f": {view.held_reason}" if view.held_reason else ""))
    return "; ".join(parts)


def _reason(view: GroupView) -> str:
    if view.started:
        return _reason_of_wide(view)
    if view.depth == 0:
        held = "; it is paused: what is published to it will wait" if view.held_since else ""
        return f"the group has no messages{held}"
    times = "1 failure" if view.failures == 1 else f"{view.failures} failures"
    given_up = f"its head was given up ({view.held_reason}): resume the group or skip the head"
    return {
        "leased": f"{view.holder or 'somebody'} handles its head"
        f"{'; then it is paused' if view.held_since else ''}",
        "halted": given_up,
        "paused": "an operator paused it" + (f": {view.held_reason}" if view.held_reason else ""),
        "parked": f"it waits until its head is due{f' after {times}' if view.failures else ''}",
        "scheduled": "its head was published to hold it until it is due",
        "rate-limited": "its rate does not let it go yet" + (f": {view.rate}" if view.rate else ""),
        "due": "it waits for a worker",
    }[view.state]
