"""What did the handlers and receivers do, in which process, and when?

Each trace is a line of JSON in one file that all processes append to. A line is
written by a single call, so that no two mingle, and is there even when its writer is
killed the moment after.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from groupqueue import Delivery
from tests.servers import wait_until


class Trace(NamedTuple):
    """One thing that happened."""

    event: str
    at: float
    """By the monotonic clock, which all processes of the machine share."""
    pid: int
    thread: int
    details: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.details[name]
        except KeyError:
            raise AttributeError(f"{self} says nothing of {name!r}") from None


class Traces:
    """The traces in one directory: `leave` in a worker's process, the rest in the test's."""

    def __init__(self, directory: str | Path) -> None:
        self._path = Path(directory) / "traces.jsonl"
        self._file: int | None = None
        self._read: list[Trace] = []
        self._offset = 0
        self._lock = threading.Lock()

    def leave(self, event: str, delivery: Delivery | None = None, **details: Any) -> None:
        """Append a trace."""
        if delivery is not None:
            details |= {
                "id": delivery.id,
                "group": delivery.group,
                "topic": delivery.topic,
                "attempt": delivery.attempt,
                "deliveries": delivery.deliveries,
                "crashes": delivery.crashes,
                "token": delivery.fencing_token,
                "n": delivery.payload.get("n") if isinstance(delivery.payload, dict) else None,
            }
        with self._lock:
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        trace = [event, time.monotonic(), os.getpid(), threading.get_ident(), details]
        os.write(self._file, json.dumps(trace).encode() + b"\n")

    def all(self, event: str | None = None, **details: Any) -> list[Trace]:
        """Return the traces so far, in the order written, which match."""
        with self._lock:
            self._catch_up()
            return [
                trace
                for trace in self._read
                if event in (None, trace.event)
                and all(trace.details.get(name) == value for name, value in details.items())
            ]

    def wait_for(
        self, event: str, count: int = 1, *, seconds: float = 20.0, **details: Any
    ) -> list[Trace]:
        """Return the matching traces once there are at least `count`."""
        wait_until(
            lambda: len(self.all(event, **details)) >= count,
            f"{event} {details or ''}, {count} times",
            seconds=seconds,
        )
        return self.all(event, **details)

    def _catch_up(self) -> None:
        """Read the lines that have come since the last time."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            whole, _, _ = file.read().rpartition(b"\n")
        if whole:
            self._offset += len(whole) + 1
            self._read += [Trace(*json.loads(line)) for line in whole.splitlines()]


def by_group(traces: Iterable[Trace]) -> dict[str, list[Trace]]:
    """Sort traces into their groups, each in the order written."""
    groups: dict[str, list[Trace]] = {}
    for trace in traces:
        groups.setdefault(trace.group, []).append(trace)
    return groups


def without_repeats(numbers: Iterable[int]) -> list[int]:
    """Drop what equals its predecessor: a message that was delivered again in its place."""
    kept: list[int] = []
    for number in numbers:
        if not kept or kept[-1] != number:
            kept.append(number)
    return kept
