"""Do the options of publish() reach the queue, inside and outside of transactions?"""

from __future__ import annotations

import datetime
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import redis
from django.db import transaction

from groupqueue import (
    Outgoing,
    apublish,
    apublish_many,
    get_queue,
    handler,
    handlers,
    publish,
    publish_many,
)
from groupqueue.core.calls import Settlement
from groupqueue.core.keys import ShardKeys
from groupqueue.core.messages import Envelope, EnvelopeOptions
from groupqueue.exceptions import (
    DedupConflict,
    GroupFull,
    InvalidArgument,
    InvalidMessage,
    PartlyPublished,
)
from groupqueue.signals import message_published
from groupqueue.transport.connections import get_async_transport, get_transport
from tests.recorder import Recorder, recording

if TYPE_CHECKING:
    from pytest_django import Settings

KEYS = ShardKeys("gq:{default:0}")
NOON = datetime.datetime(2100, 3, 1, 12, tzinfo=datetime.UTC)
NOON_MS = "4107585600000"
HOUR = datetime.timedelta(hours=1)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """All transports, noting what they are given."""
    return recording(monkeypatch)


@pytest.fixture
def published() -> Iterator[list[str]]:
    """The ids that message_published told of, in order."""
    told: list[str] = []

    def receive(message_id: str, **_: object) -> None:
        told.append(message_id)

    message_published.connect(receive)
    yield told
    message_published.disconnect(receive)


@pytest.fixture
async def async_connections(settings: Settings) -> AsyncIterator[None]:
    """Close the connections of the test's event loop, before its settings are taken back."""
    yield
    await get_async_transport().close()


def with_settings(settings: Settings, **keys: Any) -> None:
    """Give the default queue further keys."""
    queue = dict(settings.GROUPQUEUE["default"])
    settings.GROUPQUEUE = {"default": queue | keys}


def stored(group: str = "g") -> list[str]:
    """Return the ids of a group's messages."""
    return [message.id for message in get_queue().peek(group, limit=200).messages]


# Every way to publish --------------------------------------------------------------------------


async def by_publish(topic: str, payload: Any, **options: Any) -> str:
    return publish(topic, payload, **options)


async def by_publish_many(topic: str, payload: Any, **options: Any) -> str:
    [identifier] = publish_many([Outgoing(topic, payload, **options)])
    return identifier


async def by_apublish_many(topic: str, payload: Any, **options: Any) -> str:
    [identifier] = await apublish_many([Outgoing(topic, payload, **options)])
    return identifier


async def by_handler(topic: str, payload: Any, **options: Any) -> str:
    return handlers.registered()[topic].publish(payload, **options)


async def by_handler_async(topic: str, payload: Any, **options: Any) -> str:
    return await handlers.registered()[topic].apublish(payload, **options)


Publish = Callable[..., Awaitable[str]]
WAYS: dict[str, Publish] = {
    "publish": by_publish,
    "apublish": apublish,
    "publish_many": by_publish_many,
    "apublish_many": by_apublish_many,
    "handler.publish": by_handler,
    "handler.apublish": by_handler_async,
}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def publishes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Each way to publish one message of topic "a"."""
    monkeypatch.setattr(handlers, "_handlers", {})

    @handler("a")
    def handle(delivery: object) -> None: ...

    way: Publish = request.param
    return way


def test_every_way_takes_the_same_options() -> None:
    options = {"delay", "eta", "hold", "dedup_key", "dedup_window", "expires_in"}
    signatures = [set(inspect.signature(way).parameters) for way in (publish, apublish, Outgoing)]

    assert all(options <= names for names in signatures)
    assert options <= set(handlers.PublishOptions.__annotations__)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"delay": 1.5}, EnvelopeOptions(due="+1500")),
        ({"delay": HOUR}, EnvelopeOptions(due="+3600000")),
        ({"eta": NOON}, EnvelopeOptions(due=NOON_MS)),
        ({"delay": 5, "hold": True}, EnvelopeOptions(due="+5000", hold=True)),
        ({"expires_in": HOUR}, EnvelopeOptions(expires_ms=3_600_000)),
    ],
)
async def test_an_option_reaches_the_envelope(
    recorder: Recorder, publishes: Publish, given: dict[str, Any], expected: EnvelopeOptions | None
) -> None:
    await publishes("a", 1, group="g", **given)

    ((_, (envelope,)),) = recorder.calls
    assert envelope.options == expected


async def test_a_dedup_key_has_the_settings_window_or_its_own(
    settings: Settings, recorder: Recorder, publishes: Publish
) -> None:
    with_settings(settings, DEDUP_WINDOW=60)

    await publishes("a", 1, group="g", dedup_key="k")
    await publishes("a", 1, group="g", dedup_key="k", dedup_window=HOUR)

    first, second = [options_of(envelope) for _, (envelope,) in recorder.calls]
    assert (first.dedup_ms, second.dedup_ms) == (60_000, 3_600_000)
    assert (first.dedup_key, first.digest) == (second.dedup_key, second.digest)


def options_of(envelope: Envelope) -> EnvelopeOptions:
    assert envelope.options is not None
    return envelope.options


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"delay": -1}, "delay must be"),
        ({"delay": 1, "eta": NOON}, "delay and eta exclude each other"),
        ({"eta": NOON.replace(tzinfo=None)}, "eta must be an aware datetime under USE_TZ"),
        ({"hold": True}, "hold=True needs a delay or an eta"),
        ({"expires_in": 0}, "expires_in must be"),
        ({"dedup_key": ""}, "a dedup_key has 1 to 512 bytes"),
        ({"dedup_window": 5}, "dedup_window needs a dedup_key"),
    ],
)
async def test_what_is_no_option_is_refused_and_nothing_is_sent(
    recorder: Recorder, publishes: Publish, given: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidMessage, match=complaint):
        await publishes("a", 1, group="g", **given)

    assert recorder.calls == []


def test_one_wrong_option_keeps_all_messages_from_being_sent(recorder: Recorder) -> None:
    messages = [Outgoing("a", 1, group="g"), Outgoing("a", 2, group="g", delay=-1)]

    with pytest.raises(InvalidMessage, match=r"^message 1 of publish_many: delay must be"):
        publish_many(messages)

    assert recorder.calls == []


def test_a_project_without_time_zones_gives_naive_moments(
    settings: Settings, recorder: Recorder
) -> None:
    settings.USE_TZ = False
    naive = NOON.replace(tzinfo=None)

    publish("a", 1, group="g", eta=naive)

    assert options_of(recorder.calls[0][1][0]).due == str(round(naive.timestamp() * 1000))


# What is a duplicate ---------------------------------------------------------------------------


@pytest.mark.usefixtures("async_connections")
async def test_a_duplicate_returns_the_first_id(
    default_client: redis.Redis, publishes: Publish, published: list[str]
) -> None:
    first = await publishes("a", {"n": 1}, group="g", dedup_key="k")

    assert await publishes("a", {"n": 1}, group="g", dedup_key="k") == first

    assert stored() == published == [first]


@pytest.mark.usefixtures("async_connections")
async def test_other_content_under_a_key_is_a_conflict(
    default_client: redis.Redis, publishes: Publish, published: list[str]
) -> None:
    first = await publishes("a", {"n": 1}, group="g", dedup_key="k")

    with pytest.raises(DedupConflict) as caught:
        await publishes("a", {"n": 2}, group="g", dedup_key="k")
    with pytest.raises(DedupConflict):
        await publishes("a", {"n": 1}, group="h", dedup_key="k")

    assert (caught.value.dedup_key, caught.value.first_id) == ("k", first)
    assert stored() == published == [first]


def test_what_is_no_content_makes_no_conflict(default_client: redis.Redis) -> None:
    first = publish("a", 1, group="g", dedup_key="k", headers={"trace": "t1"}, priority=1)

    for options in (
        {"headers": {"trace": "t2"}},
        {"priority": 4},
        {"delay": 60},
        {"expires_in": 5},
        {"dedup_window": 1},
    ):
        assert publish("a", 1, group="g", dedup_key="k", **options) == first  # type: ignore[arg-type]

    assert stored() == [first]


def test_a_message_without_a_group_can_have_a_dedup_key(default_client: redis.Redis) -> None:
    first = publish("a", 1, group=None, dedup_key="k")

    assert publish("a", 1, group=None, dedup_key="k") == first
    assert stored(first) == [first]


def test_many_messages_may_have_different_options(
    default_client: redis.Redis, published: list[str]
) -> None:
    first = publish("a", 0, group="g", dedup_key="k")

    ids = publish_many(
        [
            Outgoing("a", 1, group="g"),
            Outgoing("a", 2, group="g", delay=60),
            Outgoing("a", 0, group="g", dedup_key="k"),
            Outgoing("a", 3, group="h", delay=60, hold=True),
            Outgoing("a", 4, group="g", expires_in=60),
            Outgoing("a", 5, group="g", dedup_key="new"),
            Outgoing("a", 5, group="g", dedup_key="new"),
        ]
    )

    plain, later, again, held, expiring, new, new_again = ids
    assert (again, new_again) == (first, new)
    assert stored() == [first, plain, expiring, new]
    assert stored("h") == [held]
    assert [row.id for row in get_queue().scheduled().messages] == [later, held]
    assert published == [first, plain, later, held, expiring, new]


def test_duplicates_keep_their_numbers_beyond_a_calls_messages(default_client: redis.Redis) -> None:
    first = publish("a", 0, group="g", dedup_key="k")
    messages = [Outgoing("a", number, group="g") for number in range(1, 600)]
    messages[550] = Outgoing("a", 0, group="g", dedup_key="k")

    ids = publish_many(messages)

    assert ids[550] == first
    assert len(set(ids)) == 599
    assert default_client.llen(KEYS.fifo("g")) == 599


def test_what_was_stored_before_a_conflict_is_told_by_its_first_ids(
    default_client: redis.Redis,
) -> None:
    first = publish("a", 0, group="g", dedup_key="k")
    messages = [Outgoing("a", number, group="g") for number in range(501)]
    messages[7] = Outgoing("a", 0, group="g", dedup_key="k")
    messages[500] = Outgoing("a", "other", group="g", dedup_key="k")

    with pytest.raises(PartlyPublished) as caught:
        publish_many(messages)

    assert isinstance(caught.value.__cause__, DedupConflict)
    assert len(caught.value.published_ids) == 500
    assert caught.value.published_ids[7] == first
    assert default_client.llen(KEYS.fifo("g")) == 500


# How deep a group may be -----------------------------------------------------------------------


@pytest.mark.usefixtures("async_connections")
async def test_a_full_group_refuses_a_message(
    settings: Settings, default_client: redis.Redis, publishes: Publish, published: list[str]
) -> None:
    with_settings(settings, MAX_GROUP_DEPTH=2)
    ids = [await publishes("a", number, group="g") for number in range(2)]

    with pytest.raises(GroupFull, match="group 'g' has 2 messages waiting and may have 2"):
        await publishes("a", 2, group="g")

    assert stored() == published == ids


# Inside a transaction --------------------------------------------------------------------------

in_transactions = pytest.mark.django_db(transaction=True)


@in_transactions
def test_options_are_checked_in_the_block(recorder: Recorder) -> None:
    with transaction.atomic():
        with pytest.raises(InvalidMessage):
            publish("a", 1, group="g", delay=-1)
        publish("a", 2, group="g")

    assert recorder.payloads == [[2]]


@in_transactions
def test_a_delay_and_an_expiry_count_from_the_commit(default_client: redis.Redis) -> None:
    with transaction.atomic():
        publish("a", 1, group="g", delay=3600)
        publish("a", 2, group="g", expires_in=3600)
        seconds, _ = default_client.time()
        # Anything that took its time before the commit would be seen here.
        assert get_queue().scheduled().total == 0
    [row] = get_queue().scheduled().messages
    lease = get_transport().claim("worker", 30)

    assert lease is not None
    assert row.due_at.timestamp() >= seconds + 3600
    assert lease.expires_ms >= (seconds + 3600) * 1000


@in_transactions
def test_a_duplicate_is_found_at_the_commit_and_its_own_id_is_of_no_message(
    default_client: redis.Redis, published: list[str]
) -> None:
    first = publish("a", 1, group="g", dedup_key="k")

    with transaction.atomic():
        second = publish("a", 1, group="g", dedup_key="k")
        other = publish("a", 2, group="g")

    assert second != first
    assert stored() == published == [first, other]


@in_transactions
def test_a_key_used_twice_in_one_transaction_is_stored_once(default_client: redis.Redis) -> None:
    with transaction.atomic():
        first = publish("a", 1, group="g", dedup_key="k")
        publish("a", 1, group="g", dedup_key="k")

    assert stored() == [first]


@in_transactions
def test_a_conflict_comes_out_of_the_block_and_refuses_what_leaves_with_it(
    default_client: redis.Redis, published: list[str]
) -> None:
    first = publish("a", 1, group="g", dedup_key="k")

    @transaction.atomic
    def publish_three() -> None:
        publish("a", "before", group="g")
        publish("a", "other", group="g", dedup_key="k")
        publish("a", "after", group="h")

    with pytest.raises(DedupConflict):
        publish_three()

    assert stored() == published == [first]
    assert stored("h") == []


@in_transactions
def test_a_full_group_comes_out_of_the_block(
    settings: Settings, default_client: redis.Redis
) -> None:
    with_settings(settings, MAX_GROUP_DEPTH=1)
    first = publish("a", 1, group="g")

    with pytest.raises(GroupFull), transaction.atomic():
        publish("a", 2, group="g")

    assert stored() == [first]


@in_transactions
def test_a_refusal_of_one_queue_spares_what_goes_to_another(
    settings: Settings, default_client: redis.Redis
) -> None:
    default = settings.GROUPQUEUE["default"]
    settings.GROUPQUEUE = {"default": default | {"MAX_GROUP_DEPTH": 1}, "billing": default}
    publish("a", 1, group="g")

    @transaction.atomic
    def publish_two() -> None:
        publish("a", 2, group="g")
        publish("a", 3, group="g", queue="billing")

    with pytest.raises(GroupFull):
        publish_two()

    [message] = get_queue("billing").peek("g").messages
    assert message.payload == 3


# The agenda, through the queue -----------------------------------------------------------------


@pytest.fixture(params=["sync", "async"])
async def ask(
    request: pytest.FixtureRequest, default_client: redis.Redis
) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """Ask the default queue by a method's name, through the method or its async twin."""
    queue = get_queue()

    async def asked(name: str, *args: Any, **kwargs: Any) -> Any:
        if request.param == "async":
            return await getattr(queue, f"a{name}")(*args, **kwargs)
        return getattr(queue, name)(*args, **kwargs)

    yield asked
    if request.param == "async":
        await get_async_transport().close()


Ask = Callable[..., Awaitable[Any]]


async def test_what_is_scheduled_can_be_looked_at(ask: Ask) -> None:
    later = publish("a", {"n": 1}, group="g", eta=NOON, headers={"trace": "t1"})
    held = publish("a", 2, group="h", delay=60, hold=True)

    agenda = await ask("scheduled")

    assert agenda.total == 2
    soonest, latest = agenda.messages
    assert (soonest.id, soonest.group, soonest.is_held, soonest.message) == (held, "h", True, None)
    assert (latest.id, latest.group, latest.due_at, latest.is_held) == (later, "g", NOON, False)
    assert (latest.message.topic, latest.message.payload) == ("a", {"n": 1})
    assert latest.message.headers == {"trace": "t1"}
    assert "'n'" not in repr(agenda)
    assert (await ask("scheduled", start=1, limit=1)).messages == (latest,)
    assert (await ask("scheduled", limit=1)).messages == (soonest,)


async def test_a_scheduled_message_can_be_cancelled_once(ask: Ask) -> None:
    identifier = publish("a", 1, group="g", delay=60)

    assert await ask("cancel", identifier) is True
    assert await ask("cancel", identifier) is False
    assert await ask("cancel", "no id") is False
    assert (await ask("scheduled")).total == 0


async def test_a_message_held_too_deep_cannot_be_found(ask: Ask) -> None:
    publish_many(Outgoing("a", number, group="g") for number in range(1000))
    identifier = publish("a", 1, group="g", delay=60, hold=True)

    with pytest.raises(InvalidArgument, match=f"{identifier} is held too deep in its group"):
        await ask("cancel", identifier)


async def test_a_scheduled_message_can_be_rescheduled(ask: Ask) -> None:
    identifier = publish("a", 1, group="g", delay=60)

    assert await ask("reschedule", identifier, eta=NOON) is True
    assert (await ask("scheduled")).messages[0].due_at == NOON
    assert await ask("reschedule", identifier, delay=0) is True
    lease = get_transport().claim("worker", 30)
    assert lease is not None
    assert lease.id == identifier
    assert await ask("reschedule", identifier, delay=HOUR) is False


@pytest.mark.parametrize(
    "given",
    [{}, {"delay": 1, "eta": NOON}, {"delay": -1}, {"eta": NOON.replace(tzinfo=None)}],
)
async def test_rescheduling_to_no_moment_is_refused(ask: Ask, given: dict[str, Any]) -> None:
    identifier = publish("a", 1, group="g", delay=60)

    with pytest.raises(InvalidMessage):
        await ask("reschedule", identifier, **given)

    assert (await ask("scheduled")).total == 1


async def test_redriving_is_no_second_publish(ask: Ask) -> None:
    first = publish("a", 1, group="g", dedup_key="k")
    lease = get_transport().claim("worker", 30)
    assert lease is not None
    get_transport().settle(Settlement.dead(lease, "why"))

    assert await ask("redrive") == 1

    assert publish("a", 1, group="g", dedup_key="k") == first
    assert stored() == [first]
