"""How does a test reach one shard, whatever executor and server it is on?"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import fakeredis
import redis
import redis.asyncio

from groupqueue.core.identifiers import new_id
from groupqueue.core.keys import ShardKeys
from groupqueue.core.messages import Envelope, Lease
from groupqueue.transport import scripts
from groupqueue.transport.redis import AsyncRedisTransport, RedisTransport

THREADS = 32


class InThreads:
    """A RedisTransport whose every call runs in a thread, so that it is awaited as its twin is."""

    def __init__(self, transport: RedisTransport) -> None:
        self.bare = transport
        self._threads = ThreadPoolExecutor(THREADS)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.bare, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            bound = functools.partial(method, *args, **kwargs)
            return await asyncio.get_running_loop().run_in_executor(self._threads, bound)

        return call

    async def close(self) -> None:
        """End the threads, then the connections."""
        self._threads.shutdown()
        self.bare.close()


class Shard:
    """One shard: a transport to work with and a plain client to look inside."""

    def __init__(self, transport: Any, client: redis.Redis, prefix: str) -> None:
        self.transport = transport
        self.redis = client
        self.prefix = prefix
        self.keys = ShardKeys(prefix)
        # A server's clock stands still during a script; fakeredis's goes on, and a busy
        # machine lets it go far.
        self.same_moment_ms = 250 if isinstance(client, fakeredis.FakeRedis) else 5

    async def publish(self, group: str, *payloads: bytes, priority: int = 0) -> list[str]:
        """Publish the payloads one after the other; return the messages' ids."""
        return [await self.transport.publish(group, body, priority) for body in payloads or [b"1"]]

    async def publish_many(self, messages: Sequence[tuple[str, bytes, int]]) -> list[str]:
        """Publish (group, payload, tier) by the thousand; return the messages' ids."""
        envelopes = [envelope(group, body, tier) for group, body, tier in messages]
        for start in range(0, len(envelopes), 1000):
            await self.transport.publish_envelopes(envelopes[start : start + 1000])
        return [sent.id for sent in envelopes]

    async def claim_all(self, worker_id: str = "worker", visibility: float = 60) -> list[Lease]:
        """Claim until nothing is due."""
        leases: list[Lease] = []
        while lease := await self.transport.claim(worker_id, visibility):
            leases.append(lease)
        return leases

    def let_lease_run_out(self, group: str) -> None:
        """Do what time would: the lock is gone and the deadline has passed."""
        tier, _ = self.place(group)
        self.redis.delete(self.keys.lock(group))
        self.make_due(group, tier)

    def make_due(self, group: str, tier: int) -> None:
        """Move a group's moment into the past."""
        self.redis.zadd(self.keys.ready(tier), {group: self.now_ms() - 1000})

    def place(self, group: str) -> tuple[int, float]:
        """Return the one tier that a group stands in, and its score there."""
        found = self.places(group)
        assert len(found) == 1, f"{group!r} stands in {found}"
        return found[0]

    def places(self, group: str) -> list[tuple[int, float]]:
        """Return each tier that a group stands in, with its score there."""
        member = group.encode(errors="surrogateescape")
        scores = [(tier, self.redis.zscore(self.keys.ready(tier), member)) for tier in range(5)]
        return [(tier, score) for tier, score in scores if score is not None]

    def now_ms(self) -> float:
        """Return the server's time."""
        seconds, microseconds = self.redis.time()
        return seconds * 1000 + microseconds / 1000

    def depth(self, group: str) -> int:
        """Return how many messages a group has."""
        return self.redis.llen(self.keys.fifo(group).encode(errors="surrogateescape"))

    def named(self, name: str) -> str:
        """Return the full name of one of the shard's own keys."""
        return self.keys.named(name)

    def names(self) -> set[str]:
        """Return the shard's keys without their prefix."""
        found = self.redis.keys("*")
        return {
            key.decode(errors="surrogateescape").removeprefix(self.prefix + ":") for key in found
        }

    def dump(self, *, without: str = "") -> dict[str, tuple[str, Any, int]]:
        """Return everything that the server holds: type, content and expiry of each key."""
        content: dict[str, tuple[str, Any, int]] = {}
        left_out = self.named(without).encode()
        for key in sorted(set(self.redis.keys("*")) - {left_out}):
            kind = self.redis.type(key).decode()
            content[key.decode(errors="surrogateescape")] = (
                kind,
                _READERS[kind](self.redis, key),
                self.expiry(key),
            )
        return content

    def expiry(self, key: str | bytes) -> int:
        """Return the epoch-ms at which a key expires, -1 for never."""
        return self.redis.execute_command("PEXPIRETIME", key)


async def until(attempt: Callable[[], Awaitable[Any]], *, seconds: float = 20.0) -> Any:
    """Return the first answer of an attempt that is true; raise TimeoutError without one."""
    async with asyncio.timeout(seconds):
        while True:
            if answer := await attempt():
                return answer
            await asyncio.sleep(0.01)


def envelope(group: str, body: bytes = b"1", tier: int = 0) -> Envelope:
    """Return a message ready to be sent."""
    return Envelope(new_id(), group, tier, body)


@contextmanager
def look_inside(url: str, *, emptied: bool = True) -> Iterator[redis.Redis]:
    """Give a plain client of a server, which is emptied first."""
    client = redis.Redis.from_url(url, retry=None)
    try:
        if emptied:
            client.flushdb()
        yield client
    finally:
        client.close()


@asynccontextmanager
async def reach(executor: str, url: str, prefix: str, **options: Any) -> AsyncIterator[Any]:
    """Give a transport to a server by URL, to be awaited whichever executor it is."""
    with contextmanager(_handed_in)(executor, url) as client:
        transport: Any = (
            AsyncRedisTransport(client, prefix, **options)
            if executor == "async"
            else InThreads(RedisTransport(client, prefix, **options))
        )
        try:
            yield transport
        finally:
            await transport.close()


@asynccontextmanager
async def reach_fake(executor: str, prefix: str) -> AsyncIterator[Shard]:
    """Give a shard that lives in this process, as users' unit tests have it."""
    server = fakeredis.FakeServer()
    inside = fakeredis.FakeRedis(server=server)
    transport: Any = (
        AsyncRedisTransport(fakeredis.FakeAsyncRedis(server=server), prefix)
        if executor == "async"
        else InThreads(RedisTransport(fakeredis.FakeRedis(server=server), prefix))
    )
    try:
        yield Shard(transport, inside, prefix)
    finally:
        await transport.close()
        inside.close()


def load_scripts(client: redis.Redis) -> None:
    """Have the server know every script, so that no call needs its EVAL fallback."""
    for name in scripts.names():
        client.script_load(scripts.load(name).source)


def _handed_in(executor: str, url: str) -> Iterator[Any]:
    # A transport opens connections of its own; this client is only asked where to.
    if executor == "async":
        yield redis.asyncio.Redis.from_url(url)
        return
    client = redis.Redis.from_url(url)
    try:
        yield client
    finally:
        client.close()


_READERS: dict[str, Callable[[redis.Redis, bytes], Any]] = {
    "string": lambda client, key: client.get(key),
    "list": lambda client, key: client.lrange(key, 0, -1),
    "hash": lambda client, key: client.hgetall(key),
    "zset": lambda client, key: client.zrange(key, 0, -1, withscores=True),
    "set": lambda client, key: client.smembers(key),
    "stream": lambda client, key: client.xrange(key),
}
