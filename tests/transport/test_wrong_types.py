"""Does a key of the wrong type lead to a clear error, before anything is written?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.snapshot import held_groups, snapshot_decoder
from groupqueue.core.views import explanation
from groupqueue.exceptions import WrongKeyType
from groupqueue.transport import scripts
from tests.transport.envelopes import held, keyed, scheduled, send, wide
from tests.transport.lua_files import own_keys
from tests.transport.shards import Shard, envelope

Operation = Callable[[], Awaitable[object]]
STRINGS = ("fence", "lock:", "publisher:", "dedup:")


class Case(NamedTuple):
    """One operation, and the keys beyond the shard's own that it uses."""

    script: str
    prepare: Callable[[Shard], Awaitable[Operation]]
    further_keys: tuple[str, ...] = ()


async def _two_leases(shard: Shard):
    await shard.publish_many([("first", b"1", 0), ("second", b"1", 3), ("second", b"2", 3)])
    return (await shard.transport.turn("worker", [], 2, visibility=60)).leases


async def _publish(shard: Shard) -> Operation:
    await shard.publish("first")
    call = calls.publish(
        shard.prefix, [envelope("first"), envelope("second")], publisher="p", sequence=7
    )
    return lambda: shard.transport.perform(call)


async def _publish_with(shard: Shard) -> Operation:
    await send(shard, scheduled("first"))
    messages = [keyed("key", "first"), held("second")]
    call = calls.publish(shard.prefix, messages, publisher="p", sequence=7)
    return lambda: shard.transport.perform(call)


async def _cancel(shard: Shard) -> Operation:
    [identifier] = await send(shard, held("second"))
    return lambda: shard.transport.perform(calls.cancel(shard.prefix, identifier, operation="p"))


async def _reschedule(shard: Shard) -> Operation:
    [identifier] = await send(shard, held("second"))
    return lambda: shard.transport.perform(calls.reschedule(shard.prefix, identifier, "+5"))


async def _agenda(shard: Shard) -> Operation:
    await send(shard, scheduled("first"))
    return lambda: shard.transport.perform(calls.agenda(shard.prefix, 0, 20, len))


async def _claim(shard: Shard) -> Operation:
    await shard.publish("second")
    return lambda: shard.transport.claim("worker", 30)


async def _turn_that_claims(shard: Shard) -> Operation:
    await shard.publish_many([("first", b"1", 0), ("second", b"1", 3)])
    return lambda: shard.transport.turn("worker", [], 5, visibility=30)


async def _turn_that_settles(shard: Shard) -> Operation:
    first, second = await _two_leases(shard)
    ends = [Settlement.retry(first, 5, "boom"), Settlement.dead(second, "why")]
    return lambda: shard.transport.turn("worker", ends, 0, visibility=30)


async def _ack(shard: Shard) -> Operation:
    _, second = await _two_leases(shard)
    return lambda: shard.transport.ack(second)


async def _nack(shard: Shard) -> Operation:
    _, second = await _two_leases(shard)
    return lambda: shard.transport.nack(second, 5, error="boom")


async def _renew(shard: Shard) -> Operation:
    leases = await _two_leases(shard)
    return lambda: shard.transport.renew(leases, 300)


async def _recount(shard: Shard) -> Operation:
    _, second = await _two_leases(shard)
    return lambda: shard.transport.perform(calls.recount(shard.prefix, second, -1))


async def _recover(shard: Shard) -> Operation:
    await _two_leases(shard)
    return lambda: shard.transport.recover("worker", 0)


async def _pause(shard: Shard) -> Operation:
    await shard.publish("second")
    return lambda: shard.transport.perform(
        calls.pause(shard.prefix, "second", "why", operation="p")
    )


async def _resume(shard: Shard) -> Operation:
    await shard.publish("second")
    await shard.transport.perform(calls.pause(shard.prefix, "second", "why"))
    return lambda: shard.transport.perform(calls.resume(shard.prefix, "second", operation="p"))


async def _stop(shard: Shard) -> Operation:
    return lambda: shard.transport.perform(calls.stop(shard.prefix, "why", operation="p"))


async def _start(shard: Shard) -> Operation:
    await shard.transport.perform(calls.stop(shard.prefix, "why"))
    return lambda: shard.transport.perform(calls.start(shard.prefix, operation="p"))


async def _rate(shard: Shard) -> Operation:
    return lambda: shard.transport.perform(calls.rate(shard.prefix, "second", "6000000 1"))


async def _trim(shard: Shard) -> Operation:
    await _two_letters(shard)
    call = calls.trim(shard.prefix, max_age_ms=None, max_count=1)
    return lambda: shard.transport.perform(call)


async def _turn_that_sets_a_group_aside(shard: Shard) -> Operation:
    _, second = await _two_leases(shard)
    ends = [Settlement.dead_group(second, "why")]
    return lambda: shard.transport.turn("worker", ends, 0, visibility=30)


async def _turn_with_all_special(shard: Shard) -> Operation:
    await shard.publish_many([("first", b"1", 0), ("first", b"2", 0), ("second", b"1", 3)])
    await shard.transport.perform(calls.rate(shard.prefix, "other", "6000000 1"))
    [lease] = (await shard.transport.turn("worker", [], 1, visibility=60)).leases
    await shard.transport.settle(Settlement.dead_group(lease, "why"))
    await send(shard, wide("wide"))
    return lambda: shard.transport.turn("worker", [], 5, visibility=30)


async def _skip(shard: Shard) -> Operation:
    head, _ = await shard.publish("second", b"1", b"2")
    return lambda: shard.transport.perform(calls.skip(shard.prefix, "second", head, operation="p"))


async def _set_tier(shard: Shard) -> Operation:
    await shard.publish("second")
    return lambda: shard.transport.perform(calls.set_tier(shard.prefix, "second", 4))


async def _release(shard: Shard) -> Operation:
    await _two_leases(shard)
    return lambda: shard.transport.perform(calls.release(shard.prefix, "second", operation="p"))


async def _purge(shard: Shard) -> Operation:
    await _two_leases(shard)
    return lambda: shard.transport.perform(calls.purge(shard.prefix, ["first", "second"]))


async def _explain(shard: Shard) -> Operation:
    await _two_leases(shard)
    return lambda: shard.transport.perform(calls.explain(shard.prefix, "second", explanation))


async def _peek(shard: Shard) -> Operation:
    await shard.publish("second")
    return lambda: shard.transport.perform(calls.peek(shard.prefix, "second", 0, 20, len))


async def _two_letters(shard: Shard) -> list[str]:
    """Set a message of each group aside, of which the second has one left, and is leased."""
    ends = [Settlement.dead(lease, "why") for lease in await _two_leases(shard)]
    await shard.transport.turn("worker", ends, 1, visibility=60)
    return [entry.decode() for entry, _ in shard.redis.xrange(shard.named("dead"))]


async def _letters(shard: Shard) -> Operation:
    await _two_letters(shard)
    call = calls.letters(shard.prefix, "-", "+", 100, newest_first=False, decode=len)
    return lambda: shard.transport.perform(call)


async def _redrive_to_the_front(shard: Shard) -> Operation:
    call = calls.redrive(shard.prefix, await _two_letters(shard))
    return lambda: shard.transport.perform(call)


async def _redrive_to_the_tail(shard: Shard) -> Operation:
    call = calls.redrive(shard.prefix, await _two_letters(shard), to_tail=True)
    return lambda: shard.transport.perform(call)


async def _drop(shard: Shard) -> Operation:
    call = calls.drop(shard.prefix, await _two_letters(shard))
    return lambda: shard.transport.perform(call)


async def _heartbeat(shard: Shard) -> Operation:
    call = calls.heartbeat(shard.prefix, "w", {"pid": 1, "host": "h"}, kept_ms=60_000)
    return lambda: shard.transport.perform(call)


async def _depart(shard: Shard) -> Operation:
    await (await _heartbeat(shard))()
    return lambda: shard.transport.perform(calls.depart(shard.prefix, "w"))


async def _held(shard: Shard) -> Operation:
    await shard.publish("second")
    await shard.transport.perform(calls.pause(shard.prefix, "second", "why"))
    return lambda: shard.transport.perform(calls.held(shard.prefix, "0", 20, held_groups))


async def _inspect(shard: Shard) -> Operation:
    await _two_leases(shard)
    await (await _heartbeat(shard))()
    return lambda: shard.transport.perform(calls.inspect(shard.prefix, 20, snapshot_decoder(20)))


async def _survey(shard: Shard) -> Operation:
    await shard.publish("second")
    return lambda: shard.transport.perform(calls.survey(shard.prefix, "prio"))


async def _survey_letters(shard: Shard) -> Operation:
    await _two_letters(shard)
    return lambda: shard.transport.perform(calls.survey(shard.prefix, "dead"))


async def _audit(shard: Shard) -> Operation:
    await _two_leases(shard)
    return lambda: shard.transport.perform(calls.audit(shard.prefix, "group", ["second"]))


async def _repair(shard: Shard) -> Operation:
    await _two_leases(shard)
    shard.redis.persist(shard.keys.lock("second"))
    return lambda: shard.transport.perform(calls.repair(shard.prefix, "group", ["second"]))


CASES = {
    "publish": Case("publish", _publish, ("q:second", "publisher:p")),
    "publish with options": Case(
        "publish_with", _publish_with, ("q:second", "publisher:p", "dedup:key")
    ),
    "cancel": Case("cancel", _cancel, ("q:second", "publisher:p")),
    "reschedule": Case("reschedule", _reschedule, ("q:second",)),
    "agenda": Case("agenda", _agenda),
    "claim": Case("claim", _claim),
    "claims of a turn": Case("turn", _turn_that_claims),
    "settlements of a turn": Case("turn", _turn_that_settles),
    "a turn that sets a group aside": Case(
        "turn", _turn_that_sets_a_group_aside, ("doomed", "dead")
    ),
    "a turn with all that is special": Case(
        "turn", _turn_with_all_special, ("rates", "doomed", "wide")
    ),
    "stop": Case("stop", _stop, ("publisher:p",)),
    "start": Case("start", _start, ("publisher:p",)),
    "rate": Case("rate", _rate),
    "trim": Case("trim", _trim),
    "ack": Case("ack", _ack, ("q:second", "lock:second")),
    "nack": Case("nack", _nack, ("q:second", "lock:second")),
    "recount": Case("recount", _recount, ("q:second", "lock:second")),
    "renew": Case("renew", _renew),
    "recover": Case("recover", _recover),
    "pause": Case("pause", _pause, ("publisher:p",)),
    "resume": Case("resume", _resume, ("publisher:p",)),
    "skip": Case("skip", _skip, ("q:second", "publisher:p")),
    "set_tier": Case("set_tier", _set_tier, ("q:second",)),
    "release": Case("release", _release, ("q:second", "lock:second", "publisher:p")),
    "purge": Case("purge", _purge, ("q:second",)),
    "explain": Case("explain", _explain, ("q:second", "lock:second")),
    "peek": Case("peek", _peek, ("q:second",)),
    "letters": Case("letters", _letters),
    "redrive to the front": Case("redrive", _redrive_to_the_front, ("q:second", "lock:second")),
    "redrive to the tail": Case("redrive", _redrive_to_the_tail, ("q:second", "lock:second")),
    "drop": Case("drop", _drop),
    "heartbeat": Case("heartbeat", _heartbeat, ("worker:w",)),
    "depart": Case("depart", _depart, ("workers",)),
    "held": Case("held", _held, ("q:second", "lock:second")),
    "inspect": Case("inspect", _inspect, ("q:second", "lock:second", "worker:w")),
    "survey": Case("survey", _survey, ("prio",)),
    "survey of letters": Case("survey", _survey_letters, ("dead",)),
    "audit": Case("audit", _audit),
    "repair": Case("repair", _repair),
}


# What these are asked for is what counters say.
LOOKS = {"inspect", "survey", "audit", "repair"}


def break_key(shard: Shard, name: str) -> str:
    """Put a value of another type where a key is expected; return the key's full name."""
    minute = int(shard.now_ms() // 60_000)
    # Should the minute end in between, the next one's key is wrong as well.
    names = [f"stats:{minute}", f"stats:{minute + 1}"] if name == "minute" else [name]
    for each in names:
        shard.redis.delete(shard.named(each))
        if each.startswith(STRINGS):
            shard.redis.rpush(shard.named(each), "foreign")
        else:
            shard.redis.set(shard.named(each), "foreign")
    return shard.named(name) if name != "minute" else shard.named("stats:")


def test_every_script_is_tried():
    assert {case.script for case in CASES.values()} == set(scripts.names())


@pytest.mark.parametrize(
    ("case", "name"),
    [
        pytest.param(case, name, id=f"{title}, {name}")
        for title, case in CASES.items()
        for name in (*own_keys(case.script), *case.further_keys)
    ],
)
async def test_failure_23_a_wrong_type_is_an_error_and_nothing_is_written(
    sync_shard: Shard, case: Case, name: str
):
    operation = await case.prepare(sync_shard)
    key = break_key(sync_shard, name)
    before = sync_shard.dump()

    with pytest.raises(WrongKeyType) as refusal:
        await operation()

    assert sync_shard.dump() == before
    # Without the key's name nobody could put it right.
    assert key in str(refusal.value)


@pytest.mark.parametrize("name", ["stats", "minute", "backlog", "wake"])
@pytest.mark.parametrize(
    "case", [case for case in CASES.values() if case.script not in LOOKS], ids=lambda c: c.script
)
async def test_failure_23_counters_and_hints_of_another_type_stop_no_operation(
    sync_shard: Shard, case: Case, name: str
):
    operation = await case.prepare(sync_shard)
    key = break_key(sync_shard, name)

    await operation()

    keys = sync_shard.redis.keys(f"{key}[0-9]*") if name == "minute" else [key]
    assert {sync_shard.redis.type(each) for each in keys} == {b"string"}
    surveyed = await sync_shard.transport.perform(calls.survey(sync_shard.prefix, "keys"))
    assert "wrong-type" in {fault.word for fault in surveyed.faults}


def make_junk_of_numbers(shard: Shard) -> None:
    """Write a word wherever a number is counted or noted, of all that there is now."""
    minute = int(shard.now_ms() // 60_000)
    counters = ("published", "delivered", "acked", "retried", "released", "dead", "purged")
    for name in ("stats", f"stats:{minute}", f"stats:{minute + 1}"):
        shard.redis.hset(shard.named(name), mapping=dict.fromkeys(counters, "many"))
    shard.redis.hset(shard.named("backlog"), mapping=dict.fromkeys("01234", "many"))
    groups = shard.redis.hkeys(shard.named("prio"))
    for name in ("attempts", "failures"):
        if groups:
            shard.redis.hset(shard.named(name), mapping=dict.fromkeys(groups, "many"))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_what_is_no_number_stops_no_operation(sync_shard: Shard, case: Case):
    operation = await case.prepare(sync_shard)
    make_junk_of_numbers(sync_shard)

    await operation()

    snapshot = await sync_shard.transport.perform(
        calls.inspect(sync_shard.prefix, 50, snapshot_decoder(50))
    )
    assert {tier.messages for tier in snapshot.tiers} <= {-2, -1, 0, 1, 2, 3}
    for group in ("first", "second"):
        await sync_shard.transport.perform(calls.explain(sync_shard.prefix, group, explanation))
    for lease in await sync_shard.claim_all():
        await sync_shard.transport.ack(lease)


@pytest.mark.parametrize("moment", ["-inf", "1e18", "-1e18"])
async def test_a_group_without_a_sensible_moment_can_be_looked_at(shard: Shard, moment: str):
    await shard.publish("group")
    shard.redis.execute_command("ZADD", shard.keys.ready(0), moment, "group")

    snapshot = await shard.transport.perform(calls.inspect(shard.prefix, 50, snapshot_decoder(50)))
    explained = await shard.transport.perform(calls.explain(shard.prefix, "group", explanation))

    [seen] = [*snapshot.waiting, *snapshot.parked]
    assert (seen.group, seen.state) == ("group", explained.state)
    assert explained.group.wait_seconds < 1e12


async def test_a_lock_that_is_no_token_keeps_no_other_lease_from_being_handed_back(shard: Shard):
    first, second = await _two_leases(shard)
    shard.redis.set(shard.keys.lock(first.group), "mine", keepttl=True)

    recovered = await shard.transport.recover("worker", 0)

    assert recovered == 1
    assert [lease.group for lease in await shard.claim_all()] == [second.group]


async def test_waiting_for_hints_on_a_key_of_the_wrong_type_is_a_clear_error(shard: Shard):
    break_key(shard, "wake")

    with pytest.raises(WrongKeyType):
        await shard.transport.wait_for_hint(0.01)


async def test_a_list_of_another_type_is_set_aside_by_claims_and_stops_no_other_group(shard: Shard):
    await shard.publish_many([("broken", b"1", 0), ("held", b"1", 0), ("live", b"1", 0)])
    [held] = (await shard.transport.turn("worker", [], 2, visibility=60)).leases[1:]
    shard.let_lease_run_out("broken")
    key = break_key(shard, "q:broken")

    # What a turn settles is not lost to a wrong key among those that it claims.
    turned = await shard.transport.turn("worker", [Settlement.ack(held)], 5, visibility=30)

    assert [settled.word for settled in turned.settled] == ["ok"]
    assert [lease.group for lease in turned.leases] == ["live"]
    assert shard.place("broken")[1] > shard.now_ms()
    assert not shard.redis.exists(shard.keys.lock("broken"))
    assert key in shard.redis.hget(shard.named("errors"), "broken").decode()


async def test_a_lock_of_another_type_counts_as_a_lock_and_stops_no_other_group(shard: Shard):
    await shard.publish_many([("locked", b"1", 0), ("live", b"1", 0)])
    break_key(shard, "lock:locked")

    assert [lease.group for lease in await shard.claim_all()] == ["live"]
    assert shard.place("locked")[1] > shard.now_ms()


@pytest.mark.parametrize("name", ["q:second", "lock:second"])
async def test_a_wrong_key_of_one_group_costs_no_other_group_its_settlement(
    shard: Shard, name: str
):
    first, second = await _two_leases(shard)
    break_key(shard, name)
    ends = [Settlement.ack(second), Settlement.ack(first)]

    turned = await shard.transport.turn("worker", ends, 5, visibility=30)

    word = "moved" if name == "q:second" else "stale"
    assert [settled.word for settled in turned.settled] == [word, "ok"]
    assert shard.depth("first") == 0


async def test_a_wrong_key_of_one_group_costs_no_other_group_its_renewal(shard: Shard):
    leases = await _two_leases(shard)
    break_key(shard, "lock:second")
    before = shard.place("first")[1]

    assert await shard.transport.renew(leases, 300) == [leases[1]]
    assert shard.place("first")[1] > before


@pytest.mark.parametrize("name", ["q:second", "lock:second"])
async def test_a_wrong_key_of_one_group_keeps_no_other_group_from_being_handed_back(
    shard: Shard, name: str
):
    await _two_leases(shard)
    key = break_key(shard, name)

    assert await shard.transport.recover("worker", 0) == 1
    assert not shard.redis.exists(shard.keys.lock("first"))
    assert shard.redis.type(key) in (b"string", b"list")


async def test_the_error_says_what_to_do(shard: Shard):
    break_key(shard, "prio")

    with pytest.raises(WrongKeyType, match="delete or rename the key"):
        await shard.publish("group")
