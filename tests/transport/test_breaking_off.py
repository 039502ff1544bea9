"""Can a wait for a hint be broken off, and does that leave nothing behind?"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import fakeredis
import pytest
import redis

from groupqueue.exceptions import ServerUnavailable
from groupqueue.transport.redis import RedisTransport
from tests.servers import Server, wait_until

AN_HOUR = 3600.0


@pytest.fixture(autouse=True)
def long_waits(monkeypatch) -> None:
    """Let a wait take as long as it is asked to."""
    monkeypatch.setattr("groupqueue.transport.redis.LONGEST_WAIT_SECONDS", AN_HOUR)


@pytest.fixture
def transport(own_server: Server, queue_prefix: str) -> Iterator[RedisTransport]:
    transport = RedisTransport(redis.Redis.from_url(own_server.url), queue_prefix)
    yield transport
    transport.close()


def waiting(server: Server) -> int:
    """Return how many clients wait at the server."""
    with redis.Redis.from_url(server.url) as client:
        return sum("b" in told["flags"] for told in client.client_list(_type="normal"))


def test_a_wait_goes_on_until_a_hint_comes(transport: RedisTransport, own_server: Server):
    told: list[bool] = []
    waiter = threading.Thread(
        target=lambda: told.append(transport.wait_for_hint(AN_HOUR, goes_on=lambda: True))
    )
    waiter.start()
    wait_until(lambda: waiting(own_server), "the wait")

    transport.publish("group", b"1")

    waiter.join()
    assert told == [True]


def test_a_wait_ends_with_its_timeout(transport: RedisTransport):
    assert transport.wait_for_hint(0.05, goes_on=lambda: True) is False


def test_a_wait_that_is_broken_off_leaves_nothing_behind(
    transport: RedisTransport, own_server: Server
):
    asked = itertools.count(1)

    assert transport.wait_for_hint(AN_HOUR, goes_on=lambda: next(asked) < 3) is False

    assert next(asked) == 4
    wait_until(lambda: not waiting(own_server), "the end of the wait")
    # Neither the hint nor the connection went with it.
    transport.publish("group", b"1")
    assert transport.wait_for_hint(AN_HOUR, goes_on=lambda: True) is True
    lease = transport.claim("worker", 60)
    assert lease is not None
    assert transport.ack(lease) == 0


def test_a_wait_in_which_an_exception_is_raised_leaves_nothing_behind(
    transport: RedisTransport, own_server: Server
):
    def break_off() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transport.wait_for_hint(AN_HOUR, goes_on=break_off)

    transport.publish("group", b"1")
    assert transport.claim("worker", 60) is not None


def test_a_server_that_falls_silent_is_not_waited_for(
    transport: RedisTransport, own_server: Server, monkeypatch
):
    monkeypatch.setattr("groupqueue.transport.redis.SOCKET_TIMEOUT_SECONDS", 0.3)
    transport.publish("group", b"1")
    assert transport.wait_for_hint(1, goes_on=lambda: True)
    own_server.pause()
    try:
        with pytest.raises(ServerUnavailable, match="overdue"):
            transport.wait_for_hint(0.01, goes_on=lambda: True)
    finally:
        own_server.resume()
    transport.publish("other", b"1")
    assert transport.claim("worker", 60) is not None


def test_a_server_that_goes_away_is_an_error(transport: RedisTransport, own_server: Server):
    ended = threading.Thread(
        target=lambda: (wait_until(lambda: waiting(own_server), ""), own_server.kill())
    )
    ended.start()

    with pytest.raises(ServerUnavailable):
        transport.wait_for_hint(AN_HOUR, goes_on=lambda: True)
    ended.join()


def test_where_the_pool_knows_the_way_a_wait_cannot_be_broken_off(transport: RedisTransport):
    faked = RedisTransport(fakeredis.FakeRedis(), "gq:{q:0}")

    assert transport.breaks_off
    assert not faked.breaks_off
    assert faked.wait_for_hint(0.01, goes_on=lambda: False) is False
