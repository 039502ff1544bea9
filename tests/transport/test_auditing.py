"""Does an audit find what somebody broke by hand, and nothing else, and does repair mend it?"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from groupqueue.core import audits, calls
from groupqueue.core.audits import KINDS, Audit, Fault, audit_queue, repair_queue
from groupqueue.core.calls import Settlement
from groupqueue.core.letters import Flow
from groupqueue.core.messages import ID_LENGTH
from tests.transport import lua_files
from tests.transport.envelopes import (
    bodies,
    cancel,
    handle_all,
    held,
    keyed,
    let_come,
    scheduled,
    send,
    stat,
    wide,
)
from tests.transport.operated import STATES, bring_into, check
from tests.transport.operations import OPERATIONS
from tests.transport.shards import Shard

NEVER = "0" * 13


async def go_through(
    shard: Shard, flow: Flow[Audit], between: Callable[[], Awaitable[None]] | None = None
) -> Audit:
    """Perform the calls that a flow asks for, and something else between any two."""
    try:
        call = next(flow)
        while True:
            call = flow.send(await shard.transport.perform(call))
            if between:
                await between()
    except StopIteration as end:
        return end.value


async def audit(shard: Shard, limit: int = 1000) -> Audit:
    """Audit the shard."""
    return await go_through(shard, audit_queue(shard.prefix, limit=limit))


async def repair(shard: Shard) -> Audit:
    """Mend the shard."""
    return await go_through(shard, repair_queue(shard.prefix, limit=1000))


async def found(shard: Shard) -> list[tuple[str, str]]:
    """Return what an audit finds, as pairs of what is broken and how."""
    return sorted((fault.name, fault.word) for fault in (await audit(shard)).faults)


# What can be broken, and is mended --------------------------------------------------------


async def two_messages(shard: Shard) -> None:
    """A group in tier 2 with two messages."""
    await shard.publish("group", b"1", b"2", priority=2)


async def leased(shard: Shard) -> None:
    """The same, leased for a minute."""
    await two_messages(shard)
    await shard.transport.claim("worker", 60)


async def paused(shard: Shard) -> None:
    """The same, paused."""
    await two_messages(shard)
    await shard.transport.perform(calls.pause(shard.prefix, "group", "why"))


async def failed(shard: Shard) -> None:
    """The same, after a first failure."""
    await two_messages(shard)
    await shard.transport.nack(await shard.transport.claim("worker", 60), error="boom")


async def holding(shard: Shard) -> None:
    """A group of tier 2 whose head holds it for a minute, and a message behind."""
    await send(shard, held("group", b"1", tier=2))
    await shard.publish("group", b"2")


async def nothing(shard: Shard) -> None:
    """An empty shard."""


def held_id(shard: Shard) -> str:
    """Return the id of the one message that holds its group."""
    [identifier] = shard.redis.hkeys(shard.named("scheduled:held"))
    return identifier.decode()


def scheduled_id(shard: Shard) -> str:
    """Return the id of the one message that is scheduled."""
    [identifier] = shard.redis.hkeys(shard.named("scheduled:data"))
    return identifier.decode()


async def one_later(shard: Shard) -> None:
    """A message that joins the group in a minute."""
    await send(shard, keyed("key", "group", due="+60000"))


async def doomed(shard: Shard) -> None:
    """A group whose head takes what waits behind it along."""
    await two_messages(shard)
    lease = await shard.transport.claim("worker", 60)
    await shard.transport.settle(Settlement.dead_group(lease, "why"))


async def stopped(shard: Shard) -> None:
    """A stopped queue with a message."""
    await two_messages(shard)
    await shard.transport.perform(calls.stop(shard.prefix, "why"))


async def wide_leased(shard: Shard) -> None:
    """A group of width 2 with three messages, of which one is in flight."""
    await send(shard, *(wide("group", b"%d" % n, width=2) for n in (1, 2, 3)))
    await shard.transport.claim("worker", 60)


async def wide_halted(shard: Shard) -> None:
    """The same, after that one was given up."""
    await send(shard, *(wide("group", b"%d" % n, width=2) for n in (1, 2, 3)))
    lease = await shard.transport.claim("worker", 60)
    await shard.transport.settle(Settlement.halt(lease, "why", "boom"))


async def all_started(shard: Shard) -> None:
    """A group of width 2 with two messages, both in flight."""
    await send(shard, *(wide("group", b"%d" % n, width=2) for n in (1, 2)))
    await shard.transport.turn("worker", [], 2, visibility=60)


async def wide_parked(shard: Shard) -> None:
    """A group of width 2 with three messages, of which one waits an hour for another attempt."""
    await send(shard, *(wide("group", b"%d" % n, width=2) for n in (1, 2, 3)))
    lease = await shard.transport.claim("worker", 60)
    await shard.transport.settle(Settlement.retry(lease, 3600, "boom"))


async def rated(shard: Shard) -> None:
    """A group with two messages, and another one with a rate."""
    await two_messages(shard)
    await shard.transport.perform(calls.rate(shard.prefix, "other", "1000000 1"))


STARTED = b"group\xff" + b"0" * 32
"""The name of a group that is a started message of the wide group `group`."""


def minute(shard: Shard) -> str:
    """Return the key of the running minute's statistics."""
    [name] = [name for name in shard.names() if name.startswith("stats:")]
    return name


class Break(NamedTuple):
    """One way to break data by hand, and how it is to be named."""

    before: Callable[[Shard], Awaitable[None]]
    break_it: Callable[[Shard], Any]
    expected: list[tuple[str, str]]
    handled: list[bytes]
    """What of the group is handled in the end."""


READY = "ready:2"


def _named(shard: Shard, key: str) -> bytes:
    [member] = shard.redis.zrange(shard.named(key), 0, -1)
    return member


def _put(shard: Shard, key: str, member: str | bytes, score: float | str) -> None:
    shard.redis.execute_command("ZADD", shard.named(key), score, member)


BOTH = [b"1", b"2"]
BREAKS = {
    "a ready entry gone": Break(
        two_messages,
        lambda shard: shard.redis.zrem(shard.named(READY), "group"),
        [("group", "not-ready")],
        BOTH,
    ),
    "a ready entry of a leased group gone": Break(
        leased,
        lambda shard: shard.redis.zrem(shard.named(READY), "group"),
        [("group", "not-ready")],
        BOTH,
    ),
    "a ready entry of a paused group gone": Break(
        paused,
        lambda shard: shard.redis.zrem(shard.named(READY), "group"),
        [("group", "not-ready")],
        BOTH,
    ),
    "a list gone": Break(
        two_messages,
        lambda shard: shard.redis.delete(shard.keys.fifo("group")),
        [("", "wrong-backlog"), ("group", "left-over")],
        [],
    ),
    "a list of a leased group gone": Break(
        leased,
        lambda shard: shard.redis.delete(shard.keys.fifo("group")),
        [("", "wrong-backlog"), ("group", "left-over"), ("group", "lock-without-messages")],
        [],
    ),
    "an element gone": Break(
        two_messages,
        lambda shard: shard.redis.rpop(shard.keys.fifo("group")),
        [("", "wrong-backlog")],
        [b"1"],
    ),
    "a group in two tiers": Break(
        two_messages,
        lambda shard: _put(shard, "ready:4", "group", 1),
        [("group", "several-tiers")],
        BOTH,
    ),
    "a leased group in two tiers": Break(
        leased,
        lambda shard: _put(shard, "ready:0", "group", 1),
        [("group", "several-tiers")],
        BOTH,
    ),
    "a tier gone": Break(
        two_messages,
        lambda shard: shard.redis.hdel(shard.named("prio"), "group"),
        [("group", "no-tier")],
        BOTH,
    ),
    "no tier at all": Break(
        two_messages,
        lambda shard: shard.redis.hset(shard.named("prio"), "group", "high"),
        [("group", "no-tier")],
        BOTH,
    ),
    "another tier": Break(
        two_messages,
        lambda shard: shard.redis.hset(shard.named("prio"), "group", "4"),
        [("", "wrong-backlog"), ("", "wrong-backlog"), ("group", "wrong-tier")],
        BOTH,
    ),
    "every record gone but the list": Break(
        leased,
        lambda shard: [
            shard.redis.zrem(shard.named(READY), "group"),
            *(
                shard.redis.hdel(shard.named(name), "group")
                for name in ("prio", "attempts", "holders")
            ),
            shard.redis.delete(shard.keys.lock("group"), shard.named("backlog")),
        ],
        [("group", "no-tier"), ("group", "not-ready")],
        BOTH,
    ),
    "a lock gone": Break(
        leased,
        lambda shard: shard.redis.delete(shard.keys.lock("group")),
        [("group", "lock-gone")],
        BOTH,
    ),
    "a lock without messages": Break(
        nothing,
        lambda shard: shard.redis.set(shard.keys.lock("group"), 7, px=60_000),
        [("group", "lock-without-messages")],
        [],
    ),
    "a lock that never ends": Break(
        leased,
        lambda shard: shard.redis.persist(shard.keys.lock("group")),
        [("group", "lock-without-expiry")],
        BOTH,
    ),
    "a lock of a due group that never ends": Break(
        two_messages,
        lambda shard: shard.redis.set(shard.keys.lock("group"), 7),
        [("group", "lock-without-expiry")],
        BOTH,
    ),
    "a leased group that is due": Break(
        leased,
        lambda shard: _put(shard, READY, "group", 1),
        [("group", "not-the-deadline")],
        BOTH,
    ),
    "a leased group that is due in a year": Break(
        leased,
        lambda shard: _put(shard, READY, "group", shard.now_ms() + 3e10),
        [("group", "not-the-deadline")],
        BOTH,
    ),
    "a leased group that was due before all": Break(
        leased,
        lambda shard: _put(shard, READY, "group", "-inf"),
        [("group", "not-the-deadline")],
        BOTH,
    ),
    "a moment that never comes": Break(
        two_messages,
        lambda shard: _put(shard, READY, "group", 1e18),
        [("group", "bad-moment")],
        BOTH,
    ),
    "a moment before all others": Break(
        two_messages,
        lambda shard: _put(shard, READY, "group", "-inf"),
        [("group", "bad-moment")],
        BOTH,
    ),
    "a token that is no number": Break(
        leased,
        lambda shard: shard.redis.set(shard.keys.lock("group"), "mine", keepttl=True),
        [("group", "bad-token")],
        BOTH,
    ),
    "a scheduled message due before all others": Break(
        one_later,
        lambda shard: _put(shard, "scheduled", scheduled_id(shard), "-inf"),
        [("id", "bad-moment")],
        [b"1"],
    ),
    "a scheduled message that is never due": Break(
        one_later,
        lambda shard: _put(shard, "scheduled", scheduled_id(shard), 1e18),
        [("id", "bad-moment")],
        [b"1"],
    ),
    "a held message that is never due, nor its group": Break(
        holding,
        lambda shard: [
            _put(shard, "scheduled", held_id(shard), 1e18),
            _put(shard, READY, "group", 1e18),
        ],
        [("group", "bad-moment"), ("id", "bad-moment")],
        BOTH,
    ),
    "a lease of thousands of years": Break(
        leased,
        lambda shard: shard.redis.pexpire(shard.keys.lock("group"), 10**15),
        [("group", "lock-too-long"), ("group", "not-the-deadline")],
        BOTH,
    ),
    "a lock that never ends of a group that is never due": Break(
        leased,
        lambda shard: [
            shard.redis.persist(shard.keys.lock("group")),
            _put(shard, READY, "group", 1e300),
        ],
        [("group", "lock-without-expiry")],
        BOTH,
    ),
    "a token that no clock reaches": Break(
        leased,
        lambda shard: shard.redis.set(shard.keys.lock("group"), "9" * 20, keepttl=True),
        [("group", "bad-token")],
        BOTH,
    ),
    "a moment that no pause is as far as": Break(
        two_messages,
        lambda shard: _put(shard, READY, "group", 99_999_999_999_999),
        [("group", "bad-moment")],
        BOTH,
    ),
    "more doomed than there is": Break(
        doomed,
        lambda shard: shard.redis.hset(shard.named("doomed"), "group", "99 id"),
        [("group", "bad-doom")],
        [],
    ),
    "nobody knows how many doomed": Break(
        doomed,
        lambda shard: shard.redis.hset(shard.named("doomed"), "group", "many"),
        [("group", "bad-doom")],
        [b"2"],
    ),
    "a stop without a moment": Break(
        stopped,
        lambda shard: shard.redis.hset(shard.named("meta"), "stopped", "9" * 5000 + " why"),
        [("", "bad-pause")],
        BOTH,
    ),
    "a fencing token after which none grows": Break(
        two_messages,
        lambda shard: shard.redis.set(shard.named("fence"), 2**53),
        [("", "bad-fence")],
        BOTH,
    ),
    "a fencing token that the clock reaches in 20 years": Break(
        two_messages,
        lambda shard: shard.redis.set(
            shard.named("fence"), int(shard.now_ms() + 20 * 366 * 86_400_000) * 1000
        ),
        [("", "bad-fence")],
        BOTH,
    ),
    "a backlog of no tier": Break(
        two_messages,
        lambda shard: shard.redis.hset(shard.named("backlog"), "high", "1"),
        [("", "wrong-backlog")],
        BOTH,
    ),
    "failures that are too long": Break(
        failed,
        lambda shard: shard.redis.hset(shard.named("failures"), "group", "9" * 5000 + " 5"),
        [("group", "bad-counters")],
        BOTH,
    ),
    "a worker that beats for ever": Break(
        nothing,
        lambda shard: _put(shard, "workers", "w", "inf"),
        [("w", "bad-heartbeat")],
        [],
    ),
    "a worker that never beat": Break(
        nothing,
        lambda shard: _put(shard, "workers", "w", "-inf"),
        [("w", "bad-heartbeat")],
        [],
    ),
    "a scheduled message under another's id, for no moment": Break(
        holding,
        lambda shard: shard.redis.hset(
            shard.named("scheduled:data"),
            "a" * 32,
            b"M200000005group" + b"b" * 32 + b"1796007627120" + NEVER.encode(),
        ),
        [("id", "data-alone")],
        BOTH,
    ),
    "a held group without a pause": Break(
        paused,
        lambda shard: shard.redis.hdel(shard.named("paused"), "group"),
        [("group", "held-without-pause")],
        BOTH,
    ),
    "a leased group held without a pause": Break(
        leased,
        lambda shard: _put(shard, READY, "group", "+inf"),
        [("group", "held-without-pause")],
        BOTH,
    ),
    "a paused group that is due": Break(
        paused,
        lambda shard: _put(shard, READY, "group", 1),
        [("group", "paused-but-due")],
        BOTH,
    ),
    "a group due before its head": Break(
        holding,
        lambda shard: _put(shard, READY, "group", 1),
        [("group", "too-early")],
        BOTH,
    ),
    "attempts that are no number": Break(
        failed,
        lambda shard: shard.redis.hset(shard.named("attempts"), "group", "some"),
        [("group", "bad-counters")],
        BOTH,
    ),
    "negative attempts": Break(
        failed,
        lambda shard: shard.redis.hset(shard.named("attempts"), "group", "-4"),
        [("group", "bad-counters")],
        BOTH,
    ),
    "failures that are no number": Break(
        failed,
        lambda shard: shard.redis.hset(shard.named("failures"), "group", "-1 x"),
        [("group", "bad-counters")],
        BOTH,
    ),
    "a halt without messages": Break(
        nothing,
        lambda shard: shard.redis.hset(shard.named("paused"), "group", "halted 1 why"),
        [("group", "left-over")],
        [],
    ),
    "a doom without messages": Break(
        doomed,
        lambda shard: [
            shard.redis.delete(shard.keys.fifo("group")),
            shard.redis.hset(shard.named("backlog"), "2", 0),
        ],
        [("group", "left-over")],
        [],
    ),
    "a doom of which the queue does not know": Break(
        doomed,
        lambda shard: shard.redis.hdel(shard.named("paused"), ""),
        [("", "wrong-flag")],
        [],
    ),
    "a doom without messages of which the queue does not know": Break(
        nothing,
        lambda shard: shard.redis.hset(shard.named("doomed"), "group", "3 id"),
        [("", "wrong-flag"), ("group", "left-over")],
        [],
    ),
    "a stop of which the queue does not know": Break(
        stopped,
        lambda shard: shard.redis.delete(shard.named("paused")),
        [("", "wrong-flag")],
        BOTH,
    ),
    "a stop without a reason": Break(
        stopped,
        lambda shard: shard.redis.delete(shard.named("meta")),
        [("", "wrong-flag")],
        BOTH,
    ),
    "rates that are gone": Break(
        two_messages,
        lambda shard: shard.redis.hset(shard.named("paused"), "", "rates"),
        [("", "wrong-flag")],
        BOTH,
    ),
    "a backlog that is no number": Break(
        two_messages,
        lambda shard: shard.redis.hset(shard.named("backlog"), "2", "many"),
        [("", "wrong-backlog")],
        BOTH,
    ),
    "a negative backlog": Break(
        two_messages,
        lambda shard: shard.redis.hset(shard.named("backlog"), "1", "-3"),
        [("", "wrong-backlog")],
        BOTH,
    ),
    "no backlog": Break(
        two_messages,
        lambda shard: shard.redis.delete(shard.named("backlog")),
        [("", "wrong-backlog")],
        BOTH,
    ),
    "a statistic that is no number": Break(
        two_messages,
        lambda shard: shard.redis.hset(shard.named("stats"), "acked", "many"),
        [("", "bad-counter")],
        BOTH,
    ),
    "a minute's statistic that is no number": Break(
        two_messages,
        lambda shard: shard.redis.hset(shard.named(minute(shard)), "acked", "many"),
        [("minute", "bad-counter")],
        BOTH,
    ),
    "a fencing token that is no number": Break(
        two_messages,
        lambda shard: shard.redis.set(shard.named("fence"), "high"),
        [("", "bad-fence")],
        BOTH,
    ),
    "a minute's statistics that stay for ever": Break(
        nothing,
        lambda shard: shard.redis.hset(shard.named("stats:1000"), "acked", 1),
        [("stats:1000", "no-expiry")],
        [],
    ),
    "a moment without its message": Break(
        one_later,
        lambda shard: shard.redis.hdel(shard.named("scheduled:data"), scheduled_id(shard)),
        [("id", "moment-alone")],
        [],
    ),
    "a scheduled message without its moment": Break(
        one_later,
        lambda shard: shard.redis.delete(shard.named("scheduled")),
        [("id", "never-due")],
        [b"1"],
    ),
    "a dedup key of a message that is not scheduled": Break(
        nothing,
        lambda shard: shard.redis.hset(shard.named("scheduled:dedup"), "0" * 32, "key"),
        [("id", "dedup-alone")],
        [],
    ),
    "a held message without its moment": Break(
        holding,
        lambda shard: shard.redis.delete(shard.named("scheduled")),
        [("id", "held-without-moment")],
        BOTH,
    ),
    "a held message gone from its group": Break(
        holding,
        lambda shard: [
            shard.redis.lpop(shard.keys.fifo("group")),
            shard.redis.hset(shard.named("backlog"), "2", 1),
        ],
        [("id", "held-but-gone")],
        [b"2"],
    ),
    "a held message that is to join its group as well": Break(
        holding,
        lambda shard: shard.redis.hset(
            shard.named("scheduled:data"),
            held_id(shard),
            b"M200000005group" + shard.redis.lindex(shard.keys.fifo("group"), 0),
        ),
        [("id", "scheduled-twice")],
        BOTH,
    ),
    "a scheduled message that is said to be held": Break(
        one_later,
        lambda shard: shard.redis.hset(shard.named("scheduled:held"), scheduled_id(shard), "group"),
        [("id", "scheduled-twice")],
        [b"1"],
    ),
}
WIDE_BREAKS = {
    "a place gone": Break(
        wide_leased,
        lambda shard: shard.redis.delete(shard.named("places:group")),
        [("started", "no-place")],
        [b"1", b"2", b"3"],
    ),
    "a place of a leased message that is not in flight": Break(
        wide_leased,
        lambda shard: shard.redis.zadd(
            shard.named("places:group"), {_named(shard, "places:group"): 0}
        ),
        [("started", "no-place")],
        [b"1", b"2", b"3"],
    ),
    "a started message gone": Break(
        wide_leased,
        lambda shard: shard.redis.delete(
            b"%s%s" % (shard.named("q:").encode(), _named(shard, "places:group"))
        ),
        [("", "wrong-backlog"), ("started", "left-over"), ("started", "lock-without-messages")],
        [b"2", b"3"],
    ),
    "a width gone": Break(
        wide_leased,
        lambda shard: shard.redis.delete(shard.named("wide")),
        [("", "wrong-flag"), ("group", "bad-width")],
        [b"1", b"2", b"3"],
    ),
    "a width that is no number": Break(
        wide_leased,
        lambda shard: shard.redis.hset(shard.named("wide"), "group", "broad"),
        [("group", "bad-width")],
        [b"1", b"2", b"3"],
    ),
    "a width that nobody may ask for": Break(
        wide_leased,
        lambda shard: shard.redis.hset(shard.named("wide"), "group", "9" * 20),
        [("group", "bad-width")],
        [b"1", b"2", b"3"],
    ),
    "a tier of a wide group of which all is started": Break(
        all_started,
        lambda shard: shard.redis.hset(shard.named("prio"), "group", "abc"),
        [("group", "no-tier")],
        [b"1", b"2"],
    ),
    "all that is known of a wide group of which all is started": Break(
        all_started,
        lambda shard: shard.redis.delete(
            *(shard.named(name) for name in ("wide", "prio", "places:group"))
        ),
        [("", "wrong-flag"), *[("started", "no-place"), ("started", "no-tier")] * 2],
        [b"1", b"2"],
    ),
    "a place of a group of which nothing else is known": Break(
        nothing,
        lambda shard: _put(shard, "places:group", STARTED, 1),
        [("group", "bad-width"), ("group", "no-tier"), ("started", "left-over")],
        [],
    ),
    "a started message of a group of which nothing is known": Break(
        nothing,
        lambda shard: shard.redis.rpush(
            shard.named("q:").encode() + STARTED,
            b"0" * 32 + b"1796007627120" + NEVER.encode() + b"1",
        ),
        # As no tier knows of it, its message is not missed in the backlog yet.
        [("started", "no-place"), ("started", "no-tier"), ("started", "not-ready")],
        [b"1"],
    ),
    "a width of a group without messages": Break(
        nothing,
        lambda shard: shard.redis.hset(shard.named("wide"), "group", 2),
        [("", "wrong-flag"), ("group", "left-over")],
        [],
    ),
    "a place of a halted message that is not halted": Break(
        wide_halted,
        lambda shard: shard.redis.zadd(
            shard.named("places:group"), {_named(shard, "places:group"): 0}
        ),
        [("started", "no-place")],
        [b"1", b"2", b"3"],
    ),
    "a place of a message in flight that is halted": Break(
        wide_leased,
        lambda shard: shard.redis.zadd(
            shard.named("places:group"), {_named(shard, "places:group"): 3}
        ),
        [("started", "no-place")],
        [b"1", b"2", b"3"],
    ),
    "a list of a wide group gone": Break(
        wide_leased,
        lambda shard: shard.redis.delete(shard.keys.fifo("group")),
        [("", "wrong-backlog"), ("group", "left-over")],
        [b"1"],
    ),
    "records of a wide group of which all is started": Break(
        all_started,
        lambda shard: [
            *(
                shard.redis.hset(shard.named(name), "group", "7")
                for name in ("attempts", "failures", "errors", "holders")
            ),
            _put(shard, "ready:0", "group", 5),
            _put(shard, "ready:4", "group", 5),
        ],
        [("group", "left-over")],
        [b"1", b"2"],
    ),
    "a halt of a wide group of which all is started": Break(
        all_started,
        lambda shard: shard.redis.hset(shard.named("paused"), "group", "halted 1 why"),
        [("group", "left-over")],
        [b"1", b"2"],
    ),
    "a doom of a wide group of which all is started": Break(
        all_started,
        lambda shard: shard.redis.hset(shard.named("doomed"), "group", "1 id"),
        [("", "wrong-flag"), ("group", "left-over")],
        [b"1", b"2"],
    ),
    "wide groups of which the queue does not know": Break(
        wide_leased,
        lambda shard: shard.redis.hdel(shard.named("paused"), ""),
        [("", "wrong-flag")],
        [b"1", b"2", b"3"],
    ),
}
for record in ("ready:3", "prio", "attempts", "failures", "errors", "holders"):
    BREAKS[f"{record} of a group without messages"] = Break(
        nothing,
        (lambda shard, record=record: _put(shard, record, "group", 1))
        if record == "ready:3"
        else (lambda shard, record=record: shard.redis.hset(shard.named(record), "group", "1")),
        [("group", "left-over")],
        [],
    )
for key, value in {
    "batch:group": "2 7",
    "tat:group": "1 1",
    "dedup:key": "0" * 32,
    "publisher:p": "1",
    "turn:w": "1",
}.items():
    BREAKS[f"{key} that stays for ever"] = Break(
        two_messages,
        lambda shard, key=key, value=value: shard.redis.set(shard.named(key), value),
        [(key, "no-expiry")],
        BOTH,
    )
for key, value in (
    ("batch:group", "0 7"),
    ("tat:group", "1"),
    ("tat:group", "99999999999999999 99999999999999999"),
    ("dedup:key", b"\xff"),
    ("publisher:p", "9" * 5000),
    ("turn:w", "x"),
):
    BREAKS[f"{key} that holds {value[:20]!r}"] = Break(
        two_messages,
        lambda shard, key=key, value=value: shard.redis.set(shard.named(key), value, px=60_000),
        [(key, "bad-value")],
        BOTH,
    )
for text, faults in {"xstoppedx": 2, "widely": 2, "unstopped rates": 3, "foo": 1, "": 1}.items():
    BREAKS[f"{text!r} noted as special"] = Break(
        two_messages,
        lambda shard, text=text: shard.redis.hset(shard.named("paused"), "", text),
        [("", "wrong-flag")] * faults,
        BOTH,
    )
for text in ("", "5", "paused", "paused x why", f"paused {'9' * 5000} why", "halted", "held 5 why"):
    BREAKS[f"a group held because of {text[:20]!r}"] = Break(
        paused,
        lambda shard, text=text: shard.redis.hset(shard.named("paused"), "group", text),
        [("group", "bad-pause")],
        BOTH,
    )
for text in ("0 1", "1000 0", "-1 1", "99999999999999999999 1", "often", b"\xff", ""):
    for name in ("group", "", "without messages"):
        BREAKS[f"a rate of {text!r} for {name!r}"] = Break(
            rated,
            lambda shard, name=name, text=text: shard.redis.hset(shard.named("rates"), name, text),
            [(name, "bad-rate")],
            BOTH,
        )
for member in ("x", "group", "other", b"other\xff" + b"0" * 32, b"group\xffshort"):
    WIDE_BREAKS[f"a place for {member!r}"] = Break(
        wide_leased,
        lambda shard, member=member: [
            _put(shard, "places:group", member, 1),
            _put(shard, "places:group", b"y", 2),
        ],
        [("group", "stray-place")] * 2,
        [b"1", b"2", b"3"],
    )
for place in (1, 2):
    WIDE_BREAKS[f"a place of a parked message that is {place}"] = Break(
        wide_parked,
        lambda shard, place=place: _put(
            shard, "places:group", _named(shard, "places:group"), place
        ),
        [("started", "no-place")],
        [b"1", b"2", b"3"],
    )

BREAKS |= WIDE_BREAKS

each_break = pytest.mark.parametrize("broken", BREAKS.values(), ids=BREAKS)


def _kind(name: str) -> str:
    if re.fullmatch(r"stats:\d{8}", name):
        return "minute"
    if len(name) == ID_LENGTH:
        return "id"
    return "started" if "\udcff" in name else name


async def _broken(shard: Shard, broken: Break) -> None:
    await broken.before(shard)
    assert await found(shard) == []
    broken.break_it(shard)


@each_break
async def test_failure_32_what_is_broken_by_hand_is_named_and_mended(
    sync_shard: Shard, broken: Break
):
    shard = sync_shard
    await _broken(shard, broken)
    before = shard.dump()

    named = await found(shard)

    assert sorted((_kind(name), word) for name, word in named) == sorted(broken.expected)
    assert shard.dump() == before, "an audit changes nothing"

    mended = await repair(shard)

    assert {fault.word for fault in mended.faults} >= {word for _, word in broken.expected} - {
        "wrong-backlog"
    }
    assert await found(shard) == []
    assert (await repair(shard)).total == 0
    if not shard.redis.exists(shard.named("wide")):
        check(shard)


@each_break
async def test_after_repair_the_group_works_and_loses_nothing(sync_shard: Shard, broken: Break):
    shard = sync_shard
    await _broken(shard, broken)
    await repair(shard)

    await shard.transport.perform(calls.resume(shard.prefix, "group"))
    await shard.transport.perform(calls.start(shard.prefix))
    if shard.redis.zcard(shard.named("scheduled")):
        let_come(shard, *(i.decode() for i in shard.redis.zrange(shard.named("scheduled"), 0, -1)))
    for tier in range(5):
        for group, due in shard.redis.zrange(shard.keys.ready(tier), 0, -1, withscores=True):
            shard.redis.delete(shard.named("lock:").encode() + group)
            shard.redis.zadd(shard.keys.ready(tier), {group: min(due, shard.now_ms() - 1000)})

    handled = bodies(await handle_all(shard))
    # A wide group's messages are only started in order.
    assert (sorted(handled) if broken in WIDE_BREAKS.values() else handled) == broken.handled
    await shard.publish("group", b"9")
    assert bodies(await handle_all(shard)) == [b"9"]
    assert await found(shard) == []


@each_break
async def test_failure_32_nothing_spins_on_what_is_broken(sync_shard: Shard, broken: Break):
    await _broken(sync_shard, broken)
    waits = [0]

    while waits[-1] == 0 and len(waits) < 10:
        waits.append((await sync_shard.transport.turn("worker", [], 5, visibility=60)).wait_ms)

    assert waits[-1] != 0


# What is sound -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
async def test_a_group_in_any_state_is_sound(shard: Shard, state: str):
    await bring_into(shard, state, messages=3, tier=3)

    looked = await audit(shard)

    assert looked == Audit((), 0, 1, is_complete=True)


async def test_a_lease_that_ran_out_is_sound(shard: Shard):
    await leased(shard)
    shard.let_lease_run_out("group")

    assert await found(shard) == []


async def test_a_pause_of_a_group_without_messages_is_sound(shard: Shard):
    await shard.transport.perform(calls.pause(shard.prefix, "group", "why"))

    assert await found(shard) == []


async def test_a_group_that_waits_for_its_rate_after_a_crash_is_sound(shard: Shard):
    await shard.transport.perform(calls.rate(shard.prefix, "group", "60000000 1"))
    await leased(shard)
    shard.let_lease_run_out("group")
    assert await shard.transport.claim("worker", 60) is None

    assert await found(shard) == []


@pytest.mark.parametrize("name", OPERATIONS)
async def test_failure_03_no_operation_leaves_anything_to_find(sync_shard: Shard, name: str):
    operation = await OPERATIONS[name](sync_shard)
    assert await found(sync_shard) == []

    await operation(sync_shard)

    assert await found(sync_shard) == []
    before = sync_shard.dump()
    assert (await repair(sync_shard)).total == 0
    assert sync_shard.dump() == before, "a repair of what is sound changes nothing"


async def test_group_ids_of_any_kind_are_audited_by_their_names(shard: Shard):
    names = ["a:b", "q:x\n{y}", " ", "*[?]", "größe", "x" * 512]
    for name in names:
        await shard.publish(name)
        shard.redis.hdel(shard.named("prio"), name)

    assert await found(shard) == sorted((name, "no-tier") for name in names)
    assert (await repair(shard)).total == len(names)
    assert await found(shard) == []


async def test_bytes_that_are_no_text_are_audited_as_well(shard: Shard):
    key = shard.named("q:").encode() + b"\xff\xfe"
    shard.redis.rpush(key, b"%032x" % 1 + b"1796007627120" + NEVER.encode())

    [first, *_] = (await audit(shard)).faults
    assert first.name.encode(errors="surrogateescape") == b"\xff\xfe"
    await repair(shard)
    assert await found(shard) == []


async def test_another_queues_keys_are_not_looked_at(shard: Shard):
    shard.redis.set("gq:{other:0}:strange", 1)
    shard.redis.set("strange", 1)

    assert await found(shard) == []


# What is named, and left to people ------------------------------------------------------------


async def is_left_alone(shard: Shard, *expected: tuple[str, str]) -> None:
    """Expect an audit to name what is expected, and repair not to touch it."""
    before = shard.dump()
    assert await found(shard) == sorted(expected)
    assert (await repair(shard)).total == 0
    assert shard.dump() == before


@pytest.mark.parametrize(
    "element",
    [
        b"nonsense",
        b"G" * 32 + b"1796007627120" + NEVER.encode(),
        b"0" * 32 + b"179600762712x" + NEVER.encode(),
        b"0" * 32 + b"1796007627120" + b"never........",
        b"",
    ],
)
async def test_what_is_no_message_is_named(sync_shard: Shard, element: bytes):
    await two_messages(sync_shard)
    sync_shard.redis.rpush(sync_shard.keys.fifo("group"), element)
    sync_shard.redis.hset(sync_shard.named("backlog"), "2", 3)

    await is_left_alone(sync_shard, ("group", "bad-message"))
    [fault] = (await audit(sync_shard)).faults
    assert "place 2 " in fault.text


async def test_a_message_twice_in_its_group_is_named(sync_shard: Shard):
    await two_messages(sync_shard)
    list_key = sync_shard.keys.fifo("group")
    sync_shard.redis.rpush(list_key, sync_shard.redis.lindex(list_key, 0))
    sync_shard.redis.hset(sync_shard.named("backlog"), "2", 3)

    await is_left_alone(sync_shard, ("group", "twice-in-group"))


async def test_a_message_that_waits_and_is_a_dead_letter_is_named(sync_shard: Shard):
    shard = sync_shard
    await two_messages(shard)
    element = shard.redis.lindex(shard.keys.fifo("group"), 0)
    await shard.transport.settle(Settlement.dead(await shard.transport.claim("w", 60), "why"))
    shard.redis.lpush(shard.keys.fifo("group"), element)
    shard.redis.hset(shard.named("backlog"), "2", 2)
    [(entry, _)] = shard.redis.xrange(shard.named("dead"))

    await is_left_alone(shard, (entry.decode(), "dead-and-alive"))


async def test_what_is_no_dead_letter_is_named(sync_shard: Shard):
    entry = sync_shard.redis.xadd(sync_shard.named("dead"), {"some": "thing"})

    await is_left_alone(sync_shard, (entry.decode(), "bad-letter"))


@pytest.mark.parametrize("missing", ["tier", "group", "element"])
async def test_a_letter_that_cannot_be_put_back_is_named(sync_shard: Shard, missing: str):
    element = b"b" * 32 + b"1796007627120" + NEVER.encode()
    letter = {"tier": "1", "group": "group", "element": element} | {missing: ""}
    if missing == "element":
        del letter["element"]
    entry = sync_shard.redis.xadd(sync_shard.named("dead"), letter)

    await is_left_alone(sync_shard, (entry.decode(), "bad-letter"))
    assert (
        await sync_shard.transport.perform(calls.redrive(sync_shard.prefix, [entry.decode()])) == 0
    )


async def test_a_letter_of_a_moment_to_come_is_named(sync_shard: Shard):
    element = b"b" * 32 + b"1796007627120" + NEVER.encode()
    entry = f"{int(sync_shard.now_ms()) + 2 * 86_400_000}-0"
    letter = {"tier": "1", "group": "group", "element": element}
    sync_shard.redis.xadd(sync_shard.named("dead"), letter, entry)

    await is_left_alone(sync_shard, (entry, "late-letter"))


async def test_what_is_scheduled_for_no_moment_and_no_message_is_set_aside(sync_shard: Shard):
    """Else it would be taken for the data of the held one, which would be held no more."""
    shard = sync_shard
    await holding(shard)
    shard.redis.hset(shard.named("scheduled:data"), "a" * 32, "junk")
    assert await found(shard) == [("a" * 32, "data-alone")]

    assert [fault.word for fault in (await repair(shard)).faults] == ["data-alone"]

    [(entry, letter)] = shard.redis.xrange(shard.named("dead"))
    assert letter[b"element"] == b"junk"
    assert await found(shard) == [(entry.decode(), "bad-letter")]
    await shard.transport.perform(calls.pause(shard.prefix, "group", "why"))
    await shard.transport.perform(calls.resume(shard.prefix, "group"))
    assert await shard.transport.claim("worker", 60) is None


async def test_what_is_scheduled_and_no_message_is_named(sync_shard: Shard):
    await one_later(sync_shard)
    identifier = scheduled_id(sync_shard)
    sync_shard.redis.hset(sync_shard.named("scheduled:data"), identifier, "M900000005groupx")

    await is_left_alone(sync_shard, (identifier, "bad-schedule"))


async def test_a_key_that_is_none_of_ours_is_named(sync_shard: Shard):
    for name in ("strange", "q:", "stats:today", "strange:group", "ready:5"):
        sync_shard.redis.set(sync_shard.named(name), 1)

    await is_left_alone(
        sync_shard,
        *((name, "unknown-key") for name in ("strange", "q:", "stats:today", "strange:group")),
        ("ready:5", "unknown-key"),
    )


async def test_what_waits_for_a_place_is_given_the_next_one_after_a_repair_too(sync_shard: Shard):
    shard = sync_shard
    await send(shard, *(wide("group", b"%d" % number, width=2) for number in range(3)))
    first, second = (await shard.transport.turn("worker", [], 2, visibility=60)).leases
    parked = Settlement.retry(first, 3600, "boom")
    await shard.transport.turn("worker", [parked], 1, visibility=60)
    shard.redis.zadd(shard.keys.ready(0), {first.key: 1})
    assert (await shard.transport.turn("worker", [], 1, visibility=60)).leases == []
    shard.redis.hdel(shard.named("prio"), first.key)
    assert [fault.word for fault in (await repair(shard)).faults] == ["no-tier"]

    turned = await shard.transport.turn("worker", [Settlement.ack(second)], 1, visibility=60)

    assert [lease.id for lease in turned.leases] == [first.id]


async def test_places_of_another_type_stop_no_repair(sync_shard: Shard):
    await wide_leased(sync_shard)
    await sync_shard.publish("other")
    sync_shard.redis.hdel(sync_shard.named("prio"), "other")
    sync_shard.redis.delete(sync_shard.named("places:group"))
    sync_shard.redis.set(sync_shard.named("places:group"), "foreign")

    assert await found(sync_shard) == [("other", "no-tier"), ("places:group", "wrong-type")]
    assert [(f.name, f.word) for f in (await repair(sync_shard)).faults] == [("other", "no-tier")]


@pytest.mark.parametrize("name", ["q:group", "lock:group", "batch:group", "worker:w"])
async def test_a_groups_key_of_another_type_is_named_and_stops_nothing(
    sync_shard: Shard, name: str
):
    await two_messages(sync_shard)
    await sync_shard.publish("other")
    sync_shard.redis.hdel(sync_shard.named("prio"), "other")
    sync_shard.redis.delete(sync_shard.named(name))
    sync_shard.redis.sadd(sync_shard.named(name), "foreign")

    looked = await audit(sync_shard)

    words = {(fault.name, fault.word) for fault in looked.faults}
    assert words >= {(name, "wrong-type"), ("other", "no-tier")}
    assert not {word for of, word in words if of == "group"}
    assert looked.is_complete
    assert ("other", "no-tier") in {(f.name, f.word) for f in (await repair(sync_shard)).faults}


@pytest.mark.parametrize(
    "name", ["prio", "ready:2", "paused", "scheduled", "scheduled:held", "dead", "fence", "stats"]
)
async def test_a_key_of_the_whole_queue_of_another_type_is_named_and_nothing_is_judged(
    sync_shard: Shard, name: str
):
    await two_messages(sync_shard)
    sync_shard.redis.delete(sync_shard.named(name))
    sync_shard.redis.sadd(sync_shard.named(name), "foreign")

    looked = await audit(sync_shard)

    assert looked.faults == (Fault("key", name, "wrong-type", "set"),)
    assert not looked.is_complete
    before = sync_shard.dump()
    assert not (await repair(sync_shard)).is_complete
    assert sync_shard.dump() == before


# While the queue works, and how much at once --------------------------------------------------


async def test_an_audit_of_a_queue_at_work_finds_nothing(sync_shard: Shard):
    """Publish, claim and settle between any two steps of an audit."""
    shard = sync_shard
    finished: list[Settlement] = []
    number = 0

    async def work() -> None:
        nonlocal finished, number
        number += 1
        turned = await shard.transport.turn("worker", finished, 20, visibility=60, batch=3)
        ends = (
            Settlement.ack,
            lambda lease: Settlement.retry(lease, 0, "boom"),
            lambda lease: Settlement.dead(lease, "why"),
            Settlement.release,
        )
        finished = [ends[n % 4](lease) for n, lease in enumerate(turned.leases)]
        await shard.publish_many(
            [(f"group-{n % 70}", b"1", n % 5) for n in range(number, number + 40)]
        )
        [later] = await send(shard, scheduled(f"later-{number}"))
        await send(shard, held(f"group-{number % 70}"))
        await send(shard, *(wide(f"wide-{number % 7}", width=3) for _ in range(4)))
        if number % 3:
            await cancel(shard, later)
        await shard.transport.perform(calls.purge(shard.prefix, [f"group-{number % 70}"]))

    for _ in range(3):
        looked = await go_through(shard, audit_queue(shard.prefix, limit=1000), work)

        assert looked.faults == ()
        assert looked.groups > 20
    assert stat(shard, "delivered") > 100


async def test_a_step_reads_a_bounded_part_of_long_groups(sync_shard: Shard, monkeypatch):
    shard = sync_shard
    big = b"x" * 100_000
    for name in ("one", "two", "three"):
        await shard.publish_many([(name, big, 0) for _ in range(60)])
    await shard.publish_many([("long", b"1", 0) for _ in range(3000)])
    done: list[int] = []
    ask = calls.audit

    def counting(prefix: str, kind: str, names: Any) -> Any:
        call = ask(prefix, kind, names)
        if kind != "list":
            return call

        def decode(reply: Any) -> Any:
            done.append(reply[0])
            return call.decode(reply)

        return calls.Call(call.script, call.prefix, call.arguments, decode, repeatable=True)

    monkeypatch.setattr(calls, "audit", counting)

    assert await found(shard) == []
    assert sum(done) == 4
    assert len(done) >= 3, "4 MB at once, and the rest in the next call"


async def test_an_audit_ends_at_its_limit_and_says_so(sync_shard: Shard):
    await sync_shard.publish_many([(f"group-{number}", b"1", 0) for number in range(2000)])
    sync_shard.redis.delete(sync_shard.named("prio"))

    looked = await audit(sync_shard, limit=10)

    assert (len(looked.faults), looked.is_complete) == (10, False)
    assert looked.total >= 10
    mended = await repair(sync_shard)
    assert (len(mended.faults), mended.total, mended.is_complete) == (1000, 2000, True)
    assert await found(sync_shard) == []


async def test_thousands_of_groups_are_audited_page_by_page(sync_shard: Shard):
    await sync_shard.publish_many([(f"group-{n}", b"1", n % 5) for n in range(5000)])
    await sync_shard.transport.turn("worker", [], 400, visibility=60)

    looked = await audit(sync_shard)

    assert looked.faults == ()
    assert looked.groups >= 5000


async def test_a_backlog_of_too_many_groups_is_counted_roughly_and_left(sync_shard: Shard):
    await sync_shard.publish_many([(f"group-{n}", b"1", n % 2) for n in range(21_000)])
    assert await found(sync_shard) == []
    sync_shard.redis.hset(sync_shard.named("backlog"), "1", 5)

    assert [fault.text for fault in (await audit(sync_shard)).faults] == [
        "tier, messages noted and roughly counted differ: 1, 5, 10500"
    ]
    assert (await repair(sync_shard)).total == 0


async def test_messages_of_many_groups_are_counted_once_these_are_in_order(sync_shard: Shard):
    shard = sync_shard
    await shard.publish_many([(f"group-{n}", b"1", n % 2) for n in range(12_000)])
    noted = shard.redis.hgetall(shard.named("backlog"))
    shard.redis.delete(shard.named("prio"), shard.keys.ready(0), shard.keys.ready(1))

    await repair(shard)

    # The tiers are not known any more; the sum is.
    assert {fault.word for fault in (await audit(shard)).faults} <= {"backlog-apart"}
    assert shard.redis.hgetall(shard.named("backlog")) == noted


async def test_a_backlog_of_many_groups_that_is_no_number_is_what_was_counted(sync_shard: Shard):
    shard = sync_shard
    await shard.publish_many([(f"group-{n}", b"1", n % 2) for n in range(12_000)])
    for junk in ("abc", "9" * 30):
        shard.redis.hset(shard.named("backlog"), "1", junk)
        assert await found(shard) == [("", "wrong-backlog")]

        assert [fault.detail for fault in (await repair(shard)).faults] == [f"1, {junk}, 6000"]
        assert await found(shard) == []


@pytest.mark.parametrize(
    ("counted", "noted", "is_apart"),
    [
        (5, {5}, False),
        (5, {6}, True),
        (5, set(), False),
        (1000, {990, 1010}, False),
        (1000, {1020, 1060}, False),
        (1000, {1200, 1210}, True),
    ],
)
def test_a_rough_count_allows_for_what_came_and_went(counted, noted, is_apart):
    assert audits._Count(counted, noted).is_apart is is_apart


# What is written down -------------------------------------------------------------------------


def test_every_word_of_the_scripts_has_its_row_and_no_other():
    code = "\n".join(map(lua_files.read_code, lua_files.paths()))
    words = set(re.findall(r'(?:fault\(|\{ |name, )"([a-z]+(?:-[a-z]+)+|uncounted)"', code))

    assert words == {*KINDS, audits.UNCOUNTED} - {"backlog-apart"}


def test_every_kind_that_is_mendable_is_tried():
    tried = {word for broken in BREAKS.values() for _, word in broken.expected}

    assert tried == {word for word, kind in KINDS.items() if kind.is_mendable}


def test_every_key_of_the_table_is_known_with_its_type_and_no_other():
    code = lua_files.read_code("includes/kind_of")
    own, per = code.split("KEY_TYPES_PER")[:2]
    known = {
        name or quoted: kind
        for name, quoted, kind in re.findall(r'(?:(\w+)|\["([\w:]+)"\]) = "(\w+)"', own)
    }
    known |= {f"{name}:": kind for name, kind in re.findall(r'(\w+) = \{ "(\w+)"', per)}
    listed: dict[str, str] = {}
    for row in lua_files.table("Keys"):
        name = re.sub(r"<.*", "", row[0].strip("`"))
        for each in [f"ready:{n}" for n in range(5)] if name == "ready:" else [name]:
            listed[each] = row[1]

    assert known == listed
