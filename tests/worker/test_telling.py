"""Which signals does a worker send, when, and with which arguments?"""

from __future__ import annotations

import signal

import pytest

from tests.worker.stage import Stage
from tests.worker.traces import Trace

BOTH = pytest.mark.parametrize("suffix", ["", ".async"])
CONCURRENCIES = pytest.mark.parametrize("concurrency", [1, 2])


@BOTH
@CONCURRENCIES
def test_a_message_that_succeeds_is_started_then_succeeded(
    stage: Stage, suffix: str, concurrency: int
) -> None:
    message = stage.publish(f"note{suffix}")
    stage.work("--concurrency", concurrency)
    [succeeded] = stage.traces.wait_for("message_succeeded")

    events = [trace.event for trace in stage.traces.all() if "message_" in trace.event]
    assert events == ["message_started", "message_succeeded"]
    [started] = stage.traces.all("message_started")
    assert arguments(started) == ["delivery"]
    assert arguments(succeeded) == ["delivery", "duration_seconds"]
    assert started.id == succeeded.id == message
    assert started.sender == succeeded.sender == f"note{suffix}"
    assert 0 <= succeeded.duration_seconds < 20


@BOTH
@CONCURRENCIES
def test_a_message_that_fails_is_told_of_with_its_error_and_the_wait(
    stage: Stage, suffix: str, concurrency: int
) -> None:
    stage.configure(MAX_ATTEMPTS=2, BACKOFF=(0.05, 0.05))
    stage.publish(f"fail{suffix}")
    stage.work("--concurrency", concurrency)
    [halted] = stage.traces.wait_for("group_halted")

    first, second = stage.traces.all("message_failed")
    assert arguments(first) == ["delivery", "duration_seconds", "error", "retry_seconds"]
    assert first.error == "RuntimeError('out of paint')"
    assert 0.025 <= first.retry_seconds <= 0.05
    assert second.retry_seconds is None
    assert (first.attempt, second.attempt) == (1, 2)
    assert arguments(halted) == [
        "delivery",
        "error",
        "group",
        "message_id",
        "queue",
        "reason",
    ]
    assert halted.sender == f"fail{suffix}"
    assert halted.message_id == halted.id


def test_a_dead_letter_is_told_of_with_reason_and_error(stage: Stage) -> None:
    stage.configure(ON_EXHAUSTED="dead_letter")
    message = stage.publish("steer", error="reject")
    stage.work()

    [dead] = stage.traces.wait_for("message_dead")

    assert arguments(dead) == ["delivery", "error", "group", "message_id", "queue", "reason"]
    assert (dead.message_id, dead.group, dead.queue) == (message, "g", stage.queue)
    assert (dead.reason, dead.error) == ("no such order", "Reject: no such order")


def test_bytes_that_are_no_message_are_told_of_without_a_delivery(stage: Stage) -> None:
    stage.configure(ON_EXHAUSTED="dead_letter")
    stage.publish("gate")
    stage.client.rpush(stage.keys.fifo("g"), b"f" * 58 + b"?")
    stage.open_gate()
    stage.work()

    [dead] = stage.traces.wait_for("message_dead")

    assert arguments(dead) == ["error", "group", "message_id", "queue", "reason"]
    assert (dead.sender, dead.group, dead.reason) == ("None", "g", "corrupt")


def test_the_loss_of_a_lease_is_told_of_once(stage: Stage) -> None:
    stage.configure(VISIBILITY_TIMEOUT=1)
    stage.publish("mind_lease")
    stage.work("--concurrency", 2)
    [started] = stage.wait_for_started()
    stage.client.delete(stage.keys.lock("g"))
    stage.traces.wait_for("gave way", token=started.token)
    # The next delivery has begun, so the first one's settlement was refused by now.
    stage.wait_for_started(2)

    [lost] = stage.traces.all("lease_lost", token=started.token)
    assert arguments(lost) == ["delivery"]
    assert lost.sender == "mind_lease"


@CONCURRENCIES
def test_a_worker_process_tells_of_its_start_and_of_both_steps_of_its_end(
    stage: Stage, concurrency: int
) -> None:
    worker = stage.work("--concurrency", concurrency)
    [started] = stage.traces.wait_for("worker_started")
    [registered] = stage.snapshot().workers

    worker.signal()
    worker.wait()

    [stopping] = stage.traces.all("worker_stopping")
    [stopped] = stage.traces.all("worker_stopped")
    assert arguments(started) == arguments(stopped) == ["queues", "worker_id"]
    assert arguments(stopping) == ["queues", "reason", "worker_id"]
    assert {trace.worker_id for trace in (started, stopping, stopped)} == {registered.id}
    assert {trace.queues for trace in (started, stopping, stopped)} == {repr((stage.queue,))}
    assert {trace.sender for trace in (started, stopping, stopped)} == {"WorkerProcess"}
    assert started.at < stopping.at < stopped.at


@CONCURRENCIES
def test_a_worker_that_hands_back_tells_of_both_steps_of_its_end(
    stage: Stage, concurrency: int
) -> None:
    stage.publish("gate")
    worker = stage.work("--concurrency", concurrency)
    stage.wait_for_started()

    worker.signal()
    # Told at once, though the handler runs on.
    stage.traces.wait_for("worker_stopping")
    worker.signal(signal.SIGINT)
    worker.wait()

    assert len(stage.traces.all("worker_stopping")) == 1
    assert len(stage.traces.all("worker_stopped")) == 1


def test_messages_that_handlers_publish_are_told_of(stage: Stage) -> None:
    stage.publish("relay", n=7, to=stage.queue)
    stage.work()
    [note] = stage.wait_for_ended(topic="note")

    [published] = stage.traces.all("message_published")

    assert arguments(published) == ["group", "message_id", "queue", "topic"]
    assert (published.message_id, published.topic) == (note.id, "note")


def test_a_receiver_that_raises_disturbs_neither_message_nor_worker(stage: Stage) -> None:
    stage.add_app("rude", RUDE_RECEIVERS)
    stage.publish_numbered("note", ["g"], 2)
    stage.publish_numbered("note.async", ["h"], 2)
    worker = stage.work("--concurrency", 2)

    ended = stage.wait_for_ended(4)
    worker.signal()

    assert worker.wait() == 0
    assert {trace.attempt for trace in ended} == {1}
    assert "a receiver of a signal raised an error" in worker.log
    assert stage.backlog() == 0


RUDE_RECEIVERS = """
from groupqueue import signals

def refuse(**_):
    raise ValueError("not interested")

for name in (
    "message_started", "message_succeeded", "worker_started", "worker_stopping", "worker_stopped"
):
    getattr(signals, name).connect(refuse)
"""


def arguments(trace: Trace) -> list[str]:
    """The names of the arguments that the receiver was given."""
    return sorted(trace.details["arguments"])
