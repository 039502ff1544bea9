"""Do an operator's scripts do what they say, to groups in every state, and nothing else?

Setting a tier, ending a lease, purging, explaining and peeking; dead letters have a
file of their own.
"""

from __future__ import annotations

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.codec import JSONCodec
from groupqueue.core.messages import Lease
from groupqueue.core.views import Explanation, Peeked, explanation, peeked_decoder
from groupqueue.exceptions import StaleLease
from tests.transport.operated import STATES, bring_into, check
from tests.transport.shards import Shard, until

INFINITY = float("inf")
CODEC = JSONCodec()

in_each_state = pytest.mark.parametrize("state", STATES)


async def set_tier(shard: Shard, tier: int, group: str = "group") -> bool:
    return (await shard.transport.perform(calls.set_tier(shard.prefix, group, tier))).is_known


async def release(shard: Shard, group: str = "group") -> bool:
    return await shard.transport.perform(calls.release(shard.prefix, group))


async def purge(shard: Shard, *groups: str) -> calls.Purged:
    return await shard.transport.perform(calls.purge(shard.prefix, groups or ["group"]))


async def explain(shard: Shard, group: str = "group") -> Explanation:
    return await shard.transport.perform(calls.explain(shard.prefix, group, explanation))


async def peek(shard: Shard, start: int = 0, limit: int = 20, group: str = "group") -> Peeked:
    call = calls.peek(shard.prefix, group, start, limit, peeked_decoder(CODEC))
    return await shard.transport.perform(call)


async def pause(shard: Shard, group: str = "group") -> bool:
    return await shard.transport.perform(calls.pause(shard.prefix, group, "why"))


async def refused(shard: Shard, lease: Lease) -> bool:
    """Say whether nothing that a former holder may send has an effect."""
    before = shard.dump(without="wake")
    for end in (
        Settlement.ack(lease),
        Settlement.retry(lease, 0, "boom"),
        Settlement.release(lease),
        Settlement.dead(lease, "why"),
        Settlement.dead_group(lease, "why"),
        Settlement.halt(lease, "why"),
    ):
        with pytest.raises(StaleLease):
            await shard.transport.settle(end)
    for script in (shard.transport.ack, shard.transport.nack):
        with pytest.raises(StaleLease):
            await script(lease)
    lost = await shard.transport.renew([lease], 300)
    return lost == [lease] and shard.dump(without="wake") == before


# Setting a tier --------------------------------------------------------------------------


@in_each_state
async def test_a_group_changes_its_tier_and_nothing_else(shard: Shard, state: str):
    await shard.publish("other", priority=1)
    await bring_into(shard, state, messages=3, tier=1)
    _, score = shard.place("group")
    lock = shard.redis.get(shard.keys.lock("group"))
    held = shard.redis.hget(shard.named("paused"), "group")

    assert await set_tier(shard, 4) is True

    assert shard.place("group") == (4, score)
    assert shard.redis.get(shard.keys.lock("group")) == lock
    assert shard.redis.hget(shard.named("paused"), "group") == held
    assert shard.depth("group") == 3
    check(shard)


async def test_an_empty_group_has_no_tier_to_set(shard: Shard):
    await pause(shard)
    before = shard.dump()

    assert await set_tier(shard, 4) is False
    assert await set_tier(shard, 4, group="unknown") is False
    assert shard.dump() == before


async def test_setting_the_tier_that_a_group_has_changes_nothing(shard: Shard):
    await shard.publish("group", priority=2)
    before = shard.dump()

    assert await set_tier(shard, 2) is True
    assert shard.dump() == before


async def test_a_new_tier_takes_effect_at_once(shard: Shard):
    await shard.publish("group")
    assert await shard.transport.claim("worker", 30, 3) is None

    await set_tier(shard, 3)

    assert (await shard.transport.claim("worker", 30, 3)).priority == 3


async def test_a_lease_goes_on_in_the_new_tier(shard: Shard):
    await shard.publish("group", b"1", b"2", b"3")
    lease = await shard.transport.claim("worker", 30)

    await set_tier(shard, 2)

    assert await shard.transport.renew([lease], 300) == []
    tier, deadline = shard.place("group")
    assert (tier, deadline) == (2, pytest.approx(shard.expiry(shard.keys.lock("group")), abs=500))
    assert await shard.transport.ack(lease) == 2
    check(shard)
    second = await shard.transport.claim("worker", 30)
    assert (second.payload, second.priority) == (b"2", 2)
    await set_tier(shard, 0)
    await shard.transport.nack(second, 60)
    assert shard.place("group")[0] == 0
    check(shard)


async def test_a_lease_that_runs_out_is_redelivered_in_the_new_tier(shard: Shard):
    await shard.publish("group", b"1", b"2")
    first = await shard.transport.claim("dead", 30)
    await set_tier(shard, 3)
    shard.let_lease_run_out("group")

    again = await shard.transport.claim("worker", 30)

    assert (again.id, again.crashes, again.priority) == (first.id, 1, 3)
    check(shard)


async def test_a_set_tier_outlasts_what_is_published_until_the_group_has_drained(shard: Shard):
    await shard.publish("group", priority=1)
    await set_tier(shard, 4)

    await shard.publish("group", priority=0)
    assert [tier for tier, _ in shard.places("group")] == [4]
    for _ in range(2):
        await shard.transport.ack(await shard.transport.claim("worker", 30))
    await shard.publish("group", priority=1)

    assert [tier for tier, _ in shard.places("group")] == [1]
    check(shard)


async def test_a_dead_letter_and_the_backlog_follow_the_new_tier(shard: Shard):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)
    await set_tier(shard, 4)

    await shard.transport.settle(Settlement.dead(lease, "why"))

    [(_, letter)] = shard.redis.xrange(shard.named("dead"))
    assert letter[b"tier"] == b"4"
    assert shard.redis.hget(shard.named("backlog"), "4") == b"1"
    check(shard)


# Ending a lease --------------------------------------------------------------------------


async def test_a_released_group_is_due_and_the_delivery_did_not_count(shard: Shard):
    await shard.publish("group", b"1", b"2", priority=3)
    first = await shard.transport.claim("worker", 30)

    assert await release(shard) is True

    assert shard.place("group")[1] <= shard.now_ms()
    check(shard)
    again = await shard.transport.claim("other", 30)
    assert (again.id, again.deliveries, again.crashes) == (first.id, 1, 0)
    assert again.token > first.token


async def test_a_release_that_names_a_token_ends_no_other_lease(shard: Shard):
    await shard.publish("group")
    first = await shard.transport.claim("worker", 30)
    await release(shard)
    second = await shard.transport.claim("other", 30)

    async def end(token: int) -> bool:
        return await shard.transport.perform(calls.release(shard.prefix, "group", token))

    assert await end(first.token) is False
    assert (await explain(shard)).group.token == second.token
    assert await end(second.token) is True
    assert (await explain(shard)).state == "due"


async def test_a_release_keeps_the_failures_before_it(shard: Shard):
    await shard.publish("group")
    await shard.transport.nack(await shard.transport.claim("worker", 30), error="boom")
    await shard.transport.claim("worker", 30)

    await release(shard)

    again = await shard.transport.claim("worker", 30)
    assert (again.deliveries, again.failures) == (2, 1)
    assert shard.redis.hget(shard.named("errors"), "group") == b"boom"


async def test_a_former_holder_is_refused_after_a_release(shard: Shard):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)

    await release(shard)

    assert await refused(shard, lease)
    await shard.transport.claim("other", 30)
    assert await refused(shard, lease)
    check(shard)


@pytest.mark.parametrize("state", [state for state in STATES if "leased" not in state])
async def test_what_nobody_holds_cannot_be_released(shard: Shard, state: str):
    await bring_into(shard, state)
    before = shard.dump()

    assert await release(shard) is False
    assert await release(shard, group="unknown") is False
    assert shard.dump() == before


async def test_a_lease_that_ran_out_cannot_be_released(shard: Shard):
    await shard.publish("group")
    await shard.transport.claim("dead", 30)
    shard.let_lease_run_out("group")

    assert await release(shard) is False
    assert (await shard.transport.claim("worker", 30)).crashes == 1


async def test_a_paused_group_stays_paused_when_its_lease_is_ended(shard: Shard):
    await bring_into(shard, "leased, then paused")

    assert await release(shard) is True

    assert shard.place("group") == (0, INFINITY)
    assert await shard.transport.claim("worker", 30) is None
    check(shard)


async def test_a_release_wakes_a_worker(shard: Shard):
    await shard.publish("group")
    await shard.transport.claim("worker", 30)
    shard.redis.delete(shard.named("wake"))

    await release(shard)

    assert await shard.transport.wait_for_hint(0.01) is True


# Purging ---------------------------------------------------------------------------------


@in_each_state
async def test_a_purged_group_leaves_nothing_but_an_operators_pause(shard: Shard, state: str):
    await bring_into(shard, state, messages=3, tier=2)

    assert await purge(shard) == (1, 3)

    kept = {"paused"} if "paused" in state else set()
    left = {name for name in shard.names() if not name.startswith(("publisher:", "stats"))}
    assert left - {"backlog", "fence", "wake"} == kept
    assert shard.redis.hget(shard.named("stats"), "purged") == b"3"
    check(shard)


async def test_purging_what_is_empty_changes_nothing(shard: Shard):
    await pause(shard)
    before = shard.dump()

    assert await purge(shard, "group", "unknown") == (0, 0)
    assert shard.dump() == before


async def test_a_former_holder_is_refused_after_a_purge(shard: Shard):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)

    await purge(shard)

    assert await refused(shard, lease)
    await shard.publish("group", b"3", b"4")
    assert await refused(shard, lease)
    new = await shard.transport.claim("other", 30)
    assert await refused(shard, lease)
    assert (new.payload, new.deliveries) == (b"3", 1)
    assert await shard.transport.ack(new) == 1
    check(shard)


async def test_a_purged_group_begins_anew(shard: Shard):
    await shard.publish("group", priority=4)
    await shard.transport.nack(await shard.transport.claim("worker", 30), error="boom")
    await purge(shard)

    await shard.publish("group", priority=1)

    lease = await shard.transport.claim("worker", 30)
    assert (lease.priority, lease.deliveries, lease.failures) == (1, 1, 0)


async def test_several_groups_are_purged_in_one_call_and_others_are_left_alone(shard: Shard):
    await shard.publish_many([(f"group-{n}", b"1", n % 5) for n in range(10) for _ in range(3)])

    assert await purge(shard, *(f"group-{n}" for n in range(8)), "unknown") == (8, 24)

    assert [shard.depth(f"group-{n}") for n in range(10)] == [0] * 8 + [3] * 2
    check(shard)


async def test_a_group_named_twice_is_counted_once(shard: Shard):
    await shard.publish("group", b"1", b"2")

    assert await purge(shard, "group", "group") == (1, 2)
    check(shard)


async def test_failure_30_a_hundred_thousand_messages_are_unlinked_and_freed_in_the_background(
    real_shard: Shard,
):
    shard = real_shard
    await shard.publish_many([("group", b"x" * 100, 0)] * 100_000)
    await shard.transport.claim("worker", 60)
    shard.redis.config_resetstat()

    assert await purge(shard) == (1, 100_000)

    statistics = shard.redis.info("commandstats")
    assert statistics["cmdstat_unlink"]["calls"] == 1
    check(shard)

    async def is_freed() -> bool:
        return shard.redis.info("memory")["lazyfreed_objects"] >= 1

    await until(is_freed)


# Explaining ------------------------------------------------------------------------------


@in_each_state
async def test_a_group_is_explained_in_its_state(shard: Shard, state: str):
    await bring_into(shard, state, messages=2, tier=3)
    before = shard.dump()

    found = await explain(shard)

    expected = "leased" if "leased" in state else state
    assert (found.state, found.group.state) == (expected, expected)
    assert (found.group.group, found.group.tier, found.group.depth) == ("group", 3, 2)
    assert found.reason
    assert ("paused" in found.reason) == ("paused" in state)
    assert shard.dump() == before


async def test_a_group_without_messages_is_empty_unless_it_is_paused(shard: Shard):
    assert (await explain(shard)).state == "empty"

    await pause(shard)

    found = await explain(shard)
    assert (found.state, found.group.depth) == ("paused", 0)
    assert "will wait" in found.reason


async def test_a_leased_group_tells_who_holds_it_since_when(shard: Shard):
    beat = calls.heartbeat(shard.prefix, "worker", {"host": "a", "pid": 7}, kept_ms=60_000)
    await shard.transport.perform(beat)
    await shard.publish("group")
    before = shard.now_ms()
    lease = await shard.transport.claim("worker", 60)
    after = shard.now_ms()

    found = await explain(shard)

    assert (found.group.holder, found.group.token) == ("worker", lease.token)
    assert found.holder == {"host": "a", "pid": "7"}
    assert found.leased_since is not None
    assert int(before) <= found.leased_since.timestamp() * 1000 <= after
    assert 0 < found.group.lease_left_seconds <= 60
    await shard.transport.ack(lease)
    assert (await explain(shard)).holder == {}


async def test_the_place_in_line_counts_due_groups_alone(shard: Shard):
    for name in ("leased", "parked", "first", "second", "group", "behind"):
        await shard.publish(name)
    await shard.transport.claim("worker", 60)
    await shard.transport.nack(await shard.transport.claim("worker", 60), 3600)
    await shard.publish("above", priority=4)
    await shard.publish("held", priority=4)
    await pause(shard, "held")

    found = await explain(shard)

    assert (found.groups_ahead, found.groups_above) == (2, 1)
    assert (found.state, found.group.wait_seconds >= 0) == ("due", True)
    parked = await explain(shard, "parked")
    assert (parked.groups_ahead, parked.groups_above) == (0, 0)


async def test_explaining_costs_the_same_however_full_the_queue(sync_shard: Shard):
    shard = sync_shard
    await shard.publish_many([(f"group-{n}", b"1", n % 5) for n in range(5000)])
    await shard.publish_many([("group", b"1", 0)] * 5000)

    found = await explain(shard)

    assert (found.groups_ahead, found.groups_above, found.group.depth) == (5000, 4000, 5000)


# Peeking ---------------------------------------------------------------------------------


@in_each_state
async def test_peeking_shows_messages_in_order_and_touches_nothing(shard: Shard, state: str):
    ids = await bring_into(shard, state, messages=4)
    before = shard.dump()

    found = await peek(shard)

    assert found.depth == 4
    assert [message.id for message in found.messages] == ids
    assert shard.dump() == before


async def test_peeking_pages_through_a_group(shard: Shard):
    bodies = [CODEC.encode("topic", number, {"h": 1}) for number in range(10)]
    await shard.publish("group", *bodies)

    pages = [await peek(shard, start, 4) for start in (0, 4, 8, 12)]

    assert [[one.payload for one in page.messages] for page in pages] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
        [],
    ]
    first = pages[0].messages[0]
    assert (first.topic, first.headers, first.size_bytes) == ("topic", {"h": 1}, len(bodies[0]))
    assert {page.depth for page in pages} == {10}


async def test_an_unknown_group_has_nothing_to_show(shard: Shard):
    assert await peek(shard) == (0, ())


@pytest.mark.parametrize("noted", ["", "5", "\n"])
async def test_a_pause_that_tells_nothing_is_lifted_as_any_other(shard: Shard, noted: str):
    await shard.publish("group")
    await pause(shard)
    shard.redis.hset(shard.named("paused"), "group", noted)

    assert await shard.transport.perform(calls.resume(shard.prefix, "group"))

    assert len(await shard.claim_all()) == 1
    assert not await shard.transport.perform(calls.resume(shard.prefix, "group"))


async def test_a_note_of_a_lease_of_none_lets_no_letter_before_the_leased_head(shard: Shard):
    ids = await shard.publish("group", b"1", b"2")
    await shard.transport.perform(calls.skip(shard.prefix, "group", ids[0]))
    lease = await shard.transport.claim("worker", 60)
    shard.redis.set(shard.named("batch:group"), f"0 {lease.token}", px=60_000)
    [(entry, _)] = shard.redis.xrange(shard.named("dead"))

    await shard.transport.perform(calls.redrive(shard.prefix, [entry.decode()]))

    await shard.transport.ack(lease)
