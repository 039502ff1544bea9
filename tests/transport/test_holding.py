"""Does a paused or halted group hold still, whatever state it was in, until it is resumed?"""

from __future__ import annotations

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.messages import Lease
from tests.transport.shards import Shard

INFINITY = float("inf")


async def pause(shard: Shard, group: str = "group", why: str = "asked for") -> bool:
    return await shard.transport.perform(calls.pause(shard.prefix, group, why))


async def resume(shard: Shard, group: str = "group") -> bool:
    return await shard.transport.perform(calls.resume(shard.prefix, group))


async def skip(shard: Shard, message_id: str, group: str = "group") -> str:
    return await shard.transport.perform(calls.skip(shard.prefix, group, message_id))


async def halt(shard: Shard, lease: Lease) -> None:
    await shard.transport.settle(Settlement.halt(lease, "max_attempts", "boom"))


async def test_a_paused_waiting_group_is_not_claimed_until_it_is_resumed(shard: Shard):
    await shard.publish("group", b"1", priority=2)

    assert await pause(shard) is True
    assert shard.place("group") == (2, INFINITY)
    assert await shard.transport.claim("worker", 30) is None

    assert await resume(shard) is True
    assert (await shard.transport.claim("worker", 30)).payload == b"1"
    assert not shard.redis.exists(shard.named("paused"))


async def test_pausing_twice_changes_nothing(shard: Shard):
    await shard.publish("group")
    await pause(shard, why="first")
    before = shard.dump()

    assert await pause(shard, why="second") is False
    assert shard.dump() == before


async def test_resuming_what_is_not_held_changes_nothing(shard: Shard):
    await shard.publish("group")
    before = shard.dump()

    assert await resume(shard) is False
    assert shard.dump() == before


async def test_what_is_told_of_a_pause_is_when_and_why(shard: Shard):
    before = shard.now_ms()
    await pause(shard, why="data fix: 12 rows, ü")
    after = shard.now_ms()

    kind, since, why = shard.redis.hget(shard.named("paused"), "group").decode().split(" ", 2)

    assert (kind, why) == ("paused", "data fix: 12 rows, ü")
    assert int(before) <= int(since) <= after


async def test_publishing_into_a_paused_group_does_not_make_it_claimable(shard: Shard):
    await shard.publish("group")
    await pause(shard)

    await shard.publish("group", b"2")

    assert shard.place("group") == (0, INFINITY)
    assert await shard.transport.claim("worker", 30) is None


async def test_an_empty_group_can_be_paused_and_what_comes_later_waits(shard: Shard):
    await pause(shard)
    assert shard.places("group") == []

    await shard.publish("group", b"1", priority=3)

    assert shard.place("group") == (3, INFINITY)
    assert await shard.transport.claim("worker", 30) is None
    await resume(shard)
    assert (await shard.transport.claim("worker", 30)).payload == b"1"


@pytest.mark.parametrize("arrival", ["fair", "front"])
async def test_a_paused_group_waits_wherever_new_groups_queue_up(shard: Shard, arrival):
    await pause(shard)
    inner = getattr(shard.transport, "bare", shard.transport)
    inner._arrival = arrival

    await shard.publish("group")

    assert await shard.transport.claim("worker", 30) is None


async def test_a_lease_may_finish_in_a_paused_group_whose_rest_then_waits(shard: Shard):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)
    await pause(shard)
    assert shard.place("group") == (0, INFINITY)
    assert shard.redis.exists(shard.keys.lock("group"))

    assert await shard.transport.ack(lease) == 1

    assert shard.place("group") == (0, INFINITY)
    assert await shard.transport.claim("worker", 30) is None


@pytest.mark.parametrize(
    "end",
    [
        Settlement.ack,
        lambda lease: Settlement.retry(lease, 0),
        Settlement.release,
        lambda lease: Settlement.dead(lease, "why"),
        lambda lease: Settlement.halt(lease, "why"),
    ],
)
async def test_however_a_lease_ends_its_paused_group_stays_paused(shard: Shard, end):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)
    await pause(shard)

    await shard.transport.settle(end(lease))

    assert shard.place("group") == (0, INFINITY)
    assert await shard.transport.claim("worker", 30) is None


async def test_a_worker_that_dies_in_a_paused_group_does_not_open_it(shard: Shard):
    await shard.publish("group")
    first = await shard.transport.claim("dead", 30)
    await pause(shard)
    shard.redis.delete(shard.keys.lock("group"))

    assert await shard.transport.claim("worker", 30) is None
    await resume(shard)

    second = await shard.transport.claim("worker", 30)
    assert (second.id, second.crashes) == (first.id, 1)


async def test_a_drained_group_stays_paused_for_what_comes_later(shard: Shard):
    await shard.publish("group")
    lease = await shard.transport.claim("worker", 30)
    await pause(shard)
    await shard.transport.ack(lease)
    assert shard.places("group") == []

    await shard.publish("group")

    assert shard.place("group") == (0, INFINITY)


async def test_resuming_under_a_running_lease_does_not_end_it(shard: Shard):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)
    await pause(shard)

    await resume(shard)

    # The lease's deadline again, before any claim looks at it.
    assert (
        abs(shard.place("group")[1] - shard.expiry(shard.keys.lock("group")))
        <= shard.same_moment_ms
    )
    assert await shard.transport.claim("other", 30) is None
    assert await shard.transport.ack(lease) == 1


async def test_renewing_in_a_paused_group_extends_the_lease_and_keeps_the_pause(shard: Shard):
    await shard.publish("group")
    lease = await shard.transport.claim("worker", 30)
    await pause(shard)

    assert await shard.transport.renew([lease], 300) == []

    assert shard.place("group") == (0, INFINITY)
    assert shard.expiry(shard.keys.lock("group")) > shard.now_ms() + 200_000


async def test_recovering_in_a_paused_group_keeps_the_pause(shard: Shard):
    await shard.publish("group")
    await shard.transport.claim("worker", 30)
    await pause(shard)

    assert await shard.transport.recover("worker", 0) == 1

    assert shard.place("group") == (0, INFINITY)
    assert not shard.redis.exists(shard.keys.lock("group"))


async def test_a_halted_group_goes_on_with_new_attempts_when_resumed(shard: Shard):
    await shard.publish("group", b"1", b"2")
    for _ in range(4):
        await shard.transport.nack(await shard.transport.claim("worker", 30), error="boom")
    await halt(shard, await shard.transport.claim("worker", 30))

    assert await resume(shard) is True

    lease = await shard.transport.claim("worker", 30)
    assert (lease.payload, lease.deliveries, lease.failures, lease.crashes) == (b"1", 1, 0, 0)
    assert not shard.redis.exists(shard.named("errors"), shard.named("failures"))


async def test_a_paused_groups_attempts_are_kept(shard: Shard):
    await shard.publish("group")
    await shard.transport.nack(await shard.transport.claim("worker", 30), error="boom")
    await pause(shard)

    await resume(shard)

    lease = await shard.transport.claim("worker", 30)
    assert (lease.deliveries, lease.failures) == (2, 1)
    assert shard.redis.hget(shard.named("errors"), "group") == b"boom"


async def test_skip_sets_the_head_aside_and_the_group_goes_on(shard: Shard):
    first, _ = await shard.publish("group", b"1", b"2", priority=1)
    await shard.transport.nack(await shard.transport.claim("worker", 30), 600, error="boom")

    assert await skip(shard, first) == "ok"

    [(_, letter)] = shard.redis.xrange(shard.named("dead"))
    assert letter[b"element"][:32].decode() == first
    assert (letter[b"group"], letter[b"tier"], letter[b"reason"]) == (b"group", b"1", b"skipped")
    assert (letter[b"error"], letter[b"deliveries"], letter[b"failures"]) == (b"boom", b"1", b"1")
    lease = await shard.transport.claim("worker", 30)
    assert (lease.payload, lease.deliveries, lease.failures) == (b"2", 1, 0)
    assert shard.redis.hgetall(shard.named("backlog")) == {b"1": b"1"}


async def test_skipping_the_head_of_a_halted_group_ends_the_halt(shard: Shard):
    first, _ = await shard.publish("group", b"1", b"2")
    await halt(shard, await shard.transport.claim("worker", 30))

    assert await skip(shard, first) == "ok"

    assert (await shard.transport.claim("worker", 30)).payload == b"2"
    assert not shard.redis.exists(shard.named("paused"))


async def test_a_pause_that_came_before_a_halt_outlasts_the_halts_end_by_a_skip(shard: Shard):
    first, _ = await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)
    await pause(shard, why="data fix")
    await halt(shard, lease)

    assert await skip(shard, first) == "ok"

    assert shard.place("group") == (0, INFINITY)
    assert shard.redis.hget(shard.named("paused"), "group").endswith(b" data fix")
    await resume(shard)
    assert (await shard.transport.claim("worker", 30)).payload == b"2"


@pytest.mark.parametrize("paused_before", [False, True])
@pytest.mark.parametrize("end", ["skip", "purge"])
async def test_a_reason_of_several_lines_is_none_but_the_halts_own(
    shard: Shard, paused_before, end: str
):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)
    if paused_before:
        await pause(shard, why="by\nalice")
    await shard.transport.settle(Settlement.halt(lease, "no such\norder\r\n17", "boom"))

    if end == "skip":
        await skip(shard, lease.id)
    else:
        await shard.transport.perform(calls.purge(shard.prefix, ["group"]))

    noted = shard.redis.hget(shard.named("paused"), "group")
    assert (noted and noted.split(b" ", 2)[2]) == (b"by alice" if paused_before else None)


async def test_skipping_the_head_of_a_paused_group_keeps_the_pause(shard: Shard):
    first, _ = await shard.publish("group", b"1", b"2")
    await pause(shard)

    assert await skip(shard, first) == "ok"

    assert shard.place("group") == (0, INFINITY)
    assert shard.depth("group") == 1


async def test_skip_leaves_a_leased_head_alone(shard: Shard):
    [first] = await shard.publish("group")
    await shard.transport.claim("worker", 30)
    before = shard.dump()

    assert await skip(shard, first) == "leased"
    assert shard.dump() == before


async def test_skip_of_a_message_that_is_not_the_head_changes_nothing(shard: Shard):
    first, second = await shard.publish("group", b"1", b"2")
    assert await skip(shard, first) == "ok"
    before = shard.dump()

    assert await skip(shard, first) == "moved"
    assert await skip(shard, "0" * 32) == "moved"
    assert await skip(shard, second, group="unknown") == "moved"
    assert shard.dump() == before


async def test_skipping_the_last_message_drains_the_group(shard: Shard):
    [only] = await shard.publish("group")

    assert await skip(shard, only) == "ok"

    assert shard.places("group") == []
    assert not shard.redis.exists(shard.named("prio"), shard.keys.fifo("group"))


async def test_skipping_what_a_dead_worker_held_leaves_no_record_of_it(shard: Shard):
    [only] = await shard.publish("group")
    await shard.transport.claim("dead", 30)
    shard.let_lease_run_out("group")

    assert await skip(shard, only) == "ok"

    assert not shard.redis.exists(shard.named("holders"), shard.named("attempts"))
