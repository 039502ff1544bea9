"""Does a worker do to a failed message, and to what waits behind it, what its policy says?"""

from __future__ import annotations

import pytest

from groupqueue import get_queue
from groupqueue.core.messages import split_element
from tests.worker.stage import Stage

BOTH = pytest.mark.parametrize("suffix", ["", ".async"])


def reasons(stage: Stage, group: str) -> list[tuple[str, str]]:
    """Return id and reason of a group's dead letters, oldest first."""
    return [
        (split_element(letter["element"].encode())[0], letter["reason"])
        for letter in stage.dead_letters()
        if letter["group"] == group
    ]


@BOTH
def test_an_exhausted_message_takes_what_waits_behind_it_along(stage: Stage, suffix: str) -> None:
    stage.configure(MAX_ATTEMPTS=2, ON_EXHAUSTED="dead_letter_group")
    first = stage.publish(f"fail{suffix}", "bad")
    behind = [stage.publish(f"note{suffix}", "bad") for _ in range(3)]
    stage.publish(f"note{suffix}", "good")
    stage.work()

    told = stage.traces.wait_for("message_dead", 4)
    stage.wait_until_drained()

    assert [trace.group for trace in stage.traces.all("ended")] == ["good"]
    assert reasons(stage, "bad") == [
        (first, "max_attempts"),
        *[(identifier, "group") for identifier in behind],
    ]
    assert [(trace.message_id, trace.reason) for trace in told] == reasons(stage, "bad")
    # The group is as any other again.
    stage.publish(f"note{suffix}", "bad", n=7)
    stage.wait_for_ended(group="bad", n=7)


def test_a_group_set_aside_whole_is_put_back_in_order(stage: Stage) -> None:
    stage.configure(MAX_ATTEMPTS=1, ON_EXHAUSTED="dead_letter_group")
    stage.publish("recover", n=0)
    stage.publish_numbered("note", ["g"], 150)
    stage.work()
    stage.traces.wait_for("message_dead", 151)

    stage.open_gate()
    assert get_queue(stage.queue).redrive() == 151

    ended = stage.wait_for_ended(151)
    assert [trace.n for trace in ended] == [0, *range(150)]


@BOTH
def test_each_error_has_the_policy_of_its_class(stage: Stage, suffix: str) -> None:
    stage.configure(MAX_ATTEMPTS=3)
    ids = {
        error: [
            stage.publish(f"sort{suffix}", error, error=error),
            stage.publish(f"sort{suffix}", error),
        ]
        for error in ("value", "os", "key")
    }
    stage.work()

    stage.traces.wait_for("message_dead", 3)
    stage.traces.wait_for("group_halted", 1)

    def attempts(group: str) -> list[int]:
        return [
            trace.attempt
            for trace in stage.traces.all("started", group=group)
            if trace.id == ids[group][0]
        ]

    assert attempts("value") == [1]
    assert reasons(stage, "value") == [(ids["value"][0], "max_attempts")]
    stage.wait_for_ended(group="value")
    assert attempts("os") == [1, 2]
    assert reasons(stage, "os") == [(ids["os"][0], "max_attempts"), (ids["os"][1], "group")]
    assert attempts("key") == [1, 2, 3]
    assert stage.group("key").state == "halted"


def test_retries_hold_a_group_for_max_block_at_most(stage: Stage) -> None:
    stage.configure(MAX_ATTEMPTS=1000, MAX_BLOCK=0.5, ON_EXHAUSTED="dead_letter")
    stage.publish("fail")
    stage.publish("note")
    stage.work()

    stage.wait_for_ended(topic="note")

    assert [reason for _, reason in reasons(stage, "g")] == ["max_block"]
    assert len(stage.traces.all("started", topic="fail")) >= 2
