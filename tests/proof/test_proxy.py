"""Is the soak's proxy the bad network that it is told to be, and else a good one?"""

from __future__ import annotations

import contextlib
import gc
import socket
from collections.abc import Iterator

import pytest
import redis

from proof.soak.proxy import Proxy
from tests.servers import Server, wait_until

SOON = 1.0


@pytest.fixture
def proxy(default_server: Server) -> Iterator[Proxy]:
    with contextlib.closing(Proxy(default_server.port)) as proxy:
        yield proxy


@pytest.fixture
def near(default_client: redis.Redis) -> redis.Redis:
    """A client of the server itself."""
    return default_client


@pytest.fixture
def far(proxy: Proxy) -> Iterator[redis.Redis]:
    """A client behind the proxy, with one connection, that soon gives up."""
    with _client(proxy) as client:
        client.ping()
        yield client


def _client(proxy: Proxy) -> redis.Redis:
    return redis.Redis.from_url(
        proxy.url, socket_timeout=SOON, retry=None, single_connection_client=True
    )


def test_what_is_sent_arrives_whole(near: redis.Redis, far: redis.Redis) -> None:
    value = b"0123456789" * 100_000
    far.set("key", value)
    assert near.get("key") == value
    assert far.get("key") == value


def test_a_cut_ends_connections_and_lets_new_ones_through(proxy: Proxy, far: redis.Redis) -> None:
    assert proxy.cut() == 1
    with pytest.raises(redis.ConnectionError):
        far.ping()
    with _client(proxy) as another:
        assert another.ping()


def test_a_delay_holds_everything_back_until_it_is_taken_away(
    proxy: Proxy, far: redis.Redis
) -> None:
    proxy.delay(60)
    with pytest.raises(redis.TimeoutError):
        far.ping()
    proxy.delay(0)
    with _client(proxy) as another:
        assert another.ping()


def test_swallowed_requests_do_not_reach_the_server(
    proxy: Proxy, near: redis.Redis, far: redis.Redis
) -> None:
    proxy.swallow("requests")
    with pytest.raises(redis.TimeoutError):
        far.incr("key")
    wait_until(lambda: proxy.caught == 1, "the request")
    assert near.get("key") is None

    assert proxy.release("requests", late=False) == 1
    wait_until(lambda: proxy.connections == 0, "the end of the connection")
    assert near.get("key") is None


def test_swallowed_requests_arrive_late_when_asked_for(
    proxy: Proxy, near: redis.Redis, far: redis.Redis
) -> None:
    proxy.swallow("requests")
    with pytest.raises(redis.TimeoutError):
        far.incr("key")  # its client has closed the connection by now
    wait_until(lambda: proxy.caught == 1, "the request")

    assert proxy.release("requests", late=True) == 1
    wait_until(lambda: near.get("key") == b"1", "the late request")
    wait_until(lambda: proxy.connections == 0, "the end of the connection")


def test_swallowed_replies_leave_what_was_done(
    proxy: Proxy, near: redis.Redis, far: redis.Redis
) -> None:
    proxy.swallow("replies")
    with pytest.raises(redis.TimeoutError):
        far.incr("key")
    wait_until(lambda: near.get("key") == b"1", "the request")

    proxy.release("replies", late=False)
    with _client(proxy) as another:
        assert another.get("key") == b"1"


def test_new_connections_are_swallowed_too(proxy: Proxy, near: redis.Redis) -> None:
    proxy.swallow("requests")
    with pytest.raises(redis.TimeoutError):
        _client(proxy)  # nobody answers its greeting
    proxy.heal()
    assert not near.exists("key")
    with _client(proxy) as another:
        assert another.ping()


def test_clients_are_led_to_another_server(proxy: Proxy, far: redis.Redis) -> None:
    far.set("key", "here")
    with contextlib.closing(Proxy(proxy.port)) as other:
        # As good as another server: it has other connections.
        other.lead_to(proxy.port)
        with _client(other) as client:
            assert client.get("key") == b"here"
            other.lead_to(1)
            with pytest.raises(redis.ConnectionError):
                client.get("key")
            with pytest.raises(redis.ConnectionError):
                client.get("key")


def test_nothing_is_left_of_a_closed_proxy(default_server: Server) -> None:
    proxy = Proxy(default_server.port)
    with _client(proxy) as client:
        client.ping()
        proxy.close()
        with contextlib.suppress(redis.ConnectionError):
            client.ping()
        with pytest.raises(redis.ConnectionError):
            client.ping()
    assert not proxy._thread.is_alive()


def test_nothing_is_left_of_a_proxy_that_is_closed_while_clients_come(
    default_server: Server,
) -> None:
    for _ in range(50):
        with (
            contextlib.ExitStack() as stack,
            contextlib.closing(Proxy(default_server.port)) as proxy,
        ):
            for _ in range(10):
                address = ("127.0.0.1", proxy.port)
                stack.enter_context(socket.create_connection(address))
    gc.collect()  # what was not closed says so when it is collected, and fails the test
