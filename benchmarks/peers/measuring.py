"""In which order is what measured?

One server for all, emptied before each case. In every round every peer has its turn with
each payload; the first to begin is another one each round. A turn is: publish one by one;
publish by 100 and handle that backlog, one at a time; the same, 16 at a time. Where a peer
has no way to publish by 100, its backlog is published one by one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import report, workers
from benchmarks.figures import Bench, bare_round_trips, smallest_call
from benchmarks.peers import program
from benchmarks.peers.catalogue import Peer
from benchmarks.peers.environments import Environment
from benchmarks.peers.processes import ProgramFailed, running
from benchmarks.peers.program import Job
from benchmarks.run import measure_figure

PAYLOADS = ("flights", "small")
MESSAGES = 27_000
SECONDS = 1.0
BULK = 100
# The last ones of a backlog would show how a queue runs dry.
LEFT_OVER = 100
START_SECONDS = 30.0
FIGURES = ("handled_1", "handled_16", "published_1", "published_100")


class Reading(NamedTuple):
    """What one case gave in one round."""

    peer: str
    payload: str
    figure: str
    per_second: float
    cpu_microseconds: float
    """Per message, of the process that published or handled."""
    messages: int
    bare: float
    """Bare round trips per second right before."""


class Failure(NamedTuple):
    """A case that gave nothing."""

    peer: str
    payload: str
    figure: str
    reason: str


class Measured(NamedTuple):
    """Everything that a run has found."""

    readings: list[Reading]
    failures: list[Failure]
    settings: dict[str, list[str]]
    ours: list[report.Round]
    """What is measured of groupqueue alone."""
    rounds: int = 0


def measure(
    bench: Bench,
    peers: Sequence[tuple[Peer, Environment]],
    *,
    rounds: int,
    seconds: float,
    ours: bool,
) -> Measured:
    """Measure all peers, round by round; no round begins that would not end in time."""
    found = Measured([], [], {}, [])
    started, number = time.monotonic(), 0
    while number < rounds and is_time_for(number, time.monotonic() - started, seconds):
        name = f"round {number + 1} of {rounds}"
        for payload in PAYLOADS:
            for peer, environment in rotated(peers, number):
                print(f"{name}: {peer.name}, {payload}", file=sys.stderr)
                _Turn(bench, peer, environment, payload, found).take()
        if ours:
            print(f"{name}: groupqueue alone", file=sys.stderr)
            for figure in workers.figures():
                if figure.name != workers.worker_name(1, 1):
                    found.ours.extend(measure_figure(bench, figure))
        number += 1
    if number < rounds:
        print(f"no time for more than {number} of {rounds} rounds", file=sys.stderr)
    return found._replace(rounds=number)


def is_time_for(done: int, elapsed_seconds: float, seconds: float) -> bool:
    """Return whether one more round fits, when it takes as long as those that are done."""
    return not done or elapsed_seconds / done * (done + 1) <= seconds


def rotated(peers: Sequence[Any], by: int) -> list[Any]:
    """Return the peers in the order of a round."""
    start = by % max(len(peers), 1)
    return [*peers[start:], *peers[:start]]


class _Turn(NamedTuple):
    bench: Bench
    peer: Peer
    environment: Environment
    payload: str
    found: Measured

    def take(self) -> None:
        """Measure the peer's cases with the payload, each on an empty server."""
        peer = self.peer
        if peer.has_bulk:
            if peer.publishes:
                self._publish("published_1", by=1)
            self._handle(1, self._publish("published_100", by=BULK))
            if peer.has_concurrency:
                self._handle(16, self._publish("backlog", by=BULK))
        else:
            self._handle(1, self._publish("published_1", by=1))
            if peer.has_concurrency:
                self._handle(16, self._publish("backlog", by=1))

    def _publish(self, figure: str, *, by: int) -> int:
        """Publish and keep how fast that was; return the size of the backlog."""
        self.bench.client.flushall()
        bare = self._bare()
        count = max(self.bench.scaled(MESSAGES) // BULK, 5) * BULK
        told = self._try(figure, self._job("publish", count, by=by))
        if told and self.peer.publishes and figure in FIGURES:
            self._keep(figure, bare, told)
        return told["total"] if told else 0

    def _handle(self, concurrency: int, backlog: int) -> None:
        if not backlog:
            return
        bare, figure = self._bare(), f"handled_{concurrency}"
        count = backlog - min(LEFT_OVER, backlog // 10)
        told = self._try(figure, self._job("work", count, concurrency=concurrency))
        if told:
            self._keep(figure, bare, told)

    def _bare(self) -> float:
        return bare_round_trips(self.bench, smallest_call(self.bench))

    def _job(self, role: str, count: int, *, by: int = 1, concurrency: int = 1) -> Job:
        seconds = self.bench.scaled_seconds(SECONDS)
        return Job(
            role,
            self.bench.server.url(),
            self.payload,
            count,
            seconds=seconds,
            # A worker takes time until all its threads run, a compiler to see what is hot.
            warm_up_count=min(4000 if role == "work" else 500, count // 5),
            warm_up_seconds=seconds / 2,
            by=by,
            concurrency=concurrency,
            options=self.peer.options if role == "work" else (),
        )

    def _try(self, figure: str, job: Job) -> Mapping[str, Any] | None:
        """Run a program and return what it tells; note it when that fails."""
        try:
            return self._run(job)
        except ProgramFailed as error:
            print(f"  {self.peer.name}, {figure}: {error}", file=sys.stderr)
            failure = Failure(self.peer.name, self.payload, figure, str(error))
            self.found.failures.append(failure)
            return None

    def _run(self, job: Job) -> Mapping[str, Any]:
        with running(self.environment, job) as started:
            self.found.settings[self.peer.name] = started.hear(START_SECONDS)["settings"]
            told = started.hear(START_SECONDS + 3 * job.seconds)
        if job.role == "work" and not is_payload(told["payload"], job.payload):
            raise ProgramFailed(f"it handled something else: {told['payload']!r}")
        return told

    def _keep(self, figure: str, bare: float, told: Mapping[str, Any]) -> None:
        messages = told["messages"]
        reading = Reading(
            self.peer.name,
            self.payload,
            figure,
            messages / told["seconds"],
            told["cpu_seconds"] / messages * 1e6,
            messages,
            bare,
        )
        self.found.readings.append(reading)


def is_payload(handled: Any, payload: str) -> bool:
    """Return whether a handler was given what was published."""
    return bool(handled == program.SMALL if payload == "small" else handled in program.rows())
