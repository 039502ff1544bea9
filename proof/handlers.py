"""How do handlers treat messages in a proof? As each message asks for, so and so often.

Each writes down that it begins, and how it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NoReturn

from groupqueue import Delivery, Reject, Retry, handler
from groupqueue.exceptions import Snooze
from proof.plan import Plan, current_plan
from proof.records import Recorder
from proof.settings import HANDLER_TIMEOUT_SECONDS, VISIBILITY_SECONDS

SLOW_SECONDS = 0.1
OVERSLEPT_SECONDS = 1.7 * VISIBILITY_SECONDS
HUNG_SECONDS = 20 * HANDLER_TIMEOUT_SECONDS


class HandlerBroke(Exception):
    """What a handler raises whose message asks for it."""


@handler("proof.sync")
def handle(delivery: Delivery) -> None:
    """Handle one message in a thread."""
    with _noted([delivery]):
        _treat(delivery)


@handler("proof.async")
async def handle_async(delivery: Delivery) -> None:
    """Handle one message in the event loop."""
    with _noted([delivery]):
        await asyncio.sleep(_badly(delivery))


@handler("proof.each", batch=10)
def handle_each(deliveries: list[Delivery]) -> None:
    """Handle several messages, each acknowledged by itself."""
    for delivery in deliveries:
        with _noted([delivery]):
            _treat(delivery)
        delivery.acknowledge()


@handler("proof.all", batch=5)
def handle_all(deliveries: list[Delivery]) -> None:
    """Handle several messages, all or none."""
    with _noted(deliveries):
        for delivery in deliveries:
            _treat(delivery)


@handler("proof.aside", on_exhausted="dead_letter")
def handle_or_set_aside(delivery: Delivery) -> None:
    """Handle one message that does not stop its group when it is exhausted."""
    with _noted([delivery]):
        _treat(delivery)


@handler("proof.doom", on_exhausted="dead_letter_group")
async def handle_or_doom(delivery: Delivery) -> None:
    """Handle one message that takes those behind it along when it is exhausted."""
    with _noted([delivery]):
        await asyncio.sleep(_badly(delivery))


@contextlib.contextmanager
def _noted(deliveries: Sequence[Delivery]) -> Iterator[None]:
    for delivery in deliveries:
        _note(delivery, "invoke")
    try:
        yield
    except Exception:
        for delivery in deliveries:
            _note(delivery, "fail")
        raise
    for delivery in deliveries:
        _note(delivery, "ok")


def _note(delivery: Delivery, phase: str) -> None:
    _recorder().write(
        "handle",
        phase=phase,  # type: ignore[arg-type]
        id=delivery.id,
        group=delivery.group,
        queue=delivery.queue,
        token=delivery.fencing_token,
        attempt=delivery.attempt,
    )


def _treat(delivery: Delivery) -> None:
    seconds = _badly(delivery)
    if seconds:
        time.sleep(seconds)


def _badly(delivery: Delivery) -> float:
    """Treat a message as it asks for; return for how many seconds its handler is to sleep."""
    fate, times = delivery.payload["fate"], delivery.payload["times"]
    if not times or _times_before(delivery.id) >= times:
        return 0.0
    _recorder().write("fate", phase="invoke", fate=fate, id=delivery.id, group=delivery.group)
    match fate:
        case "raise" | "exhaust":
            raise HandlerBroke(f"message {delivery.id} asks for it")
        case "retry":
            raise Retry(delay=0.2)
        case "snooze":
            raise Snooze(0.3)
        case "reject":
            raise Reject("asked for")
        case "crash" | "poison":
            _crash()
    return {"slow": SLOW_SECONDS, "oversleep": OVERSLEPT_SECONDS, "hang": HUNG_SECONDS}[fate]


def _crash() -> NoReturn:
    os._exit(9)


def _times_before(message_id: str) -> int:
    """Return how often a message was treated badly before, and count it once more.

    In a file, since processes die of it: one byte each.
    """
    path = _plan().attempts / message_id
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, b".")
        return os.fstat(descriptor).st_size - 1
    finally:
        os.close(descriptor)


@cache
def _plan() -> Plan:
    plan = current_plan()
    if plan is None:
        raise RuntimeError("these handlers are for the workers of a proof alone")
    return plan


@cache
def _recorder() -> Recorder:
    return Recorder(_plan().records / f"worker-{os.getpid()}-{time.time_ns()}.jsonl")
