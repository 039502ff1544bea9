"""Does a soak's end tell what was not handled, and what is wrong with the queue's data?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from groupqueue.core.keys import ShardKeys
from proof import history
from proof.plan import Plan
from proof.records import Recorder, read_records
from proof.soak import verify
from proof.soak.stage import Stage
from proof.stamps import stamped


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A queue nobody works on."""
    plan = Plan(folder=str(tmp_path), queue="soak-test", url="", seed=1)
    with stamped(), closing(Stage("valkey", plan)) as stage:
        yield stage


def publish(stage: Stage, group: str) -> None:
    transport = stage.transport()
    transport.publish(group, b"{}")
    transport.close()


def test_an_empty_queue_is_drained(stage: Stage) -> None:
    assert verify.drain(stage, seconds=0.1) == []


def test_of_what_is_not_handled_it_is_told_why(stage: Stage) -> None:
    publish(stage, "forgotten")
    told = verify.drain(stage, seconds=0.1)
    assert any(line.startswith("forgotten: due, ") for line in told)


def test_what_is_paused_goes_on_while_the_queue_drains(stage: Stage) -> None:
    publish(stage, "held")
    with stage.client() as client:
        keys = ShardKeys(stage.prefix)
        client.zadd(keys.ready(0), {"held": "inf"})
        client.hset(keys.named("paused"), "held", "paused 1 by hand")
    told = verify.drain(stage, seconds=0.5)
    assert any(line.startswith("held: due, ") for line in told)


def test_a_sound_queue_passes_the_audit(stage: Stage) -> None:
    publish(stage, "sound")
    assert verify.audit(stage) == []


def test_the_audit_tells_what_is_wrong(stage: Stage) -> None:
    publish(stage, "forgotten")
    with stage.client() as client:
        client.delete(ShardKeys(stage.prefix).ready(0))
    [told] = verify.audit(stage)
    assert "not-ready" in told
    assert "forgotten" in told


def test_a_message_that_is_gone_counts_as_lost(stage: Stage) -> None:
    publish(stage, "a")
    publish(stage, "b")
    with stage.client() as client:
        client.delete(ShardKeys(stage.prefix).fifo("a"))
    verdict, _ = verify.judge(stage, is_drained=False, audit=[])
    assert verdict.lost == 1


def turn(stage: Stage, worker: str) -> None:
    transport = stage.transport()
    transport.turn(worker, [], 1, visibility=1)
    transport.close()


def test_actors_that_do_nothing_stay_away(stage: Stage) -> None:
    everybody = [
        *("publisher-0", "publisher-1", "operator-0", "2 of 2 processes of worker-0"),
        *("1 of 1 processes of worker-1", "1 of 1 processes of worker-2"),
    ]
    assert verify.wait_for_all(stage, 0, seconds=0) == everybody


def test_whoever_has_done_something_since_then_is_back(stage: Stage) -> None:
    for worker in ("worker-0:1:a", "worker-0:2:b", "worker-1:3:c"):
        turn(stage, worker)
    with stage.client() as client:
        seconds, microseconds = client.time()
    since_ns = seconds * 10**9 + microseconds * 1000
    assert verify.wait_for_all(stage, 0, seconds=0)[-1] == "1 of 1 processes of worker-2"
    for worker in ("worker-0:2:b", "worker-2:4:d"):
        turn(stage, worker)
    for name, phase in (("publisher-0", "ok"), ("publisher-1", "unknown"), ("operator-0", "ok")):
        Recorder(stage.plan.records / f"{name}-1.jsonl").write("publish", phase=phase)  # type: ignore[arg-type]
    away = ["publisher-1", "1 of 2 processes of worker-0", "1 of 1 processes of worker-1"]
    assert verify.wait_for_all(stage, since_ns, seconds=0) == away


def test_workers_are_looked_for_page_by_page(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_PAGE", 2)
    for worker in "abcde":
        turn(stage, worker)
    with stage.client() as client:
        assert history.workers_since(client, stage.prefix, 0) == {b"a", b"b", b"c", b"d", b"e"}
        last_us = history.read(client, stage.prefix)[-2].at_us
        assert history.workers_since(client, stage.prefix, last_us) == {b"d", b"e"}


def test_a_run_in_which_nothing_was_confirmed_or_handled_proves_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "some.jsonl")
    recorder.write("publish", phase="invoke", id="1")
    recorder.write("publish", phase="unknown", id="1")
    recorder.write("handle", phase="invoke", id="1")
    told = ["no publish was confirmed", "no message was handled"]
    assert verify.unproven(read_records(tmp_path)) == told
    recorder.write("publish", phase="ok", id="2")
    recorder.write("handle", phase="ok", id="2")
    assert verify.unproven(read_records(tmp_path)) == []


def test_failovers_before_which_nothing_was_confirmed_prove_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "some.jsonl")
    recorder.write("handle", phase="ok", id="1")
    recorder.write("nemesis", phase="ok", fault="failover")
    recorder.write("publish", phase="ok", id="1")
    told = ["no publish was confirmed before a failover"]
    assert verify.unproven(read_records(tmp_path), with_failovers=True) == told
    recorder.write("nemesis", phase="ok", fault="failover")
    assert verify.unproven(read_records(tmp_path), with_failovers=True) == []


def test_what_handlers_and_the_operator_did_is_counted(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "some.jsonl")
    for fate in ("crash", "hang", "crash"):
        recorder.write("fate", phase="invoke", fate=fate)
    recorder.write("operator", phase="ok", act="skip")
    recorder.write("operator", phase="unknown", error="away")
    records = read_records(tmp_path)
    assert verify.treatment(records) == {"handler_crash": 2, "handler_hang": 1}
    assert verify.acts(records) == {"skip": 1}
