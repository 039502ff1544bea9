"""Does the checker find each promise that a history breaks, and nothing else?"""

from __future__ import annotations

from typing import Any

import pytest

from proof.checker import Limits, Verdict, check
from proof.history import ShardState
from proof.records import Record
from tests.proof.histories import (
    SECOND_US,
    START_US,
    A,
    B,
    C,
    History,
    element,
    judged,
    named,
    record,
)


def only(verdict: Verdict, invariant: str, *words: str) -> None:
    """Fail unless one finding names this invariant and these words, and there is no other."""
    assert len(verdict.findings) == 1, verdict.findings
    [finding] = verdict.findings
    assert finding.split()[0] == invariant
    for word in words:
        assert word in finding


def test_a_history_that_keeps_the_promises_is_clean():
    history = History().publish(A, B).claim(A, 7).nack(A, 7, left=2)
    history.claim(A, 8, deliveries=2, failures="1 1700000000500").ack(A, 8, left=1).claim(B, 9).ack(
        B, 9
    )
    verdict = judged(history, drained=True)
    assert verdict == Verdict(published=2, confirmed=2, delivered=2, redelivered=1)


# I1 --------------------------------------------------------------------------------------


def test_i1_a_message_that_nobody_took_and_that_is_gone():
    history = History().publish(A, B)
    verdict = judged(history, left={"g": [element(A)]})
    only(verdict, "I1", "gq:{orders:0}:", f"message {B} of group 'g' waits, and is not in its list")
    assert verdict.lost == 1


def test_i1_a_message_that_a_script_took_without_a_right_to():
    history = History().publish(A, B)
    history.add("set_tier", ("g", 3), ["ok", "0"], ("LPOP", "q:g", element(A)))
    verdict = judged(history, left={"g": [element(B)]})
    only(verdict, "I1", f"set_tier took message {A} out of group 'g' (operation 2)")
    assert named(verdict) == {"I1"}
    assert verdict.lost == 1


def test_i1_a_settlement_that_takes_more_than_it_names():
    history = History().publish(A, B).claim(A, 7)
    taken = ("LPOP", "q:g", [element(A), element(B)], 1)
    history.add("ack", ("g", 7, A), ["ok", 0], taken, ("DEL", "lock:g", 1))
    assert "I1" in named(judged(history))


def test_i1_a_finished_message_that_stays():
    history = History().publish(A).claim(A, 7)
    history.add("ack", ("g", 7, A), ["ok", 0], ("DEL", "lock:g", 1))
    verdict = judged(history, left={"g": [element(A)]})
    only(verdict, "I1", f"message {A} is done, and waits on")


def test_i1_a_message_that_is_set_aside_and_waits():
    history = History().publish(A).claim(A, 7)
    letter = ("XADD", "dead", "1-0", "*", "group", "g", "element", element(A), "reason", "why")
    args = ("anna", 0, 1, 0, 1, 0, 0, -1, "", "", 1, "dead", "g", 7, A, "why", "")
    history.add("turn", args, [["ok", 0], [], -1], letter, ("DEL", "lock:g", 1))
    verdict = judged(history, left={"g": [element(A)]}, dead={"1-0": element(A)})
    assert named(verdict) == {"I1"}


def test_i1_a_dead_letter_that_is_gone():
    history = History().publish(A)
    letter = ("XADD", "dead", "1-0", "*", "group", "g", "element", element(A), "reason", "skipped")
    popped = ("LPOP", "q:g", element(A))
    history.add("skip", ("g", A, "once"), ["ok", 0], popped, letter)
    assert judged(history, dead={"1-0": element(A)}).findings == ()
    only(judged(history), "I1", "was set aside, and is not among the dead")
    history.add("trim", ("", 0), [1], ("XTRIM", "dead", 1, "MAXLEN", "=", 0))
    assert judged(history, drained=True).findings == ()


def test_i1_a_confirmed_publish_that_stored_nothing():
    history = History().add("publish", ("me", 1, "fair", 1, "g", 0, A, "1"), ["ok", 1])
    only(judged(history), "I1", f"message {A} of group 'g' was published, and is nowhere")


def test_i1_a_confirmed_publish_of_which_no_operation_is_known():
    publishes = [
        record("publish", phase, id=A, group="g", queue="orders") for phase in ("invoke", "ok")
    ]
    verdict = judged(History(), *publishes)
    only(verdict, "I1", "was confirmed, and no operation stored it")
    assert (verdict.published, verdict.confirmed, verdict.lost) == (1, 1, 1)
    assert judged(History(), *publishes, lost_allowed={A}).findings == ()


@pytest.mark.parametrize("phase", ["unknown", "invoke"])
def test_a_publish_of_unknown_outcome_may_be_stored_or_not(phase: str):
    unsure = record("publish", phase, id=A, group="g", queue="orders")
    assert judged(History(), unsure).findings == ()
    assert judged(History().publish(A), unsure, left={"g": [element(A)]}).findings == ()


def test_i1_a_message_that_is_done_and_was_never_handled():
    history = History().publish(A, B).claim(A, 7).ack(A, 7, left=1).claim(B, 8).ack(B, 8)
    handled = {"group": "g", "queue": "orders", "attempt": 1}
    first = record("handle", "invoke", id=A, token=7, **handled)
    second = record("handle", "invoke", id=B, token=8, **handled)
    assert judged(history, first, second).findings == ()
    only(judged(history, first), "I1", B, "is done, and no handler was called with it")
    returned = record("handle", "ok", id=A, token=7, **handled)
    verdict = judged(history, first, second, returned)
    only(verdict, "I1", B, "is done, and no handler returned")
    assert verdict.lost == 1


def test_i1_a_scheduled_message_that_is_forgotten():
    history = History()
    args = ("me", 1, "fair", 0, 1, "g", 0, A, "1", "", "+1000", 0, "", "", "", "")
    noted = b"M000000001g" + element(A)
    history.add("publish_with", args, ["ok", 0, []], ("HSET", "scheduled:data", 1, A, noted))
    assert judged(history, scheduled={A: noted}).findings == ()
    only(judged(history), "I1", "is scheduled, and nothing is noted of it")
    history.wait(9).add("turn", TURN, [[], [], -1], ("HDEL", "scheduled:data", 1, A))
    only(judged(history), "I1", f"turn forgot scheduled message {A}")


def test_i1_a_reply_that_the_lists_do_not_explain():
    history = History().publish(A, depth=3)
    verdict = judged(history, left={"g": [element(A)]})
    only(verdict, "I1", "was answered 4 where 1 was to be expected")


def test_i1_an_operation_that_is_missing():
    history = History().publish(A)
    history.add("heartbeat", ("anna", 1, 1, 0), ["ok", "1", 1], number=3)
    only(judged(history, left={"g": [element(A)]}), "I1", "operation 3 follows 1")


# I2 --------------------------------------------------------------------------------------


def test_i2_a_message_that_waits_once_all_is_healed():
    history = History().publish(A)
    assert judged(history, left={"g": [element(A)]}).findings == ()
    only(judged(history, left={"g": [element(A)]}, drained=True), "I2", A)


# I3 --------------------------------------------------------------------------------------


def test_i3_a_message_that_is_leased_before_its_predecessor_has_ended():
    history = History().publish(A, B)
    history.add("claim", ("anna", 30_000, 0), [[["g", "7", 1, "0", "0", element(B)]], -1], LOCKED)
    verdict = judged(history, left={"g": [element(A), element(B)]}, locks={"g": 7})
    assert named(verdict) == {"I3"}
    assert any(
        f"message {B} of group 'g' was leased before {A} had ended" in f for f in verdict.findings
    )
    assert verdict.out_of_order == 1


def test_i3_a_failed_message_that_is_put_behind_the_others():
    history = History().publish(A, B).claim(A, 7)
    popped, pushed = ("LPOP", "q:g", element(A)), ("RPUSH", "q:g", 2, element(A))
    history.add("nack", ("g", 7, A, 0, ""), ["ok", 2], popped, pushed, ("DEL", "lock:g", 1))
    history.claim(B, 8, deliveries=2, failures="1 1700000000500")
    verdict = judged(history, left={"g": [element(B), element(A)]}, locks={"g": 8})
    assert named(verdict) == {"I3"}
    assert verdict.out_of_order == 1


def test_i3_messages_that_are_stored_in_another_order_than_sent():
    history = History()
    args = ("me", 1, "fair", 2, "g", 0, A, "1", "g", 0, B, "1")
    history.add("publish", args, ["ok", 1], ("RPUSH", "q:g", 2, element(B), element(A)))
    history.claim(B, 7)
    verdict = judged(history, left={"g": [element(B), element(A)]}, locks={"g": 7})
    assert named(verdict) == {"I3"}


def test_i3_a_dead_letter_that_returns_before_a_leased_head():
    history = _with_a_letter(A).publish(B, C, sequence=2).claim(B, 8)
    args = ("front", 1, "1-0")
    gone = ("XDEL", "dead", 1, "1-0")
    history.add("redrive", args, [1], ("LPUSH", "q:g", 3, element(A)), gone)
    verdict = judged(history, left={"g": [element(name) for name in (A, B, C)]}, locks={"g": 8})
    assert named(verdict) == {"I3"}


def test_a_dead_letter_that_returns_behind_a_leased_head_goes_before_what_waits():
    history = _with_a_letter(A).publish(B, C, sequence=2).claim(B, 8)
    history.add(
        "redrive",
        ("front", 1, "1-0"),
        [1],
        ("LPOP", "q:g", [element(B)], 1),
        ("LPUSH", "q:g", 2, element(A)),
        ("LPUSH", "q:g", 3, element(B)),
        ("XDEL", "dead", 1, "1-0"),
    )
    history.ack(B, 8, left=2).claim(A, 9).ack(A, 9, left=1).claim(C, 10).ack(C, 10)
    verdict = judged(history, drained=True)
    assert verdict.findings == ()
    assert (verdict.delivered, verdict.redelivered) == (3, 1)


def test_i3_a_message_of_a_wide_group_that_is_started_before_its_turn():
    history = _wide(A, B)
    started = (("LREM", "q:g", 1, 1, element(B)), ("RPUSH", f"q:g\udcff{B}", 1, element(B)))
    row = [f"g\udcff{B}", "7", 1, "0", "0", element(B)]
    lock = ("SET", f"lock:g\udcff{B}", "OK", 7, "PX", 30_000, "NX")
    history.add("claim", ("anna", 30_000, 0), [[row], -1], *started, lock)
    assert "I3" in named(judged(history))


# I4 --------------------------------------------------------------------------------------


def test_i4_a_group_that_is_leased_while_somebody_holds_it():
    history = History().publish(A).claim(A, 7).claim(A, 8, deliveries=2)
    verdict = judged(history, left={"g": [element(A)]}, locks={"g": 8})
    only(verdict, "I4", "group 'g' was leased again while token 7 held it (operation 2 and 3)")
    assert verdict.double_leases == 1


def test_a_group_may_be_leased_again_once_its_deadline_has_passed():
    history = History().publish(A).claim(A, 7).wait(30).claim(A, 8, deliveries=2)
    assert judged(history, left={"g": [element(A)]}, locks={"g": 8}).findings == ()


def test_i4_a_renewed_lease_lasts_longer():
    history = History().publish(A).claim(A, 7).wait(20)
    history.add("renew", (30_000, 1, "g", 7), ["ok"], ("PEXPIRE", "lock:g", 1, 30_000))
    history.wait(20).claim(A, 8, deliveries=2)
    verdict = judged(history, left={"g": [element(A)]}, locks={"g": 8})
    assert named(verdict) == {"I4"}
    assert verdict.double_leases == 1


def test_i4_a_lease_that_somebody_without_a_right_to_ends():
    history = History().publish(A).claim(A, 7)
    history.add("set_tier", ("g", 2), ["ok", "0"], ("DEL", "lock:g", 1))
    verdict = judged(history, left={"g": [element(A)]})
    only(verdict, "I4", "set_tier ended the lease of group 'g' under token 7")


def test_an_operator_may_end_a_lease_and_a_worker_hand_its_own_back():
    history = History().publish(A).claim(A, 7)
    history.add("release", ("g", "", "once"), ["ok", "7"], ("DEL", "lock:g", 1))
    history.claim(A, 8)
    history.add("recover", ("anna", 7, 0, "0"), ["0", 1], ("DEL", "lock:g", 1))
    history.claim(A, 9)
    assert judged(history, left={"g": [element(A)]}, locks={"g": 9}).findings == ()


def test_i4_a_recovery_that_takes_the_lease_of_another_worker():
    history = History().publish(A).claim(A, 7)
    history.add("recover", ("bert", 0, 0, "0"), ["0", 1], ("DEL", "lock:g", 1))
    assert named(judged(history, left={"g": [element(A)]})) == {"I4"}


def test_i4_a_worker_that_is_told_of_a_lease_which_is_not_there():
    history = History().publish(A)
    row = ["g", "7", 1, "0", "0", element(A)]
    history.add("claim", ("anna", 30_000, 0), [[row], -1])
    only(judged(history, left={"g": [element(A)]}), "I4", "that is not on the server")


def test_i4_more_messages_of_a_wide_group_in_flight_than_its_width():
    history = _wide(A, B, C)
    for left, (token, name) in enumerate(zip((7, 8, 9), (A, B, C), strict=True)):
        _start(history, name, token)
        assert ("I4" in named(judged(history))) == (left == 2)


def test_i4_a_handler_that_runs_under_a_lease_which_nobody_gave():
    history = History().publish(A).claim(A, 7).ack(A, 7)
    handled = {"id": A, "group": "g", "queue": "orders", "attempt": 1}
    assert judged(history, record("handle", "invoke", token=7, **handled)).findings == ()
    late = record("handle", "invoke", token=6, **handled)
    only(judged(history, late), "I4", "which no lease of it has")
    assert judged(history, late, tail_lost=True).findings == ()


# I5 --------------------------------------------------------------------------------------


def test_i5_a_settlement_under_an_old_token_that_is_accepted():
    history = History().publish(A).claim(A, 7).wait(31).claim(A, 8, deliveries=2).ack(A, 7)
    text = "ack of group 'g' under token 7 was accepted, but 8 holds it (operation 4)"
    only(judged(history), "I5", text)


def test_i5_a_settlement_after_the_deadline_that_is_accepted():
    history = History().publish(A).claim(A, 7).wait(31).ack(A, 7)
    only(judged(history), "I5", "but nobody holds it")


def test_i5_a_settlement_of_another_message_than_the_head():
    history = History().publish(A, B).claim(A, 7)
    popped = ("LPOP", "q:g", [element(A)], 1)
    history.add("ack", ("g", 7, B), ["ok", 1], popped, ("DEL", "lock:g", 1))
    assert "I5" in named(judged(history, left={"g": [element(B)]}))


def test_a_refused_settlement_is_counted_and_changes_nothing():
    history = History().publish(A).claim(A, 7).wait(31).claim(A, 8, deliveries=2)
    history.add("ack", ("g", 7, A), ["stale", 0])
    verdict = judged(history, left={"g": [element(A)]}, locks={"g": 8})
    assert verdict.findings == ()
    assert verdict.stale_settles == 1


def test_i5_a_refused_settlement_that_has_an_effect():
    history = History().publish(A).claim(A, 7).wait(31).claim(A, 8, deliveries=2)
    history.add("ack", ("g", 7, A), ["stale", 0], ("LPOP", "q:g", [element(A)], 1))
    verdict = judged(history, locks={"g": 8})
    assert named(verdict) == {"I1", "I5"}
    assert verdict.lost == 1


def test_i5_a_refused_settlement_in_a_turn_that_ends_the_lease_of_another():
    history = History().publish(A).claim(A, 7).wait(31).claim(A, 8, deliveries=2)
    args = (*TURN[:-1], 1, "retry", "g", 7, A, 0, "")
    history.add("turn", args, [["stale", 0], [], -1], ("DEL", "lock:g", 1))
    verdict = judged(history, left={"g": [element(A)]})
    assert named(verdict) == {"I4", "I5"}


def test_i5_tokens_that_do_not_grow():
    history = History().publish(A).claim(A, 7).ack(A, 7).publish(B, sequence=2).claim(B, 7)
    verdict = judged(history, left={"g": [element(B)]}, locks={"g": 7})
    only(verdict, "I5", "under token 7 after 7")


def test_i5_a_renewal_under_an_old_token():
    history = History().publish(A).claim(A, 7).wait(31).claim(A, 8, deliveries=2)
    history.add("renew", (30_000, 1, "g", 7), ["ok"], ("PEXPIRE", "lock:g", 1, 30_000))
    assert named(judged(history, left={"g": [element(A)]}, locks={"g": 8})) == {"I5"}


# I6 --------------------------------------------------------------------------------------


def test_i6_what_an_audit_found():
    assert judged(History(), audit=("a group stands nowhere",)).findings == (
        "I6 a group stands nowhere",
    )


# I7 --------------------------------------------------------------------------------------


def test_i7_hand_overs_that_are_not_counted():
    history = History().publish(A).claim(A, 7).nack(A, 7).claim(A, 8)
    verdict = judged(history, left={"g": [element(A)]}, locks={"g": 8})
    only(verdict, "I7", "told 1 hand-overs and 0 failures, not 2 and 1")


def test_i7_a_group_that_is_leased_while_halted():
    args = ("anna", 0, 1, 0, 1, 0, 0, -1, "", "", 1, "halt", "g", 7, A, "max_attempts", "boom")
    history = History().publish(A).claim(A, 7)
    history.add("turn", args, [["ok", 1], [], -1], ("DEL", "lock:g", 1))
    left = {"left": {"g": [element(A)]}, "locks": {"g": 8}}
    again = {"deliveries": 2, "failures": "1 1700000000500"}
    resumed = History()
    resumed.operations, resumed.at_us = [*history.operations], history.at_us
    resumed.add("resume", ("g", "once"), ["ok", "halted"]).claim(A, 8)
    assert judged(resumed, **left).findings == ()
    history.claim(A, 8, **again)
    only(judged(history, **left), "I7", "group 'g' was leased while halted")


@pytest.mark.parametrize(("field", "limit"), [("max_attempts", 2), ("max_crashes", 1)])
def test_i7_a_handler_that_is_called_more_often_than_allowed(field: str, limit: int):
    history = History().publish(A).claim(A, 7).wait(31).claim(A, 8, deliveries=2)
    handled = record("handle", "invoke", id=A, group="g", queue="orders", token=8, attempt=3)
    left = {"left": {"g": [element(A)]}, "locks": {"g": 8}}
    assert judged(history, handled, **left, **{field: limit + 1}).findings == ()
    only(judged(history, handled, **left, **{field: limit}), "I7", A)


# I8 --------------------------------------------------------------------------------------


def test_i8_a_repeated_publish_that_has_a_second_effect():
    history = History().publish(A).publish(A, depth=1)
    verdict = judged(history, left={"g": [element(A), element(A)]})
    assert named(verdict) == {"I8"}


def test_i8_a_repeated_publish_that_says_so_and_has_an_effect_all_the_same():
    history = History().publish(A)
    args = ("me", 1, "fair", 1, "g", 0, B, "1")
    history.add("publish", args, ["repeated"], ("RPUSH", "q:g", 2, element(B)))
    assert "I8" in named(judged(history, left={"g": [element(A), element(B)]}))


def test_i8_a_new_publish_that_is_taken_for_a_repetition():
    history = History().add("publish", ("me", 1, "fair", 1, "g", 0, A, "1"), ["repeated"])
    only(judged(history), "I8", "was said to be a repetition")


def test_i8_an_operator_whose_repeated_call_acts_twice():
    history = History().publish(A).claim(A, 7)
    release = ("release", ("g", "", "once"))
    history.add(*release, ["ok", "7"], ("DEL", "lock:g", 1)).claim(A, 8)
    history.add(*release, ["ok", "8"], ("DEL", "lock:g", 1))
    assert named(judged(history, left={"g": [element(A)]})) == {"I8"}


def test_i8_two_messages_under_one_dedup_key():
    history = History()
    for number, name in enumerate((A, B), start=1):
        args = (
            "me",
            number,
            "fair",
            0,
            1,
            "g",
            0,
            name,
            "1",
            "",
            "",
            0,
            "key",
            300_000,
            "digest",
            "",
        )
        history.add("publish_with", args, ["ok", 1, []], ("RPUSH", "q:g", number, element(name)))
    only(judged(history, left={"g": [element(A), element(B)]}), "I8", A, B)


def test_i8_a_message_that_nobody_published():
    history = History().add("start", ("once",), ["ok"], ("RPUSH", "q:g", 1, element(A)))
    assert named(judged(history, left={"g": [element(A)]})) == {"I8"}


def test_i8_a_publish_that_was_refused_and_stored():
    refused = [
        record("publish", phase, id=A, group="g", queue="orders") for phase in ("invoke", "fail")
    ]
    verdict = judged(History().publish(A), *refused, left={"g": [element(A)]})
    only(verdict, "I8", "was refused, and was stored")


def test_i8_an_operation_that_fails_half_way():
    history = History()
    args = ("me", 1, "fair", 1, "g", 0, A, "1")
    pushed = ("RPUSH", "q:g", 1, element(A))
    history.add("publish", args, None, pushed, error="ERR no more memory")
    assert "I8" in named(judged(history, left={"g": [element(A)]}))


# I9 --------------------------------------------------------------------------------------


def test_i9_a_script_that_touches_more_than_its_bound():
    history = History().publish(A).claim(A, 7)
    effects = (("LPOP", "q:g", [element(A)], 1), ("DEL", "lock:g", 1))
    history.add("ack", ("g", 7, A), ["ok", 0], *effects, commands=500)
    only(judged(history), "I9", "ack called 500 commands")


# I10 -------------------------------------------------------------------------------------


def test_i10_a_lease_without_an_end():
    history = History().publish(A)
    row = ["g", "7", 1, "0", "0", element(A)]
    history.add("claim", ("anna", 30_000, 0), [[row], -1], ("SET", "lock:g", "OK", 7, "NX"))
    only(judged(history, left={"g": [element(A)]}, locks={"g": 7}), "I10", "not 30000")


def test_i10_a_renewal_for_longer_than_asked():
    history = History().publish(A).claim(A, 7)
    history.add("renew", (30_000, 1, "g", 7), ["ok"], ("PEXPIRE", "lock:g", 1, 90_000))
    assert named(judged(history, left={"g": [element(A)]}, locks={"g": 7})) == {"I10"}


@pytest.mark.parametrize("who", [{"worker": "host:17:ab"}, {"killed": 17}])
def test_i10_a_lease_that_a_killed_worker_holds_for_too_long(who: dict[str, object]):
    history = History().publish(A).claim(A, 7, worker="host:17:ab")
    claimed_us = START_US + SECOND_US
    history.wait(10).add("renew", (30_000, 1, "g", 7), ["ok"], ("PEXPIRE", "lock:g", 1, 30_000))
    left = {"left": {"g": [element(A)]}, "locks": {"g": 7}}

    def killed(after_seconds: int) -> Record:
        at_us = claimed_us + after_seconds * SECOND_US
        return record("kill", "ok", at_us=at_us, **who)

    assert judged(history, killed(10), **left).findings == ()
    only(judged(history, killed(8), **left), "I10", "was held for")


# Parts -------------------------------------------------------------------------------------

TURN = ("anna", 0, 30_000, 0, 1, 0, 0, -1, "", "", 0)
LOCKED = ("SET", "lock:g", "OK", 7, "PX", 30_000, "NX")


def _with_a_letter(name: str) -> History:
    letter = ("XADD", "dead", "1-0", "*", "group", "g", "element", element(name), "reason", "why")
    args = (*TURN[:-1], 1, "dead", "g", 7, name, "why", "")
    popped = ("LPOP", "q:g", element(name))
    history = History().publish(name).claim(name, 7)
    return history.add("turn", args, [["ok", 0], [], -1], popped, letter, ("DEL", "lock:g", 1))


def _wide(*names: str) -> History:
    args = ["me", 1, "fair", 0, len(names)]
    for name in names:
        args += ["g", 0, name, "1", "", "", 0, "", "", "", 2]
    pushed = ("RPUSH", "q:g", len(names), *map(element, names))
    return History().add(
        "publish_with", tuple(args), ["ok", 1, []], pushed, ("HSET", "wide", 1, "g", 2)
    )


def _start(history: History, name: str, token: int) -> None:
    place = f"g\udcff{name}"
    row = [place, str(token), 1, "0", "0", element(name)]
    popped, pushed = ("LPOP", "q:g", element(name)), ("RPUSH", f"q:{place}", 1, element(name))
    lock = ("SET", f"lock:{place}", "OK", token, "PX", 30_000, "NX")
    history.add("claim", ("anna", 30_000, 0), [[row], -1], popped, pushed, lock)


# What was stored, and what may be thrown away ----------------------------------------------


def _publish_with(
    history: History,
    name: str,
    *effects: tuple[Any, ...],
    sequence: int = 1,
    reply: Any = None,
    **options: Any,
) -> History:
    """Add a publish of one message to the group `g`."""
    order = ("expires_ms", "due", "hold", "dedup_key", "dedup_ms", "digest", "width")
    told = {"hold": 0, **options}
    args = ("me", sequence, "fair", 0, 1, "g", 0, name, "1", *(told.get(one, "") for one in order))
    return history.add("publish_with", args, reply or ["ok", 1, []], *effects)


def test_i1_a_message_that_lives_shorter_than_was_asked_for():
    at_ms = (START_US + SECOND_US // 2) // 1000
    for expires_ms, is_right in ((at_ms + 60_000, True), (at_ms + 60, False)):
        stored = element(A, expires_ms=expires_ms)
        history = _publish_with(History(), A, ("RPUSH", "q:g", 1, stored), expires_ms=60_000)
        assert (judged(history, left={"g": [stored]}).findings == ()) is is_right
    never = element(A, expires_ms=at_ms + 60)
    history = _publish_with(History(), A, ("RPUSH", "q:g", 1, never))
    only(judged(history, left={"g": [never]}), "I1", "is not what was published")


@pytest.mark.parametrize(
    ("group", "stored"),
    [("h", element(A)), ("g", element(A, body=b"2")), ("g", element(A, expires_ms=1))],
)
def test_i1_a_scheduled_message_that_is_another_than_was_published(group: str, stored: bytes):
    noted = b"M000000001" + group.encode() + stored
    history = _publish_with(History(), A, ("HSET", "scheduled:data", 1, A, noted), due="+1000")
    only(judged(history, scheduled={A: noted}), "I1", "is not what was published to group 'g'")


def test_i8_a_message_that_is_scheduled_by_whoever_may_not():
    noted = b"M000000001g" + element(A)
    history = History().add(
        "reschedule", (A, "+1000"), ["ok"], ("HSET", "scheduled:data", 0, A, noted)
    )
    only(judged(history, scheduled={A: noted}), "I8", "was scheduled by reschedule")


def test_i1_a_scheduled_message_that_joins_its_group_as_another():
    noted = b"M000000001g" + element(A)
    other = element(A, expires_ms=1)
    history = _publish_with(History(), A, ("HSET", "scheduled:data", 1, A, noted), due="+1000")
    history.wait(2)
    joined = (("RPUSH", "q:g", 1, other), ("HDEL", "scheduled:data", 1, A))
    history.add("claim", ("anna", 30_000, 0), [[], -1], *joined)
    only(judged(history, left={"g": [other]}), "I1", "is not what was to join group 'g'")


def test_i1_a_message_that_is_set_aside_as_one_of_another_group():
    history = History().publish(A)
    letter = ("XADD", "dead", "1-0", "*", "group", "h", "element", element(A), "reason", "skipped")
    history.add("skip", ("g", A, "once"), ["ok", 0], ("LPOP", "q:g", element(A)), letter)
    only(judged(history, dead={"1-0": element(A)}), "I1", "was set aside as one of group 'h'")


@pytest.mark.parametrize(
    ("window_ms", "key", "is_right"),
    [(60_000, "key", True), (2_000, "key", False), (60_000, "another", False)],
)
def test_i1_a_message_that_is_left_out_although_its_key_was_free(
    window_ms: int, key: str, *, is_right: bool
):
    dedup = {"dedup_ms": window_ms, "digest": "same"}
    stored = ("RPUSH", "q:g", 1, element(A))
    history = _publish_with(History(), A, stored, dedup_key="key", **dedup).wait(10)
    _publish_with(history, B, sequence=2, reply=["ok", 0, [0, A]], dedup_key=key, **dedup)
    verdict = judged(history, left={"g": [element(A)]})
    assert (verdict.findings == (), verdict.lost) == (is_right, not is_right)


@pytest.mark.parametrize(
    ("script", "args", "gone", "is_right"),
    [
        ("drop", (1, "2-0"), ("XDEL", "dead", 1, "2-0"), True),
        ("drop", (1, "2-0"), ("XDEL", "dead", 1, "1-0"), False),
        ("trim", ("", 1), ("XTRIM", "dead", 1, "MAXLEN", "=", 1), True),
        ("trim", ("", 2), ("XTRIM", "dead", 1, "MAXLEN", "=", 1), False),
        ("trim", (60_000, ""), ("XTRIM", "dead", 2, "MINID", "=", 5), True),
        ("trim", (10**13, ""), ("XTRIM", "dead", 1, "MINID", "=", 5), False),
        ("trim", ("", 1), ("XDEL", "dead", 1, "2-0"), False),
    ],
)
def test_i1_a_dead_letter_that_was_not_to_be_thrown_away(
    script: str, args: tuple[Any, ...], gone: tuple[Any, ...], *, is_right: bool
):
    history, dead = History().publish(A, B), {}
    for number, name in enumerate((A, B), start=1):
        letter = ("XADD", "dead", f"{number}-0", "*", "group", "g", "element", element(name))
        popped = ("LPOP", "q:g", element(name))
        history.add(
            "skip", ("g", name, f"once {number}"), ["ok", 0], popped, (*letter, "reason", "skipped")
        )
        dead[f"{number}-0"] = element(name)
    history.add(script, args, [gone[2]], gone)
    lost = [gone[3]] if gone[0] == "XDEL" else list(dead)[: gone[2]]
    verdict = judged(history, dead={one: dead[one] for one in dead if one not in lost})
    assert (verdict.findings == (), verdict.lost > 0) == (is_right, not is_right)


def test_i1_what_is_kept_of_a_dead_or_scheduled_message_is_not_what_it_was():
    history = History().publish(A)
    letter = ("XADD", "dead", "1-0", "*", "group", "g", "element", element(A), "reason", "skipped")
    history.add("skip", ("g", A, "once"), ["ok", 0], ("LPOP", "q:g", element(A)), letter)
    other = element(A, body=b"2")
    only(judged(history, dead={"1-0": other}), "I1", "is not what was set aside")
    noted = b"M000000001g" + element(B)
    _publish_with(history, B, ("HSET", "scheduled:data", 1, B, noted), sequence=2, due="+1000")
    verdict = judged(history, dead={"1-0": element(A)}, scheduled={B: noted + b"2"})
    only(verdict, "I1", "is not what was scheduled")


def test_i1_a_message_in_two_shards():
    one, other = History().publish(A), History().publish(A)
    state = ShardState(lists={b"g": (element(A),)})
    prefixes = ("gq:{orders:0}", "gq:{orders:1}")
    operations = dict(zip(prefixes, (one.operations, other.operations), strict=True))
    verdict = check(operations, [], dict.fromkeys(prefixes, state), Limits())
    only(verdict, "I1", *prefixes)


def test_i5_a_refused_renewal_that_has_an_effect():
    history = History().publish(A).claim(A, 7).wait(31).claim(A, 8, deliveries=2)
    history.add("renew", (30_000, 1, "g", 7), ["stale"], ("PEXPIRE", "lock:g", 1, 30_000))
    verdict = judged(history, left={"g": [element(A)]}, locks={"g": 8})
    only(verdict, "I5", "was refused, and had an effect")


def test_i7_a_message_that_is_handled_twice_in_one_delivery():
    history = History().publish(A).claim(A, 7)
    handled = record("handle", "invoke", id=A, group="g", queue="orders", token=7, attempt=1)
    left = {"left": {"g": [element(A)]}, "locks": {"g": 7}}
    assert judged(history, handled, **left).findings == ()
    only(judged(history, handled, handled, **left), "I7", "was handled twice under token 7")
