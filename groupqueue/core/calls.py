"""Each operation on a shard, described as data: script, key, arguments, decoding.

Nothing here talks to a server. A transport performs a `Call`; the scripts' side of
every contract is the header of `groupqueue/lua/<script>.lua`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from groupqueue.core.identifiers import new_id
from groupqueue.core.messages import (
    HIGHEST_TIER,
    Envelope,
    EnvelopeOptions,
    Lease,
    Leased,
    split_element,
    split_place,
)
from groupqueue.core.rates import MAX_DIGITS, NO_RATES, Rates, rate_text
from groupqueue.exceptions import DedupConflict, GroupFull, InvalidArgument, StaleLease

T = TypeVar("T")
Argument = str | bytes | int
Reply = Any
Row = list[Any]
"""Of a reply: what the server tells of one lease."""

SCHEMA_VERSION = 1
MAX_MESSAGES_PER_CALL = 1000
MAX_SPECIAL_MESSAGES_PER_CALL = 500
MAX_LEASES_PER_CALL = 400
MAX_BATCH = 1000
EVERY_TURN = 2**53
"""A number that no worker's turn reaches."""
MAX_PURGED_PER_CALL = 100
MAX_REDRIVEN_PER_CALL = 100
MAX_DROPPED_PER_CALL = 500
MAX_LISTED_PER_CALL = 500
MAX_GROUPS_LISTED_PER_CALL = 200
MAX_AUDITED_PER_CALL = 100
MAX_ERROR_CHARACTERS = 1000

# As the scripts count: see is_whole_number there.
_WHOLE_NUMBER = re.compile(rb"(?=.{0,17}\Z)(?:-?\d+)?")
# Control characters, and what else ends a line.
_NO_PART_OF_A_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One script call, ready to be sent."""

    script: str
    prefix: str
    arguments: Sequence[Argument]
    decode: Callable[[Reply], T]
    repeatable: bool
    """Whether sending it again after a lost reply has no second effect."""


# The ids first published under the dedup keys of messages that were left out, by the
# messages' numbers in the call.
Duplicates = dict[int, str]

Outcome = Literal["ack", "retry", "release", "dead", "dead_group", "halt"]


class Settlement(NamedTuple):
    """How a delivery ended; build one with the functions below.

    Of a lease of several messages, `done` from the head on are finished, and the outcome is
    that of the message behind them; what follows is handed back as if never delivered.
    """

    outcome: Outcome
    lease: Lease
    value: str = ""
    error: str = ""
    done: int = 0

    @classmethod
    def ack(cls, lease: Lease, done: int = 1) -> Settlement:
        """Finish the first so many messages: they leave the queue."""
        return cls("ack", lease, "", "", done)

    @classmethod
    def retry(
        cls, lease: Lease, delay_seconds: float, error: str = "", *, done: int = 0
    ) -> Settlement:
        """Count a failure and park the group; the message keeps its place."""
        delay = str(milliseconds(delay_seconds, "delay"))
        return cls("retry", lease, delay, shortened(error), done)

    @classmethod
    def release(
        cls, lease: Lease, delay_seconds: float = 0, error: str = "", *, done: int = 0
    ) -> Settlement:
        """Hand the message back as if it had never been delivered, at once or parked."""
        delay = str(milliseconds(delay_seconds, "delay"))
        return cls("release", lease, delay, shortened(error), done)

    @classmethod
    def dead(cls, lease: Lease, reason: str, error: str = "", *, done: int = 0) -> Settlement:
        """Set the message aside as a dead letter; the group goes on."""
        return cls("dead", lease, one_line(reason), shortened(error), done)

    @classmethod
    def dead_group(cls, lease: Lease, reason: str, error: str = "", *, done: int = 0) -> Settlement:
        """Set the message aside as a dead letter, and all that waits behind it in its group."""
        return cls("dead_group", lease, one_line(reason), shortened(error), done)

    @classmethod
    def halt(cls, lease: Lease, reason: str, error: str = "", *, done: int = 0) -> Settlement:
        """Hold the group, its order intact, until an operator resumes it."""
        return cls("halt", lease, one_line(reason), shortened(error), done)

    @property
    def span(self) -> str:
        """How much of a lease of several messages is done; raises InvalidArgument if too much."""
        held = 1 + len(self.lease.rest)
        is_ack = self.outcome == "ack"
        if not is_ack <= self.done < held + is_ack:
            raise InvalidArgument(f"{self.outcome} with {self.done} of {held} messages done")
        return f"{self.done} {-1 if self.lease.is_alone else held}"


class Settled(NamedTuple):
    """What the server said to one settlement."""

    word: Literal["ok", "stale", "moved"]
    left: int
    """Messages left in the group; 0 unless the word is ok."""


class Gone(NamedTuple):
    """A message that nobody will be given any more."""

    group: str
    id: str


class Turned(NamedTuple):
    """What a turn did."""

    settled: list[Settled]
    """One per settlement, in order."""
    leases: list[Lease]
    """The groups claimed, most urgent first."""
    wait_ms: int
    """Until the next group is due; 0: one is due now; -1: none in sight."""
    expired: Sequence[Gone] = ()
    """What was too old to be delivered, and was dropped on the way."""
    buried: Sequence[Gone] = ()
    """What was set aside with the head of its group."""
    rows: Sequence[Row] = ()
    """The groups claimed as the server tells of them, in place of `leases`, where these were to
    wait: `lease_of` decodes one."""


class Preference(NamedTuple):
    """Which groups a turn's claims go to."""

    min_tier: int = 0
    preferred: int = 0
    """How many of the claims go to urgent groups; the rest to the longest waiting."""
    threshold: int = -1
    """Urgent is the highest tier (-1), or any tier from this one up."""


def publish(
    prefix: str,
    envelopes: Sequence[Envelope],
    *,
    publisher: str,
    sequence: int,
    arrival: str = "fair",
    max_group_depth: int = 0,
) -> Call[Duplicates]:
    """Store messages, all or none; the result names the duplicates left out.

    A repetition under the same publisher and sequence has no second effect. Raises
    DedupConflict and GroupFull.
    """
    if max_group_depth or any(envelope.options is not None for envelope in envelopes):
        return _publish_with(
            prefix, envelopes, (publisher, sequence, arrival, max_group_depth, len(envelopes))
        )
    _check_number(envelopes, MAX_MESSAGES_PER_CALL, "messages")
    arguments: list[Argument] = [publisher, sequence, arrival, len(envelopes)]
    for envelope in envelopes:
        arguments += (envelope.group, envelope.tier, envelope.id, envelope.body)
    return Call("publish", prefix, arguments, lambda _: {}, repeatable=True)


def _publish_with(
    prefix: str, envelopes: Sequence[Envelope], head: tuple[str, int, str, int, int]
) -> Call[Duplicates]:
    _check_number(envelopes, MAX_SPECIAL_MESSAGES_PER_CALL, "messages")
    arguments: list[Argument] = [*head]
    for envelope in envelopes:
        options = envelope.options or EnvelopeOptions()
        arguments += (envelope.group, envelope.tier, envelope.id, envelope.body)
        arguments += (
            "" if options.expires_ms is None else options.expires_ms,
            options.due,
            int(options.hold),
            options.dedup_key,
            "" if options.dedup_ms is None else options.dedup_ms,
            options.digest,
            "" if options.width is None else options.width,
        )

    def decode(reply: Reply) -> Duplicates:
        word, number, rest = reply[0], reply[1], reply[2]
        if word == b"conflict":
            options = envelopes[number].options or EnvelopeOptions()
            raise DedupConflict(options.dedup_key, rest.decode(errors="replace"))
        if word == b"full":
            raise GroupFull(envelopes[number].group, rest, head[3])
        firsts = zip(rest[::2], rest[1::2], strict=True)
        return {number: first.decode(errors="surrogateescape") for number, first in firsts}

    return Call("publish_with", prefix, arguments, decode, repeatable=True)


def _check_number(items: Sequence[object], most: int, what: str) -> None:
    if not 0 < len(items) <= most:
        raise InvalidArgument(f"{len(items)} {what}: one call takes 1 to {most}")


def checked_limit(limit: object, most: int = MAX_LISTED_PER_CALL) -> int:
    """Return how much one look may list at most."""
    if type(limit) is not int or not 0 < limit <= most:
        raise InvalidArgument(f"limit={limit!r}: it is an integer from 1 to {most}")
    return limit


def checked_start(start: object) -> int:
    """Return the place that a look begins at; 0 is the first."""
    if type(start) is not int or not 0 <= start <= 10**9:
        raise InvalidArgument(f"start={start!r}: it is an integer from 0 up")
    return start


def turn(
    prefix: str,
    worker_id: str,
    settlements: Sequence[Settlement],
    want: int,
    *,
    visibility_ms: int,
    preference: Preference = Preference(),  # noqa: B008 - an immutable tuple
    batch: int = 1,
    number: int = 0,
    rates: Rates = NO_RATES,
    decode_leases: bool = True,
) -> Call[Turned]:
    """Settle what is finished and claim up to `want` groups, in one round trip.

    Each lease takes up to `batch` messages of its group. `number` tells the worker's turns
    apart, so that `recover` can give up one that may still come; 0 leaves it out. `rates`
    hold where operators have not said otherwise. Without `decode_leases` the result has rows.
    """
    if not 1 <= batch <= MAX_BATCH:
        raise InvalidArgument(f"batch {batch}: a lease takes 1 to {MAX_BATCH} messages")
    if len(settlements) > MAX_LEASES_PER_CALL or not 0 <= want <= MAX_LEASES_PER_CALL:
        raise InvalidArgument(
            f"{len(settlements)} settlements, want {want}: at most {MAX_LEASES_PER_CALL} each"
        )
    min_tier, preferred, threshold = preference
    if not (0 <= min_tier <= HIGHEST_TIER and preferred >= 0 and -1 <= threshold <= HIGHEST_TIER):
        raise InvalidArgument(f"{preference}: tiers are 0 to {HIGHEST_TIER}, -1 is no threshold")
    arguments: list[Argument] = [
        worker_id,
        number,
        visibility_ms,
        want,
        batch,
        min_tier,
        preferred,
        threshold,
        rates.queue.argument if rates.queue else "",
        rates.group.argument if rates.group else "",
        len(settlements),
    ]
    for settlement in settlements:
        outcome, lease, value, error, done = settlement
        span = settlement.span if lease.rest or lease.is_alone else ""
        if not span and done != (outcome == "ack"):
            raise InvalidArgument(f"{outcome} with {done} of 1 messages done")
        word = f"{outcome} {span}" if span else outcome
        arguments += (word, _key(lease), lease.token, _sent(lease.id))
        if outcome != "ack":
            arguments += (value, error)
    decode = _decode_turned if decode_leases else _decode_rest
    return Call("turn", prefix, arguments, decode, repeatable=False)


def settle(prefix: str, settlement: Settlement) -> Call[int]:
    """End one delivery in any way; the result is the backlog left in its group.

    Raises StaleLease when the lease no longer holds.
    """

    def decode(reply: Reply) -> int:
        return _decode_left(settlement.lease)(reply[0])

    asked = turn(prefix, "", [settlement], 0, visibility_ms=1)
    return Call(asked.script, prefix, asked.arguments, decode, repeatable=True)


def claim(
    prefix: str, worker_id: str, *, visibility_ms: int, min_tier: int = 0
) -> Call[Lease | None]:
    """Lease the group that has waited longest; None when no group is due."""

    def decode(reply: Reply) -> Lease | None:
        return lease_of(reply[0][0]) if reply[0] else None

    arguments = (worker_id, visibility_ms, min_tier)
    return Call("claim", prefix, arguments, decode, repeatable=False)


def ack(prefix: str, lease: Lease) -> Call[int]:
    """Finish what is leased; the result is the backlog left behind it.

    Raises StaleLease when the lease no longer holds.
    """
    if lease.rest or lease.is_alone:
        return settle(prefix, Settlement.ack(lease, 1 + len(lease.rest)))
    arguments = (_key(lease), lease.token, _sent(lease.id))
    return Call("ack", prefix, arguments, _decode_left(lease), repeatable=True)


def nack(prefix: str, lease: Lease, *, delay_ms: int = 0, error: str = "") -> Call[int]:
    """Give the leased head back, to be tried again after a delay.

    Raises StaleLease when the lease no longer holds.
    """
    if lease.rest or lease.is_alone:
        return settle(prefix, Settlement.retry(lease, delay_ms / 1000, error))
    arguments = (_key(lease), lease.token, _sent(lease.id), delay_ms, shortened(error))
    return Call("nack", prefix, arguments, _decode_left(lease), repeatable=True)


def recount(prefix: str, lease: Lease, change: Literal[-1, 1]) -> Call[None]:
    """Count a leased message as not handed over yet, or as handed over.

    Raises StaleLease when the lease no longer holds.
    """

    def decode(reply: Reply) -> None:
        if reply[0] != b"ok":
            raise StaleLease(lease, reply[0].decode())

    arguments = (_key(lease), lease.token, _sent(lease.id), change)
    return Call("recount", prefix, arguments, decode, repeatable=False)


def renew(prefix: str, leases: Sequence[Lease], *, visibility_ms: int) -> Call[list[Lease]]:
    """Push the leases' deadlines out; the result lists those that are lost."""
    _check_number(leases, MAX_LEASES_PER_CALL, "leases")

    def decode(reply: Reply) -> list[Lease]:
        return [lease for lease, word in zip(leases, reply, strict=True) if word != b"ok"]

    arguments: list[Argument] = [visibility_ms, len(leases)]
    for lease in leases:
        arguments += (_key(lease), lease.token)
    return Call("renew", prefix, arguments, decode, repeatable=True)


class Recovered(NamedTuple):
    """One step of a recovery: go on until the cursor is "0" again."""

    cursor: str
    released: int


def recover(
    prefix: str, worker_id: str, *, after_token: int, upto_turn: int = 0, cursor: str = "0"
) -> Call[Recovered]:
    """Hand back leases that a lost reply told nobody about.

    Turns with numbers up to `upto_turn` will claim nothing, should they come late.
    """
    return Call(
        "recover",
        prefix,
        (worker_id, after_token, upto_turn, cursor),
        lambda reply: Recovered(reply[0].decode(), reply[1]),
        repeatable=True,
    )


# What an operator asks for is one operation per call, which is named when it is built: a
# repetition after a lost reply is told that it was done, and does nothing.


def pause(prefix: str, group: str, why: str, *, operation: str = "") -> Call[bool]:
    """Hold a group; False when it was held already."""
    arguments = (_sent(group), one_line(why), operation or new_id())
    return Call("pause", prefix, arguments, _decode_done, repeatable=True)


def stop(prefix: str, why: str, *, operation: str = "") -> Call[bool]:
    """Pause all of a queue; False when it is paused already."""
    arguments = (one_line(why), operation or new_id())
    return Call("stop", prefix, arguments, _decode_done, repeatable=True)


def start(prefix: str, *, operation: str = "") -> Call[bool]:
    """Let a stopped queue go on; False when it was not stopped."""
    return Call("start", prefix, (operation or new_id(),), _decode_done, repeatable=True)


class Rated(NamedTuple):
    """What a change of a rate found."""

    former: str
    """The rate until then, as people write it."""
    cursor: str
    """Where the next call goes on among a wide group's started messages; "0": that was all."""


def rate(
    prefix: str, group: str, argument: str, cursor: str = "0", *, operation: str = ""
) -> Call[Rated]:
    """Say how often messages of a group may be delivered, "" for the queue; see the script."""
    return Call(
        "rate",
        prefix,
        (_sent(group), argument, cursor, operation or new_id()),
        lambda reply: Rated(rate_text(reply[0]), reply[1].decode()),
        repeatable=True,
    )


def trim(prefix: str, *, max_age_ms: int | None, max_count: int | None) -> Call[int]:
    """Throw old dead letters away, 500 at most; the result counts them."""
    arguments = tuple("" if limit is None else limit for limit in (max_age_ms, max_count))
    return Call("trim", prefix, arguments, _decode_count, repeatable=True)


def resume(prefix: str, group: str, *, operation: str = "") -> Call[bool]:
    """Let a paused or halted group go on; False when it was not held."""
    arguments = (_sent(group), operation or new_id())
    return Call("resume", prefix, arguments, _decode_done, repeatable=True)


def skip(prefix: str, group: str, message_id: str, *, operation: str = "") -> Call[str]:
    """Set the head aside; the result is the script's word: ok, leased or moved."""
    arguments = (_sent(group), _sent(message_id), operation or new_id())
    return Call("skip", prefix, arguments, _decode_word, repeatable=True)


def cancel(prefix: str, message_id: str, *, operation: str = "") -> Call[str]:
    """Take a scheduled message back; the result is the script's word."""
    arguments = (_sent(message_id), operation or new_id())
    return Call("cancel", prefix, arguments, _decode_word, repeatable=True)


def reschedule(prefix: str, message_id: str, due: str) -> Call[bool]:
    """Change when a scheduled message is due; False when it is not scheduled."""
    return Call("reschedule", prefix, (_sent(message_id), due), _decode_done, repeatable=True)


def agenda(prefix: str, start: int, limit: int, decode: Callable[[Reply], T]) -> Call[T]:
    """Read scheduled messages, soonest first; decoded by core.views."""
    arguments = (checked_start(start), checked_limit(limit))
    return Call("agenda", prefix, arguments, decode, repeatable=True)


class Moved(NamedTuple):
    """What a call of set_tier moved."""

    is_known: bool
    """Whether the group has messages."""
    cursor: str
    """Where the next call goes on among its started messages; "0" when that was all."""


def set_tier(prefix: str, group: str, tier: int, cursor: str = "0") -> Call[Moved]:
    """Move a group into another tier, backlog and all; of a wide one a page of what is started."""
    arguments = (_sent(group), tier, cursor)
    return Call(
        "set_tier",
        prefix,
        arguments,
        lambda reply: Moved(reply[0] == b"ok", reply[1].decode()),
        repeatable=True,
    )


def release(
    prefix: str, group: str, token: int | None = None, *, operation: str = ""
) -> Call[bool]:
    """End a group's lease, or only that with the token; False when there is none such."""
    arguments = (_sent(group), "" if token is None else token, operation or new_id())
    return Call("release", prefix, arguments, _decode_done, repeatable=True)


class Purged(NamedTuple):
    """What a purge threw away."""

    groups: int
    messages: int


def purge(prefix: str, groups: Sequence[str]) -> Call[Purged]:
    """Throw the messages of up to 100 groups away, leased ones too."""
    _check_number(groups, MAX_PURGED_PER_CALL, "groups")
    arguments: list[Argument] = [len(groups), *map(_sent, groups)]
    return Call("purge", prefix, arguments, lambda reply: Purged(*reply), repeatable=True)


def letters(
    prefix: str,
    first: str,
    last: str,
    limit: int,
    *,
    newest_first: bool,
    decode: Callable[[Reply], T],
) -> Call[T]:
    """Read dead letters between two entry ids; decoded by core.views."""
    checked_limit(limit)
    order = "newest" if newest_first else "oldest"
    return Call("letters", prefix, (first, last, limit, order), decode, repeatable=True)


def redrive(prefix: str, entries: Sequence[str], *, to_tail: bool = False) -> Call[int]:
    """Put up to 100 dead letters back, given oldest first; the result counts them."""
    _check_number(entries, MAX_REDRIVEN_PER_CALL, "letters")
    arguments: list[Argument] = ["tail" if to_tail else "front", len(entries), *entries]
    return Call("redrive", prefix, arguments, _decode_count, repeatable=True)


def drop(prefix: str, entries: Sequence[str]) -> Call[int]:
    """Throw up to 500 dead letters away; the result counts them."""
    _check_number(entries, MAX_DROPPED_PER_CALL, "letters")
    return Call("drop", prefix, (len(entries), *entries), _decode_count, repeatable=True)


def peek(prefix: str, group: str, start: int, limit: int, decode: Callable[[Reply], T]) -> Call[T]:
    """Read a group's messages from index `start` on; decoded by core.views."""
    arguments = (_sent(group), checked_start(start), checked_limit(limit))
    return Call("peek", prefix, arguments, decode, repeatable=True)


def explain(prefix: str, group: str, decode: Callable[[Reply], T]) -> Call[T]:
    """Ask for everything about one group; decoded by core.views."""
    return Call("explain", prefix, (_sent(group),), decode, repeatable=True)


class Heartbeat(NamedTuple):
    """What a heartbeat learns."""

    schema: int | str
    """As it is written, should it be no number."""
    workers: int


def heartbeat(
    prefix: str, worker_id: str, fields: Mapping[str, str | int], *, kept_ms: int
) -> Call[Heartbeat]:
    """Enter the worker in the registry, or say that it is still there."""
    arguments: list[Argument] = [worker_id, kept_ms, SCHEMA_VERSION, len(fields)]
    for name, value in fields.items():
        arguments += (name, value)

    def decode(reply: Reply) -> Heartbeat:
        noted: bytes = reply[1]
        is_number = noted.isdigit() and len(noted) <= MAX_DIGITS
        return Heartbeat(int(noted) if is_number else noted.decode(errors="replace"), reply[2])

    return Call("heartbeat", prefix, arguments, decode, repeatable=True)


def depart(prefix: str, worker_id: str) -> Call[None]:
    """Take the worker out of the registry."""
    return Call("depart", prefix, (worker_id,), lambda _: None, repeatable=True)


def inspect(prefix: str, limit: int, decode: Callable[[Reply], T]) -> Call[T]:
    """Take a snapshot of the shard for people; decoded by core.snapshot."""
    arguments = (checked_limit(limit, MAX_GROUPS_LISTED_PER_CALL),)
    return Call("inspect", prefix, arguments, decode, repeatable=True)


def held(prefix: str, cursor: str, limit: int, decode: Callable[[Reply], T]) -> Call[T]:
    """Read a page of the groups that are paused or halted; decoded by core.snapshot."""
    arguments = (cursor, checked_limit(limit, MAX_GROUPS_LISTED_PER_CALL))
    return Call("held", prefix, arguments, decode, repeatable=True)


class FaultRow(NamedTuple):
    """One fault as the scripts tell it: of whom, which, and more about it."""

    name: str
    word: str
    detail: str


class Page(NamedTuple):
    """A page of what a shard has: go on until the cursor is "0" again."""

    cursor: str
    faults: list[FaultRow]
    """What is wrong with its keys."""
    names: list[str]
    """Whom to judge."""
    messages: int
    backlog: int | None
    """What the shard says of the tier just counted, if it can be read."""
    wide: list[str]
    """The wide groups whose places are among the keys."""


class Judged(NamedTuple):
    """What is wrong with the first so many of those asked about, or was mended."""

    done: int
    faults: list[FaultRow]


def survey(prefix: str, source: str, cursor: str = "0", limit: int = 500) -> Call[Page]:
    """Page through what a shard has; decides nothing about groups and messages."""

    def decode(reply: Reply) -> Page:
        following, faults, names, (messages, backlog), wide = reply
        return Page(
            following.decode(),
            _fault_rows(faults),
            [name.decode(errors="surrogateescape") for name in names],
            int(messages),
            int(backlog or 0) if _WHOLE_NUMBER.fullmatch(backlog) else None,
            [group.decode(errors="surrogateescape") for group in wide],
        )

    arguments = (_sent(source), cursor, checked_limit(limit))
    return Call("survey", prefix, arguments, decode, repeatable=True)


def audit(prefix: str, kind: str, names: Sequence[str]) -> Call[Judged]:
    """Judge up to 100 by name, of a kind; see the script."""
    return _judging("audit", prefix, kind, names)


def repair(prefix: str, kind: str, names: Sequence[str]) -> Call[Judged]:
    """Judge and mend in one step; the result says what was mended."""
    return _judging("repair", prefix, kind, names)


def _judging(script: str, prefix: str, kind: str, names: Sequence[str]) -> Call[Judged]:
    _check_number(names, MAX_AUDITED_PER_CALL, "names")
    arguments: list[Argument] = [_sent(kind), len(names), *map(_sent, names)]
    return Call(
        script,
        prefix,
        arguments,
        lambda reply: Judged(reply[0], _fault_rows(reply[1])),
        repeatable=True,
    )


def milliseconds(seconds: float, name: str, *, positive: bool = False) -> int:
    """Return whole ms; raise InvalidArgument for what is no such length of time."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidArgument(f"{name} must be a number of seconds, not {seconds!r}")
    if not 0 <= seconds <= 10**9 or (positive and seconds < 0.001):
        least = "more than 0" if positive else "0 or more"
        raise InvalidArgument(f"{name} must be {least} seconds, not {seconds!r}")
    return round(seconds * 1000)


def shortened(text: str) -> str:
    """Return text that can be stored beside a queue: bounded, and valid UTF-8."""
    return text[:MAX_ERROR_CHARACTERS].encode(errors="replace").decode()


def one_line(text: str) -> str:
    """Return text that can be stored as a reason: shortened, its line breaks spaces.

    The scripts keep an operator's pause on the line behind the reason of a halt.
    """
    return _NO_PART_OF_A_LINE.sub(" ", shortened(text)).strip()


def checked_min_tier(min_priority: object) -> int:
    """Return the tier that min_priority names; unlike a message's it is not clamped."""
    if type(min_priority) is not int or not 0 <= min_priority <= HIGHEST_TIER:
        raise InvalidArgument(f"min_priority must be an integer from 0 to 4, not {min_priority!r}")
    return min_priority


def in_chunks(items: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    """Cut a sequence into pieces of at most `size`."""
    return (items[start : start + size] for start in range(0, len(items), size))


def _key(lease: Lease) -> str | bytes:
    return lease.key if lease.place else _sent(lease.group)


def _sent(text: str) -> str | bytes:
    # Other programs may have written what is no UTF-8; hiredis refuses to send it as a str.
    return text if text.isascii() else text.encode(errors="surrogateescape")


# Decoding ------------------------------------------------------------------------


def token_of(row: Row) -> int:
    """Return the fencing token of a lease that has not been decoded."""
    return int(row[1])


def lease_of(row: Row) -> Lease:
    """Decode what the server tells of a lease."""
    group, token, deliveries, failures, tier, element = row[:6]
    identifier, published_ms, expires_ms, body = split_element(element)
    group, place = split_place(group)
    lease = Lease(
        group.decode("utf-8", "surrogateescape"),
        int(token),
        identifier,
        body,
        int(tier),
        deliveries,
        0,
        published_ms,
        expires_ms,
    )
    # What follows is rare, and most leases are made of ten or a hundred in a row.
    if failures != b"0":
        count, _, since_ms = failures.partition(b" ")
        count, since_ms = count[:MAX_DIGITS], since_ms[:MAX_DIGITS]  # somebody may write any
        lease = lease._replace(failures=int(count), failing_since_ms=int(since_ms or 0))
    if place:
        lease = lease._replace(place=place.decode(errors="surrogateescape"))
    if len(row) > 6:
        is_alone = row[6:] == [b""]
        rest = () if is_alone else tuple(map(Leased, row[6:]))
        lease = lease._replace(rest=rest, is_alone=is_alone)
    return lease


def _decode_turned(reply: Reply) -> Turned:
    turned = _decode_rest(reply)
    return turned._replace(leases=[lease_of(row) for row in turned.rows], rows=())


def _decode_rest(reply: Reply) -> Turned:
    words, rows, wait_ms = reply[:3]
    expired = _gone(reply[3]) if len(reply) > 3 else []
    buried = _gone(reply[4]) if len(reply) > 4 else []
    settled = [
        Settled(words[index].decode(), words[index + 1]) for index in range(0, len(words), 2)
    ]
    return Turned(settled, [], wait_ms, expired, buried, rows)


def _fault_rows(rows: list[list[bytes]]) -> list[FaultRow]:
    return [FaultRow(*(part.decode(errors="surrogateescape") for part in row)) for row in rows]


def _gone(pairs: list[bytes]) -> list[Gone]:
    return [
        Gone(group.decode(errors="surrogateescape"), identifier.decode(errors="surrogateescape"))
        for group, identifier in zip(pairs[::2], pairs[1::2], strict=True)
    ]


def _decode_left(lease: Lease) -> Callable[[Reply], int]:
    def decode(reply: Reply) -> int:
        if reply[0] != b"ok":
            raise StaleLease(lease, reply[0].decode())
        return int(reply[1])

    return decode


def _decode_count(reply: Reply) -> int:
    return int(reply[0])


def _decode_done(reply: Reply) -> bool:
    return _decode_word(reply) == "ok"


def _decode_word(reply: Reply) -> str:
    word: str = reply[0].decode()
    return "ok" if word == "repeated" else word
