"""Does each fault do what it says, and does a plan have them all?"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest
import redis

from proof.plan import Plan
from proof.records import Recorder, read_records
from proof.soak.intent import FATES, calls
from proof.soak.nemesis import EVERYDAY, FAULTS, Nemesis, NotPossible, Step, plan
from proof.soak.stage import Stage
from proof.soak.troupe import Actor, Part, children_of
from tests.servers import wait_until

CHANCE = random.Random(1)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A server of its own, behind a proxy; no actor has been started."""
    with closing(Stage("valkey", _plan(tmp_path))) as stage:
        yield stage


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Stage]:
    """The same with a replica."""
    with closing(Stage("valkey", _plan(tmp_path), with_replica=True)) as stage:
        yield stage


@pytest.fixture(scope="module")
def busy_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One with actors."""
    with closing(Stage("valkey", _plan(tmp_path_factory.mktemp("soak")))) as stage:
        stage.troupe.start()
        yield stage


def _plan(folder: Path) -> Plan:
    return Plan(folder=str(folder), queue="soak-test", url="", seed=1, rate=10)


def _fault(name: str, stage: Stage, seconds: float = 0.5) -> AbstractContextManager[dict[str, Any]]:
    return FAULTS[name].begin(stage, CHANCE, seconds)


# Plans ------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_plan() -> None:
    assert plan(7, 60, EVERYDAY) == plan(7, 60, EVERYDAY)
    assert plan(7, 60, EVERYDAY) != plan(8, 60, EVERYDAY)


@pytest.mark.parametrize("seconds", [14, 45, 600])
def test_a_plan_has_each_fault_before_any_comes_again(seconds: float) -> None:
    steps = plan(3, seconds, EVERYDAY)
    assert {step.fault for step in steps[: len(EVERYDAY)]} == set(EVERYDAY)
    assert all(step.at_seconds < seconds for step in steps)


def test_a_run_that_is_too_short_for_all_faults_is_refused() -> None:
    with pytest.raises(ValueError, match="12 faults need 14 seconds, not 10"):
        plan(3, 10, EVERYDAY)


def test_the_same_seed_gives_a_publisher_the_same_messages() -> None:
    first, second = calls(5, "publisher-0"), calls(5, "publisher-0")
    assert [next(first) for _ in range(50)] == [next(second) for _ in range(50)]


def test_a_publisher_soon_has_every_fate_and_every_way_to_publish() -> None:
    publishing = calls(5, "publisher-1")
    some = [next(publishing) for _ in range(200)]
    fates = {message.fate for call in some for message in call.messages}
    assert fates >= {fate.name for fate in FATES}
    assert {call.way for call in some} == {"one", "many", "async one", "async many", "commit"}


# Faults of the server ----------------------------------------------------------------------


def test_flushed_scripts_are_unknown(stage: Stage) -> None:
    with stage.client() as client:
        sha = client.script_load("return 1")
        with _fault("flush_scripts", stage):
            assert client.script_exists(sha) == [False]


def test_a_server_whose_clients_are_paused_does_not_answer(stage: Stage) -> None:
    impatient = redis.Redis.from_url(stage.server.url, socket_timeout=0.2, retry=None)
    with impatient, _fault("pause_clients", stage, seconds=60), pytest.raises(redis.TimeoutError):
        impatient.set("key", "value")


def test_a_killed_server_comes_back_with_its_data(stage: Stage) -> None:
    with stage.client() as client:
        client.set("key", "value")
    pid = stage.server.pid
    with _fault("kill_server", stage), stage.client() as client:
        assert client.get("key") == b"value"
        assert client.config_get("appendfsync") == {"appendfsync": "always"}
    assert stage.server.pid != pid


def test_a_server_without_memory_refuses_to_write_until_it_is_given_some(stage: Stage) -> None:
    with stage.client() as client:
        with _fault("fill_memory", stage), pytest.raises(redis.OutOfMemoryError):
            client.set("key", "value")
        client.set("key", "value")


def test_a_failover_loses_what_the_replica_was_not_sent_and_keeps_the_rest(pair: Stage) -> None:
    confirmed: list[int] = []
    _confirm_a_publish(pair)
    with pair.client() as client:
        client.set("key", "value")
        assert client.wait(1, 20_000) == 1

        def count() -> None:
            try:
                while True:
                    confirmed.append(client.incr("count"))
            except redis.ConnectionError:
                return

        counter = threading.Thread(target=count)
        counter.start()
        with _fault("failover", pair):
            counter.join(20)
    with redis.Redis.from_url(pair.proxy.url, retry=None) as client:
        assert client.get("key") == b"value"
        assert int(client.get("count") or 0) < confirmed[-1]
        # The old primary is the new one's replica.
        client.set("key", "another")
        assert client.wait(1, 20_000) == 1


def test_a_failover_waits_for_a_confirmed_publish_each_time(pair: Stage) -> None:
    for _ in range(2):
        with pytest.raises(NotPossible, match="no publish was confirmed"), _fault("failover", pair):
            pass
        _confirm_a_publish(pair)
        with _fault("failover", pair):
            pass


def _confirm_a_publish(stage: Stage) -> None:
    recorder = Recorder(stage.plan.records / "publisher-0-0.jsonl")
    recorder.write("publish", phase="ok", id="1", group="a", queue=stage.plan.queue)
    recorder.close()


# Faults of the actors -----------------------------------------------------------------------


def test_a_killed_worker_process_is_replaced(busy_stage: Stage) -> None:
    _wait_for_workers(busy_stage)
    with _fault("kill_worker", busy_stage) as told:
        wait_until(lambda: told["killed"] not in _workers(busy_stage), "its end")
    _wait_for_workers(busy_stage)


def test_a_stopped_worker_process_goes_on_afterwards(busy_stage: Stage) -> None:
    _wait_for_workers(busy_stage)
    with _fault("stop_worker", busy_stage) as told:
        wait_until(lambda: _state(told["target"]) == "T", "the process to stop")
    wait_until(lambda: _state(told["target"]) != "T", "the process to go on")


def test_a_killed_supervisor_is_replaced_and_its_processes_leave(busy_stage: Stage) -> None:
    _wait_for_workers(busy_stage)
    with _fault("kill_supervisor", busy_stage) as told:
        orphans = [child.pid for child in busy_stage.troupe._orphans]
        wait_until(lambda: told["killed"] not in _pids(busy_stage, "worker"), "its end")
    assert orphans
    wait_until(lambda: not any(map(_state, orphans)), "the end of its processes", seconds=40)
    _wait_for_workers(busy_stage)


def test_a_killed_publisher_is_replaced(busy_stage: Stage) -> None:
    wait_until(lambda: all(_pids(busy_stage, "publisher")), "the publishers")
    with _fault("kill_publisher", busy_stage) as told:
        wait_until(lambda: told["killed"] not in _pids(busy_stage, "publisher"), "its end")
    wait_until(lambda: all(_pids(busy_stage, "publisher")), "another publisher")


def _workers(stage: Stage) -> list[int]:
    return [pid for parent in _pids(stage, "worker") if parent for pid in children_of(parent)]


def _wait_for_workers(stage: Stage) -> None:
    wait_until(lambda: len(_workers(stage)) == 4, "all worker processes", seconds=60)


def _pids(stage: Stage, part: str) -> list[int | None]:
    actors: list[Actor] = stage.troupe.of(part)  # type: ignore[arg-type]
    return [actor.pid for actor in actors]


def _state(pid: int) -> str:
    """Return the letter of a process's state; nothing when it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    letter = stat.rpartition(")")[2].split()[0]
    return "" if letter == "Z" else letter


# The nemesis --------------------------------------------------------------------------------


def test_the_nemesis_writes_down_each_fault_and_ends_those_that_last(
    stage: Stage, tmp_path: Path
) -> None:
    steps = [Step(0, "flush_scripts", 0), Step(0.01, "fill_memory", 60)]
    folder = tmp_path / "nemesis"
    folder.mkdir()
    nemesis = Nemesis(stage, steps, 1, Recorder(folder / "nemesis.jsonl"))
    nemesis.run(0.1, threading.Event())

    assert nemesis.fired == {"flush_scripts": 1, "fill_memory": 1}
    assert [(record.phase, record.fields["fault"]) for record in read_records(folder)] == [
        ("invoke", "flush_scripts"),
        ("ok", "flush_scripts"),
        ("invoke", "fill_memory"),
        ("ok", "fill_memory"),
    ]
    with stage.client() as client:
        assert client.config_get("maxmemory") == {"maxmemory": "0"}


def test_a_fault_that_finds_nothing_to_hurt_is_not_counted(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "nemesis"
    folder.mkdir()
    recorder = Recorder(folder / "nemesis.jsonl")
    nemesis = Nemesis(stage, [Step(0, "cut_connections", 0)], 1, recorder)
    is_over = threading.Event()
    run = threading.Thread(target=nemesis.run, args=(0.1, is_over))
    run.start()
    wait_until(lambda: len(read_records(folder)) >= 4, "another attempt")
    is_over.set()
    run.join(20)
    assert not nemesis.fired
    assert {record.phase for record in read_records(folder)} == {"invoke", "fail"}


def test_a_fault_is_tried_until_it_hurts_something(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "nemesis"
    folder.mkdir()
    recorder = Recorder(folder / "nemesis.jsonl")
    nemesis = Nemesis(stage, [Step(0, "cut_connections", 0)], 1, recorder)
    run = threading.Thread(target=nemesis.run, args=(0.1, threading.Event()))
    run.start()
    wait_until(lambda: len(read_records(folder)) >= 2, "the first attempt")
    with redis.Redis.from_url(stage.proxy.url, retry=None) as client:
        client.ping()
        run.join(20)
    assert nemesis.fired == {"cut_connections": 1}


# The actors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["publisher", "operator"])
def test_an_actor_ends_when_it_is_told_to_while_it_works(tmp_path: Path, part: Part) -> None:
    with closing(Stage("valkey", _plan(tmp_path))) as stage:
        stage.troupe.start()
        wait_until(lambda: len(list(stage.plan.records.glob(f"{part}-*"))) > 0, "its records")
        assert stage.troupe.dismiss(part) == []
