"""Do calls carry what they are given, refuse what is out of range, and read every reply?"""

from __future__ import annotations

import math
from typing import Any

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import (
    MAX_BATCH,
    MAX_ERROR_CHARACTERS,
    MAX_LEASES_PER_CALL,
    MAX_MESSAGES_PER_CALL,
    Preference,
    Settled,
    Settlement,
    checked_min_tier,
    in_chunks,
    milliseconds,
    one_line,
    shortened,
)
from groupqueue.core.messages import Envelope, Lease, Leased
from groupqueue.exceptions import InvalidArgument, StaleLease

LEASE = Lease(
    *("group-1", 7001, "0" * 32, b"secret", 3, 2, 1, 1796007991297, 0),
    failing_since_ms=1796007991000,
)
ELEMENT = b"0" * 32 + b"1796007991297" + b"0" * 13 + b"secret"


def envelopes(count: int) -> list[Envelope]:
    return [Envelope(f"{n:032x}", f"group-{n}", n % 5, b"%d" % n) for n in range(count)]


# Which calls may be repeated ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "repeatable"),
    [
        (calls.publish("p", envelopes(1), publisher="me", sequence=1), True),
        (calls.ack("p", LEASE), True),
        (calls.nack("p", LEASE), True),
        (calls.settle("p", Settlement.ack(LEASE)), True),
        (calls.renew("p", [LEASE], visibility_ms=1), True),
        (calls.recover("p", "w", after_token=0), True),
        # A repeated claim would take a second group, and nobody would work on the first.
        (calls.claim("p", "w", visibility_ms=1), False),
        (calls.turn("p", "w", [], 1, visibility_ms=1), False),
    ],
    ids=lambda value: getattr(value, "script", None),
)
def test_only_what_has_no_second_effect_may_be_repeated(call: calls.Call[Any], repeatable: bool):  # noqa: FBT001
    assert call.repeatable is repeatable


# What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, MAX_MESSAGES_PER_CALL + 1])
def test_publish_takes_one_to_a_thousand_messages(count: int):
    with pytest.raises(InvalidArgument, match=str(count)):
        calls.publish("p", envelopes(count), publisher="me", sequence=1)


@pytest.mark.parametrize("count", [0, MAX_LEASES_PER_CALL + 1])
def test_renew_takes_one_to_four_hundred_leases(count: int):
    with pytest.raises(InvalidArgument, match=str(count)):
        calls.renew("p", [LEASE] * count, visibility_ms=1)


ENTRY = "1796007991297-0"


@pytest.mark.parametrize(
    ("most", "build"),
    [
        (100, lambda count: calls.purge("p", ["group"] * count)),
        (100, lambda count: calls.redrive("p", [ENTRY] * count)),
        (500, lambda count: calls.drop("p", [ENTRY] * count)),
        (500, lambda count: calls.agenda("p", 0, count, len)),
        (500, lambda count: calls.peek("p", "group", 0, count, len)),
        (500, lambda count: calls.letters("p", "-", "+", count, newest_first=False, decode=len)),
        (200, lambda count: calls.inspect("p", count, len)),
        (200, lambda count: calls.held("p", "0", count, len)),
    ],
)
def test_what_one_call_takes_or_lists_is_bounded(most: int, build: Any):
    for count in (1, most):
        build(count)
    for count in (0, most + 1):
        with pytest.raises(InvalidArgument, match=f"{count}.*1 to {most}"):
            build(count)


@pytest.mark.parametrize(("settled", "want"), [(0, -1), (0, 401), (401, 0)])
def test_a_turn_takes_up_to_four_hundred_of_each(settled: int, want: int):
    with pytest.raises(InvalidArgument, match="400"):
        calls.turn("p", "w", [Settlement.ack(LEASE)] * settled, want, visibility_ms=1)


@pytest.mark.parametrize(
    "preference",
    [
        Preference(min_tier=-1),
        Preference(min_tier=5),
        Preference(threshold=-2),
        Preference(threshold=5),
        Preference(preferred=-1),
    ],
)
def test_a_turn_refuses_a_preference_that_makes_no_sense(preference: Preference):
    with pytest.raises(InvalidArgument):
        calls.turn("p", "w", [], 1, visibility_ms=1, preference=preference)


@pytest.mark.parametrize("seconds", [-1, -0.001, math.nan, math.inf, 10**10, "5", None, True, [1]])
def test_a_length_of_time_is_a_number_of_seconds_from_zero_up(seconds: Any):
    with pytest.raises(InvalidArgument, match="pause"):
        milliseconds(seconds, "pause")


@pytest.mark.parametrize("seconds", [0, 0.0004, -1])
def test_where_time_must_pass_less_than_a_millisecond_is_refused(seconds: float):
    with pytest.raises(InvalidArgument, match="more than 0"):
        milliseconds(seconds, "visibility", positive=True)


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0, 0), (1, 1000), (0.0015, 2), (1.2345, 1234), (10**9, 10**12)]
)
def test_seconds_become_whole_milliseconds(seconds: float, expected: int):
    assert milliseconds(seconds, "delay") == expected


@pytest.mark.parametrize("tier", range(5))
def test_a_min_priority_is_a_tier(tier: int):
    assert checked_min_tier(tier) == tier


@pytest.mark.parametrize("tier", [-1, 5, 1.0, "1", None, True])
def test_any_other_min_priority_is_refused(tier: Any):
    with pytest.raises(InvalidArgument, match="min_priority"):
        checked_min_tier(tier)


# What is carried -----------------------------------------------------------------------------


def test_settlements_carry_what_their_outcome_needs():
    assert Settlement.ack(LEASE) == ("ack", LEASE, "", "", 1)
    assert Settlement.retry(LEASE, 1.5, "boom") == ("retry", LEASE, "1500", "boom", 0)
    assert Settlement.release(LEASE) == ("release", LEASE, "0", "", 0)
    assert Settlement.release(LEASE, 2) == ("release", LEASE, "2000", "", 0)
    assert Settlement.dead(LEASE, "why", "boom") == ("dead", LEASE, "why", "boom", 0)
    assert Settlement.halt(LEASE, "why", "boom") == ("halt", LEASE, "why", "boom", 0)


def test_a_settlement_says_how_much_of_a_lease_of_several_is_done():
    several = LEASE._replace(rest=(Leased(b"1" * 58), Leased(b"2" * 58)))

    assert Settlement.ack(several, 2).span == "2 3"
    assert Settlement.retry(several, 0, done=2).span == "2 3"
    assert Settlement.release(several).span == "0 3"
    assert Settlement.ack(LEASE._replace(is_alone=True)).span == "1 -1"


@pytest.mark.parametrize(
    "settlement",
    [
        Settlement.ack(LEASE, 0),
        Settlement.ack(LEASE, 2),
        Settlement.retry(LEASE, 0, done=1),
        Settlement.release(LEASE, done=-1),
        Settlement.dead(LEASE._replace(rest=(Leased(b"1" * 58),)), "why", done=2),
    ],
)
def test_a_settlement_of_more_than_the_lease_holds_is_refused(settlement: Settlement):
    with pytest.raises(InvalidArgument, match="messages done"):
        calls.turn("p", "w", [settlement], 0, visibility_ms=1)


@pytest.mark.parametrize("batch", [0, -1, MAX_BATCH + 1])
def test_a_batch_is_bounded(batch: int):
    with pytest.raises(InvalidArgument, match="a lease takes 1 to 1000"):
        calls.turn("p", "w", [], 1, visibility_ms=1, batch=batch)


def test_errors_are_stored_bounded_and_valid():
    assert shortened("x" * 5000) == "x" * MAX_ERROR_CHARACTERS
    assert shortened("kaputt: \ud800 ü") == "kaputt: ? ü"
    assert Settlement.dead(LEASE, "r" * 5000, "e" * 5000)[2:4] == (
        "r" * MAX_ERROR_CHARACTERS,
        "e" * MAX_ERROR_CHARACTERS,
    )


LINE_BREAKS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]


@pytest.mark.parametrize("line_break", [*LINE_BREAKS, "\0", "\x1b", "\x7f"])
def test_a_reason_is_one_line_whatever_breaks_it(line_break: str):
    reason = f"no such order:{line_break}17{line_break}"

    assert one_line(reason) == "no such order: 17"
    assert Settlement.halt(LEASE, reason, reason)[2:4] == ("no such order: 17", reason)
    assert Settlement.dead(LEASE, reason, reason)[2:4] == ("no such order: 17", reason)
    assert calls.pause("p", "g", reason).arguments[1] == "no such order: 17"


def test_sequences_are_cut_into_chunks_in_order():
    assert [list(part) for part in in_chunks(range(7), 3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(in_chunks([], 3)) == []


# What is read --------------------------------------------------------------------------------


def test_plain_messages_have_no_duplicates():
    call = calls.publish("p", envelopes(2), publisher="me", sequence=1)

    assert call.decode([b"ok", 2]) == {}
    assert call.decode([b"repeated"]) == {}


def test_a_turns_reply_becomes_settlements_and_leases():
    call = calls.turn("p", "w", [], 1, visibility_ms=1)

    turned = call.decode(
        [
            [b"ok", 4, b"stale", 0],
            [[b"group-1", b"7001", 2, b"1 1796007991000", b"3", ELEMENT]],
            250,
        ]
    )

    assert turned.settled == [Settled("ok", 4), Settled("stale", 0)]
    assert turned.leases == [LEASE]
    assert turned.wait_ms == 250


def test_a_claim_is_a_lease_or_nothing():
    call = calls.claim("p", "w", visibility_ms=1)

    assert call.decode([[[b"group-1", b"7001", 2, b"1 1796007991000", b"3", ELEMENT]], 0]) == LEASE
    assert call.decode([[], -1]) is None


def test_a_lease_knows_how_many_deliveries_ended_without_a_word():
    assert LEASE.crashes == 0
    assert LEASE._replace(deliveries=6, failures=2).crashes == 3


@pytest.mark.parametrize("word", ["stale", "moved"])
@pytest.mark.parametrize(
    ("call", "wrapped"),
    [
        (calls.ack("p", LEASE), False),
        (calls.nack("p", LEASE), False),
        (calls.settle("p", Settlement.release(LEASE)), True),
    ],
    ids=["ack", "nack", "settle"],
)
def test_a_refused_settlement_is_a_stale_lease_that_says_why(call: Any, wrapped: Any, word: str):
    reply: Any = [word.encode(), 0]

    with pytest.raises(StaleLease, match="group-1") as refusal:
        call.decode([reply, [], -1] if wrapped else reply)

    assert (refusal.value.lease, refusal.value.word) == (LEASE, word)
    assert "secret" not in str(refusal.value)


def test_an_accepted_settlement_tells_what_is_left():
    assert calls.ack("p", LEASE).decode([b"ok", 3]) == 3
    assert calls.nack("p", LEASE).decode([b"ok", 4]) == 4
    assert calls.settle("p", Settlement.ack(LEASE)).decode([[b"ok", 5], [], -1]) == 5


def test_renew_names_what_is_lost():
    other = LEASE._replace(group="other")

    assert calls.renew("p", [LEASE, other], visibility_ms=1).decode([b"ok", b"stale"]) == [other]


def test_a_reply_of_another_length_is_not_taken_for_an_answer():
    with pytest.raises(ValueError, match="zip"):
        calls.renew("p", [LEASE], visibility_ms=1).decode([b"ok", b"ok"])


def test_the_other_replies():
    assert calls.recover("p", "w", after_token=1).decode([b"17", 3]) == ("17", 3)
    assert calls.pause("p", "g", "").decode([b"ok"]) is True
    assert calls.pause("p", "g", "").decode([b"already"]) is False
    assert calls.resume("p", "g").decode([b"ok", b"halted"]) is True
    assert calls.resume("p", "g").decode([b"not paused"]) is False
    assert calls.skip("p", "g", "id").decode([b"leased"]) == "leased"
    assert calls.heartbeat("p", "w", {"pid": 1}, kept_ms=1).decode([b"ok", b"1", 4]) == (1, 4)
    assert calls.depart("p", "w").decode([b"ok"]) is None
