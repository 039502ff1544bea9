"""Can a call be sent now and its reply be awaited later, whatever comes in between?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fakeredis
import pytest
import redis

from groupqueue.core import calls
from groupqueue.core.calls import Call, Turned
from groupqueue.exceptions import ServerUnavailable, WrongKeyType
from groupqueue.transport.redis import RedisTransport
from tests.servers import Server, free_port
from tests.transport.proxy import Proxy


@pytest.fixture
def transport(server: Server, queue_prefix: str) -> Iterator[RedisTransport]:
    transport = RedisTransport(redis.Redis.from_url(server.url), queue_prefix)
    transport.begin(claiming(transport))()  # from now on the server knows the script
    yield transport
    transport.close()


def claiming(transport: RedisTransport, want: int = 1) -> Call[Turned]:
    return calls.turn(transport.prefix, "worker", [], want, visibility_ms=60_000)


def groups(turned: Turned) -> list[str]:
    return [lease.group for lease in turned.leases]


def test_what_was_sent_is_done_before_its_reply_is_awaited(transport: RedisTransport):
    transport.publish("a", b"1")

    answer = transport.begin(claiming(transport))

    # A call in between has a connection of its own.
    assert transport.turn("another", [], 1, visibility=60).leases == []
    assert groups(answer()) == ["a"]


def test_replies_go_to_whoever_asked_in_any_order(transport: RedisTransport):
    for group in ("a", "b", "c"):
        transport.publish(group, b"1")

    answers = [transport.begin(claiming(transport)) for _ in range(3)]
    found = [groups(answer()) for answer in reversed(answers)]

    assert sorted(found) == [["a"], ["b"], ["c"]]
    assert transport.turn("worker", [], 1, visibility=60).leases == []


def test_leases_can_be_decoded_later(transport: RedisTransport):
    transport.publish("a", b"body", priority=3)
    call = calls.turn(transport.prefix, "worker", [], 1, visibility_ms=60_000, decode_leases=False)

    turned = transport.begin(call)()

    assert turned.leases == []
    [row] = turned.rows
    lease = calls.lease_of(row)
    assert (lease.group, lease.payload, lease.priority) == ("a", b"body", 3)
    assert calls.token_of(row) == lease.token


def test_a_server_that_does_not_know_the_script_is_sent_it(transport: RedisTransport):
    transport.publish("a", b"1")
    transport.client.script_flush()

    assert groups(transport.begin(claiming(transport))()) == ["a"]


def test_a_reply_that_nobody_awaits_is_nobody_elses(transport: RedisTransport):
    transport.publish("a", b"1")
    transport.begin(claiming(transport))

    for group in ("b", "c"):
        transport.publish(group, b"1")
    assert groups(transport.turn("worker", [], 3, visibility=60)) == ["b", "c"]


def test_an_error_comes_with_the_answer(transport: RedisTransport, queue_prefix: str):
    transport.client.set(f"{queue_prefix}:holders", "a string")

    answer = transport.begin(claiming(transport))

    with pytest.raises(WrongKeyType):
        answer()


def test_a_server_that_is_not_there_is_an_error_that_comes_with_the_answer():
    with redis.Redis(port=free_port()) as client:
        transport = RedisTransport(client, "gq:{default:0}")
        answer = transport.begin(claiming(transport))

        with pytest.raises(ServerUnavailable):
            answer()


def test_a_server_that_comes_back_is_asked_over_the_same_connection(
    own_server: Server, queue_prefix: str
):
    with redis.Redis.from_url(own_server.url) as client:
        transport = RedisTransport(client, queue_prefix)
        transport.begin(claiming(transport))()
        own_server.kill()
        for _ in range(3):
            with pytest.raises(ServerUnavailable):
                transport.begin(claiming(transport))()
        own_server.start()

        assert groups(transport.begin(claiming(transport))()) == []
        assert len(transport.client.client_list()) <= 2  # this question has one of its own


def test_a_call_that_is_broken_off_while_it_is_sent_costs_no_connection(
    transport: RedisTransport, monkeypatch: pytest.MonkeyPatch
):
    connections = len(transport.client.client_list())
    call = claiming(transport)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        connection: Any = transport.client.connection_pool.connection_class
        patch.setattr(connection, "send_packed", interrupted)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                transport.begin(call)

    assert groups(transport.begin(call)()) == []
    assert len(transport.client.client_list()) == connections


def test_failure_10_a_call_whose_reply_was_lost_is_not_repeated(proxy: Proxy, queue_prefix: str):
    with redis.Redis.from_url(proxy.url) as client:
        transport = RedisTransport(client, queue_prefix)
        transport.begin(claiming(transport))()  # from now on the server knows the script
        transport.publish("a", b"1")
        proxy.commands.clear()
        proxy.lose_reply()

        answer = transport.begin(claiming(transport))

        with pytest.raises(ServerUnavailable):
            answer()
        assert proxy.commands.count("EVALSHA") == 1
        assert transport.recover("worker", 0) == 1
        assert groups(transport.turn("worker", [], 1, visibility=60)) == ["a"]


def test_where_no_connection_is_kept_at_hand_the_call_is_made_with_the_answer():
    client: Any = fakeredis.FakeRedis()
    transport = RedisTransport(client, "gq:{default:0}")
    transport.publish("a", b"1")

    answer = transport.begin(claiming(transport))

    assert groups(answer()) == ["a"]
