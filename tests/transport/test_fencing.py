"""Do fencing tokens only grow, whatever becomes of the groups, the key and the clock?"""

from __future__ import annotations

import asyncio

import pytest

from groupqueue.exceptions import StaleLease
from tests.transport.shards import Shard

HOUR_US = 3600 * 1_000_000


async def token_of_next_lease(shard: Shard) -> int:
    """Publish to a group, claim it, drain it."""
    await shard.publish("group")
    lease = await shard.transport.claim("worker", 30)
    await shard.transport.ack(lease)
    return lease.token


async def test_tokens_grow_across_drained_groups(shard: Shard):
    tokens = [await token_of_next_lease(shard) for _ in range(50)]

    assert tokens == sorted(set(tokens))


async def test_tokens_grow_within_a_turn_and_across_turns(shard: Shard):
    await shard.publish_many([(f"group-{number}", b"1", number % 5) for number in range(300)])
    tokens = []
    for _ in range(3):
        turned = await shard.transport.turn("worker", [], 100, visibility=30)
        tokens += [lease.token for lease in turned.leases]

    assert len(tokens) == 300
    assert tokens == sorted(set(tokens))


async def test_tokens_grow_in_each_group_under_claimers_at_once(shard: Shard):
    await shard.publish_many([(f"group-{n % 3}", b"1", 0) for n in range(90)])
    seen: dict[str, list[int]] = {}
    left = 90

    async def claimer(number: int) -> None:
        nonlocal left
        while left:
            lease = await shard.transport.claim(f"worker-{number}", 60)
            if lease is not None:
                left -= 1
                seen.setdefault(lease.group, []).append(lease.token)
                await shard.transport.ack(lease)

    await asyncio.gather(*(claimer(number) for number in range(10)))

    assert all(tokens == sorted(set(tokens)) for tokens in seen.values())


async def test_tokens_grow_when_the_last_one_is_lost(shard: Shard):
    before = await token_of_next_lease(shard)
    shard.redis.delete(shard.named("fence"))

    assert await token_of_next_lease(shard) > before


async def test_tokens_grow_when_everything_is_lost(shard: Shard):
    before = await token_of_next_lease(shard)
    shard.redis.flushdb()

    assert await token_of_next_lease(shard) > before


async def test_tokens_grow_when_the_clock_goes_back(shard: Shard):
    await token_of_next_lease(shard)
    # As left by a server whose clock was an hour ahead.
    ahead = int(shard.now_ms()) * 1000 + HOUR_US
    shard.redis.set(shard.named("fence"), ahead)

    assert [await token_of_next_lease(shard) for _ in range(3)] == [ahead + 1, ahead + 2, ahead + 3]


async def test_a_token_is_exact_and_of_the_servers_time(shard: Shard):
    before = int(shard.now_ms()) * 1000
    token = await token_of_next_lease(shard)

    assert before <= token <= shard.now_ms() * 1000 + 1
    assert shard.redis.get(shard.named("fence")) == str(token).encode()


@pytest.mark.parametrize("noted", ["9007199254740992", "9" * 20, "9" * 400, "inf", "nan"])
async def test_tokens_grow_whatever_somebody_wrote_as_the_last_one(shard: Shard, noted: str):
    await shard.publish("group", b"1", b"2")
    shard.redis.set(shard.named("fence"), noted)

    first = await shard.transport.claim("worker", 60)
    shard.let_lease_run_out("group")
    second = await shard.transport.claim("worker", 60)

    assert first.token < second.token < 2**53
    with pytest.raises(StaleLease):
        await shard.transport.ack(first)
    assert await shard.transport.ack(second) == 1
