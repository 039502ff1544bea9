"""What can be seen of the workers from outside, while they live and afterwards?"""

from __future__ import annotations

import os
import re
import signal
import socket
import time

from groupqueue.core.snapshot import Snapshot
from tests.servers import wait_until
from tests.worker.stage import Stage

QUICK = {
    "groupqueue.worker.leases.HEARTBEAT_SECONDS": 0.1,
    "groupqueue.worker.leases.REGISTRY_KEPT_MS": 1500,
}


def test_each_process_says_who_it_is_and_what_it_does(stage: Stage) -> None:
    started_before = int(time.time())
    stage.add_queue(f"{stage.queue}.second")
    queues = [stage.queue, f"{stage.queue}.second"]
    stage.work("--processes", 2, "--concurrency", 3, queues=queues)
    pids = stage.wait_for_processes(2)

    for queue in queues:
        workers = stage.snapshot(queue).workers
        assert sorted(int(worker.fields["pid"]) for worker in workers) == sorted(pids)
        for worker in workers:
            fields = worker.fields
            assert fields["host"] == fields["name"] == socket.gethostname()
            assert fields["queues"] == ",".join(queues)
            assert fields["concurrency"] == "3"
            assert fields["state"] == "working"
            assert started_before <= int(fields["started_at"]) <= time.time()
            assert fields["pid"] in worker.id


def test_the_name_given_to_a_worker_appears_in_the_registry(stage: Stage) -> None:
    stage.work("--name", "night shift")
    stage.wait_for_processes()

    [worker] = stage.snapshot().workers

    assert worker.fields["name"] == "night shift"
    assert re.fullmatch(r"night shift:\d+:[0-9a-f]{8}", worker.id)


def test_heartbeats_tell_what_was_done_and_that_a_worker_is_leaving(stage: Stage) -> None:
    stage.plan.constants |= QUICK
    stage.configure(MAX_ATTEMPTS=1)
    stage.publish_numbered("note", ["g1"], 3)
    stage.publish("fail", "g2")
    worker = stage.work("--concurrency", 2)
    stage.wait_until(lambda snapshot: figures(snapshot) == ("3", "1", "working"), "the figures")
    stage.publish("gate", "g3")
    stage.wait_for_started(topic="gate")

    worker.signal()

    stage.wait_until(lambda snapshot: figures(snapshot) == ("3", "1", "asked to"), "the new state")


def figures(snapshot: Snapshot) -> tuple[str, str, str] | None:
    """Return processed, failed and state of the only worker; None when it is not there."""
    if not snapshot.workers:
        return None
    fields = snapshot.workers[0].fields
    return fields["processed"], fields["failed"], fields["state"]


def test_a_worker_that_has_left_is_not_in_the_registry(stage: Stage) -> None:
    worker = stage.work("--processes", 2)
    stage.wait_for_processes(2)

    worker.signal()
    worker.wait()

    assert stage.snapshot().workers == ()
    assert list(stage.client.scan_iter(f"{stage.keys.prefix}:worker*")) == []


def test_a_worker_that_handed_its_messages_back_is_not_in_the_registry(stage: Stage) -> None:
    stage.publish("gate")
    worker = stage.work("--shutdown-timeout", 0.1)
    stage.wait_for_started()

    worker.signal()
    worker.wait()

    assert stage.snapshot().workers == ()


def test_a_killed_process_is_forgotten_when_its_heartbeats_are_missed(stage: Stage) -> None:
    stage.plan.constants |= QUICK
    stage.work("--processes", 2)
    victim, _ = stage.wait_for_processes(2)
    wait_until(lambda: len(stage.snapshot().workers) == 2, "both in the registry")
    [entry] = [worker for worker in stage.snapshot().workers if worker.fields["pid"] == str(victim)]

    os.kill(victim, signal.SIGKILL)

    wait_until(lambda: entry.id not in {w.id for w in stage.snapshot().workers}, "its oblivion")
    wait_until(lambda: not stage.client.exists(stage.keys.worker(entry.id)), "the end of its key")


def test_a_killed_worker_leaves_nothing_that_does_not_expire(stage: Stage) -> None:
    stage.work()
    [pid] = stage.wait_for_processes()
    [entry] = stage.snapshot().workers
    assert entry.fields["pid"] == str(pid)

    assert 0 < stage.client.pttl(stage.keys.worker(entry.id)) <= 60_000


def test_heartbeats_come_while_a_handler_runs_inline(stage: Stage) -> None:
    stage.plan.constants |= QUICK
    stage.publish("gate")
    stage.work()
    stage.wait_for_started()
    [first] = stage.snapshot().workers

    stage.wait_until(lambda snapshot: snapshot.workers[0].seen_at > first.seen_at, "a heartbeat")


def test_the_holder_of_a_group_is_named_by_its_worker_id(stage: Stage) -> None:
    stage.publish("gate")
    stage.work()
    [started] = stage.wait_for_started()

    [leased] = stage.snapshot().leased

    assert leased.holder == stage.snapshot().workers[0].id
    assert str(started.pid) in leased.holder
