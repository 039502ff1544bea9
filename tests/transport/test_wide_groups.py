"""Are as many messages of a wide group in flight as it is wide, each fenced by itself?"""

from __future__ import annotations

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.codec import JSONCodec
from groupqueue.core.groups import move_group
from groupqueue.core.messages import EnvelopeOptions, Lease
from groupqueue.core.rates import Rate, Rates
from groupqueue.core.snapshot import snapshot_decoder
from groupqueue.core.views import explanation, peeked_decoder
from groupqueue.exceptions import WrongKeyType
from tests.transport.envelopes import (
    audit,
    bodies,
    cancel,
    held,
    let_come,
    send,
    send_expired,
    stat,
    wide,
)
from tests.transport.shards import Shard, envelope
from tests.transport.test_cleanliness import left_behind


async def fill(shard: Shard, count: int, width: int = 3, group: str = "group") -> list[str]:
    return await send(shard, *(wide(group, b"%d" % n, width=width) for n in range(count)))


async def take(shard: Shard, want: int = 50, **options: object) -> list[Lease]:
    return (await shard.transport.turn("worker", [], want, visibility=60, **options)).leases


async def settle(shard: Shard, *settlements: Settlement, want: int = 0) -> list[Lease]:
    turned = await shard.transport.turn("worker", settlements, want, visibility=60)
    assert [settled.word for settled in turned.settled] == ["ok"] * len(settlements)
    return turned.leases


def in_flight(shard: Shard, group: str = "group") -> int:
    return int(shard.redis.zcount(shard.named(f"places:{group}"), 1, 1))


def let_all_run_out(shard: Shard) -> None:
    """Let the leases of all started messages end without a word from their worker."""
    for key in shard.redis.keys(shard.keys.lock("*")):
        group = key.removeprefix(shard.keys.lock("").encode())
        shard.redis.delete(key)
        for tier in range(5):
            shard.redis.zadd(shard.keys.ready(tier), {group: 1}, xx=True)


async def explain(shard: Shard, group: str = "group"):
    return await shard.transport.perform(calls.explain(shard.prefix, group, explanation))


async def test_so_many_are_in_flight_and_no_more(shard: Shard):
    await fill(shard, 10, width=3)

    leases = await take(shard)

    assert bodies(leases) == [b"0", b"1", b"2"]
    assert {lease.group for lease in leases} == {"group"}
    assert len({lease.token for lease in leases}) == 3
    assert await take(shard) == []
    assert in_flight(shard) == 3


async def test_a_place_that_comes_free_goes_to_the_next_in_order(shard: Shard):
    await fill(shard, 6, width=2)
    first, second = await take(shard)

    [third] = await settle(shard, Settlement.ack(second), want=5)
    [fourth] = await settle(shard, Settlement.ack(first), want=5)

    assert bodies([third, fourth]) == [b"2", b"3"]


@pytest.mark.parametrize("one_by_one", ["ack", "nack"])
async def test_acking_and_nacking_one_by_one_free_a_place_too(shard: Shard, one_by_one: str):
    await fill(shard, 3, width=1 + 1)
    first, _ = await take(shard)

    if one_by_one == "ack":
        await shard.transport.ack(first)
    else:
        await shard.transport.nack(first, 3600)

    assert bodies(await take(shard)) == [b"2"]


async def test_a_retry_of_one_does_not_hold_up_the_others(shard: Shard):
    await fill(shard, 5, width=2)
    first, second = await take(shard)

    [third] = await settle(shard, Settlement.retry(first, 3600, "boom"), want=5)
    [fourth] = await settle(shard, Settlement.retry(second, 3600, "boom"), want=5)

    assert bodies([third, fourth]) == [b"2", b"3"]
    assert in_flight(shard) == 2


async def test_what_is_retried_comes_again_with_its_own_counters(shard: Shard):
    await fill(shard, 2, width=2)
    first, second = await take(shard)

    [again] = await settle(
        shard, Settlement.retry(first, 0, "boom"), Settlement.ack(second), want=5
    )

    assert (again.id, again.deliveries, again.failures, again.crashes) == (first.id, 2, 1, 0)
    assert again.token > second.token


async def test_what_is_due_again_waits_for_a_place_and_goes_before_new_ones(shard: Shard):
    await fill(shard, 5, width=2)
    first, second = await take(shard)
    [third] = await settle(shard, Settlement.retry(first, 3600, "boom"), want=1)
    assert third.payload == b"2"
    group = f"group\udcff{first.id}".encode(errors="surrogateescape")
    shard.redis.zadd(shard.keys.ready(0), {group: 1})
    assert await take(shard) == []

    [following] = await settle(shard, Settlement.ack(second), want=1)

    assert following.id == first.id


async def test_only_the_silent_workers_message_is_delivered_again(shard: Shard):
    await fill(shard, 3, width=3)
    leases = await take(shard)
    await settle(shard, Settlement.ack(leases[0]), Settlement.ack(leases[2]))
    let_all_run_out(shard)

    [again] = await take(shard)

    assert (again.id, again.deliveries, again.crashes) == (leases[1].id, 2, 1)
    assert in_flight(shard) == 1


async def test_an_older_token_changes_nothing(shard: Shard):
    await fill(shard, 2, width=2)
    stale, _ = await take(shard)
    let_all_run_out(shard)
    await take(shard)
    before = shard.dump()

    turned = await shard.transport.turn("slow", [Settlement.ack(stale)], 0, visibility=60)

    assert [settled.word for settled in turned.settled] == ["stale"]
    assert await shard.transport.renew([stale], 60) == [stale]
    assert shard.dump() == before


async def test_leases_are_renewed_each_by_itself(shard: Shard):
    await fill(shard, 2, width=2)
    leases = await take(shard)

    assert await shard.transport.renew(leases, 300) == []


async def test_leases_nobody_heard_of_are_handed_back(shard: Shard):
    await fill(shard, 5, width=3)
    leases = await take(shard)

    assert await shard.transport.recover("worker", leases[0].token) == 2

    assert in_flight(shard) == 1
    again = await take(shard)
    assert sorted(bodies(again)) == [b"1", b"2"]
    assert [lease.deliveries for lease in again] == [1, 1]


async def test_a_dead_one_is_set_aside_under_its_groups_name(shard: Shard):
    await fill(shard, 3, width=2)
    first, second = await take(shard)

    await settle(shard, Settlement.dead(first, "why", "boom"), Settlement.ack(second))

    [(_, letter)] = shard.redis.xrange(shard.named("dead"))
    assert (letter[b"group"], letter[b"width"]) == (b"group", b"2")
    assert bodies(await take(shard)) == [b"2"]


async def test_a_redriven_one_makes_its_group_wide_again(shard: Shard):
    await fill(shard, 1, width=4)
    [lease] = await take(shard)
    await settle(shard, Settlement.dead(lease, "why"))
    assert not shard.redis.exists(shard.named("wide"))

    [(entry, _)] = shard.redis.xrange(shard.named("dead"))
    await shard.transport.perform(calls.redrive(shard.prefix, [entry.decode()]))

    assert shard.redis.hget(shard.named("wide"), "group") == b"4"
    assert [lease.id for lease in await take(shard)] == [lease.id]


async def test_a_halt_holds_that_message_alone_until_the_group_is_resumed(shard: Shard):
    await fill(shard, 4, width=2)
    first, second = await take(shard)

    [third] = await settle(shard, Settlement.halt(first, "max_attempts", "boom"), want=5)
    assert bodies([third]) == [b"2"]
    await settle(shard, Settlement.ack(second), Settlement.ack(third))
    [fourth] = await take(shard)
    await settle(shard, Settlement.ack(fourth))
    assert await take(shard) == []

    assert await shard.transport.perform(calls.resume(shard.prefix, "group"))
    [again] = await take(shard)
    assert (again.id, again.failures) == (first.id, 0)


async def test_a_halted_one_can_be_skipped(shard: Shard):
    await fill(shard, 1, width=2)
    [lease] = await take(shard)
    await settle(shard, Settlement.halt(lease, "why", "boom"))

    assert await shard.transport.perform(calls.skip(shard.prefix, "group", lease.id)) == "ok"

    assert stat(shard, "dead") == 1
    assert left_behind(shard) == {"dead"}


async def test_a_paused_group_starts_nothing_and_resumes_where_it_was(shard: Shard):
    await fill(shard, 4, width=2)
    first, second = await take(shard)
    await shard.transport.perform(calls.pause(shard.prefix, "group", "why"))

    assert await settle(shard, Settlement.ack(first), Settlement.retry(second, 0), want=5) == []

    await shard.transport.perform(calls.resume(shard.prefix, "group"))
    for tier in range(5):  # it looks again in a second
        for member in shard.redis.zrange(shard.keys.ready(tier), 0, -1):
            shard.redis.zadd(shard.keys.ready(tier), {member: 1})
    assert sorted(bodies(await take(shard))) == [b"1", b"2"]


async def test_its_tier_changes_for_what_is_started_too(shard: Shard):
    await fill(shard, 4, width=2)
    first, _ = await take(shard)

    assert (await shard.transport.perform(calls.set_tier(shard.prefix, "group", 4))).is_known
    await settle(shard, Settlement.retry(first, 0, "boom"))

    assert {lease.priority for lease in await take(shard)} == {4}
    assert shard.redis.hget(shard.named("backlog"), "4") == b"4"
    assert shard.redis.hget(shard.named("backlog"), "0") == b"0"


async def test_its_tier_changes_for_thousands_of_started_messages(shard: Shard):
    await fill(shard, 1200, width=1200)
    leases = []
    while taken := (await shard.transport.turn("worker", [], 400, visibility=60)).leases:
        leases += taken
    assert len(leases) == 1200

    moved, flow = None, move_group(shard.prefix, "group", 4)
    try:
        while True:
            moved = await shard.transport.perform(flow.send(moved))
    except StopIteration as end:
        is_known = end.value

    assert is_known
    assert set(shard.redis.hvals(shard.named("prio"))) == {b"4"}
    assert shard.redis.zcard(shard.keys.ready(4)) == 1200
    assert shard.redis.hget(shard.named("backlog"), "4") == b"1200"


async def test_an_operator_ends_all_its_leases(shard: Shard):
    await fill(shard, 4, width=3)
    leases = await take(shard)

    assert await shard.transport.perform(calls.release(shard.prefix, "group"))

    assert in_flight(shard) == 0
    again = await take(shard)
    assert sorted(bodies(again)) == [b"0", b"1", b"2"]
    assert {lease.deliveries for lease in again} == {1}
    assert min(lease.token for lease in again) > max(lease.token for lease in leases)


async def test_a_purge_throws_the_started_ones_away_as_well(shard: Shard):
    await fill(shard, 6, width=2)
    first, _ = await take(shard)
    await settle(shard, Settlement.retry(first, 3600, "boom"), want=5)

    purged = await shard.transport.perform(calls.purge(shard.prefix, ["group"]))

    assert tuple(purged) == (1, 6)
    assert left_behind(shard) == set()


async def test_a_drained_wide_group_leaves_nothing_behind(shard: Shard):
    await fill(shard, 7, width=3)

    handled = []
    finished: list[Settlement] = []
    while leases := await settle(shard, *finished, want=50):
        handled += bodies(leases)
        finished = [Settlement.ack(lease) for lease in reversed(leases)]

    assert handled == [b"%d" % number for number in range(7)]
    assert left_behind(shard) == set()
    assert not shard.redis.exists(shard.named("paused"), shard.named("wide"))


async def test_a_group_is_plain_again_once_it_has_drained(shard: Shard):
    await fill(shard, 1, width=3)
    [lease] = await take(shard)
    await settle(shard, Settlement.ack(lease))

    await shard.publish("group", b"1", b"2")

    assert bodies(await take(shard)) == [b"1"]


async def test_what_is_published_plainly_joins_a_wide_group(shard: Shard):
    await fill(shard, 1, width=3)
    await shard.publish("group", b"plain", b"more")

    assert bodies(await take(shard)) == [b"0", b"plain", b"more"]


async def test_a_plain_lease_ends_before_the_group_is_wide(shard: Shard):
    await shard.publish("group", b"plain", b"more")
    [lease] = await take(shard)
    await send(shard, wide("group"))

    assert await take(shard) == []

    assert bodies(await settle(shard, Settlement.ack(lease), want=5)) == [b"more", b"1"]


async def test_the_latest_width_decides(shard: Shard):
    await fill(shard, 6, width=2)
    leases = await take(shard)
    await send(shard, wide("group", width=4))

    assert len(await settle(shard, Settlement.ack(leases[0]), want=50)) == 3


async def test_scheduled_messages_bring_their_width_with_them(shard: Shard):
    later = EnvelopeOptions(width=3, due="+60000")
    envelopes = (wide("group", b"%d" % n)._replace(options=later) for n in range(4))
    ids = await send(shard, *envelopes)
    let_come(shard, *ids)

    assert bodies(await take(shard)) == [b"0", b"1", b"2"]


async def test_an_expired_message_of_a_wide_group_is_dropped(shard: Shard):
    brief = EnvelopeOptions(width=2, expires_ms=1)
    [old] = await send_expired(shard, wide("group", b"old")._replace(options=brief))
    await send(shard, wide("group", b"new", width=2))

    turned = await shard.transport.turn("worker", [], 5, visibility=60)

    assert bodies(turned.leases) == [b"new"]
    assert [(gone.group, gone.id) for gone in turned.expired] == [("group", old)]


async def test_other_groups_have_their_turns_in_between(shard: Shard):
    await fill(shard, 10, width=8)
    await shard.publish("other", b"other")

    leases = await take(shard, want=3)

    assert b"other" in bodies(leases)[:2]


async def test_a_rate_holds_for_the_wide_group_as_a_whole(shard: Shard):
    await fill(shard, 10, width=8)

    leases = await take(shard, rates=Rates(group=Rate(60_000_000, 3)))

    assert bodies(leases) == [b"0", b"1", b"2"]


async def test_a_worker_with_batches_still_takes_one_message_per_place(shard: Shard):
    await fill(shard, 6, width=2)

    leases = await take(shard, batch=5)

    assert bodies(leases) == [b"0", b"1"]
    assert [lease.rest for lease in leases] == [(), ()]


async def test_setting_the_whole_group_aside_takes_what_waits(shard: Shard):
    await fill(shard, 5, width=2)
    first, second = await take(shard)

    await settle(shard, Settlement.dead_group(first, "why"))
    await settle(shard, Settlement.ack(second), want=5)

    letters = [letter for _, letter in shard.redis.xrange(shard.named("dead"))]
    assert [letter[b"element"][58:] for letter in letters] == [b"0", b"2", b"3", b"4"]
    assert {letter[b"group"] for letter in letters} == {b"group"}


async def test_it_is_explained(shard: Shard):
    await fill(shard, 5, width=2)
    await take(shard)

    told = await explain(shard)

    assert told.state == "leased"
    assert (told.group.width, told.group.in_flight, told.group.depth) == (2, 2, 3)
    assert told.reason == "2 of 2 messages are in flight, 3 wait"


async def test_a_snapshot_shows_started_messages_under_their_groups_name(shard: Shard):
    await fill(shard, 5, width=2)
    first, second = await take(shard)

    snapshot = await shard.transport.perform(calls.inspect(shard.prefix, 20, snapshot_decoder(20)))

    assert [(view.group, view.head_id) for view in snapshot.leased] == [
        ("group", first.id),
        ("group", second.id),
    ]
    assert all(view.is_started for view in snapshot.leased)


async def test_letters_of_a_wide_group_go_back_in_order(shard: Shard):
    await fill(shard, 3, width=3)
    leases = await take(shard)
    await settle(shard, *(Settlement.dead(lease, "why") for lease in leases))

    entries = [entry.decode() for entry, _ in shard.redis.xrange(shard.named("dead"))]
    assert await shard.transport.perform(calls.redrive(shard.prefix, entries)) == 3

    assert bodies(await take(shard)) == [b"0", b"1", b"2"]


# What is in between -------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["expired", "skipped", "cancelled", "buried"])
async def test_a_group_whose_last_messages_are_never_started_leaves_nothing(shard: Shard, way: str):
    if way == "expired":
        brief = EnvelopeOptions(width=2, expires_ms=1)
        await send_expired(shard, wide("group")._replace(options=brief))
        assert await take(shard) == []
    elif way == "skipped":
        [identifier] = await fill(shard, 1)
        await shard.transport.perform(calls.skip(shard.prefix, "group", identifier))
    elif way == "cancelled":
        options = EnvelopeOptions(width=2, hold=True, due="+60000")
        [identifier] = await send(shard, wide("group")._replace(options=options))
        assert await cancel(shard, identifier) == "ok"
    else:
        await fill(shard, 3, width=1 + 1)
        first, second = await take(shard)
        await settle(shard, Settlement.ack(second), Settlement.dead_group(first, "why"), want=1)

    assert left_behind(shard) <= {"dead"}
    audit(shard)


async def test_what_is_known_of_a_head_goes_with_it_when_its_group_becomes_wide(shard: Shard):
    await shard.publish("group", b"tried")
    [lease] = await take(shard)
    await settle(shard, Settlement.retry(lease, 0, "boom"))
    await take(shard)
    shard.let_lease_run_out("group")
    await fill(shard, 1)

    again, new = await take(shard)

    assert (again.deliveries, again.failures, again.crashes) == (3, 1, 1)
    assert (new.deliveries, new.failures) == (1, 0)
    await settle(shard, Settlement.ack(again), Settlement.ack(new))
    assert left_behind(shard) == set()


async def test_a_tier_holds_as_long_as_anything_is_started(shard: Shard):
    await fill(shard, 1)
    [lease] = await take(shard)
    assert (await shard.transport.perform(calls.set_tier(shard.prefix, "group", 4))).is_known

    await send(shard, wide("group")._replace(tier=1))

    assert [lease.priority for lease in await take(shard)] == [4]
    assert (await explain(shard)).group.tier == 4
    await settle(shard, Settlement.ack(lease))
    audit(shard)


async def test_a_greater_width_is_used_at_once(shard: Shard):
    await fill(shard, 4, width=2)
    first, _ = await take(shard)
    assert await take(shard) == []
    await settle(shard, Settlement.retry(first, 0, "boom"), want=1)
    shard.redis.delete(shard.named("wake"))

    await send(shard, wide("group", b"4", width=4))

    assert shard.redis.llen(shard.named("wake")) == 1
    assert len(await take(shard)) == 2
    audit(shard)


async def test_a_greater_width_gives_its_places_to_those_that_were_started_before(shard: Shard):
    await fill(shard, 6, width=3)
    leases = await take(shard)
    await settle(shard, *(Settlement.retry(lease, 60, "boom") for lease in leases))
    await send(shard, wide("group", b"6", width=2))
    assert bodies(await take(shard)) == [b"3", b"4"]
    for lease in leases:
        shard.redis.zadd(shard.keys.ready(0), {lease.key: 1})
    assert await take(shard) == []

    await send(shard, wide("group", b"7", width=4))

    assert sorted(bodies(await take(shard))) == [b"0", b"1"]


async def test_a_smaller_width_lets_what_is_in_flight_end_and_starts_no_more(shard: Shard):
    await fill(shard, 6, width=3)
    leases = await take(shard)
    await send(shard, wide("group", b"6", width=1))

    assert await settle(shard, Settlement.ack(leases[0]), want=5) == []
    assert await settle(shard, Settlement.ack(leases[1]), want=5) == []
    assert bodies(await settle(shard, Settlement.ack(leases[2]), want=5)) == [b"3"]


async def test_the_width_one_is_no_width_of_a_group_that_is_not_wide(shard: Shard):
    await send(shard, wide("group", width=1))

    [lease] = await take(shard)

    assert lease.place == ""
    assert not shard.redis.exists(shard.named("wide"), shard.named("paused"))


async def test_letters_make_no_group_wide_that_has_messages(shard: Shard):
    await fill(shard, 2, width=2)
    await settle(shard, *(Settlement.dead(lease, "why") for lease in await take(shard)))
    entries = [entry.decode() for entry, _ in shard.redis.xrange(shard.named("dead"))]
    await shard.publish("group", b"strict")

    await shard.transport.perform(calls.redrive(shard.prefix, entries))

    assert [lease.place for lease in await take(shard)] == [""]


async def test_letters_do_not_change_a_width(shard: Shard):
    await fill(shard, 1, width=2)
    await settle(shard, *(Settlement.dead(lease, "why") for lease in await take(shard)))
    [(entry, _)] = shard.redis.xrange(shard.named("dead"))
    await fill(shard, 1, width=5)
    await take(shard)

    await shard.transport.perform(calls.redrive(shard.prefix, [entry.decode()]))

    assert shard.redis.hget(shard.named("wide"), "group") == b"5"


async def test_a_group_is_wide_again_whichever_of_its_letters_says_so(shard: Shard):
    await fill(shard, 1, width=2)
    await settle(shard, *(Settlement.dead(lease, "why") for lease in await take(shard)))
    await shard.publish("group")
    await settle(shard, *(Settlement.dead(lease, "why") for lease in await take(shard)))
    entries = [entry.decode() for entry, _ in shard.redis.xrange(shard.named("dead"))]

    await shard.transport.perform(calls.redrive(shard.prefix, entries))

    assert len(await take(shard)) == 2


async def test_what_comes_due_during_a_pause_has_its_places_at_once_when_it_ends(shard: Shard):
    await fill(shard, 3, width=2)
    first, second = await take(shard)
    await shard.transport.perform(calls.pause(shard.prefix, "group", "why"))
    await settle(shard, Settlement.retry(first, 0, "boom"), Settlement.retry(second, 0, "boom"))
    for _ in range(3):
        assert await take(shard) == []

    await shard.transport.perform(calls.resume(shard.prefix, "group"))

    assert sorted(bodies(await take(shard))) == [b"0", b"1"]
    audit(shard)


async def test_a_silent_workers_message_gives_its_place_up_while_its_group_is_paused(shard: Shard):
    await fill(shard, 1, width=2)
    await take(shard)
    let_all_run_out(shard)
    await shard.transport.perform(calls.pause(shard.prefix, "group", "why"))

    assert await take(shard) == []

    assert in_flight(shard) == 0


async def test_resuming_a_group_does_not_end_the_lease_it_had_before_it_was_wide(shard: Shard):
    await shard.publish("group", b"plain", b"more")
    [lease] = await take(shard)
    await fill(shard, 1)
    await shard.transport.perform(calls.pause(shard.prefix, "group", "why"))

    await shard.transport.perform(calls.resume(shard.prefix, "group"))
    await send(shard, wide("group", width=5))

    audit(shard)
    assert await take(shard) == []
    assert len(await settle(shard, Settlement.ack(lease), want=5)) == 3


async def take_many(shard: Shard, count: int) -> list[Lease]:
    """Take so many leases, of which a turn gives a few."""
    leases: list[Lease] = []
    while len(leases) < count:
        leases += await take(shard, count - len(leases))
    return leases


async def test_what_is_halted_is_resumed_however_many_messages_are_parked(sync_shard: Shard):
    shard = sync_shard
    await fill(shard, 1001, width=350)
    for _ in range(4):
        leases = await take_many(shard, 250)
        await settle(shard, *(Settlement.retry(lease, 600, "boom") for lease in leases))
    [last] = await take(shard)
    await settle(shard, Settlement.halt(last, "why", "boom"))

    assert await shard.transport.perform(calls.resume(shard.prefix, "group"))

    assert [lease.id for lease in await take(shard)] == [last.id]


async def test_the_leases_of_a_thousand_places_are_ended_at_once(sync_shard: Shard):
    shard = sync_shard
    await fill(shard, 1000, width=1000)
    for _ in range(4):
        await take_many(shard, 250)

    assert await shard.transport.perform(calls.release(shard.prefix, "group"))

    assert in_flight(shard) == 0
    audit(shard)


async def test_skipping_a_started_message_wakes_somebody_for_the_next(shard: Shard):
    await fill(shard, 2, width=2)
    first, _ = await take(shard)
    await fill(shard, 1, width=1)
    await settle(shard, Settlement.halt(first, "why", "boom"))
    shard.redis.delete(shard.named("wake"))

    await shard.transport.perform(calls.skip(shard.prefix, "group", first.id))

    assert shard.redis.llen(shard.named("wake")) == 1


@pytest.mark.parametrize("kind", ["none", "foreign"])
async def test_a_list_lost_by_hand_keeps_no_worker_spinning(shard: Shard, kind: str):
    await fill(shard, 2)
    shard.redis.delete(shard.keys.fifo("group"))
    if kind == "foreign":
        shard.redis.set(shard.keys.fifo("group"), "foreign")

    turned = await shard.transport.turn("worker", [], 5, visibility=60)

    assert turned.leases == []
    assert turned.wait_ms != 0
    assert shard.redis.exists(shard.named("wide")) == (kind == "foreign")


@pytest.mark.parametrize("way", ["publish", "schedule", "redrive"])
async def test_widths_of_another_type_leave_nothing_half_done(shard: Shard, way: str):
    await fill(shard, 1)
    await settle(shard, *(Settlement.dead(lease, "why") for lease in await take(shard)))
    [(entry, _)] = shard.redis.xrange(shard.named("dead"))
    [later] = await send(
        shard, wide("later")._replace(options=EnvelopeOptions(width=2, due="+60000"))
    )
    let_come(shard, later)
    shard.redis.set(shard.named("wide"), "foreign")
    before = shard.dump()

    if way == "schedule":
        assert await take(shard) == []
        assert shard.depth("later") == 0
        assert shard.redis.hexists(shard.named("scheduled:data"), later)
        return
    call = (
        calls.redrive(shard.prefix, [entry.decode()])
        if way == "redrive"
        else calls.publish(shard.prefix, [wide("group")], publisher="p", sequence=1)
    )
    with pytest.raises(WrongKeyType, match="wide"):
        await shard.transport.perform(call)
    assert shard.dump() == before


async def test_peeking_shows_what_is_started_before_what_waits(shard: Shard):
    ids = await fill(shard, 5, width=2)
    await take(shard)

    async def peek(start: int, limit: int) -> tuple[int, list[str]]:
        decode = peeked_decoder(JSONCodec())
        found = await shard.transport.perform(
            calls.peek(shard.prefix, "group", start, limit, decode)
        )
        return found.depth, [message.id for message in found.messages]

    assert await peek(0, 20) == (5, ids)
    assert await peek(1, 2) == (5, ids[1:3])
    assert await peek(3, 5) == (5, ids[3:])


async def test_a_group_all_of_whose_messages_are_started_is_explained(shard: Shard):
    await fill(shard, 4, width=4)
    parked, halted, flying, _ = await take(shard)
    await settle(
        shard, Settlement.retry(parked, 60, "boom"), Settlement.halt(halted, "why", "boom")
    )

    told = await explain(shard)

    assert told.state == "leased"
    assert told.reason == (
        "2 of 4 messages are in flight, 0 wait; 1 wait for another attempt or a place;"
        " 1 were given up: resume the group or skip them"
    )
    assert (told.group.started, told.group.halted, told.group.depth) == (4, 1, 0)
    assert flying.group == "group"


async def test_many_take_from_it_at_once_and_never_more_than_its_width(shard: Shard):
    await fill(shard, 60, width=4)
    await shard.transport.publish_envelopes([envelope(f"other-{n}") for n in range(20)])
    flying: dict[str, Lease] = {}
    handled: list[bytes] = []

    for step in range(200):
        turned = await shard.transport.turn(
            f"worker-{step % 3}",
            [Settlement.ack(lease) for lease in list(flying.values())[: step % 5]],
            step % 4,
            visibility=60,
        )
        for identifier in list(flying)[: step % 5]:
            handled.append(flying.pop(identifier).payload)
        flying |= {lease.id: lease for lease in turned.leases}
        assert sum(lease.group == "group" for lease in flying.values()) <= 4
        if not flying and turned.wait_ms == -1:
            break

    assert len(handled) == 80
    assert left_behind(shard) == set()


# What somebody has put among it --------------------------------------------------------------


@pytest.mark.parametrize("junk", [b"", b"junk", b"x" * 31, b"\xff"])
async def test_what_is_no_message_takes_a_place_and_gives_it_away(shard: Shard, junk: bytes):
    await fill(shard, 4, width=2)
    shard.redis.lset(shard.keys.fifo("group"), 0, junk)
    shard.redis.lset(shard.keys.fifo("group"), 1, junk)

    handled = []
    while leases := await take(shard):
        assert len(leases) <= 2
        handled += [lease.payload for lease in leases]
        await settle(shard, *(Settlement.dead(lease, "corrupt") for lease in leases))

    assert sorted(handled) == sorted([junk, junk, b"2", b"3"])
    assert left_behind(shard) == {"dead"}
    assert shard.redis.xlen(shard.named("dead")) == 4
    assert {letter[b"group"] for _, letter in shard.redis.xrange(shard.named("dead"))} == {b"group"}


async def test_what_is_no_message_can_be_skipped_once_it_is_started(shard: Shard):
    await fill(shard, 2, width=2)
    shard.redis.lset(shard.keys.fifo("group"), 0, b"junk")
    for lease in await take(shard):
        await settle(shard, Settlement.halt(lease, "why", "boom"))

    word = await shard.transport.perform(calls.skip(shard.prefix, "group", "junk"))

    assert word == "ok"
    assert shard.redis.zcard(shard.named("places:group")) == 1


@pytest.mark.parametrize("way", ["purge", "release", "set_tier", "resume"])
async def test_what_is_done_to_a_wide_group_is_done_to_none_that_is_put_among_its_places(
    shard: Shard, way: str
):
    await shard.publish("other", b"1", b"2")
    [other] = await take(shard)
    await fill(shard, 3)
    await shard.transport.perform(calls.pause(shard.prefix, "other", "why"))
    shard.redis.zadd(shard.named("places:group"), {"other": 3 if way == "resume" else 1})
    place = shard.place("other")

    await shard.transport.perform(
        {
            "purge": calls.purge(shard.prefix, ["group"]),
            "release": calls.release(shard.prefix, "group"),
            "set_tier": calls.set_tier(shard.prefix, "group", 3),
            "resume": calls.resume(shard.prefix, "group"),
        }[way]
    )

    assert shard.place("other") == place
    assert shard.redis.hexists(shard.named("paused"), "other")
    assert await shard.transport.ack(other) == 1
    if way == "purge":
        assert not shard.redis.exists(shard.named("wide"), shard.named("places:group"))


async def test_a_started_message_whose_list_is_taken_by_another_type_is_not_lost(shard: Shard):
    [identifier] = await fill(shard, 1)
    key = b"%s\xff%s" % (shard.keys.fifo("group").encode(), identifier.encode())
    shard.redis.sadd(key, "foreign")

    assert await take(shard) == []
    assert shard.depth("group") == 1

    shard.redis.delete(key)
    shard.make_due("group", 0)
    assert [lease.id for lease in await take(shard)] == [identifier]


async def test_of_a_started_list_of_another_type_peek_tells_which_it_is(shard: Shard):
    [identifier] = await fill(shard, 1)
    await take(shard)
    key = b"%s\xff%s" % (shard.keys.fifo("group").encode(), identifier.encode())
    shard.redis.delete(key)
    shard.redis.sadd(key, "foreign")

    with pytest.raises(WrongKeyType, match=identifier):
        await shard.transport.perform(calls.peek(shard.prefix, "group", 0, 20, len))


@pytest.mark.parametrize("way", ["ack", "dead_group", "release"])
async def test_a_list_of_another_type_stops_no_settlement_half_way_while_a_message_is_held(
    shard: Shard, way: str
):
    await fill(shard, 3, width=2)
    await send(shard, held("held"))
    leases = await take(shard)
    shard.redis.delete(shard.keys.fifo("group"))
    shard.redis.sadd(shard.keys.fifo("group"), "foreign")

    if way == "release":
        assert await shard.transport.perform(calls.release(shard.prefix, "group"))
    elif way == "ack":
        await settle(shard, *map(Settlement.ack, leases))
    else:
        await settle(shard, *(Settlement.dead_group(lease, "why") for lease in leases))

    assert shard.redis.keys(shard.keys.lock("*")) == []
    assert stat(shard, {"ack": "acked", "dead_group": "dead"}.get(way, "released")) == 2
