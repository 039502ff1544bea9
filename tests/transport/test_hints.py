"""Are idle workers woken in time, and do hints stay few and carry no work?"""

from __future__ import annotations

import asyncio

import pytest

from groupqueue.core.calls import Settlement
from groupqueue.transport import clients
from tests.transport.shards import Shard

HINTS_KEPT = 16


def hints(shard: Shard) -> int:
    return shard.redis.llen(shard.named("wake"))


async def test_waiting_ends_with_a_publish(shard: Shard):
    waiting = asyncio.create_task(shard.transport.wait_for_hint(5))
    await asyncio.sleep(0)

    await shard.publish("group")

    assert await waiting is True


async def test_waiting_ends_with_its_timeout(shard: Shard):
    assert await shard.transport.wait_for_hint(0.05) is False


@pytest.mark.parametrize("timeout_seconds", [0, -1])
async def test_a_timeout_of_nothing_does_not_wait_for_ever(shard: Shard, timeout_seconds):
    assert await shard.transport.wait_for_hint(timeout_seconds) is False


async def test_failure_17_a_wait_is_cut_well_before_the_sockets_timeout(shard: Shard):
    inner = getattr(shard.transport, "bare", shard.transport)

    command, key, seconds = inner._wait_command(10**6)

    assert (command, key) == ("BLPOP", shard.named("wake"))
    assert float(seconds) == clients.LONGEST_WAIT_SECONDS < clients.SOCKET_TIMEOUT_SECONDS


async def test_a_hint_left_before_the_wait_is_not_missed(shard: Shard):
    await shard.publish("group")

    assert await shard.transport.wait_for_hint(5) is True
    assert await shard.transport.wait_for_hint(0.01) is False


async def test_failure_39_the_list_of_hints_is_capped(shard: Shard):
    for number in range(HINTS_KEPT * 3):
        await shard.publish(f"group-{number}")

    assert hints(shard) == HINTS_KEPT


async def test_publishing_into_a_group_that_waits_already_wakes_nobody_more(shard: Shard):
    await shard.publish("group", b"1", b"2", b"3")

    assert hints(shard) == 1


async def test_a_turn_that_leaves_due_groups_passes_the_hint_on(shard: Shard):
    await shard.publish_many([(f"group-{number}", b"1", 0) for number in range(3)])
    shard.redis.delete(shard.named("wake"))

    await shard.transport.turn("worker", [], 2, visibility=30)
    assert hints(shard) == 1
    await shard.transport.turn("worker", [], 1, visibility=30)
    assert hints(shard) == 1


async def test_an_ack_that_leaves_messages_wakes_somebody(shard: Shard):
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)
    shard.redis.delete(shard.named("wake"))

    await shard.transport.ack(lease)
    assert hints(shard) == 1

    lease = await shard.transport.claim("worker", 30)
    await shard.transport.ack(lease)
    assert hints(shard) == 1


async def test_after_the_work_is_done_a_hint_leads_to_an_empty_turn(shard: Shard):
    await shard.publish("group")
    [lease] = (await shard.transport.turn("worker", [], 1, visibility=30)).leases
    await shard.transport.turn("worker", [Settlement.ack(lease)], 1, visibility=30)

    assert await shard.transport.wait_for_hint(5) is True
    turned = await shard.transport.turn("other", [], 1, visibility=30)

    assert (turned.settled, turned.leases, turned.wait_ms) == ([], [], -1)
    assert hints(shard) == 0


async def test_each_of_several_waiting_workers_is_woken(shard: Shard):
    waiting = [asyncio.create_task(shard.transport.wait_for_hint(5)) for _ in range(3)]
    await asyncio.sleep(0)

    for number in range(3):
        await shard.publish(f"group-{number}")

    assert await asyncio.gather(*waiting) == [True] * 3
