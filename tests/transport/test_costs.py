"""Does what an operation costs the server depend on how much the queue holds?

A monitor shows every command that the scripts send, with its arguments. The same commands cost
the same on few messages or groups as on a hundred thousand, but for the logarithm that a sorted
set takes, as long as they ask lists for their ends alone.
"""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
import redis

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.codec import JSONCodec
from groupqueue.core.snapshot import snapshot_decoder
from groupqueue.core.views import explanation, peeked_decoder
from tests.servers import Server
from tests.transport.shards import Shard, look_inside, reach

FEW, MANY = 500, 100_000
MOST_AT_ONCE = 1000
OF_FEW_FIELDS = (":stats", ":backlog")
# What takes as long as it has arguments, or for each the logarithm of a sorted set.
OF_ARGUMENTS = {
    *("DEL", "EXISTS", "GET", "MGET", "PEXPIRE", "PTTL", "SET", "TIME", "UNLINK"),
    *("HDEL", "HEXISTS", "HGET", "HINCRBY", "HLEN", "HMGET", "HSET"),
    *("LLEN", "LPOP", "LPUSH", "RPUSH"),
    *("XADD", "XDEL", "XLEN", "ZADD", "ZCARD", "ZCOUNT", "ZREM", "ZSCORE"),
}


class Watched:
    """A shard, and every command that its scripts send."""

    def __init__(self, shard: Shard, url: str) -> None:
        self.shard = shard
        self.commands: dict[str, list[list[str]]] = {}
        """What each operation sent, but for ids and large numbers, in the alphabet's order."""
        self.unbounded: list[list[str]] = []
        """Commands whose work or reply may grow with what there is."""
        self._url = url

    async def during(self, name: str, call: Awaitable[Any]) -> Any:
        """Note the commands of one operation; return its answer."""
        # Of hints there are few or sixteen, whatever else there is.
        self.shard.redis.delete(self.shard.named("wake"))
        seen: list[list[str]] = []
        is_watching, over = threading.Event(), f"over:{name}"

        def watch() -> None:
            with redis.Redis.from_url(self._url, retry=None).monitor() as monitor:
                is_watching.set()
                for told in monitor.listen():
                    if told["client_type"] == "lua":
                        seen.append(told["command"].split(" "))
                    elif told["command"].endswith(over):
                        return

        thread = threading.Thread(target=watch)
        thread.start()
        is_watching.wait()
        try:
            return await call
        finally:
            self.shard.redis.echo(over)
            thread.join()
            # The first to count in a minute lets that minute's figures expire.
            sent = [command for command in seen if command[0] != "EXPIRE"]
            self.unbounded += [command for command in sent if not is_bounded(*command)]
            self.commands[name] = sorted(map(self._general, sent))

    def _general(self, command: list[str]) -> list[str]:
        plain = [word.replace(self.shard.prefix, "") for word in command]
        if plain[1:] and plain[1].startswith(":publisher:"):
            plain = plain[:2]  # the rest is the number of its call
        return [re.sub(r"[0-9a-f]{32}.*|-?\d{3,}[.\d]*", "~", word) for word in plain]


@pytest.fixture
async def watched(server: Server, queue_prefix: str) -> AsyncIterator[Watched]:
    """A shard on each kind of server, and what its scripts send."""
    with look_inside(server.url) as inside:
        async with reach("sync", server.url, queue_prefix) as transport:
            yield Watched(Shard(transport, inside, queue_prefix), server.url)


async def go_through_everything(watched: Watched) -> dict[str, list[list[str]]]:
    """Do to `group`, which is the next one, and to others whatever is done all day."""
    shard, note = watched.shard, watched.during
    transport, prefix, perform = shard.transport, shard.prefix, shard.transport.perform
    watched.commands = {}

    await note("publish", transport.publish("group", b"1"))
    await note("publish elsewhere", transport.publish("fresh", b"1"))
    lease = await note("claim", transport.claim("worker", 60))
    assert lease.group == "group"
    await note("renew", transport.renew([lease], 120))
    await note("nack", transport.nack(lease, 0, error="boom"))
    shard.redis.zadd(shard.keys.ready(0), {"group": 1})
    turned = await note("turn", transport.turn("worker", [], 3, visibility=60))
    assert turned.leases[0].group == "group"
    ends = [
        settle(lease)
        for settle, lease in zip(
            (Settlement.ack, Settlement.release, lambda one: Settlement.dead(one, "why")),
            turned.leases,
            strict=True,
        )
    ]
    await note("settle", transport.turn("worker", ends, 0, visibility=60))
    shard.redis.zadd(shard.keys.ready(0), {"group": 1})
    lease = await note("claim again", transport.claim("worker", 60))
    assert lease.group == "group"
    await note("recover", transport.recover("worker", lease.token - 1))
    await note("explain", perform(calls.explain(prefix, "group", explanation)))
    await note("peek", perform(calls.peek(prefix, "group", 0, 20, peeked_decoder(JSONCodec()))))
    await note("pause", perform(calls.pause(prefix, "group", "why")))
    await note("resume", perform(calls.resume(prefix, "group")))
    head = shard.redis.lindex(shard.keys.fifo("group"), 0)[:32].decode()
    await note("skip", perform(calls.skip(prefix, "group", head)))
    [(entry, _)] = shard.redis.xrevrange(shard.named("dead"), count=1)
    await note("redrive", perform(calls.redrive(prefix, [entry.decode()])))
    await note("set tier", perform(calls.set_tier(prefix, "group", 3)))
    await note("inspect", perform(calls.inspect(prefix, 20, snapshot_decoder(20))))
    await note("purge", perform(calls.purge(prefix, ["group"])))
    return watched.commands


def is_bounded(verb: str, key: str = "", *arguments: str) -> bool:
    """Say whether a command's work and reply do not grow with what there is."""
    numbers = [int(word) for word in arguments if re.fullmatch(r"-?\d+", word)]
    if verb in ("LINDEX", "LRANGE", "ZRANGE") and "BYSCORE" not in arguments:
        return all(0 <= number < MOST_AT_ONCE for number in numbers)
    if verb in ("ZRANGE", "HSCAN"):
        return numbers[-1] < MOST_AT_ONCE and bool({"LIMIT", "COUNT"} & set(arguments))
    if verb == "HGETALL":
        return key.endswith(OF_FEW_FIELDS)
    if verb == "XRANGE":
        return arguments[0] == arguments[1]
    return verb in OF_ARGUMENTS


async def test_failure_14_a_group_of_a_hundred_thousand_messages_costs_what_one_of_few_does(
    watched: Watched,
):
    shard, found = watched.shard, []
    for depth in (FEW, MANY):
        shard.redis.flushdb()
        await shard.publish_many([("group", b"1", 0)] * depth)
        await shard.publish_many([(f"other-{number}", b"1", 0) for number in range(100)])
        found.append(await go_through_everything(watched))

    few, many = found
    assert many == few
    assert watched.unbounded == []


async def test_failure_30_a_queue_of_a_hundred_thousand_groups_costs_what_one_of_few_does(
    watched: Watched,
):
    shard, found = watched.shard, []
    for groups in (FEW, MANY):
        shard.redis.flushdb()
        await shard.publish("group", b"1", b"2", b"3")
        await shard.publish_many([(f"other-{n}", b"1", n % 5) for n in range(groups)])
        found.append(await go_through_everything(watched))

    few, many = found
    assert many == few
    assert watched.unbounded == []
