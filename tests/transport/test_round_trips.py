"""Does each operation take one round trip, and does the server know the script but once?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.snapshot import snapshot_decoder
from groupqueue.transport import scripts
from tests.transport.proxy import Proxy
from tests.transport.shards import Shard, envelope

Operation = Callable[[Shard], Awaitable[object]]


async def _leased(shard: Shard, group: str = "group"):
    await shard.publish(group, b"1", b"2")
    return await shard.transport.claim("worker", 30)


async def _ack(shard: Shard) -> Operation:
    lease = await _leased(shard)
    return lambda shard: shard.transport.ack(lease)


async def _nack(shard: Shard) -> Operation:
    lease = await _leased(shard)
    return lambda shard: shard.transport.nack(lease, 5, error="boom")


async def _settle(shard: Shard) -> Operation:
    lease = await _leased(shard)
    return lambda shard: shard.transport.settle(Settlement.dead(lease, "why"))


async def _renew(shard: Shard) -> Operation:
    lease = await _leased(shard)
    return lambda shard: shard.transport.renew([lease], 60)


async def _turn(shard: Shard) -> Operation:
    await shard.publish_many([(f"group-{number}", b"1", number % 5) for number in range(100)])
    turned = await shard.transport.turn("worker", [], 50, visibility=30)
    finished = [Settlement.ack(lease) for lease in turned.leases]
    return lambda shard: shard.transport.turn("worker", finished, 50, visibility=30)


async def _recover(shard: Shard) -> Operation:
    await _leased(shard)
    return lambda shard: shard.transport.recover("worker", 0)


def _simple(operation: Operation) -> Callable[[Shard], Awaitable[Operation]]:
    async def prepare(shard: Shard) -> Operation:
        await shard.publish("group")
        return operation

    return prepare


def _performing(build: Callable[[str], calls.Call[object]]) -> object:
    return _simple(lambda shard: shard.transport.perform(build(shard.prefix)))


OPERATIONS = {
    "publish one": _simple(lambda shard: shard.transport.publish("group", b"1")),
    "publish a thousand": _simple(
        lambda shard: shard.transport.publish_envelopes([envelope(f"g{n}") for n in range(1000)])
    ),
    "claim": _simple(lambda shard: shard.transport.claim("worker", 30)),
    "ack": _ack,
    "nack": _nack,
    "settle": _settle,
    "renew": _renew,
    "turn": _turn,
    "recover": _recover,
    "pause": _performing(lambda prefix: calls.pause(prefix, "group", "why")),
    "resume": _performing(lambda prefix: calls.resume(prefix, "group")),
    "skip": _performing(lambda prefix: calls.skip(prefix, "group", "0" * 32)),
    "heartbeat": _performing(
        lambda prefix: calls.heartbeat(prefix, "worker", {"pid": 1}, kept_ms=9000)
    ),
    "depart": _performing(lambda prefix: calls.depart(prefix, "worker")),
    "inspect": _performing(lambda prefix: calls.inspect(prefix, 20, snapshot_decoder(20))),
}


@pytest.mark.parametrize("prepare", OPERATIONS.values(), ids=OPERATIONS)
async def test_every_operation_is_one_command(proxied_shard: Shard, proxy: Proxy, prepare):
    operation = await prepare(proxied_shard)
    proxy.commands.clear()
    proxied_shard.redis.config_resetstat()

    await operation(proxied_shard)

    assert proxy.commands == ["EVALSHA"]
    statistics = proxied_shard.redis.info("commandstats")
    assert statistics["cmdstat_evalsha"]["calls"] == 1
    assert "cmdstat_eval" not in statistics


async def test_a_server_that_does_not_know_a_script_is_sent_it_once(
    proxied_shard: Shard, proxy: Proxy
):
    proxied_shard.redis.script_flush()

    await proxied_shard.publish("group")
    await proxied_shard.publish("group")

    assert proxy.commands == ["EVALSHA", "EVAL", "EVALSHA"]


async def test_every_operation_goes_on_after_the_scripts_were_flushed(real_shard: Shard):
    for name, prepare in OPERATIONS.items():
        operation = await prepare(real_shard)
        real_shard.redis.script_flush()

        await operation(real_shard)

        known = real_shard.redis.script_exists(*(scripts.load(n).sha for n in scripts.names()))
        assert sum(known) == 1, name


async def test_order_holds_while_scripts_are_flushed_between_calls(shard: Shard):
    handled = []
    for number in range(5):
        await shard.publish("group", b"%d" % number)
        shard.redis.script_flush()
    while lease := await shard.transport.claim("worker", 30):
        shard.redis.script_flush()
        await shard.transport.ack(lease)
        handled.append(int(lease.payload))

    assert handled == list(range(5))
