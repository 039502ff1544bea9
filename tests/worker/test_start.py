"""What does a worker check, say and refuse when it starts, and what if it cannot start at all?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from pytest_django import Settings

from tests.servers import Server, start_server
from tests.worker.stage import REPOSITORY, Stage

PASSWORD = "moonlight"


@pytest.fixture
def evicting_server(tmp_path: Path) -> Iterator[Server]:
    """A server that throws keys away when memory runs out."""
    arguments = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    server = start_server("valkey", tmp_path / "evicting", extra_args=arguments)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def guarded_server(tmp_path: Path) -> Iterator[Server]:
    """A server with a password."""
    server = start_server("valkey", tmp_path / "guarded", extra_args=("--requirepass", PASSWORD))
    try:
        yield server
    finally:
        server.stop()


def test_failure_26_a_server_that_evicts_keys_is_refused(
    stage: Stage, evicting_server: Server
) -> None:
    stage.add_queue("evicting", CONNECTION=evicting_server.url)
    worker = stage.work(queues=["evicting"])

    assert worker.wait() == 1
    assert "CommandError: queue 'evicting': maxmemory-policy is allkeys-lru" in worker.log
    assert "Set maxmemory-policy to noeviction" in worker.log
    assert "--unsafe-server" in worker.log
    assert stage.traces.all("worker_started") == []


def test_failure_26_a_server_that_evicts_keys_is_used_if_asked_to(
    stage: Stage, evicting_server: Server
) -> None:
    stage.add_queue("evicting", CONNECTION=evicting_server.url)
    stage.publish("note", queue="evicting")
    worker = stage.work("--unsafe-server", "--burst", queues=["evicting"])

    assert worker.wait() == 0
    assert "maxmemory-policy is allkeys-lru" in worker.log
    assert len(stage.traces.all("ended")) == 1


def test_failure_24_a_user_without_a_permission_is_refused_by_its_name(
    stage: Stage, default_client: redis.Redis
) -> None:
    user = f"user-{uuid.uuid4().hex}"
    rules = ("on", f">{PASSWORD}", "~gq:*", "+@all", "-hmget")
    default_client.execute_command("ACL", "SETUSER", user, *rules)
    try:
        _, server = str(stage.plan.queues[stage.queue]["CONNECTION"]).split("//")
        stage.add_queue("restricted", CONNECTION=f"redis://{user}:{PASSWORD}@{server}")
        worker = stage.work("--unsafe-server", queues=["restricted"])

        assert worker.wait() == 1
    finally:
        default_client.acl_deluser(user)
    assert "the Redis user may not send hmget for the keys gq:{restricted:0}:*" in worker.log
    assert f"ACL SETUSER {user} ~gq:* +hmget" in worker.log
    assert "could lose messages" not in worker.log
    assert stage.traces.all("worker_started") == []


def test_no_password_is_shown(stage: Stage, guarded_server: Server) -> None:
    url = f"redis://:{PASSWORD}@127.0.0.1:{guarded_server.port}/0"
    stage.add_queue("guarded", CONNECTION=url)
    stage.publish("note", queue="guarded")
    worker = stage.work("--burst", "--verbosity", 3, queues=["guarded"])

    assert worker.wait() == 0
    assert f"queue    guarded at redis://127.0.0.1:{guarded_server.port}/0" in worker.printed
    assert len(stage.traces.all("ended")) == 1
    assert PASSWORD not in worker.printed + worker.log


def test_a_wrong_password_is_reported_without_it(stage: Stage, guarded_server: Server) -> None:
    url = f"redis://:not-{PASSWORD}@127.0.0.1:{guarded_server.port}/0"
    stage.add_queue("guarded", CONNECTION=url)
    worker = stage.work(queues=["guarded"])
    stage.wait_for_processes()

    worker.wait_for_logged("trying again")
    worker.signal()

    assert worker.wait() == 0
    assert "Redis refuses the credentials" in worker.log
    assert PASSWORD not in worker.printed + worker.log


@pytest.mark.parametrize("failure", ["raise", "exit"])
def test_processes_that_never_start_end_the_worker_with_an_error(
    stage: Stage, failure: str
) -> None:
    stage.plan.broken_children = failure
    stage.plan.constants["groupqueue.worker.supervisor.FAILED_STARTS_TOLERATED"] = 1
    worker = stage.work()

    assert worker.wait() == 1
    assert "a worker process died (exit code" in worker.log
    assert "a worker process died for good" in worker.log
    assert "CommandError: a worker process died for good; see the log" in worker.log
    assert "1 restart" in worker.printed


def test_processes_that_start_are_drained_when_another_never_does(stage: Stage) -> None:
    stage.plan.constants["groupqueue.worker.supervisor.FAILED_STARTS_TOLERATED"] = 0
    stage.publish("gate")
    worker = stage.work("--processes", 2)
    stage.wait_for_processes(2)
    stage.wait_for_started()
    stage.plan.broken_children = "exit"
    stage.plan.write()

    stage.publish("crash.once", "deadly")
    stage.traces.wait_for("worker_stopping")
    stage.open_gate()

    assert worker.wait() == 1
    assert len(stage.traces.all("ended", topic="gate")) == 1


@pytest.mark.parametrize("failure", ["improper", "handler"])
def test_a_wrong_configuration_in_a_process_ends_the_worker_at_once(
    stage: Stage, failure: str
) -> None:
    stage.plan.broken_children = failure
    worker = stage.work("--processes", 2)

    assert worker.wait() == 1
    assert "died for good (exit code 78)" in worker.log
    assert "it is replaced" not in worker.log
    assert "0 restarts" in worker.printed


def test_a_setting_that_is_wrong_in_a_process_ends_the_worker_at_once(stage: Stage) -> None:
    stage.plan.broken_children = "setting"
    worker = stage.work()

    assert worker.wait() == 1
    assert f"GROUPQUEUE['{stage.queue}']['VISIBILITY_TIMEOUT']" in worker.log
    assert "0 restarts" in worker.printed
    assert "Traceback" not in worker.log


@pytest.mark.parametrize(("noted", "shown"), [(1000, "schema 1000"), ("abc", "schema 'abc'")])
def test_failure_36_a_layout_of_the_keys_that_is_not_known_is_left_alone(
    stage: Stage, noted: object, shown: str
) -> None:
    stage.client.hset(stage.keys.named("meta"), "schema", noted)
    stage.publish("note")
    worker = stage.work()

    assert worker.wait() == 1
    assert shown in worker.log
    assert "Traceback" not in worker.log
    assert "0 restarts" in worker.printed
    assert stage.traces.all("started") == []


def test_failure_28_a_worker_waits_for_a_server_that_is_down_and_then_works(
    valkey_stage: Stage, valkey: Server, settings: Settings
) -> None:
    valkey_stage.publish_numbered("note", ["g"], 3)
    valkey.stop()
    worker = valkey_stage.work()
    valkey_stage.wait_for_processes()
    worker.wait_for_logged(f"queue {valkey_stage.queue!r} cannot be reached; trying again")
    assert "Redis is not available" in worker.log

    valkey.start()

    assert [trace.n for trace in valkey_stage.wait_for_ended(3)] == [0, 1, 2]
    assert "replaced" not in worker.log


def test_the_worker_restarts_when_a_handler_is_edited(stage: Stage) -> None:
    handlers = stage.add_app("edited", EDITED_HANDLER.format(word="before"))
    worker = stage.work("--reload")
    stage.publish("edited")
    [before] = stage.traces.wait_for("edited")

    handlers.write_text(EDITED_HANDLER.format(word="edited and longer"))
    stage.wait_for_processes(2)
    stage.publish("edited")
    after = stage.traces.wait_for("edited", 2)[1]

    assert (before.word, after.word) == ("before", "edited and longer")
    assert before.pid != after.pid
    worker.signal()
    worker.wait()
    assert len(stage.traces.all("worker_stopped")) == 2


def test_a_handler_at_work_finishes_when_code_is_edited(stage: Stage) -> None:
    handlers = stage.add_app("edited", EDITED_HANDLER.format(word="before"))
    stage.publish("gate")
    worker = stage.work("--reload")
    [started] = stage.wait_for_started()

    handlers.write_text(EDITED_HANDLER.format(word="edited and longer"))
    stage.traces.wait_for("worker_stopping")
    stage.open_gate()
    stage.wait_for_processes(2)
    stage.publish("edited")

    [ended] = stage.wait_for_ended()
    assert (ended.pid, ended.deliveries) == (started.pid, 1)
    [edited] = stage.traces.wait_for("edited")
    assert edited.word == "edited and longer"
    worker.signal()
    assert worker.wait() == 0


def test_ctrl_c_while_edited_code_is_waited_for_ends_the_worker(stage: Stage) -> None:
    handlers = stage.add_app("edited", EDITED_HANDLER.format(word="before"))
    stage.publish("gate")
    worker = stage.work("--reload")
    stage.wait_for_started()
    handlers.write_text(EDITED_HANDLER.format(word="edited and longer"))
    stage.traces.wait_for("worker_stopping")

    worker.signal_all(signal.SIGINT)
    stage.open_gate()

    assert worker.wait() == 0
    assert len(stage.traces.all("worker_started")) == 1


EDITED_HANDLER = """
from groupqueue import handler
from tests.worker.project.handlers import traces

@handler("edited")
def edited(delivery):
    traces.leave("edited", word={word!r})
"""


def test_a_worker_whose_output_nobody_reads_works_on(stage: Stage) -> None:
    stage.publish("note")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as unread:
        worker = subprocess.run(
            [sys.executable, "-m", "django", "run_group_workers", stage.queue, "--burst"],
            stdout=unread,
            stderr=subprocess.PIPE,
            cwd=REPOSITORY,
            env={**os.environ, **stage.environment()},
            check=False,
            timeout=30,
        )

    assert worker.returncode == 0, worker.stderr
    assert b"BrokenPipe" not in worker.stderr
    assert len(stage.traces.all("ended")) == 1
