"""What becomes of a message whose handler fails, by error, by choice or by accident?"""

from __future__ import annotations

import pytest

from groupqueue import get_queue
from groupqueue.core.messages import split_element
from tests.worker.stage import Stage

BOTH = pytest.mark.parametrize("suffix", ["", ".async"])
CONCURRENCIES = pytest.mark.parametrize("concurrency", [1, 2])


@BOTH
@CONCURRENCIES
def test_failure_11_a_failed_message_keeps_its_place_and_is_tried_again(
    stage: Stage, suffix: str, concurrency: int
) -> None:
    stage.publish(f"fail{suffix}", n=0, times=2)
    stage.publish_numbered(f"note{suffix}", ["g"], 3)
    stage.work("--concurrency", concurrency)

    stage.wait_for_ended(4)

    tries = stage.traces.all("started", topic=f"fail{suffix}")
    assert [(trace.attempt, trace.deliveries, trace.crashes) for trace in tries] == [
        (1, 1, 0),
        (2, 2, 0),
        (3, 3, 0),
    ]
    assert [trace.n for trace in stage.traces.all("ended")] == [0, 0, 1, 2]
    assert len({trace.token for trace in tries}) == 3
    stage.wait_until_drained()
    assert stage.snapshot().counters["retried"] == 2


def test_failure_11_a_failed_message_parks_its_group_and_no_other(stage: Stage) -> None:
    stage.configure(BACKOFF=(3600, 3600))
    stage.publish("fail", "failing", times=1)
    stage.publish("note", "failing")
    stage.work()
    stage.traces.wait_for("message_failed", group="failing")

    parked = stage.wait_until(lambda snapshot: snapshot.parked, "a parked group").parked[0]
    stage.publish("note", "other")
    stage.wait_for_ended(group="other")

    assert (parked.group, parked.failures, parked.deliveries) == ("failing", 1, 1)
    assert parked.last_error == "RuntimeError: out of paint"
    assert stage.traces.all("ended", group="failing") == []
    [failed] = stage.traces.all("message_failed")
    assert 1800 <= failed.retry_seconds <= 3600


@BOTH
def test_exhausted_attempts_halt_the_group_until_an_operator_resumes_it(
    stage: Stage, suffix: str
) -> None:
    stage.configure(MAX_ATTEMPTS=2)
    message = stage.publish(f"fail{suffix}", times=2)
    stage.publish("note")
    stage.work()
    [told] = stage.traces.wait_for("group_halted")
    view = stage.wait_until(lambda snapshot: snapshot.held, "a halted group").held[0]

    assert (told.id, told.reason, told.error) == (
        message,
        "max_attempts",
        "RuntimeError: out of paint",
    )
    assert (view.state, view.held_reason, view.head_id, view.depth) == (
        "halted",
        "max_attempts",
        message,
        2,
    )
    assert view.last_error == "RuntimeError: out of paint"
    assert len(stage.traces.all("started", topic=f"fail{suffix}")) == 2

    # A new set of attempts: the first two of it fail as well.
    assert get_queue(stage.queue).resume("g")
    stage.traces.wait_for("group_halted", 2)
    attempts = [trace.attempt for trace in stage.traces.all("started", topic=f"fail{suffix}")]
    assert attempts == [1, 2, 1, 2]


def test_a_resumed_group_goes_on_in_order_once_its_head_succeeds(stage: Stage) -> None:
    stage.configure(MAX_ATTEMPTS=1)
    stage.publish("recover", n=0)
    stage.publish_numbered("note", ["g"], 2)
    stage.work()
    stage.traces.wait_for("group_halted")

    stage.open_gate()
    stage.wait_until(lambda snapshot: snapshot.held, "a halted group")
    get_queue(stage.queue).resume("g")

    ended = stage.wait_for_ended(3)
    assert [(trace.topic, trace.n) for trace in ended] == [("recover", 0), ("note", 0), ("note", 1)]


def test_exhausted_attempts_set_the_message_aside_where_the_queue_says_so(stage: Stage) -> None:
    stage.configure(MAX_ATTEMPTS=2, ON_EXHAUSTED="dead_letter")
    message = stage.publish("fail")
    stage.publish("note")
    stage.work()

    stage.wait_for_ended(topic="note")

    [letter] = stage.dead_letters()
    assert split_element(letter["element"].encode())[0] == message
    assert (letter["group"], letter["reason"], letter["error"]) == (
        "g",
        "max_attempts",
        "RuntimeError: out of paint",
    )
    assert (letter["deliveries"], letter["failures"]) == ("2", "2")
    [told] = stage.traces.all("message_dead")
    assert (told.id, told.reason) == (message, "max_attempts")


def test_a_handlers_own_policy_stands_in_for_the_queues(stage: Stage) -> None:
    stage.configure(MAX_ATTEMPTS=5, ON_EXHAUSTED="halt", BACKOFF=(0.05, 0.05))
    stage.publish("fail.twice")
    stage.publish("note")
    stage.work()

    stage.wait_for_ended(topic="note")

    assert len(stage.traces.all("started", topic="fail.twice")) == 2
    assert [letter["reason"] for letter in stage.dead_letters()] == ["max_attempts"]


@BOTH
def test_retry_asks_for_a_delay_of_its_own_and_counts_an_attempt(stage: Stage, suffix: str) -> None:
    stage.configure(BACKOFF=(3600, 3600))
    stage.publish(f"steer{suffix}", error="retry", delay=0.01, times=1)
    stage.work()

    stage.wait_for_ended()

    assert [trace.attempt for trace in stage.traces.all("started")] == [1, 2]
    [failed] = stage.traces.all("message_failed")
    assert failed.retry_seconds == 0.01


def test_retry_without_a_delay_takes_the_backoff(stage: Stage) -> None:
    stage.configure(BACKOFF=(3600, 3600))
    stage.publish("steer", error="retry", times=1)
    stage.work()

    [failed] = stage.traces.wait_for("message_failed")

    assert 1800 <= failed.retry_seconds <= 3600


def test_retries_by_choice_are_exhausted_as_well(stage: Stage) -> None:
    stage.configure(MAX_ATTEMPTS=3)
    stage.publish("steer", error="retry", delay=0)
    stage.work()

    [halted] = stage.traces.wait_for("group_halted")

    assert halted.reason == "max_attempts"
    assert len(stage.traces.all("started")) == 3


@BOTH
@pytest.mark.parametrize("on_exhausted", ["halt", "dead_letter"])
def test_a_rejected_message_is_exhausted_at_once(
    stage: Stage, suffix: str, on_exhausted: str
) -> None:
    stage.configure(ON_EXHAUSTED=on_exhausted)
    stage.publish(f"steer{suffix}", error="reject")
    stage.work()

    event = "group_halted" if on_exhausted == "halt" else "message_dead"
    [told] = stage.traces.wait_for(event)

    assert told.reason == "no such order"
    assert len(stage.traces.all("started")) == 1
    assert [trace.retry_seconds for trace in stage.traces.all("message_failed")] == [None]


def test_a_message_is_rejected_whatever_the_reason_is(stage: Stage) -> None:
    stage.publish("steer", error="no_reason")
    stage.work()

    [told] = stage.traces.wait_for("group_halted")

    assert told.reason == "None"
    assert len(stage.traces.all("started")) == 1


@BOTH
@CONCURRENCIES
def test_whatever_a_handler_raises_counts_as_a_failed_attempt(
    stage: Stage, suffix: str, concurrency: int
) -> None:
    stage.configure(MAX_ATTEMPTS=2)
    errors = ["exit", "cancelled", "interrupt", "unprintable", "too_long"]
    for error in errors:
        stage.publish(f"steer{suffix}", error, error=error)
    worker = stage.work("--concurrency", concurrency)

    halted = stage.traces.wait_for("group_halted", len(errors))

    assert {(trace.group, trace.reason) for trace in halted} == {
        (error, "max_attempts") for error in errors
    }
    tries = stage.traces.all("started", topic=f"steer{suffix}")
    assert {
        error: [trace.attempt for trace in tries if trace.group == error] for error in errors
    } == {error: [1, 2] for error in errors}
    worker.signal()
    assert worker.wait() == 0
    assert "0 restarts" in worker.printed


def test_a_failing_message_delays_no_other_group(stage: Stage) -> None:
    stage.configure(MAX_ATTEMPTS=50)
    stage.publish("fail", "failing")
    stage.publish_numbered("note", ["g1", "g2", "g3"], 10)
    stage.work("--concurrency", 2)

    ended = stage.wait_for_ended(30)

    assert {trace.group for trace in ended} == {"g1", "g2", "g3"}


def test_failure_36_a_topic_without_a_handler_is_put_off_uncounted_until_a_worker_knows_it(
    stage: Stage,
) -> None:
    stage.plan.constants["groupqueue.worker.executor.UNKNOWN_TOPIC_PAUSE_SECONDS"] = 0.2
    stage.publish("unheard_of", n=0)
    stage.publish("note", n=1)
    old = stage.work()
    stage.wait_until(lambda snapshot: snapshot.counters.get("released", 0) >= 3, "three tries")
    assert stage.backlog() == 2
    assert "has no handler for topic" in old.log
    old.signal()
    assert old.wait() == 0

    stage.add_app("newcomer", LATE_HANDLER)
    stage.work()

    first, second = stage.wait_for_ended(2)
    assert (first.topic, first.n, first.deliveries, first.attempt) == ("unheard_of", 0, 1, 1)
    assert (second.topic, second.n) == ("note", 1)


LATE_HANDLER = """
from groupqueue import handler
from tests.worker.project.handlers import traces

@handler("unheard_of")
def unheard_of(delivery):
    traces.leave("ended", delivery)
"""


def test_bytes_that_are_no_message_can_be_set_aside_and_the_group_goes_on(stage: Stage) -> None:
    stage.configure(ON_EXHAUSTED="dead_letter")
    stage.publish("note", n=0)
    stage.client.rpush(stage.keys.fifo("g"), b"not one of ours")
    stage.client.rpush(stage.keys.fifo("g"), b"0" * 58 + b"\xff\xfe")
    stage.publish("note", n=1)
    stage.work()

    ended = stage.wait_for_ended(2)

    assert [trace.n for trace in ended] == [0, 1]
    assert [letter["reason"] for letter in stage.dead_letters()] == ["corrupt", "corrupt"]
    assert stage.dead_letters()[0]["element"] == "not one of ours"
    dead = stage.traces.all("message_dead")
    assert [(trace.group, trace.reason) for trace in dead] == [("g", "corrupt")] * 2
    stage.publish("note", "other")
    [other] = stage.wait_for_ended(group="other")
    assert other.pid == ended[0].pid


def test_bytes_that_are_no_message_halt_their_group_as_every_exhausted_message(
    stage: Stage,
) -> None:
    stage.client.rpush(stage.keys.fifo("g"), b"not one of ours")
    stage.publish("note", n=1)
    stage.work()

    [halted] = stage.traces.wait_for("group_halted")

    assert (halted.group, halted.reason) == ("g", "corrupt")
    assert stage.traces.all("ended") == []
    assert stage.dead_letters() == []
    # It can be seen and skipped, however short it is.
    [held] = get_queue(stage.queue).snapshot().held
    assert get_queue(stage.queue).skip("g", held.head_id) == "ok"
    assert [trace.n for trace in stage.wait_for_ended()] == [1]


def test_a_codec_that_breaks_exhausts_the_message_and_not_the_worker(stage: Stage) -> None:
    stage.publish("note", n=0)
    stage.configure(CODEC="tests.worker.project.codecs.BrokenCodec")
    worker = stage.work()

    [halted] = stage.traces.wait_for("group_halted")

    assert halted.reason == "codec"
    assert "ZeroDivisionError" in halted.error
    worker.signal()
    assert worker.wait() == 0


def test_handlers_find_nothing_on_standard_input(stage: Stage) -> None:
    stage.publish("read_input")
    stage.work()

    [ended] = stage.wait_for_ended()

    assert ended.read == ""
