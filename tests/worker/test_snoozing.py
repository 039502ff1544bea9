"""Is a message that its handler puts off delivered again later, uncounted and in its place?"""

from __future__ import annotations

import pytest

from tests.worker.stage import Stage

BOTH = pytest.mark.parametrize("suffix", ["", ".async"])
CONCURRENCIES = pytest.mark.parametrize("concurrency", [1, 2])


@BOTH
@CONCURRENCIES
def test_a_snoozed_message_keeps_its_place_and_does_not_count(
    stage: Stage, suffix: str, concurrency: int
) -> None:
    stage.configure(MAX_ATTEMPTS=1)
    topic = f"snooze{suffix}"
    stage.publish(topic, n=0, until="seconds")
    stage.publish_numbered(f"note{suffix}", ["g"], 3)
    stage.work("--concurrency", concurrency)

    tries = stage.wait_for_started(4, topic=topic)
    stage.open_gate()
    ended = stage.wait_for_ended(4)

    assert {(trace.attempt, trace.deliveries, trace.crashes) for trace in tries} == {(1, 1, 0)}
    assert [(trace.topic, trace.n) for trace in ended] == [
        (topic, 0),
        *((f"note{suffix}", n) for n in range(3)),
    ]
    tokens = [trace.token for trace in tries]
    assert tokens == sorted(set(tokens))
    stage.wait_until_drained()
    counters = stage.snapshot().counters
    assert counters["released"] >= 4
    assert "retried" not in counters
    assert stage.traces.all("message_failed") == []


@BOTH
@pytest.mark.parametrize("until", ["timedelta", "moment", "past"])
def test_a_message_is_put_off_by_a_length_of_time_or_until_a_moment(
    stage: Stage, suffix: str, until: str
) -> None:
    stage.publish(f"snooze{suffix}", until=until)
    stage.work()

    stage.wait_for_started(3)
    stage.open_gate()

    [ended] = stage.wait_for_ended()
    assert ended.attempt == 1


@BOTH
def test_a_snoozed_message_parks_its_group_and_no_other(stage: Stage, suffix: str) -> None:
    stage.publish(f"snooze{suffix}", until="seconds", seconds=3600)
    stage.publish("note")
    stage.work()
    parked = stage.wait_until(lambda snapshot: snapshot.parked, "a parked group").parked[0]
    stage.publish("note", "other")

    stage.wait_for_ended(group="other")

    assert (parked.group, parked.depth, parked.failures, parked.deliveries) == ("g", 2, 0, 0)
    assert parked.due_at is not None
    left = parked.due_at - stage.snapshot().taken_at
    assert 3000 < left.total_seconds() <= 3600
    assert stage.traces.all("ended", group="g") == []


@BOTH
def test_a_snooze_keeps_the_failures_before_it(stage: Stage, suffix: str) -> None:
    stage.configure(BACKOFF=(0.01, 0.01))
    stage.publish(f"snooze{suffix}", until="seconds", failures=2)
    stage.work()

    tries = stage.wait_for_started(5)
    stage.open_gate()
    [ended] = stage.wait_for_ended()

    assert [(trace.attempt, trace.deliveries, trace.crashes) for trace in tries[:5]] == [
        (1, 1, 0),
        (2, 2, 0),
        (3, 3, 0),
        (3, 3, 0),
        (3, 3, 0),
    ]
    assert ended.attempt == 3


@BOTH
@pytest.mark.parametrize(("until", "complaint"), [("naive", "aware"), ("too_long", "1e+12")])
def test_a_snooze_that_makes_no_sense_is_a_failed_attempt(
    stage: Stage, suffix: str, until: str, complaint: str
) -> None:
    stage.configure(MAX_ATTEMPTS=2)
    stage.publish(f"snooze{suffix}", until=until)
    worker = stage.work()

    [halted] = stage.traces.wait_for("group_halted")

    assert halted.reason == "max_attempts"
    assert "InvalidArgument" in halted.error
    assert complaint in halted.error.replace("1000000000000.0", "1e+12")
    assert [trace.attempt for trace in stage.traces.all("started")] == [1, 2]
    worker.signal()
    assert worker.wait() == 0
