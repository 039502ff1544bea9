"""Is a group leased to one worker at a time, and found again when the lease runs out?"""

from __future__ import annotations

import asyncio

import pytest

from groupqueue.core.calls import Preference, Settlement, Turned
from groupqueue.exceptions import InvalidArgument, StaleLease
from tests.transport.shards import Shard, envelope, until

CLAIMERS = 20


async def test_an_empty_queue_has_nothing_to_claim(shard: Shard):
    assert await shard.transport.claim("worker", 30) is None
    nothing = Turned([], [], wait_ms=-1, expired=[], buried=[])
    assert await shard.transport.turn("worker", [], 400, visibility=30) == nothing
    assert shard.names() == set()


async def test_failure_12_order_in_a_group_holds_under_twenty_claimers_at_once(shard: Shard):
    groups = [f"group-{number}" for number in range(5)]
    await shard.publish_many([(g, b"%d" % step, 0) for step in range(20) for g in groups])
    handled: dict[str, list[int]] = {group: [] for group in groups}
    running: set[str] = set()
    left = 100

    async def claimer(number: int) -> None:
        nonlocal left
        while left:
            lease = await shard.transport.claim(f"worker-{number}", 60)
            if lease is None:
                await asyncio.sleep(0)
                continue
            assert lease.group not in running
            running.add(lease.group)
            handled[lease.group].append(int(lease.payload))
            await asyncio.sleep(0)
            running.remove(lease.group)
            left -= 1
            await shard.transport.ack(lease)

    await asyncio.gather(*(claimer(number) for number in range(CLAIMERS)))

    assert handled == {group: list(range(20)) for group in groups}


async def test_twenty_claims_at_once_take_twenty_groups(shard: Shard):
    await shard.publish_many([(f"group-{number}", b"1", number % 5) for number in range(30)])

    leases = await asyncio.gather(
        *(shard.transport.claim(f"worker-{number}", 30) for number in range(CLAIMERS))
    )

    assert len({lease.group for lease in leases}) == CLAIMERS
    assert len({lease.token for lease in leases}) == CLAIMERS


async def test_twenty_turns_at_once_share_the_groups_without_overlap(shard: Shard):
    await shard.publish_many([(f"group-{number}", b"1", 0) for number in range(150)])

    turns = await asyncio.gather(
        *(shard.transport.turn(f"w{n}", [], 10, visibility=30) for n in range(CLAIMERS))
    )

    taken = [lease.group for turned in turns for lease in turned.leases]
    assert len(taken) == len(set(taken)) == 150


async def test_a_held_group_is_skipped(shard: Shard):
    await shard.publish("first", b"1", b"2")
    await shard.publish("second", b"1")
    held = await shard.transport.claim("worker", 30)

    lease = await shard.transport.claim("other", 30)

    assert (held.group, lease.group) == ("first", "second")
    assert await shard.transport.claim("other", 30) is None


async def test_a_lease_is_a_lock_whose_end_is_the_groups_score(shard: Shard):
    await shard.publish("group")

    lease = await shard.transport.claim("worker", 30)

    assert shard.redis.get(shard.keys.lock("group")) == str(lease.token).encode()
    _, score = shard.place("group")
    assert abs(shard.expiry(shard.keys.lock("group")) - score) <= shard.same_moment_ms
    assert shard.redis.hgetall(shard.named("holders")) == {b"group": b"worker"}
    assert shard.redis.get(shard.named("fence")) == str(lease.token).encode()
    assert shard.depth("group") == 1


async def test_a_head_is_claimable_again_when_its_lease_has_run_out(shard: Shard):
    await shard.publish("group", b"1", b"2")
    first = await shard.transport.claim("dead", 30)
    shard.let_lease_run_out("group")

    second = await shard.transport.claim("worker", 30)

    assert (second.id, second.payload) == (first.id, b"1")
    assert second.token > first.token
    assert (second.deliveries, second.failures, second.crashes) == (2, 0, 1)


async def test_a_short_lease_runs_out_by_itself_with_no_sweep(shard: Shard):
    await shard.publish("group")
    first = await shard.transport.claim("dead", 0.05)

    second = await until(lambda: shard.transport.claim("worker", 30))

    assert (second.id, second.crashes) == (first.id, 1)
    with pytest.raises(StaleLease):
        await shard.transport.ack(first)


async def test_failure_01_a_dead_workers_other_groups_are_claimable_too(shard: Shard):
    await shard.publish_many([(f"group-{number}", b"1", number % 5) for number in range(10)])
    taken = await shard.transport.turn("dead", [], 10, visibility=30)
    for lease in taken.leases:
        shard.let_lease_run_out(lease.group)

    again = await shard.transport.turn("worker", [], 10, visibility=30)

    assert {lease.group for lease in again.leases} == {lease.group for lease in taken.leases}
    assert {lease.crashes for lease in again.leases} == {1}


async def test_round_robin_a_served_group_goes_behind_those_that_wait(shard: Shard):
    for group in ("a", "b", "c"):
        await shard.publish(group, b"1", b"2", b"3")
    order = []
    while lease := await shard.transport.claim("worker", 30):
        order.append(lease.group)
        await shard.transport.ack(lease)

    assert order == ["a", "b", "c"] * 3


async def test_round_robin_holds_for_turns_that_settle_many_groups(shard: Shard):
    await shard.publish_many([(group, b"1", 0) for _ in range(3) for group in "abcdef"])
    turned = await shard.transport.turn("worker", [], 2, visibility=30)
    order = []
    while turned.leases:
        order += [lease.group for lease in turned.leases]
        finished = [Settlement.ack(lease) for lease in turned.leases]
        turned = await shard.transport.turn("worker", finished, 2, visibility=30)

    assert order == list("abcdef") * 3


async def test_a_stale_empty_group_is_dropped_and_the_next_one_claimed(shard: Shard):
    await shard.publish("emptied")
    await shard.publish("live")
    shard.redis.delete(shard.keys.fifo("emptied"))

    lease = await shard.transport.claim("worker", 30)

    assert lease.group == "live"
    assert shard.places("emptied") == []
    assert not shard.redis.hexists(shard.named("prio"), "emptied")


async def test_a_stale_empty_group_leaves_no_record_behind(shard: Shard):
    await shard.publish("emptied")
    await shard.transport.nack(await shard.transport.claim("worker", 30), error="boom")
    shard.redis.delete(shard.keys.fifo("emptied"))

    assert await shard.transport.claim("worker", 30) is None

    for record in ("prio", "attempts", "failures", "errors", "holders"):
        assert not shard.redis.hexists(shard.named(record), "emptied"), record


async def test_many_stale_empty_groups_do_not_hide_a_live_one(shard: Shard):
    await shard.publish_many([(f"emptied-{number}", b"1", 0) for number in range(20)])
    await shard.publish("live")
    for number in range(20):
        shard.redis.delete(shard.keys.fifo(f"emptied-{number}"))

    # A turn's work is bounded; 0 is its word for "there is more, come again at once".
    turned = await shard.transport.turn("worker", [], 2, visibility=30)
    for _ in range(20):
        if turned.leases or turned.wait_ms != 0:
            break
        turned = await shard.transport.turn("worker", [], 2, visibility=30)

    assert [lease.group for lease in turned.leases] == ["live"]


async def test_a_lock_deleted_by_hand_ends_the_lease_for_its_holder(shard: Shard):
    await shard.publish("group")
    first = await shard.transport.claim("worker", 30)
    shard.redis.delete(shard.keys.lock("group"))

    with pytest.raises(StaleLease):
        await shard.transport.ack(first)

    shard.make_due("group", 0)
    second = await shard.transport.claim("other", 30)
    assert (second.id, await shard.transport.ack(second)) == (first.id, 0)


async def test_a_lock_that_outlives_its_score_is_respected_and_nobody_spins(shard: Shard):
    await shard.publish("group")
    await shard.transport.claim("worker", 30)
    shard.make_due("group", 0)

    turned = await shard.transport.turn("other", [], 1, visibility=30)

    assert turned.leases == []
    lease_ends = shard.expiry(shard.keys.lock("group"))
    assert abs(shard.place("group")[1] - lease_ends) <= shard.same_moment_ms


async def test_a_lock_without_an_end_is_looked_at_again_but_not_at_once(shard: Shard):
    await shard.publish("group")
    shard.redis.set(shard.keys.lock("group"), "by hand")

    assert await shard.transport.claim("worker", 30) is None
    assert shard.place("group")[1] > shard.now_ms()


async def test_claims_and_ready_groups_stay_apart_from_other_shards(shard: Shard):
    elsewhere = shard.prefix.replace(":0}", ":1}")
    await shard.publish("group")
    shard.redis.zadd(f"{elsewhere}:ready:0", {"foreign": 1})
    shard.redis.rpush(f"{elsewhere}:q:foreign", "x" * 58)

    assert [lease.group for lease in await shard.claim_all()] == ["group"]


async def test_a_turn_settles_and_claims_at_once(shard: Shard):
    await shard.publish("a", b"1", b"2")
    await shard.publish("b", b"1")
    await shard.publish("c", b"1")
    first = await shard.transport.turn("worker", [], 2, visibility=30)
    a, b = first.leases

    second = await shard.transport.turn(
        "worker", [Settlement.ack(b), Settlement.ack(a)], 3, visibility=30
    )

    assert [(settled.word, settled.left) for settled in second.settled] == [("ok", 0), ("ok", 1)]
    assert [lease.group for lease in second.leases] == ["c", "a"]
    assert second.leases[1].payload == b"2"


async def test_a_full_turn_settles_and_claims_four_hundred_groups(shard: Shard):
    await shard.publish_many([(f"group-{n % 500}", b"%d" % n, n % 5) for n in range(1000)])
    first = await shard.transport.turn("worker", [], 400, visibility=30)
    finished = [Settlement.ack(lease) for lease in first.leases]

    second = await shard.transport.turn("worker", finished, 400, visibility=30)

    assert set(second.settled) == {("ok", 1)}
    assert len({lease.group for lease in second.leases}) == 400


async def test_claim_takes_one_even_when_much_is_due(shard: Shard):
    await shard.publish_many([(f"group-{number}", b"1", 0) for number in range(10)])

    await shard.transport.claim("worker", 30)

    assert shard.redis.hlen(shard.named("holders")) == 1


@pytest.mark.parametrize(
    "visibility", [0, -1, 0.0001, float("nan"), float("inf"), "30", None, True]
)
async def test_a_visibility_that_is_no_length_of_time_is_refused(shard: Shard, visibility):
    await shard.publish("group")
    before = shard.dump()

    with pytest.raises(InvalidArgument, match="visibility"):
        await shard.transport.claim("worker", visibility)
    with pytest.raises(InvalidArgument, match="visibility"):
        await shard.transport.turn("worker", [], 1, visibility=visibility)

    assert shard.dump() == before


@pytest.mark.parametrize("want", [-1, 401])
async def test_a_turn_that_wants_too_many_groups_is_refused(shard: Shard, want):
    with pytest.raises(InvalidArgument, match=str(want)):
        await shard.transport.turn("worker", [], want, visibility=30)


@pytest.mark.parametrize(
    "preference", [Preference(min_tier=-1), Preference(min_tier=5), Preference(threshold=5)]
)
async def test_a_preference_for_tiers_that_do_not_exist_is_refused(shard: Shard, preference):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)
    before = shard.dump()

    with pytest.raises(InvalidArgument):
        await shard.transport.turn(
            "worker", [Settlement.ack(lease)], 1, visibility=30, preference=preference
        )

    assert shard.dump() == before


# How long until something is due -------------------------------------------------------


async def test_the_wait_is_zero_while_more_is_due(shard: Shard):
    await shard.publish_many([("a", b"1", 0), ("b", b"1", 4), ("c", b"1", 2)])

    turned = await shard.transport.turn("worker", [], 2, visibility=30)

    assert turned.wait_ms == 0


async def test_the_wait_is_minus_one_when_nothing_is_in_sight(shard: Shard):
    await shard.publish("halted")
    lease = await shard.transport.claim("worker", 30)

    turned = await shard.transport.turn(
        "worker", [Settlement.halt(lease, "max_attempts")], 1, visibility=30
    )

    assert turned.wait_ms == -1


async def test_the_wait_ends_when_the_next_parked_group_is_due(shard: Shard):
    await shard.publish_many([("a", b"1", 0), ("b", b"1", 3)])
    a, b = await shard.claim_all()

    turned = await shard.transport.turn(
        "worker", [Settlement.retry(a, 90), Settlement.retry(b, 40)], 1, visibility=30
    )

    assert turned.leases == []
    assert 39_000 < turned.wait_ms <= 40_000


async def test_the_wait_ends_when_the_next_lease_does(shard: Shard):
    await shard.publish_many([("a", b"1", 0), ("b", b"1", 3)])
    await shard.claim_all(visibility=50)

    turned = await shard.transport.turn("other", [], 1, visibility=30)

    assert 49_000 < turned.wait_ms <= 50_001


async def test_the_wait_looks_no_lower_than_the_claims(shard: Shard):
    await shard.publish("low", b"1", priority=1)

    turned = await shard.transport.turn(
        "worker", [], 1, visibility=30, preference=Preference(min_tier=2)
    )

    assert (turned.leases, turned.wait_ms) == ([], -1)


async def test_a_turn_that_only_settles_says_how_long_to_wait(shard: Shard):
    await shard.transport.publish_envelopes([envelope("a"), envelope("b")])
    lease = await shard.transport.claim("worker", 30)

    turned = await shard.transport.turn("worker", [Settlement.ack(lease)], 0, visibility=30)

    assert (turned.leases, turned.wait_ms) == ([], 0)
