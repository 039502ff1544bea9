"""What is broken, when, and for how long? The seed decides.

Every fault comes once before any comes again, so that a run of a minute has all of them.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import redis

from proof.records import Recorder
from proof.soak.proxy import Direction
from proof.soak.stage import Stage
from tests.servers import guardian

# Between two faults, if there is time.
APART_SECONDS = 2.0
SHORTEST_APART_SECONDS = 1.0
QUIET_SECONDS = 2.0
# What a server may take to read the data of an hour.
LOADING_SECONDS = 120.0
AGAIN_SECONDS = 0.5
PATIENCE_SECONDS = 30.0


class NotPossible(Exception):
    """There is nothing that the fault could hurt just now."""


Fault = Callable[[Stage, random.Random, float], AbstractContextManager[dict[str, Any]]]
"""Begins at `with`, which tells what it hurts, and ends with it. It may last so many seconds."""


class Kind(NamedTuple):
    """One fault."""

    begin: Fault
    seconds: tuple[float, float] = (0, 0)
    """How long it lasts, at least and at most."""


class Step(NamedTuple):
    """A fault at its moment."""

    at_seconds: float
    fault: str
    lasts_seconds: float


def plan(seed: int, seconds: float, faults: Sequence[str]) -> list[Step]:
    """Return what is to be broken in so many seconds; raises ValueError if they are too few."""
    chance = random.Random(f"{seed}/nemesis")  # noqa: S311 - it is to be foreseen
    apart = min(APART_SECONDS, (seconds - QUIET_SECONDS) / max(len(faults), 1))
    if apart < SHORTEST_APART_SECONDS:
        needed = QUIET_SECONDS + len(faults) * SHORTEST_APART_SECONDS
        raise ValueError(f"{len(faults)} faults need {needed:.0f} seconds, not {seconds:.0f}")
    steps, count = [], int((seconds - QUIET_SECONDS) / apart + 1e-9)
    order: list[str] = []
    for number in range(count):
        if not order:
            order = chance.sample(faults, len(faults))
        fault = order.pop()
        at = QUIET_SECONDS + (number + chance.uniform(0, 0.5)) * apart
        steps.append(Step(at, fault, chance.uniform(*FAULTS[fault].seconds)))
    return steps


@dataclass
class Nemesis:
    """Breaks what a plan says, and writes it down."""

    stage: Stage
    steps: Sequence[Step]
    seed: int
    recorder: Recorder

    def __post_init__(self) -> None:
        self.fired: Counter[str] = Counter()
        self._chance = random.Random(f"{self.seed}/targets")  # noqa: S311

    def run(self, seconds: float, is_over: threading.Event) -> None:
        """Break things for so long, or until it is over; then end what still lasts.

        A little longer, if a fault has found nothing to hurt so far.
        """
        started = time.monotonic()
        number = itertools.count()
        # Moments at which a fault begins or ends; the number keeps the order of equal ones.
        due: list[tuple[float, int, Step | ExitStack]] = [
            (step.at_seconds, next(number), step) for step in self.steps
        ]
        heapq.heapify(due)
        lasting: set[ExitStack] = set()
        try:
            while due and due[0][0] < seconds + (PATIENCE_SECONDS if self._owes() else 0):
                at, _, what = heapq.heappop(due)
                if is_over.wait(max(0.0, started + at - time.monotonic())):
                    return
                if isinstance(what, ExitStack):
                    lasting.discard(what)
                    what.close()
                    continue
                now = time.monotonic() - started
                stack = self._begin(what)
                if stack is None:
                    again = what._replace(at_seconds=now + AGAIN_SECONDS)
                    heapq.heappush(due, (again.at_seconds, next(number), again))
                elif what.lasts_seconds:
                    lasting.add(stack)
                    heapq.heappush(due, (now + what.lasts_seconds, next(number), stack))
                else:
                    stack.close()
            is_over.wait(max(0.0, started + seconds - time.monotonic()))
        finally:
            with ExitStack() as ends:
                for stack in lasting:
                    ends.push(stack)

    def _owes(self) -> bool:
        """Say whether a fault of the plan has not happened yet."""
        return any(not self.fired[step.fault] for step in self.steps)

    def _begin(self, step: Step) -> ExitStack | None:
        """Begin a fault; return what ends it, or None when there is nothing to hurt."""
        with ExitStack() as undo:
            self._note("invoke", step)
            begin = FAULTS[step.fault].begin
            try:
                told = undo.enter_context(begin(self.stage, self._chance, step.lasts_seconds))
            except NotPossible as error:
                self._note("fail", step, why=str(error))
                return None
            self.fired[step.fault] += 1
            self._note("ok", step, **told)
            return undo.pop_all()
        return None

    def _note(self, phase: Any, step: Step, **more: Any) -> None:
        self.recorder.write(
            "nemesis", phase=phase, fault=step.fault, seconds=round(step.lasts_seconds, 2), **more
        )
        if phase == "ok" and "killed" in more:
            self.recorder.write("kill", phase="ok", killed=more["killed"])


# The faults ---------------------------------------------------------------------------------


@contextlib.contextmanager
def _signalled_worker(stage: Stage, chance: random.Random, number: signal.Signals) -> Iterator[Any]:
    """Send one of the worker processes a signal; nobody waits for it meanwhile."""
    with stage.troupe.worker_processes() as processes:
        if not processes:
            raise NotPossible("no worker process is running")
        target = chance.choice(processes)
        if not target.signal(number):
            raise NotPossible("it has just ended")
        yield target


@contextlib.contextmanager
def _kill_worker(stage: Stage, chance: random.Random, _: float) -> Iterator[dict[str, Any]]:
    with _signalled_worker(stage, chance, signal.SIGKILL) as target:
        yield {"killed": target.pid}


@contextlib.contextmanager
def _kill_supervisor(stage: Stage, chance: random.Random, _: float) -> Iterator[dict[str, Any]]:
    target = chance.choice(stage.troupe.of("worker"))
    pid = target.pid
    if pid is None or not stage.troupe.kill_supervisor(target):
        raise NotPossible("it does not run")
    yield {"killed": pid, "target": target.name}


@contextlib.contextmanager
def _kill_publisher(stage: Stage, chance: random.Random, _: float) -> Iterator[dict[str, Any]]:
    target = chance.choice(stage.troupe.of("publisher"))
    pid = target.pid
    if pid is None or not target.signal(signal.SIGKILL):
        raise NotPossible("it does not run")
    yield {"killed": pid, "target": target.name}


@contextlib.contextmanager
def _stop_worker(stage: Stage, chance: random.Random, _: float) -> Iterator[dict[str, Any]]:
    """Stop a worker process for longer than its leases last."""
    with _signalled_worker(stage, chance, signal.SIGSTOP) as target:
        # Stopped, it would not notice that it is alone.
        guardian.watch(target.pid)
        try:
            yield {"target": target.pid}
        finally:
            target.signal(signal.SIGCONT)
            guardian.forget(target.pid)


@contextlib.contextmanager
def _cut(stage: Stage, *_: Any) -> Iterator[dict[str, Any]]:
    count = stage.proxy.cut()
    if not count:
        raise NotPossible("nobody is connected")
    yield {"connections": count}


@contextlib.contextmanager
def _delay(stage: Stage, chance: random.Random, _: float) -> Iterator[dict[str, Any]]:
    seconds = round(chance.uniform(0.02, 0.25), 3)
    stage.proxy.delay(seconds)
    try:
        yield {"delay_seconds": seconds, "connections": stage.proxy.connections}
    finally:
        stage.proxy.delay(0)


def _swallow(direction: Direction) -> Fault:
    @contextlib.contextmanager
    def swallow(stage: Stage, chance: random.Random, _: float) -> Iterator[dict[str, Any]]:
        late = chance.random() < 0.5
        if not stage.proxy.connections:
            raise NotPossible("nobody is connected")
        stage.proxy.swallow(direction)
        try:
            yield {"late": late}
        finally:
            stage.proxy.release(direction, late=late)

    return swallow


@contextlib.contextmanager
def _flush_scripts(stage: Stage, *_: Any) -> Iterator[dict[str, Any]]:
    stage.tell_server("SCRIPT", "FLUSH")
    yield {}


@contextlib.contextmanager
def _pause_clients(stage: Stage, chance: random.Random, seconds: float) -> Iterator[dict[str, Any]]:
    mode = chance.choice(("ALL", "WRITE"))
    stage.tell_server("CLIENT", "PAUSE", str(int(seconds * 1000)), mode)
    yield {"mode": mode}


@contextlib.contextmanager
def _kill_server(stage: Stage, chance: random.Random, _: float) -> Iterator[dict[str, Any]]:
    """Kill the server, and start it again on what it has written."""
    seconds = chance.uniform(0.1, 1.5)
    pid = stage.server.pid
    stage.server.kill()
    time.sleep(seconds)  # nothing else can be done to a server that is down
    stage.server.start(seconds=LOADING_SECONDS)
    yield {"killed": pid, "down_seconds": round(seconds, 2)}


@contextlib.contextmanager
def _fill_memory(stage: Stage, *_: Any) -> Iterator[dict[str, Any]]:
    stage.tell_server("CONFIG", "SET", "maxmemory", "1mb")
    try:
        yield {}
    finally:
        stage.tell_server("CONFIG", "SET", "maxmemory", "0")


@contextlib.contextmanager
def _fail_over(stage: Stage, chance: random.Random, _: float) -> Iterator[dict[str, Any]]:
    """Promote the replica when the primary is killed with writes that it has not sent on."""
    if not stage.has_something_to_lose:
        raise NotPossible("no publish was confirmed since the last one")
    try:
        yield stage.fail_over(unsent_seconds=chance.uniform(0.3, 1.2))
    except redis.RedisError as error:
        raise NotPossible(f"the replica is not ready: {error}") from error


FAULTS = {
    "kill_worker": Kind(_kill_worker),
    "kill_supervisor": Kind(_kill_supervisor),
    "kill_publisher": Kind(_kill_publisher),
    "stop_worker": Kind(_stop_worker, (3.5, 6)),
    "cut_connections": Kind(_cut),
    "delay_connections": Kind(_delay, (2, 4)),
    "black_hole_requests": Kind(_swallow("requests"), (1.5, 7)),
    "black_hole_replies": Kind(_swallow("replies"), (1.5, 7)),
    "flush_scripts": Kind(_flush_scripts),
    "pause_clients": Kind(_pause_clients, (0.5, 3)),
    "kill_server": Kind(_kill_server),
    "fill_memory": Kind(_fill_memory, (1.5, 4)),
    "failover": Kind(_fail_over),
}
EVERYDAY = tuple(name for name in FAULTS if name != "failover")
"""What loses nothing."""
