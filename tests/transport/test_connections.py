"""Does the setting CONNECTION lead to the right server, once per process and event loop?"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.test import override_settings

from groupqueue import get_queue
from groupqueue.exceptions import ConfigurationError, UnknownQueue
from groupqueue.transport import connections
from groupqueue.transport import redis as transports
from groupqueue.transport.connections import (
    get_async_transport,
    get_transport,
    location,
    new_transport,
)
from tests.servers import Server, wait_until


def configured(connection: object, **keys: object) -> Any:
    """Give the settings a queue of that connection."""
    return override_settings(GROUPQUEUE={"default": {"CONNECTION": connection, **keys}})


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    connections.forget_transports()


def make_client() -> redis.Redis:
    """Stand for a project's own factory."""
    return redis.Redis(host="made.invalid", port=7, db=2)


def make_text() -> str:
    """Stand for a factory that is none."""
    return "redis://localhost"


ready_client = redis.Redis(host="ready.invalid", port=8)


@pytest.mark.parametrize(
    ("connection", "where"),
    [
        ("redis://here.invalid:7001/3", "redis://here.invalid:7001/3"),
        ("redis://user:secret@here.invalid/1", "redis://here.invalid:6379/1"),
        ("unix:///run/x.sock?db=4", "unix:///run/x.sock?db=4"),
        ("tests.transport.test_connections.make_client", "redis://made.invalid:7/2"),
        ("tests.transport.test_connections.ready_client", "redis://ready.invalid:8/0"),
        (make_client, "redis://made.invalid:7/2"),
    ],
)
def test_a_connection_leads_to_its_server_and_no_password_is_shown(connection, where):
    with configured(connection):
        assert location("default") == where


def test_a_cache_alias_leads_to_the_caches_server():
    caches = {
        "default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"},
        "queue": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://cache.invalid:7002/5",
            "OPTIONS": {"CLIENT_CLASS": "django_redis.client.DefaultClient"},
        },
    }
    with override_settings(CACHES=caches), configured("queue"):
        assert location("default") == "redis://cache.invalid:7002/5"


@pytest.mark.parametrize(
    ("connection", "named"),
    [
        ("redis://here:port/0", "CONNECTION"),
        ("default", "django-redis"),
        ("no_such_cache", "no_such_cache"),
        ("tests.no_such_module.client", "no_such_module"),
        ("tests.transport.test_connections.no_such_name", "no_such_name"),
        ("tests.transport.test_connections.make_text", "redis.Redis"),
        (lambda: None, "None"),
    ],
)
def test_a_connection_that_leads_nowhere_is_an_error_naming_its_path(connection, named):
    with configured(connection), pytest.raises(ConfigurationError, match=named) as refusal:
        new_transport("default")

    assert "GROUPQUEUE['default']['CONNECTION']" in str(refusal.value)


def test_looking_where_a_queue_lives_and_asking_without_patience_leave_no_connection(
    default_client: redis.Redis,
):
    gc.collect()
    alive = len(transports._transports)
    connected = len(default_client.client_list())
    with configured(default_client_url(default_client)):
        for _ in range(20):
            location("default")
            get_queue("default", patient=False).snapshot()

    gc.collect()
    assert len(transports._transports) <= alive
    wait_until(lambda: len(default_client.client_list()) == connected, "no other connections")


def test_an_unknown_queue_is_an_error_naming_it():
    for ask in (get_transport, new_transport, location):
        with pytest.raises(UnknownQueue, match="nowhere"):
            ask("nowhere")


def test_a_process_has_one_transport_per_queue(default_server: Server):
    two = {name: {"CONNECTION": default_server.url} for name in ("default", "other")}
    with override_settings(GROUPQUEUE=two):
        assert get_transport() is get_transport("default")
        assert get_transport("other") is not get_transport()
        assert get_transport("other").prefix == "gq:{other:0}"
        assert new_transport("default") is not get_transport()


def test_changed_settings_lead_to_a_new_transport(default_server: Server):
    with configured(default_server.url):
        before = get_transport()
    with configured("redis://elsewhere.invalid:1/0"):
        assert get_transport() is not before
        assert location("default") == "redis://elsewhere.invalid:1/0"


def test_the_queues_arrival_reaches_its_transports(default_client: redis.Redis):
    with configured(default_client_url(default_client), ARRIVAL="front"):
        get_transport().publish("group", b"1")

    assert default_client.zscore("gq:{default:0}:ready:0", "group") == 0


def default_client_url(client: redis.Redis) -> str:
    """Return the URL of the server that a client leads to."""
    kwargs = client.connection_pool.connection_kwargs
    return f"redis://{kwargs['host']}:{kwargs['port']}/{kwargs['db']}"


def test_each_event_loop_has_a_transport_of_its_own(default_client: redis.Redis):
    seen = []

    async def use() -> None:
        transport = get_async_transport()
        assert get_async_transport() is transport
        seen.append(transport)
        await transport.publish("group", b"1")
        await transport.close()

    asyncio.run(use())
    asyncio.run(use())

    assert seen[0] is not seen[1]
    assert default_client.llen("gq:{default:0}:q:group") == 2
