"""Does the number of groups, or of messages in one, change what a claim or a publish costs?"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

from benchmarks.figures import (
    BODY,
    VISIBILITY_SECONDS,
    Bench,
    Figure,
    Reading,
    drain,
    fill,
    publish_call,
    turn_call,
)
from benchmarks.report import Comparison
from groupqueue.core.calls import Settlement
from groupqueue.core.keys import shard_prefix
from groupqueue.transport.redis import RedisTransport

# The crowds take turns in short slices, so that each meets the same machine.
SLICES = 10
CALLS = 2_000
# Beside the database that is emptied for every other figure.
CROWD_DATABASE = 1


class Crowd(NamedTuple):
    """What a shard holds: groups with a message in each, or one group with many."""

    groups: int
    messages: int

    @property
    def size(self) -> int:
        """What tells it from the crowds that it is compared with."""
        return max(self)

    @property
    def name(self) -> str:
        """How readings call it."""
        return f"{self.size}_{'messages' if self.messages > self.groups else 'groups'}"


class Step(NamedTuple):
    """What is timed: one call on a shard, and the settlements for the next."""

    name: str
    call: Callable[[RedisTransport, Crowd, list[Settlement]], list[Settlement]]


def by_groups(counts: Sequence[int]) -> list[Crowd]:
    """Return crowds of so many groups."""
    return [Crowd(groups=count, messages=count) for count in counts]


def by_depth(counts: Sequence[int]) -> list[Crowd]:
    """Return single groups of so many messages."""
    return [Crowd(groups=1, messages=count) for count in counts]


def figures(what: str, crowds: Sequence[Crowd]) -> list[Figure]:
    """Return figures that compare claims, and publishes, among crowds."""
    return [
        Figure(f"claim_by_{what}", partial(_compared, CLAIM, crowds), partial(turn_call, 1)),
        Figure(f"publish_by_{what}", partial(_compared, PUBLISH, crowds), partial(publish_call, 1)),
    ]


def comparisons(crowds: Sequence[Crowd]) -> list[Comparison]:
    """Return how a call's cost in each larger crowd is to be divided by that in the smallest."""
    few, *more = sorted(crowds)
    return [
        Comparison(
            f"{step.name}_cost_at_{many.name}_to_{few.size}",
            f"{step.name}_at_{few.name}",
            f"{step.name}_at_{many.name}",
        )
        for step, many in product((CLAIM, PUBLISH), more)
    ]


def _claim(
    transport: RedisTransport, crowd: Crowd, settlements: list[Settlement]
) -> list[Settlement]:
    """Hand back what the last turn claimed and claim the next: the crowd stays as it is."""
    del crowd
    turned = transport.turn("benchmark", settlements, 1, visibility=VISIBILITY_SECONDS)
    return [Settlement.release(lease) for lease in turned.leases]


def _publish(
    transport: RedisTransport, crowd: Crowd, settlements: list[Settlement]
) -> list[Settlement]:
    transport.publish(f"group-{random.randrange(crowd.groups):07d}", BODY)  # noqa: S311
    return settlements


CLAIM = Step("claim", _claim)
PUBLISH = Step("publish", _publish)


def _compared(step: Step, crowds: Sequence[Crowd], bench: Bench) -> Sequence[Reading]:
    for crowd in crowds:
        if crowd.name not in bench.crowds:
            bench.crowds[crowd.name] = _gathered(bench, crowd)
    seconds = dict.fromkeys(crowds, 0.0)
    calls_per_slice = bench.scaled(CALLS // SLICES)
    for _ in range(SLICES):
        for crowd in crowds:
            seconds[crowd] += _slice(bench.crowds[crowd.name], crowd, step, calls_per_slice)
    calls = calls_per_slice * SLICES
    return [
        Reading(f"{step.name}_at_{crowd.name}", calls / seconds[crowd], "calls/s")
        for crowd in crowds
    ]


def _slice(transport: RedisTransport, crowd: Crowd, step: Step, calls: int) -> float:
    settlements: list[Settlement] = []
    started = time.perf_counter()
    for _ in range(calls):
        settlements = step.call(transport, crowd, settlements)
    seconds = time.perf_counter() - started
    if settlements:
        transport.turn("benchmark", settlements, 0, visibility=VISIBILITY_SECONDS)
    if step is PUBLISH and crowd.groups == 1:  # which is to stay as deep as it was
        drain(transport, calls, batch=100)
    return seconds


def _gathered(bench: Bench, crowd: Crowd) -> RedisTransport:
    """Return a shard that holds so much."""
    client = bench.server.client(CROWD_DATABASE)
    transport = RedisTransport(client, shard_prefix(f"crowd-{crowd.name}"))
    fill(transport, crowd.messages, groups=crowd.groups)
    return transport
