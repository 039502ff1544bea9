"""Does each option of the command do what its help says, and is nonsense refused?"""

from __future__ import annotations

import os

import pytest
from django.core.management import CommandError, call_command

from tests.servers import Server
from tests.worker.stage import Stage
from tests.worker.traces import by_group


def test_burst_ends_when_no_group_is_due(stage: Stage) -> None:
    stage.publish_numbered("note", ["g1", "g2", "g3"], 5)
    worker = stage.work("--burst", "--processes", 2, "--concurrency", 2)

    assert worker.wait() == 0
    assert len(stage.traces.all("ended")) == 15
    assert stage.backlog() == 0
    assert {trace.reason for trace in stage.traces.all("worker_stopping")} == {"burst"}


def test_burst_does_not_wait_for_parked_groups(stage: Stage) -> None:
    stage.configure(BACKOFF=(3600, 3600))
    stage.publish("fail", "parked")
    stage.publish("note", "other")

    assert stage.work("--burst").wait() == 0

    assert stage.backlog() == 1
    assert len(stage.traces.all("ended", group="other")) == 1


def test_burst_on_an_empty_queue_ends_at_once(stage: Stage) -> None:
    assert stage.work("--burst").wait() == 0


@pytest.mark.parametrize("order", [1, -1])
def test_burst_takes_in_what_handlers_publish_to_another_of_its_queues(
    stage: Stage, order: int
) -> None:
    other = f"{stage.queue}.other"
    stage.add_queue(other)
    for n in range(5):
        stage.publish("relay", f"g{n}", n=n, to=other)
    queues = [stage.queue, other][::order]

    assert stage.work("--burst", queues=queues).wait() == 0

    assert [trace.n for trace in stage.traces.all("ended", topic="note")] == list(range(5))


@pytest.mark.parametrize(("number", "processes"), [(7, 2), (1, 2), (4, 1)])
def test_max_messages_handles_exactly_so_many_over_all_processes(
    stage: Stage, number: int, processes: int
) -> None:
    stage.publish_numbered("note", ["g1", "g2", "g3"], 5)
    worker = stage.work("--max-messages", number, "--processes", processes, "--concurrency", 2)

    assert worker.wait() == 0
    assert len(stage.traces.all("ended")) == number
    assert stage.backlog() == 15 - number
    assert f"{number} processed, 0 failed" in worker.printed
    assert {trace.reason for trace in stage.traces.all("worker_stopping")} == {"max_messages"}


def test_max_messages_counts_what_a_process_that_died_has_claimed(stage: Stage) -> None:
    stage.publish("crash.once", "deadly", priority=4)
    stage.publish_numbered("note", ["g"], 5)
    worker = stage.work("--max-messages", 3)

    assert worker.wait() == 0
    assert len(stage.traces.all("started")) == 3
    assert "2 processed, 0 failed, 1 restart in" in worker.printed
    assert "; the figures of 1 process that died are missing" in worker.printed


def test_a_process_that_dies_of_its_last_message_is_not_replaced(stage: Stage) -> None:
    stage.publish("crash.once")
    worker = stage.work("--max-messages", 1)

    assert worker.wait() == 0
    assert len(stage.traces.all("started")) == 1
    assert "nothing of its share of --max-messages is left" in worker.log


def test_max_seconds_ends_an_idle_worker(stage: Stage) -> None:
    worker = stage.work("--max-seconds", 0.3)

    assert worker.wait() == 0
    assert [trace.reason for trace in stage.traces.all("worker_stopping")] == ["max_seconds"]


def test_max_seconds_lets_a_running_handler_finish(stage: Stage) -> None:
    stage.publish("gate")
    worker = stage.work("--max-seconds", 0.3, "--concurrency", 2)
    stage.wait_for_started()
    stage.traces.wait_for("worker_stopping")

    stage.open_gate()

    assert worker.wait() == 0
    assert len(stage.traces.all("ended")) == 1
    assert stage.backlog() == 0


def test_min_priority_leaves_lower_tiers_alone(stage: Stage) -> None:
    for priority in range(5):
        stage.publish("note", f"tier{priority}", priority=priority)

    assert stage.work("--min-priority", 3, "--burst").wait() == 0

    assert {trace.group for trace in stage.traces.all("ended")} == {"tier3", "tier4"}
    left = {tier.tier: tier.messages for tier in stage.snapshot().tiers}
    assert left == {4: 0, 3: 0, 2: 1, 1: 1, 0: 1}


ALL_BY_PRIORITY = ["high1", "high2", "high3", "mid1", "mid2", "mid3", "low1", "low2", "low3"]
ALL_BY_WAITING = ["low1", "low2", "low3", "mid1", "mid2", "mid3", "high1", "high2", "high3"]
HALF_EACH = ["low1", "high1", "low2", "high2", "low3", "high3", "mid1", "mid2", "mid3"]
# From tier 2 up by waiting, then the rest.
FROM_THE_THRESHOLD = ["mid1", "mid2", "mid3", "high1", "high2", "high3", "low1", "low2", "low3"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--priority-share", 1], ALL_BY_PRIORITY),
        (["--priority-share", 0], ALL_BY_WAITING),
        (["--priority-share", 0.5], HALF_EACH),
        (["--high-ratio", 1, "--priority-threshold", 2], FROM_THE_THRESHOLD),
        (["--high-ratio", 0, "--priority-threshold", 2], ALL_BY_WAITING),
    ],
)
def test_the_share_of_urgent_claims_shows_in_the_order_of_handling(
    stage: Stage, options: list[object], expected: list[str]
) -> None:
    for name, priority in (("low", 0), ("mid", 2), ("high", 4)):
        for number in (1, 2, 3):
            stage.publish("note", f"{name}{number}", priority=priority)

    assert stage.work("--burst", *options).wait() == 0

    assert [trace.group for trace in stage.traces.all("ended")] == expected


def test_options_win_over_the_settings(stage: Stage) -> None:
    stage.configure(VISIBILITY_TIMEOUT=3600, PRIORITY_SHARE=0)
    stage.publish("note", "low", priority=0)
    stage.publish("gate", "high", priority=4)
    worker = stage.work("--visibility", 2, "--priority-share", 1)
    [first] = stage.wait_for_started()

    assert first.group == "high"
    assert 0 < stage.group("high").lease_left_seconds <= 2
    assert "visibility 2 s" in worker.printed


def test_without_queues_named_all_configured_ones_are_worked_on(stage: Stage) -> None:
    worker = stage.work("--burst", queues=[])

    assert worker.wait() == 0
    assert f"queue    {stage.queue} at" in worker.printed
    assert "queue    default at" in worker.printed


def test_a_queue_named_twice_is_worked_on_once(stage: Stage) -> None:
    stage.publish("note")
    worker = stage.work("--burst", queues=[stage.queue, stage.queue])

    assert worker.wait() == 0
    assert worker.printed.count(f"queue    {stage.queue} at") == 1


def test_the_banner_tells_what_is_run_and_the_end_sums_it_up(
    stage: Stage, default_server: Server
) -> None:
    stage.publish_numbered("note", ["g1", "g2"], 2)
    stage.publish("steer", "g3", error="reject")
    worker = stage.work("--burst", "--processes", 2, "--concurrency", 3, "--visibility", 2.5)

    assert worker.wait() == 0

    assert "2 processes, each handling 3 messages at once" in worker.printed
    address = f"redis://127.0.0.1:{default_server.port}/0"
    assert f"queue    {stage.queue} at {address}, visibility 2.5 s" in worker.printed
    assert "handler  note: tests.worker.project.handlers.note" in worker.printed
    assert "stop with Ctrl-C or SIGTERM" in worker.printed
    assert "groupqueue: 4 processed, 1 failed, 0 restarts in" in worker.printed


def test_verbosity_0_prints_nothing(stage: Stage) -> None:
    stage.publish("note")
    worker = stage.work("--burst", "--verbosity", 0)

    assert worker.wait() == 0
    assert worker.printed == ""
    assert "started" not in worker.log


def test_verbosity_2_tells_of_every_message_but_not_what_it_holds(stage: Stage) -> None:
    message = stage.publish("note", "g1", secret="moonlight")
    worker = stage.work("--burst", "--verbosity", 2)

    assert worker.wait() == 0
    assert message in worker.log
    assert "moonlight" not in worker.log + worker.printed


# Nonsense ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--processes", "0"),
        ("--processes", "two"),
        ("--concurrency", "-1"),
        ("--concurrency", "1.5"),
        ("--visibility", "0"),
        ("--visibility", "nan"),
        ("--visibility", "soon"),
        ("--visibility", "0.0001"),
        ("--min-priority", "5"),
        ("--min-priority", "high"),
        ("--priority-share", "1.5"),
        ("--priority-share", "nan"),
        ("--high-ratio", "-0.1"),
        ("--priority-threshold", "9"),
        ("--batch", "0"),
        ("--batch", "1001"),
        ("--batch", "many"),
        ("--max-messages", "0"),
        ("--max-seconds", "0"),
        ("--max-seconds", "inf"),
        ("--shutdown-timeout", "-3"),
    ],
)
def test_a_bad_value_is_refused_by_name(option: str, value: str) -> None:
    with pytest.raises(CommandError) as refusal:
        call_command("run_group_workers", f"{option}={value}")

    assert option in str(refusal.value)
    assert value in str(refusal.value)
    # Not the name of a function of ours.
    assert "_" not in str(refusal.value).replace(value, "")


def test_a_name_that_is_no_text_is_refused(stage: Stage) -> None:
    worker = stage.work("--name", os.fsdecode(b"\xff"))

    assert worker.wait() == 2
    assert "argument --name: '\\udcff' is not valid UTF-8" in worker.log
    assert "Traceback" not in worker.log


def test_an_unknown_queue_is_refused_by_name() -> None:
    with pytest.raises(CommandError, match="'nowhere' is not a queue of the setting GROUPQUEUE"):
        call_command("run_group_workers", "nowhere")


def test_a_threshold_without_a_ratio_is_refused() -> None:
    with pytest.raises(CommandError, match="--high-ratio"):
        call_command("run_group_workers", "--priority-threshold=2")


def test_a_ratio_without_a_threshold_is_refused() -> None:
    with pytest.raises(CommandError, match="--priority-threshold"):
        call_command("run_group_workers", "--high-ratio=0.5")


def test_refusals_end_the_command_with_an_error(stage: Stage) -> None:
    bad_value = stage.work("--concurrency", "none")
    unknown_queue = stage.work(queues=["nowhere"])

    assert bad_value.wait() == 2
    assert "'none'" in bad_value.log
    assert unknown_queue.wait() == 1
    assert "CommandError: 'nowhere' is not a queue" in unknown_queue.log
    assert "Traceback" not in bad_value.log + unknown_queue.log


def test_a_wrong_setting_ends_the_command_with_its_path(stage: Stage) -> None:
    stage.plan.queues[stage.queue]["VISIBILITY_TIMEOUT"] = "soon"
    worker = stage.work("--skip-checks")

    assert worker.wait() == 1
    assert f"GROUPQUEUE['{stage.queue}']['VISIBILITY_TIMEOUT']" in worker.log
    assert "Traceback" not in worker.log


# Order is kept, whatever the options ------------------------------------------------------------


def test_shares_do_not_touch_the_order_inside_groups(stage: Stage) -> None:
    for n in range(5):
        for priority in range(5):
            stage.publish("note", f"tier{priority}", priority=4 - n if n else priority, n=n)

    assert stage.work("--burst", "--priority-share", 0.6, "--concurrency", 3).wait() == 0

    for traces in by_group(stage.traces.all("ended")).values():
        assert [trace.n for trace in traces] == list(range(5))
