"""Does each operation take one round trip, and does the server know the script but once?"""

from __future__ import annotations

import pytest

from groupqueue.transport import scripts
from tests.transport.operations import OPERATIONS
from tests.transport.proxy import Proxy
from tests.transport.shards import Shard


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


async def test_failure_22_every_operation_goes_on_after_the_scripts_were_flushed(real_shard: Shard):
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
