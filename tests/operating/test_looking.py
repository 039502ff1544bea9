"""Do the verbs that look say what is there, to people and to scripts, and change nothing?"""

from __future__ import annotations

import datetime

import pytest

from groupqueue import publish
from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from tests.operating.conftest import Bench, operate

# The names that scripts rely on.
TIER_NAMES = {
    "tier",
    "groups",
    "due",
    "leased",
    "parked",
    "held",
    "messages",
    "longest_wait_seconds",
}
GROUP_NAMES = {
    "group",
    "tier",
    "state",
    "due_at",
    "wait_seconds",
    "depth",
    "head_id",
    "head_published_at",
    "token",
    "lease_left_seconds",
    "holder",
    "deliveries",
    "failures",
    "last_error",
    "held_since",
    "held_reason",
    "rate",
    "width",
    "in_flight",
    "started",
    "halted",
    "is_started",
}
MESSAGE_NAMES = {"id", "topic", "published_at", "size_bytes"}
LETTER_NAMES = {
    "entry",
    "group",
    "tier",
    "reason",
    "error",
    "deliveries",
    "failures",
    "died_at",
    "message",
}


def is_aware_time(text: str) -> bool:
    return datetime.datetime.fromisoformat(text).tzinfo is not None


def fill(bench: Bench) -> None:
    """Bring a group into each state."""
    bench.halt("halted")
    bench.park("parked")
    bench.publish("leased", 1, 2, tier=3)
    bench.claim("worker-7")
    bench.publish("paused")
    bench.queue.pause("paused", "data fix")
    bench.publish("due")


def test_stats_count_everything(bench: Bench) -> None:
    fill(bench)
    bench.bury("buried")
    beat = calls.heartbeat(bench.queue.prefix, "worker-7", {"host": "a", "pid": 3}, kept_ms=60_000)
    bench.transport.perform(beat)

    said = operate("stats", "--json")

    assert said.code == 0
    document = said.document
    assert set(document) == {
        "queue",
        "taken_at",
        "tiers",
        "totals",
        "halted",
        "dead_letters",
        "stopped_since",
        "stopped_reason",
        "rate",
        "group_rate",
        "counters",
        "leases_counted_fully",
        "workers",
        "exceeded",
    }
    assert document["queue"] == "default"
    assert is_aware_time(document["taken_at"])
    assert [tier["tier"] for tier in document["tiers"]] == [4, 3, 2, 1, 0]
    assert all(set(tier) == TIER_NAMES for tier in document["tiers"])
    totals = document["totals"]
    assert {name: totals[name] for name in ("groups", "due", "leased", "parked", "held")} == {
        "groups": 5,
        "due": 1,
        "leased": 1,
        "parked": 1,
        "held": 2,
    }
    assert (totals["messages"], document["halted"], document["dead_letters"]) == (6, 1, 1)
    [worker] = document["workers"]
    assert set(worker) == {"id", "seen_at", "silent_seconds", "fields"}
    assert (worker["id"], worker["fields"]) == ("worker-7", {"host": "a", "pid": "3"})


def test_stats_are_a_table_for_people(bench: Bench) -> None:
    fill(bench)

    said = operate("stats")

    lines = said.out.splitlines()
    assert lines[0].startswith("default at ")
    [total] = [line.split() for line in lines if line.startswith("all ")]
    assert total[1:7] == ["5", "1", "1", "1", "2", "6"]
    assert "1 halted groups, 0 dead letters" in said.out
    assert "no workers" in said.out


def test_stats_say_that_the_queue_is_stopped_and_at_which_rate_it_goes(bench: Bench) -> None:
    plain = operate("stats")
    assert "stopped" not in plain.out
    assert "rate" not in plain.out
    document = operate("stats", "--json").document
    assert [document[name] for name in ("stopped_since", "stopped_reason")] == [None, ""]
    assert [document[name] for name in ("rate", "group_rate")] == ["", ""]

    bench.queue.stop("moving\x1bhouse")
    bench.queue.set_rate("100/s")

    _, stopped, rate, *_ = operate("stats").out.splitlines()
    assert stopped.startswith("stopped since 2")
    assert stopped.endswith(": moving house")
    assert rate == "rate of the whole queue: 100/s"
    document = operate("stats", "--json").document
    assert is_aware_time(document["stopped_since"])
    assert (document["stopped_reason"], document["rate"]) == ("moving house", "100/s")


def test_stats_tell_the_rates_of_the_settings_unless_an_operator_has_said_otherwise(
    bench: Bench, settings
) -> None:
    connection = settings.GROUPQUEUE["default"]["CONNECTION"]
    rates = {"queue": "100/s", "group": "10/m:4"}
    settings.GROUPQUEUE = {"default": {"CONNECTION": connection, "RATE": rates}}

    said = operate("stats")
    assert said.out.splitlines()[1:3] == [
        "rate of the whole queue: 100/s",
        "rate of each group: 10/m:4",
    ]
    bench.queue.set_rate("none")
    document = operate("stats", "--json").document
    assert (document["rate"], document["group_rate"]) == ("none", "10/m:4")


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (["--max-lag", "0.5"], "lag_seconds"),
        (["--max-dead", "1"], "dead_letters"),
        (["--max-halted", "0"], "halted"),
    ],
)
def test_stats_exit_with_4_beyond_a_limit_and_say_which(
    bench: Bench, limits: list[str], name: str
) -> None:
    fill(bench)
    bench.bury("buried", 1, 2)
    bench.client.zadd(f"{bench.queue.prefix}:ready:0", {"due": 1})

    said = operate("stats", "--json", *limits)

    assert said.code == 4
    assert name in said.trouble
    [exceeded] = said.document["exceeded"]
    assert exceeded["name"] == name
    assert exceeded["found"] > exceeded["limit"] == float(limits[1])


def test_stats_within_their_limits_exit_with_0(bench: Bench) -> None:
    fill(bench)
    bench.bury("buried", 1, 2)

    said = operate("stats", "--max-lag", 3600, "--max-dead", 2, "--max-halted", 1, "--json")

    assert (said.code, said.document["exceeded"]) == (0, [])


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("due", [("due", "due")]),
        ("leased", [("leased", "leased")]),
        ("parked", [("parked", "parked")]),
        ("held", [("halted", "halted"), ("paused", "paused")]),
    ],
)
def test_groups_are_listed_by_state(
    bench: Bench, state: str, expected: list[tuple[str, str]]
) -> None:
    fill(bench)

    said = operate("groups", "--state", state, "--json")

    listed = said.document["groups"]
    assert [(view["group"], view["state"]) for view in listed] == expected
    assert all(set(view) == GROUP_NAMES for view in listed)
    text = operate("groups", "--state", state).out
    assert [line.split()[0] for line in text.splitlines()[1:]] == [name for name, _ in expected]


def test_groups_without_a_state_are_all_lists(bench: Bench) -> None:
    fill(bench)

    listed = operate("groups", "--json").document["groups"]

    assert [view["group"] for view in listed] == ["due", "leased", "parked", "halted", "paused"]


def test_groups_are_bounded(bench: Bench) -> None:
    for number in range(5):
        bench.publish(f"group-{number}")

    assert len(operate("groups", "--limit", 3, "--json").document["groups"]) == 3


def test_groups_tell_how_long_and_why(bench: Bench) -> None:
    fill(bench)

    text = operate("groups").out

    rows = {line.split()[0]: line for line in text.splitlines()[1:]}
    assert "left" in rows["leased"]
    assert "worker-7" in rows["leased"]
    assert "in 59 min" in rows["parked"]
    assert "RuntimeError: out of paint" in rows["parked"]
    assert "max_attempts; RuntimeError: boom" in rows["halted"]
    assert "data fix" in rows["paused"]


def wide_with_halted_messages(bench: Bench) -> list[str]:
    """Fill a wide group of which two messages are halted, one in flight and one waits."""
    ids = [publish("note", n, group="wide", width=3, on_commit=False) for n in range(4)]
    for _ in range(2):
        bench.transport.settle(Settlement.halt(bench.claim(), "max_attempts", "boom"))
    bench.claim("worker-7")
    return ids


def test_started_messages_of_a_wide_group_are_listed_with_their_ids(bench: Bench) -> None:
    first, second, third, _ = wide_with_halted_messages(bench)

    text = operate("groups").out
    views = operate("groups", "--state", "held", "--all", "--json").document["groups"]

    for identifier in (first, second, third):
        assert f"wide {identifier}" in text
    assert "wide (1 of 3)" in text
    assert [(view["group"], view["head_id"], view["is_started"]) for view in views] == [
        ("wide", first, True),
        ("wide", second, True),
    ]
    assert f"wide {second}" in operate("groups", "--state", "held", "--all").out


def test_a_wide_group_is_explained(bench: Bench) -> None:
    wide_with_halted_messages(bench)

    document = operate("explain", "wide", "--json").document
    text = operate("explain", "wide").out

    assert (document["width"], document["in_flight"], document["depth"]) == (3, 1, 1)
    assert (document["started"], document["halted"]) == (3, 2)
    assert document["state"] == "leased"
    assert "1 of 3 messages are in flight, 1 wait; 2 were given up" in document["reason"]
    rows = [line.rsplit(maxsplit=1) for line in text.splitlines()]
    assert ["width", "3"] in rows
    assert ["in flight", "1"] in rows


def test_peek_shows_a_wide_groups_started_messages_too(bench: Bench) -> None:
    ids = wide_with_halted_messages(bench)

    document = operate("peek", "wide", "--json").document

    assert document["depth"] == 4
    assert {message["id"] for message in document["messages"]} == set(ids)
    assert document["messages"][-1]["id"] == ids[-1]


def test_held_groups_are_counted_beyond_what_is_listed_and_halted_ones_come_first(
    bench: Bench,
) -> None:
    for number in range(300):
        bench.queue.pause(f"paused-{number}")
    bench.halt("halted")

    assert operate("stats", "--json").document["halted"] == 1
    assert operate("groups", "--limit", 1, "--json").document["groups"][-1]["group"] == "halted"


def test_every_held_group_can_be_listed_halted_ones_first(bench: Bench) -> None:
    for number in range(300):
        bench.queue.pause(f"paused-{number:03}")
    bench.halt("halted")

    said = operate("groups", "--state", "held", "--all", "--json")

    listed = [view["group"] for view in said.document["groups"]]
    assert listed == ["halted", *(f"paused-{number:03}" for number in range(300))]


def test_only_held_groups_can_be_listed_as_a_whole(bench: Bench) -> None:
    assert operate("groups", "--all").code == 2
    assert operate("groups", "--state", "due", "--all").code == 2


@pytest.mark.parametrize("group", ["due", "leased", "parked", "paused", "halted"])
def test_explain_tells_state_and_reason(bench: Bench, group: str) -> None:
    fill(bench)

    said = operate("explain", group, "--json")

    document = said.document
    assert set(document) == GROUP_NAMES | {
        "queue",
        "reason",
        "groups_ahead",
        "groups_above",
        "leased_since",
        "holder_fields",
        "stopped_since",
        "stopped_reason",
    }
    assert (said.code, document["group"], document["state"]) == (0, group, group)
    assert document["reason"]
    text = operate("explain", group).out
    assert dict(line.split(maxsplit=1) for line in text.splitlines())["state"] == group


def test_explain_names_the_holder(bench: Bench) -> None:
    fill(bench)
    beat = calls.heartbeat(bench.queue.prefix, "worker-7", {"host": "a", "pid": 3}, kept_ms=60_000)
    bench.transport.perform(beat)

    document = operate("explain", "leased", "--json").document

    assert (document["holder"], document["holder_fields"]) == (
        "worker-7",
        {"host": "a", "pid": "3"},
    )
    assert is_aware_time(document["leased_since"])
    assert "host=a pid=3" in operate("explain", "leased").out


def test_explain_tells_the_place_in_line(bench: Bench) -> None:
    bench.publish("first")
    bench.publish("second")
    bench.publish("urgent", tier=4)

    document = operate("explain", "second", "--json").document

    assert (document["groups_ahead"], document["groups_above"]) == (1, 1)
    assert "1 groups have waited longer, 1 are in higher tiers" in operate("explain", "second").out


def test_an_unknown_group_is_empty_and_no_error(bench: Bench) -> None:
    said = operate("explain", "nowhere", "--json")

    assert (said.code, said.document["state"], said.document["depth"]) == (0, "empty", 0)
    assert "no messages" in said.document["reason"]


def test_a_paused_group_without_messages_is_paused(bench: Bench) -> None:
    bench.queue.pause("group")

    document = operate("explain", "group", "--json").document

    assert document["state"] == "paused"
    assert "will wait" in document["reason"]


def test_peek_shows_messages_and_no_payload_unless_asked(bench: Bench) -> None:
    ids = bench.publish("group", "secret-0", "secret-1", "secret-2", topic="note")

    said = operate("peek", "group", "--json")

    document = said.document
    assert (document["group"], document["depth"], document["start"]) == ("group", 3, 0)
    assert [message["id"] for message in document["messages"]] == ids
    assert all(set(message) == MESSAGE_NAMES for message in document["messages"])
    assert "secret" not in said.out + operate("peek", "group").out


def test_peek_shows_payloads_when_asked(bench: Bench) -> None:
    bench.publish("group", {"n": 1})

    [message] = operate("peek", "group", "--payloads", "--json").document["messages"]

    assert (message["payload"], message["headers"]) == ({"n": 1}, {})
    assert '{"n": 1}' in operate("peek", "group", "--payloads").out


def test_peek_pages(bench: Bench) -> None:
    ids = bench.publish("group", *range(10))

    document = operate("peek", "group", "--start", 4, "--limit", 2, "--json").document

    assert [message["id"] for message in document["messages"]] == ids[4:6]
    assert document["depth"] == 10
    assert "no messages there" in operate("peek", "group", "--start", 10).out


def test_peek_shows_what_no_codec_can_read(bench: Bench) -> None:
    bench.transport.publish("group", b"\xff not JSON")

    [message] = operate("peek", "group", "--payloads", "--json").document["messages"]

    assert (message["topic"], message["payload"]) == ("", None)


def test_dead_letters_are_listed_newest_first(bench: Bench) -> None:
    bench.bury("a", "secret-1", reason="max_attempts")
    bench.bury("b", "secret-2", topic="other", reason="rejected")

    said = operate("dead", "--json")

    document = said.document
    assert document["total"] == 2
    assert [letter["group"] for letter in document["letters"]] == ["b", "a"]
    assert all(set(letter) == LETTER_NAMES for letter in document["letters"])
    assert document["letters"][0]["message"]["topic"] == "other"
    assert is_aware_time(document["letters"][0]["died_at"])
    text = operate("dead").out
    assert "2 shown, 2 in all" in text
    assert "secret" not in said.out + text


@pytest.mark.parametrize(
    ("filters", "groups"),
    [
        (["--group", "a"], ["a"]),
        (["--topic", "other"], ["b"]),
        (["--reason", "rejected"], ["b"]),
        (["--group", "a", "--topic", "other"], []),
        (["--since", "1h"], ["b", "a"]),
        (["--until", "1h"], []),
        (["--until", "1969-12-31"], []),
        (["--since", "1969-12-31"], ["b", "a"]),
        (["--limit", "1"], ["b"]),
    ],
)
def test_dead_letters_are_narrowed_down(
    bench: Bench, filters: list[str], groups: list[str]
) -> None:
    bench.bury("a", reason="max_attempts")
    bench.bury("b", topic="other", reason="rejected")

    said = operate("dead", "--json", *filters)

    assert (said.code, [letter["group"] for letter in said.document["letters"]]) == (0, groups)


def test_scheduled_messages_are_listed_soonest_first(bench: Bench) -> None:
    later = publish("note", 1, group="a", delay=7200)
    sooner = publish("note", 2, group="b", delay=3600)

    document = operate("scheduled", "--json").document

    assert [message["id"] for message in document["messages"]] == [sooner, later]
    assert (document["total"], document["messages"][0]["group"]) == (2, "b")
    assert is_aware_time(document["messages"][0]["due_at"])
    assert sooner in operate("scheduled").out


@pytest.mark.parametrize(
    "verb",
    [["stats"], ["groups"], ["explain", "due"], ["peek", "due"], ["dead"], ["scheduled"]],
    ids=" ".join,
)
def test_looking_writes_nothing(bench: Bench, verb: list[str]) -> None:
    fill(bench)
    bench.bury("buried")
    before = {key: bench.client.dump(key) for key in bench.client.keys("*")}

    operate(*verb)

    assert {key: bench.client.dump(key) for key in bench.client.keys("*")} == before


def limited(bench: Bench) -> None:
    """Bring a group where its rate does not let it go."""
    bench.queue.set_rate("1/h", "limited")
    bench.publish("limited", 1, 2)
    bench.transport.ack(bench.claim())
    assert bench.transport.claim("worker", 60) is None


def test_groups_show_a_rate_and_what_it_holds_back(bench: Bench) -> None:
    limited(bench)
    publish("note", 1, group="held", delay=7200, hold=True)

    listed = operate("groups", "--state", "parked", "--json").document["groups"]
    _, first, second = operate("groups", "--state", "parked").out.splitlines()

    assert [(view["group"], view["state"], view["rate"]) for view in listed] == [
        ("limited", "rate-limited", "1/h"),
        ("held", "scheduled", ""),
    ]
    assert first.split("  ")[0] == "limited"
    assert "in 59 min" in first
    assert first.endswith("rate 1/h")
    assert "scheduled" in second
    assert "in 1 h 59 min" in second


def test_groups_say_that_the_queue_is_stopped_and_at_which_rate_it_goes(bench: Bench) -> None:
    bench.publish("group")
    bench.queue.stop("moving house")
    bench.queue.set_rate("100/s")

    stopped, rate, _, group = operate("groups", "--state", "due").out.splitlines()
    document = operate("groups", "--json").document

    assert stopped.endswith(": moving house")
    assert rate == "rate of the whole queue: 100/s"
    assert group.startswith("group")
    assert is_aware_time(document["stopped_since"])
    assert (document["stopped_reason"], document["rate"]) == ("moving house", "100/s")


def test_explain_tells_of_a_rate_and_of_a_stop(bench: Bench) -> None:
    limited(bench)
    bench.queue.stop("moving house")

    text = operate("explain", "limited").out
    document = operate("explain", "limited", "--json").document

    lines = dict(line.split("  ", 1) for line in text.splitlines() if "  " in line)
    assert lines["state"].strip() == "rate-limited"
    assert lines["rate"].strip() == "1/h"
    assert "all of the queue is stopped: moving house" in lines["reason"]
    assert lines["queue stopped"].strip().startswith("2")
    assert (document["rate"], document["stopped_reason"]) == ("1/h", "moving house")
