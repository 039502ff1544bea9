"""What does a worker do while there is nothing to do, and what wakes it?"""

from __future__ import annotations

import pytest

from tests.servers import Server, wait_until
from tests.worker.stage import Stage

# So that only a hint, or a moment the server named, can be what woke the worker in time.
PATIENT = {"groupqueue.worker.sources.LONGEST_IDLE_SECONDS": 3600}


@pytest.fixture
def idle_stage(stage: Stage) -> Stage:
    """A stage whose workers, once idle, do not look for messages by themselves."""
    stage.plan.constants |= PATIENT
    return stage


def wait_until_idle(stage: Stage) -> None:
    """Return once the worker waits for hints."""

    def waits() -> bool:
        clients = stage.client.client_list(_type="normal")
        return any(client["cmd"] == "blpop" and "b" in client["flags"] for client in clients)

    wait_until(waits, "a worker that waits for a hint")


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_publish_wakes_an_idle_worker(idle_stage: Stage, concurrency: int) -> None:
    idle_stage.publish("note", n=0)
    idle_stage.work("--concurrency", concurrency)
    idle_stage.wait_for_ended(n=0)
    idle_stage.wait_until_drained()

    for n in range(1, 4):
        wait_until_idle(idle_stage)
        idle_stage.publish("note", n=n)
        idle_stage.wait_for_ended(n=n)


def test_a_parked_group_is_handled_when_it_is_due(idle_stage: Stage) -> None:
    idle_stage.configure(BACKOFF=(0.3, 0.3))
    idle_stage.publish("fail", times=3)
    idle_stage.work()

    idle_stage.wait_for_ended()

    assert [trace.attempt for trace in idle_stage.traces.all("started")] == [1, 2, 3, 4]


def test_a_group_whose_worker_died_is_handled_when_its_lease_ends(idle_stage: Stage) -> None:
    idle_stage.configure(VISIBILITY_TIMEOUT=1)
    idle_stage.publish("crash.once")
    idle_stage.work("--processes", 2)

    idle_stage.wait_for_ended()


def test_a_message_behind_a_running_one_is_handled_when_that_ends(idle_stage: Stage) -> None:
    idle_stage.publish("gate", n=0)
    idle_stage.work()
    idle_stage.wait_for_started(n=0)
    other = idle_stage.work()
    idle_stage.wait_for_processes(2)
    idle_stage.publish("note", n=1)

    idle_stage.open_gate()

    idle_stage.wait_for_ended(n=1)
    assert other.log.count("Traceback") == 0


def test_a_hint_that_a_busy_worker_took_reaches_an_idle_one(idle_stage: Stage) -> None:
    idle_stage.publish("gate", "busy")
    idle_stage.work("--concurrency", 1)
    idle_stage.wait_for_started(group="busy")
    idle_stage.work("--concurrency", 1)
    idle_stage.wait_for_processes(2)

    for number in range(6):
        idle_stage.publish("note", f"g{number}")

    idle_stage.wait_for_ended(6, topic="note")


def test_resuming_a_group_wakes_an_idle_worker(idle_stage: Stage) -> None:
    from groupqueue import get_queue

    queue = get_queue(idle_stage.queue)
    idle_stage.publish("note", "first")
    idle_stage.work()
    idle_stage.wait_for_ended(group="first")
    queue.pause("paused")
    idle_stage.publish("note", "paused")
    wait_until_idle(idle_stage)

    queue.resume("paused")

    idle_stage.wait_for_ended(group="paused")


def test_a_hint_lost_with_its_connection_costs_a_bounded_wait(stage: Stage) -> None:
    stage.publish("note", n=0)
    stage.work()
    stage.wait_for_ended(n=0)
    stage.publish("note", n=1)
    stage.client.delete(stage.keys.named("wake"))

    stage.wait_for_ended(n=1)


def test_an_idle_worker_sends_few_commands(valkey_stage: Stage, valkey: Server) -> None:
    valkey_stage.plan.constants |= {"groupqueue.worker.sources.LONGEST_IDLE_SECONDS": 0.25}
    valkey_stage.publish("note")
    valkey_stage.work("--concurrency", 4)
    valkey_stage.wait_for_ended()
    valkey_stage.wait_until_drained()

    polls = calls(valkey_stage, "cmdstat_blpop")
    before = all_calls(valkey_stage)
    wait_until(lambda: calls(valkey_stage, "cmdstat_blpop") >= polls + 5, "five polls")
    sent = all_calls(valkey_stage) - before

    # A turn and a wait per poll, and a heartbeat now and then.
    assert sent <= 2 * 7 + 4


def calls(stage: Stage, name: str) -> int:
    """How often clients sent a command."""
    statistics = stage.client.info("commandstats")
    return int(statistics.get(name, {"calls": 0})["calls"])


def all_calls(stage: Stage) -> int:
    """How many commands clients sent; what scripts run is not among them."""
    statistics = stage.client.info("commandstats")
    sent = ("blpop", "evalsha", "eval", "ping", "hello", "client|setinfo", "select")
    return sum(
        int(figures["calls"])
        for name, figures in statistics.items()
        if name.removeprefix("cmdstat_") in sent
    )
