"""With maxmemory reached, is publishing refused clearly while everything else goes on?"""

from __future__ import annotations

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.snapshot import snapshot_decoder
from groupqueue.exceptions import ServerOutOfMemory, ServerUnavailable
from tests.servers import Server
from tests.transport.conftest import EXECUTORS
from tests.transport.proxy import Proxy
from tests.transport.shards import Shard, envelope, look_inside, reach


def fill_up(shard: Shard) -> None:
    """Have the server refuse whatever takes memory, and know no script."""
    shard.redis.script_flush()
    shard.redis.config_set("maxmemory", 1)


async def test_failure_25_publish_is_refused_and_nothing_is_stored(own_shard: Shard):
    await own_shard.publish("group")
    before = own_shard.dump()
    own_shard.redis.config_set("maxmemory", 1)

    with pytest.raises(ServerOutOfMemory, match="maxmemory"):
        await own_shard.publish("group")
    with pytest.raises(ServerOutOfMemory, match="maxmemory"):
        await own_shard.transport.publish_envelopes([envelope("a"), envelope("b")])

    assert own_shard.dump() == before
    own_shard.redis.config_set("maxmemory", 0)
    await own_shard.publish("group")
    assert own_shard.depth("group") == 2


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_a_publish_that_is_refused_when_repeated_may_have_been_stored(
    own_server: Server, queue_prefix: str, executor: str
):
    with Proxy(own_server.port) as proxy, look_inside(own_server.url) as inside:
        async with reach(executor, proxy.url, queue_prefix) as transport:
            shard = Shard(transport, inside, queue_prefix)
            await shard.publish("group")
            proxy.before_loss = lambda: inside.config_set("maxmemory", 1)
            proxy.lose_reply()

            with pytest.raises(ServerUnavailable, match=r"maxmemory.*not known whether"):
                await shard.publish("group")

            assert shard.depth("group") == 2


async def test_redriving_is_refused_and_nothing_is_lost(own_shard: Shard):
    shard = own_shard
    await shard.publish("group")
    await shard.transport.settle(Settlement.dead(await shard.transport.claim("w", 30), "why"))
    [(entry, _)] = shard.redis.xrange(shard.named("dead"))
    call = calls.redrive(shard.prefix, [entry.decode()])
    before = shard.dump()
    shard.redis.config_set("maxmemory", 1)

    with pytest.raises(ServerOutOfMemory, match="maxmemory"):
        await shard.transport.perform(call)

    assert shard.dump() == before
    shard.redis.config_set("maxmemory", 0)
    assert await shard.transport.perform(call) == 1


async def test_publish_is_refused_by_a_server_that_does_not_know_the_script(own_shard: Shard):
    fill_up(own_shard)

    with pytest.raises(ServerOutOfMemory):
        await own_shard.publish("group")


async def test_failure_25_everything_that_finishes_work_goes_on(own_shard: Shard):
    shard = own_shard
    await shard.publish_many([(group, b"%d" % n, 0) for n in range(2) for group in "abcdefg"])
    ids = await shard.publish("skipped", b"1", b"2")
    fill_up(shard)

    a = await shard.transport.claim("worker", 30)
    assert await shard.transport.ack(a) == 1
    b = await shard.transport.claim("worker", 30)
    assert await shard.transport.nack(b, 60, error="boom") == 2
    turned = await shard.transport.turn("worker", [], 4, visibility=30)
    c, d, e, f = turned.leases
    assert await shard.transport.renew([c, d], 60) == []
    turned = await shard.transport.turn(
        "worker",
        [
            Settlement.ack(c),
            Settlement.retry(d, 60, "boom"),
            Settlement.dead(e, "rejected"),
            Settlement.halt(f, "max_attempts"),
        ],
        1,
        visibility=30,
    )
    assert {settled.word for settled in turned.settled} == {"ok"}
    assert await shard.transport.recover("worker", f.token) == 1
    perform = shard.transport.perform
    assert await perform(calls.skip(shard.prefix, "skipped", ids[0])) == "ok"
    assert await perform(calls.pause(shard.prefix, "skipped", "why")) is True
    assert await perform(calls.resume(shard.prefix, "skipped")) is True
    assert (await perform(calls.set_tier(shard.prefix, "a", 4))).is_known
    assert await perform(calls.drop(shard.prefix, ["1-0"])) == 0
    await shard.transport.claim("operated", 30)
    assert await perform(calls.release(shard.prefix, "a")) is True
    assert (await perform(calls.purge(shard.prefix, ["a", "b"]))).messages == 3
    beat = calls.heartbeat(shard.prefix, "worker", {"pid": 1}, kept_ms=60_000)
    assert (await perform(beat)).workers == 1
    taken = await perform(calls.inspect(shard.prefix, 20, snapshot_decoder(20)))
    assert [worker.id for worker in taken.workers] == ["worker"]
    await perform(calls.depart(shard.prefix, "worker"))
    assert await shard.transport.wait_for_hint(0.01) is True
