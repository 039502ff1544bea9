"""What do the benchmark's workers do with a message? Nothing, but most note when it came."""

from __future__ import annotations

import time
from array import array
from typing import Any

from django.dispatch import receiver

from benchmarks.peers import program
from groupqueue import Delivery, handler, signals
from groupqueue.transport.connections import get_transport

NOTHING, WAKE, PEERS = "benchmark.nothing", "benchmark.wake", "benchmark.peers"
FORGOTTEN = "benchmark.forgotten"
# LIST: what each worker process has noted, 8 bytes per message.
NOTES_KEY = "benchmark:notes"

_notes = array("q")


@handler(NOTHING)
def nothing(delivery: Delivery) -> None:  # noqa: ARG001
    """Note the moment."""
    _notes.append(time.monotonic_ns())


@handler(WAKE)
def wake(delivery: Delivery) -> None:
    """Note how long it took from just before the publish to here.

    Linux and macOS have one monotonic clock for all processes of a machine.
    """
    _notes.append(time.monotonic_ns() - delivery.payload["sent_ns"])


@handler(FORGOTTEN)
def forgotten(delivery: Delivery) -> None:
    """Do not even note the moment: the process is not to grow by it."""


@handler(PEERS)
def as_the_peers_do(delivery: Delivery) -> None:
    """Do what the handlers of other queues do when they are measured beside this one."""
    program.handle(delivery.payload)


@receiver(signals.worker_stopped)
def hand_in_notes(**_: Any) -> None:
    """Leave the notes where the benchmark finds them, once the work is done."""
    get_transport().client.rpush(NOTES_KEY, _notes.tobytes())


def notes_from(rows: list[bytes]) -> list[array[int]]:
    """Return what each process noted."""
    return [array("q", row) for row in rows]
