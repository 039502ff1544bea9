"""Does a cancelled call leave no reply behind that the next caller would take for its own?"""

from __future__ import annotations

import asyncio
import contextlib

import redis
import redis.asyncio

from groupqueue.core.messages import Lease
from groupqueue.transport.redis import AsyncRedisTransport
from tests.servers import Server

ROUNDS = 300


def foreign_leases(count: int) -> list[Lease]:
    """Return leases that nobody holds; renewing them is answered by as many words."""
    return [Lease(f"nobody-{n}", n, "0" * 32, b"", 0, 1, 0, 0, 0) for n in range(count)]


async def test_failure_20_the_next_caller_gets_its_own_reply_wherever_a_call_was_cancelled(
    server: Server, redis_client: redis.Redis, queue_prefix: str
):
    transport = AsyncRedisTransport(redis.asyncio.Redis.from_url(server.url), queue_prefix)
    cancelled = 0
    for number in range(ROUNDS):
        call = asyncio.create_task(transport.publish(f"group-{number}", b"x" * 200_000))
        for _ in range(number % 15):
            await asyncio.sleep(0)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        cancelled += call.cancelled()

        leases = foreign_leases(1 + number % 7)
        assert await transport.renew(leases, 30) == leases
    await transport.close()

    assert cancelled > ROUNDS / 10


async def test_failure_20_cancelled_waits_leave_nothing_for_the_next_caller(
    server: Server, redis_client: redis.Redis, queue_prefix: str
):
    transport = AsyncRedisTransport(redis.asyncio.Redis.from_url(server.url), queue_prefix)
    for number in range(50):
        waiting = asyncio.create_task(transport.wait_for_hint(5))
        for _ in range(number % 10):
            await asyncio.sleep(0)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting

        await transport.publish("group", b"1")
        lease = await transport.claim("worker", 30)
        assert lease.group == "group"
        assert await transport.ack(lease) == 0
    await transport.close()


async def test_calls_that_run_beside_cancelled_ones_get_their_own_replies(
    server: Server, redis_client: redis.Redis, queue_prefix: str
):
    transport = AsyncRedisTransport(redis.asyncio.Redis.from_url(server.url), queue_prefix)

    async def steady(count: int) -> None:
        leases = foreign_leases(count)
        for _ in range(30):
            assert await transport.renew(leases, 30) == leases

    async def fickle(number: int) -> None:
        for step in range(30):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.0005 * (step % 5)):
                    await transport.publish(f"group-{number}", b"1")

    await asyncio.gather(*(steady(n) for n in range(1, 9)), *(fickle(n) for n in range(8)))
    await transport.close()


async def test_a_cancelled_publish_keeps_later_ones_from_passing_for_its_repetition(
    server: Server, redis_client: redis.Redis, queue_prefix: str
):
    transport = AsyncRedisTransport(redis.asyncio.Redis.from_url(server.url), queue_prefix)
    for number in range(100):
        call = asyncio.create_task(transport.publish("cancelled", b"1"))
        for _ in range(number % 12):
            await asyncio.sleep(0)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        await transport.publish("kept", b"1")
    await transport.close()

    assert redis_client.llen(f"{queue_prefix}:q:kept") == 100
