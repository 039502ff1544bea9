"""Does a worker handle scheduled messages in their moment, and tell of those that came too late?"""

from __future__ import annotations

import time
from typing import Any

import pytest

from groupqueue import Outgoing, get_queue, publish, publish_many
from groupqueue.queues import Queue
from tests.servers import wait_until
from tests.worker.stage import Stage
from tests.worker.test_idling import PATIENT, wait_until_idle

# The server's clock counts in whole milliseconds.
TICK_SECONDS = 0.002
LONG_SECONDS = 3600


@pytest.fixture
def idle_stage(stage: Stage) -> Stage:
    """A stage whose worker has handled a message and waits, looking for nothing by itself."""
    stage.plan.constants |= PATIENT
    send(stage, "first", n=0)
    stage.work("--concurrency", 2)
    stage.wait_for_ended(n=0)
    wait_until_idle(stage)
    return stage


def send(stage: Stage, group: str = "g", *, n: int, **options: Any) -> str:
    """Publish a numbered note with options; return its id."""
    return publish("note", {"n": n}, group=group, queue=stage.queue, on_commit=False, **options)


def queue_of(stage: Stage) -> Queue:
    """Return the operators' view of the stage's queue."""
    return get_queue(stage.queue)


def scheduled(stage: Stage) -> int:
    """How many messages are scheduled."""
    return queue_of(stage).scheduled().total


@pytest.mark.parametrize("hold", [False, True])
def test_an_idle_worker_handles_a_message_when_it_is_due(idle_stage: Stage, *, hold: bool) -> None:
    published_at = time.monotonic()
    identifier = send(idle_stage, n=1, delay=0.5, hold=hold)

    [started] = idle_stage.wait_for_started(n=1)

    assert started.id == identifier
    assert started.at >= published_at + 0.5 - TICK_SECONDS
    idle_stage.wait_until_drained()
    assert scheduled(idle_stage) == 0


def test_a_sooner_message_wakes_a_worker_that_waits_for_a_later_one(idle_stage: Stage) -> None:
    send(idle_stage, n=1, delay=LONG_SECONDS)
    wait_until_idle(idle_stage)

    send(idle_stage, n=2, delay=0.3)

    idle_stage.wait_for_ended(n=2)
    assert scheduled(idle_stage) == 1


def test_messages_are_handled_in_due_order(idle_stage: Stage) -> None:
    moments = {3: 0.6, 1: 0.2, 2: 0.4}
    messages = [Outgoing("note", {"n": n}, group="g", delay=moments[n]) for n in moments]
    publish_many(messages, queue=idle_stage.queue, on_commit=False)

    idle_stage.wait_for_ended(4)

    assert [trace.n for trace in idle_stage.traces.all("ended")] == [0, 1, 2, 3]


def test_a_message_behind_a_held_one_is_handled_after_it(idle_stage: Stage) -> None:
    send(idle_stage, n=1, delay=0.5, hold=True)
    send(idle_stage, n=2)
    send(idle_stage, "other", n=3)

    idle_stage.wait_for_ended(4)

    assert [trace.n for trace in idle_stage.traces.all("ended", group="g")] == [1, 2]


def test_a_crowd_that_becomes_due_at_once_is_handled_completely(idle_stage: Stage) -> None:
    for n in range(1, 251):
        send(idle_stage, f"g{n % 5}", n=n, delay=0.5)

    idle_stage.wait_for_ended(251)

    idle_stage.wait_until_drained()
    assert scheduled(idle_stage) == 0


def test_rescheduling_wakes_an_idle_worker(idle_stage: Stage) -> None:
    identifier = send(idle_stage, n=1, delay=LONG_SECONDS)
    wait_until_idle(idle_stage)

    assert queue_of(idle_stage).reschedule(identifier, delay=0)

    idle_stage.wait_for_ended(n=1)


def test_cancelling_what_holds_a_group_wakes_an_idle_worker(idle_stage: Stage) -> None:
    identifier = send(idle_stage, n=1, delay=LONG_SECONDS, hold=True)
    send(idle_stage, n=2)
    wait_until_idle(idle_stage)

    assert queue_of(idle_stage).cancel(identifier)

    idle_stage.wait_for_ended(n=2)
    assert not idle_stage.traces.all("started", n=1)


def test_a_burst_leaves_what_is_not_due(stage: Stage) -> None:
    send(stage, n=1)
    send(stage, n=2, delay=LONG_SECONDS)
    send(stage, "held", n=3, delay=LONG_SECONDS, hold=True)

    assert stage.work("--burst").wait() == 0

    assert [trace.n for trace in stage.traces.all("ended")] == [1]
    assert scheduled(stage) == 2


def test_a_burst_handles_all_that_is_due_however_much(stage: Stage) -> None:
    for n in range(150):
        send(stage, n=n, delay=0.001)

    worker = stage.work("--burst")

    assert worker.wait() == 0
    assert [trace.n for trace in stage.traces.all("ended")] == list(range(150))


def test_an_expired_message_is_told_of_once_and_never_handled(stage: Stage) -> None:
    late = send(stage, n=1, expires_in=0.001)
    send(stage, n=2)
    wait_until_past(stage)
    stage.work("--concurrency", 2)

    [expired] = stage.traces.wait_for("message_expired")

    assert sorted(expired.details["arguments"]) == ["group", "message_id", "queue"]
    assert (expired.message_id, expired.group, expired.queue) == (late, "g", stage.queue)
    assert expired.sender == "None"
    stage.wait_for_ended(n=2)
    stage.wait_until_drained()
    assert not stage.traces.all("started", n=1)
    assert len(stage.traces.all("message_expired")) == 1
    assert stage.snapshot().counters["expired"] == 1


def test_a_burst_drops_whatever_has_expired(stage: Stage) -> None:
    for n in range(1_200):
        send(stage, n=n, expires_in=0.001)
    send(stage, n=-1)
    wait_until_past(stage)

    assert stage.work("--burst").wait() == 0

    assert [trace.n for trace in stage.traces.all("ended")] == [-1]
    assert len(stage.traces.all("message_expired")) == 1_200


def wait_until_past(stage: Stage) -> None:
    """Return once what expires in a millisecond has expired."""

    def now_us() -> int:
        seconds, microseconds = stage.client.time()
        return int(seconds) * 1_000_000 + int(microseconds)

    ends = now_us() + 2_000
    wait_until(lambda: now_us() > ends, "two milliseconds")
