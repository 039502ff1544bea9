"""Are the messages of a group handled in order and one at a time, and groups in parallel?"""

from __future__ import annotations

import itertools

import pytest

from groupqueue import get_queue
from tests.servers import Server, wait_until
from tests.worker.stage import Stage
from tests.worker.traces import Trace, by_group

GROUPS = [f"g{number}" for number in range(40)]


@pytest.mark.parametrize("topic", ["note", "note.async"])
def test_every_group_is_handled_in_order_and_one_message_at_a_time(
    stage: Stage, topic: str
) -> None:
    stage.work("--processes", 2, "--concurrency", 4)
    stage.wait_for_processes(2)
    stage.publish_numbered(topic, GROUPS, 15)

    ended = by_group(stage.wait_for_ended(len(GROUPS) * 15))

    assert {group: [trace.n for trace in traces] for group, traces in ended.items()} == {
        group: list(range(15)) for group in GROUPS
    }
    started = by_group(stage.traces.all("started"))
    for group in GROUPS:
        assert_one_at_a_time(started[group], ended[group])
    assert len({trace.pid for traces in ended.values() for trace in traces}) == 2
    stage.wait_until_drained()


def test_failure_12_ten_workers_never_have_two_messages_of_one_of_three_groups_at_once(
    stage: Stage,
) -> None:
    groups, count = GROUPS[:3], 60
    stage.configure(VISIBILITY_TIMEOUT=60)
    queue = get_queue(stage.queue)
    queue.stop("until all are there")
    for n in range(count):
        # Who fails makes room for another worker.
        topic = ("note", "fail.async", "note.async", "fail")[n % 4]
        for group in groups:
            stage.publish(topic, group, n=n, times=1)
    stage.work("--processes", 10)
    stage.traces.wait_for("worker_started", 10, seconds=60)

    queue.start()

    ended = by_group(stage.wait_for_ended(len(groups) * count))

    started = by_group(stage.traces.all("started"))
    failed = by_group(stage.traces.all("message_failed"))
    for group in groups:
        assert [trace.n for trace in ended[group]] == list(range(count))
        assert_one_at_a_time(started[group], [*ended[group], *failed[group]])
        assert {trace.crashes for trace in started[group]} == {0}
    # They did compete: on a busy machine not for each of the groups, perhaps.
    assert any(len({trace.pid for trace in traces}) > 1 for traces in started.values())


@pytest.mark.parametrize("concurrency", [1, 3])
def test_the_first_hand_is_the_main_thread(stage: Stage, concurrency: int) -> None:
    for group in ("g1", "g2", "g3"):
        stage.publish("meet.main", group, parties=concurrency)

    stage.work("--concurrency", concurrency)

    stage.wait_for_ended(3)
    are_main = sorted(trace.is_main for trace in stage.traces.all("started"))
    assert are_main == ([True] * 3 if concurrency == 1 else [False, False, True])


@pytest.mark.parametrize("topic", ["meet", "meet.async"])
def test_different_groups_are_handled_in_parallel(stage: Stage, topic: str) -> None:
    for group in ("g1", "g2", "g3", "g4"):
        stage.publish(topic, group, parties=4)
    stage.work("--processes", 2, "--concurrency", 2)

    ended = stage.wait_for_ended(4)

    assert len({trace.pid for trace in ended}) == 2


def test_async_handlers_of_one_process_share_one_event_loop(stage: Stage) -> None:
    for group in ("g1", "g2", "g3"):
        stage.publish("meet.async", group, parties=3)
    stage.work("--concurrency", 3)

    ended = stage.wait_for_ended(3)

    assert len({(trace.pid, trace.thread) for trace in ended}) == 1


def test_a_waiting_async_handler_does_not_hold_up_a_sync_one(stage: Stage) -> None:
    stage.publish("gate.async", "slow")
    stage.work("--concurrency", 2)
    stage.wait_for_started(group="slow")

    stage.publish("note", "quick")

    stage.wait_for_ended(group="quick")
    stage.open_gate()
    stage.wait_for_ended(group="slow")


def test_several_queues_are_worked_on_at_once(stage: Stage) -> None:
    stage.add_queue(f"{stage.queue}.second")
    stage.publish("meet", "g1", parties=2)
    stage.publish("meet", "g2", parties=2, queue=f"{stage.queue}.second")
    stage.work("--concurrency", 2, queues=[stage.queue, f"{stage.queue}.second"])

    stage.wait_for_ended(2)

    wait_until(lambda: stage.backlog(f"{stage.queue}.second") == 0, "an empty second queue")
    stage.wait_until_drained()


def test_queues_on_two_servers_are_worked_on_at_once(stage: Stage, valkey: Server) -> None:
    stage.add_queue("elsewhere", CONNECTION=valkey.url)
    stage.publish("meet", "g1", parties=2)
    stage.publish("meet", "g2", parties=2, queue="elsewhere")
    stage.work("--concurrency", 2, queues=[stage.queue, "elsewhere"])

    stage.wait_for_ended(2)

    wait_until(lambda: stage.backlog("elsewhere") == 0, "an empty queue on the second server")
    stage.wait_until_drained()


def test_a_dead_server_does_not_hold_up_the_queue_on_another(stage: Stage, valkey: Server) -> None:
    stage.add_queue("elsewhere", CONNECTION=valkey.url)
    valkey.kill()
    stage.publish_numbered("note", ["g1", "g2"], 20)
    stage.work(queues=[stage.queue, "elsewhere"])

    ended = by_group(stage.wait_for_ended(40))

    assert [trace.n for trace in ended["g1"]] == list(range(20))
    valkey.start()
    stage.publish("note", "g3", queue="elsewhere")
    stage.wait_for_ended(group="g3")


def assert_one_at_a_time(started: list[Trace], ended: list[Trace]) -> None:
    """Each delivery has ended before the next one starts."""
    ends = {trace.token: trace.at for trace in ended}
    for before, after in itertools.pairwise(started):
        assert ends[before.token] <= after.at, (before, after)
