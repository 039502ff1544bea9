"""How does a worker leave: at once, in good order, and never without giving back what it holds?"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.servers import Server
from tests.worker.stage import Stage, Worker
from tests.worker.test_idling import wait_until_idle
from tests.worker.traces import Trace

CONCURRENCIES = pytest.mark.parametrize("concurrency", [1, 3])


def start_at_gate(
    stage: Stage, *options: object, topic: str = "gate", started_by: Iterable[str] = ()
) -> tuple[Worker, Trace]:
    """Start a worker whose handler is held at its gate, with a message behind."""
    stage.publish(topic, "held", n=0)
    stage.publish("note", "held", n=1)
    worker = stage.work(*options, started_by=started_by)
    [started] = stage.wait_for_started(group="held")
    return worker, started


@pytest.mark.parametrize(
    ("number", "concurrency"), [(signal.SIGTERM, 1), (signal.SIGTERM, 3), (signal.SIGINT, 1)]
)
def test_failure_35_the_first_signal_lets_running_handlers_finish_and_claims_nothing_more(
    stage: Stage, number: signal.Signals, concurrency: int
) -> None:
    worker, _ = start_at_gate(stage, "--concurrency", concurrency)

    worker.signal(number)
    stage.traces.wait_for("worker_stopping")
    stage.publish("note", "other")
    stage.open_gate()

    assert worker.wait() == 0
    assert [(trace.topic, trace.n) for trace in stage.traces.all("ended")] == [("gate", 0)]
    assert stage.backlog() == 2
    assert stage.snapshot().counters["acked"] == 1
    assert "1 processed, 0 failed, 0 restarts" in worker.printed


@pytest.mark.parametrize(
    ("number", "concurrency", "topic"),
    [
        (signal.SIGTERM, 1, "gate"),
        (signal.SIGTERM, 3, "gate"),
        (signal.SIGINT, 1, "gate.async"),
        (signal.SIGINT, 3, "gate.async"),
    ],
)
def test_failure_35_the_second_signal_hands_running_messages_back_at_once_and_uncounted(
    stage: Stage, number: signal.Signals, concurrency: int, topic: str
) -> None:
    worker, _ = start_at_gate(stage, "--concurrency", concurrency, topic=topic)
    head = stage.group("held").head_id

    worker.signal(number)
    stage.traces.wait_for("worker_stopping")
    worker.signal(number)

    assert worker.wait() == 0
    assert stage.traces.all("ended") == []
    view = stage.group("held")
    assert (view.state, view.head_id, view.depth) == ("due", head, 2)
    assert (view.deliveries, view.failures) == (0, 0)
    assert len(stage.traces.all("worker_stopped")) == 1

    stage.open_gate()
    stage.work()
    ended = stage.wait_for_ended(2)
    assert [(trace.n, trace.deliveries, trace.crashes) for trace in ended] == [(0, 1, 0), (1, 1, 0)]


# Under a shell, and as process 1 ----------------------------------------------------------------

TWICE = pytest.mark.parametrize("times", [1, 2])


@TWICE
def test_failure_35_a_worker_that_a_shell_made_way_for_drains_and_leaves_on_a_second_sigterm(
    stage: Stage, times: int
) -> None:
    worker, started = start_at_gate(stage, started_by=("sh", "-c", 'exec "$@"', "sh"))

    for _ in range(times):
        worker.signal()
        stage.traces.wait_for("worker_stopping")

    assert_drained_or_handed_back(stage, worker, started, times)
    assert worker.wait() == 0


@TWICE
def test_failure_35_a_worker_under_a_shell_drains_and_leaves_when_all_get_sigterm(
    stage: Stage, times: int
) -> None:
    # As service managers send it; the shell itself is gone with the first.
    script = '"$@"; echo "the shell has something to do afterwards"'
    worker, started = start_at_gate(stage, started_by=("sh", "-c", script, "sh"))

    for _ in range(times):
        worker.signal_all(signal.SIGTERM)
        stage.traces.wait_for("worker_stopping")

    assert_drained_or_handed_back(stage, worker, started, times)
    worker.wait_until_gone()


def assert_drained_or_handed_back(stage: Stage, worker: Worker, started: Trace, times: int) -> None:
    """Expect what becomes of a message at its gate when its worker was told to stop so often."""
    if times == 1:
        stage.open_gate()
    worker.wait_until_gone()
    ended = [(trace.id, trace.deliveries) for trace in stage.traces.all("ended")]
    view = stage.group("held")
    if times == 1:
        assert (ended, view.depth) == ([(started.id, 1)], 1)
    else:
        assert (ended, view.depth, view.head_id) == ([], 2, started.id)
        assert (view.state, view.deliveries) == ("due", 0)


def as_process_1() -> tuple[str, ...] | None:
    """Return what starts a program as process 1 of a world of its own, where that is permitted."""
    for own_user in ((), ("--user", "--map-root-user")):
        command = ("unshare", *own_user, "--pid", "--fork", "--kill-child")
        try:
            subprocess.run([*command, "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return command
    return None


if (isolating := as_process_1()) is not None:

    @TWICE
    def test_failure_35_a_worker_that_is_process_1_drains_and_leaves_on_a_second_sigterm(
        stage: Stage, times: int
    ) -> None:
        worker, started = start_at_gate(stage, started_by=isolating)
        children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children")
        [first] = map(int, children.read_text().split())
        assert Path(f"/proc/{first}/status").read_text().split("NSpid:")[1].split()[1] == "1"

        for _ in range(times):
            os.kill(first, signal.SIGTERM)
            stage.traces.wait_for("worker_stopping")

        assert_drained_or_handed_back(stage, worker, started, times)
        assert worker.wait() == 0


def test_every_message_in_hand_is_handed_back(stage: Stage) -> None:
    groups = [f"g{number}" for number in range(6)]
    for group in groups:
        stage.publish("gate", group)
    worker = stage.work("--processes", 2, "--concurrency", 3)
    stage.wait_for_started(6)

    worker.signal()
    stage.traces.wait_for("worker_stopping", 2)
    worker.signal()

    assert worker.wait() == 0
    snapshot = stage.snapshot()
    assert {(view.group, view.deliveries) for view in snapshot.waiting} == {(g, 0) for g in groups}
    assert snapshot.counters["released"] == 6


@pytest.mark.parametrize("topic", ["gate", "gate.async"])
@CONCURRENCIES
def test_failure_04_what_is_unfinished_when_the_shutdown_timeout_ends_is_handed_back(
    stage: Stage, concurrency: int, topic: str
) -> None:
    options = ("--concurrency", concurrency, "--shutdown-timeout", 0.3)
    worker, started = start_at_gate(stage, *options, topic=topic)

    worker.signal()

    assert worker.wait() == 0
    view = stage.group("held")
    assert (view.state, view.head_id, view.depth) == ("due", started.id, 2)
    assert (view.deliveries, view.failures) == (0, 0)
    assert "left at once; 1 lease was handed back" in worker.log


def test_ctrl_c_reaches_all_processes_and_counts_once(stage: Stage) -> None:
    worker, _ = start_at_gate(stage, "--processes", 2)
    stage.wait_for_processes(2)
    wait_until_idle(stage)  # with no turn of the other one under way

    worker.signal_all(signal.SIGINT)
    stage.traces.wait_for("worker_stopping", 2)
    stage.open_gate()

    assert worker.wait() == 0
    assert [trace.n for trace in stage.traces.all("ended")] == [0]
    assert "Traceback" not in worker.log


def test_sigterm_to_all_processes_counts_once(stage: Stage) -> None:
    worker, _ = start_at_gate(stage, "--processes", 2)
    stage.wait_for_processes(2)
    wait_until_idle(stage)  # with no turn of the other one under way

    worker.signal_all(signal.SIGTERM)
    stage.traces.wait_for("worker_stopping", 2)
    stage.open_gate()

    assert worker.wait() == 0
    assert [trace.n for trace in stage.traces.all("ended")] == [0]


def test_ctrl_c_twice_hands_back(stage: Stage) -> None:
    worker, _ = start_at_gate(stage)

    worker.signal_all(signal.SIGINT)
    stage.traces.wait_for("worker_stopping")
    worker.signal_all(signal.SIGINT)

    assert worker.wait() == 0
    assert stage.group("held").deliveries == 0


def test_sigterm_to_one_process_drains_and_replaces_it_and_leaves_the_others_at_work(
    stage: Stage,
) -> None:
    worker, started = start_at_gate(stage, "--processes", 2)
    stage.wait_for_processes(2)

    os.kill(started.pid, signal.SIGTERM)
    [stopping] = stage.traces.wait_for("worker_stopping")
    stage.publish("note", "other")
    [other] = stage.wait_for_ended(group="other")
    stage.open_gate()
    [gate] = stage.wait_for_ended(topic="gate")
    [behind] = stage.wait_for_ended(topic="note", group="held")

    assert (stopping.pid, stopping.reason) == (started.pid, "SIGTERM")
    assert gate.pid == started.pid
    assert {other.pid, behind.pid}.isdisjoint({started.pid})
    assert stage.wait_for_processes(3)[2] != started.pid
    worker.signal()
    assert worker.wait() == 0
    assert "a worker process died (exit code 0, SIGTERM); it is replaced" in worker.log


def test_sigterm_twice_to_one_process_hands_back_what_it_holds(stage: Stage) -> None:
    worker, started = start_at_gate(stage, "--processes", 2)
    stage.wait_for_processes(2)

    os.kill(started.pid, signal.SIGTERM)
    stage.traces.wait_for("worker_stopping")
    os.kill(started.pid, signal.SIGTERM)

    again = stage.wait_for_started(2, topic="gate")[1]
    assert again.pid != started.pid
    assert (again.deliveries, again.crashes) == (1, 0)
    worker.signal()


def test_the_second_signal_hands_back_what_a_turn_in_flight_has_claimed(stage: Stage) -> None:
    stage.configure(VISIBILITY_TIMEOUT=3600)
    stage.add_app("slow", SLOW_CLAIMS)
    stage.publish("note", "slow")
    worker = stage.work()
    stage.traces.wait_for("claimed")

    worker.signal()
    stage.traces.wait_for("worker_stopping")
    worker.signal()

    assert worker.wait() == 0
    view = stage.group("slow")
    assert (view.state, view.deliveries) == ("due", 0)
    assert stage.traces.all("started") == []


def test_a_process_that_leaves_an_overdue_handler_hands_back_what_a_turn_in_flight_has_claimed(
    stage: Stage,
) -> None:
    stage.configure(VISIBILITY_TIMEOUT=3600, HANDLER_TIMEOUT=1.5)
    stage.add_app("slow", SLOW_CLAIMS)
    stage.publish("gate", "overdue")
    stage.work("--concurrency", 2)
    [started] = stage.wait_for_started(group="overdue")
    stage.publish("note", "slow")
    [claimed] = stage.traces.wait_for("claimed")
    assert claimed.pid == started.pid

    again = stage.traces.wait_for("claimed", 2)[1]
    stage.open_gate("claim")
    [note] = stage.wait_for_ended(group="slow")

    assert claimed.pid != again.pid == note.pid
    assert (note.deliveries, note.crashes) == (1, 0)
    # The overdue one is to count a crash: it keeps its lease.
    view = stage.group("overdue")
    assert (view.state, view.token) == ("leased", started.token)


SLOW_CLAIMS = """
from pathlib import Path

from groupqueue.transport.redis import RedisTransport
from tests.servers import wait_until
from tests.worker.project.handlers import PATIENCE_SECONDS, PLAN, traces

begin = RedisTransport.begin

def begin_slow(transport, call):
    answer = begin(transport, call)

    def slow_answer():
        # A reply that takes long to arrive.
        turned = answer()
        if any(row[0] == b"slow" for row in turned.rows):
            traces.leave("claimed")
            gate = Path(PLAN.directory, "gate-claim")
            every = Path(PLAN.directory, "gate-every")
            wait_until(
                lambda: gate.exists() or every.exists(), "the gate", seconds=PATIENCE_SECONDS
            )
        return turned

    return slow_answer

RedisTransport.begin = begin_slow
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_checks_before_the_start_ends_the_worker(
    stage: Stage, number: signal.Signals
) -> None:
    stage.add_app("checked", SLOW_CHECK)
    worker = stage.work()
    stage.traces.wait_for("checking")

    worker.signal(number)

    assert worker.wait() == 0
    assert "Traceback" not in worker.log
    assert stage.traces.all("worker_started") == []


SLOW_CHECK = """
import time

from django.core import checks

from tests.worker.project.handlers import PATIENCE_SECONDS, traces

@checks.register
def check(**_):
    traces.leave("checking")
    time.sleep(PATIENCE_SECONDS)
    return []
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("by", ["fork", "program"])
def test_a_process_that_a_handler_starts_can_be_ended_by_signals(
    stage: Stage, by: str, number: signal.Signals
) -> None:
    stage.publish("parent", by=by)
    worker = stage.work()
    [child] = stage.traces.wait_for("child")

    os.kill(child.details.get("child_pid", child.pid), number)

    [ended] = stage.wait_for_ended()
    assert ended.exit_code != 0
    assert len(stage.traces.all("worker_started")) == 1
    worker.signal()
    assert worker.wait() == 0


def test_a_process_that_can_do_nothing_any_more_is_ended_by_the_supervisor(stage: Stage) -> None:
    stage.plan.constants["groupqueue.worker.supervisor.LEAVING_SECONDS"] = 0.5
    stage.publish("freeze", seconds=60)
    worker = stage.work("--shutdown-timeout", 0.2)
    stage.wait_for_started()

    worker.signal()

    assert worker.wait() == 0
    assert "it is killed" in worker.log


def test_a_stopped_process_does_not_keep_its_supervisor_from_leaving(stage: Stage) -> None:
    stage.plan.constants["groupqueue.worker.supervisor.LEAVING_SECONDS"] = 0.5
    worker, started = start_at_gate(stage, "--shutdown-timeout", 0.2)
    os.kill(started.pid, signal.SIGSTOP)

    worker.signal()

    assert worker.wait() == 0


def test_a_signal_before_the_processes_are_ready_is_heeded(stage: Stage) -> None:
    stage.publish("note")
    worker = stage.work()
    worker.wait_for_printed("stop with Ctrl-C")

    worker.signal()

    assert worker.wait() == 0


def test_ctrl_c_before_the_processes_are_ready_is_heeded_without_a_fuss(stage: Stage) -> None:
    worker = stage.work("--processes", 2)
    worker.wait_for_printed("stop with Ctrl-C")

    worker.signal_all(signal.SIGINT)

    assert worker.wait() == 0
    assert "Traceback" not in worker.log


def test_a_process_that_dies_while_draining_is_not_replaced(stage: Stage) -> None:
    worker, started = start_at_gate(stage)
    worker.signal()
    stage.traces.wait_for("worker_stopping")

    os.kill(started.pid, signal.SIGKILL)

    assert worker.wait() == 0
    assert len(stage.traces.all("worker_started")) == 1
    assert stage.group("held").depth == 2


def test_signals_end_a_worker_whose_server_is_gone(valkey_stage: Stage, valkey: Server) -> None:
    valkey_stage.publish("gate")
    worker = valkey_stage.work("--shutdown-timeout", 1)
    valkey_stage.wait_for_started()
    valkey.kill()

    worker.signal()
    valkey_stage.open_gate()

    # The result cannot be delivered: it is kept for as long as the timeout allows.
    assert worker.wait() == 0
    valkey.start()
    view = valkey_stage.group()
    assert (view.depth, view.deliveries) == (1, 1)


def test_ctrl_c_under_reload_drains_before_the_command_ends(stage: Stage) -> None:
    worker, started = start_at_gate(stage, "--reload")

    worker.signal_all(signal.SIGINT)
    [stopping] = stage.traces.wait_for("worker_stopping")
    assert (stopping.pid, stopping.reason) == (started.pid, "asked to")
    stage.open_gate()
    stage.traces.wait_for("worker_stopped")

    assert worker.wait() == 0
    assert [trace.n for trace in stage.traces.all("ended")] == [0]
    assert stage.backlog() == 1
    assert len(stage.traces.all("worker_started")) == 1
    assert "1 processed, 0 failed" in worker.printed


def test_ctrl_c_twice_under_reload_hands_back(stage: Stage) -> None:
    worker, _ = start_at_gate(stage, "--reload")

    worker.signal_all(signal.SIGINT)
    stage.traces.wait_for("worker_stopping")
    worker.signal_all(signal.SIGINT)

    assert worker.wait() == 0
    assert stage.group("held").deliveries == 0
