"""Does a worker keep to the queue's rates, and stand still while the queue is stopped?"""

from __future__ import annotations

import pytest

from groupqueue import get_queue
from groupqueue.core.messages import split_element
from groupqueue.core.snapshot import Snapshot
from tests.worker.stage import Stage
from tests.worker.test_idling import PATIENT, wait_until_idle

HOUR_US = 3_600_000_000


def delivered(stage: Stage) -> int:
    return stage.snapshot().counters.get("delivered", 0)


# Rates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_worker_handles_each_group_at_its_rate(stage: Stage, concurrency: int) -> None:
    stage.configure(RATE={"group": "1/h:2"})
    stage.publish_numbered("note", ["a", "b"], 5)

    worker = stage.work("--concurrency", concurrency, "--burst")
    assert worker.wait() == 0

    ended = stage.traces.all("ended")
    assert sorted((trace.group, trace.n) for trace in ended) == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    ]
    assert delivered(stage) == 4
    parked = stage.snapshot().parked
    assert {(view.group, view.state, view.depth) for view in parked} == {
        ("a", "rate-limited", 3),
        ("b", "rate-limited", 3),
    }
    for group in ("a", "b"):
        # A token is the server's clock in µs at the claim: an interval after the first one.
        [first, _] = [trace.token for trace in ended if trace.group == group]
        score = stage.client.zscore(stage.keys.ready(0), group)
        assert score == pytest.approx((first + HOUR_US) / 1000, abs=1)


def test_a_worker_handles_a_queue_at_its_rate_batches_and_all(stage: Stage) -> None:
    stage.configure(RATE="1/h:5")
    stage.publish_numbered("note", ["a", "b", "c"], 4)

    assert stage.work("--concurrency", 3, "--batch", 10, "--burst").wait() == 0

    assert len(stage.traces.all("ended")) == 5
    assert delivered(stage) == 5
    assert stage.backlog() == 7


def test_a_worker_goes_on_at_once_when_an_operator_lifts_a_rate(stage: Stage) -> None:
    stage.plan.constants |= PATIENT
    stage.configure(RATE={"queue": "1/h:100", "group": "1/h"})
    stage.publish_numbered("note", ["g"], 5)
    stage.work()
    stage.wait_until(lambda snapshot: snapshot.parked, "a group put off")
    wait_until_idle(stage)

    get_queue(stage.queue).set_rate("none", "g")

    assert [trace.n for trace in stage.wait_for_ended(5)] == [0, 1, 2, 3, 4]


# Stopping --------------------------------------------------------------------------------


def test_a_stopped_queue_is_left_alone_until_it_is_started_again(stage: Stage) -> None:
    stage.plan.constants |= PATIENT
    queue = get_queue(stage.queue)
    queue.stop("moving house")
    stage.publish_numbered("note", ["a", "b"], 2)
    stage.work()
    wait_until_idle(stage)
    assert delivered(stage) == 0

    assert queue.start()

    stage.wait_for_ended(4)


def test_what_runs_when_a_queue_is_stopped_is_renewed_and_settled(stage: Stage) -> None:
    stage.configure(VISIBILITY_TIMEOUT=4)
    queue = get_queue(stage.queue)
    stage.publish("gate", "running")
    stage.publish("note", "running")
    stage.publish("gate", "other")
    stage.work("--concurrency", 1)
    [started] = stage.traces.wait_for("started")

    queue.stop()

    def is_renewed(snapshot: Snapshot) -> bool:
        [lease] = snapshot.leased
        # Longer than a lease lasts that nobody renews.
        return (snapshot.taken_at.timestamp() * 1_000_000 - started.token) > 5_000_000 and (
            lease.token == started.token
        )

    stage.wait_until(is_renewed, "a renewed lease")
    stage.open_gate()
    stage.wait_until(lambda snapshot: not snapshot.leased, "the end of the delivery")
    assert [trace.group for trace in stage.traces.all("ended")] == [started.group]
    assert stage.backlog() == 2
    queue.start()
    stage.wait_for_ended(3)


def test_a_burst_ends_at_a_stopped_queue(stage: Stage) -> None:
    get_queue(stage.queue).stop()
    stage.publish("note")

    assert stage.work("--burst").wait() == 0

    assert stage.backlog() == 1


# Dead letters ----------------------------------------------------------------------------


def test_failure_39_a_worker_throws_old_dead_letters_away_and_says_so(stage: Stage) -> None:
    stage.plan.constants["groupqueue.worker.leases.HEARTBEAT_SECONDS"] = 0.1
    stage.configure(
        MAX_ATTEMPTS=1, ON_EXHAUSTED="dead_letter", DEAD_RETENTION={"age": 3600, "count": 2}
    )
    # Set aside at the beginning of time.
    stage.client.xadd(stage.keys.named("dead"), {"group": "old"}, id="1-1")
    ids = [stage.publish("fail", str(number)) for number in range(4)]
    worker = stage.work()
    stage.traces.wait_for("message_dead", 4)

    stage.wait_until(lambda snapshot: snapshot.counters.get("trimmed") == 3, "trimmed letters")

    kept = [split_element(letter["element"].encode())[0] for letter in stage.dead_letters()]
    assert kept == ids[2:]
    worker.wait_for_logged("were thrown away, as DEAD_RETENTION says")


def test_without_a_retention_every_dead_letter_is_kept(stage: Stage) -> None:
    stage.plan.constants["groupqueue.worker.leases.HEARTBEAT_SECONDS"] = 0.1
    stage.client.xadd(stage.keys.named("dead"), {"group": "old"}, id="1-1")
    stage.work()
    [worker] = stage.wait_until(lambda snapshot: snapshot.workers, "a worker").workers

    # Two heartbeats later it would be gone.
    for _ in range(2):
        stage.wait_until(
            lambda snapshot, seen=worker.seen_at: snapshot.workers[0].seen_at > seen, "a heartbeat"
        )
        [worker] = stage.snapshot().workers

    assert len(stage.dead_letters()) == 1


def test_letters_that_cannot_be_thrown_away_cost_no_worker_its_heartbeat(stage: Stage) -> None:
    stage.plan.constants["groupqueue.worker.leases.HEARTBEAT_SECONDS"] = 0.1
    stage.configure(DEAD_RETENTION={"count": 1})
    stage.client.set(stage.keys.named("dead"), "foreign")
    worker = stage.work()

    worker.wait_for_logged("dead letters could not be thrown away")

    stage.publish("note")
    stage.wait_for_ended()
    stage.client.delete(stage.keys.named("dead"))
    assert len(stage.snapshot().workers) == 1
