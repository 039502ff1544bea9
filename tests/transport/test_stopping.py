"""Does a stopped queue give nothing out, and lose nothing else?"""

from __future__ import annotations

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.snapshot import HeldGroups, Snapshot, held_groups, snapshot_decoder
from tests.transport.envelopes import let_come, promote, scheduled, send
from tests.transport.operated import STATES, bring_into, check
from tests.transport.shards import Shard
from tests.transport.test_doomed_groups import doom
from tests.transport.test_operating import explain, pause


async def stop(shard: Shard, why: str = "moving house") -> bool:
    return await shard.transport.perform(calls.stop(shard.prefix, why))


async def start(shard: Shard) -> bool:
    return await shard.transport.perform(calls.start(shard.prefix))


async def held(shard: Shard) -> HeldGroups:
    return await shard.transport.perform(calls.held(shard.prefix, "0", 20, held_groups))


async def snapshot(shard: Shard) -> Snapshot:
    return await shard.transport.perform(calls.inspect(shard.prefix, 20, snapshot_decoder(20)))


async def test_nothing_is_claimed_while_a_queue_is_stopped(shard: Shard):
    await shard.publish("group", b"1")
    before = shard.place("group")

    assert await stop(shard) is True

    assert await shard.transport.claim("worker", 30) is None
    turned = await shard.transport.turn("worker", [], 5, visibility=30)
    assert (turned.leases, turned.wait_ms) == ([], -1)
    assert shard.place("group") == before
    assert await start(shard) is True
    assert (await shard.transport.claim("worker", 30)).payload == b"1"


async def test_stopping_and_starting_twice_is_told(shard: Shard):
    assert await start(shard) is False
    assert await stop(shard, "first") is True
    assert await stop(shard, "second") is False
    assert (await snapshot(shard)).stopped_reason == "first"
    assert await start(shard) is True
    assert await start(shard) is False


@pytest.mark.parametrize("build", [calls.stop, calls.start])
async def test_a_repetition_has_no_second_effect(shard: Shard, build):
    arguments = ("why",) if build is calls.stop else ()
    if build is calls.start:
        await stop(shard)
    call = build(shard.prefix, *arguments, operation="once")
    assert await shard.transport.perform(call) is True
    await (start(shard) if build is calls.stop else stop(shard))
    before = shard.dump(without="wake")

    # The caller did not get the first answer.
    assert await shard.transport.perform(call) is True

    assert shard.dump(without="wake") == before


async def test_what_is_running_is_renewed_and_settled(shard: Shard):
    await shard.publish_many([(f"group-{n}", b"%d" % m, 0) for n in range(5) for m in range(2)])
    leases = await shard.claim_all()
    await stop(shard)

    assert await shard.transport.renew(leases, 300) == []
    ends = [
        Settlement.ack(leases[0]),
        Settlement.retry(leases[1], 0, "boom"),
        Settlement.release(leases[2]),
        Settlement.dead(leases[3], "why"),
        Settlement.halt(leases[4], "why"),
    ]
    turned = await shard.transport.turn("worker", ends, 5, visibility=30)

    assert [settled.word for settled in turned.settled] == ["ok"] * 5
    assert turned.leases == []
    check(shard)
    await start(shard)
    assert len(await shard.claim_all()) == 4


async def test_publishing_and_scheduling_go_on(shard: Shard):
    await stop(shard)
    await shard.publish("group", b"1")
    [due] = await send(shard, scheduled("group", b"2"))
    await send(shard, scheduled("later", b"3"))
    let_come(shard, due)

    turned = await promote(shard)

    assert shard.depth("group") == 2
    # Till the next scheduled message is due.
    assert 0 < turned.wait_ms <= 60_000
    await start(shard)
    assert [lease.payload for lease in await shard.claim_all()] == [b"1"]


@pytest.mark.parametrize("state", STATES)
async def test_groups_keep_their_own_state(shard: Shard, state: str):
    await bring_into(shard, state, messages=2)
    before = shard.place("group"), shard.redis.hget(shard.named("paused"), "group")

    await stop(shard)
    assert (await explain(shard)).state == state.partition(",")[0]
    await start(shard)

    assert (shard.place("group"), shard.redis.hget(shard.named("paused"), "group")) == before
    check(shard)


async def test_a_group_can_be_paused_and_resumed_while_its_queue_is_stopped(shard: Shard):
    await shard.publish_many([("paused", b"1", 0), ("live", b"1", 0)])
    await pause(shard, "paused")
    await stop(shard)
    await pause(shard, "live")
    await shard.transport.perform(calls.resume(shard.prefix, "paused"))
    assert await shard.claim_all() == []

    await start(shard)

    assert [lease.group for lease in await shard.claim_all()] == ["paused"]


async def test_a_doomed_group_stands_still_as_well(shard: Shard):
    await doom(shard, 3)
    await stop(shard)
    assert (await shard.transport.turn("worker", [], 5, visibility=30)).buried == []

    await start(shard)

    assert len((await shard.transport.turn("worker", [], 5, visibility=30)).buried) == 2


async def test_a_group_whose_worker_died_is_given_out_once_the_queue_is_started(shard: Shard):
    await shard.publish("group")
    await shard.transport.claim("dead", 30)
    await stop(shard)
    shard.let_lease_run_out("group")
    assert await shard.transport.claim("worker", 30) is None

    await start(shard)

    assert (await shard.transport.claim("worker", 30)).crashes == 1


async def test_starting_wakes_an_idle_worker(shard: Shard):
    await stop(shard)
    shard.redis.delete(shard.named("wake"))

    await start(shard)

    assert await shard.transport.wait_for_hint(1)


async def test_people_are_told_since_when_and_why(shard: Shard):
    await shard.publish("group")
    before = shard.now_ms()
    await stop(shard, "moving\nhouse")

    seen = await snapshot(shard)
    found = await explain(shard)

    assert seen.stopped_reason == found.stopped_reason == "moving house"
    assert seen.stopped_since == found.stopped_since
    assert seen.stopped_since is not None
    assert int(before) <= round(seen.stopped_since.timestamp() * 1000) <= shard.now_ms()
    assert found.reason == "it waits for a worker; all of the queue is stopped: moving house"
    await start(shard)
    assert (await snapshot(shard)).stopped_since is None
    assert (await explain(shard)).reason == "it waits for a worker"


async def test_what_is_noted_of_the_queue_is_no_group_that_is_held(shard: Shard):
    await shard.publish_many([("paused", b"1", 0), ("live", b"1", 0)])
    await pause(shard, "paused")
    await stop(shard)
    await shard.transport.perform(calls.rate(shard.prefix, "live", "6000000 1"))

    page = await held(shard)
    seen = await snapshot(shard)

    assert (page.total, [view.group for view in page.groups]) == (1, ["paused"])
    assert [view.group for view in seen.held] == ["paused"]
    assert (seen.halted, sum(tier.held for tier in seen.tiers)) == (0, 1)


async def test_a_queue_that_was_stopped_and_started_leaves_nothing_behind(shard: Shard):
    await stop(shard)
    await start(shard)

    assert {name.partition(":")[0] for name in shard.names()} == {"publisher", "wake"}
