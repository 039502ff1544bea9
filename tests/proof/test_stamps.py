"""Does a script do the same when it writes down what it does, and is that what it did?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import fakeredis
import pytest
import redis

from groupqueue.core import calls
from groupqueue.core.calls import Call, Settlement
from groupqueue.core.messages import Envelope, EnvelopeOptions
from groupqueue.exceptions import WrongKeyType
from groupqueue.transport import scripts
from groupqueue.transport.redis import RedisTransport
from proof import history, stamps

MUTE = {"agenda", "audit", "explain", "held", "inspect", "letters", "peek", "survey"}
"""Scripts that only read."""


@pytest.fixture
def transport(redis_client: redis.Redis, queue_prefix: str) -> Iterator[RedisTransport]:
    """A transport to an empty shard."""
    transport = RedisTransport(redis_client, queue_prefix)
    yield transport
    transport.close()


def life(transport: RedisTransport) -> Iterator[Call[Any]]:
    """Ask for all kinds of things; each call is built when the one before has been answered."""
    prefix = transport.prefix

    def named(number: int, group: str, **options: Any) -> Envelope:
        return Envelope(
            f"{number:032x}", group, 1, b"body", EnvelopeOptions(**options) if options else None
        )

    def publish(sequence: int, *envelopes: Envelope) -> Call[Any]:
        return calls.publish(prefix, envelopes, publisher="me", sequence=sequence)

    yield publish(1, *(named(number, "a") for number in range(6)))
    yield publish(1, named(9, "a"))
    yield publish(2, named(10, "b", expires_ms=1), named(11, "w", width=2), named(12, "w", width=2))
    yield publish(3, named(13, "c", due="+3600000"), named(14, "d", due="+3600000", hold=True))
    yield publish(4, named(15, "e", dedup_key="key", dedup_ms=60_000, digest="x"))
    yield publish(5, named(16, "e", dedup_key="key", dedup_ms=60_000, digest="x"))
    lease = yield calls.claim(prefix, "worker", visibility_ms=60_000)
    yield calls.nack(prefix, lease, error="boom")
    turned = yield calls.turn(prefix, "worker", [], 9, visibility_ms=60_000, batch=2, number=1)
    by_group = {lease.group: lease for lease in turned.leases}
    yield calls.ack(prefix, lease)
    yield calls.renew(prefix, turned.leases, visibility_ms=90_000)
    ends = [Settlement.dead(by_group["a"], "why", "boom"), Settlement.ack(by_group["e"])]
    yield calls.turn(prefix, "worker", ends, 0, visibility_ms=60_000)
    yield calls.recount(prefix, by_group["w"], -1)
    yield calls.recover(prefix, "worker", after_token=0)
    yield calls.pause(prefix, "a", "why", operation="1")
    yield calls.resume(prefix, "a", operation="2")
    yield calls.cancel(prefix, f"{13:032x}", operation="3")
    yield calls.reschedule(prefix, f"{14:032x}", "+60000")
    yield calls.set_tier(prefix, "a", 3)
    letters = [entry.decode() for entry, _ in transport.client.xrange(f"{prefix}:dead")]
    yield calls.redrive(prefix, letters)
    yield calls.skip(prefix, "a", f"{0:032x}", operation="4")
    yield calls.claim(prefix, "worker", visibility_ms=60_000)
    yield calls.release(prefix, "a", operation="5")
    yield calls.stop(prefix, "why", operation="6")
    yield calls.start(prefix, operation="7")
    yield calls.rate(prefix, "a", "1000000 1")
    yield calls.trim(prefix, max_age_ms=None, max_count=0)
    yield calls.drop(prefix, ["1-1"])
    yield calls.heartbeat(prefix, "worker", {"pid": 1}, kept_ms=60_000)
    yield calls.depart(prefix, "worker")
    yield calls.repair(prefix, "group", ["a"])
    yield calls.purge(prefix, ["a", "b", "c", "d", "e", "w"])
    yield calls.survey(prefix, "keys")


def replies(transport: RedisTransport) -> list[tuple[str, str]]:
    """Live that life; return each answer, decoded, without what tells the moment."""
    told = []
    asked = life(transport)
    call = next(asked)
    while True:
        try:
            answer = transport.perform(call)
        except Exception as error:
            answer = error
        told.append((call.script, _timeless(answer)))
        try:
            call = asked.send(answer)
        except StopIteration:
            return told


def _timeless(answer: Any) -> str:
    """Return an answer as text without its moments: 13 digits of ms, or 16 of µs."""
    return re.sub(r"\b1\d{12}(\d{3})?\b", "then", repr(answer))


def test_stamped_scripts_answer_as_plain_ones_do(transport: RedisTransport):
    plain = replies(transport)
    before = _content(transport)
    transport.client.flushdb()
    with stamps.stamped():
        assert replies(transport) == plain
    assert _content(transport) == before
    done = history.read(transport.client, transport.prefix)
    asked = [script for script, _ in plain if script not in MUTE]
    assert [operation.script for operation in done] == asked
    assert set(asked) == set(scripts.names()) - MUTE
    assert [operation.number for operation in done] == list(range(1, len(asked) + 1))
    assert all(operation.commands for operation in done)


def _content(transport: RedisTransport) -> set[str]:
    """Return the names of all keys of the shard, but for those that tell the minute."""
    start = transport.prefix.encode()
    names = {
        key.removeprefix(start).decode() for key in transport.client.scan_iter(match=start + b"*")
    }
    return {name for name in names if not name.startswith((":stats:", ":dead"))}


def test_what_a_script_did_is_written_down(transport: RedisTransport, stamped: None):
    transport.publish("Ärger", b"\x00\xff")
    lease = transport.claim("worker", 30)
    assert lease is not None
    transport.ack(lease)
    published, claimed, acked = history.read(transport.client, transport.prefix)
    [joined] = published.effects
    assert joined[:3] == ("RPUSH", "q:Ärger".encode(), 1)
    assert joined.arguments[0].endswith(b"\x00\xff")
    assert history.id_of(joined.arguments[0]) == lease.id
    [locked] = claimed.effects
    token = b"%d" % lease.token
    assert locked == ("SET", "lock:Ärger".encode(), b"OK", (token, b"PX", b"30000", b"NX"))
    assert history.leases(claimed) == [lease]
    assert claimed.at_us == lease.token
    [settled] = history.settlements(acked)
    assert settled == ("ack", "Ärger".encode(), lease.token, lease.id, 1, b"", "ok")
    assert [effect.command for effect in acked.effects] == ["LPOP", "DEL"]
    assert published.at_us <= claimed.at_us <= acked.at_us


def test_a_script_that_fails_is_written_down_and_fails(transport: RedisTransport, stamped: None):
    transport.client.set(f"{transport.prefix}:q:a", "no list")
    with pytest.raises(WrongKeyType, match=":q:a is a string"):
        transport.publish("a", b"1")
    [failed] = history.read(transport.client, transport.prefix)
    assert failed.error.startswith("WRONGKEY")
    assert (failed.reply, failed.effects) == (None, ())


def test_scripts_that_only_read_are_sent_as_they_are():
    is_plain = {name: stamps.load(name) == scripts.load(name) for name in scripts.names()}
    assert {name for name, is_so in is_plain.items() if is_so} == MUTE


def test_fakeredis_is_sent_plain_scripts(stamped: None):
    transport = RedisTransport(fakeredis.FakeRedis(), "gq:{orders:0}")
    transport.publish("a", b"1")
    assert history.read(transport.client, "gq:{orders:0}") == []


def test_stamping_twice_stamps_once(transport: RedisTransport, stamped: None):
    stamps.install()
    stamps.install()
    transport.publish("a", b"1")
    assert len(history.read(transport.client, transport.prefix)) == 1


def test_the_state_of_a_shard_is_read(transport: RedisTransport):
    first, second = transport.publish("a", b"1"), transport.publish("a", b"2")
    lease = transport.claim("worker", 30)
    assert lease is not None
    state = history.read_state(transport.client, transport.prefix)
    assert [history.id_of(one) for one in state.lists[b"a"]] == [first, second]
    assert state.locks == {b"a": lease.token}
    transport.settle(Settlement.dead(lease, "why"))
    later = EnvelopeOptions(due="+60000")
    transport.publish_envelopes([Envelope("f" * 32, "b", 0, b"3", later)])
    state = history.read_state(transport.client, transport.prefix)
    assert [history.id_of(one) for one in state.dead.values()] == [first]
    assert history.scheduled(state.scheduled["f" * 32]).group == b"b"
    assert state.locks == {}
