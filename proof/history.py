"""What did each call of a shard do, and what does the server have in the end?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack
import redis

from groupqueue.core import calls
from groupqueue.core.calls import Turned
from groupqueue.core.messages import ID_LENGTH, Envelope, EnvelopeOptions, Lease
from proof.stamps import history_key

_PAGE = 1000


class Effect(NamedTuple):
    """One command of a script on a list, a lease, a scheduled message, a dead letter or a width."""

    command: str
    key: bytes
    """Without the shard's prefix and its colon: `q:<group>`, `lock:<group>`, `dead`, ..."""
    reply: Any
    arguments: tuple[bytes, ...]
    """What follows the key."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of a script, as it wrote itself down."""

    number: int
    """1 for the shard's first; the next has the next number."""
    script: str
    at_us: int
    """The server's clock, as the script read it."""
    commands: int
    """How many commands it called."""
    args: tuple[bytes, ...]
    reply: Any = None
    error: str = ""
    """What it raised; empty when it did not, and then there is a reply."""
    effects: tuple[Effect, ...] = ()

    @property
    def word(self) -> bytes:
        """The word that an operator's or a publisher's script answers with."""
        is_word = isinstance(self.reply, list) and self.reply and isinstance(self.reply[0], bytes)
        return self.reply[0] if is_word else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardState:
    """What a shard holds at one moment."""

    lists: Mapping[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    """Elements by group; a started message of a wide group is a group of its own."""
    locks: Mapping[bytes, int] = field(default_factory=dict)
    """The tokens of leased groups."""
    scheduled: Mapping[str, bytes] = field(default_factory=dict)
    """What is noted of messages that have not joined their group yet, by id."""
    dead: Mapping[bytes, bytes] = field(default_factory=dict)
    """Elements by entry of the dead letters, oldest first."""


class Settlement(NamedTuple):
    """What a worker said of a lease, and what the server said to it."""

    outcome: str
    group: bytes
    """As a key: a started message of a wide group is a group of its own."""
    token: int
    id: str
    done: int
    """How many messages of the lease are finished, before the one the outcome is about."""
    value: bytes
    word: str


class Sent(NamedTuple):
    """A message as a publisher sent it."""

    number: int
    """Its place in the call, from 0."""
    group: bytes
    id: str
    body: bytes
    is_later: bool
    """Whether it was not to join its group before a moment that may have been in the future."""
    dedup_key: bytes
    dedup_ms: int
    expires_ms: int | None
    """After how long it is too old to be delivered; None when it never is."""


# Reading ---------------------------------------------------------------------------------


def read(client: redis.Redis, prefix: str) -> list[Operation]:
    """Read all operations of a shard, in the order in which they were written down."""
    return [operation(packed) for packed in _pages(client, history_key(prefix))]


def workers_since(client: redis.Redis, prefix: str, at_us: int) -> set[bytes]:
    """Return which workers have had a turn since that moment of the server's clock."""
    found, end = set[bytes](), -1
    while page := client.lrange(history_key(prefix), end - _PAGE + 1, end):
        operations = [operation(packed) for packed in page]
        found |= {
            one.args[0]
            for one in operations
            if one.script == "turn" and one.at_us >= at_us and not one.error
        }
        if operations[0].at_us < at_us or len(page) < _PAGE:
            break
        end -= _PAGE
    return found


def operation(packed: bytes) -> Operation:
    """Return what a record says."""
    number, script, at_us, commands, args, has_failed, told, effects = _plain(
        msgpack.unpackb(packed, raw=True, strict_map_key=False)
    )
    return Operation(
        number,
        script.decode(),
        at_us,
        commands,
        tuple(args),
        None if has_failed else told,
        told.decode(errors="replace") if has_failed else "",
        tuple(Effect(one[0].decode(), one[1], one[2], tuple(one[3:])) for one in effects),
    )


def read_state(client: redis.Redis, prefix: str) -> ShardState:
    """Read what a shard holds now; nothing may change it meanwhile."""
    lists = {group: tuple(client.lrange(key, 0, -1)) for group, key in groups(client, prefix, "q:")}
    locks = {group: client.get(key) for group, key in groups(client, prefix, "lock:")}
    scheduled = client.hgetall(f"{prefix}:scheduled:data")
    dead = client.xrange(f"{prefix}:dead")
    return ShardState(
        lists={group: elements for group, elements in lists.items() if elements},
        locks={group: int(token) for group, token in locks.items() if token is not None},
        scheduled={name.decode(): data for name, data in scheduled.items()},
        dead={entry: fields[b"element"] for entry, fields in dead},
    )


def _pages(client: redis.Redis, key: str) -> Iterator[bytes]:
    start = 0
    while page := client.lrange(key, start, start + _PAGE - 1):
        yield from page
        start += len(page)


def groups(client: redis.Redis, prefix: str, kind: str) -> Iterator[tuple[bytes, bytes]]:
    """Return the groups that have a key of a kind, `q:` or `lock:`, and those keys."""
    start = f"{prefix}:{kind}".encode()
    # Nothing in a prefix means anything to a pattern.
    for key in client.scan_iter(match=start + b"*", count=1000):
        yield key[len(start) :], key


def _plain(value: Any) -> Any:
    """Return a reply as a client gets it: whole numbers, words for states, nothing for false."""
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return int(value)
    if isinstance(value, dict):
        return value.get(b"ok", value)
    return None if value is False else value


# Understanding ---------------------------------------------------------------------------

_decode_turned = calls.turn("", "", [], 0, visibility_ms=1).decode
_decode_claimed = calls.claim("", "", visibility_ms=1).decode


def turned(of: Operation) -> Turned:
    """Return what a turn, or another script that settles or claims, did, in the turn's words."""
    if of.reply is None:
        return Turned([], [], -1)
    if of.script == "turn":
        return _decode_turned(of.reply)
    if of.script == "claim":
        lease = _decode_claimed(of.reply)
        return Turned([], [lease] if lease else [], of.reply[1])
    if of.script in ("ack", "nack"):
        return _decode_turned([of.reply, [], -1])
    return Turned([], [], -1)


def leases(of: Operation) -> list[Lease]:
    """Return the leases that an operation told its worker of."""
    return turned(of).leases


def settlements(of: Operation) -> list[Settlement]:
    """Return the settlements that an operation carried, with the words that it got."""
    if of.error:
        return []
    words = [settled.word for settled in turned(of).settled]
    return [Settlement(*row, word) for row, word in zip(_settlement_rows(of), words, strict=True)]


def _settlement_rows(of: Operation) -> Iterator[tuple[str, bytes, int, str, int, bytes]]:
    args = of.args
    if of.script in ("ack", "nack"):
        is_ack = of.script == "ack"
        value = b"" if is_ack else args[3]
        yield "ack" if is_ack else "retry", args[0], int(args[1]), _id(args[2]), int(is_ack), value
    if of.script == "turn":
        rest = iter(args[11:])
        for words, group, token, identifier in zip(rest, rest, rest, rest, strict=True):
            outcome, *span = words.split()
            done = int(span[0]) if span else int(outcome == b"ack")
            value, _error = (b"", b"") if outcome == b"ack" else (next(rest), next(rest))
            yield outcome.decode(), group, int(token), _id(identifier), done, value


def sent(of: Operation) -> list[Sent]:
    """Return the messages that an operation was to publish."""
    args = of.args
    if of.script == "publish":
        return [
            Sent(number, args[at], _id(args[at + 2]), args[at + 3], False, b"", 0, None)
            for number, at in enumerate(range(4, 4 + int(args[3]) * 4, 4))
        ]
    if of.script != "publish_with":
        return []
    return [
        Sent(
            number,
            args[at],
            _id(args[at + 2]),
            args[at + 3],
            args[at + 5] != b"" and args[at + 6] == b"0",
            args[at + 7],
            int(args[at + 8] or 0),
            int(args[at + 4]) if args[at + 4] else None,
        )
        for number, at in enumerate(range(5, 5 + int(args[4]) * 11, 11))
    ]


_SPECIAL = [Envelope("0" * ID_LENGTH, "group", 0, b"", EnvelopeOptions())]


def duplicates(of: Operation) -> dict[int, str]:
    """Return which of the messages of an operation were left out, and their first ids."""
    if of.script != "publish_with" or of.word not in (b"ok", b"repeated"):
        return {}
    return calls.publish("", _SPECIAL, publisher="", sequence=1).decode(of.reply)


class Scheduled(NamedTuple):
    """What is noted of a message that joins its group later."""

    group: bytes
    element: bytes


def scheduled(data: bytes) -> Scheduled:
    """Return what a field of `scheduled:data` says; see lua/README.md."""
    length = int(data[6:10])
    return Scheduled(data[10 : 10 + length], data[10 + length :])


def id_of(element: bytes) -> str:
    """Return the id of an element."""
    return _id(element[:ID_LENGTH])


def _id(text: bytes) -> str:
    return text.decode(errors="surrogateescape")
