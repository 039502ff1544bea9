"""Does every way of ending a delivery do what it says, once, and only for the lease's holder?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Preference, Settled, Settlement
from groupqueue.core.messages import Lease
from groupqueue.exceptions import InvalidArgument, StaleLease
from tests.transport.shards import Shard
from tests.transport.test_auditing import found

Ending = Callable[[Shard, Lease], Awaitable[object]]

ENDINGS: dict[str, Ending] = {
    "ack": lambda shard, lease: shard.transport.ack(lease),
    "nack": lambda shard, lease: shard.transport.nack(lease, 5),
    "settle ack": lambda shard, lease: shard.transport.settle(Settlement.ack(lease)),
    "settle retry": lambda shard, lease: shard.transport.settle(Settlement.retry(lease, 0)),
    "settle release": lambda shard, lease: shard.transport.settle(Settlement.release(lease)),
    "settle dead": lambda shard, lease: shard.transport.settle(Settlement.dead(lease, "why")),
    "settle halt": lambda shard, lease: shard.transport.settle(Settlement.halt(lease, "why")),
}
endings = pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS)


@endings
async def test_failure_02_an_older_token_settles_nothing_and_changes_no_key(
    shard: Shard, end: Ending
):
    await shard.publish("group", b"1", b"2")
    stale = await shard.transport.claim("slow", 30)
    shard.let_lease_run_out("group")
    holder = await shard.transport.claim("worker", 30)
    before = shard.dump()

    with pytest.raises(StaleLease) as refusal:
        await end(shard, stale)

    assert shard.dump() == before
    assert (refusal.value.lease, refusal.value.word) == (stale, "stale")
    assert await shard.transport.ack(holder) == 1


@endings
async def test_a_lease_that_ran_out_settles_nothing_though_nobody_took_it(
    shard: Shard, end: Ending
):
    await shard.publish("group", b"1", b"2")
    stale = await shard.transport.claim("slow", 30)
    shard.redis.delete(shard.keys.lock("group"))
    before = shard.dump()

    with pytest.raises(StaleLease):
        await end(shard, stale)

    assert shard.dump() == before


@endings
async def test_a_settlement_that_names_another_message_than_the_head_changes_nothing(
    shard: Shard, end: Ending
):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)
    shard.redis.lpop(shard.keys.fifo("group"))
    before = shard.dump()

    with pytest.raises(StaleLease) as refusal:
        await end(shard, lease)

    assert shard.dump() == before
    assert refusal.value.word == "moved"


@endings
async def test_a_settlement_of_a_group_emptied_by_hand_changes_nothing(shard: Shard, end: Ending):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)
    shard.redis.delete(shard.keys.fifo("group"))
    before = shard.dump()

    with pytest.raises(StaleLease):
        await end(shard, lease)

    assert shard.dump() == before


# Ways in which a lease ends without a settlement.
OTHER_ENDINGS: dict[str, Ending] = {
    "settle dead group": lambda shard, lease: shard.transport.settle(
        Settlement.dead_group(lease, "why")
    ),
    "recover": lambda shard, lease: shard.transport.recover("worker", 0),
    "release": lambda shard, lease: shard.transport.perform(calls.release(shard.prefix, "group")),
    "purge": lambda shard, lease: shard.transport.perform(calls.purge(shard.prefix, ["group"])),
}


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("end", (ENDINGS | OTHER_ENDINGS).values(), ids=[*ENDINGS, *OTHER_ENDINGS])
async def test_failure_03_every_ending_frees_the_lock_and_the_holder(
    shard: Shard, end: Ending, batch: int
):
    await shard.publish("group", b"1", b"2", b"3")
    turned = await shard.transport.turn("worker", [], 1, visibility=30, batch=batch)
    [lease] = turned.leases

    await end(shard, lease)

    assert not shard.redis.exists(
        shard.keys.lock("group"), shard.named("holders"), shard.named("batch:group")
    )
    # And nothing else is left that would keep the group, or anybody, waiting.
    assert await found(shard) == []


@endings
async def test_every_ending_repeated_has_one_effect(shard: Shard, end: Ending):
    await shard.publish("group", b"1", b"2", b"3")
    lease = await shard.transport.claim("worker", 30)
    await end(shard, lease)
    before = shard.dump(without="wake")

    with pytest.raises(StaleLease):
        await end(shard, lease)

    # A turn that finds a group due may pass on a hint, which carries no work.
    assert shard.dump(without="wake") == before


async def test_ack_pops_the_head_and_says_what_is_left(shard: Shard):
    await shard.publish("group", b"1", b"2", b"3")

    assert await shard.transport.ack(await shard.transport.claim("worker", 30)) == 2
    lease = await shard.transport.claim("worker", 30)

    assert lease.payload == b"2"
    assert (lease.deliveries, lease.failures) == (1, 0)


async def test_a_repeated_ack_does_not_pop_the_next_message(shard: Shard):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)
    await shard.transport.ack(lease)
    for _ in range(3):
        with pytest.raises(StaleLease):
            await shard.transport.ack(lease)

    assert (await shard.transport.claim("worker", 30)).payload == b"2"


async def test_an_ack_repeated_while_the_next_message_is_held_leaves_that_alone(shard: Shard):
    await shard.publish("group", b"1", b"2")
    first = await shard.transport.claim("worker", 30)
    await shard.transport.ack(first)
    second = await shard.transport.claim("worker", 30)

    with pytest.raises(StaleLease):
        await shard.transport.ack(first)

    assert await shard.transport.ack(second) == 0


async def test_nack_without_delay_retries_now_at_the_head_of_its_group(shard: Shard):
    await shard.publish("group", b"1", b"2")
    first = await shard.transport.claim("worker", 30)

    assert await shard.transport.nack(first, error="boom") == 2

    second = await shard.transport.claim("worker", 30)
    assert (second.id, second.payload) == (first.id, b"1")
    assert (second.deliveries, second.failures, second.crashes) == (2, 1, 0)


async def test_failure_11_nack_with_a_delay_parks_the_group_by_the_servers_clock(shard: Shard):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)
    before = shard.now_ms()
    await shard.transport.nack(lease, 12.5)
    after = shard.now_ms()

    _, score = shard.place("group")
    assert before + 12_500 - 1 <= score <= after + 12_500
    assert await shard.transport.claim("worker", 30) is None
    shard.make_due("group", 0)
    assert (await shard.transport.claim("worker", 30)).payload == b"1"


async def test_failure_11_a_failed_head_keeps_its_place_through_many_retries(shard: Shard):
    await shard.publish("group", b"1", b"2")
    for attempt in range(1, 6):
        lease = await shard.transport.claim("worker", 30)
        assert (lease.payload, lease.deliveries, lease.failures) == (b"1", attempt, attempt - 1)
        await shard.transport.nack(lease)

    lease = await shard.transport.claim("worker", 30)
    await shard.transport.ack(lease)
    assert (await shard.transport.claim("worker", 30)).payload == b"2"


@pytest.mark.parametrize("delay", [-1, -0.001, float("nan"), float("inf"), "5", None, True])
async def test_a_delay_that_is_no_length_of_time_is_refused(shard: Shard, delay):
    await shard.publish("group")
    lease = await shard.transport.claim("worker", 30)
    before = shard.dump()

    with pytest.raises(InvalidArgument, match="delay"):
        await shard.transport.nack(lease, delay)
    with pytest.raises(InvalidArgument, match="delay"):
        Settlement.retry(lease, delay)

    assert shard.dump() == before


async def test_the_last_error_is_kept_until_the_head_leaves(shard: Shard):
    await shard.publish("group", b"1", b"2")
    await shard.transport.nack(await shard.transport.claim("worker", 30), error="first")
    await shard.transport.nack(await shard.transport.claim("worker", 30), error="ünd \ud800 zwei")
    assert shard.redis.hget(shard.named("errors"), "group").decode() == "ünd ? zwei"

    await shard.transport.ack(await shard.transport.claim("worker", 30))

    assert not shard.redis.exists(
        shard.named("errors"), shard.named("failures"), shard.named("attempts")
    )


async def test_an_endless_error_is_cut(shard: Shard):
    await shard.publish("group")

    await shard.transport.nack(await shard.transport.claim("worker", 30), error="x" * 100_000)

    assert shard.redis.hstrlen(shard.named("errors"), "group") == 1000


async def test_crashes_and_failures_are_counted_apart(shard: Shard):
    await shard.publish("group", b"1", b"2")
    await shard.transport.claim("crashing", 30)
    shard.let_lease_run_out("group")
    await shard.transport.nack(await shard.transport.claim("failing", 30))
    await shard.transport.claim("crashing", 30)
    shard.let_lease_run_out("group")

    lease = await shard.transport.claim("worker", 30)

    assert (lease.deliveries, lease.failures, lease.crashes) == (4, 1, 2)
    await shard.transport.ack(lease)
    following = await shard.transport.claim("worker", 30)
    assert (following.deliveries, following.failures, following.crashes) == (1, 0, 0)


async def test_release_hands_the_head_back_uncounted_and_at_once(shard: Shard):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)

    assert await shard.transport.settle(Settlement.release(lease)) == 2

    again = await shard.transport.claim("worker", 30)
    assert (again.id, again.deliveries, again.failures) == (lease.id, 1, 0)


async def test_release_takes_back_its_own_delivery_and_no_earlier_one(shard: Shard):
    await shard.publish("group")
    await shard.transport.nack(await shard.transport.claim("worker", 30))
    await shard.transport.claim("crashing", 30)
    shard.let_lease_run_out("group")

    await shard.transport.settle(Settlement.release(await shard.transport.claim("worker", 30)))

    lease = await shard.transport.claim("worker", 30)
    assert (lease.deliveries, lease.failures, lease.crashes) == (3, 1, 1)


async def test_dead_sets_the_head_aside_with_all_that_is_known_of_it(shard: Shard):
    await shard.publish("group", b"bad", b"good", priority=3)
    await shard.transport.nack(await shard.transport.claim("worker", 30), error="before")
    lease = await shard.transport.claim("worker", 30)
    [element] = shard.redis.lrange(shard.keys.fifo("group"), 0, 0)

    assert await shard.transport.settle(Settlement.dead(lease, "rejected", "boom: ü")) == 1

    [(_, letter)] = shard.redis.xrange(shard.named("dead"))
    assert letter == {
        b"group": b"group",
        b"tier": b"3",
        b"element": element,
        b"reason": b"rejected",
        b"error": "boom: ü".encode(),
        b"deliveries": b"2",
        b"failures": b"2",
    }
    following = await shard.transport.claim("worker", 30)
    assert (following.payload, following.deliveries, following.failures) == (b"good", 1, 0)


async def test_poison_is_set_aside_with_no_failure_more(shard: Shard):
    await shard.publish("group")
    for _ in range(3):
        await shard.transport.claim("crashing", 30)
        shard.let_lease_run_out("group")
    lease = await shard.transport.claim("worker", 30)

    await shard.transport.settle(Settlement.dead(lease, "poison"))

    [(_, letter)] = shard.redis.xrange(shard.named("dead"))
    assert (letter[b"deliveries"], letter[b"failures"]) == (b"4", b"0")


async def test_a_group_whose_last_message_is_set_aside_is_drained(shard: Shard):
    await shard.publish("group")

    left = await shard.transport.settle(
        Settlement.dead(await shard.transport.claim("worker", 30), "poison")
    )

    assert (left, shard.places("group")) == (0, [])
    assert not shard.redis.exists(shard.named("prio"), shard.named("attempts"))


async def test_halt_holds_the_group_with_its_order_intact(shard: Shard):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)

    assert await shard.transport.settle(Settlement.halt(lease, "max_attempts", "boom")) == 2

    assert shard.place("group") == (0, float("inf"))
    assert await shard.transport.claim("worker", 30) is None
    kind, _, reason = shard.redis.hget(shard.named("paused"), "group").decode().split(" ", 2)
    assert (kind, reason) == ("halted", "max_attempts")
    assert shard.redis.hget(shard.named("errors"), "group") == b"boom"
    assert shard.depth("group") == 2


async def test_settlements_of_one_turn_are_answered_one_by_one(shard: Shard):
    await shard.publish_many([(group, b"1", 0) for group in "abcdef" for _ in range(2)])
    a, b, c, d, e, f = await shard.claim_all()
    shard.let_lease_run_out("f")
    shard.redis.lpop(shard.keys.fifo("e"))

    turned = await shard.transport.turn(
        "worker",
        [
            Settlement.ack(a),
            Settlement.retry(b, 60, "boom"),
            Settlement.release(c),
            Settlement.dead(d, "rejected"),
            Settlement.ack(e),
            Settlement.ack(f),
        ],
        0,
        visibility=30,
    )

    assert turned.settled == [
        Settled("ok", 1),
        Settled("ok", 2),
        Settled("ok", 2),
        Settled("ok", 1),
        Settled("moved", 0),
        Settled("stale", 0),
    ]


async def test_a_group_settles_once_per_call(shard: Shard):
    await shard.publish("group", b"1", b"2", b"3")
    lease = await shard.transport.claim("worker", 30)

    turned = await shard.transport.turn(
        "worker", [Settlement.ack(lease), Settlement.ack(lease)], 0, visibility=30
    )

    assert [settled.word for settled in turned.settled] == ["ok", "stale"]
    assert shard.depth("group") == 2


async def test_settling_keeps_the_urgent_first_within_the_same_turn(shard: Shard):
    await shard.publish("low", b"1")
    await shard.publish("high", b"1", b"2", priority=4)
    low, high = await shard.claim_all()

    turned = await shard.transport.turn(
        "worker",
        [Settlement.release(low), Settlement.ack(high)],
        1,
        visibility=30,
        preference=Preference(preferred=1),
    )

    assert [lease.group for lease in turned.leases] == ["high"]


async def test_the_counters_tell_what_happened(shard: Shard):
    await shard.publish_many([(group, b"1", 0) for group in "abcde"])
    a, b, c, d, e = await shard.claim_all()
    await shard.transport.turn(
        "worker",
        [
            Settlement.ack(a),
            Settlement.retry(b, 60),
            Settlement.release(c),
            Settlement.dead(d, "x"),
            Settlement.halt(e, "x"),
        ],
        0,
        visibility=30,
    )

    counters = {
        name: 5 if name in (b"published", b"delivered") else 1
        for name in (
            b"published",
            b"delivered",
            b"acked",
            b"retried",
            b"released",
            b"dead",
            b"halted",
        )
    }
    stats = shard.redis.hgetall(shard.named("stats"))
    assert {name: int(value) for name, value in stats.items()} == counters
    minutes = [name for name in shard.names() if name.startswith("stats:")]
    assert minutes
    for minute in minutes:
        left_seconds = shard.redis.ttl(shard.named(minute))
        assert 47 * 3600 < left_seconds <= 48 * 3600


async def test_the_backlog_counts_what_every_tier_still_holds(shard: Shard):
    await shard.publish_many([(f"{tier}", b"1", tier) for tier in (0, 0, 0, 4, 4)])
    low, high = await shard.claim_all()
    await shard.transport.ack(low)
    await shard.transport.settle(Settlement.dead(high, "x"))

    assert shard.redis.hgetall(shard.named("backlog")) == {b"0": b"2", b"4": b"1"}


async def test_elements_that_are_no_messages_can_still_be_set_aside(shard: Shard):
    shard.redis.rpush(shard.keys.fifo("edited"), b"", b"short", b"\xff" * 80)
    shard.redis.hset(shard.named("prio"), "edited", 0)
    shard.make_due("edited", 0)

    set_aside = []
    while lease := await shard.transport.claim("worker", 30):
        set_aside.append(lease.payload)
        await shard.transport.settle(Settlement.dead(lease, "corrupt"))

    assert set_aside == [b"", b"short", b"\xff" * 80]
