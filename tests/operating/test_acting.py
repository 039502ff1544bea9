"""Do the verbs that change something do it, and say when there was nothing to do?"""

from __future__ import annotations

import datetime

import pytest

from groupqueue import publish
from tests.operating.conftest import Bench, operate


def test_pause_and_resume(bench: Bench) -> None:
    bench.publish("group")

    paused = operate("pause", "group", "--why", "data fix", "--json")
    assert (paused.code, paused.document) == (
        0,
        {"queue": "default", "done": True, "outcome": "ok", "group": "group"},
    )
    assert bench.queue.explain("group").group.held_reason == "data fix"
    again = operate("pause", "group", "--json")
    assert (again.code, again.document["outcome"]) == (1, "held")
    assert "held already" in again.trouble

    assert operate("resume", "group").out == "resumed group group\n"
    nothing = operate("resume", "group", "--json")
    assert (nothing.code, nothing.document["done"]) == (1, False)
    assert nothing.document["outcome"] == "not held"


def test_stop_and_start(bench: Bench) -> None:
    bench.publish("group")

    stopped = operate("stop", "--why", "moving house", "--yes", "--json")
    assert (stopped.code, stopped.document) == (
        0,
        {"queue": "default", "done": True, "outcome": "ok"},
    )
    assert bench.transport.claim("worker", 60) is None
    again = operate("stop", "--yes", "--json")
    assert (again.code, again.document["outcome"]) == (1, "stopped")
    assert "stopped already" in again.trouble

    assert operate("start").out == "started queue default\n"
    assert bench.claim().group == "group"
    nothing = operate("start", "--json")
    assert (nothing.code, nothing.document["outcome"]) == (1, "not stopped")


def test_the_rate_of_a_group_and_of_the_queue(bench: Bench) -> None:
    said = operate("rate", "10/m:2", "--group", "group", "--json")
    assert (said.code, said.document) == (
        0,
        {
            "queue": "default",
            "done": True,
            "outcome": "ok",
            "rate": "10/m:2",
            "former": "default",
            "group": "group",
        },
    )
    assert operate("rate", "none", "--group", "group").out == (
        "group group: rate none, formerly 10/m:2\n"
    )
    assert operate("rate", "100/s").out == "queue default: rate 100/s, formerly default\n"
    assert bench.queue.snapshot().rate == "100/s"
    assert operate("rate", "default").out == "queue default: rate default, formerly 100/s\n"
    assert bench.queue.snapshot().rate == ""


@pytest.mark.parametrize("rate", ["10", "often", "0/m", "", "NONE"])
def test_what_is_no_rate_is_refused(bench: Bench, rate: str) -> None:
    said = operate("rate", rate)

    assert said.code
    assert "is no rate" in said.trouble
    assert not bench.client.keys("*")


def test_set_tier(bench: Bench) -> None:
    bench.publish("group")

    said = operate("set-tier", "group", 4, "--json")

    assert (said.code, said.document["tier"]) == (0, 4)
    assert bench.queue.explain("group").group.tier == 4
    empty = operate("set-tier", "nowhere", 4, "--json")
    assert (empty.code, empty.document["outcome"]) == (1, "empty")


def test_skip(bench: Bench) -> None:
    first, second = bench.publish("group", 1, 2)

    moved = operate("skip", "group", second, "--yes", "--json")
    assert (moved.code, moved.document["outcome"]) == (1, "moved")
    said = operate("skip", "group", first, "--yes", "--json")
    assert (said.code, said.document["id"]) == (0, first)
    assert bench.waiting("group") == [2]
    bench.claim()
    leased = operate("skip", "group", second, "--yes", "--json")
    assert (leased.code, leased.document["outcome"]) == (1, "leased")


def test_release(bench: Bench) -> None:
    bench.publish("group")
    bench.claim()

    assert operate("release", "group", "--yes").code == 0
    assert bench.queue.explain("group").state == "due"
    again = operate("release", "group", "--yes", "--json")
    assert (again.code, again.document["outcome"]) == (1, "not leased")


def test_release_of_one_lease_and_no_later_one(bench: Bench) -> None:
    bench.publish("group")
    token = bench.claim().token

    other = operate("release", "group", "--token", token - 1, "--yes", "--json")
    assert (other.code, other.document["outcome"]) == (1, "not leased")
    assert bench.queue.explain("group").state == "leased"
    assert operate("release", "group", "--token", token, "--yes").code == 0
    assert bench.queue.explain("group").state == "due"


def test_purge(bench: Bench) -> None:
    bench.publish("group", *range(5))

    said = operate("purge", "group", "--yes", "--json")

    assert (said.code, said.document["messages"]) == (0, 5)
    assert bench.queue.explain("group").state == "empty"
    again = operate("purge", "group", "--yes", "--json")
    assert (again.code, again.document["outcome"], again.document["messages"]) == (1, "empty", 0)


def test_redrive_by_entry(bench: Bench) -> None:
    bench.bury("group", 1, 2, 3)
    letters = bench.queue.dead_letters().letters

    said = operate("redrive", letters[0].entry, letters[2].entry, "--json")

    assert (said.code, said.document["letters"]) == (0, 2)
    assert bench.waiting("group") == [1, 3]
    assert bench.queue.dead_letters().total == 1


@pytest.mark.parametrize(
    ("selection", "redriven"),
    [
        (["--group", "a"], {"a"}),
        (["--topic", "other"], {"b"}),
        (["--reason", "rejected"], {"b"}),
        (["--since", "1h"], {"a", "b"}),
        (["--all"], {"a", "b"}),
    ],
)
def test_redrive_by_what_letters_are(
    bench: Bench, selection: list[str], redriven: set[str]
) -> None:
    bench.bury("a", reason="max_attempts")
    bench.bury("b", topic="other", reason="rejected")

    assert operate("redrive", *selection).code == 0

    assert {group for group in ("a", "b") if bench.waiting(group)} == redriven


def test_redrive_goes_before_what_waits_unless_it_is_told_otherwise(bench: Bench) -> None:
    bench.bury("front", 1)
    bench.bury("tail", 1)
    bench.publish("front", 2)
    bench.publish("tail", 2)

    operate("redrive", "--group", "front")
    operate("redrive", "--group", "tail", "--to-tail")

    assert (bench.waiting("front"), bench.waiting("tail")) == ([1, 2], [2, 1])


def test_drop(bench: Bench) -> None:
    bench.bury("a")
    bench.bury("b")

    said = operate("drop", "--group", "a", "--yes", "--json")

    assert (said.code, said.document["letters"]) == (0, 1)
    assert [letter.group for letter in bench.queue.dead_letters().letters] == ["b"]


@pytest.mark.parametrize("verb", [["redrive"], ["drop", "--yes"]], ids=lambda verb: verb[0])
def test_letters_that_are_not_there_are_nothing_done(bench: Bench, verb: list[str]) -> None:
    for selection in (["--all"], ["1796007627120-0"], ["--group", "nowhere"]):
        said = operate(*verb, *selection, "--json")

        assert (said.code, said.document["outcome"]) == (1, "none")


@pytest.mark.parametrize("verb", [["redrive"], ["drop", "--yes"]], ids=lambda verb: verb[0])
def test_all_letters_are_never_meant_by_omission(bench: Bench, verb: list[str]) -> None:
    bench.bury("a")

    for selection in ([], ["--all", "--group", "a"], ["--all", "1796007627120-0"]):
        assert operate(*verb, *selection).code == 2
    assert bench.queue.dead_letters().total == 1


def test_cancel(bench: Bench) -> None:
    identifier = publish("note", 1, group="group", delay=3600)

    said = operate("cancel", identifier, "--yes", "--json")

    assert (said.code, said.document["id"]) == (0, identifier)
    again = operate("cancel", identifier, "--yes", "--json")
    assert (again.code, again.document["outcome"]) == (1, "not scheduled")


def test_reschedule(bench: Bench) -> None:
    identifier = publish("note", 1, group="group", delay=3600)

    said = operate("reschedule", identifier, "--eta", "2100-01-31T09:30Z", "--json")

    assert (said.code, said.document["id"]) == (0, identifier)
    [scheduled] = bench.queue.scheduled().messages
    assert scheduled.due_at == datetime.datetime(2100, 1, 31, 9, 30, tzinfo=datetime.UTC)
    before = datetime.datetime.now(datetime.UTC)
    assert operate("reschedule", identifier, "--delay", "2h").out.startswith("rescheduled")
    [scheduled] = bench.queue.scheduled().messages
    passed = scheduled.due_at - before
    assert datetime.timedelta(hours=2) <= passed + datetime.timedelta(milliseconds=1)
    assert passed < datetime.timedelta(hours=3)
    unknown = operate("reschedule", "0" * 32, "--delay", 5, "--json")
    assert (unknown.code, unknown.document["outcome"]) == (1, "not scheduled")


@pytest.mark.parametrize(
    "due", [[], ["--delay", "5", "--eta", "2100-01-01"], ["--eta", "2h"], ["--delay", "soon"]]
)
def test_rescheduling_takes_one_moment(bench: Bench, due: list[str]) -> None:
    said = operate("reschedule", "0" * 32, *due)

    assert said.code
    assert "--delay" in said.trouble or "--eta" in said.trouble


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", ""],
        ["explain", "x" * 513],
        ["pause", "\udc80"],
        ["rate", "10/m", "--group", ""],
        ["redrive", "no-entry"],
        ["redrive", "17-0x"],
        ["stats", "--queue", "nowhere"],
    ],
    ids=repr,
)
def test_what_makes_no_sense_is_a_usage_error(bench: Bench, arguments: list[str]) -> None:
    said = operate(*arguments)

    assert (said.code, said.out) == (2, "")
    assert said.trouble


def test_a_queue_is_chosen_by_name(bench: Bench, settings) -> None:
    connection = settings.GROUPQUEUE["default"]["CONNECTION"]
    settings.GROUPQUEUE = {name: {"CONNECTION": connection} for name in ("default", "mail")}
    publish("note", 1, group="group", queue="mail")

    assert operate("explain", "group", "--queue", "mail", "--json").document["depth"] == 1
    assert operate("explain", "group", "--json").document["depth"] == 0


def test_the_only_queue_need_not_be_named(bench: Bench, settings) -> None:
    connection = settings.GROUPQUEUE["default"]["CONNECTION"]
    settings.GROUPQUEUE = {"mail": {"CONNECTION": connection}}

    assert operate("stats", "--json").document["queue"] == "mail"


def test_among_several_queues_one_must_be_named_or_be_the_default(bench: Bench, settings) -> None:
    connection = settings.GROUPQUEUE["default"]["CONNECTION"]
    settings.GROUPQUEUE = {name: {"CONNECTION": connection} for name in ("mail", "orders")}

    assert operate("stats").code == 2
