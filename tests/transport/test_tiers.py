"""Does a group's tier order it among groups, whatever is published, and starve nobody?"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from groupqueue.core.calls import Preference, Settlement
from groupqueue.exceptions import InvalidArgument
from tests.transport.shards import Shard, envelope


@pytest.mark.parametrize(
    ("priority", "tier"), [(9, 4), (5, 4), (4, 4), (0, 0), (-3, 0), (10**30, 4)]
)
async def test_the_first_publish_fixes_the_tier_clamped(shard: Shard, priority, tier):
    await shard.publish("group", priority=priority)

    assert shard.place("group")[0] == tier
    assert (await shard.transport.claim("worker", 30)).priority == tier


async def test_later_publishes_do_not_change_the_tier(shard: Shard):
    await shard.publish("group", priority=1)
    await shard.publish("group", priority=4)
    lease = await shard.transport.claim("worker", 30)
    await shard.publish("group", priority=3)
    await shard.transport.ack(lease)

    assert shard.place("group")[0] == 1
    assert (await shard.transport.claim("worker", 30)).priority == 1


async def test_within_one_call_a_groups_first_message_fixes_its_tier(shard: Shard):
    await shard.transport.publish_envelopes(
        [envelope("group", tier=2), envelope("group", tier=4), envelope("other", tier=4)]
    )

    assert (shard.place("group")[0], shard.place("other")[0]) == (2, 4)


async def test_failure_13_a_race_on_first_publish_cannot_split_a_group_across_tiers(shard: Shard):
    groups = [f"group-{number}" for number in range(10)]

    await asyncio.gather(
        *(shard.publish(g, priority=number % 5) for number in range(20) for g in groups)
    )

    for group in groups:
        tier, _ = shard.place(group)
        assert shard.redis.hget(shard.named("prio"), group) == str(tier).encode()
        assert shard.depth(group) == 20


async def test_a_drained_groups_tier_is_forgotten_and_a_new_one_accepted(shard: Shard):
    await shard.publish("group", priority=4)
    await shard.transport.ack(await shard.transport.claim("worker", 30))
    assert shard.places("group") == []
    assert not shard.redis.exists(shard.named("prio"))

    await shard.publish("group", priority=1)

    assert shard.place("group")[0] == 1


async def test_a_group_whose_tier_was_deleted_by_hand_does_not_enter_a_second_one(shard: Shard):
    await shard.publish("group", priority=4)
    shard.redis.hdel(shard.named("prio"), "group")

    await shard.publish("group", priority=0)

    assert shard.place("group")[0] == 4


async def test_a_group_whose_tier_was_deleted_while_leased_stays_where_it_stood(shard: Shard):
    await shard.publish("group", b"1", b"2", priority=4)
    lease = await shard.transport.claim("worker", 30)
    shard.redis.hdel(shard.named("prio"), "group")

    await shard.transport.ack(lease)

    assert shard.place("group")[0] == 4


async def test_an_urgent_group_is_found_behind_a_hundred_thousand_others(real_shard: Shard):
    shard = real_shard
    await shard.publish_many([(f"low-{number}", b"1", number % 2) for number in range(100_000)])
    await shard.publish("urgent", priority=4)

    found = await shard.transport.claim("worker", 30, min_priority=2)
    await shard.transport.nack(found)
    by_priority = await shard.transport.turn(
        "worker", [], 1, visibility=30, preference=Preference(preferred=1)
    )
    by_waiting = await shard.transport.turn("worker", [], 1, visibility=30)

    assert found.group == "urgent"
    assert [lease.group for lease in by_priority.leases] == ["urgent"]
    assert [lease.group for lease in by_waiting.leases] == ["low-0"]


async def test_a_claim_spans_all_tiers_by_waiting(shard: Shard):
    for tier in (1, 4, 0, 3, 2):
        await shard.publish(f"tier-{tier}", priority=tier)

    assert [lease.priority for lease in await shard.claim_all()] == [1, 4, 0, 3, 2]


@pytest.mark.parametrize("min_priority", range(5))
async def test_min_priority_restricts_a_claim_to_the_tiers_from_it_up(shard: Shard, min_priority):
    await shard.publish_many([(f"tier-{tier}", b"1", tier) for tier in (1, 4, 0, 3, 2)])

    claimed = []
    while lease := await shard.transport.claim("worker", 30, min_priority):
        claimed.append(lease.priority)

    assert claimed == [tier for tier in (1, 4, 0, 3, 2) if tier >= min_priority]


@pytest.mark.parametrize("min_priority", [-1, 5, 1.0, "2", None, True])
async def test_a_min_priority_that_is_no_tier_is_refused(shard: Shard, min_priority):
    with pytest.raises(InvalidArgument, match="min_priority"):
        await shard.transport.claim("worker", 30, min_priority)


async def test_by_priority_the_highest_tier_goes_first_and_its_longest_waiting_group(shard: Shard):
    await shard.publish_many(
        [("low", b"1", 0), ("high-1", b"1", 4), ("high-2", b"1", 4), ("middle", b"1", 2)]
    )

    turned = await shard.transport.turn(
        "worker", [], 4, visibility=30, preference=Preference(preferred=4)
    )

    assert [lease.group for lease in turned.leases] == ["high-1", "high-2", "middle", "low"]


async def test_claims_beyond_the_preferred_ones_go_by_waiting(shard: Shard):
    await shard.publish_many(
        [("low", b"1", 0), ("middle", b"1", 2), ("high-1", b"1", 4), ("high-2", b"1", 4)]
    )

    turned = await shard.transport.turn(
        "worker", [], 3, visibility=30, preference=Preference(preferred=1)
    )

    assert [lease.group for lease in turned.leases] == ["high-1", "low", "middle"]


async def test_a_preferred_claim_that_finds_nothing_urgent_falls_back_to_all(shard: Shard):
    await shard.publish_many([("low", b"1", 0), ("middle", b"1", 1)])

    turned = await shard.transport.turn(
        "worker", [], 2, visibility=30, preference=Preference(preferred=2, threshold=3)
    )

    assert [lease.group for lease in turned.leases] == ["low", "middle"]


async def test_above_the_threshold_the_longest_waiting_is_urgent_not_the_highest(shard: Shard):
    await shard.publish_many([("low", b"1", 0), ("three", b"1", 3), ("four", b"1", 4)])

    turned = await shard.transport.turn(
        "worker", [], 2, visibility=30, preference=Preference(preferred=2, threshold=3)
    )

    assert [lease.group for lease in turned.leases] == ["three", "four"]


async def test_a_threshold_below_min_tier_does_not_widen_the_claim(shard: Shard):
    await shard.publish_many([("one", b"1", 1), ("three", b"1", 3)])

    turned = await shard.transport.turn(
        "worker",
        [],
        2,
        visibility=30,
        preference=Preference(min_tier=2, preferred=2, threshold=1),
    )

    assert [lease.group for lease in turned.leases] == ["three"]


# Shares over ten thousand claims, every tier with more to do than it gets ------------------

WANT = 20
TURNS = 500


async def _shares(shard: Shard, preference: Preference) -> Counter[int]:
    """Claim 10,000 heads, each acked with the next turn; return how many went to each tier."""
    await shard.publish_many(
        [(f"{tier}:{n % 40}", b"1", tier) for n in range(10_400) for tier in (0, 4)]
        + [(f"{tier}:{n % 40}", b"1", tier) for n in range(5000) for tier in (1, 2, 3)]
    )
    finished: list[Settlement] = []
    shares: Counter[int] = Counter()
    for _ in range(TURNS):
        turned = await shard.transport.turn(
            "worker", finished, WANT, visibility=60, preference=preference
        )
        assert len(turned.leases) == WANT
        shares.update(lease.priority for lease in turned.leases)
        finished = [Settlement.ack(lease) for lease in turned.leases]
    assert shares.total() == 10_000
    return shares


async def test_failure_15_the_priority_share_holds_over_ten_thousand_claims_and_no_tier_starves(
    real_shard: Shard,
):
    shares = await _shares(real_shard, Preference(preferred=WANT * 8 // 10))

    # Four fifths by priority; of the fifth by waiting each tier gets some.
    assert shares[4] >= 8000
    assert sum(shares[tier] for tier in range(4)) > 1000
    assert all(shares[tier] > 200 for tier in range(4)), shares


async def test_a_share_of_zero_treats_all_groups_equally(real_shard: Shard):
    shares = await _shares(real_shard, Preference(preferred=0))

    assert all(shares[tier] == 2000 for tier in range(5)), shares


async def test_a_share_of_one_is_strict(real_shard: Shard):
    shares = await _shares(real_shard, Preference(preferred=WANT))

    assert shares[4] == 10_000


async def test_the_high_ratio_holds_over_ten_thousand_claims_and_no_tier_starves(
    real_shard: Shard,
):
    shares = await _shares(real_shard, Preference(preferred=WANT // 2, threshold=3))

    # Half of the claims are for the tiers 3 and 4 alone, equally; the rest is for all.
    assert shares[3] + shares[4] >= 5000
    assert abs(shares[3] - shares[4]) < 500
    assert all(shares[tier] > 500 for tier in range(3)), shares
