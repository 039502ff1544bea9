"""Which server a queue lives on: its setting CONNECTION becomes a client, once per process."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from typing import Any
from urllib.parse import urlsplit

import redis
import redis.asyncio
from django.core.cache import InvalidCacheBackendError
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from groupqueue import conf
from groupqueue.core.keys import shard_prefix
from groupqueue.exceptions import ConfigurationError
from groupqueue.transport.clients import async_twin, kind_of
from groupqueue.transport.embedded import parse_embedded_url
from groupqueue.transport.embedded_connections import embedded_client
from groupqueue.transport.errors import ANY, translated
from groupqueue.transport.redis import AsyncRedisTransport, RedisTransport

_URL_SCHEMES = ("redis://", "rediss://", "unix://")
_EMBEDDED_SCHEME = "embedded://"

_lock = threading.Lock()
_transports: dict[str, RedisTransport] = {}
# One per event loop: a connection belongs to the loop it was opened in, and keeps it alive.
_async_transports: dict[asyncio.AbstractEventLoop, dict[str, AsyncRedisTransport]] = {}


def get_transport(queue: str = "default") -> RedisTransport:
    """Return this process's transport of a queue; raises UnknownQueue."""
    transport = _transports.get(queue)
    if transport is None:
        made = new_transport(queue)
        with _lock:
            transport = _transports.setdefault(queue, made)
    return transport


def get_async_transport(queue: str = "default") -> AsyncRedisTransport:
    """Return the running event loop's transport of a queue; raises UnknownQueue."""
    loop = asyncio.get_running_loop()
    with _lock:
        if loop not in _async_transports:
            _forget_closed_loops()
        of_loop = _async_transports.setdefault(loop, {})
    if queue not in of_loop:
        config = conf.get_config(queue)
        client = async_twin(_client(config))
        of_loop[queue] = AsyncRedisTransport(
            client,
            shard_prefix(config.name),
            arrival=config.arrival,
            max_group_depth=config.max_group_depth or 0,
        )
    return of_loop[queue]


def new_transport(queue: str, *, patient: bool = True) -> RedisTransport:
    """Return a transport with connections that nobody else uses."""
    config = conf.get_config(queue)
    return RedisTransport(
        _client(config),
        shard_prefix(config.name),
        arrival=config.arrival,
        max_group_depth=config.max_group_depth or 0,
        patient=patient,
    )


def location(queue: str) -> str:
    """Return where the queue lives, for people: never with a password in it."""
    return _place(_client(conf.get_config(queue)))


def lives_in_cache(queue: str, alias: str) -> bool:
    """Say whether the queue lives in the database that a cache of the project uses."""
    places = [
        _place(_from_url(url, f"CACHES[{alias!r}]['LOCATION']", db=options.get("db") or 0))
        for url, options in conf.cache_locations(alias)
        if url.startswith(_URL_SCHEMES)
    ]
    return bool(places) and _comparable(location(queue)) in map(_comparable, places)


def check_url(url: str, path: str) -> None:
    """Raise ConfigurationError naming the path unless the URL is one that can be connected to."""
    _from_url(url, path)


def _forget_closed_loops() -> None:
    """Let go of connections whose loop has ended, as each `async_to_sync` ends one.

    Nobody can close them in order any more; collected, they close their sockets.
    """
    for loop in [loop for loop in _async_transports if loop.is_closed()]:
        del _async_transports[loop]


@conf.on_reset
def forget_transports() -> None:
    """Drop the cached transports, so that changed settings take effect."""
    with _lock:
        dropped = list(_transports.values())
        _transports.clear()
        _async_transports.clear()
    for transport in dropped:
        transport.close()


def _place(client: redis.Redis) -> str:
    pool = client.connection_pool
    kwargs = pool.connection_kwargs
    if "path" in kwargs:
        return f"unix://{kwargs['path']}?db={kwargs.get('db') or 0}"
    scheme = "rediss" if issubclass(pool.connection_class, redis.SSLConnection) else "redis"
    host, port = kwargs.get("host", "?"), kwargs.get("port", 6379)
    return f"{scheme}://{host}:{port}/{kwargs.get('db') or 0}"


def _comparable(place: str) -> str:
    return place.replace("//localhost:", "//127.0.0.1:")


def _client(config: conf.QueueConfig) -> redis.Redis:
    connection = config.connection
    path = f"GROUPQUEUE[{config.name!r}]['CONNECTION']"
    if isinstance(connection, str):
        if connection.startswith(_EMBEDDED_SCHEME):
            return embedded_client(parse_embedded_url(connection))
        if connection.startswith(_URL_SCHEMES):
            return _from_url(connection, path)
        if "." not in connection:
            return _from_django_redis(connection, path)
        try:
            connection = import_string(connection)
        except ImportError as error:
            raise ConfigurationError(f"{path}: {connection!r} cannot be imported") from error
    try:
        client: Any = connection() if callable(connection) else connection
    except ANY as error:
        raise translated(error) from error
    if not isinstance(client, redis.Redis):
        raise ConfigurationError(f"{path} must lead to a redis.Redis client, not {kind_of(client)}")
    return client


def _from_url(url: str, path: str, **options: Any) -> redis.Redis:
    _refuse_broken(url, path)
    try:
        return _with_known_options(redis.Redis.from_url(url, **options))
    except (ValueError, TypeError, redis.RedisError) as error:
        raise ConfigurationError(f"{path} is no valid Redis URL: {error}") from None


def _with_known_options(client: redis.Redis) -> redis.Redis:
    """Return the client; raise TypeError and its like for options that no connection knows."""
    pool = client.connection_pool
    if type(pool) is redis.ConnectionPool:
        pool.connection_class(**pool.connection_kwargs)
    return client


def _refuse_broken(url: str, path: str) -> None:
    """Raise ConfigurationError for a URL that falls apart in the wrong places.

    A password whose characters were not escaped makes it so, and nothing of it may be
    shown: not by the driver's errors, and not as the port of a wrong host.
    """
    reason = ""
    try:
        parts = urlsplit(url)
    except ValueError:
        reason = "it cannot be taken apart"
    else:
        try:
            _ = parts.port
        except ValueError:
            reason = "its port is no port's number"
        # The driver would take another path for database 0, and leave the others out.
        if parts.scheme != "unix" and not re.fullmatch(r"/?\d*/?", parts.path):
            reason = "its path is no database's number"
        elif "#" in url:
            reason = "it has a # in it"
        elif parts.query and not all("=" in option for option in parts.query.split("&")):
            reason = "what follows its ? is not name=value"
    if reason:
        raise ConfigurationError(f"{path} is no valid Redis URL: {reason}") from None


def _from_django_redis(alias: str, path: str) -> redis.Redis:
    try:
        from django_redis import get_redis_connection  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            f"{path} names the cache {alias!r}, which takes django-redis: "
            "pip install groupqueue[django-redis], or give a redis:// URL"
        ) from error
    for url, _ in conf.cache_locations(alias):
        if url.startswith(_URL_SCHEMES):
            _refuse_broken(url, f"CACHES[{alias!r}]['LOCATION']")
    try:
        return _with_known_options(get_redis_connection(alias))
    except (InvalidCacheBackendError, NotImplementedError) as error:
        raise ConfigurationError(
            f"{path} names the cache {alias!r}, which is not a django-redis cache in CACHES"
        ) from error
    except (ImproperlyConfigured, ValueError, TypeError, redis.RedisError) as error:
        raise ConfigurationError(
            f"CACHES[{alias!r}], which is {path}, leads to no server: {error}"
        ) from None


def _unlock_after_fork() -> None:
    """Have a lock of one's own: another thread may have held the parent's at the fork."""
    global _lock  # noqa: PLW0603 - a lock cannot be told that its holder is gone
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_after_fork)
