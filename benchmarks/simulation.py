"""How long do groups wait when a fixed number of workers takes turns at a queue?

The turns are real: the script that workers use, on a real server, with the worker's own
`ClaimShares`. The workers are virtual: they take their turns one after the other, and each
acks in a turn what it claimed in the one before. A handler thus takes as long as the turns
of all workers together, every claim has a number, and the waits counted in claims are the
same on every machine.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from groupqueue.conf import get_config
from groupqueue.core.calls import Settlement
from groupqueue.core.identifiers import new_id
from groupqueue.core.messages import Envelope, Lease
from groupqueue.transport.redis import RedisTransport
from groupqueue.worker.options import ClaimShares, WorkerOptions

VISIBILITY_SECONDS = 60.0
# How many messages a backlogged group has at the start; one follows for each that is claimed.
BACKLOG = 3
SEED = 20

Arrivals = Iterator[Sequence[str]]
"""Before each turn: the groups that get a message in the lowest tier."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Who publishes what, and how the workers claim it.

    A group's name is `<class>-<number>`; waits are told by class.
    """

    name: str
    backlogged: Mapping[str, int]
    """Groups that always have messages waiting, with their tiers."""
    arrivals: Callable[[random.Random], Arrivals]
    arrival: str = "fair"
    options: WorkerOptions = field(default_factory=lambda: WorkerOptions(queues=("default",)))


class Wait(NamedTuple):
    """From the moment at which a group became due to its claim."""

    group: str
    claims: int
    """The claims of that time, its own included."""
    seconds: float
    round: int
    """How many groups were waiting when it became due, itself included: as many claims
    later each of them could have been claimed once."""
    is_over: bool
    """Else the group was still waiting when the simulation ended."""

    @property
    def kind(self) -> str:
        """The group's class."""
        return self.group.partition("-")[0]

    @property
    def rounds(self) -> float:
        """The wait in fair shares: at most 1 where all who wait are equal."""
        return self.claims / self.round


def simulate(
    transport: RedisTransport,
    scenario: Scenario,
    *,
    turns: int,
    workers: int,
    service_seconds: float = 0,
) -> list[Wait]:
    """Let the workers take so many turns on an empty shard and return all waits.

    A handler takes `service_seconds`, or longer when the turns do.
    """
    crew = [_Worker(number, scenario.options) for number in range(workers)]
    arrivals = scenario.arrivals(random.Random(SEED))  # noqa: S311
    line = _Line(transport, scenario)
    line.publish([group for group in scenario.backlogged for _ in range(BACKLOG)])
    started = time.monotonic()
    for turn in range(turns):
        time.sleep(max(0, started + turn * service_seconds / workers - time.monotonic()))
        line.publish(next(arrivals))
        line.turn(crew[turn % workers])
    return line.waits()


class _Worker:
    def __init__(self, number: int, options: WorkerOptions) -> None:
        self.name = f"worker-{number}"
        self.shares = ClaimShares(options, get_config())
        self.lease: Lease | None = None


class _Waiting(NamedTuple):
    claims_before: int
    since: float
    round: int


class _Line:
    """The groups that wait, by what the server has answered."""

    def __init__(self, transport: RedisTransport, scenario: Scenario) -> None:
        self._transport = transport
        self._scenario = scenario
        self._waiting: dict[str, _Waiting] = {}
        self._leased: set[str] = set()
        self._claims = 0
        self._over: list[Wait] = []

    def publish(self, groups: Sequence[str]) -> None:
        """Publish a message to each of the groups."""
        tiers = self._scenario.backlogged
        envelopes = [Envelope(new_id(), group, tiers.get(group, 0), b"") for group in groups]
        if envelopes:
            self._transport.publish_envelopes(envelopes)
        for group in groups:
            if group not in self._leased and group not in self._waiting:
                self._enter(group)

    def turn(self, worker: _Worker) -> None:
        """Ack what the worker holds and claim its next message."""
        done = [worker.lease] if worker.lease else []
        preference = worker.shares.preference(1)
        turned = self._transport.turn(
            worker.name,
            [Settlement.ack(lease) for lease in done],
            1,
            visibility=VISIBILITY_SECONDS,
            preference=preference,
        )
        worker.shares.charge(preference, len(turned.leases))
        for lease, settled in zip(done, turned.settled, strict=True):
            self._leased.remove(lease.group)
            if settled.left:
                self._enter(lease.group)
        worker.lease = turned.leases[0] if turned.leases else None
        if worker.lease:
            self._leave(worker.lease.group)

    def waits(self) -> list[Wait]:
        """Return the waits that are over, and those that are not with their length so far."""
        return self._over + [self._wait(group, is_over=False) for group in self._waiting]

    def _enter(self, group: str) -> None:
        self._waiting[group] = _Waiting(self._claims, time.monotonic(), len(self._waiting) + 1)

    def _leave(self, group: str) -> None:
        self._claims += 1
        self._over.append(self._wait(group, is_over=True))
        del self._waiting[group]
        self._leased.add(group)
        if group in self._scenario.backlogged:
            self.publish([group])

    def _wait(self, group: str, *, is_over: bool) -> Wait:
        claims_before, since, size = self._waiting[group]
        claims = self._claims - claims_before
        return Wait(group, claims, time.monotonic() - since, size, is_over)
