"""Which signals does a worker send, when, and with which arguments?"""

from __future__ import annotations

import signal

import pytest

from tests.worker.stage import Stage
from tests.worker.test_leases import hold_for
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


@pytest.mark.parametrize("signal", ["message_failed", "group_halted"])
def test_a_receiver_that_would_end_the_program_costs_no_message(stage: Stage, signal: str) -> None:
    stage.configure(VISIBILITY_TIMEOUT=3600, MAX_ATTEMPTS=1)
    stage.add_app("final", EXITING_RECEIVER.replace("SIGNAL", signal))
    stage.publish("fail", group="failing")
    stage.publish("note", group="other")
    worker = stage.work()

    [ended] = stage.wait_for_ended()

    assert (ended.attempt, ended.crashes) == (1, 0)
    stage.traces.wait_for("group_halted")
    # Where the pump itself tells of something, its process is replaced.
    is_replaced = ended.pid != stage.traces.all("started")[0].pid
    assert is_replaced or signal == "message_failed"
    worker.signal()
    assert worker.wait() == 0


EXITING_RECEIVER = """
from groupqueue import signals

def leave(**_):
    raise SystemExit(0)

signals.SIGNAL.connect(leave)
"""


def test_a_failure_is_logged_with_its_queue_and_what_comes_next(stage: Stage) -> None:
    stage.configure(MAX_ATTEMPTS=2, BACKOFF=(0.05, 0.05))
    message = stage.publish("fail")
    worker = stage.work()
    stage.traces.wait_for("group_halted")

    worker.wait_for_logged("; given up")

    first, second = [line for line in worker.log.splitlines() if "message failed: " in line]
    for line, attempt in ((first, 1), (second, 2)):
        assert f"{message} in group 'g', attempt {attempt}> of queue {stage.queue!r}; " in line
    assert first.endswith((" next attempt in 0.0 s", " next attempt in 0.1 s"))


def test_a_dropped_message_is_logged(stage: Stage) -> None:
    message = stage.publish("note")
    stage.client.lset(
        stage.keys.fifo("g"), 0, expired(stage.client.lindex(stage.keys.fifo("g"), 0))
    )
    worker = stage.work()

    worker.wait_for_logged(f"message {message} of group 'g' in queue {stage.queue!r} was dropped")


def expired(element: bytes) -> bytes:
    """The stored message, as if it had been good for a millisecond."""
    return element[:45] + element[32:45] + element[58:]


@pytest.mark.parametrize("signal_name", ["lease_lost", "message_failed"])
def test_a_receiver_that_hangs_keeps_no_lease_from_being_renewed(
    stage: Stage, signal_name: str
) -> None:
    stage.configure(VISIBILITY_TIMEOUT=1)
    stage.add_app("hanging", HANGING_RECEIVER.format(signal_name=signal_name))
    stage.publish("gate", "patient")
    stage.work("--concurrency", 2)
    [patient] = stage.wait_for_started(group="patient")
    if signal_name == "lease_lost":
        stage.publish("mind_lease", "other")
        stage.wait_for_started(group="other")
        stage.client.delete(stage.keys.lock("other"))
    else:
        stage.publish("overrun", "other", times=1)
    stage.traces.wait_for("hanging")

    hold_for(stage, patient.token, group="patient", leases=3, visibility=1)
    stage.open_gate()

    [ended] = stage.wait_for_ended(group="patient")
    assert not ended.lease_lost
    stage.open_gate("receiver")


HANGING_RECEIVER = """
from pathlib import Path

from groupqueue import signals
from tests.servers import wait_until
from tests.worker.project.handlers import PATIENCE_SECONDS, PLAN, traces

def hang(**_):
    traces.leave("hanging")
    gates = [Path(PLAN.directory, "gate-" + name) for name in ("receiver", "every")]
    wait_until(lambda: any(gate.exists() for gate in gates), "the gate", seconds=PATIENCE_SECONDS)

signals.{signal_name}.connect(hang)
"""


def arguments(trace: Trace) -> list[str]:
    """The names of the arguments that the receiver was given."""
    return sorted(trace.details["arguments"])
