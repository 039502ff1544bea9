"""How fast are whole workers: messages per second, from idle to handler, commands when idle?

Workers run as users run them, `manage.py run_group_workers`, with their own processes.
Their handlers note when each message came (benchmarks/handlers.py), so that neither
the start nor the end of a process counts.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import groupqueue
from benchmarks.figures import (
    GROUPS,
    MESSAGES_PER_SECOND,
    MILLISECONDS,
    PAYLOAD,
    Bench,
    Figure,
    Reading,
    publish_call,
    turn_call,
)
from benchmarks.handlers import NOTES_KEY, NOTHING, WAKE, notes_from
from benchmarks.memory import resident_bytes
from benchmarks.report import Comparison
from groupqueue import Outgoing, get_queue

MESSAGES_BY_WORKER = {(1, 1): 10_000, (1, 16): 20_000, (2, 16): 40_000}
WAKE_SAMPLES = 200
IDLE_SECONDS = 6.0
LONGEST_RUN_SECONDS = 90.0
STOP_SECONDS = 20.0


def figures() -> list[Figure]:
    """Return this module's figures."""
    return [
        *(
            Figure(
                worker_name(processes, concurrency),
                partial(drain, processes, concurrency),
                partial(turn_call, concurrency),
            )
            for processes, concurrency in MESSAGES_BY_WORKER
        ),
        Figure("idle_worker", idle_worker, partial(publish_call, 1)),
    ]


def worker_name(processes: int, concurrency: int) -> str:
    """Return the name of a worker's figure."""
    plural = "es" if processes > 1 else ""
    return f"worker_{processes}_process{plural}_concurrency_{concurrency}"


SECOND_PROCESS = Comparison("two_processes_to_one", worker_name(2, 16), worker_name(1, 16))


def drain(processes: int, concurrency: int, bench: Bench) -> Sequence[Reading]:
    """Messages per second from the first to the last handler, all processes running."""
    count = bench.scaled(MESSAGES_BY_WORKER[processes, concurrency])
    groupqueue.publish_many(
        Outgoing(NOTHING, PAYLOAD, group=f"group-{number % GROUPS:07d}") for number in range(count)
    )
    bench.meter.reset()
    options = ("--burst", f"--processes={processes}", f"--concurrency={concurrency}")
    with _worker(*options) as worker:
        worker.wait(LONGEST_RUN_SECONDS)
    cost = bench.meter.read()
    moments = _notes(bench, count)
    name = worker_name(processes, concurrency)
    return [Reading(name, _rate(moments), MESSAGES_PER_SECOND, cost, count)]


def idle_worker(bench: Bench) -> Sequence[Reading]:
    """From publish to handler on a worker that waits, and what it sends meanwhile."""
    count = bench.scaled(WAKE_SAMPLES)
    warm_up = 10
    with _worker("--concurrency=1") as worker:
        _wait_for(bench, "workers", 1, worker)
        for _ in range(warm_up + count):
            time.sleep(random.uniform(0.005, 0.015))  # noqa: S311
            groupqueue.publish(WAKE, {"sent_ns": time.monotonic_ns()}, group="a")
        _wait_for(bench, "acked", warm_up + count, worker)
        bench.meter.reset()
        started = time.monotonic()
        time.sleep(bench.scaled_seconds(IDLE_SECONDS))
        commands = bench.meter.read().sent / (time.monotonic() - started)
    (waits_ns,) = _notes(bench, warm_up + count)
    waits_ms = sorted(nanoseconds / 1e6 for nanoseconds in waits_ns[warm_up:])
    return [
        Reading("wake_up_p50", statistics.median(waits_ms), MILLISECONDS),
        Reading("wake_up_p99", waits_ms[int(len(waits_ms) * 0.99)], MILLISECONDS),
        Reading("idle_worker_commands", commands, "commands/s"),
    ]


def drain_watched(bench: Bench, count: int, *, warm_up: int) -> tuple[int, int]:
    """Drain a backlog; return the worker's bytes after the first messages and after all."""
    with _worker("--concurrency=16", "--batch=32") as worker:
        _wait_for(bench, "workers", 1, worker)
        _wait_for(bench, "acked", warm_up, worker)
        [process] = get_queue("default").snapshot().workers
        pid = int(process.fields["pid"])
        warm = resident_bytes(pid)
        _wait_for(bench, "acked", count, worker)
        return warm, resident_bytes(pid)


@contextlib.contextmanager
def _worker(*options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker; on leaving it is told to drain, if it has not ended by itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "django", "run_group_workers", "--verbosity=0", *options],
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "benchmarks.settings"},
        stdin=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # its children notice and leave
            process.wait()
    if process.returncode:
        raise RuntimeError(f"the worker ended with exit code {process.returncode}")


def _wait_for(bench: Bench, what: str, wanted: int, worker: subprocess.Popen[bytes]) -> None:
    """Return once so many workers are registered, or so many messages are acked."""
    prefix, client = bench.transport.prefix, bench.client
    seen, deadline = 0, time.monotonic() + LONGEST_RUN_SECONDS
    while True:
        before = seen
        if what == "workers":
            seen = client.zcard(f"{prefix}:workers")
        else:
            seen = int(client.hget(f"{prefix}:stats", what) or 0)
        if seen >= wanted:
            return
        if seen > before:  # a million messages may take longer
            deadline = time.monotonic() + LONGEST_RUN_SECONDS
        if worker.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the worker got to {seen} of {wanted} {what}")
        time.sleep(0.02)


def _notes(bench: Bench, count: int) -> list[array[int]]:
    """Return what each process noted that had messages."""
    rows: list[Any] = bench.client.lrange(NOTES_KEY, 0, -1)
    notes = [note for note in notes_from(rows) if note]
    noted = sum(len(note) for note in notes)
    if noted != count:
        raise RuntimeError(f"the worker handled {noted} messages; {count} were published")
    return notes


def _rate(moments_ns: list[array[int]]) -> float:
    """Return the messages per second while all processes were handling."""
    started = max(note[0] for note in moments_ns)
    ended = min(note[-1] for note in moments_ns)
    if started >= ended:  # too few messages for all to get some at once
        started, ended = min(note[0] for note in moments_ns), max(note[-1] for note in moments_ns)
    handled = sum(started < moment <= ended for note in moments_ns for moment in note)
    return handled / max(ended - started, 1) * 1e9
