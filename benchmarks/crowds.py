"""Does the number of groups change what a claim or a publish costs?"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from benchmarks.figures import (
    BODY,
    VISIBILITY_SECONDS,
    Bench,
    Figure,
    Reading,
    fill,
    publish_call,
    turn_call,
)
from groupqueue.core.calls import Settlement
from groupqueue.core.keys import shard_prefix
from groupqueue.transport.redis import RedisTransport

# The crowds take turns in short slices, so that each meets the same machine.
SLICES = 10
CALLS = 2_000
# Beside the database that is emptied for every other figure.
CROWD_DATABASE = 1


class Step(NamedTuple):
    """What is timed: one call on a shard, and the settlements for the next."""

    name: str
    call: Callable[[RedisTransport, int, list[Settlement]], list[Settlement]]


def figures() -> list[Figure]:
    """Return this module's figures."""
    return [
        Figure("claim_by_groups", partial(_by_groups, CLAIM), partial(turn_call, 1)),
        Figure("publish_by_groups", partial(_by_groups, PUBLISH), partial(publish_call, 1)),
    ]


def _claim(
    transport: RedisTransport, groups: int, settlements: list[Settlement]
) -> list[Settlement]:
    """Hand back what the last turn claimed and claim the next: the crowd stays as it is."""
    del groups
    turned = transport.turn("benchmark", settlements, 1, visibility=VISIBILITY_SECONDS)
    return [Settlement.release(lease) for lease in turned.leases]


def _publish(
    transport: RedisTransport, groups: int, settlements: list[Settlement]
) -> list[Settlement]:
    transport.publish(f"group-{random.randrange(groups):07d}", BODY)  # noqa: S311
    return settlements


CLAIM = Step("claim", _claim)
PUBLISH = Step("publish", _publish)


def _by_groups(step: Step, bench: Bench) -> Sequence[Reading]:
    for groups in bench.group_counts:
        if groups not in bench.crowds:
            bench.crowds[groups] = _crowd(bench, groups)
    seconds = dict.fromkeys(bench.group_counts, 0.0)
    calls_per_slice = bench.scaled(CALLS // SLICES)
    for _ in range(SLICES):
        for groups in bench.group_counts:
            seconds[groups] += _slice(bench.crowds[groups], groups, step, calls_per_slice)
    calls = calls_per_slice * SLICES
    return [
        Reading(f"{step.name}_at_{groups}_groups", calls / seconds[groups], "calls/s")
        for groups in bench.group_counts
    ]


def _slice(transport: RedisTransport, groups: int, step: Step, calls: int) -> float:
    settlements: list[Settlement] = []
    started = time.perf_counter()
    for _ in range(calls):
        settlements = step.call(transport, groups, settlements)
    seconds = time.perf_counter() - started
    if settlements:
        transport.turn("benchmark", settlements, 0, visibility=VISIBILITY_SECONDS)
    return seconds


def _crowd(bench: Bench, groups: int) -> RedisTransport:
    """Return a shard with so many groups, a message in each."""
    client = bench.server.client(CROWD_DATABASE)
    transport = RedisTransport(client, shard_prefix(f"crowd-{groups}"))
    fill(transport, groups, groups=groups)
    return transport
