"""Do workers find each other, agree on the schema, and vanish when they fall silent?"""

from __future__ import annotations

from groupqueue.core import calls
from groupqueue.core.calls import SCHEMA_VERSION
from tests.transport.shards import Shard


async def beat(shard: Shard, worker_id: str, kept_ms: int = 60_000, **fields: str | int):
    call = calls.heartbeat(shard.prefix, worker_id, fields or {"pid": 7}, kept_ms=kept_ms)
    return await shard.transport.perform(call)


async def test_a_worker_tells_of_itself_for_as_long_as_it_beats(shard: Shard):
    before = shard.now_ms()
    assert await beat(shard, "w1", kept_ms=30_000, host="ä-host", pid=17) == (SCHEMA_VERSION, 1)
    after = shard.now_ms()

    assert shard.redis.hgetall(shard.keys.worker("w1")) == {
        b"host": "ä-host".encode(),
        b"pid": b"17",
    }
    assert before - 1 <= shard.redis.zscore(shard.named("workers"), "w1") <= after
    expiry = shard.expiry(shard.keys.worker("w1"))
    assert before + 29_999 <= expiry <= after + 30_001


async def test_a_heartbeat_counts_the_workers_that_are_alive(shard: Shard):
    await beat(shard, "w1")

    assert (await beat(shard, "w2")).workers == 2
    assert (await beat(shard, "w1")).workers == 2


async def test_a_silent_worker_is_forgotten_at_the_next_heartbeat_of_another(shard: Shard):
    await beat(shard, "silent")
    shard.redis.zadd(shard.named("workers"), {"silent": shard.now_ms() - 60_001})

    assert (await beat(shard, "w1")).workers == 1


async def test_the_first_worker_sets_the_schema_and_later_ones_are_told(shard: Shard):
    shard.redis.hset(shard.named("meta"), "schema", SCHEMA_VERSION + 1)

    assert (await beat(shard, "w1")).schema == SCHEMA_VERSION + 1
    assert shard.redis.hget(shard.named("meta"), "schema") == str(SCHEMA_VERSION + 1).encode()


async def test_a_worker_that_departs_is_gone_at_once(shard: Shard):
    await beat(shard, "w1")
    await beat(shard, "w2")

    await shard.transport.perform(calls.depart(shard.prefix, "w1"))
    await shard.transport.perform(calls.depart(shard.prefix, "w1"))

    assert shard.redis.zrange(shard.named("workers"), 0, -1) == [b"w2"]
    assert not shard.redis.exists(shard.keys.worker("w1"))


async def test_what_is_no_schema_is_told_as_it_is(shard: Shard):
    for noted in ("abc", "9" * 5000, ""):
        shard.redis.hset(shard.named("meta"), "schema", noted)

        assert (await beat(shard, "w1")).schema == noted
