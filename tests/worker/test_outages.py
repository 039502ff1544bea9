"""Does a worker come back by itself when the server, its scripts or its connections go away?"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from groupqueue.core.keys import shard_prefix
from groupqueue.exceptions import ServerUnavailable
from groupqueue.transport import scripts
from groupqueue.worker.outages import Outage
from tests.servers import Server, start_server, wait_until
from tests.transport.proxy import Proxy
from tests.worker.stage import Stage, Worker
from tests.worker.test_idling import PATIENT, wait_until_idle
from tests.worker.traces import by_group, without_repeats

GROUPS = [f"g{number}" for number in range(10)]


def publish_load(stage: Stage, count: int) -> None:
    """Publish messages that take a moment each, so that there is time for mishaps."""
    for n, group in itertools.product(range(count), GROUPS):
        stage.publish("work", group, n=n, seconds=0.002)


@contextmanager
def repeatedly(mishap: Callable[[], object]) -> Iterator[None]:
    """Let something happen again and again meanwhile."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(0.01):
            mishap()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_worker_comes_back_after_every_restart_of_the_server(
    own_stage: Stage, own_server: Server
) -> None:
    publish_load(own_stage, 60)
    worker = own_stage.work("--processes", 2, "--concurrency", 3)
    own_stage.wait_for_processes(2)

    for restart in range(2):
        own_stage.wait_for_ended((restart + 1) * 120)
        own_server.kill()
        own_server.start()

    own_stage.wait_until_drained()
    for traces in by_group(own_stage.traces.all("ended")).values():
        assert without_repeats(trace.n for trace in traces) == list(range(60))
    assert "it is replaced" not in worker.log
    assert own_stage.snapshot().counters["published"] == 600


@pytest.mark.parametrize("concurrency", [1, 3])
def test_failure_17_an_idle_worker_comes_back_after_a_restart_of_the_server(
    valkey_stage: Stage, valkey: Server, concurrency: int
) -> None:
    valkey_stage.publish("note", "before")
    valkey_stage.work("--concurrency", concurrency)
    valkey_stage.wait_for_ended(group="before")

    valkey.restart()
    valkey_stage.publish("note", "after")

    valkey_stage.wait_for_ended(group="after")


def test_a_worker_outlives_a_server_that_hangs(valkey_stage: Stage, valkey: Server) -> None:
    valkey_stage.plan.constants["groupqueue.worker.leases.HEARTBEAT_SECONDS"] = 0.1
    valkey_stage.publish("note", "before")
    worker = valkey_stage.work("--concurrency", 2)
    valkey_stage.wait_for_ended(group="before")

    valkey.pause()
    worker.wait_for_logged("cannot be reached by the lease keeper")
    valkey.resume()
    valkey_stage.publish("note", "after")

    valkey_stage.wait_for_ended(group="after")


def test_the_beginning_and_the_end_of_an_outage_are_told_once(
    valkey_stage: Stage, valkey: Server
) -> None:
    valkey_stage.publish("note", "before")
    worker = valkey_stage.work("--concurrency", 2)
    valkey_stage.wait_for_ended(group="before")
    unreachable = f"queue {valkey_stage.queue!r} cannot be reached"

    valkey.stop()
    worker.wait_for_logged(f"{unreachable}; trying again")
    worker.wait_for_logged(f"{unreachable} by the lease keeper; trying again")
    valkey.start()
    worker.wait_for_logged(f"queue {valkey_stage.queue!r} is reached again after")
    worker.wait_for_logged(f"queue {valkey_stage.queue!r} is reached again by the lease keeper")

    assert worker.log.count(unreachable) == 2


def test_an_outage_that_lasts_is_recalled_now_and_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="groupqueue.worker")
    outage = Outage("orders")
    outage.answered()
    for _ in range(100):
        outage.failed(ServerUnavailable("gone"))
    monkeypatch.setattr(outage, "_remind_at", 0.0)
    outage.failed(ServerUnavailable("still gone"))
    outage.failed(ServerUnavailable("still gone"))
    outage.answered()
    outage.answered()
    outage.failed(ServerUnavailable("gone again"))

    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "WARNING", "INFO", "WARNING"]
    first, recalled, over, anew = caplog.messages
    assert first == "queue 'orders' cannot be reached; trying again: gone"
    assert recalled == "queue 'orders' cannot be reached for 0 s; trying again: still gone"
    assert over == "queue 'orders' is reached again after 0.0 s"
    assert anew == "queue 'orders' cannot be reached; trying again: gone again"


def test_failure_22_flushed_scripts_are_sent_again(stage: Stage) -> None:
    publish_load(stage, 30)

    with repeatedly(stage.client.script_flush):
        worker = stage.work("--processes", 2, "--concurrency", 3)
        ended = by_group(stage.wait_for_ended(300))

    assert {group: [trace.n for trace in traces] for group, traces in ended.items()} == {
        group: list(range(30)) for group in GROUPS
    }
    assert "trying again" not in worker.log


@pytest.mark.parametrize("concurrency", [1, 3])
def test_failure_10_no_message_is_handled_twice_when_all_connections_are_killed_again_and_again(
    own_stage: Stage, concurrency: int
) -> None:
    own_stage.configure(VISIBILITY_TIMEOUT=60)
    for group in GROUPS:
        own_stage.publish("gate", group, n=-1)
    publish_load(own_stage, 50)
    own_stage.work("--processes", 2, "--concurrency", concurrency)
    own_stage.wait_for_started(2 * concurrency)

    killed: list[int] = []
    with repeatedly(lambda: killed.append(kill_connections(own_stage.client))):
        wait_until(lambda: sum(killed), "a connection that was killed")
        own_stage.open_gate()
        ended = by_group(own_stage.wait_for_ended(510, seconds=60))
    own_stage.wait_until_drained()

    assert {group: [trace.n for trace in traces] for group, traces in ended.items()} == {
        group: list(range(-1, 50)) for group in GROUPS
    }
    started = own_stage.traces.all("started")
    assert len(started) == 510
    assert {(trace.deliveries, trace.crashes) for trace in started} == {(1, 0)}
    assert own_stage.traces.all("lease_lost") == []
    counters = own_stage.snapshot().counters
    assert counters["acked"] == 510
    # Each delivery was acknowledged, or handed back because its turn's reply was lost.
    assert counters["delivered"] - counters.get("released", 0) == 510


def kill_connections(client: redis.Redis) -> int:
    """Cut every connection but the test's own; return how many."""
    return int(client.client_kill_filter(_type="normal", skipme=True))


def test_a_worker_goes_on_when_its_server_is_replaced_by_one_without_the_data(
    valkey_stage: Stage, valkey: Server
) -> None:
    valkey_stage.publish("gate", "gone")
    valkey_stage.work("--concurrency", 2)
    valkey_stage.wait_for_started(group="gone")

    valkey_stage.client.flushall()
    valkey_stage.open_gate()
    valkey_stage.publish("note", "new")

    valkey_stage.wait_for_ended(group="new")
    valkey_stage.wait_until_drained()


def test_failure_28_a_worker_waits_while_its_server_is_a_replica(own_stage: Stage) -> None:
    own_stage.publish("gate", n=0)
    worker = own_stage.work()
    own_stage.wait_for_started()

    own_stage.client.replicaof("127.0.0.1", "1")
    own_stage.open_gate()
    worker.wait_for_logged("read only replica")
    own_stage.client.replicaof("NO", "ONE")

    own_stage.wait_until_drained()
    assert len(own_stage.traces.all("ended")) == 1


def test_failure_28_a_worker_waits_while_its_server_is_busy_with_a_script(
    valkey_stage: Stage,
) -> None:
    valkey_stage.configure(VISIBILITY_TIMEOUT=60)
    valkey_stage.publish("gate", n=0)
    worker = valkey_stage.work()
    valkey_stage.wait_for_started()
    valkey_stage.client.config_set("busy-reply-threshold", 10)

    with endless_script(valkey_stage.client):
        valkey_stage.open_gate()
        worker.wait_for_logged("trying again")
        valkey_stage.client.script_kill()

    valkey_stage.wait_until_drained()
    assert len(valkey_stage.traces.all("started")) == 1


@contextmanager
def endless_script(client: redis.Redis) -> Iterator[None]:
    """Keep the server busy until somebody kills the script."""

    def run() -> None:
        with pytest.raises(redis.ResponseError, match="killed"):
            client.eval("while true do end", 0)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join()


def test_failure_28_a_worker_waits_while_its_server_loads_its_data(
    own_stage: Stage, own_server: Server
) -> None:
    own_stage.configure(VISIBILITY_TIMEOUT=60)
    own_stage.publish("gate", n=0)
    worker = own_stage.work()
    own_stage.wait_for_started()

    with loading(own_stage.client, own_server.url):
        own_stage.open_gate()
        worker.wait_for_logged("is loading the dataset")

    own_stage.wait_until_drained()
    assert len(own_stage.traces.all("started")) == 1


@contextmanager
def loading(client: redis.Redis, url: str) -> Iterator[None]:
    """Let the server read its data anew, slowly, until the block ends."""
    with client.pipeline(transaction=False) as fill:
        for number in range(500):
            fill.set(f"filler:{number}", b"x" * 2000)
        fill.execute()
    # A look at its clients each so many bytes, and so many µs for each key.
    client.config_set("loading-process-events-interval-bytes", 1024)
    client.config_set("key-load-delay", 100_000)

    def reload() -> None:
        with redis.Redis.from_url(url, retry=None, socket_timeout=120) as patient:
            patient.execute_command("DEBUG", "RELOAD")

    thread = threading.Thread(target=reload)
    thread.start()
    try:
        wait_until(lambda: client.info("persistence")["loading"] == 1, "a server that loads")
        yield
    finally:
        client.config_set("key-load-delay", 0)
        thread.join()


def test_failure_28_a_worker_waits_while_its_servers_cluster_is_down(
    stage: Stage, tmp_path: Path
) -> None:
    server = start_server("valkey", tmp_path / "node", extra_args=["--cluster-enabled", "yes"])
    client = redis.Redis.from_url(server.url, retry=None)
    try:
        stage.add_queue("clustered", CONNECTION=server.url, VISIBILITY_TIMEOUT=60)
        slot = client.execute_command("CLUSTER", "KEYSLOT", shard_prefix("clustered"))
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: is_cluster_up(client), "a cluster that is up")
        stage.publish("gate", queue="clustered")
        worker = stage.work(queues=["clustered"])
        stage.wait_for_started()

        client.execute_command("CLUSTER", "DELSLOTS", slot)
        stage.open_gate()
        worker.wait_for_logged("cannot be reached; trying again")
        client.execute_command("CLUSTER", "ADDSLOTS", slot)

        wait_until(lambda: not client.keys("*:q:*"), "an empty queue in the healed cluster")
        stage.publish("note", queue="clustered")
        stage.wait_for_ended(topic="note")
        assert len(stage.traces.all("started", topic="gate")) == 1
        worker.signal()
        assert worker.wait() == 0
    finally:
        client.close()
        server.stop()


def is_cluster_up(client: redis.Redis) -> bool:
    """Say whether a cluster of one node serves its slots."""
    return "cluster_state:ok" in str(client.execute_command("CLUSTER", "INFO"))


def test_failure_22_a_worker_goes_on_after_a_failover_to_a_server_without_its_scripts(
    own_stage: Stage, own_server: Server, tmp_path: Path
) -> None:
    own_stage.configure(VISIBILITY_TIMEOUT=60)
    own_stage.client.config_set("repl-diskless-sync-delay", 0)
    replicating = ["--replicaof", f"127.0.0.1 {own_server.port}"]
    replica = start_server(own_server.kind, tmp_path / "replica", extra_args=replicating)
    client = redis.Redis.from_url(replica.url, retry=None)
    turn_sha = scripts.load("turn").sha
    try:
        with Proxy(own_server.port) as proxy:
            own_stage.publish("gate", n=0)
            own_stage.publish_numbered("note", ["g", "other"], 5)
            own_stage.work_through(proxy.url)
            worker = own_stage.work()
            own_stage.wait_for_started(topic="gate")
            # All that was answered is there; what is not would be lost with the primary.
            own_stage.client.set("the last word", 1)
            assert own_stage.client.wait(1, 10_000) == 1

            own_server.kill()
            proxy.lead_to(replica.port)
            client.replicaof("NO", "ONE")
            assert client.script_exists(turn_sha) == [False]
            own_stage.open_gate()

            ended = by_group(own_stage.wait_for_ended(11))
            wait_until(lambda: not client.keys("*:q:*"), "an empty queue on the new primary")
            worker.signal()
            assert worker.wait() == 0
    finally:
        client.close()
        replica.stop()
    assert [(trace.topic, trace.n) for trace in ended["g"]] == [
        ("gate", 0),
        *(("note", n) for n in range(5)),
    ]
    assert [trace.n for trace in ended["other"]] == list(range(5))
    assert len(own_stage.traces.all("started")) == 11


def test_failure_25_results_are_delivered_to_a_server_that_is_out_of_memory(
    valkey_stage: Stage,
) -> None:
    valkey_stage.publish("gate", n=0)
    valkey_stage.publish("note", n=1)
    valkey_stage.work()
    valkey_stage.wait_for_started()

    valkey_stage.client.config_set("maxmemory", "1mb")
    valkey_stage.open_gate()

    assert [trace.n for trace in valkey_stage.wait_for_ended(2)] == [0, 1]
    valkey_stage.wait_until_drained()


# One of two servers ------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_server_that_hangs_does_not_hold_up_the_queue_on_another(
    stage: Stage, valkey: Server, concurrency: int
) -> None:
    worker = work_on_two(stage, valkey, concurrency)

    valkey.pause()
    stage.open_gate()
    worker.wait_for_logged("cannot be reached")
    # Were each turn to wait for the server that hangs, this would take minutes.
    for n in range(60):
        stage.publish("note", "healthy", n=n)
        stage.wait_for_ended(n + 1, group="healthy")
    assert stage.traces.all("started", group="elsewhere", topic="note") == []
    valkey.resume()

    stage.wait_for_ended(2, group="elsewhere", topic="note")
    wait_until(lambda: stage.backlog("elsewhere") == 0, "an empty queue on the healed server")
    assert [trace.n for trace in stage.traces.all("ended", group="healthy")] == list(range(60))
    started = stage.traces.all("started", group="elsewhere")
    assert [(trace.topic, trace.n, trace.crashes) for trace in started] == [
        ("gate", None, 0),
        ("note", 0, 0),
        ("note", 1, 0),
    ]


def test_a_suspect_does_not_wait_for_a_server_that_hangs(stage: Stage, valkey: Server) -> None:
    stage.configure(MAX_CRASHES=2)
    stage.plan.constants |= {
        "groupqueue.worker.pump.SUSPECT_PATIENCE_SECONDS": 0.1,
        "groupqueue.worker.pump.SUSPECT_PARKED_SECONDS": 0.1,
    }
    stage.publish_suspect("note", "suspect")
    worker = work_on_two(stage, valkey, 2)
    valkey.pause()
    stage.open_gate()
    worker.wait_for_logged("cannot be reached")

    stage.let_go("suspect")
    stage.wait_until(lambda snapshot: snapshot.counters.get("released"), "the suspect handed back")
    stage.publish("note", "healthy")
    stage.wait_for_ended(group="healthy")
    # Something is beside it: what the other server has not been told yet.
    assert stage.traces.all("started", group="suspect") == []
    valkey.resume()

    stage.wait_for_ended(group="suspect")


def work_on_two(stage: Stage, valkey: Server, concurrency: int) -> Worker:
    """Start a worker of two queues; a message of the one on the other server is at the gate."""
    stage.add_queue("elsewhere", CONNECTION=valkey.url, VISIBILITY_TIMEOUT=60)
    stage.publish("gate", "elsewhere", queue="elsewhere")
    for n in range(2):
        stage.publish("note", "elsewhere", queue="elsewhere", n=n)
    worker = stage.work("--concurrency", concurrency, queues=[stage.queue, "elsewhere"])
    stage.wait_for_started(group="elsewhere")
    return worker


def test_failure_10_a_turn_that_comes_late_leases_nothing_and_counts_no_crash(
    valkey_stage: Stage, valkey: Server
) -> None:
    stage = valkey_stage
    # What the worker sends when it is idle are turns alone.
    stage.plan.constants["groupqueue.worker.leases.HEARTBEAT_SECONDS"] = 3600
    with Proxy(valkey.port) as proxy:
        stage.work_through(proxy.url)
        worker = stage.work()
        stage.wait_for_processes()
        proxy.hold_request()
        worker.wait_for_logged("trying again")
        stage.publish("gate", "busy")
        stage.wait_for_started(group="busy")
        stage.publish("note", "late")

        answer = proxy.deliver_held()

        assert not answer.startswith(b"-")
        assert [view.group for view in stage.snapshot().leased] == ["busy"]
        stage.open_gate()
        [ended] = stage.wait_for_ended(group="late")
        assert (ended.deliveries, ended.crashes) == (1, 0)
        assert len(stage.traces.all("started")) == 2


def test_failure_10_a_claim_whose_reply_was_lost_is_found_and_handed_back_at_once(
    valkey_stage: Stage, valkey: Server
) -> None:
    stage = valkey_stage
    stage.configure(VISIBILITY_TIMEOUT=3600)
    stage.plan.constants |= PATIENT
    stage.plan.constants["groupqueue.worker.leases.HEARTBEAT_SECONDS"] = 3600
    with Proxy(valkey.port) as proxy:
        stage.work_through(proxy.url)
        worker = stage.work()
        stage.wait_for_processes()
        wait_until_idle(stage)
        proxy.lose_reply()

        stage.publish("note")

        [ended] = stage.wait_for_ended()
        stage.wait_until_drained()
    assert (ended.deliveries, ended.crashes) == (1, 0)
    counters = stage.snapshot().counters
    assert (counters["delivered"], counters["released"]) == (2, 1)
    assert "leases of a turn without a reply were handed back" in worker.log
