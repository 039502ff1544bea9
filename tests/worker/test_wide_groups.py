"""Do workers have as many messages of a wide group in hand as it is wide, and no more?"""

from __future__ import annotations

import os
import signal

import pytest

from groupqueue.queues import get_queue
from tests.servers import wait_until
from tests.worker.stage import Stage
from tests.worker.test_leases import server_seconds
from tests.worker.traces import Trace


def most_at_once(traces: list[Trace]) -> int:
    """Return how many handlers ran at the same time, given the traces of starts and ends."""
    running = most = 0
    for trace in sorted(traces, key=lambda trace: trace.at):
        running += 1 if trace.event == "started" else -1
        most = max(most, running)
    return most


@pytest.mark.parametrize("topic", ["note", "note.async"])
def test_processes_together_never_have_more_in_hand_than_the_width(
    stage: Stage, topic: str
) -> None:
    stage.work("--processes", 2, "--concurrency", 4)
    stage.wait_for_processes(2)
    stage.publish_numbered(topic, ["wide"], 60, width=3)
    stage.publish_numbered(topic, ["plain"], 20)

    ended = stage.wait_for_ended(80)

    ran = [trace for trace in stage.traces.all() if trace.event in ("started", "ended")]
    assert most_at_once([trace for trace in ran if trace.group == "wide"]) <= 3
    assert sorted(trace.n for trace in ended if trace.group == "wide") == list(range(60))
    assert [trace.n for trace in ended if trace.group == "plain"] == list(range(20))
    stage.wait_until_drained()
    assert not stage.client.exists(stage.keys.named("wide"), stage.keys.named("paused"))


def test_messages_of_a_wide_group_are_handled_in_parallel_by_several_processes(
    stage: Stage,
) -> None:
    for _ in range(4):
        stage.publish("meet", "wide", width=4, parties=4)
    stage.work("--processes", 2, "--concurrency", 2)

    ended = stage.wait_for_ended(4)

    assert len({trace.pid for trace in ended}) == 2
    assert {trace.group for trace in ended} == {"wide"}


def test_messages_are_started_in_order_with_as_many_in_hand_as_the_width(stage: Stage) -> None:
    for n in range(6):
        stage.publish("gate.async", "wide", width=2, n=n, gate=str(n))
    stage.work("--concurrency", 8)

    for n in range(6):
        started = stage.wait_for_started(min(n + 2, 6))
        assert [trace.n for trace in started] == list(range(min(n + 2, 6)))
        stage.open_gate(str(n))

    stage.wait_for_ended(6)


def test_a_message_that_fails_waits_alone_and_the_others_go_on(stage: Stage) -> None:
    stage.publish("recover", "wide", width=2, n=0)
    stage.publish_numbered("note", ["wide"], 10)
    stage.work("--concurrency", 2)

    ended = stage.wait_for_ended(10, topic="note")
    assert {trace.n for trace in ended} == set(range(10))
    assert stage.traces.all("ended", topic="recover") == []

    stage.open_gate()
    [recovered] = stage.wait_for_ended(topic="recover")
    assert recovered.attempt > 1
    assert recovered.crashes == 0
    stage.wait_until_drained()


def test_what_is_given_up_is_told_under_the_groups_own_name_and_the_rest_goes_on(
    stage: Stage,
) -> None:
    stage.configure(MAX_ATTEMPTS=1)
    identifier = stage.publish("fail", "wide", width=2)
    stage.publish_numbered("note", ["wide"], 5)
    worker = stage.work()

    stage.wait_for_ended(5)
    [halted] = stage.traces.wait_for("group_halted")
    [failed] = stage.traces.wait_for("message_failed")

    assert (halted.group, halted.message_id) == ("wide", identifier)
    assert failed.group == "wide"
    worker.wait_for_logged("group 'wide' is halted")
    assert "\\xff" not in worker.log
    assert "\\udcff" not in worker.log
    found = get_queue(stage.queue).explain("wide")
    assert (found.state, found.group.halted, found.group.depth) == ("halted", 1, 0)

    assert get_queue(stage.queue).skip("wide", identifier) == "ok"
    assert [letter["group"] for letter in stage.dead_letters()] == ["wide"]
    assert stage.backlog() == 0


def test_of_a_killed_process_only_its_own_message_is_delivered_again(stage: Stage) -> None:
    for n in range(2):
        stage.publish("gate", "wide", width=2, n=n, gate=str(n))
    stage.work("--processes", 2)
    first, second = stage.wait_for_started(2)
    os.kill(first.pid, signal.SIGKILL)

    stage.open_gate("0")
    stage.open_gate("1")

    [again] = stage.traces.wait_for("started", 3)[2:]
    assert (again.id, again.deliveries, again.crashes) == (first.id, 2, 1)
    assert again.token > first.token
    ended = {trace.id: trace for trace in stage.wait_for_ended(2)}
    assert ended[second.id].deliveries == 1
    stage.wait_until_drained()
    assert len(stage.traces.all("started")) == 3


def test_all_its_leases_are_renewed(stage: Stage) -> None:
    stage.configure(VISIBILITY_TIMEOUT=0.7)
    for _ in range(3):
        stage.publish("gate.async", "wide", width=3)
    stage.work("--concurrency", 3)
    # Somebody who would take them if they came free.
    stage.work("--concurrency", 3)
    started = stage.wait_for_started(3)

    ends = server_seconds(stage) + 2.1
    wait_until(lambda: server_seconds(stage) > ends, "three leases' time")
    tokens = {view.token for view in stage.snapshot().leased}
    stage.open_gate()

    assert tokens == {trace.token for trace in started}
    assert not any(trace.lease_lost for trace in stage.wait_for_ended(3))
    stage.wait_until_drained()
    assert stage.snapshot().counters["delivered"] == 3


def test_all_that_is_in_hand_is_handed_back_uncounted(stage: Stage) -> None:
    for n in range(6):
        stage.publish("gate", "wide", width=4, n=n)
    worker = stage.work("--processes", 2, "--concurrency", 2)
    stage.wait_for_started(4)

    worker.signal()
    stage.traces.wait_for("worker_stopping", 2)
    worker.signal()

    assert worker.wait() == 0
    view = get_queue(stage.queue).explain("wide").group
    assert (view.in_flight, view.started, view.depth) == (0, 4, 2)
    stage.open_gate()
    stage.work("--concurrency", 2)
    ended = stage.wait_for_ended(6)
    assert {(trace.deliveries, trace.crashes) for trace in ended} == {(1, 0)}
    assert sorted(trace.n for trace in ended) == list(range(6))


def test_a_worker_with_batches_has_one_message_per_place(stage: Stage) -> None:
    stage.publish_numbered("note", ["wide"], 12, width=3)

    stage.work("--batch", 5, "--concurrency", 2)

    assert [trace.n for trace in stage.wait_for_ended(12)][-1] in (9, 10, 11)
    stage.wait_until_drained()


def test_a_lease_taken_away_is_one_message_s_alone(stage: Stage) -> None:
    stage.configure(VISIBILITY_TIMEOUT=1)
    for n in range(2):
        stage.publish("mind_lease", "wide", width=2, n=n)
    stage.work("--concurrency", 2)
    first, second = stage.wait_for_started(2)

    assert get_queue(stage.queue).release("wide", first.token)

    [gave_way] = stage.traces.wait_for("gave way")
    assert gave_way.token == first.token
    [lost] = stage.traces.wait_for("lease_lost")
    assert lost.group == "wide"
    stage.open_gate()
    assert second.id in {trace.id for trace in stage.wait_for_ended(2)}
    stage.wait_until_drained()
