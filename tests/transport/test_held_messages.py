"""Does a held message keep its place, and its group waiting, until it is due?"""

from __future__ import annotations

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.messages import Lease
from tests.transport.envelopes import (
    SOON_MS,
    agenda,
    audit,
    bodies,
    cancel,
    due_of,
    expiring,
    handle_all,
    held,
    let_come,
    promote,
    reschedule,
    scheduled,
    send,
    send_expired,
    stat,
)
from tests.transport.shards import Shard, envelope
from tests.transport.test_cleanliness import left_behind

INFINITY = float("inf")


async def pause(shard: Shard) -> None:
    assert await shard.transport.perform(calls.pause(shard.prefix, "group", "why"))


async def resume(shard: Shard) -> None:
    assert await shard.transport.perform(calls.resume(shard.prefix, "group"))


async def skip(shard: Shard, identifier: str) -> str:
    return await shard.transport.perform(calls.skip(shard.prefix, "group", identifier))


async def purge(shard: Shard) -> calls.Purged:
    return await shard.transport.perform(calls.purge(shard.prefix, ["group"]))


async def assert_held_until_due(shard: Shard, identifier: str) -> None:
    """The message holds its group, wakes workers in time, and is then delivered."""
    assert shard.place("group")[1] == due_of(shard, identifier)
    assert await shard.transport.claim("worker", 30) is None
    assert 0 < (await promote(shard)).wait_ms <= SOON_MS
    audit(shard)
    let_come(shard, identifier)
    lease = await shard.transport.claim("worker", 30)
    assert (lease.id, lease.deliveries) == (identifier, 1)
    assert not shard.redis.exists(shard.named("scheduled"), shard.named("scheduled:held"))
    audit(shard)


# As the head from the beginning ----------------------------------------------------------------


async def test_a_held_message_takes_its_place_and_holds_an_empty_group(shard: Shard):
    [identifier] = await send(shard, held("group", tier=2))
    await shard.publish("group", b"behind", priority=4)

    assert shard.place("group")[0] == 2
    assert shard.depth("group") == 2
    await assert_held_until_due(shard, identifier)


async def test_what_is_published_later_waits_behind_a_held_message(shard: Shard):
    [first] = await send(shard, held("group", b"1"))
    await shard.publish("group", b"2")
    [joins] = await send(shard, scheduled("group", b"3"))
    let_come(shard, joins)
    assert await shard.transport.claim("worker", 30) is None

    let_come(shard, first)

    assert bodies(await handle_all(shard)) == [b"1", b"2", b"3"]
    assert left_behind(shard) == set()


async def test_in_one_call_only_a_first_message_holds_from_the_beginning(shard: Shard):
    await send(shard, held("a", b"1"), envelope("a", b"2"), envelope("b", b"1"), held("b", b"2"))

    assert [(lease.group, lease.payload) for lease in await handle_all(shard)] == [("b", b"1")]


async def test_each_of_several_held_messages_holds_until_its_own_moment(shard: Shard):
    later, sooner, last = await send(
        shard, held("group", b"1"), held("group", b"2", due="+30000"), held("group", b"3")
    )
    let_come(shard, sooner)
    assert await shard.transport.claim("worker", 30) is None

    let_come(shard, later)

    # The second one's moment has passed, the third one's has not.
    assert bodies(await handle_all(shard)) == [b"1", b"2"]
    await assert_held_until_due(shard, last)


async def test_other_groups_go_on(shard: Shard):
    await send(shard, held("group"), envelope("other"))

    assert [lease.group for lease in await handle_all(shard)] == ["other"]


@pytest.mark.parametrize("arrival", ["fair", "front"])
async def test_a_held_group_waits_wherever_new_groups_queue_up(shard: Shard, arrival: str):
    inner = getattr(shard.transport, "bare", shard.transport)
    inner._arrival = arrival

    [identifier] = await send(shard, held("group"))

    await assert_held_until_due(shard, identifier)


# As the head later on --------------------------------------------------------------------------

LEAVING = {
    "ack": lambda shard, lease: shard.transport.ack(lease),
    "turn, ack": lambda shard, lease: shard.transport.settle(Settlement.ack(lease)),
    "turn, dead": lambda shard, lease: shard.transport.settle(Settlement.dead(lease, "why")),
}


@pytest.mark.parametrize("leave", LEAVING.values(), ids=LEAVING)
async def test_a_held_message_holds_once_the_one_before_it_has_left(shard: Shard, leave):
    await shard.publish("group", b"first")
    [identifier] = await send(shard, held("group"))

    await leave(shard, await shard.transport.claim("worker", 30))

    await assert_held_until_due(shard, identifier)


async def test_a_held_message_holds_once_the_one_before_it_is_skipped(shard: Shard):
    [first] = await shard.publish("group")
    [identifier] = await send(shard, held("group"))

    assert await skip(shard, first) == "ok"

    await assert_held_until_due(shard, identifier)


async def test_a_held_message_holds_once_the_one_before_it_has_expired(shard: Shard):
    await send_expired(shard, expiring("group"))
    [identifier] = await send(shard, held("group"))

    assert await shard.transport.claim("worker", 30) is None

    await assert_held_until_due(shard, identifier)


async def test_a_held_message_holds_once_a_held_one_before_it_is_cancelled(shard: Shard):
    first, identifier = await send(shard, held("group"), held("group"))

    assert await cancel(shard, first) == "ok"

    await assert_held_until_due(shard, identifier)


async def test_a_held_message_holds_after_the_end_of_a_halt(shard: Shard):
    [first] = await shard.publish("group")
    [identifier] = await send(shard, held("group"))
    lease = await shard.transport.claim("worker", 30)
    await shard.transport.settle(Settlement.halt(lease, "max_attempts"))

    assert await skip(shard, first) == "ok"

    await assert_held_until_due(shard, identifier)


RETURNING = {
    "nack": lambda shard, lease: shard.transport.nack(lease),
    "turn, retry": lambda shard, lease: shard.transport.settle(Settlement.retry(lease, 0)),
    "turn, release": lambda shard, lease: shard.transport.settle(Settlement.release(lease)),
    "recover": lambda shard, lease: shard.transport.recover("worker", 0),
    "release": lambda shard, lease: shard.transport.perform(calls.release(shard.prefix, "group")),
}


@pytest.mark.parametrize("give_back", RETURNING.values(), ids=RETURNING)
async def test_a_head_that_comes_back_does_not_wait_for_the_held_one_behind_it(
    shard: Shard, give_back
):
    [first] = await shard.publish("group")
    [identifier] = await send(shard, held("group"))
    await give_back(shard, await shard.transport.claim("worker", 30))

    lease = await shard.transport.claim("worker", 30)
    assert lease.id == first
    await shard.transport.ack(lease)

    await assert_held_until_due(shard, identifier)


async def test_a_lease_that_runs_out_after_a_renewal_changes_nothing_for_the_held_one(
    shard: Shard,
):
    [first] = await shard.publish("group")
    [identifier] = await send(shard, held("group"))
    lease = await shard.transport.claim("dead", 30)
    assert await shard.transport.renew([lease], 60) == []
    shard.let_lease_run_out("group")

    again = await shard.transport.claim("worker", 30)
    assert (again.id, again.crashes) == (first, 1)
    await shard.transport.ack(again)

    await assert_held_until_due(shard, identifier)


async def test_a_held_messages_own_retries_are_those_of_any_other(shard: Shard):
    [identifier] = await send(shard, held("group"))
    let_come(shard, identifier)
    await shard.transport.nack(await shard.transport.claim("worker", 30))

    lease = await shard.transport.claim("worker", 30)

    assert (lease.id, lease.failures) == (identifier, 1)


async def test_a_redriven_message_goes_before_a_held_one(shard: Shard):
    await shard.publish("group", b"dead")
    lease = await shard.transport.claim("worker", 30)
    [identifier] = await send(shard, held("group"))
    await shard.transport.settle(Settlement.dead(lease, "why"))
    [(entry, _)] = shard.redis.xrange(shard.named("dead"))

    assert await shard.transport.perform(calls.redrive(shard.prefix, [entry.decode()])) == 1

    again = await shard.transport.claim("worker", 30)
    assert again.id == lease.id
    await shard.transport.ack(again)
    await assert_held_until_due(shard, identifier)


# Paused, halted, moved -------------------------------------------------------------------------


@pytest.mark.parametrize("is_paused_first", [True, False])
async def test_a_resumed_group_is_held_until_its_head_is_due(shard: Shard, is_paused_first):
    if is_paused_first:
        await pause(shard)
    [identifier] = await send(shard, held("group"))
    if not is_paused_first:
        await pause(shard)
    assert shard.place("group") == (0, INFINITY)

    await resume(shard)

    await assert_held_until_due(shard, identifier)


async def test_a_group_whose_held_head_came_due_under_a_pause_is_due_once_resumed(shard: Shard):
    [identifier] = await send(shard, held("group"))
    await pause(shard)
    let_come(shard, identifier)
    assert await shard.transport.claim("worker", 30) is None
    assert shard.place("group") == (0, INFINITY)

    await resume(shard)

    assert (await shard.transport.claim("worker", 30)).id == identifier


async def test_a_pause_under_the_lease_before_it_outlasts_a_held_messages_moment(shard: Shard):
    await shard.publish("group")
    [identifier] = await send(shard, held("group"))
    lease = await shard.transport.claim("worker", 30)
    await pause(shard)
    await shard.transport.ack(lease)
    let_come(shard, identifier)

    assert await shard.transport.claim("worker", 30) is None
    assert shard.place("group") == (0, INFINITY)


async def test_resuming_under_a_lease_keeps_the_leases_deadline(shard: Shard):
    await shard.publish("group")
    [identifier] = await send(shard, held("group"))
    lease = await shard.transport.claim("worker", 30)
    await pause(shard)

    await resume(shard)

    assert shard.place("group")[1] < due_of(shard, identifier)
    await shard.transport.ack(lease)
    await assert_held_until_due(shard, identifier)


async def test_another_tier_does_not_end_a_hold(shard: Shard):
    [identifier] = await send(shard, held("group"))

    assert (await shard.transport.perform(calls.set_tier(shard.prefix, "group", 4))).is_known

    assert shard.place("group")[0] == 4
    await assert_held_until_due(shard, identifier)


async def test_skipping_a_held_message_ends_its_hold_for_good(shard: Shard):
    first, _ = await send(shard, held("group", b"held"), envelope("group", b"behind"))

    assert await skip(shard, first) == "ok"

    assert (await agenda(shard)).total == 0
    assert bodies(await handle_all(shard)) == [b"behind"]
    [(entry, _)] = shard.redis.xrange(shard.named("dead"))
    await shard.transport.perform(calls.redrive(shard.prefix, [entry.decode()]))
    assert bodies(await handle_all(shard)) == [b"held"]


# Cancelling ------------------------------------------------------------------------------------


async def test_cancelling_a_held_head_frees_its_group(shard: Shard):
    first, _ = await send(shard, held("group"), envelope("group", b"behind"))
    shard.redis.delete(shard.named("wake"))

    assert await cancel(shard, first) == "ok"

    assert shard.redis.llen(shard.named("wake")) == 1
    audit(shard)
    assert bodies(await handle_all(shard)) == [b"behind"]
    assert stat(shard, "cancelled") == 1


async def test_cancelling_a_held_message_that_is_all_of_its_group_drains_it(shard: Shard):
    [identifier] = await send(shard, held("group"))

    assert await cancel(shard, identifier) == "ok"

    assert left_behind(shard) == set()
    assert shard.redis.hget(shard.named("backlog"), "0") == b"0"


async def test_cancelling_a_held_message_in_the_middle_leaves_the_others_in_order(shard: Shard):
    await shard.publish("group", b"1", b"2")
    [identifier] = await send(shard, held("group", b"held"))
    await shard.publish("group", b"3")
    place = shard.place("group")

    assert await cancel(shard, identifier) == "ok"

    assert shard.place("group") == place
    audit(shard)
    assert bodies(await handle_all(shard)) == [b"1", b"2", b"3"]


async def test_cancelling_behind_a_lease_does_not_disturb_it(shard: Shard):
    await shard.publish("group")
    [identifier] = await send(shard, held("group"))
    lease = await shard.transport.claim("worker", 30)

    assert await cancel(shard, identifier) == "ok"

    audit(shard)
    assert await shard.transport.ack(lease) == 0
    assert left_behind(shard) == set()


async def test_cancelling_a_held_head_of_a_paused_group_keeps_the_pause(shard: Shard):
    first, _ = await send(shard, held("group"), envelope("group"))
    await pause(shard)

    assert await cancel(shard, first) == "ok"

    assert shard.place("group") == (0, INFINITY)
    audit(shard)


async def leased_before_promotion(shard: Shard) -> Lease:
    """Return the lease of a held message that is due behind more than a turn promotes."""
    ids = await send(shard, *(scheduled("crowd") for _ in range(150)))
    let_come(shard, *ids)
    [identifier] = await send(shard, held("group"))
    let_come(shard, identifier, in_ms=-1_000)
    leases = (await shard.transport.turn("worker", [], 5, visibility=30)).leases
    [lease] = [lease for lease in leases if lease.group == "group"]
    assert due_of(shard, identifier) is not None
    return lease


async def test_a_leased_message_cannot_be_cancelled_however_many_are_due(shard: Shard):
    lease = await leased_before_promotion(shard)

    assert await cancel(shard, lease.id) == "not scheduled"

    assert shard.depth("group") == 1
    assert await shard.transport.ack(lease) == 0
    audit(shard)


async def test_a_leased_message_cannot_be_rescheduled_however_many_are_due(shard: Shard):
    lease = await leased_before_promotion(shard)

    assert await reschedule(shard, lease.id, "+60000") is False

    await shard.transport.nack(lease)
    assert (await shard.transport.claim("worker", 30)).id == lease.id


async def test_a_held_head_that_is_leased_all_the_same_is_not_disturbed(shard: Shard):
    [identifier] = await send(shard, held("group"))
    # By hand, since no script leases it.
    shard.make_due("group", 0)
    lease = await shard.transport.claim("worker", 30)

    place = shard.place("group")
    await reschedule(shard, identifier, "+90000")
    assert await cancel(shard, identifier) == "not scheduled"

    assert shard.place("group") == place
    assert await shard.transport.ack(lease) == 0


async def test_a_held_message_that_is_due_can_no_longer_be_cancelled_or_rescheduled(shard: Shard):
    [identifier] = await send(shard, held("group"))
    let_come(shard, identifier)
    before = shard.dump()

    assert await cancel(shard, identifier) == "not scheduled"
    assert await reschedule(shard, identifier, "+60000") is False

    assert shard.dump() == before
    assert (await shard.transport.claim("worker", 30)).id == identifier


@pytest.mark.parametrize(("before", "word"), [(999, "ok"), (1000, "too deep")])
async def test_a_held_message_is_looked_for_among_a_thousand(shard: Shard, before: int, word: str):
    await shard.publish_many([("group", b"1", 0)] * before)
    [identifier] = await send(shard, held("group"))

    assert await cancel(shard, identifier) == word

    assert shard.depth("group") == before + (word != "ok")
    assert (await agenda(shard)).total == (word != "ok")
    audit(shard)


# Rescheduling ----------------------------------------------------------------------------------


@pytest.mark.parametrize("due", ["+5000", "+50000"])
async def test_a_rescheduled_head_holds_until_its_new_moment(shard: Shard, due: str):
    [identifier] = await send(shard, held("group", due="+20000"))

    assert await reschedule(shard, identifier, due) is True

    await assert_held_until_due(shard, identifier)


async def test_a_head_rescheduled_to_a_moment_past_is_due_at_once(shard: Shard):
    [identifier] = await send(shard, held("group"))
    shard.redis.delete(shard.named("wake"))

    assert await reschedule(shard, identifier, "1") is True

    assert shard.redis.llen(shard.named("wake")) == 1
    assert (await shard.transport.claim("worker", 30)).id == identifier
    audit(shard)


async def test_a_message_rescheduled_behind_others_holds_once_it_is_the_head(shard: Shard):
    await shard.publish("group")
    [identifier] = await send(shard, held("group", due="+1000"))
    place = shard.place("group")

    assert await reschedule(shard, identifier, "+50000") is True

    assert shard.place("group") == place
    await shard.transport.ack(await shard.transport.claim("worker", 30))
    await assert_held_until_due(shard, identifier)


async def test_rescheduling_behind_a_lease_does_not_disturb_it(shard: Shard):
    await shard.publish("group")
    [identifier] = await send(shard, held("group"))
    lease = await shard.transport.claim("worker", 30)
    place = shard.place("group")

    assert await reschedule(shard, identifier, "1") is True

    assert shard.place("group") == place
    await shard.transport.ack(lease)
    assert (await shard.transport.claim("worker", 30)).id == identifier


async def test_rescheduling_the_head_of_a_paused_group_keeps_the_pause(shard: Shard):
    [identifier] = await send(shard, held("group"))
    await pause(shard)

    assert await reschedule(shard, identifier, "1") is True
    assert shard.place("group") == (0, INFINITY)

    await resume(shard)
    assert (await shard.transport.claim("worker", 30)).id == identifier


# Purging ---------------------------------------------------------------------------------------


async def test_a_purge_takes_a_groups_held_messages_off_the_agenda(shard: Shard):
    await send(shard, held("group"), held("group"), scheduled("group"))
    [kept] = await send(shard, held("other"))

    assert (await purge(shard)).messages == 2

    assert {one.group for one in (await agenda(shard)).messages} == {"group", "other"}
    assert (await agenda(shard)).total == 2
    assert shard.redis.hkeys(shard.named("scheduled:held")) == [kept.encode()]


async def test_held_messages_that_a_purge_has_not_seen_hold_nothing_and_go_in_time(shard: Shard):
    await send(shard, *(held("group") for _ in range(1500)))
    assert (await purge(shard)).messages == 1500
    left = [name.decode() for name in shard.redis.hkeys(shard.named("scheduled:held"))]
    assert 0 < len(left) <= 500
    await shard.publish("group", b"new", b"newer")

    assert bodies(await handle_all(shard)) == [b"new", b"newer"]

    let_come(shard, *left)
    assert await handle_all(shard) == []
    assert left_behind(shard) == set()


async def test_a_purged_held_message_cannot_be_rescheduled(shard: Shard):
    [identifier] = await send(shard, held("group"))
    await purge(shard)

    assert await reschedule(shard, identifier, "+5") is False


async def test_cancelling_a_held_message_whose_list_is_gone_clears_its_entry_away(shard: Shard):
    [identifier] = await send(shard, held("group"))
    kept = shard.redis.hgetall(shard.named("scheduled:held"))
    await purge(shard)
    shard.redis.hset(shard.named("scheduled:held"), mapping=kept)
    shard.redis.zadd(shard.named("scheduled"), {identifier: shard.now_ms() + 60_000})

    assert await cancel(shard, identifier) == "not scheduled"

    assert stat(shard, "cancelled") == 0
    assert left_behind(shard) == set()


async def test_a_held_message_that_was_set_aside_holds_nothing_when_it_is_put_back(shard: Shard):
    await shard.publish("group", b"1", b"2")
    [identifier] = await send(shard, held("group", b"3"))
    lease = await shard.transport.claim("worker", 30)
    ends = [Settlement.dead_group(lease, "why")]
    await shard.transport.turn("worker", ends, 1, visibility=30)
    assert due_of(shard, identifier) is None

    entries = [entry.decode() for entry, _ in shard.redis.xrange(shard.named("dead"))]
    await shard.transport.perform(calls.redrive(shard.prefix, entries))

    assert bodies(await handle_all(shard)) == [b"1", b"2", b"3"]


async def test_what_is_noted_under_anothers_id_does_not_join_its_group(shard: Shard):
    [identifier] = await send(shard, scheduled("group"))
    noted = shard.redis.hget(shard.named("scheduled:data"), identifier)
    for other, data in (("a" * 32, noted), ("b" * 32, b"M000000000" + b"b" * 32 + b"1" * 26)):
        shard.redis.hset(shard.named("scheduled:data"), other, data)
        shard.redis.zadd(shard.named("scheduled"), {other: 1})

    await promote(shard)

    assert await shard.claim_all() == []
    assert shard.redis.zcard(shard.named("scheduled")) == 3, "it waits for somebody"
