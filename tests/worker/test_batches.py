"""Are several messages of a group handled under one lease without losing, blaming or
overtaking any?"""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path

import pytest

from groupqueue import Delivery, handler, handlers
from groupqueue.conf import get_config
from groupqueue.core.codec import JSONCodec
from groupqueue.core.messages import Lease, Leased
from groupqueue.transport.connections import get_transport
from groupqueue.worker.executor import Held, advance, call, prepare
from groupqueue.worker.leases import mark_lost
from tests.worker.databases import SQLite
from tests.worker.stage import Stage, Worker
from tests.worker.traces import Trace, by_group, without_repeats

GROUPS = [f"g{number}" for number in range(6)]
CONCURRENCIES = pytest.mark.parametrize("concurrency", [1, 4])
BOTH = pytest.mark.parametrize("topic", ["batch", "batch.async"])


@pytest.fixture
def batching(stage: Stage) -> Stage:
    """A stage whose workers have batch handlers."""
    stage.plan.apps.append("tests.worker.batching")
    return stage


def calls_of(stage: Stage, group: str = "g") -> list[list[int]]:
    """Return the numbers that batch handlers were called with, call by call."""
    return [trace.numbers for trace in stage.traces.all("called", group=group)]


def numbers(traces: list[Trace]) -> list[int]:
    return [trace.n for trace in traces]


def tries(traces: list[Trace]) -> list[tuple[int, int, int, int]]:
    """Return number, attempt, deliveries and crashes of each delivery."""
    return [(trace.n, trace.attempt, trace.deliveries, trace.crashes) for trace in traces]


# Batch handlers ---------------------------------------------------------------------------------


@BOTH
@CONCURRENCIES
def test_a_batch_handler_gets_lists_of_a_group_in_order_and_no_more_than_it_asks_for(
    batching: Stage, topic: str, concurrency: int
) -> None:
    batching.publish_numbered(topic, GROUPS, 10)
    batching.work("--processes", 2, "--concurrency", concurrency)

    batching.wait_for_ended(60)
    batching.wait_until_drained()

    for group in GROUPS:
        taken = calls_of(batching, group)
        assert taken == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert batching.snapshot().counters["acked"] == 60
    assert {trace.deliveries for trace in batching.traces.all("started")} == {1}


@pytest.mark.parametrize(
    ("options", "leases"),
    [
        # Each list is a lease of its own, unless the worker was asked for more.
        ([], 5),
        (["--batch", 10], 1),
    ],
)
@CONCURRENCIES
def test_a_list_has_messages_of_one_topic(
    batching: Stage, options: list[object], leases: int, concurrency: int
) -> None:
    topics = ["batch", "batch", "batch.other", "note", "batch.single", "batch"]
    for n, topic in enumerate(topics):
        batching.publish(topic, n=n)
    batching.work("--concurrency", concurrency, *options)

    ended = batching.wait_for_ended(6)
    batching.wait_until_drained()

    assert numbers(ended) == list(range(6))
    assert calls_of(batching) == [[0, 1], [2], [4], [5]]
    assert len({trace.token for trace in ended}) == leases


def test_a_batch_of_one_takes_a_list_of_one(batching: Stage) -> None:
    batching.publish_numbered("batch.single", ["g"], 3)
    batching.work()

    batching.wait_for_ended(3)

    assert calls_of(batching) == [[0], [1], [2]]


def test_the_workers_option_bounds_the_lists_of_handlers(batching: Stage) -> None:
    batching.publish_numbered("batch", ["g"], 5)
    batching.work("--batch", 2)

    batching.wait_for_ended(5)

    assert calls_of(batching) == [[0, 1], [2, 3], [4]]


@BOTH
@CONCURRENCIES
def test_what_was_acknowledged_before_an_error_is_finished_and_the_next_one_has_failed(
    batching: Stage, topic: str, concurrency: int
) -> None:
    batching.publish(topic, n=0, acknowledge=True)
    batching.publish(topic, n=1, error="unprintable", times=1)
    batching.publish_numbered(topic, ["g"], 5)
    batching.work("--concurrency", concurrency)

    batching.wait_for_ended(6)
    batching.wait_until_drained()

    assert calls_of(batching) == [[0, 1, 0], [1], [0, 1, 2], [3, 4]]
    started = batching.traces.all("started")
    assert tries(started[3:4]) == [(1, 2, 2, 0)]
    assert tries(started[4:]) == [(n, 1, 1, 0) for n in range(5)]
    assert numbers(batching.traces.all("message_failed")) == [1]
    succeeded = batching.traces.all("message_succeeded")
    assert numbers(succeeded) == [0, 1, 0, 1, 2, 3, 4]
    counters = batching.snapshot().counters
    assert (counters["acked"], counters["retried"]) == (7, 1)


def test_only_what_was_acknowledged_from_the_first_one_on_is_finished(batching: Stage) -> None:
    batching.publish("batch", n=0)
    batching.publish("batch", n=1, acknowledge=True)
    batching.publish("batch", n=2, error="retry", delay=0, times=1)
    batching.work()

    batching.wait_until_drained()

    # The error is the first one's, since nothing says that it is done.
    assert calls_of(batching) == [[0, 1, 2], [0], [1, 2], [2]]
    assert numbers(batching.traces.all("message_failed")) == [0, 2]


@BOTH
@pytest.mark.parametrize("error", ["retry", "reject", "snooze"])
def test_what_ends_a_delivery_on_purpose_concerns_the_first_that_is_not_acknowledged(
    batching: Stage, topic: str, error: str
) -> None:
    batching.publish(topic, n=0, acknowledge=True)
    guilty = batching.publish(topic, n=1, error=error, delay=0, gate="later", times=1)
    batching.publish(topic, n=2)
    batching.work()
    batching.wait_for_started(3)

    if error == "snooze":
        batching.open_gate("later")
        batching.wait_until(lambda snapshot: snapshot.counters.get("released"), "a snooze")
        assert batching.traces.all("message_failed") == []
        assert batching.group().head_id == guilty
        return
    batching.open_gate("later")
    if error == "reject":
        held = batching.wait_until(lambda snapshot: snapshot.held, "a halted group").held[0]
        assert (held.head_id, held.held_reason, held.depth) == (guilty, "no such order", 2)
        [halted] = batching.traces.wait_for("group_halted")
        assert halted.id == guilty
    else:
        batching.wait_until_drained()
        assert tries(batching.traces.all("started"))[3:] == [(1, 2, 2, 0), (2, 1, 1, 0)]
    assert batching.snapshot().counters["acked"] == (1 if error == "reject" else 3)


def test_a_snoozed_message_of_a_batch_is_delivered_again_as_if_for_the_first_time(
    batching: Stage,
) -> None:
    batching.publish("batch", n=0, acknowledge=True)
    batching.publish("batch", n=1, gate="later")
    batching.publish("batch", n=2, error="snooze", times=1)
    batching.work()
    batching.wait_for_started(3)
    batching.open_gate("later")

    batching.wait_for_started(7)

    assert {trace[1:] for trace in tries(batching.traces.all("started"))} == {(1, 1, 0)}
    assert calls_of(batching)[:2] == [[0, 1, 2], [1, 2]]


def test_an_error_after_all_were_acknowledged_changes_nothing(batching: Stage) -> None:
    batching.publish("batch", n=0, acknowledge=True)
    batching.publish("batch", n=1, acknowledge=True, late=True)
    worker = batching.work()

    batching.wait_until_drained()
    batching.publish("note", "after")
    batching.wait_for_ended(group="after")

    assert calls_of(batching) == [[0, 1]]
    assert numbers(batching.traces.all("message_succeeded", group="g")) == [0, 1]
    assert batching.traces.all("message_failed") == []
    assert "an error was raised after a message had been handled" in worker.log


def test_a_failure_in_a_batch_can_end_as_a_dead_letter(batching: Stage) -> None:
    batching.publish("batch.impatient", n=0, acknowledge=True)
    guilty = batching.publish("batch.impatient", n=1, error="unprintable")
    batching.publish("batch.impatient", n=2)
    batching.work()

    batching.wait_until_drained()

    [letter] = batching.dead_letters()
    assert guilty in letter["element"]
    assert (letter["reason"], letter["deliveries"], letter["failures"]) == (
        "max_attempts",
        "1",
        "1",
    )
    [dead] = batching.traces.all("message_dead")
    assert (dead.id, dead.n) == (guilty, 1)
    assert calls_of(batching) == [[0, 1, 2], [2]]


@pytest.mark.parametrize("error", [None, "raised"])
def test_what_was_acknowledged_in_a_transaction_left_open_is_not_finished(
    batching: Stage, tmp_path: Path, error: str | None
) -> None:
    database = SQLite(tmp_path)
    batching.plan.databases["default"] = database.settings()
    batching.publish("batch.leave_open", n=0)
    batching.publish("batch.leave_open", n=1, error=error)
    batching.work()

    batching.wait_until_drained()

    # The rows of the first call were rolled back: both messages are handled again.
    assert calls_of(batching)[:2] == [[0, 1], [0]]
    assert numbers(batching.traces.all("message_failed"))[:1] == [0]
    assert database.count_notes() == 2


def test_the_signals_of_a_batch_tell_of_each_message(batching: Stage) -> None:
    published = [batching.publish("batch", n=n) for n in range(3)]
    batching.work()

    batching.traces.wait_for("message_succeeded", 3)

    for event in ("message_started", "message_succeeded"):
        told = batching.traces.all(event)
        assert [trace.id for trace in told] == published
        assert {trace.sender for trace in told} == {"batch"}
    durations = {trace.duration_seconds for trace in batching.traces.all("message_succeeded")}
    assert len(durations) == 1


# Plain handlers under --batch --------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["note", "note.async"])
@CONCURRENCIES
def test_plain_handlers_go_through_a_lease_one_by_one_and_settle_it_once(
    stage: Stage, topic: str, concurrency: int
) -> None:
    stage.publish_numbered(topic, GROUPS, 12)
    stage.work("--batch", 5, "--concurrency", concurrency)

    stage.wait_for_ended(12 * len(GROUPS))
    stage.wait_until_drained()

    for started in by_group(stage.traces.all("started")).values():
        assert numbers(started) == list(range(12))
    for ended in by_group(stage.traces.all("ended")).values():
        assert [len(list(same)) for _, same in itertools.groupby(t.token for t in ended)] == [
            5,
            5,
            2,
        ]
    assert stage.snapshot().counters["acked"] == 12 * len(GROUPS)


@CONCURRENCIES
def test_a_failure_in_the_middle_keeps_the_order(stage: Stage, concurrency: int) -> None:
    topics = ["note", "note", "fail", "note", "note.async", "fail.async", "note"]
    for n, topic in enumerate(topics):
        stage.publish(topic, n=n, times=2)
    stage.work("--batch", 10, "--concurrency", concurrency)

    ended = stage.wait_for_ended(7)
    stage.wait_until_drained()

    assert tries(ended) == [
        (0, 1, 1, 0),
        (1, 1, 1, 0),
        (2, 3, 3, 0),
        (3, 1, 1, 0),
        (4, 1, 1, 0),
        (5, 3, 3, 0),
        (6, 1, 1, 0),
    ]
    assert len(stage.traces.all("started")) == 7 + 4
    assert stage.snapshot().counters["retried"] == 4


def test_what_cannot_be_handled_in_the_middle_ends_the_lease_before_it(stage: Stage) -> None:
    stage.configure(ON_EXHAUSTED="dead_letter")
    stage.plan.constants["groupqueue.worker.executor.UNKNOWN_TOPIC_PAUSE_SECONDS"] = 60
    stage.publish("note", n=0)
    get_transport(stage.queue).publish("g", b"no message")
    stage.publish("note", n=2)
    unknown = stage.publish("unheard.of", n=3)
    stage.publish("note", n=4)
    stage.work("--batch", 10)

    stage.wait_until(lambda snapshot: snapshot.parked, "a group that waits for newer code")

    assert numbers(stage.traces.all("ended")) == [0, 2]
    assert [letter["reason"] for letter in stage.dead_letters()] == ["corrupt"]
    view = stage.group()
    assert (view.head_id, view.depth, view.deliveries) == (unknown, 2, 0)


def test_a_lease_is_settled_after_some_time_however_much_it_has_left(stage: Stage) -> None:
    stage.plan.constants["groupqueue.worker.executor.LONGEST_RUN_SECONDS"] = 0
    stage.publish_numbered("note", ["g"], 6)
    stage.work("--batch", 3)

    ended = stage.wait_for_ended(6)
    stage.wait_until_drained()

    assert tries(ended) == [(n, 1, 1, 0) for n in range(6)]
    assert len({trace.token for trace in ended}) == 6


@CONCURRENCIES
def test_a_worker_that_drains_begins_no_further_message_of_a_lease(
    stage: Stage, concurrency: int
) -> None:
    stage.publish("note", n=0)
    stage.publish("gate", n=1)
    stage.publish_numbered("note", ["g"], 3)
    worker = stage.work("--batch", 10, "--concurrency", concurrency)
    stage.wait_for_started(topic="gate")

    worker.signal()
    stage.traces.wait_for("worker_stopping")
    stage.open_gate()

    assert worker.wait() == 0
    assert len(stage.traces.all("ended")) == 2
    view = stage.group()
    assert (view.state, view.depth, view.deliveries) == ("due", 3, 0)
    assert "2 processed" in worker.printed


@pytest.mark.parametrize("topic", ["gate", "gate.async"])
@CONCURRENCIES
def test_a_worker_that_leaves_at_once_settles_what_is_finished_and_hands_the_rest_back(
    stage: Stage, topic: str, concurrency: int
) -> None:
    before = "note.async" if topic == "gate.async" else "note"
    stage.publish(before, n=0)
    running = stage.publish(topic, n=1)
    stage.publish(before, n=2)
    worker = stage.work("--batch", 10, "--concurrency", concurrency)
    stage.wait_for_started(topic=topic)

    leave_at_once(stage, worker)

    view = stage.group()
    assert (view.head_id, view.depth, view.deliveries) == (running, 2, 0)
    stage.open_gate()
    stage.work()
    assert tries(stage.wait_for_ended(3)) == [(0, 1, 1, 0), (1, 1, 1, 0), (2, 1, 1, 0)]


@BOTH
@CONCURRENCIES
def test_what_a_running_batch_handler_has_acknowledged_is_settled_when_it_is_left(
    batching: Stage, topic: str, concurrency: int
) -> None:
    batching.publish(topic, n=0, acknowledge=True)
    running = batching.publish(topic, n=1, gate="shut")
    batching.publish(topic, n=2)
    worker = batching.work("--concurrency", concurrency)
    batching.wait_for_started(3)

    leave_at_once(batching, worker)

    view = batching.group()
    assert (view.head_id, view.depth, view.deliveries) == (running, 2, 0)


def leave_at_once(stage: Stage, worker: Worker) -> None:
    """Signal twice, and wait until it is gone."""
    worker.signal()
    stage.traces.wait_for("worker_stopping")
    worker.signal()
    assert worker.wait() == 0


# Crashes -------------------------------------------------------------------------------------


@CONCURRENCIES
def test_failure_08_after_a_crash_each_message_goes_alone_and_only_the_guilty_one_is_poison(
    stage: Stage, concurrency: int
) -> None:
    stage.configure(VISIBILITY_TIMEOUT=1, MAX_CRASHES=2, ON_EXHAUSTED="dead_letter")
    topics = ["note", "note", "crash", "note", "note"]
    published = [stage.publish(topic, n=n) for n, topic in enumerate(topics)]
    for group in GROUPS[:3]:
        stage.publish("work", group, seconds=0.01)
    stage.work("--batch", 10, "--concurrency", concurrency)

    [dead] = stage.traces.wait_for("message_dead", seconds=40)
    stage.wait_until_drained()

    assert (dead.id, dead.reason) == (published[2], "poison")
    assert stage.traces.all("group_halted") == []
    ended = stage.traces.all("ended", group="g")
    assert without_repeats(numbers(ended)) == [0, 1, 0, 1, 3, 4]
    alone = by_token(stage.traces.all("started", group="g"))[1:]
    # Each of those that were together has a lease of its own, until the guilty one is found.
    assert [numbers(traces) for traces in alone] == [[0], [1], [2], [2], [3, 4]]
    assert [traces[0].crashes for traces in alone] == [1, 0, 0, 1, 0]


@CONCURRENCIES
def test_after_a_crash_in_a_batch_handler_each_message_goes_alone(
    batching: Stage, concurrency: int
) -> None:
    batching.configure(VISIBILITY_TIMEOUT=1, MAX_CRASHES=2, ON_EXHAUSTED="dead_letter")
    batching.publish("batch", n=0, acknowledge=True)
    guilty = batching.publish("batch", n=1, kill=True)
    batching.publish_numbered("batch", ["g"], 4)
    batching.work("--concurrency", concurrency)

    [dead] = batching.traces.wait_for("message_dead", seconds=40)
    batching.wait_until_drained()

    assert (dead.id, dead.reason) == (guilty, "poison")
    assert calls_of(batching) == [[0, 1, 0], [0], [1], [1], [0, 1, 2], [3]]


def test_a_message_that_kills_once_is_handled_in_the_end_and_batches_begin_again(
    stage: Stage,
) -> None:
    stage.configure(VISIBILITY_TIMEOUT=1)
    stage.publish("note", n=0)
    stage.publish("crash.once", n=1)
    stage.publish("note", n=2)
    for n in range(3, 9):
        stage.publish("note", n=n)
    stage.work("--batch", 4)

    stage.wait_until_drained()

    ended = by_token(stage.traces.all("ended"))
    # Killed with 0 to 3 in hand: 1 kills again when it is alone, as it is not known to have
    # killed; the batch is over once all four have gone alone.
    assert [numbers(traces) for traces in ended] == [[0], [0], [1], [2], [3], [4, 5, 6, 7], [8]]


def by_token(traces: list[Trace]) -> list[list[Trace]]:
    """Return the traces lease by lease."""
    return [list(same) for _, same in itertools.groupby(traces, lambda trace: trace.token)]


def test_no_message_is_lost_or_overtaken_while_processes_are_killed(batching: Stage) -> None:
    batching.configure(VISIBILITY_TIMEOUT=1, MAX_CRASHES=100)
    for n in range(40):
        for group in GROUPS:
            batching.publish("batch" if n % 5 else "note", group, n=n)
    batching.work("--batch", 7, "--processes", 2, "--concurrency", 3)
    for killed in range(3):
        pid = batching.wait_for_processes(2 + killed)[-1]
        batching.traces.wait_for("ended", (killed + 1) * 40)
        os.kill(pid, signal.SIGKILL)

    batching.wait_until_drained(seconds=60)

    for traces in by_group(batching.traces.all("ended")).values():
        handled = numbers(traces)
        assert sorted(set(handled)) == list(range(40))
        # A crash repeats what its lease had finished, from the head on, and skips nothing.
        for before, after in itertools.pairwise(handled):
            assert after <= before + 1
    assert batching.dead_letters() == []


def test_where_one_crash_is_too_many_a_message_is_never_the_head_of_others(
    batching: Stage,
) -> None:
    batching.publish("batch.wary", n=0)
    guilty = batching.publish("batch.wary", n=1, kill=True)
    batching.publish("batch.wary", n=2)
    batching.configure(VISIBILITY_TIMEOUT=1)
    batching.work("--batch", 10)

    [halted] = batching.traces.wait_for("group_halted", seconds=30)

    assert (halted.id, halted.reason) == (guilty, "poison")
    assert calls_of(batching) == [[0], [1]]


@CONCURRENCIES
def test_a_batch_handler_out_of_time_costs_its_process_and_its_messages_go_alone(
    batching: Stage, concurrency: int
) -> None:
    batching.publish_numbered("batch.overrun", ["g"], 4)
    worker = batching.work("--concurrency", concurrency)

    batching.wait_for_ended(4)
    batching.wait_until_drained()

    assert calls_of(batching) == [[0, 1, 2], [0], [1], [2], [3]]
    assert tries(batching.traces.all("started"))[3:5] == [(0, 1, 2, 1), (1, 1, 1, 0)]
    assert len(batching.traces.all("message_failed")) == 1
    assert "a handler ran out of time" in worker.log


# Lost leases -----------------------------------------------------------------------------------


@BOTH
@CONCURRENCIES
def test_every_delivery_of_a_batch_learns_that_the_lease_is_lost(
    batching: Stage, topic: str, concurrency: int
) -> None:
    batching.publish(topic, n=0)
    batching.publish(topic, n=1, gate="gate")
    batching.publish(topic, n=2)
    batching.work("--concurrency", concurrency)
    [called] = batching.traces.wait_for("called")
    os.kill(called.pid, signal.SIGSTOP)
    batching.work("--concurrency", concurrency)
    batching.traces.wait_for("called", 2)

    os.kill(called.pid, signal.SIGCONT)
    lost = batching.traces.wait_for("lease_lost", 3)
    batching.open_gate()
    batching.wait_until_drained()

    assert numbers(lost) == [0, 1, 2]
    assert {trace.token for trace in lost} == {called.token}
    late = batching.wait_for_ended(3, token=called.token)
    assert [trace.lease_lost for trace in late] == [True, True, True]
    assert batching.snapshot().counters["acked"] == 3


def test_a_lease_that_is_lost_in_the_middle_is_not_gone_on_with(stage: Stage) -> None:
    stage.publish("note", n=0)
    stage.publish("gate", n=1)
    stage.publish_numbered("note", ["g"], 2)
    sleeper = stage.work("--batch", 10)
    [first] = stage.wait_for_started(topic="gate")
    os.kill(first.pid, signal.SIGSTOP)
    stage.work("--batch", 10)
    stage.wait_for_started(2, topic="gate")

    os.kill(first.pid, signal.SIGCONT)
    stage.traces.wait_for("lease_lost", 2)
    stage.open_gate()
    stage.wait_until_drained()
    sleeper.wait_for_logged("the result was dropped")

    # What was finished under the lost lease is told as lost too: it is handled again.
    assert numbers(stage.traces.all("lease_lost")) == [0, 1]
    assert [trace.n for trace in stage.traces.all("started", token=first.token)] == [0, 1]
    assert stage.snapshot().counters["acked"] == 4


# Limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 7, 14])
@pytest.mark.parametrize(
    ("topic", "options"), [("batch", []), ("note", []), ("note", ["--batch", 4])]
)
@pytest.mark.parametrize("size", [[], ["--processes", 2, "--concurrency", 2]])
def test_max_messages_counts_messages_and_not_leases(
    batching: Stage,
    number: int,
    topic: str,
    options: list[object],
    size: list[object],
) -> None:
    batching.publish_numbered(topic, ["g1", "g2", "g3"], 5)
    worker = batching.work("--max-messages", number, *size, *options)

    assert worker.wait() == 0
    assert len(batching.traces.all("ended")) == number
    assert batching.backlog() == 15 - number
    assert f"{number} processed, 0 failed" in worker.printed


@CONCURRENCIES
def test_a_burst_handles_all_there_is(batching: Stage, concurrency: int) -> None:
    batching.publish_numbered("batch", GROUPS, 7)
    batching.publish_numbered("note", GROUPS, 7)

    worker = batching.work("--burst", "--batch", 5, "--concurrency", concurrency)

    assert worker.wait() == 0
    assert len(batching.traces.all("ended")) == 84
    assert batching.backlog() == 0


# Between two messages of a lease, in this process ------------------------------------------------


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """A lease of two messages whose first one is to be handled."""
    monkeypatch.setattr(handlers, "_handlers", {})
    handler("first", timeout=3600)(lambda delivery: None)
    handler("second", timeout=0.1)(lambda delivery: None)
    first, second = (JSONCodec().encode(topic, None, {}) for topic in ("first", "second"))
    lease = Lease(
        "g",
        1,
        "0" * 32,
        first,
        0,
        1,
        0,
        1,
        0,
        (Leased(b"1" * 32 + b"1".zfill(13) + b"0" * 13 + second),),
    )
    now = time.monotonic()
    return Held(get_config("default"), lease, now + 60, now, goes_on=True)


def test_the_time_of_one_message_is_not_held_against_the_next(held: Held) -> None:
    assert prepare(held)
    call(held)
    assert held.started_at is not None

    assert advance(held)

    assert held.handler is not None
    assert (held.handler.topic, held.started_at, held.settlement) == ("second", None, None)


def test_a_loss_between_two_messages_is_told_to_the_next_one(held: Held) -> None:
    seen: list[Delivery] = []

    def lose_meanwhile() -> bool:
        seen.extend(held.deliveries)
        mark_lost([held])
        return False

    held.is_stopping = lose_meanwhile
    assert prepare(held)
    call(held)

    assert advance(held)

    assert len(seen) == 1
    assert [delivery.lease_lost for delivery in held.at_hand] == [True]
