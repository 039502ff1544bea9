"""How a client that a user hands in becomes the client a transport needs.

Ours speaks bytes both ways and never repeats a command by itself: redis-py's own
retry would run a script a second time when only its reply was lost.
"""

from __future__ import annotations

import copy

# Connecting imports it; a fork in the middle of that would leave the child its lock, held.
import encodings.idna  # noqa: F401
import functools
import inspect
from collections.abc import Callable
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from groupqueue.exceptions import InvalidArgument
from groupqueue.transport.embedded_connections import (
    AsyncEmbeddedConnection,
    EmbeddedConnection,
)
from groupqueue.transport.interrupts import unbroken

# A server that answers nothing for this long counts as gone. Blocking waits are shorter.
SOCKET_TIMEOUT_SECONDS = 5.0
CONNECT_TIMEOUT_SECONDS = 2.0
MOST_CONNECTIONS = 100

_ASYNC_CONNECTIONS: dict[type, type] = {
    redis.Connection: redis.asyncio.Connection,
    redis.SSLConnection: redis.asyncio.SSLConnection,
    redis.UnixDomainSocketConnection: redis.asyncio.UnixDomainSocketConnection,
    EmbeddedConnection: AsyncEmbeddedConnection,
}
# Nobody is refused a connection: threads are limit enough, and coroutines wait for their turn.
_UNLIMITED = 2**31
# What the driver keeps in a pool's options for that pool's own use.
_OF_THE_POOL = (
    "connection_pool",
    "himport_registry",
    "maint_notifications_config",
    "maint_notifications_pool_handler",
    "orig_host_address",
    "orig_socket_connect_timeout",
    "orig_socket_timeout",
)
_RETRYING = ("retry", "retry_on_timeout", "retry_on_error")
_SYNC_ONLY = ("retry", "parser_class", "command_packer", "socket_read_size", "oss_cluster_client")

# For people who wait for a page: an answer within two seconds, or word that there is none.
IMPATIENT_SECONDS = 0.9
LONGEST_WAIT_SECONDS = 2.5


def own_client(client: redis.Redis, *, patient: bool = True) -> redis.Redis:
    """Return a client of ours to the same server, with connections of its own."""
    if isinstance(client, redis.asyncio.Redis) or not isinstance(client, redis.Redis):
        raise InvalidArgument(f"RedisTransport takes a redis.Redis client, not {kind_of(client)}")
    kwargs = _own_kwargs(client, patient=patient) | {"retry": Retry(NoBackoff(), 0)}
    own = functools.partial(own_client, patient=patient)
    return redis.Redis(connection_pool=_pool(client, redis.ConnectionPool, kwargs, own))


def own_async_client(client: redis.asyncio.Redis, *, patient: bool = True) -> redis.asyncio.Redis:
    """Return a client of ours to the same server, with connections of its own."""
    if not isinstance(client, redis.asyncio.Redis):
        raise InvalidArgument(
            f"AsyncRedisTransport takes a redis.asyncio.Redis, not {kind_of(client)}"
        )
    kwargs = _own_kwargs(client, patient=patient) | {"retry": AsyncRetry(NoBackoff(), 0)}
    own = functools.partial(own_async_client, patient=patient)
    return redis.asyncio.Redis(
        connection_pool=_pool(client, redis.asyncio.ConnectionPool, kwargs, own)
    )


def connection_limit(client: redis.asyncio.Redis) -> int:
    """Return how many connections coroutines, who come by the thousand, may share."""
    return min(int(client.connection_pool.max_connections), MOST_CONNECTIONS)


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
        name: value
        for name, value in pool.connection_kwargs.items()
        if name not in _SYNC_ONLY + _OF_THE_POOL
    }
    return redis.asyncio.Redis(
        connection_pool=redis.asyncio.ConnectionPool(connection_class=twin, **kwargs)
    )


def kind_of(thing: object) -> str:
    """Say what a thing is that is no client: some drivers show a client's password, and a text
    that was meant for one may be a URL with a password in it."""
    kind = type(thing)
    in_module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return in_module + kind.__qualname__


def is_fake(client: redis.Redis | redis.asyncio.Redis) -> bool:
    """Say whether there is no server, but fakeredis, which does not know a script's flags."""
    return "fakeredis" in client.connection_pool.connection_class.__module__


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
        if name not in _RETRYING + _OF_THE_POOL
    }
    own.update(decode_responses=False, encoding="utf-8", encoding_errors="surrogateescape")
    # None would wait for ever on a server that has gone without a word, and a shorter
    # one would cut a blocking wait.
    own["socket_timeout"] = max(own.get("socket_timeout") or 0, SOCKET_TIMEOUT_SECONDS)
    own["socket_connect_timeout"] = own.get("socket_connect_timeout") or CONNECT_TIMEOUT_SECONDS
    if not patient:
        own["socket_timeout"] = own["socket_connect_timeout"] = IMPATIENT_SECONDS
    return own


def _pool(client: Any, ours: Any, kwargs: dict[str, Any], own: Callable[[Any], Any]) -> Any:
    """Return a new pool like the client's. Sentinel's asks for the primary by itself."""
    pool = client.connection_pool
    kwargs |= {"connection_class": pool.connection_class, "max_connections": _UNLIMITED}
    if not is_fake(client):
        kwargs["connection_class"] = unbroken(pool.connection_class)
    if "maint_notifications_config" in inspect.signature(ours).parameters:
        from redis.maint_notifications import (  # noqa: PLC0415 - not in redis-py 6
            MaintNotificationsConfig,
        )

        # With them a pool overlooks a reply that somebody left unread.
        kwargs["maint_notifications_config"] = MaintNotificationsConfig(enabled=False)
    if hasattr(pool, "sentinel_manager"):
        # With clients of its own, since theirs can be locked at a fork like any other.
        manager = copy.copy(pool.sentinel_manager)
        manager.sentinels = [own(sentinel) for sentinel in manager.sentinels]
        return type(pool)(pool.service_name, manager, is_master=pool.is_master, **kwargs)
    if not isinstance(pool, redis.ConnectionPool | redis.asyncio.ConnectionPool):
        raise InvalidArgument(f"a client with a {type(pool).__name__} is not supported")
    return ours(**kwargs)
