"""Does the reply of `inspect` become what people are shown, odd values included?"""

from __future__ import annotations

from typing import Any

import pytest

from groupqueue.core.messages import moment
from groupqueue.core.snapshot import Snapshot, snapshot_decoder

NOW = 1796007991297
HEAD = b"0" * 32 + b"1796007990000" + b"0" * 13


def group(name: str = "g", due: bytes = b"1796007991000.5", **other: Any) -> list[Any]:
    """Return a row of `inspect` for a group that waits, but for what is given."""
    row = {
        "tier": b"2",
        "due": due,
        "depth": 3,
        "head": HEAD,
        "token": b"",
        "left_ms": 0,
        "holder": b"",
        "deliveries": b"",
        "failures": b"",
        "error": b"",
        "why": b"",
        "rate": b"",
        "free_us": b"",
        "is_head_held": 0,
        "width": 0,
        "in_flight": 0,
        "started": 0,
        "halted": 0,
    } | other
    return [name.encode(), *row.values()]


def decoded(limit: int = 20, **lists: Any) -> Snapshot:
    names = ("tiers", "waiting", "leased", "parked", "held", "workers", "counters")
    numbers = (lists.get(name, 0) for name in ("seen", "halted", "dead"))
    texts = (lists.get(name, b"") for name in ("stopped", "rate"))
    reply = [NOW, *(lists.get(name, []) for name in names), *numbers, *texts]
    return snapshot_decoder(limit)(reply)


def test_a_group_that_waits():
    [view] = decoded(waiting=[group()]).waiting

    assert (view.group, view.tier, view.state, view.depth) == ("g", 2, "due", 3)
    assert (view.token, view.holder, view.deliveries, view.failures) == (None, "", 0, 0)
    assert view.wait_seconds == pytest.approx(0.2965)
    assert view.head_published_at == moment(1796007990000)


def test_a_leased_group():
    row = group(due=b"1796008021297", token=b"17", left_ms=30_000, holder=b"w", deliveries=b"2")

    [view] = decoded(leased=[row]).leased

    assert (view.state, view.token, view.lease_left_seconds, view.holder) == ("leased", 17, 30, "w")
    assert view.due_at == moment(1796008021297)


def test_a_group_that_became_due_within_this_millisecond_is_due():
    [view] = decoded(waiting=[group(due=b"%d.999" % NOW)]).waiting

    assert (view.state, view.wait_seconds) == ("due", 0)


def test_a_group_that_arrived_in_front_has_waited_since_its_head_was_published():
    unknown, known = decoded(waiting=[group(due=b"0", head=b""), group(due=b"0")]).waiting[::-1]

    assert (known.state, known.wait_seconds) == ("due", pytest.approx(1.297))
    assert known.due_at == moment(1796007990000)
    assert (unknown.state, unknown.wait_seconds) == ("due", 0)


def test_a_parked_group():
    row = group(due=b"1796008021297", deliveries=b"2", failures=b"2", error="böse".encode())

    [view] = decoded(parked=[row]).parked

    assert (view.state, view.failures, view.last_error, view.wait_seconds) == (
        "parked",
        2,
        "böse",
        0,
    )


@pytest.mark.parametrize(
    ("why", "state", "since", "reason"),
    [
        (b"paused 1796007991000 data fix", "paused", 1796007991000, "data fix"),
        (b"halted 1796007991000 max_attempts", "halted", 1796007991000, "max_attempts"),
        (b"paused 1796007991000 ", "paused", 1796007991000, ""),
        (b"by hand", "paused", None, ""),
        (b"", "paused", None, ""),
    ],
)
def test_a_held_group_tells_since_when_and_why(why: bytes, state: str, since: Any, reason: str):
    [view] = decoded(held=[group(due=b"inf", why=why)]).held

    assert (view.state, view.held_reason, view.due_at) == (state, reason, None)
    assert view.held_since == (since and moment(since))


def test_a_group_edited_by_hand_is_shown_as_it_is():
    row = group(due=b"", head=b"short", error=b"\xff", token=b"", depth=0)

    [view] = decoded(leased=[row]).leased

    # The id is what an operator names the head by, whatever it is.
    assert (view.head_id, view.head_published_at, view.due_at) == ("short", None, None)
    assert view.last_error == "\N{REPLACEMENT CHARACTER}"


def test_waiting_groups_of_all_tiers_are_merged_by_their_wait_and_cut():
    rows = [group(name, due=str(NOW - wait).encode()) for name, wait in (("b", 50), ("d", 10))]
    rows += [group(name, due=str(NOW - wait).encode()) for name, wait in (("a", 70), ("c", 30))]

    assert [view.group for view in decoded(limit=3, waiting=rows).waiting] == ["a", "b", "c"]


def test_parked_groups_of_all_tiers_are_merged_by_their_moment_and_cut():
    rows = [group(name, due=str(NOW + wait).encode()) for name, wait in (("b", 50), ("d", 90))]
    rows += [group(name, due=str(NOW + wait).encode()) for name, wait in (("a", 10), ("c", 70))]

    assert [view.group for view in decoded(limit=3, parked=rows).parked] == ["a", "b", "c"]


def test_parked_is_what_is_neither_due_nor_leased_nor_held():
    [tier] = decoded(tiers=[[3, 10, 4, 2, 1, 25, 1500]]).tiers

    assert (tier.tier, tier.groups, tier.due, tier.leased, tier.parked, tier.held) == (
        3,
        10,
        4,
        2,
        3,
        1,
    )
    assert (tier.messages, tier.longest_wait_seconds) == (25, 1.5)


def test_a_count_that_was_cut_short_is_no_negative_number():
    [tier] = decoded(tiers=[[3, 1, 1, 1, 0, 0, 0]]).tiers

    assert tier.parked == 0


def test_workers_and_counters():
    taken = decoded(
        workers=[[b"w1", b"1796007990297", [b"host", b"a", b"pid", b"7"]], [b"w2", b"1.8e12", []]],
        counters=[b"published", b"12", b"acked", b"7"],
    )

    assert taken.counters == {"published": 12, "acked": 7}
    first, second = taken.workers
    assert (first.id, first.silent_seconds, first.fields) == ("w1", 1.0, {"host": "a", "pid": "7"})
    assert (second.silent_seconds, second.fields) == (0, {})


@pytest.mark.parametrize(("seen", "fully"), [(0, True), (1999, True), (2000, False), (2300, False)])
def test_a_snapshot_says_whether_it_looked_at_every_lease(seen: int, fully: bool):  # noqa: FBT001
    assert decoded(seen=seen).leases_counted_fully is fully


@pytest.mark.parametrize("seen", [b"inf", b"-inf", b"1e300"])
def test_a_heartbeat_at_no_moment_is_shown_at_the_nearest_one(seen: bytes):
    [worker] = decoded(workers=[[b"w", seen, []]]).workers

    assert worker.seen_at == moment(float(seen))


def test_numbers_of_any_length_are_shown_as_none():
    digits = b"9" * 5000
    row = group(due=b"inf", token=digits, why=b"paused %s why" % digits, deliveries=digits)
    taken = decoded(held=[row], stopped=digits + b" why", counters=[b"acked", digits])

    [view] = taken.held
    assert (view.token, view.deliveries, view.held_reason) == (None, 0, "why")
    assert taken.counters == {"acked": 0}
    assert taken.stopped_reason == "why"
    assert taken.stopped_since is not None, "a stopped queue is said to be stopped"
