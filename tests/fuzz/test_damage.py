"""Is a message whose stored bytes were damaged set aside, and does the worker go on?

Each damaged message is the head of a group of its own, with a good one behind it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from groupqueue import Delivery, handler, handlers, publish
from groupqueue.core.messages import Outgoing
from groupqueue.management.verbs import EXIT_EXCEEDED
from groupqueue.publishing import publish_many
from groupqueue.queues import LONGEST_LIST, get_queue
from tests.fuzz.fuzzing import fuzzed
from tests.fuzz.working import work_off
from tests.operating.conftest import operate
from tests.servers import Server

PAYLOAD = {"n": "bad", "amount": 12.5}
UNKNOWN_TOPIC = "this worker has no handler for topic"


@pytest.fixture(autouse=True)
def client(server: Server, redis_client: redis.Redis, settings: Settings) -> redis.Redis:
    """The default queue on each kind of server; set aside is what cannot be handled."""
    settings.GROUPQUEUE = {
        "default": {"CONNECTION": server.url, "ON_EXHAUSTED": "dead_letter", "MAX_ATTEMPTS": 1}
    }
    return redis_client


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, object]]]:
    """The groups and payloads that came to the handler of "note"; there is no other one."""
    monkeypatch.setattr(handlers, "_handlers", {})
    seen: list[tuple[str, object]] = []

    @handler("note")
    def note(delivery: Delivery) -> None:
        # What a handler may ask of any delivery.
        _ = (repr(delivery), delivery.message.published_at, delivery.message.expires_at)
        seen.append((delivery.group, delivery.payload))

    return seen


def damaged(whole: bytes) -> Iterator[bytes]:
    """Return every version of these bytes in which one byte, or all from one on, is not right."""
    yield b""
    for place, byte in enumerate(whole):
        before, behind = whole[:place], whole[place + 1 :]
        yield before  # cut off
        yield before + behind  # left out
        yield before + b"\0" + behind
        yield before + b"\xff" + behind
        yield before + bytes([byte ^ 1]) + behind
        yield before + bytes([byte ^ 0x80]) + behind
        yield before + b"9" + behind
        yield before + bytes([byte]) * 2 + behind
        yield before + b"\xc3" + bytes([byte]) + behind


def put(client: redis.Redis, elements: Sequence[bytes], *, width: int | None = None) -> None:
    """Have each element as the head of a group, before a good message."""
    queue = get_queue()
    groups = [f"group-{number}" for number in range(len(elements))]
    messages = [
        Outgoing("note", {"n": n}, group=group, width=width)
        for group in groups
        for n in ("bad", "good")
    ]
    publish_many(messages, on_commit=False)
    with client.pipeline() as at_once:
        for group, element in zip(groups, elements, strict=True):
            at_once.lset(f"{queue.prefix}:q:{group}", 0, element)
        at_once.execute()


def assert_dealt_with(
    client: redis.Redis,
    handled: list[tuple[str, object]],
    elements: Sequence[bytes],
    *,
    width: int | None = None,
) -> Counter[str]:
    """Hold that each group was dealt with to its end; return how often in which way."""
    queue = get_queue()
    good = {group for group, payload in handled if payload == {"n": "good"}}
    letters = queue.dead_letters(limit=10**6).letters
    assert {letter.reason for letter in letters} <= {"corrupt"}
    assert all("is not" in letter.error for letter in letters)
    parked = queue.snapshot(limit=LONGEST_LIST).parked
    assert all(view.last_error.startswith(UNKNOWN_TOPIC) for view in parked)
    ways = Counter(
        good=len(good),
        waiting=len(parked),
        changed=len(handled) - len(good),
        expired=int(client.hget(f"{queue.prefix}:stats", "expired") or 0),
        corrupt=len(letters),
    )
    # What another worker may know how to handle keeps its place; only a wide group goes on.
    assert ways["good"] == len(elements) - (0 if width else ways["waiting"])
    # Nothing is lost without a word, and nothing is dealt with twice.
    heads = ways["waiting"] + ways["changed"] + ways["expired"] + ways["corrupt"]
    assert heads == len(elements)
    return ways


def stored(client: redis.Redis) -> bytes:
    """Return the bytes of a whole message, as the queue keeps them."""
    publish("note", PAYLOAD, group="whole", headers={"h": 1}, expires_in=3600, on_commit=False)
    element = client.lindex(f"{get_queue().prefix}:q:whole", 0)
    client.flushdb()
    return bytes(element)


@pytest.mark.parametrize(("batch", "width"), [(None, None), (10, None), (None, 2)])
def test_every_byte_of_a_message_can_be_damaged(
    client: redis.Redis,
    handled: list[tuple[str, object]],
    caplog: pytest.LogCaptureFixture,
    *,
    batch: int | None,
    width: int | None,
) -> None:
    elements = list(damaged(stored(client)))
    put(client, elements, width=width)

    with caplog.at_level(logging.CRITICAL):
        work_off(batch=batch)

    ways = assert_dealt_with(client, handled, elements, width=width)
    assert all(ways.values()), ways


@given(
    st.lists(
        st.binary(max_size=120)
        | st.tuples(st.from_regex(rb"\A[0-9a-f]{32}[0-9]{26}\Z"), st.binary(max_size=60)).map(
            b"".join
        )
        | st.tuples(st.binary(min_size=58, max_size=58), st.just(b'["note",1]')).map(b"".join),
        min_size=1,
        max_size=100,
    )
)
@fuzzed(15)
def test_any_bytes_can_be_where_a_message_was(
    client: redis.Redis,
    handled: list[tuple[str, object]],
    caplog: pytest.LogCaptureFixture,
    elements: list[bytes],
) -> None:
    client.flushdb()
    handled.clear()
    put(client, elements)

    with caplog.at_level(logging.CRITICAL):
        work_off()

    assert_dealt_with(client, handled, elements)


@pytest.mark.parametrize("width", [None, 2])
def test_scheduled_messages_can_be_damaged(
    client: redis.Redis,
    handled: list[tuple[str, object]],
    caplog: pytest.LogCaptureFixture,
    width: int | None,
) -> None:
    prefix = get_queue().prefix

    def publish_later(count: int) -> list[str]:
        # Names of one length, so that the same byte means the same in each.
        messages = [
            Outgoing("note", PAYLOAD, group=f"group-{n:04}", delay=60, width=width)
            for n in range(count)
        ]
        return publish_many(messages, on_commit=False)

    [identifier] = publish_later(1)
    count = len(list(damaged(client.hget(f"{prefix}:scheduled:data", identifier))))
    client.flushdb()
    ids = publish_later(count)
    noted = client.hmget(f"{prefix}:scheduled:data", ids)
    versions = [list(damaged(data))[n] for n, data in enumerate(noted)]
    client.hset(f"{prefix}:scheduled:data", mapping=dict(zip(ids, versions, strict=True)))
    client.zadd(f"{prefix}:scheduled", dict.fromkeys(ids, 0))
    publish("note", {"n": "good"}, group="good", on_commit=False)

    with caplog.at_level(logging.CRITICAL):
        work_off()

    assert ("good", {"n": "good"}) in handled
    queue = get_queue()
    letters = queue.dead_letters(limit=10**6).letters
    assert {letter.reason for letter in letters} == {"corrupt"}
    parked = queue.snapshot(limit=LONGEST_LIST).parked
    assert all(view.last_error.startswith(UNKNOWN_TOPIC) for view in parked)
    # Of which nobody can say what they were: the doctor names them, and nobody spins on them.
    named = Counter(fault.word for fault in queue.audit().faults)
    assert named.keys() == {"bad-schedule"}
    assert named["bad-schedule"] == client.zcard(f"{prefix}:scheduled")
    ways = {
        "handled": len(handled) - 1,
        "corrupt": len(letters),
        "waiting": len(parked),
        "expired": int(client.hget(f"{prefix}:stats", "expired") or 0),
        "named": named.total(),
    }
    assert sum(ways.values()) == count, ways


def test_operators_can_look_at_damaged_messages_and_put_them_back(
    client: redis.Redis, handled: list[tuple[str, object]], caplog: pytest.LogCaptureFixture
) -> None:
    elements = list(damaged(stored(client)))[::5]
    put(client, elements)
    groups = [["explain", "group-0"], ["peek", "group-0"], ["peek", "group-9", "--payloads"]]
    verbs = [["stats"], ["groups", "--limit", "200"], ["doctor"], *groups]

    for verb in (*verbs, *([*verb, "--json"] for verb in verbs)):
        said = operate(*verb)
        assert said.code in (0, EXIT_EXCEEDED), said.trouble
        assert all(line.isprintable() for line in said.out.split("\n"))
    with caplog.at_level(logging.CRITICAL):
        work_off()
        before = assert_dealt_with(client, handled, elements)
        assert operate("dead", "--limit", "1000").out.replace("\n", "").isprintable()
        assert operate("redrive", "--all").code == 0
        assert get_queue().dead_letters().total == 0
        work_off()

    assert assert_dealt_with(client, handled, elements) == before
