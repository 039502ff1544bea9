"""Does a transport serve every client that users hand in, on its own terms?"""

from __future__ import annotations

import asyncio
import threading
from typing import ClassVar

import pytest
import redis
import redis.asyncio
import redis.sentinel

from groupqueue.exceptions import InvalidArgument, ServerUnavailable
from groupqueue.transport import clients
from groupqueue.transport.clients import async_twin, own_client
from groupqueue.transport.redis import AsyncRedisTransport, RedisTransport
from tests.servers import Server
from tests.transport.conftest import EXECUTORS
from tests.transport.shards import InThreads, reach

UNUSUAL = {
    "answers as text": {"decode_responses": True},
    "another encoding": {"encoding": "latin-1", "decode_responses": True},
    "RESP3": {"protocol": 3},
    "RESP2": {"protocol": 2},
    "short timeouts": {"socket_timeout": 0.01, "socket_connect_timeout": 5},
    "a name": {"client_name": "web"},
    "health checks": {"health_check_interval": 1},
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("options", UNUSUAL.values(), ids=UNUSUAL)
async def test_failure_21_a_client_with_unusual_options_is_served_correctly(
    server: Server, redis_client: redis.Redis, queue_prefix: str, executor: str, options
):
    module = redis.asyncio if executor == "async" else redis
    handed_in = module.Redis.from_url(server.url, **options)
    transport = (
        AsyncRedisTransport(handed_in, queue_prefix)
        if executor == "async"
        else InThreads(RedisTransport(handed_in, queue_prefix))
    )
    try:
        await transport.publish("grüppe", b"\xff\0payload", 2)
        lease = await transport.claim("wörker", 30)
        assert (lease.group, lease.payload, lease.priority) == ("grüppe", b"\xff\0payload", 2)
        assert await transport.renew([lease], 60) == []
        assert await transport.ack(lease) == 0
        # The publish left a hint; the second wait outlasts the shortest timeout above.
        assert await transport.wait_for_hint(1) is True
        assert await transport.wait_for_hint(0.1) is False
    finally:
        await transport.close()


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_groups_that_are_no_utf8_come_and_go_unharmed(
    server: Server, redis_client: redis.Redis, queue_prefix: str, executor: str
):
    # Only other programs can write such a group; a worker must still get past it.
    redis_client.rpush(f"{queue_prefix}:q:\udcff".encode(errors="surrogateescape"), b"\xfe" * 60)
    redis_client.zadd(f"{queue_prefix}:ready:0", {b"\xff": 1})
    async with reach(executor, server.url, queue_prefix) as transport:
        lease = await transport.claim("worker", 30)
        assert lease.payload == b"\xfe" * 60
        assert await transport.renew([lease], 30) == []
        assert await transport.ack(lease) == 0


async def test_a_client_of_the_other_kind_is_refused():
    sync, asynchronous = redis.Redis(), redis.asyncio.Redis()
    with pytest.raises(InvalidArgument, match=r"redis\.Redis"):
        RedisTransport(asynchronous, "gq:{q:0}")
    with pytest.raises(InvalidArgument, match="asyncio"):
        AsyncRedisTransport(sync, "gq:{q:0}")
    with pytest.raises(InvalidArgument, match="not str"):
        RedisTransport("redis://localhost", "gq:{q:0}")
    sync.close()


def test_nothing_connects_before_the_first_call():
    transport = RedisTransport(redis.Redis(host="no-such-host.invalid"), "gq:{q:0}")

    assert transport.client.connection_pool.connection_kwargs["host"] == "no-such-host.invalid"
    transport.close()


def test_the_client_handed_in_is_left_as_it_was(server: Server, redis_client: redis.Redis):
    handed_in = redis.Redis.from_url(server.url, decode_responses=True)
    transport = RedisTransport(handed_in, "gq:{q:0}")
    transport.publish("group", b"1")

    assert transport.client.connection_pool is not handed_in.connection_pool
    assert handed_in.llen("gq:{q:0}:q:group") == 1
    assert handed_in.lrange("gq:{q:0}:q:group", 0, 0)[0].endswith("1")
    transport.close()
    assert handed_in.ping()
    handed_in.close()


def test_a_sentinels_client_leads_to_a_pool_that_asks_the_sentinel():
    sentinel = redis.sentinel.Sentinel([("127.0.0.1", 1)])
    ours = own_client(sentinel.master_for("primary", db=3))

    pool = ours.connection_pool
    assert isinstance(pool, redis.sentinel.SentinelConnectionPool)
    assert (pool.service_name, pool.is_master) == ("primary", True)
    assert pool.connection_kwargs["db"] == 3
    (asked,) = pool.sentinel_manager.sentinels
    assert asked.connection_pool.connection_kwargs["port"] == 1
    assert asked is not sentinel.sentinels[0]


@pytest.mark.parametrize(
    "client",
    [
        redis.Redis(host="here", port=7, db=3, username="u", password="p"),
        redis.Redis(unix_socket_path="/tmp/x.sock", db=2),
        redis.Redis.from_url("rediss://here:7/1", ssl_cert_reqs="none"),
    ],
)
async def test_an_async_twin_leads_to_the_same_server(client: redis.Redis):
    twin = async_twin(client)

    mine, theirs = twin.connection_pool.connection_kwargs, client.connection_pool.connection_kwargs
    for name in ("host", "port", "db", "username", "password", "path", "ssl_cert_reqs"):
        assert mine.get(name) == theirs.get(name)
    assert isinstance(twin, redis.asyncio.Redis)
    connection = twin.connection_pool.make_connection()
    assert type(connection).__name__ == client.connection_pool.connection_class.__name__


async def test_a_connection_of_the_users_own_making_has_no_known_twin():
    class Connection(redis.Connection):
        pass

    client = redis.Redis(connection_pool=redis.ConnectionPool(connection_class=Connection))

    with pytest.raises(InvalidArgument, match="AsyncRedisTransport"):
        async_twin(client)


def test_a_pool_of_the_users_own_making_is_refused_by_name():
    class Pool:
        connection_kwargs: ClassVar[dict[str, object]] = {}
        connection_class = redis.Connection

    client = redis.Redis()
    client.connection_pool = Pool()

    with pytest.raises(InvalidArgument, match="Pool"):
        own_client(client)


async def test_a_thousand_async_calls_at_once_are_all_answered(
    server: Server, redis_client: redis.Redis, queue_prefix: str
):
    async with reach("async", server.url, queue_prefix) as transport:
        answers = await asyncio.gather(
            *(transport.publish(f"g{n}", b"1") for n in range(1000)), return_exceptions=True
        )

    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert redis_client.zcard(f"{queue_prefix}:ready:0") == 1000


async def test_waiting_for_a_free_connection_has_no_deadline(
    server: Server, redis_client: redis.Redis, queue_prefix: str, monkeypatch
):
    # Far more waiting than a server may take to answer, as ten thousand calls would have.
    monkeypatch.setattr(clients, "SOCKET_TIMEOUT_SECONDS", 0.6)
    few = redis.asyncio.Redis.from_url(server.url, max_connections=2)
    transport = AsyncRedisTransport(few, queue_prefix)

    waits = [transport.wait_for_hint(0.3) for _ in range(12)]
    answers = await asyncio.gather(*waits, return_exceptions=True)
    await transport.close()

    assert answers == [False] * 12
    assert len(transport.client.connection_pool._available_connections) == 2


async def test_a_call_that_was_cancelled_while_it_waited_takes_no_connection_along(
    server: Server, redis_client: redis.Redis, queue_prefix: str
):
    one = redis.asyncio.Redis.from_url(server.url, max_connections=1)
    transport = AsyncRedisTransport(one, queue_prefix)
    for number in range(40):
        calls = [asyncio.create_task(transport.wait_for_hint(0.05)) for _ in range(4)]
        for _ in range(number):
            await asyncio.sleep(0)
        for call in calls[number % 4 :]:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    await transport.publish("group", b"1")
    await transport.close()

    assert redis_client.llen(f"{queue_prefix}:q:group") == 1


def test_more_threads_than_a_pool_has_by_default_can_wait_at_once(
    server: Server, redis_client: redis.Redis, queue_prefix: str
):
    transport = RedisTransport(redis.Redis.from_url(server.url), queue_prefix)
    all_started = threading.Barrier(120)
    woken: list[object] = []

    def wait() -> None:
        all_started.wait()
        try:
            woken.append(transport.wait_for_hint(0.3))
        except ServerUnavailable as error:
            woken.append(error)

    threads = [threading.Thread(target=wait) for _ in range(120)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    transport.close()

    assert woken == [False] * 120


@pytest.mark.parametrize("patient", [True, False])
def test_a_timeout_is_never_shorter_than_a_wait_or_longer_than_patience(*, patient: bool):
    for given in (None, 0.1, 600):
        ours = own_client(redis.Redis(socket_timeout=given), patient=patient)
        timeout = ours.connection_pool.connection_kwargs["socket_timeout"]
        if patient:
            assert timeout > clients.LONGEST_WAIT_SECONDS
        else:
            assert timeout < 1
