"""Is a group set aside whole, in order and in bounded steps, and nothing with it?"""

from __future__ import annotations

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Gone, Settlement, Turned
from groupqueue.core.messages import Lease
from groupqueue.core.rates import Rate, Rates
from groupqueue.exceptions import WrongKeyType
from tests.transport.envelopes import agenda, audit, cancel, held, send, stat
from tests.transport.operated import check
from tests.transport.shards import Shard
from tests.transport.test_dead_letters import body, drained, letters, payloads, redrive
from tests.transport.test_operating import explain, pause, purge
from tests.transport.test_wrong_types import break_key


async def turn(shard: Shard, *ends: Settlement, want: int = 50) -> Turned:
    return await shard.transport.turn("worker", list(ends), want, visibility=3600)


async def doom(shard: Shard, count: int, *, group: str = "group", tier: int = 0) -> list[str]:
    """Publish messages 0, 1, … and have the first take the others along; return the ids."""
    messages = [(group, body(number), tier) for number in range(count)]
    ids = await shard.publish_many(messages)
    lease = await shard.transport.claim("worker", 60)
    assert lease.id == ids[0]
    await shard.transport.settle(Settlement.dead_group(lease, "max_attempts", "boom"))
    return ids


async def buried(shard: Shard) -> list[Gone]:
    """Take turns that claim until nothing is left to be set aside; return what was."""
    gone: list[Gone] = []
    while (turned := await turn(shard, want=1)).buried:
        assert turned.leases == []
        gone += turned.buried
    return gone


def set_aside(shard: Shard) -> list[tuple[str, str, str, str]]:
    """Return id, reason, error and deliveries of each dead letter, oldest first."""
    return [
        (
            fields[b"element"][:32].decode(),
            fields[b"reason"].decode(),
            fields[b"error"].decode(),
            fields[b"deliveries"].decode(),
        )
        for _, fields in shard.redis.xrange(shard.named("dead"))
    ]


def flags(shard: Shard) -> bytes | None:
    return shard.redis.hget(shard.named("paused"), "")


# Setting aside ---------------------------------------------------------------------------


async def test_what_waited_behind_the_head_follows_it_in_order(shard: Shard):
    ids = await doom(shard, 4)

    assert await buried(shard) == [Gone("group", identifier) for identifier in ids[1:]]

    behind = f"it waited behind message {ids[0]}"
    assert set_aside(shard) == [
        (ids[0], "max_attempts", "boom", "1"),
        *[(identifier, "group", behind, "0") for identifier in ids[1:]],
    ]
    assert stat(shard, "dead") == 4
    check(shard)


async def test_a_group_set_aside_leaves_nothing_behind_but_its_letters(shard: Shard):
    await doom(shard, 4)

    await buried(shard)

    left = {name.partition(":")[0] for name in shard.names()}
    assert left <= {"backlog", "dead", "fence", "publisher", "stats", "wake"}


async def test_a_head_with_nothing_behind_it_dies_alone(shard: Shard):
    await doom(shard, 1)

    assert flags(shard) is None
    await shard.publish("group", body("later"))
    assert await drained(shard) == ["later"]


async def test_what_is_published_meanwhile_stays(shard: Shard):
    ids = await doom(shard, 3)
    await shard.publish("group", body("later"), body("last"))

    [lease] = (await turn(shard)).leases

    assert payloads(shard) == ["later", "last"]
    assert [row[0] for row in set_aside(shard)] == ids
    assert lease.payload == body("later")
    check(shard)


async def test_a_long_group_is_set_aside_in_bounded_steps_that_hold_up_no_other(sync_shard: Shard):
    shard = sync_shard
    ids = await doom(shard, 5000)
    await shard.publish("group", body("later"))
    await shard.publish("live", body("live"))

    first = await turn(shard, want=2)
    turns = [first]
    while turns[-1].buried:
        # It is told to ask again, and wakes another worker.
        assert turns[-1].wait_ms == 0
        turns.append(await turn(shard, want=1))

    assert [lease.group for lease in first.leases] == ["live"]
    assert max(len(turned.buried) for turned in turns) == 1000
    assert len(turns) <= 7
    gone = [message.id for turned in turns for message in turned.buried]
    assert gone == ids[1:]
    assert [row[0] for row in set_aside(shard)] == ids
    assert [lease.payload for lease in turns[-1].leases] == [body("later")]
    check(shard)


async def test_the_messages_of_a_batch_before_the_one_that_failed_are_done(shard: Shard):
    ids = await shard.publish("group", *map(body, range(4)))
    [lease] = (await shard.transport.turn("worker", [], 1, visibility=60, batch=3)).leases

    await shard.transport.settle(Settlement.dead_group(lease, "max_attempts", "boom", done=1))
    await buried(shard)

    assert [row[0] for row in set_aside(shard)] == ids[1:]
    assert set_aside(shard)[1][2] == f"it waited behind message {ids[1]}"
    assert stat(shard, "acked") == 1
    check(shard)


async def test_whoever_lost_the_lease_sets_nothing_aside(shard: Shard):
    await shard.publish("group", body(1), body(2))
    late: Lease = await shard.transport.claim("worker", 60)
    shard.let_lease_run_out("group")
    await shard.transport.claim("other", 60)

    turned = await turn(shard, Settlement.dead_group(late, "why"))

    assert turned.settled[0].word == "stale"
    assert payloads(shard) == [1, 2]
    assert flags(shard) is None


async def test_held_messages_are_set_aside_before_they_are_due(shard: Shard):
    await shard.publish("group", body(0))
    ids = await send(shard, held("group", body(1), due="+3600000"), held("group", body(2)))
    lease = await shard.transport.claim("worker", 60)
    await shard.transport.settle(Settlement.dead_group(lease, "why"))

    assert [message.id for message in await buried(shard)] == ids

    assert (await agenda(shard)).total == 0
    audit(shard)


async def test_a_doomed_group_waits_for_no_rate(shard: Shard):
    await doom(shard, 3)
    rates = Rates(group=Rate(60_000_000))

    turned = await shard.transport.turn("worker", [], 1, visibility=60, rates=rates)

    assert len(turned.buried) == 2


# Operators -------------------------------------------------------------------------------


async def test_a_doomed_group_says_so(shard: Shard):
    ids = await doom(shard, 3)

    assert (await explain(shard)).reason == (
        f"it waits for a worker; 2 of its messages are to be set aside with message {ids[0]}"
    )


async def test_a_pause_holds_a_doomed_group_as_it_is(shard: Shard):
    await doom(shard, 3)
    await pause(shard)
    assert await buried(shard) == []
    assert payloads(shard) == [1, 2]
    await shard.publish("group", body("later"))

    await shard.transport.perform(calls.resume(shard.prefix, "group"))

    assert await drained(shard) == ["later"]
    assert flags(shard) is None


async def test_a_group_paused_while_its_head_ran_is_set_aside_once_it_is_resumed(shard: Shard):
    await shard.publish("group", *map(body, range(3)))
    lease = await shard.transport.claim("worker", 60)
    await pause(shard)
    await shard.transport.settle(Settlement.dead_group(lease, "why"))
    assert await buried(shard) == []

    await shard.transport.perform(calls.resume(shard.prefix, "group"))

    assert len(await buried(shard)) == 2


async def test_purging_a_doomed_group_ends_its_doom(shard: Shard):
    await doom(shard, 3)
    await purge(shard)
    await shard.publish("group", body("later"))

    assert await drained(shard) == ["later"]
    assert len(set_aside(shard)) == 1
    assert flags(shard) is None
    assert not shard.redis.exists(shard.named("doomed"))


async def test_skipping_the_head_of_a_doomed_group_takes_no_other_along(shard: Shard):
    ids = await doom(shard, 3)
    await shard.publish("group", body("later"))

    await shard.transport.perform(calls.skip(shard.prefix, "group", ids[1]))

    assert await drained(shard) == ["later"]
    assert [row[:2] for row in set_aside(shard)] == [
        (ids[0], "max_attempts"),
        (ids[1], "skipped"),
        (ids[2], "group"),
    ]


@pytest.mark.parametrize("skipped", [1, 2])
async def test_skipping_all_that_is_doomed_ends_the_doom(shard: Shard, skipped: int):
    ids = await doom(shard, 1 + skipped)
    await shard.publish("group", body("later"))

    for identifier in ids[1:]:
        await shard.transport.perform(calls.skip(shard.prefix, "group", identifier))

    assert flags(shard) is None
    assert await drained(shard) == ["later"]


async def test_a_held_message_taken_back_from_a_doomed_group_is_one_less(shard: Shard):
    await shard.publish("group", body(0), body(1))
    [doomed] = await send(shard, held("group", body(2)))
    lease = await shard.transport.claim("worker", 60)
    await shard.transport.settle(Settlement.dead_group(lease, "why"))
    [later] = await send(shard, held("group", body("taken back")))
    await shard.publish("group", body("later"))

    assert await cancel(shard, doomed) == "ok"
    assert await cancel(shard, later) == "ok"

    assert await drained(shard) == ["later"]
    assert len(set_aside(shard)) == 2
    audit(shard)


async def test_redriving_a_group_set_aside_restores_its_order(sync_shard: Shard):
    shard = sync_shard
    await doom(shard, 250)
    await buried(shard)
    await shard.publish("group", body("later"))

    assert await redrive(shard) == 250

    assert payloads(shard) == [*range(250), "later"]
    assert await drained(shard) == [*range(250), "later"]


@pytest.mark.parametrize("pages", [0, 1])
async def test_redriving_a_group_half_set_aside_spares_the_rest(sync_shard: Shard, pages: int):
    shard = sync_shard
    await doom(shard, 1150)
    for _ in range(pages):
        assert len((await turn(shard, want=1)).buried) == 1000

    assert await redrive(shard) == 1 + pages * 1000

    assert payloads(shard) == [*range(1150)]
    assert flags(shard) is None
    assert await drained(shard) == [*range(1150)]


async def test_letters_put_back_behind_a_doomed_group_are_not_doomed(shard: Shard):
    await doom(shard, 3)

    assert await redrive(shard, to_tail=True) == 1

    assert await drained(shard) == [0]
    assert (await letters(shard)).total == 2


async def test_a_doomed_group_keeps_its_doom_in_another_tier(shard: Shard):
    await doom(shard, 3, tier=1)

    await shard.transport.perform(calls.set_tier(shard.prefix, "group", 4))

    assert len(await buried(shard)) == 2


# Odd states ------------------------------------------------------------------------------


async def test_a_key_for_letters_of_another_type_puts_a_doomed_group_off_and_no_other(
    shard: Shard,
):
    await doom(shard, 3)
    await shard.publish("live", body("live"))
    key = break_key(shard, "dead")

    turned = await turn(shard, want=2)

    assert [lease.group for lease in turned.leases] == ["live"]
    assert turned.buried == []
    assert payloads(shard) == [1, 2]
    assert shard.place("group")[1] > shard.now_ms()
    assert key in (await explain(shard)).group.last_error
    shard.redis.delete(key)
    shard.make_due("group", 0)
    assert len((await turn(shard)).buried) == 2
    check(shard)


@pytest.mark.parametrize("note", ["", "many", "0 x", "-5 x"])
async def test_a_note_that_somebody_else_wrote_dooms_nobody(shard: Shard, note: str):
    await doom(shard, 3)
    shard.redis.hset(shard.named("doomed"), "group", note)

    assert await drained(shard) == [1, 2]
    assert flags(shard) is None


async def test_a_doomed_group_whose_messages_were_deleted_by_hand_is_mended(shard: Shard):
    await doom(shard, 3)
    shard.redis.delete(shard.keys.fifo("group"))

    assert (await turn(shard)).leases == []

    assert flags(shard) is None
    assert shard.places("group") == []


async def test_a_doomed_group_whose_list_is_none_is_put_off(shard: Shard):
    await doom(shard, 3)
    await shard.publish("live", body("live"))
    break_key(shard, "q:group")

    assert [lease.group for lease in (await turn(shard)).leases] == ["live"]
    assert shard.place("group")[1] > shard.now_ms()


@pytest.mark.parametrize(
    ("prepare", "key"),
    [
        (lambda shard: doom(shard, 3), "doomed"),
        (
            lambda shard: shard.transport.perform(calls.rate(shard.prefix, "x", "6000000 1")),
            "rates",
        ),
    ],
    ids=["doomed", "rates"],
)
async def test_a_flagged_key_of_another_type_is_an_error_before_anything_is_written(
    sync_shard: Shard, prepare, key: str
):
    shard = sync_shard
    await shard.publish("held")
    lease = await shard.transport.claim("worker", 60)
    await prepare(shard)
    full = break_key(shard, key)
    before = shard.dump()

    with pytest.raises(WrongKeyType) as refusal:
        await turn(shard, Settlement.ack(lease))

    assert full in str(refusal.value)
    assert shard.dump() == before


async def test_what_comes_after_the_last_that_was_doomed_is_handled(shard: Shard):
    await doom(shard, 3)
    shard.redis.hset(shard.named("doomed"), "group", "99 id")

    assert len(await buried(shard)) == 2

    await shard.publish("group", b"new")
    assert [lease.payload for lease in await shard.claim_all()] == [b"new"]
