"""Does a snapshot show each group in its true state, at a bounded cost?"""

from __future__ import annotations

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.snapshot import GroupView, Snapshot, snapshot_decoder
from groupqueue.core.views import explanation
from tests.transport.shards import Shard, envelope


async def snapshot(shard: Shard, limit: int = 20) -> Snapshot:
    call = calls.inspect(shard.prefix, limit, snapshot_decoder(limit))
    return await shard.transport.perform(call)


def tier_counts(taken: Snapshot) -> dict[int, tuple[int, int, int, int, int, int]]:
    return {
        view.tier: (
            view.groups,
            view.due,
            view.leased,
            view.parked,
            view.held,
            view.messages,
        )
        for view in taken.tiers
        if view.groups
    }


async def test_an_empty_shard_is_shown_with_all_its_tiers(shard: Shard):
    taken = await snapshot(shard)

    assert [view.tier for view in taken.tiers] == [4, 3, 2, 1, 0]
    assert tier_counts(taken) == {}
    assert (taken.waiting, taken.leased, taken.parked, taken.held, taken.workers) == ((),) * 5
    assert taken.leases_counted_fully


async def test_groups_that_arrived_in_front_have_waited_since_then_and_no_longer(
    sync_shard: Shard,
):
    shard = sync_shard
    for number in range(3):
        call = calls.publish(
            shard.prefix,
            [envelope(f"front-{number}", tier=1), envelope(f"front-{number}", tier=1)],
            publisher="p",
            sequence=number + 1,
            arrival="front",
        )
        await shard.transport.perform(call)
    # The one that has waited longest is not the first by its name.
    head = shard.redis.lindex(shard.keys.fifo("front-2"), 0)
    hour_ago = b"%d" % (shard.now_ms() - 3_600_000)
    shard.redis.lset(shard.keys.fifo("front-2"), 0, head[:32] + hour_ago + head[45:])

    taken = await snapshot(shard, limit=1)

    assert taken.tiers[3].longest_wait_seconds == pytest.approx(3600, abs=60)
    assert taken.waiting[0].wait_seconds < 60
    found = await shard.transport.perform(calls.explain(shard.prefix, "front-2", explanation))
    assert found.group.wait_seconds == pytest.approx(3600, abs=60)


async def test_a_tier_with_groups_in_front_is_as_late_as_its_longest_waiting_one(
    sync_shard: Shard,
):
    shard = sync_shard
    await shard.publish("waiting")
    shard.redis.zadd(shard.keys.ready(0), {"waiting": shard.now_ms() - 7_200_000})
    call = calls.publish(
        shard.prefix, [envelope("front")], publisher="p", sequence=1, arrival="front"
    )
    await shard.transport.perform(call)

    taken = await snapshot(shard)

    assert taken.tiers[4].longest_wait_seconds == pytest.approx(7200, abs=60)
    assert [view.group for view in taken.waiting] == ["waiting", "front"]


async def test_each_group_is_counted_in_the_one_state_that_it_is_in(shard: Shard):
    states = ["leased", "parked", "halted", "crashed", "waiting", "paused"]
    await shard.publish_many([(state, b"%d" % n, 2) for state in states for n in range(2)])
    for state in states[:4]:
        lease = await shard.transport.claim(f"{state}-worker", 60)
        assert lease.group == state
        if state == "parked":
            await shard.transport.nack(lease, 60, error="boom")
        if state == "halted":
            await shard.transport.settle(Settlement.halt(lease, "max_attempts", "bang"))
    shard.let_lease_run_out("crashed")
    await shard.transport.perform(calls.pause(shard.prefix, "paused", "data fix"))

    taken = await snapshot(shard)

    assert tier_counts(taken) == {2: (6, 2, 1, 1, 2, 12)}
    # The longest wait is the crashed group's, which was put back a second.
    assert [view.group for view in taken.waiting] == ["crashed", "waiting"]
    assert {view.state for view in taken.waiting} == {"due"}
    assert taken.waiting[0].wait_seconds > 0.9
    assert taken.tiers[2].longest_wait_seconds > 0.9
    [leased] = taken.leased
    assert (leased.group, leased.state, leased.holder) == ("leased", "leased", "leased-worker")
    assert 0 < leased.lease_left_seconds <= 60
    [parked] = taken.parked
    assert (parked.group, parked.state, parked.last_error) == ("parked", "parked", "boom")
    assert (parked.deliveries, parked.failures, parked.token, parked.depth) == (1, 1, None, 2)
    held = {view.group: view for view in taken.held}
    assert (held["halted"].state, held["halted"].held_reason) == ("halted", "max_attempts")
    assert held["halted"].last_error == "bang"
    assert (held["paused"].state, held["paused"].held_reason) == ("paused", "data fix")
    assert held["paused"].due_at is None


async def test_a_group_shows_its_head_and_who_holds_it(shard: Shard):
    head, _ = await shard.publish("ünïcode", b"1", b"2", priority=4)
    lease = await shard.transport.claim("worker", 60)

    [view] = (await snapshot(shard)).leased

    assert isinstance(view, GroupView)
    assert (view.group, view.tier, view.head_id, view.depth) == ("ünïcode", 4, head, 2)
    assert (view.token, view.deliveries) == (lease.token, 1)
    assert view.head_published_at.timestamp() * 1000 == lease.published_ms


async def test_a_paused_group_under_a_lease_is_leased_until_it_is_settled(shard: Shard):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 60)
    await shard.transport.perform(calls.pause(shard.prefix, "group", "why"))

    assert tier_counts(await snapshot(shard)) == {0: (1, 0, 1, 0, 0, 2)}
    await shard.transport.ack(lease)
    assert tier_counts(await snapshot(shard)) == {0: (1, 0, 0, 0, 1, 1)}


async def test_lists_are_cut_at_their_limit_and_in_order(shard: Shard):
    await shard.publish_many([(f"group-{number}", b"1", number % 5) for number in range(40)])
    for _ in range(10):
        await shard.transport.claim("worker", 60)

    taken = await snapshot(shard, limit=3)

    assert [view.group for view in taken.leased] == ["group-0", "group-1", "group-2"]
    assert [view.group for view in taken.waiting] == ["group-10", "group-11", "group-12"]
    assert sum(view.due for view in taken.tiers) == 30
    assert sum(view.leased for view in taken.tiers) == 10


async def test_parked_groups_are_shown_though_many_leases_end_before_them(shard: Shard):
    await shard.publish_many([(f"group-{number}", b"1", 0) for number in range(30)])
    turned = await shard.transport.turn("worker", [], 30, visibility=60)
    await shard.transport.nack(turned.leases[0], 3600)

    taken = await snapshot(shard, limit=5)

    assert [view.group for view in taken.parked] == ["group-0"]


async def test_with_very_many_leases_the_snapshot_says_that_it_looked_at_some(shard: Shard):
    await shard.publish_many([(f"group-{number}", b"1", number % 5) for number in range(3000)])
    for _ in range(8):
        await shard.transport.turn("worker", [], 375, visibility=600)

    taken = await snapshot(shard)

    assert not taken.leases_counted_fully
    assert sum(view.groups for view in taken.tiers) == 3000
    assert len(taken.leased) == 20


async def test_workers_are_shown_with_what_they_told(shard: Shard):
    call = calls.heartbeat(shard.prefix, "w1", {"host": "a", "pid": 3}, kept_ms=60_000)
    await shard.transport.perform(call)

    [worker] = (await snapshot(shard)).workers

    assert (worker.id, worker.fields) == ("w1", {"host": "a", "pid": "3"})
    assert 0 <= worker.silent_seconds < 60


async def test_counters_are_totals(shard: Shard):
    await shard.publish("group", b"1", b"2")
    await shard.transport.ack(await shard.transport.claim("worker", 60))

    assert (await snapshot(shard)).counters == {"published": 2, "delivered": 1, "acked": 1}


async def test_a_snapshot_writes_nothing(shard: Shard):
    await shard.publish_many([(f"group-{number}", b"1", number % 5) for number in range(10)])
    await shard.transport.claim("worker", 60)
    before = shard.dump()

    await snapshot(shard)

    assert shard.dump() == before
