"""How do the tests' batch handlers behave? Each message says what is to be done with it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable

from django.db import transaction

from groupqueue import Delivery, handler
from groupqueue.exceptions import Snooze
from tests.servers import wait_until
from tests.worker.project.handlers import (
    PATIENCE_SECONDS,
    at_gate,
    fails_now,
    query,
    steering,
    traces,
    until,
    write_note,
)


def tell_called(deliveries: list[Delivery]) -> None:
    """Leave a trace of the call, and one of each message."""
    first = deliveries[0]
    numbers = [delivery.payload.get("n") for delivery in deliveries]
    assert {delivery.group for delivery in deliveries} == {first.group}
    assert {delivery.fencing_token for delivery in deliveries} == {first.fencing_token}
    traces.leave("called", first, numbers=numbers)
    for delivery in deliveries:
        traces.leave("started", delivery)


def tell_ended(deliveries: Iterable[Delivery]) -> None:
    """Leave a trace of each message."""
    for delivery in deliveries:
        traces.leave("ended", delivery, lease_lost=delivery.lease_lost)


def do(delivery: Delivery) -> None:
    """Do what the message says, but for waiting."""
    orders = delivery.payload
    if orders.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if "error" in orders and fails_now(delivery):
        if orders["error"] == "snooze":
            raise Snooze(0)
        raise steering(orders)
    if orders.get("acknowledge"):
        delivery.acknowledge()
    if orders.get("late"):
        raise RuntimeError("too late")


def take(deliveries: list[Delivery]) -> None:
    """Do what each message says, in order; wait at the gate of those that name one."""
    tell_called(deliveries)
    for delivery in deliveries:
        if "gate" in delivery.payload:
            wait_until(lambda one=delivery: at_gate(one), "the gate", seconds=PATIENCE_SECONDS)
        do(delivery)
    tell_ended(deliveries)


@handler("batch", batch=3)
def batch(deliveries: list[Delivery]) -> None:
    """Take up to three."""
    take(deliveries)


@handler("batch.other", batch=2)
def batch_other(deliveries: list[Delivery]) -> None:
    """Take up to two."""
    take(deliveries)


@handler("batch.single", batch=1)
def batch_single(deliveries: list[Delivery]) -> None:
    """Take a list of one."""
    take(deliveries)


@handler("batch.async", batch=3)
async def batch_async(deliveries: list[Delivery]) -> None:
    """Take up to three on the event loop."""
    tell_called(deliveries)
    for delivery in deliveries:
        if "gate" in delivery.payload:
            await until(lambda one=delivery: at_gate(one))
        do(delivery)
    tell_ended(deliveries)


@handler("batch.impatient", batch=3, max_attempts=1, on_exhausted="dead_letter")
def batch_impatient(deliveries: list[Delivery]) -> None:
    """Take up to three, and each failure for the last."""
    take(deliveries)


@handler("batch.wary", batch=3, max_crashes=1)
def batch_wary(deliveries: list[Delivery]) -> None:
    """Take up to three, none of which may ever take its worker down."""
    take(deliveries)


@handler("batch.overrun", batch=3, timeout=0.3)
def batch_overrun(deliveries: list[Delivery]) -> None:
    """Run out of time, but not alone."""
    tell_called(deliveries)
    if len(deliveries) > 1:
        time.sleep(PATIENCE_SECONDS)
    tell_ended(deliveries)


@handler("batch.leave_open", batch=3)
def batch_leave_open(deliveries: list[Delivery]) -> None:
    """Acknowledge what is done in a transaction that is left open, the first time."""
    tell_called(deliveries)
    if deliveries[0].attempt == 1:
        transaction.atomic().__enter__()
    for delivery in deliveries:
        write_note()
        delivery.acknowledge()
        if delivery.payload.get("error") and delivery.attempt == 1:
            raise RuntimeError("out of paint")
    traces.leave("ended", deliveries[0], rows=query("SELECT COUNT(*) FROM notes"))
