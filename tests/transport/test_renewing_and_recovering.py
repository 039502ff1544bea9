"""Can a worker keep its leases, learn which are lost, and hand back what it never heard of?"""

from __future__ import annotations

import pytest

from groupqueue.core.calls import Settlement
from groupqueue.exceptions import InvalidArgument
from tests.transport.shards import Shard


async def test_renew_extends_lock_and_score_together(shard: Shard):
    await shard.publish("group", priority=2)
    lease = await shard.transport.claim("worker", 5)
    before = shard.now_ms()

    assert await shard.transport.renew([lease], 120) == []

    tier, score = shard.place("group")
    assert tier == 2
    assert before + 120_000 - 1 <= score <= shard.now_ms() + 120_000
    assert abs(shard.expiry(shard.keys.lock("group")) - score) <= shard.same_moment_ms
    assert await shard.transport.ack(lease) == 0


async def test_renew_names_the_leases_that_are_lost(shard: Shard):
    await shard.publish_many([(group, b"1", 0) for group in "abcd"])
    leases = await shard.claim_all()
    shard.let_lease_run_out("b")
    shard.let_lease_run_out("d")
    [taken] = (await shard.transport.turn("other", [], 1, visibility=60)).leases

    lost = await shard.transport.renew(leases, 120)

    assert [lease.group for lease in lost] == ["b", "d"]
    assert taken.group == "b"
    assert await shard.transport.renew([taken], 120) == []


async def test_failure_02_renewing_with_an_older_token_changes_no_key(shard: Shard):
    await shard.publish("group")
    stale = await shard.transport.claim("slow", 30)
    shard.let_lease_run_out("group")
    await shard.transport.claim("worker", 30)
    before = shard.dump()

    assert await shard.transport.renew([stale], 300) == [stale]
    assert shard.dump() == before


async def test_renewing_what_ran_out_does_not_bring_it_back(shard: Shard):
    await shard.publish("group")
    lease = await shard.transport.claim("worker", 30)
    shard.let_lease_run_out("group")
    before = shard.dump()

    assert await shard.transport.renew([lease], 300) == [lease]
    assert shard.dump() == before


async def test_renewing_more_leases_than_a_call_takes_is_cut_into_calls(shard: Shard):
    await shard.publish_many([(f"group-{number}", b"1", 0) for number in range(450)])
    first = await shard.transport.turn("worker", [], 400, visibility=5)
    second = await shard.transport.turn("worker", [], 50, visibility=5)
    soon = shard.now_ms() + 60_000

    assert await shard.transport.renew([*first.leases, *second.leases], 120) == []

    scores = shard.redis.zrange(shard.keys.ready(0), 0, -1, withscores=True)
    assert len(scores) == 450
    assert all(score > soon for _, score in scores)


async def test_renewing_nothing_is_nothing(shard: Shard):
    assert await shard.transport.renew([], 30) == []
    assert shard.names() == set()


@pytest.mark.parametrize("visibility", [0, -5, float("nan"), "30", None])
async def test_renewing_for_what_is_no_length_of_time_is_refused(shard: Shard, visibility):
    await shard.publish("group")
    lease = await shard.transport.claim("worker", 30)
    before = shard.dump()

    with pytest.raises(InvalidArgument, match="visibility"):
        await shard.transport.renew([lease], visibility)

    assert shard.dump() == before


async def test_recover_releases_only_this_workers_leases_of_later_tokens(shard: Shard):
    await shard.publish_many([(group, b"1", 0) for group in "abcd"])
    a = await shard.transport.claim("worker", 30)
    b = await shard.transport.claim("worker", 30)
    c = await shard.transport.claim("other", 30)
    d = await shard.transport.claim("worker", 30)

    assert await shard.transport.recover("worker", b.token) == 1

    assert await shard.transport.renew([a, b, c, d], 30) == [d]
    again = await shard.transport.claim("other", 30)
    assert (again.group, again.deliveries, again.crashes) == ("d", 1, 0)


async def test_recovered_deliveries_do_not_count_but_earlier_ones_do(shard: Shard):
    await shard.publish("group")
    await shard.transport.nack(await shard.transport.claim("worker", 30), error="boom")
    await shard.transport.claim("worker", 30)

    assert await shard.transport.recover("worker", 0) == 1

    lease = await shard.transport.claim("worker", 30)
    assert (lease.deliveries, lease.failures, lease.crashes) == (2, 1, 0)


async def test_recovering_twice_releases_nothing_more(shard: Shard):
    await shard.publish("group", b"1", b"2")
    await shard.transport.claim("worker", 30)
    assert await shard.transport.recover("worker", 0) == 1
    before = shard.dump()

    assert await shard.transport.recover("worker", 0) == 0
    assert shard.dump() == before


async def test_recover_finds_nothing_where_nothing_is(shard: Shard):
    assert await shard.transport.recover("worker", 0) == 0
    assert shard.names() == set()


async def test_recover_leaves_leases_that_ran_out_to_their_crash(shard: Shard):
    await shard.publish("group")
    await shard.transport.claim("worker", 30)
    shard.let_lease_run_out("group")

    assert await shard.transport.recover("worker", 0) == 0

    assert (await shard.transport.claim("other", 30)).crashes == 1


async def test_recover_wakes_somebody_for_what_it_released(shard: Shard):
    await shard.publish("group")
    await shard.transport.claim("worker", 30)
    shard.redis.delete(shard.named("wake"))

    await shard.transport.recover("worker", 0)

    assert await shard.transport.wait_for_hint(5) is True


@pytest.mark.parametrize("count", [450, 700])
async def test_recover_releases_more_than_a_turns_worth_of_leases(shard: Shard, count):
    await shard.publish_many([(f"group-{number}", b"1", number % 5) for number in range(count)])
    await shard.transport.turn("worker", [], 400, visibility=600)
    await shard.transport.turn("worker", [], 400, visibility=600)
    assert shard.redis.hlen(shard.named("holders")) == count

    assert await shard.transport.recover("worker", 0) == count

    assert not shard.redis.exists(shard.named("holders"), shard.named("attempts"))
    assert len((await shard.transport.turn("other", [], 400, visibility=600)).leases) == 400


async def test_recover_finds_few_leases_among_many_of_others(shard: Shard):
    await shard.publish_many([(f"group-{number}", b"1", 0) for number in range(1500)])
    for number in range(4):
        await shard.transport.turn(f"other-{number}", [], 370, visibility=600)
    turned = await shard.transport.turn("worker", [], 20, visibility=600)

    assert await shard.transport.recover("worker", 0) == 20

    assert len(await shard.transport.renew(turned.leases, 30)) == 20
    assert shard.redis.hlen(shard.named("holders")) == 1480


async def test_a_lease_that_is_settled_is_not_recovered(shard: Shard):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)
    await shard.transport.settle(Settlement.retry(lease, 60))

    assert await shard.transport.recover("worker", 0) == 0
    assert shard.place("group")[1] > shard.now_ms() + 50_000


# Turns that come late ------------------------------------------------------------------------


async def test_a_turn_that_its_worker_has_given_up_claims_nothing(shard: Shard):
    await shard.publish("group")
    await shard.transport.recover("worker", 0, 3)

    for number in (1, 3):
        turned = await shard.transport.turn("worker", [], 1, visibility=30, number=number)
        assert turned.leases == []
    [lease] = (await shard.transport.turn("worker", [], 1, visibility=30, number=4)).leases

    assert lease.deliveries == 1


async def test_a_given_up_turn_still_settles_what_it_carries(shard: Shard):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)
    await shard.transport.recover("worker", lease.token, 1)

    acks = [Settlement.ack(lease)]
    turned = await shard.transport.turn("worker", acks, 1, visibility=30, number=1)

    assert [settled.word for settled in turned.settled] == ["ok"]
    assert turned.leases == []


async def test_giving_up_a_turn_concerns_no_other_worker(shard: Shard):
    await shard.publish("group")
    await shard.transport.recover("worker", 0, 3)

    turned = await shard.transport.turn("other", [], 1, visibility=30, number=1)

    assert [lease.group for lease in turned.leases] == ["group"]


async def test_what_is_noted_of_given_up_turns_ends_by_itself(shard: Shard):
    await shard.transport.recover("worker", 0, 3)

    assert 0 < shard.redis.pttl(shard.named("turn:worker")) <= 600_000


async def test_a_note_of_given_up_turns_that_is_no_number_gives_none_up(shard: Shard):
    await shard.publish("group")
    shard.redis.set(shard.named("turn:worker"), "junk", px=60_000)

    turned = await shard.transport.turn("worker", [], 1, visibility=60, number=1)

    assert [lease.group for lease in turned.leases] == ["group"]
