"""What do all peers' programs have in common? It needs Python and nothing else.

A program gets its job in the environment, so that processes which it starts know it too,
and tells what it found in a line of JSON on stdout. When its stdin ends, so does it:
nothing is left when the runner is killed.
"""

from __future__ import annotations

import csv
import functools
import gzip
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

JOB_VARIABLE = "GROUPQUEUE_PEERS_JOB"
FLIGHTS = Path(__file__).parents[2] / "demo" / "data" / "flights-2013-01.csv.gz"
SMALL = "13 bytes long"
GROUPS = 1000


class Job(NamedTuple):
    """What a program is to do."""

    role: str
    """`publish` or `work`."""
    url: str
    payload: str
    """`flights`, a row as a dictionary, or `small`, a string of 13 bytes."""
    count: int
    """Messages to publish, or to handle, at most."""
    seconds: float
    """How long to measure at most, after the warm-up."""
    warm_up_count: int
    warm_up_seconds: float
    """The warm-up is over after so many messages or so much time, whichever comes first."""
    by: int = 1
    """How many messages are published at once."""
    concurrency: int = 1
    options: tuple[tuple[str, int], ...] = ()
    """What a variant of the peer sets."""

    def messages(self) -> Iterator[tuple[str, Any]]:
        """Return all groups and payloads; the groups come in turn."""
        payloads = rows() if self.payload == "flights" else itertools.repeat(SMALL)
        for number, payload in zip(range(self.count), payloads, strict=False):
            yield f"group-{number % GROUPS:04d}", payload


class Mark(NamedTuple):
    """A moment of the measurement."""

    messages: int
    clock_ns: int
    cpu_ns: int

    @classmethod
    def now(cls, messages: int) -> Mark:
        """Return this moment: the processor time is that of all threads of the process."""
        return cls(messages, time.monotonic_ns(), time.process_time_ns())


class Window:
    """Counts messages; it measures from the end of the warm-up on."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._count = 0
        self._first_ns = 0
        self._start: Mark | None = None
        self.is_over = False

    def note(self, messages: int = 1) -> dict[str, Any] | None:
        """Count messages that are done; return what was measured, once, when it is over."""
        with self._lock:
            self._count += messages
            if self.is_over:
                return None
            now_ns = time.monotonic_ns()
            if self._start is None:
                self._warm_up(now_ns)
            elif self._is_enough(now_ns, self._start):
                self.is_over = True
                return measured(self._start, Mark.now(self._count))
            return None

    def _warm_up(self, now_ns: int) -> None:
        self._first_ns = self._first_ns or now_ns
        warm_ns = now_ns - self._first_ns
        if self._count >= self._job.warm_up_count or warm_ns >= self._job.warm_up_seconds * 1e9:
            self._start = Mark.now(self._count)

    def _is_enough(self, now_ns: int, start: Mark) -> bool:
        return self._count >= self._job.count or now_ns - start.clock_ns >= self._job.seconds * 1e9


def measured(start: Mark, end: Mark) -> dict[str, Any]:
    """Return what happened between two moments."""
    return {
        "messages": end.messages - start.messages,
        "seconds": (end.clock_ns - start.clock_ns) / 1e9,
        "cpu_seconds": (end.cpu_ns - start.cpu_ns) / 1e9,
        "total": end.messages,
    }


@functools.cache
def job() -> Job:
    """Return what this process was started for."""
    return Job(**json.loads(os.environ[JOB_VARIABLE]))


@functools.cache
def _window() -> Window:
    return Window(job())


@functools.cache
def rows() -> list[dict[str, str]]:
    """Return the flights: each row is a payload."""
    with gzip.open(FLIGHTS, "rt", encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def tell(**found: Any) -> None:
    """Write a line to the runner: one write, whatever else the process prints."""
    os.write(1, f"{json.dumps(found)}\n".encode())


# What publishers do ---------------------------------------------------------------------


def one_by_one() -> Iterator[tuple[str, Any]]:
    """Return groups and payloads to publish, until it took long enough; then tell."""
    for chunk in _chunks(1):
        yield chunk[0]


def at_once() -> Iterator[list[tuple[str, Any]]]:
    """Return lists of groups and payloads to publish at once, likewise."""
    return _chunks(job().by)


def _chunks(size: int) -> Iterator[list[tuple[str, Any]]]:
    window, messages = Window(job()), job().messages()
    while chunk := list(itertools.islice(messages, size)):
        yield chunk
        # The publisher asks for more: these are published.
        if found := window.note(len(chunk)):
            tell(**found)
            return
    raise RuntimeError("too few messages to measure with")


# What workers do ------------------------------------------------------------------------


def handle(payload: Any) -> None:
    """Do nothing with a message but count it: every peer's handler."""
    if found := _window().note():
        tell(**found, payload=payload)


def run(
    *,
    publish: Callable[[], Any],
    work: Callable[[], Any],
    settings: tuple[str, ...],
) -> None:
    """Do this process's job; first tell which settings the peer was given."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    tell(settings=settings)
    if job().role == "publish":
        publish()
    else:
        work()


def _end_with_stdin() -> None:
    # Not through sys.stdin: its lock would be held when the interpreter shuts down.
    while os.read(0, 1024):
        pass
    os._exit(1)
