"""How a client that a user hands in becomes the client a transport needs.

Ours speaks bytes both ways and never repeats a command by itself: redis-py's own
retry would run a script a second time when only its reply was lost.
"""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from groupqueue.exceptions import InvalidArgument

# A server that answers nothing for this long counts as gone. Blocking waits are shorter.
SOCKET_TIMEOUT_SECONDS = 5.0
CONNECT_TIMEOUT_SECONDS = 2.0
MOST_CONNECTIONS = 100

_ASYNC_CONNECTIONS: dict[type, type] = {
    redis.Connection: redis.asyncio.Connection,
    redis.SSLConnection: redis.asyncio.SSLConnection,
    redis.UnixDomainSocketConnection: redis.asyncio.UnixDomainSocketConnection,
}
_SYNC_ONLY = ("retry", "parser_class", "command_packer", "socket_read_size", "oss_cluster_client")

# For people who wait for a page: an answer within two seconds, or word that there is none.
IMPATIENT_SECONDS = 0.9
LONGEST_WAIT_SECONDS = 2.5


def own_client(client: redis.Redis, *, patient: bool = True) -> redis.Redis:
    """Return a client of ours to the same server, with connections of its own."""
    if isinstance(client, redis.asyncio.Redis) or not isinstance(client, redis.Redis):
        raise InvalidArgument(f"RedisTransport takes a redis.Redis client, not {client!r}")
    kwargs = _own_kwargs(client, patient=patient) | {"retry": Retry(NoBackoff(), 0)}
    # The driver's pool refuses the 101st thread; the number of threads is limit enough.
    return redis.Redis(
        connection_pool=_pool(client, redis.ConnectionPool, kwargs, max_connections=2**31)
    )


def own_async_client(client: redis.asyncio.Redis, *, patient: bool = True) -> redis.asyncio.Redis:
    """Return a client of ours to the same server, with connections of its own."""
    if not isinstance(client, redis.asyncio.Redis):
        raise InvalidArgument(f"AsyncRedisTransport takes a redis.asyncio.Redis, not {client!r}")
    kwargs = _own_kwargs(client, patient=patient) | {"retry": AsyncRetry(NoBackoff(), 0)}
    # Coroutines come by the thousand: whoever finds no connection free waits for one.
    pool = _pool(
        client,
        redis.asyncio.BlockingConnectionPool,
        kwargs,
        max_connections=min(client.connection_pool.max_connections, MOST_CONNECTIONS),
        timeout=kwargs["socket_timeout"],
    )
    return redis.asyncio.Redis(connection_pool=pool)


def async_twin(client: redis.Redis) -> redis.asyncio.Redis:
    """Return an `async` client to the server that a sync client leads to."""
    pool = client.connection_pool
    twin = _async_counterpart(pool.connection_class)
    if twin is None:
        raise InvalidArgument(
            f"no async counterpart of {pool.connection_class.__name__} is known; "
            "make an AsyncRedisTransport from a redis.asyncio.Redis client"
        )
    kwargs = {
        name: value for name, value in pool.connection_kwargs.items() if name not in _SYNC_ONLY
    }
    return redis.asyncio.Redis(
        connection_pool=redis.asyncio.ConnectionPool(connection_class=twin, **kwargs)
    )


def knows_shebang(client: redis.Redis | redis.asyncio.Redis) -> bool:
    """Say whether scripts may declare flags: every supported server, but not fakeredis."""
    return "fakeredis" not in client.connection_pool.connection_class.__module__


def _async_counterpart(connection_class: type) -> type | None:
    if connection_class.__module__.startswith("fakeredis."):
        from fakeredis import FakeAsyncRedis  # noqa: PLC0415 - only where tests use it

        fake: type = FakeAsyncRedis().connection_pool.connection_class
        return fake
    return _ASYNC_CONNECTIONS.get(connection_class)


def _own_kwargs(client: Any, *, patient: bool) -> dict[str, Any]:
    own = {
        name: value
        for name, value in client.connection_pool.connection_kwargs.items()
        if name not in ("retry", "retry_on_timeout", "retry_on_error", "connection_pool")
    }
    own.update(decode_responses=False, encoding="utf-8", encoding_errors="surrogateescape")
    # None would wait for ever on a server that has gone without a word, and a shorter
    # one would cut a blocking wait.
    own["socket_timeout"] = max(own.get("socket_timeout") or 0, SOCKET_TIMEOUT_SECONDS)
    own["socket_connect_timeout"] = own.get("socket_connect_timeout") or CONNECT_TIMEOUT_SECONDS
    if not patient:
        own["socket_timeout"] = own["socket_connect_timeout"] = IMPATIENT_SECONDS
    return own


def _pool(client: Any, ours: Any, kwargs: dict[str, Any], **limits: Any) -> Any:
    """Return a new pool like the client's. Sentinel's asks for the primary by itself."""
    pool = client.connection_pool
    kwargs["connection_class"] = pool.connection_class
    if hasattr(pool, "sentinel_manager"):
        return type(pool)(
            pool.service_name, pool.sentinel_manager, is_master=pool.is_master, **kwargs
        )
    if not isinstance(pool, redis.ConnectionPool | redis.asyncio.ConnectionPool):
        raise InvalidArgument(f"a client with a {type(pool).__name__} is not supported")
    return ours(**kwargs, **limits)
