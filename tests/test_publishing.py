"""Is a message checked, encoded and sent as its publisher said, or refused as a whole?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import redis
from django.dispatch import Signal

from groupqueue import Outgoing, apublish, apublish_many, handler, handlers, publish, publish_many
from groupqueue.core.codec import Content, JSONCodec
from groupqueue.core.messages import split_element
from groupqueue.exceptions import (
    InvalidMessage,
    PartlyPublished,
    PayloadTooLarge,
    ServerUnavailable,
    UnknownQueue,
)
from groupqueue.signals import message_published
from groupqueue.transport.connections import get_async_transport
from tests.recorder import Recorder, recording
from tests.servers import free_port

if TYPE_CHECKING:
    from pytest_django import Settings

URL = "redis://localhost:1/0"

# No test of this file has a database: publishing outside a transaction needs none.


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """All transports, noting what they are given."""
    return recording(monkeypatch)


class Event(NamedTuple):
    """What a receiver of message_published was told."""

    sender: object
    message_id: str
    group: str
    topic: str
    queue: str


@pytest.fixture
def events() -> Iterator[list[Event]]:
    """Every message_published, in order."""
    received: list[Event] = []

    def receive(sender: object, signal: Signal, **arguments: str) -> None:
        received.append(Event(sender, **arguments))

    message_published.connect(receive)
    yield received
    message_published.disconnect(receive)


# One message -----------------------------------------------------------------------------


def test_a_message_is_sent_at_once_outside_a_transaction(recorder: Recorder) -> None:
    identifier = publish("orders.paid", {"id": 17}, group="order-17", priority=3)

    ((queue, (envelope,)),) = recorder.calls
    assert queue == "default"
    assert envelope.id == identifier
    assert (envelope.group, envelope.tier) == ("order-17", 3)
    assert JSONCodec().decode(envelope.body) == Content("orders.paid", {"id": 17}, {})


def test_ids_are_new_and_sort_by_time(recorder: Recorder) -> None:
    identifiers = [publish("a", None, group="g") for _ in range(50)]

    assert identifiers == sorted(set(identifiers))


def test_headers_travel_with_the_message(recorder: Recorder) -> None:
    publish("orders.paid", None, group="g", headers={"trace": "t1", "hops": 2})

    ((_, (envelope,)),) = recorder.calls
    assert JSONCodec().decode(envelope.body).headers == {"trace": "t1", "hops": 2}


def test_a_message_without_a_group_gets_one_of_its_own(recorder: Recorder) -> None:
    first = publish("orders.paid", 1, group=None)
    second = publish("orders.paid", 2, group=None)

    assert [envelope.group for _, (envelope,) in recorder.calls] == [first, second]


def test_a_group_must_be_named_one_way_or_the_other(recorder: Recorder) -> None:
    with pytest.raises(TypeError, match="group"):
        publish("orders.paid", 1)  # type: ignore[call-arg]
    assert recorder.calls == []


def test_the_queues_default_priority_stands_in(settings: Settings, recorder: Recorder) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": URL, "DEFAULT_PRIORITY": 2}}

    publish("a", None, group="g")
    publish("a", None, group="g", priority=0)

    assert [envelope.tier for _, (envelope,) in recorder.calls] == [2, 0]


@pytest.mark.parametrize(("priority", "tier"), [(-3, 0), (4, 4), (99, 4)])
def test_a_priority_beyond_the_tiers_is_clamped(
    recorder: Recorder, priority: int, tier: int
) -> None:
    publish("a", None, group="g", priority=priority)

    assert recorder.calls[0][1][0].tier == tier


def test_what_the_caller_does_to_a_payload_later_has_no_effect(recorder: Recorder) -> None:
    payload = {"id": 17}
    headers = {"trace": "t1"}

    publish("a", payload, group="g", headers=headers)
    payload["id"] = 18
    headers.clear()

    content = JSONCodec().decode(recorder.calls[0][1][0].body)
    assert (content.payload, content.headers) == ({"id": 17}, {"trace": "t1"})


def test_the_queues_codec_encodes(settings: Settings, recorder: Recorder) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": URL, "CODEC": Shouting()}}

    publish("a", "quiet", group="g")

    assert recorder.calls[0][1][0].body == b"A QUIET"


class Shouting(JSONCodec):
    def encode(self, topic: str, payload: Any, headers: Any) -> bytes:
        return f"{topic} {payload}".upper().encode()


# Refusals --------------------------------------------------------------------------------

CYCLE: list[object] = []
CYCLE.append(CYCLE)

REFUSED = [
    ({"priority": 1.5}, "priority must be an integer, 0 to 4, not 1.5"),
    ({"priority": "high"}, "priority must be an integer, 0 to 4, not 'high'"),
    ({"priority": True}, "priority must be an integer, 0 to 4, not True"),
    ({"group": ""}, "group '' has 0 bytes; a group id has 1 to 512"),
    ({"group": "g" * 513}, "has 513 bytes; a group id has 1 to 512"),
    ({"group": "ü" * 257}, "has 514 bytes; a group id has 1 to 512"),
    ({"group": 17}, "group must be a str, not 17"),
    ({"group": b"g"}, "group must be a str, not b'g'"),
    ({"group": "\ud800"}, "cannot be written as UTF-8"),
    ({"topic": ""}, "topic '' has 0 characters; a topic has 1 to 200"),
    ({"topic": "t" * 201}, "has 201 characters; a topic has 1 to 200"),
    ({"topic": None}, "topic must be a str, not None"),
    ({"payload": object()}, "'orders.paid' cannot be written as JSON: Object of type object"),
    ({"payload": {"a": {1, 2}}}, "'orders.paid' cannot be written as JSON: Object of type set"),
    ({"payload": b"bytes"}, "'orders.paid' cannot be written as JSON: Object of type bytes"),
    ({"payload": [float("nan")]}, "'orders.paid' cannot be written as JSON"),
    ({"payload": float("-inf")}, "'orders.paid' cannot be written as JSON"),
    ({"payload": "\ud800"}, "'orders.paid' cannot be written as JSON"),
    ({"payload": CYCLE}, "'orders.paid' cannot be written as JSON: Circular reference"),
    ({"headers": {"a": object()}}, "'orders.paid' cannot be written as JSON"),
    ({"headers": {1: "a"}}, "must be a mapping with str keys"),
    ({"headers": [("a", 1)]}, "must be a mapping with str keys"),
    ({"headers": "trace"}, "must be a mapping with str keys"),
    ({"headers": ""}, "must be a mapping with str keys"),
]


@pytest.mark.parametrize(("given", "complaint"), REFUSED)
def test_what_cannot_be_published_is_refused_by_name(
    recorder: Recorder, given: dict[str, Any], complaint: str
) -> None:
    message = {"topic": "orders.paid", "payload": 1, "group": "g", **given}

    with pytest.raises(InvalidMessage) as caught:
        publish(**message)

    assert complaint in str(caught.value)
    assert recorder.calls == []


@pytest.mark.parametrize(("given", "complaint"), REFUSED)
async def test_what_cannot_be_published_is_refused_in_a_coroutine_too(
    recorder: Recorder, given: dict[str, Any], complaint: str
) -> None:
    message = {"topic": "orders.paid", "payload": 1, "group": "g", **given}

    with pytest.raises(InvalidMessage) as caught:
        await apublish(**message)

    assert complaint in str(caught.value)
    assert recorder.calls == []


@pytest.mark.parametrize("group", ["g" * 512, "ü" * 256, "a b:{c}\n\0", "日本"])
def test_any_other_group_is_legal(recorder: Recorder, group: str) -> None:
    publish("a", None, group=group)

    assert recorder.calls[0][1][0].group == group


def test_a_message_over_the_limit_is_refused_with_its_size(
    settings: Settings, recorder: Recorder
) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": URL, "MAX_PAYLOAD_BYTES": 100}}
    overhead = len('["a",""]')

    publish("a", "x" * (100 - overhead), group="g")
    with pytest.raises(PayloadTooLarge) as caught:
        publish("a", "x" * (101 - overhead), group="g")

    assert str(caught.value) == (
        "the message for topic 'a' has 101 bytes when encoded; the limit is 100,"
        " GROUPQUEUE['default']['MAX_PAYLOAD_BYTES']"
    )
    assert len(recorder.calls) == 1


def test_an_unknown_queue_is_refused(recorder: Recorder) -> None:
    with pytest.raises(UnknownQueue, match="'billing' is not a queue"):
        publish("a", None, group="g", queue="billing")
    with pytest.raises(UnknownQueue, match="'billing' is not a queue"):
        publish_many([], queue="billing")
    assert recorder.calls == []


def test_a_server_that_is_not_there_is_an_error_at_once(settings: Settings) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": f"redis://127.0.0.1:{free_port()}/0"}}

    with pytest.raises(ServerUnavailable):
        publish("a", None, group="g")


# Many messages ---------------------------------------------------------------------------


def numbered(count: int) -> list[Outgoing]:
    return [Outgoing("a", number, group=f"g{number % 3}") for number in range(count)]


def test_many_messages_leave_in_one_call_and_in_order(recorder: Recorder) -> None:
    identifiers = publish_many(iter(numbered(500)))

    assert recorder.payloads == [list(range(500))]
    assert [envelope.id for envelope in recorder.calls[0][1]] == identifiers


def test_more_messages_leave_by_five_hundred(recorder: Recorder) -> None:
    identifiers = publish_many(numbered(1_001))

    assert [len(call) for call in recorder.payloads] == [500, 500, 1]
    assert recorder.all_payloads == list(range(1_001))
    assert len(set(identifiers)) == 1_001


def test_large_messages_leave_by_four_mebibytes(recorder: Recorder) -> None:
    large = "x" * (1024 * 1024 - 100)

    publish_many(Outgoing("a", [number, large], group="g") for number in range(9))

    assert [[number for number, _ in call] for call in recorder.payloads] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8],
    ]


def test_a_message_larger_than_a_call_should_be_goes_alone(
    settings: Settings, recorder: Recorder
) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": URL, "MAX_PAYLOAD_BYTES": 8 * 1024 * 1024}}

    publish_many(
        [
            Outgoing("a", 1, group="g"),
            Outgoing("a", "x" * 5 * 1024 * 1024, group="g"),
            Outgoing("a", 3, group="g"),
        ]
    )

    assert [len(call) for call in recorder.payloads] == [1, 1, 1]


def test_no_messages_are_no_call(recorder: Recorder) -> None:
    assert publish_many([]) == []
    assert recorder.calls == []


def test_each_of_many_messages_has_options_of_its_own(recorder: Recorder) -> None:
    identifiers = publish_many(
        [
            Outgoing("a", 1, group=None, priority=4),
            Outgoing("b", 2, group="g", headers={"trace": "t1"}),
        ]
    )

    ((_, (first, second)),) = recorder.calls
    assert (first.group, first.tier) == (identifiers[0], 4)
    assert JSONCodec().decode(second.body) == Content("b", 2, {"trace": "t1"})


@pytest.mark.parametrize("position", [0, 1_200])
def test_one_invalid_message_keeps_all_of_them_from_being_sent(
    recorder: Recorder, position: int
) -> None:
    messages = numbered(1_201)
    messages[position] = Outgoing("a", object(), group="g")

    with pytest.raises(InvalidMessage, match=rf"^message {position} of publish_many: .*'a' cannot"):
        publish_many(iter(messages))

    assert recorder.calls == []


def test_one_message_over_the_limit_keeps_all_of_them_from_being_sent(recorder: Recorder) -> None:
    messages = [*numbered(2), Outgoing("a", "x" * 2**20, group="g")]

    with pytest.raises(PayloadTooLarge, match=r"^message 2 of publish_many: .* has 1048584 bytes"):
        publish_many(messages)

    assert recorder.calls == []


@pytest.mark.parametrize("message", [{"topic": "a"}, ("a", 1), None])
def test_only_outgoing_messages_are_taken(recorder: Recorder, message: Any) -> None:
    with pytest.raises(InvalidMessage, match="message 0 of publish_many must be an Outgoing, not"):
        publish_many([message])


def test_an_error_at_the_first_call_is_that_error(recorder: Recorder) -> None:
    recorder.errors["default"] = ServerUnavailable("gone")

    with pytest.raises(ServerUnavailable, match="gone"):
        publish_many(numbered(1_001))


def test_an_error_at_a_later_call_tells_what_was_stored(recorder: Recorder) -> None:
    cause = ServerUnavailable("gone")
    recorder.error_at_call[1] = cause

    with pytest.raises(PartlyPublished) as caught:
        publish_many(numbered(1_001))

    assert caught.value.published_ids == [envelope.id for envelope in recorder.calls[0][1]]
    assert caught.value.__cause__ is cause
    assert str(caught.value) == (
        "500 of 1001 messages were stored, then: gone; publish the others again"
    )


# Coroutines ------------------------------------------------------------------------------


async def test_a_coroutine_publishes_one(recorder: Recorder) -> None:
    identifier = await apublish("a", 1, group="g", priority=2, headers={"trace": "t1"})

    ((_, (envelope,)),) = recorder.calls
    assert (envelope.id, envelope.tier) == (identifier, 2)


async def test_a_coroutine_publishes_many(recorder: Recorder) -> None:
    identifiers = await apublish_many(numbered(501))

    assert [len(call) for call in recorder.payloads] == [500, 1]
    assert len(identifiers) == 501


async def test_a_coroutine_is_told_what_was_stored(recorder: Recorder) -> None:
    recorder.error_at_call[1] = ServerUnavailable("gone")

    with pytest.raises(PartlyPublished) as caught:
        await apublish_many(numbered(600))

    assert len(caught.value.published_ids) == 500


# Signals ---------------------------------------------------------------------------------


def test_each_published_message_is_signalled(recorder: Recorder, events: list[Event]) -> None:
    first = publish("a", 1, group="g")
    second, third = publish_many([Outgoing("b", 2, group="h"), Outgoing("c", 3, group=None)])

    assert events == [
        Event(None, first, "g", "a", "default"),
        Event(None, second, "h", "b", "default"),
        Event(None, third, third, "c", "default"),
    ]


async def test_each_message_of_a_coroutine_is_signalled(
    recorder: Recorder, events: list[Event]
) -> None:
    first = await apublish("a", 1, group="g")
    (second,) = await apublish_many([Outgoing("b", 2, group="h")])

    assert [event.message_id for event in events] == [first, second]


def test_the_sender_is_the_topics_handler(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "_handlers", {})
    topics: list[str] = []

    @handler("orders.paid")
    def order_paid(delivery: Any) -> None: ...

    def receive(topic: str, **kwargs: object) -> None:
        topics.append(topic)

    message_published.connect(receive, sender=order_paid)
    order_paid.publish(1, group="g")
    publish("orders.sent", 2, group="g")

    assert topics == ["orders.paid"]


def test_a_message_that_is_not_stored_is_not_signalled(
    recorder: Recorder, events: list[Event]
) -> None:
    recorder.errors["default"] = ServerUnavailable()

    with pytest.raises(ServerUnavailable):
        publish("a", 1, group="g")

    assert events == []


class Broken:
    """A receiver that fails, and has no name either."""

    def __call__(self, **kwargs: object) -> None:
        raise ZeroDivisionError


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_receiver_that_fails_is_logged_and_disturbs_nobody(
    recorder: Recorder, events: list[Event], caplog: pytest.LogCaptureFixture, way: str
) -> None:
    broken = Broken()
    message_published.connect(broken)

    try:
        if way == "async":
            asyncio.run(apublish("a", 1, group="g"))
        else:
            publish("a", 1, group="g")
    finally:
        message_published.disconnect(broken)

    assert len(recorder.calls) == len(events) == 1
    (record,) = [record for record in caplog.records if record.name == "groupqueue"]
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "a receiver of a signal raised an error"
    assert record.action == "signal_receiver_failed"  # type: ignore[attr-defined]
    assert record.exc_info is not None


async def test_an_async_receiver_of_a_sync_publish_in_a_coroutine_disturbs_nobody(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    async def receive(**kwargs: object) -> None: ...

    message_published.connect(receive)
    try:
        publish("a", 1, group="g")
    finally:
        message_published.disconnect(receive)

    assert len(recorder.calls) == 1
    assert [record.name for record in caplog.records] == ["groupqueue"]


# On a real server ------------------------------------------------------------------------


@pytest.fixture
async def async_connections() -> AsyncIterator[None]:
    """Close the connections of the test's event loop before it ends."""
    yield
    await get_async_transport().close()


def stored(client: redis.Redis, group: str) -> list[tuple[str, Content]]:
    elements: Any = client.lrange(f"gq:{{default:0}}:q:{group}", 0, -1)
    split = [split_element(element) for element in elements]
    return [(identifier, JSONCodec().decode(body)) for identifier, _, _, body in split]


def test_published_messages_wait_in_their_group_in_order(default_client: redis.Redis) -> None:
    first = publish("orders.paid", {"id": 17}, group="order-17", priority=3)
    others = publish_many(Outgoing("orders.sent", n, group="order-17") for n in range(600))

    assert stored(default_client, "order-17") == [
        (first, Content("orders.paid", {"id": 17}, {})),
        *((other, Content("orders.sent", n, {})) for n, other in enumerate(others)),
    ]
    assert default_client.zrange("gq:{default:0}:ready:3", 0, -1) == [b"order-17"]


@pytest.mark.usefixtures("async_connections")
async def test_a_coroutines_messages_wait_in_their_group_in_order(
    default_client: redis.Redis,
) -> None:
    first = await apublish("a", 0, group="g")
    others = await apublish_many(Outgoing("a", n, group="g") for n in range(1, 502))

    assert [identifier for identifier, _ in stored(default_client, "g")] == [first, *others]


def test_a_refused_message_leaves_nothing_on_the_server(default_client: redis.Redis) -> None:
    with pytest.raises(InvalidMessage):
        publish_many([*numbered(3), Outgoing("a", object(), group="g")])

    assert default_client.dbsize() == 0


@pytest.mark.usefixtures("async_connections")
@pytest.mark.parametrize("way", ["publish", "publish_many", "apublish", "apublish_many"])
async def test_failure_31_a_message_over_a_mebibyte_is_refused_with_its_size_and_nothing_is_stored(
    default_client: redis.Redis, way: str
) -> None:
    overhead = len('["a",""]')
    fits, too_large = ("x" * (1024**2 - overhead + more) for more in (0, 1))

    async def send(payload: str) -> None:
        if way == "publish":
            publish("a", payload, group="g")
        elif way == "apublish":
            await apublish("a", payload, group="g")
        elif way == "publish_many":
            publish_many([Outgoing("a", n, group="g") for n in (1, payload)])
        else:
            await apublish_many([Outgoing("a", n, group="g") for n in (1, payload)])

    with pytest.raises(PayloadTooLarge, match=r"has 1048577 bytes .* limit is 1048576"):
        await send(too_large)
    assert default_client.dbsize() == 0

    await send(fits)
    assert default_client.llen("gq:{default:0}:q:g") == (2 if "many" in way else 1)
