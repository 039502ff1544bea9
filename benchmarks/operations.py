"""How fast are publishing, claiming and settling, by one client in one thread?"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import groupqueue
from benchmarks.figures import (
    BODY,
    GROUPS,
    MESSAGES_PER_SECOND,
    PAYLOAD,
    VISIBILITY_SECONDS,
    Bench,
    Figure,
    Reading,
    drain,
    envelopes,
    fill,
    publish_call,
    smallest_call,
    turn_call,
)
from benchmarks.handlers import NOTHING

MESSAGES = 4_000
MESSAGES_IN_BULK = 40_000
MESSAGES_BY_TURN = {1: 4_000, 16: 16_000, 64: 16_000}
BULK = 100
GROUPS_WITH_BACKLOG = 16


def figures() -> list[Figure]:
    """Return this module's figures."""
    by_100 = partial(publish_call, BULK)
    return [
        Figure("bare_round_trip", bare_round_trip, smallest_call),
        Figure("publish_one_transport", publish_one_transport, partial(publish_call, 1)),
        Figure("publish_one", publish_one, partial(publish_call, 1)),
        Figure("publish_by_100_transport", publish_by_100_transport, by_100),
        Figure("publish_by_100", publish_by_100, by_100),
        Figure("publish_by_100_one_group", publish_by_100_one_group, by_100),
        *(
            Figure(f"turn_want_{want}", partial(turns, want), partial(turn_call, want))
            for want in MESSAGES_BY_TURN
        ),
        Figure("turn_of_batches", turns_of_batches, partial(turn_call, GROUPS_WITH_BACKLOG)),
        Figure("claim_then_ack", claim_then_ack, partial(turn_call, 1)),
    ]


def bare_round_trip(bench: Bench) -> Sequence[Reading]:
    """`return 1` by EVALSHA, one key and no more: the most that redis-py gives."""
    sha = bench.client.script_load("return 1")
    execute: Callable[..., Any] = bench.client.execute_command
    prefix = bench.transport.prefix

    def work(count: int) -> None:
        for _ in range(count):
            execute("EVALSHA", sha, 1, prefix)

    return [_timed(bench, "bare_round_trip", bench.scaled(MESSAGES), work, unit="round trips/s")]


def publish_one_transport(bench: Bench) -> Sequence[Reading]:
    """A message per call, bytes to the transport."""

    def work(count: int) -> None:
        for number in range(count):
            bench.transport.publish(f"group-{number % GROUPS:07d}", BODY)

    return [_timed(bench, "publish_one_transport", bench.scaled(MESSAGES), work)]


def publish_one(bench: Bench) -> Sequence[Reading]:
    """A message per call, as a Django project publishes it."""

    def work(count: int) -> None:
        for number in range(count):
            groupqueue.publish(NOTHING, PAYLOAD, group=f"group-{number % GROUPS:07d}")

    return [_timed(bench, "publish_one", bench.scaled(MESSAGES), work)]


def publish_by_100_transport(bench: Bench) -> Sequence[Reading]:
    """A hundred messages of a hundred groups per call, bytes to the transport."""
    return [_publish_envelopes(bench, "publish_by_100_transport", groups=GROUPS)]


def publish_by_100_one_group(bench: Bench) -> Sequence[Reading]:
    """A hundred messages of one group per call, bytes to the transport."""
    return [_publish_envelopes(bench, "publish_by_100_one_group", groups=1)]


def publish_by_100(bench: Bench) -> Sequence[Reading]:
    """A hundred messages of a hundred groups per call, as a Django project publishes them."""

    def work(count: int) -> None:
        for start in range(0, count, BULK):
            groupqueue.publish_many(
                groupqueue.Outgoing(NOTHING, PAYLOAD, group=f"group-{number % GROUPS:07d}")
                for number in range(start, min(start + BULK, count))
            )

    return [_timed(bench, "publish_by_100", bench.scaled(MESSAGES_IN_BULK), work)]


def turns(want: int, bench: Bench) -> Sequence[Reading]:
    """Turns that each ack what the one before claimed, until the backlog is gone."""
    count = bench.scaled(MESSAGES_BY_TURN[want])
    fill(bench.transport, count)

    work = partial(drain, bench.transport, want=want)
    return [_timed(bench, f"turn_want_{want}", count, work)]


def turns_of_batches(bench: Bench) -> Sequence[Reading]:
    """The same with 16 groups that have a backlog, 32 messages of each in a lease."""
    count = bench.scaled(MESSAGES_IN_BULK)
    fill(bench.transport, count, groups=GROUPS_WITH_BACKLOG)

    work = partial(drain, bench.transport, want=GROUPS_WITH_BACKLOG, batch=32)
    return [_timed(bench, "turn_of_batches", count, work)]


def claim_then_ack(bench: Bench) -> Sequence[Reading]:
    """A claim and an ack per message, each a round trip of its own."""
    count = bench.scaled(MESSAGES)
    fill(bench.transport, count)

    def work(count: int) -> None:
        for _ in range(count):
            lease = bench.transport.claim("benchmark", VISIBILITY_SECONDS)
            assert lease is not None
            bench.transport.ack(lease)

    return [_timed(bench, "claim_then_ack", count, work)]


def _publish_envelopes(bench: Bench, name: str, *, groups: int) -> Reading:
    def work(count: int) -> None:
        messages = envelopes(count, groups=groups)
        while bulk := list(islice(messages, BULK)):
            bench.transport.publish_envelopes(bulk)

    return _timed(bench, name, bench.scaled(MESSAGES_IN_BULK), work)


def _timed(
    bench: Bench,
    name: str,
    count: int,
    work: Callable[[int], Any],
    *,
    unit: str = MESSAGES_PER_SECOND,
) -> Reading:
    bench.meter.reset()
    started = time.perf_counter()
    work(count)
    seconds = time.perf_counter() - started
    return Reading(name, count / seconds, unit, bench.meter.read(), count)
