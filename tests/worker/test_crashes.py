"""What becomes of messages, groups and processes when a worker dies or falls silent?"""

from __future__ import annotations

import os
import resource
import signal

import pytest

from tests.worker.stage import Stage
from tests.worker.test_idling import PATIENT
from tests.worker.traces import by_group, without_repeats


def test_failure_01_the_messages_of_a_killed_process_are_handled_again_and_nothing_is_lost(
    stage: Stage,
) -> None:
    stage.publish("gate", "held", n=0)
    stage.publish_numbered("note", ["held"], 3)
    stage.work("--processes", 2)
    [victim] = stage.wait_for_started(group="held")
    os.kill(victim.pid, signal.SIGKILL)

    stage.publish_numbered("note", ["other"], 10)
    assert [trace.n for trace in stage.wait_for_ended(10, group="other")] == list(range(10))

    stage.open_gate()
    again = stage.wait_for_started(2, group="held", topic="gate")[1]
    assert (again.id, again.deliveries, again.crashes, again.attempt) == (victim.id, 2, 1, 1)
    assert again.token > victim.token
    after = stage.wait_for_ended(3, group="held", topic="note")
    assert [trace.n for trace in after] == [0, 1, 2]
    assert [trace.crashes for trace in after] == [0, 0, 0]
    stage.wait_until_drained()


@pytest.mark.parametrize("topic", ["gate", "gate.async"])
def test_failure_01_all_groups_of_a_killed_worker_are_claimable_when_their_leases_end(
    stage: Stage, topic: str
) -> None:
    # The other worker looks by itself in an hour: the server has told it when to look sooner.
    stage.plan.constants |= PATIENT
    groups = ["g1", "g2", "g3"]
    for group in groups:
        stage.publish(topic, group)
        stage.publish("note", group)
    worker = stage.work("--concurrency", 3)
    first = {trace.group: trace for trace in stage.wait_for_started(3)}
    stage.work("--concurrency", 3)
    stage.wait_for_processes(2)

    worker.signal_all(signal.SIGKILL)

    again = stage.wait_for_started(6, topic=topic)[3:]
    assert {trace.group for trace in again} == set(groups)
    for trace in again:
        assert (trace.id, trace.deliveries, trace.crashes) == (first[trace.group].id, 2, 1)
        # A token is the server's clock in µs: nobody was given the group before its lease ended.
        assert trace.token >= first[trace.group].token + 2_000_000
    stage.open_gate()
    stage.wait_until_drained()
    assert len(stage.traces.all("ended")) == 6


def test_a_killed_process_is_replaced(stage: Stage) -> None:
    worker = stage.work("--processes", 2)
    first, second = stage.wait_for_processes(2)

    os.kill(first, signal.SIGKILL)

    third = stage.wait_for_processes(3)[2]
    assert third not in (first, second)
    worker.signal()
    assert worker.wait() == 0
    assert "a worker process died (signal SIGKILL); it is replaced" in worker.log
    assert "1 restart" in worker.printed


@pytest.mark.parametrize("options", [(), ("--burst",)])
def test_a_process_that_ends_with_0_unasked_is_replaced(
    stage: Stage, options: tuple[object, ...]
) -> None:
    stage.publish("exit.once", "leaving", priority=4)
    stage.publish_numbered("note", ["g"], 3)
    worker = stage.work(*options)

    stage.wait_for_ended(3, topic="note")

    assert "a worker process died (exit code 0); it is replaced" in worker.log
    if not options:
        [ended] = stage.wait_for_ended(group="leaving")
        assert ended.crashes == 1
        worker.signal()
    assert worker.wait() == 0
    assert "; the figures of 1 process that died are missing" in worker.printed


def test_a_process_that_cannot_be_started_for_want_of_files_is_started_later(
    stage: Stage,
) -> None:
    worker = stage.work()
    [first] = stage.wait_for_processes()
    limits = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (3, limits[1]))

    os.kill(first, signal.SIGKILL)
    worker.wait_for_logged("a worker process cannot be started; trying again")
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, limits)

    stage.wait_for_processes(2)
    worker.signal()
    assert worker.wait() == 0


@pytest.mark.parametrize("by", ["stopping", "exiting"])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_process_without_its_event_loop_is_replaced_and_its_message_counts_a_crash(
    stage: Stage, concurrency: int, by: str
) -> None:
    stage.configure(VISIBILITY_TIMEOUT=2)
    stage.publish("end_loop", by=by)
    worker = stage.work("--concurrency", concurrency)

    [ended] = stage.wait_for_ended()

    [first, second] = stage.traces.all("started")
    assert second.pid == ended.pid != first.pid
    assert (second.deliveries, second.crashes) == (2, 1)
    assert "the event loop was ended from outside" in worker.log
    assert "a worker process died (exit code 70, event loop ended); it is replaced" in worker.log
    worker.signal()
    assert worker.wait() == 0


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_message_that_always_ends_the_event_loop_is_exhausted(
    stage: Stage, concurrency: int
) -> None:
    stage.configure(VISIBILITY_TIMEOUT=1, MAX_CRASHES=2, ON_EXHAUSTED="dead_letter")
    stage.publish("end_loop", by="stopping", times=10)
    stage.publish("note", group="other")
    stage.work("--concurrency", concurrency)

    stage.wait_until(lambda snapshot: snapshot.dead_letters, "a dead letter")

    assert [letter["reason"] for letter in stage.dead_letters()] == ["poison"]
    assert len(stage.traces.all("started", topic="end_loop")) == 2
    stage.wait_for_ended(topic="note")


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("by", ["returning", "raising", "exiting"])
@pytest.mark.parametrize("topic", ["come_back", "come_back.async"])
def test_a_forked_child_that_comes_back_is_no_second_worker(
    stage: Stage, topic: str, by: str, concurrency: int
) -> None:
    stage.publish(topic, by=by, n=0)
    stage.publish("note", n=1)
    worker = stage.work("--concurrency", concurrency)

    ended = stage.wait_for_ended(2)

    # The parent waits for its child, and only then is the message settled, once.
    assert [trace.n for trace in ended] == [0, 1]
    assert len({trace.pid for trace in ended}) == 1
    assert ended[0].code == {"returning": 0, "raising": 1, "exiting": 3}[by]
    stage.wait_until_drained()
    assert stage.snapshot().counters["acked"] == 2
    worker.signal()
    assert worker.wait() == 0


def test_every_message_is_handled_in_order_while_processes_are_killed(stage: Stage) -> None:
    groups = [f"g{number}" for number in range(12)]
    stage.configure(VISIBILITY_TIMEOUT=1, MAX_CRASHES=100)
    stage.publish_numbered("note", groups, 40)
    stage.work("--processes", 2, "--concurrency", 3)
    for killed in range(4):
        pid = stage.wait_for_processes(2 + killed)[-1]
        stage.traces.wait_for("ended", (killed + 1) * 40)
        os.kill(pid, signal.SIGKILL)

    stage.wait_until_drained(seconds=60)

    for traces in by_group(stage.traces.all("ended")).values():
        assert without_repeats(trace.n for trace in traces) == list(range(40))


def test_without_their_supervisor_processes_finish_what_they_have_and_leave(stage: Stage) -> None:
    stage.publish("gate")
    stage.publish("note")
    worker = stage.work("--processes", 2)
    stage.wait_for_processes(2)
    stage.wait_for_started(topic="gate")

    worker.kill_supervisor()
    reasons = {trace.reason for trace in stage.traces.wait_for("worker_stopping", 2)}
    stage.open_gate()
    worker.wait_until_gone()

    assert reasons == {"supervisor gone"}
    assert len(stage.traces.all("ended", topic="gate")) == 1
    assert stage.traces.all("started", topic="note") == []
    assert stage.backlog() == 1


def test_failure_02_a_process_that_was_stopped_past_its_lease_changes_nothing_when_it_wakes(
    stage: Stage,
) -> None:
    stage.publish("gate", n=0)
    stage.publish_numbered("note", ["g"], 3)
    sleeper = stage.work()
    [first] = stage.wait_for_started(topic="gate")
    os.kill(first.pid, signal.SIGSTOP)
    other = stage.work()

    second = stage.wait_for_started(2, topic="gate")[1]
    assert second.pid != first.pid
    assert second.token > first.token
    os.kill(first.pid, signal.SIGCONT)
    lost = stage.traces.wait_for("lease_lost")[0]
    assert (lost.pid, lost.token, lost.id) == (first.pid, first.token, first.id)

    # The first one finishes while the second still holds the group.
    stage.open_gate()
    stage.wait_until_drained()

    ended = stage.wait_for_ended(2, topic="gate")
    assert {trace.pid: trace.lease_lost for trace in ended} == {first.pid: True, second.pid: False}
    notes = stage.traces.all("ended", topic="note")
    assert [trace.n for trace in notes] == [0, 1, 2]
    assert "lease lost" in sleeper.log
    assert "lease lost" not in other.log
    assert stage.snapshot().counters["acked"] == 4


@pytest.mark.parametrize("fails", [False, True])
def test_failure_02_a_late_result_changes_nothing_while_somebody_else_has_the_message(
    stage: Stage, *, fails: bool
) -> None:
    stage.publish("late", fails=fails)
    sleeper = stage.work()
    [first] = stage.wait_for_started()
    os.kill(first.pid, signal.SIGSTOP)
    stage.work()
    second = stage.wait_for_started(2)[1]

    stage.open_gate()
    os.kill(first.pid, signal.SIGCONT)
    sleeper.wait_for_logged("the result was dropped")

    view = stage.group()
    assert (view.head_id, view.token) == (first.id, second.token)
    assert (view.deliveries, view.failures) == (2, 0)
    stage.open_gate("second")
    stage.wait_until_drained()
    counters = stage.snapshot().counters
    assert (counters["acked"], counters.get("retried", 0)) == (1, 0)


def test_failure_02_a_late_result_pops_nothing_from_a_group_that_has_moved_on(
    stage: Stage,
) -> None:
    stage.publish("gate", n=0)
    stage.publish("gate", n=1, gate="second")
    sleeper = stage.work()
    [first] = stage.wait_for_started(n=0)
    os.kill(first.pid, signal.SIGSTOP)
    stage.work()
    stage.wait_for_started(2, n=0)
    stage.open_gate()
    [head] = stage.wait_for_started(n=1)

    os.kill(first.pid, signal.SIGCONT)
    sleeper.wait_for_logged("the result was dropped")

    view = stage.group()
    assert (view.head_id, view.token, view.failures) == (head.id, head.token, 0)
    assert stage.snapshot().counters.get("retried", 0) == 0
    stage.open_gate("second")
    stage.wait_until_drained()
    assert len(stage.traces.all("ended", n=1)) == 1


@pytest.mark.parametrize("on_exhausted", ["halt", "dead_letter"])
def test_failure_08_a_message_that_kills_every_process_is_exhausted_as_poison(
    stage: Stage, on_exhausted: str
) -> None:
    stage.configure(VISIBILITY_TIMEOUT=1, MAX_CRASHES=2, ON_EXHAUSTED=on_exhausted)
    poison = stage.publish("crash", "poisoned")
    stage.publish("note", "poisoned")
    stage.publish_numbered("note", ["other"], 3)
    stage.work()

    stage.wait_for_ended(3, group="other")
    if on_exhausted == "halt":
        [told] = stage.traces.wait_for("group_halted")
        held = stage.wait_until(lambda snapshot: snapshot.held, "a halted group").held[0]
        assert (held.group, held.state, held.held_reason) == ("poisoned", "halted", "poison")
        assert "2 workers died, fell silent or ran out of time" in held.last_error
        assert held.head_id == poison
        assert stage.traces.all("ended", group="poisoned") == []
    else:
        [told] = stage.traces.wait_for("message_dead")
        stage.wait_for_ended(group="poisoned", topic="note")
        [letter] = stage.dead_letters()
        assert letter["reason"] == "poison"
        assert poison in letter["element"]
    assert (told.id, told.reason) == (poison, "poison")
    crashes = [trace.crashes for trace in stage.traces.all("started", topic="crash")]
    assert crashes == [0, 1]


def test_failure_08_messages_beside_one_that_kills_its_process_are_not_taken_for_poison(
    stage: Stage,
) -> None:
    stage.configure(VISIBILITY_TIMEOUT=1, MAX_CRASHES=2)
    stage.publish("crash", "poisoned", beside=3)
    for number in range(3):
        stage.publish("work", f"innocent{number}", seconds=0.3)
    stage.work("--concurrency", 4)

    stage.wait_for_ended(3, topic="work")
    stage.traces.wait_for("group_halted", group="poisoned")

    assert [trace.group for trace in stage.traces.all("group_halted")] == ["poisoned"]
    assert len(stage.traces.all("started", group="poisoned")) == 2


def test_many_messages_that_each_kill_a_process_do_not_end_the_worker(stage: Stage) -> None:
    stage.configure(VISIBILITY_TIMEOUT=1, MAX_CRASHES=2)
    stage.plan.constants["groupqueue.worker.supervisor.FAILED_STARTS_TOLERATED"] = 2
    deadly = [f"deadly{number}" for number in range(4)]
    stage.publish_numbered("crash.once", deadly, 1)
    stage.publish("note", "after")
    worker = stage.work()

    ended = stage.wait_for_ended(5)

    assert {trace.group for trace in ended} == {*deadly, "after"}
    worker.signal()
    assert worker.wait() == 0


@pytest.mark.parametrize("topic", ["overrun", "overrun.async"])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_failure_07_a_handler_out_of_time_costs_its_process_and_counts_a_crash(
    stage: Stage, topic: str, concurrency: int
) -> None:
    stage.publish(topic, "slow", times=1)
    worker = stage.work("--concurrency", concurrency)
    [first] = stage.wait_for_started(group="slow")

    second = stage.wait_for_started(2, group="slow")[1]

    assert second.pid != first.pid
    assert (second.id, second.crashes, second.attempt) == (first.id, 1, 1)
    stage.wait_for_ended(group="slow")
    failed = stage.traces.all("message_failed", group="slow")
    assert [trace.token for trace in failed] == [first.token]
    assert "TimeoutError" in failed[0].error
    assert failed[0].duration_seconds >= 0.3
    assert "a handler ran out of time" in worker.log


def test_the_queues_time_limit_holds_for_handlers_without_their_own(stage: Stage) -> None:
    stage.configure(HANDLER_TIMEOUT=0.2)
    stage.publish("gate", "slow")
    stage.work()
    [first] = stage.wait_for_started()

    second = stage.wait_for_started(2)[1]

    assert second.pid != first.pid
    assert (second.id, second.crashes) == (first.id, 1)


def test_handlers_beside_one_out_of_time_finish_and_are_acknowledged(stage: Stage) -> None:
    stage.publish("gate", "patient")
    stage.work("--concurrency", 2)
    [patient] = stage.wait_for_started(group="patient")
    stage.publish("overrun", "slow", times=1)
    stage.traces.wait_for("worker_stopping")

    stage.open_gate()
    stage.wait_for_ended(group="slow", topic="overrun")

    [ended] = stage.traces.all("ended", group="patient")
    assert (ended.pid, ended.deliveries) == (patient.pid, 1)
    assert len(stage.traces.all("started", group="patient")) == 1


def test_a_message_that_is_always_out_of_time_is_exhausted(stage: Stage) -> None:
    stage.configure(VISIBILITY_TIMEOUT=1, MAX_CRASHES=2)
    stage.publish("overrun", "slow")
    stage.work()

    [halted] = stage.traces.wait_for("group_halted", group="slow", seconds=30)

    assert halted.reason == "poison"
    assert len(stage.traces.all("started", group="slow")) == 2


# Messages that one more crash would exhaust ------------------------------------------------------


def test_a_suspect_that_waits_is_not_blamed_for_the_death_of_its_process(stage: Stage) -> None:
    stage.configure(MAX_CRASHES=2, VISIBILITY_TIMEOUT=2)
    stage.publish_suspect("note", "suspect")
    stage.publish("gate", "long")
    stage.work("--concurrency", 2)
    [running] = stage.wait_for_started(group="long")
    stage.let_go("suspect")
    stage.wait_until(
        lambda _: (
            stage.group("suspect").state == "leased" and stage.group("suspect").deliveries == 1
        ),
        "a suspect that waits, uncounted",
    )

    os.kill(running.pid, signal.SIGKILL)
    stage.open_gate()

    [started] = stage.wait_for_started(group="suspect")
    assert (started.deliveries, started.crashes) == (2, 1)


def test_a_suspect_does_not_idle_its_process_behind_a_long_handler(stage: Stage) -> None:
    stage.configure(MAX_CRASHES=2)
    stage.plan.constants |= {
        "groupqueue.worker.pump.SUSPECT_PATIENCE_SECONDS": 0.3,
        "groupqueue.worker.pump.SUSPECT_PARKED_SECONDS": 1.0,
    }
    stage.publish_suspect("work", "suspect", seconds=0.2)
    stage.publish("gate", "long")
    stage.work("--concurrency", 2)
    stage.wait_for_started(group="long")

    stage.let_go("suspect")
    parked = stage.wait_until(lambda snapshot: snapshot.parked, "the suspect handed back").parked
    assert [(view.group, view.deliveries) for view in parked] == [("suspect", 1)]
    for n in range(10):
        stage.publish("note", "other", n=n)
        stage.wait_for_ended(n + 1, group="other")
    assert stage.traces.all("started", group="suspect") == []

    stage.open_gate()
    more = publish_until_ended(stage, "suspect")
    stage.wait_for_ended(10 + more, group="other")

    [started], [ended] = (
        stage.traces.all(event, group="suspect") for event in ("started", "ended")
    )
    assert started.crashes == 1
    beside = [trace for trace in stage.traces.all() if started.at < trace.at < ended.at]
    assert [trace for trace in beside if trace.event in ("started", "ended")] == []


def publish_until_ended(stage: Stage, group: str) -> int:
    """Publish messages of another group until the one of this group is handled; count them."""
    for published in range(1, 1000):
        stage.publish("note", "other", n=published)
        try:
            stage.wait_for_ended(group=group, seconds=0.05)
        except TimeoutError:
            continue
        return published
    raise TimeoutError(f"{group!r} is not handled")
