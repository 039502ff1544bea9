"""Does what a project tests with behave as publishing and a worker would?"""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib.util
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import redis
from django.contrib.auth.models import Group
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction
from django.dispatch import Signal
from django.test import TestCase, override_settings

from groupqueue import (
    Delivery,
    Outgoing,
    Reject,
    Retry,
    apublish,
    apublish_many,
    get_queue,
    handler,
    handlers,
    publish,
    publish_many,
)
from groupqueue.core.codec import Content
from groupqueue.exceptions import (
    ConfigurationError,
    CorruptMessage,
    GroupQueueError,
    HandlerError,
    InvalidMessage,
    Snooze,
    StaleLease,
    UnknownQueue,
)
from groupqueue.signals import group_halted, message_dead, message_expired, message_published
from groupqueue.testing import (
    NotEmpty,
    Ran,
    arun_until_empty,
    capture_published,
    fake_redis,
    reset_fake_redis,
    run_until_empty,
    running,
)
from groupqueue.testing import server as fake_server
from groupqueue.transport import servers
from groupqueue.transport.connections import get_async_transport, get_transport
from tests.servers import Server

if TYPE_CHECKING:
    from pytest_django import Settings

IN_MEMORY = {"CONNECTION": "groupqueue.testing.fake_redis"}
NOWHERE = {"CONNECTION": "redis://localhost:1/0"}


@pytest.fixture(autouse=True)
def in_memory(settings: Settings) -> None:
    """Two queues on an empty Redis in memory."""
    reset_fake_redis()
    settings.GROUPQUEUE = {"default": IN_MEMORY, "billing": IN_MEMORY}


@pytest.fixture
def no_redis(settings: Settings) -> None:
    """The same queues on a server that does not exist."""
    settings.GROUPQUEUE = {"default": NOWHERE, "billing": NOWHERE}


@pytest.fixture(autouse=True)
def handled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The payloads that the handler of "note" was called with; no other handler is declared."""
    monkeypatch.setattr(handlers, "_handlers", {})
    payloads: list[Any] = []

    @handler("note")
    def note(delivery: Delivery) -> None:
        payloads.append(delivery.payload)

    return payloads


def say(payload: object, group: str = "g", **options: Any) -> str:
    """Publish what the handler of "note" notes."""
    return publish("note", payload, group=group, **options)


def failing(error: BaseException, topic: str = "fail", **options: Any) -> list[int]:
    """Declare a handler that raises; return the attempts that it is called for."""
    attempts: list[int] = []

    @handler(topic, **options)
    def fail(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        raise error

    return attempts


@contextlib.contextmanager
def heard(signal: Signal) -> Iterator[list[dict[str, Any]]]:
    """Keep the arguments that a signal is sent with."""
    sent: list[dict[str, Any]] = []

    def receive(sender: object, signal: Signal, **arguments: Any) -> None:
        sent.append(arguments)

    signal.connect(receive)
    try:
        yield sent
    finally:
        signal.disconnect(receive)


def backlog(queue: str = "default") -> int:
    """Count the messages that wait in a queue."""
    return sum(tier.messages for tier in get_queue(queue).snapshot().tiers)


# Capturing -------------------------------------------------------------------------------


def test_a_captured_message_is_told_as_its_handler_would_get_it(no_redis: None) -> None:
    with capture_published() as published:
        identifier = publish(
            "orders.paid",
            {"lines": (1, 2)},
            group="order-17",
            queue="billing",
            priority=9,
            headers={"trace": "t1"},
        )

    (message,) = published
    assert message.id == identifier
    assert (message.queue, message.topic, message.group) == ("billing", "orders.paid", "order-17")
    assert message.payload == {"lines": [1, 2]}
    assert message.priority == 4
    assert message.headers == {"trace": "t1"}


async def test_every_way_of_publishing_is_captured(no_redis: None) -> None:
    with capture_published() as published:
        publish("a", 1, group="g")
        publish_many([Outgoing("b", 2, group="g"), Outgoing("c", 3, group="g")])
        await apublish("d", 4, group="g")
        await apublish_many([Outgoing("e", 5, group="g")])
        handlers.registered()["note"].publish(6, group="g")

    assert published.topics() == ["a", "b", "c", "d", "e", "note"]
    assert [message.payload for message in published] == [1, 2, 3, 4, 5, 6]


def test_an_unordered_message_is_captured_without_a_group(no_redis: None) -> None:
    with capture_published() as published:
        publish("a", 1, group=None)

    published.assert_published("a", group=None)


def test_options_of_a_message_are_captured(no_redis: None) -> None:
    noon = datetime.datetime(2100, 1, 1, 12, 0, 0, 123456, tzinfo=datetime.UTC)
    with capture_published() as published:
        say(1, delay=datetime.timedelta(hours=2), dedup_key="once", expires_in=90)
        say(2, eta=noon, hold=True)
        say(3, expires_in=0.5)
        say(4)
        say(5, width=3)

    later, held, brief, plain, wide = published
    assert (later.delay, later.eta, later.hold, later.dedup_key) == (7200, None, False, "once")
    assert (held.delay, held.eta, held.hold) == (None, noon.replace(microsecond=123000), True)
    assert (brief.expires_in, brief.dedup_key) == (0.5, None)
    assert (plain.delay, plain.eta, plain.hold) == (None, None, False)
    assert published.matching(delay=7200) == [later]
    assert published.matching(delay=datetime.timedelta(hours=2)) == [later]
    assert published.matching(expires_in=datetime.timedelta(seconds=90)) == [later]
    assert published.matching(eta=noon) == published.matching(hold=True) == [held]
    assert published.matching(delay=None, eta=None, expires_in=None) == [plain, wide]
    assert published.matching(width=3) == [wide]
    assert plain.width is None
    assert str(later).endswith("payload 1, delay 7200.0, dedup_key 'once', expires_in 90.0")


class Lines:
    """A codec of a project's own."""

    def encode(self, topic: str, payload: Any, headers: Any) -> bytes:
        return f"{topic}\n{payload}".encode()

    def decode(self, body: bytes) -> Content:
        topic, payload = body.decode().split("\n")
        return Content(topic, payload, {})


def test_a_payload_is_read_with_the_codec_of_its_queue(settings: Settings) -> None:
    settings.GROUPQUEUE = {"default": NOWHERE | {"CODEC": Lines}}
    with capture_published() as published:
        publish("a", 17, group="g")

    assert published[0].payload == "17"


def test_a_refused_message_is_refused_under_capture_too(no_redis: None) -> None:
    with capture_published() as published, pytest.raises(InvalidMessage):
        publish("a", object(), group="g")

    published.assert_nothing_published()


def test_a_captured_message_is_announced(no_redis: None) -> None:
    with heard(message_published) as announced, capture_published():
        identifier = publish("a", 1, group="g")

    assert [arguments["message_id"] for arguments in announced] == [identifier]


def test_after_the_block_messages_are_sent_again() -> None:
    with capture_published() as published:
        say(1)
    say(2)

    assert len(published) == 1
    assert backlog() == 1


def test_given_a_queue_the_others_are_sent() -> None:
    with capture_published("billing") as published:
        say(1, queue="billing")
        say(2)

    assert [message.payload for message in published] == [1]
    assert (backlog("billing"), backlog("default")) == (0, 1)


async def test_given_a_queue_the_others_are_sent_by_coroutines_too() -> None:
    with capture_published("billing") as published:
        await apublish("note", 1, group="g", queue="billing")
        await apublish("note", 2, group="g")

    assert [message.payload for message in published] == [1]
    assert backlog() == 1
    await get_async_transport().close()


def test_a_capture_of_an_unknown_queue_is_refused() -> None:
    with pytest.raises(UnknownQueue, match="'bills'"), capture_published("bills"):
        pass


def test_a_capture_inside_another_shares_its_messages(no_redis: None) -> None:
    with capture_published() as outer:
        say(1)
        with capture_published() as inner:
            say(2)
        say(3)

    assert [message.payload for message in outer] == [1, 2, 3]
    assert [message.payload for message in inner] == [2]


# Asserting -------------------------------------------------------------------------------


@pytest.fixture
def three(no_redis: None) -> Iterator[Any]:
    with capture_published() as published:
        publish("orders.paid", {"id": 17}, group="order-17")
        publish("orders.paid", {"id": 18}, group="order-18", priority=2)
        publish("orders.sent", {"id": 17}, group="order-17", queue="billing", headers={"by": "x"})
        yield published


def test_messages_are_found_by_everything_that_is_said_of_them(three: Any) -> None:
    assert three.matching() == list(three)
    assert three.matching("orders.paid") == list(three[:2])
    assert three.matching(group="order-17") == [three[0], three[2]]
    assert three.matching("orders.paid", payload={"id": 18}) == [three[1]]
    assert three.matching(priority=2) == [three[1]]
    assert three.matching(queue="billing") == three.matching(headers={"by": "x"}) == [three[2]]
    assert three.matching("orders.paid", group="order-19") == []


def test_an_assertion_returns_the_messages_that_it_is_about(three: Any) -> None:
    assert three.assert_published("orders.paid") == list(three[:2])
    assert three.assert_published("orders.paid", count=2) == list(three[:2])
    assert three.assert_published("orders.paid", payload={"id": 17}, count=1) == [three[0]]
    assert three.assert_published("orders.lost", count=0) == []


def test_a_failed_assertion_tells_what_was_expected_and_what_was_published(three: Any) -> None:
    with pytest.raises(AssertionError) as failure:
        three.assert_published("orders.paid", group="order-19", payload={"id": 19})

    assert str(failure.value) == (
        "expected 'orders.paid' with group 'order-19', payload {'id': 19} to be published,"
        " found none. Published, in this order:"
        "\n  1. 'orders.paid' with group 'order-17', payload {'id': 17}"
        "\n  2. 'orders.paid' with group 'order-18', payload {'id': 18}, priority 2"
        "\n  3. 'orders.sent' with group 'order-17', payload {'id': 17}, queue 'billing',"
        " headers {'by': 'x'}"
    )


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, "expected 'orders.paid' to be published once, found 2."),
        (3, "expected 'orders.paid' to be published 3 times, found 2."),
        (0, "expected 'orders.paid' to be published 0 times, found 2."),
    ],
)
def test_a_wrong_count_fails(three: Any, count: int, expected: str) -> None:
    with pytest.raises(AssertionError) as failure:
        three.assert_published("orders.paid", count=count)

    assert str(failure.value).startswith(expected)


def test_a_long_payload_is_cut_in_a_failure(no_redis: None) -> None:
    with capture_published() as published:
        say("x" * 10_000)
    with pytest.raises(AssertionError) as failure:
        published.assert_nothing_published()

    assert str(failure.value).startswith("expected nothing to be published. Published, in")
    assert len(str(failure.value)) < 500


def test_messages_can_be_forgotten_half_way(no_redis: None) -> None:
    with capture_published() as published:
        say(1)
        published.clear()
        published.assert_nothing_published()
        say(2)

    assert [message.payload for message in published] == [2]


# Capturing and transactions ----------------------------------------------------------------


@override_settings(GROUPQUEUE={"default": NOWHERE})
class CaptureInATestCase(TestCase):
    """Inside TestCase's transaction, which never commits."""

    def test_a_message_is_captured_when_its_commit_hook_runs(self) -> None:
        with capture_published() as published, self.captureOnCommitCallbacks(execute=True):
            say(1)
            published.assert_nothing_published()

        assert [message.payload for message in published] == [1]

    def test_without_commit_hooks_a_failure_says_what_to_do(self) -> None:
        with capture_published() as published:
            say(1)
            published.assert_nothing_published()
            with pytest.raises(AssertionError, match="captureOnCommitCallbacks"):
                published.assert_published("note")

    def test_at_once_does_not_wait(self) -> None:
        with capture_published() as published:
            say(1, on_commit=False)

        published.assert_published("note", payload=1)

    def test_a_rolled_back_message_is_not_captured(self) -> None:
        with (
            capture_published() as published,
            self.captureOnCommitCallbacks(execute=True),
            contextlib.suppress(ZeroDivisionError),
            transaction.atomic(),
        ):
            say(1)
            raise ZeroDivisionError

        published.assert_nothing_published()


@pytest.mark.django_db(transaction=True)
def test_a_message_is_captured_at_a_real_commit(no_redis: None) -> None:
    with capture_published() as published:
        with transaction.atomic():
            say(1)
            published.assert_nothing_published()

        published.assert_published("note", payload=1, count=1)


# Running ---------------------------------------------------------------------------------


def test_every_due_message_is_handled(handled: list[Any]) -> None:
    publish_many([Outgoing("note", number, group=f"g{number % 3}") for number in range(30)])

    ran = run_until_empty()

    assert ran == Ran(processed=30, failures=())
    assert sorted(handled) == list(range(30))
    assert backlog() == 0
    assert run_until_empty() == Ran(processed=0, failures=())


def test_groups_take_turns_and_each_keeps_its_order(handled: list[Any]) -> None:
    for payload in ("a1", "a2", "a3", "b1", "b2", "c1"):
        say(payload, group=payload[0])

    run_until_empty()

    assert handled == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_urgent_groups_come_first_as_often_as_the_settings_say(
    handled: list[Any], settings: Settings
) -> None:
    settings.GROUPQUEUE = {"default": IN_MEMORY | {"PRIORITY_SHARE": 1}}
    say("later", group="a")
    say("now", group="b", priority=4)

    run_until_empty()

    assert handled == ["now", "later"]


def test_messages_that_handlers_publish_are_handled_too(handled: list[Any]) -> None:
    @handler("count")
    def count(delivery: Delivery) -> None:
        if delivery.payload > 1:
            count.publish(delivery.payload - 1, group=delivery.group)
        say(delivery.payload)

    count.publish(3, group="counting")

    assert run_until_empty().processed == 6
    assert handled == [3, 2, 1]


def test_async_handlers_are_run(handled: list[Any]) -> None:
    @handler("async")
    async def handle(delivery: Delivery) -> None:
        handled.append(delivery.payload)
        await apublish("note", "from a coroutine", group=delivery.group)

    publish("async", "async", group="g")

    assert run_until_empty().processed == 2
    assert handled == ["async", "from a coroutine"]


def test_only_the_named_queue_is_run(handled: list[Any]) -> None:
    say(1)
    say(2, queue="billing")

    run_until_empty("billing")

    assert handled == [2]
    assert backlog("default") == 1


def test_an_unknown_queue_is_refused() -> None:
    with pytest.raises(UnknownQueue, match="'bills'"):
        run_until_empty("bills")


def test_a_paused_group_is_left_alone(handled: list[Any]) -> None:
    say(1)
    get_queue().pause("g")

    assert run_until_empty(advance_parked=True).processed == 0
    get_queue().resume("g")
    assert run_until_empty().processed == 1


def test_a_group_that_somebody_else_holds_is_left_alone(handled: list[Any]) -> None:
    say(1)
    lease = get_transport().claim("somebody", 30)
    assert lease is not None

    assert run_until_empty(advance_parked=True).processed == 0
    get_transport().nack(lease)
    assert run_until_empty().processed == 1


# Failures ----------------------------------------------------------------------------------


def test_a_handlers_error_is_raised_once_its_message_is_settled(handled: list[Any]) -> None:
    error = ZeroDivisionError("by zero")
    failing(error)
    publish("fail", 1, group="bad")
    say(2, group="good")

    with pytest.raises(ZeroDivisionError, match="by zero") as raised:
        run_until_empty()

    assert raised.value is error
    assert error.__notes__ == [
        "run_until_empty() handled 'fail' of group 'bad', attempt 1; the outcome is retry"
    ]
    (parked,) = get_queue().snapshot().parked
    assert (parked.group, parked.failures) == ("bad", 1)
    assert parked.last_error == "ZeroDivisionError: by zero"
    assert handled == []
    assert run_until_empty().processed == 1


def test_an_async_handlers_error_is_raised_as_well() -> None:
    error = ZeroDivisionError("by zero")

    @handler("async")
    async def fail(delivery: Delivery) -> None:
        raise error

    publish("async", 1, group="g")
    with pytest.raises(ZeroDivisionError) as raised:
        run_until_empty()

    assert raised.value is error


def test_without_raising_the_result_tells_of_each_failure(handled: list[Any]) -> None:
    error = ZeroDivisionError("by zero")
    failing(error, backoff=(8, 8))
    identifier = publish("fail", 1, group="bad")
    say(2, group="good")

    ran = run_until_empty(raise_errors=False)

    assert (ran.processed, ran.failed) == (1, 1)
    (failure,) = ran.failures
    assert (failure.message_id, failure.group, failure.topic) == (identifier, "bad", "fail")
    assert (failure.attempt, failure.outcome, failure.error) == (1, "retry", error)
    assert failure.parked_seconds is not None
    assert 4 <= failure.parked_seconds <= 8


def test_an_exhausted_message_halts_its_group() -> None:
    failing(ZeroDivisionError(), max_attempts=1)
    publish("fail", 1, group="bad")
    say(2, group="bad")

    with heard(group_halted) as halts:
        ran = run_until_empty(raise_errors=False)

    assert [failure.outcome for failure in ran.failures] == ["halt"]
    assert ran.failures[0].parked_seconds is None
    assert [halt["reason"] for halt in halts] == ["max_attempts"]
    (held,) = get_queue().snapshot().held
    assert (held.group, held.state, held.depth) == ("bad", "halted", 2)


def test_a_dead_letter_lets_its_group_go_on(handled: list[Any]) -> None:
    failing(ZeroDivisionError(), max_attempts=1, on_exhausted="dead_letter")
    publish("fail", 1, group="bad")
    say(2, group="bad")

    with heard(message_dead) as dead:
        ran = run_until_empty(raise_errors=False)

    assert [failure.outcome for failure in ran.failures] == ["dead"]
    assert [letter["reason"] for letter in dead] == ["max_attempts"]
    assert handled == [2]


@pytest.mark.parametrize("real", [False, True])
def test_a_group_set_aside_is_handled_to_its_end_however_long_it_is(
    handled: list[Any],
    settings: Settings,
    default_server: Server,
    default_client: redis.Redis,
    *,
    real: bool,
) -> None:
    if real:
        settings.GROUPQUEUE = {"default": {"CONNECTION": default_server.url}}
    failing(ZeroDivisionError(), max_attempts=1, on_exhausted="dead_letter_group")
    publish("fail", 0, group="bad")
    publish_many(Outgoing("note", number, group="bad") for number in range(2500))
    say("live", group="good")

    with heard(message_dead) as dead:
        ran = run_until_empty(raise_errors=False)

    assert [failure.outcome for failure in ran.failures] == ["dead_group"]
    assert (ran.processed, handled, backlog()) == (1, ["live"], 0)
    assert [letter["reason"] for letter in dead] == ["max_attempts", *["group"] * 2500]
    assert {letter["group"] for letter in dead} == {"bad"}
    assert (dead[-1]["delivery"], dead[-1]["queue"]) == (None, "default")


def test_an_error_is_dealt_with_as_its_class_asks_for(handled: list[Any]) -> None:
    attempts: list[int] = []

    @handler(
        "sort",
        max_attempts=9,
        on_exhausted="halt",
        on_error={
            ValueError: "dead_letter",
            OSError: {"max_attempts": 2, "on_exhausted": "dead_letter_group"},
            KeyError: "retry",
        },
    )
    def sort(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        raise {
            "value": ValueError,
            "unicode": UnicodeError,  # a ValueError
            "time": TimeoutError,  # an OSError
            "key": KeyError,
            "other": ZeroDivisionError,
        }[delivery.payload]

    outcomes = {}
    for payload in ("value", "unicode", "time", "key", "other"):
        sort.publish(payload, group=payload)
        say("behind", group=payload)
        ran = run_until_empty(advance_parked=True, raise_errors=False)
        outcomes[payload] = [failure.outcome for failure in ran.failures]

    assert outcomes == {
        "value": ["dead"],
        "unicode": ["dead"],
        "time": ["retry", "dead_group"],
        "key": [*["retry"] * 8, "halt"],
        "other": [*["retry"] * 8, "halt"],
    }
    # What waited behind a dead letter went on, what waited behind the others did not.
    assert handled == ["behind", "behind"]
    assert [letter.reason for letter in get_queue().dead_letters().letters] == [
        "group",
        "max_attempts",
        "max_attempts",
        "max_attempts",
    ]


def test_retries_hold_their_group_no_longer_than_max_block(handled: list[Any]) -> None:
    failing(
        ZeroDivisionError(),
        max_attempts=100,
        backoff=(30, 30),
        max_block=70,
        on_exhausted="dead_letter",
    )
    publish("fail", 1, group="g")
    say("behind")

    *retries, last = run_until_empty(advance_parked=True, raise_errors=False).failures

    # The last wait ends with the block: then the message has its last chance.
    assert {failure.outcome for failure in retries} == {"retry"}
    assert sum(failure.parked_seconds or 0 for failure in retries) == pytest.approx(70, abs=5)
    assert (last.outcome, handled) == ("dead", ["behind"])
    (letter,) = get_queue().dead_letters().letters
    assert letter.reason == "max_block"


def test_snooze_is_meant_and_not_raised() -> None:
    failing(Snooze(30))

    publish("fail", 1, group="g")
    ran = run_until_empty()

    (failure,) = ran.failures
    assert isinstance(failure.error, Snooze)
    assert failure.parked_seconds == 30


def test_retry_is_meant_and_not_raised() -> None:
    attempts = failing(Retry(delay=60))
    publish("fail", 1, group="g")

    ran = run_until_empty()

    assert attempts == [1]
    assert [failure.parked_seconds for failure in ran.failures] == [60]
    assert get_queue().snapshot().parked[0].group == "g"


def test_reject_is_meant_and_not_raised() -> None:
    attempts = failing(Reject("no such order"), on_exhausted="dead_letter")
    publish("fail", 1, group="g")

    with heard(message_dead) as dead:
        ran = run_until_empty()

    assert attempts == [1]
    assert [failure.outcome for failure in ran.failures] == ["dead"]
    assert [letter["reason"] for letter in dead] == ["no such order"]


def test_the_messages_of_a_wide_group_are_handled_though_one_waits(handled: list[Any]) -> None:
    attempts = failing(Retry(delay=60), max_attempts=3)
    publish("fail", 1, group="wide", width=2)
    say(2, group="wide")
    publish("unheard.of", 3, group="wide")
    say(4, group="wide")

    ran = run_until_empty(raise_errors=False, advance_parked=True)

    assert handled == [2, 4]
    assert attempts == [1, 2, 3]
    assert {failure.group for failure in ran.failures} == {"wide"}
    assert sorted(failure.outcome for failure in ran.failures) == [
        "halt",
        "release",
        "retry",
        "retry",
    ]
    assert get_queue().explain("wide").group.started == 2


def test_a_topic_without_a_handler_is_an_error() -> None:
    publish("unheard.of", 1, group="g")

    with pytest.raises(HandlerError, match=r"no handler for topic 'unheard\.of'"):
        run_until_empty()

    (parked,) = get_queue().snapshot().parked
    assert (parked.group, parked.deliveries) == ("g", 0)


def test_time_does_not_pass_for_a_topic_without_a_handler(handled: list[Any]) -> None:
    publish("unheard.of", 1, group="g")
    say(2, group="good")

    ran = run_until_empty(raise_errors=False, advance_parked=True)

    assert ran.processed == 1
    assert [failure.outcome for failure in ran.failures] == ["release"]


def test_bytes_that_are_no_message_are_an_error() -> None:
    get_transport().publish("g", b"no message")

    with pytest.raises(CorruptMessage):
        run_until_empty()

    assert [held.held_reason for held in get_queue().snapshot().held] == ["corrupt"]


def test_a_message_that_took_workers_down_is_an_error(handled: list[Any]) -> None:
    handler("poison", max_crashes=1)(lambda delivery: handled.append("poison"))
    publish("poison", 1, group="g")
    assert get_transport().claim("crashing", 0.001) is not None
    ran = run_until_empty(raise_errors=False)
    while not ran.failures:  # until that lease has run out
        ran = run_until_empty(raise_errors=False)

    (failure,) = ran.failures
    assert failure.outcome == "halt"
    assert type(failure.error) is GroupQueueError
    assert handled == []


def test_a_lease_that_ended_before_the_settlement_is_an_error() -> None:
    @handler("careless")
    def handle(delivery: Delivery) -> None:
        reset_fake_redis()

    publish("careless", 1, group="g")
    with pytest.raises(StaleLease):
        run_until_empty()

    publish("careless", 1, group="g")
    ran = run_until_empty(raise_errors=False)
    assert [failure.outcome for failure in ran.failures] == ["lost"]


# Batches -------------------------------------------------------------------------------------


def taking(
    size: int, *, fails_at: int | None = None, error: BaseException | None = None, **options: Any
) -> list[list[int]]:
    """Declare a batch handler that acknowledges one by one; return what it is called with."""
    calls: list[list[int]] = []

    @handler("batch", batch=size, **options)
    def take(deliveries: list[Delivery]) -> None:
        calls.append([delivery.payload for delivery in deliveries])
        for delivery in deliveries:
            if delivery.payload == fails_at and delivery.attempt == 1:
                raise error or RuntimeError("out of paint")
            delivery.acknowledge()

    return calls


def publish_batch(count: int, group: str = "g") -> None:
    publish_many(Outgoing("batch", n, group=group) for n in range(count))


def test_a_batch_handler_gets_lists_as_from_a_worker(handled: list[Any]) -> None:
    calls = taking(3)
    publish_batch(4)
    publish_batch(2, "other")
    say("between")
    publish("batch", 4, group="g")

    ran = run_until_empty()

    assert sorted(calls) == [[0, 1], [0, 1, 2], [3], [4]]
    assert handled == ["between"]
    assert (ran.processed, ran.failures) == (8, ())
    assert backlog() == 0


async def test_an_async_batch_handler_gets_lists() -> None:
    calls: list[list[int]] = []

    @handler("batch", batch=10)
    async def take(deliveries: list[Delivery]) -> None:
        calls.append([delivery.payload for delivery in deliveries])

    await apublish_many(Outgoing("batch", n, group="g") for n in range(3))

    assert (await arun_until_empty()).processed == 3
    assert calls == [[0, 1, 2]]


def test_a_failure_in_a_batch_is_that_of_the_first_message_not_acknowledged() -> None:
    calls = taking(5, fails_at=2)
    ids = [publish("batch", n, group="g") for n in range(4)]

    ran = run_until_empty(raise_errors=False, advance_parked=True)

    assert calls == [[0, 1, 2, 3], [2], [3]]
    assert ran.processed == 4
    (failure,) = ran.failures
    assert (failure.message_id, failure.attempt, failure.outcome) == (ids[2], 1, "retry")
    assert isinstance(failure.error, RuntimeError)


def test_an_error_in_a_batch_is_raised_once_what_was_acknowledged_is_finished() -> None:
    taking(5, fails_at=2)
    publish_batch(4)

    with pytest.raises(RuntimeError, match="out of paint") as raised:
        run_until_empty()

    assert backlog() == 2
    assert "attempt 1; the outcome is retry" in raised.value.__notes__[0]


@pytest.mark.parametrize(
    ("error", "outcome", "parked_seconds"),
    [(Snooze(30), "release", 30), (Retry(delay=60), "retry", 60), (Reject("no"), "halt", None)],
)
def test_what_ends_a_batch_on_purpose_is_told_of_its_message(
    error: BaseException, outcome: str, parked_seconds: float | None
) -> None:
    taking(5, fails_at=1, error=error)
    ids = [publish("batch", n, group="g") for n in range(3)]

    ran = run_until_empty()

    (failure,) = ran.failures
    assert ran.processed == 1
    assert (failure.message_id, failure.topic, failure.outcome) == (ids[1], "batch", outcome)
    assert failure.parked_seconds == parked_seconds


def test_the_limit_counts_the_messages_of_batches() -> None:
    calls = taking(4)
    publish_batch(10)

    with pytest.raises(NotEmpty) as reached:
        run_until_empty(limit=6)

    assert calls == [[0, 1, 2, 3], [4, 5]]
    assert reached.value.ran.processed == 6
    assert backlog() == 4
    assert run_until_empty(limit=4).processed == 4


def test_a_batch_whose_lease_has_ended_is_told_by_its_head() -> None:
    @handler("batch", batch=5)
    def take(deliveries: list[Delivery]) -> None:
        reset_fake_redis()

    first = publish("batch", 0, group="g")
    publish("batch", 1, group="g")

    ran = run_until_empty(raise_errors=False)

    assert ran.processed == 0
    assert [(failure.message_id, failure.outcome) for failure in ran.failures] == [(first, "lost")]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), pytest.fail.Exception("failed")])
def test_an_interrupted_message_is_handed_back(interruption: BaseException) -> None:
    attempts = failing(interruption)
    publish("fail", 1, group="g")

    for _ in range(2):
        with pytest.raises(type(interruption)):
            run_until_empty()

    assert attempts == [1, 1]
    (due,) = get_queue().snapshot().waiting
    assert (due.group, due.deliveries) == ("g", 0)


# Time and limits ---------------------------------------------------------------------------


def test_parked_groups_wait_unless_their_time_is_to_pass() -> None:
    attempts = failing(Retry(delay=3600), max_attempts=3)
    publish("fail", 1, group="g")

    assert run_until_empty().failed == 1
    assert run_until_empty().failed == 0
    assert [failure.outcome for failure in run_until_empty(advance_parked=True).failures] == [
        "retry",
        "halt",
    ]
    assert attempts == [1, 2, 3]


def test_time_passes_for_all_parked_groups_alike(handled: list[Any]) -> None:
    @handler("wait")
    def wait(delivery: Delivery) -> None:
        handled.append((delivery.group, delivery.attempt))
        if delivery.attempt <= len(delivery.payload):
            raise Retry(delay=delivery.payload[delivery.attempt - 1])

    # After 100 seconds a comes back and waits for as many again: b has been due before.
    wait.publish([100, 100], group="a")
    wait.publish([150], group="b")

    ran = run_until_empty(advance_parked=True)

    assert handled == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3)]
    assert (ran.processed, ran.failed) == (2, 3)


def test_time_passes_for_scheduled_and_held_messages_in_their_order(handled: list[Any]) -> None:
    say("held", group="held", delay=7200, hold=True)
    say("behind it", group="held")
    say("in an hour", delay=3600)
    say("tomorrow", eta=datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1))
    say("now")

    assert run_until_empty().processed == 1
    assert run_until_empty(advance_parked=True).processed == 4

    assert handled == ["now", "in an hour", "held", "behind it", "tomorrow"]
    assert get_queue().scheduled().total == 0
    assert backlog() == 0


@pytest.mark.parametrize("rate", ["1/m", {"group": "1/m"}, {"queue": "1/m:2", "group": "1/h"}])
def test_time_passes_for_what_a_rate_does_not_let_go(
    handled: list[Any], settings: Settings, rate: Any
) -> None:
    settings.GROUPQUEUE = {"default": IN_MEMORY | {"RATE": rate}}
    for number in range(3):
        say(number, group="g")

    assert run_until_empty().processed == 1
    assert run_until_empty().processed == 0
    assert run_until_empty(advance_parked=True).processed == 2

    assert handled == [0, 1, 2]


def test_a_message_that_joins_a_paused_group_does_not_end_the_passing_of_time(
    handled: list[Any],
) -> None:
    get_queue().pause("paused")
    say("never", group="paused", delay=60)
    say("later", delay=3600)

    assert run_until_empty(advance_parked=True).processed == 1

    assert handled == ["later"]
    assert backlog() == 1


def test_what_cannot_join_its_group_does_not_keep_a_run_from_ending(handled: list[Any]) -> None:
    identifier = say(1, delay=60)
    fake_redis().hset("gq:{default:0}:scheduled:data", identifier, "foreign")

    assert run_until_empty(advance_parked=True).processed == 0


def test_a_message_that_expires_is_told_of(
    handled: list[Any], settings: Settings, default_server: Server, default_client: redis.Redis
) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": default_server.url}}
    identifier = say(1, delay=60, expires_in=0.001)
    say(2, group="other")

    with heard(message_expired) as expired:
        ran = run_until_empty(advance_parked=True)

    assert (ran.processed, handled) == (1, [2])
    assert expired == [{"message_id": identifier, "group": "g", "queue": "default"}]


def test_time_passes_on_a_real_server_too(
    handled: list[Any], settings: Settings, default_server: Server, default_client: redis.Redis
) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": default_server.url}}
    attempts = failing(Retry(delay=3600), max_attempts=3)
    publish("fail", 1, group="g")
    say(2, group="good")
    say(3, group="scheduled", delay=9000)
    say(4, group="held", delay=9900, hold=True)

    ran = run_until_empty(advance_parked=True)

    assert attempts == [1, 2, 3]
    assert (ran.processed, ran.failed, handled) == (3, 3, [2, 3, 4])


def test_what_comes_due_by_itself_meanwhile_is_handled_too(
    handled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    identifier = say(1, delay=60)
    let_time_pass = running._Run._let_time_pass

    def come_due_before(run: running._Run) -> int:
        get_transport().client.zadd("gq:{default:0}:scheduled", {identifier: 0}, xx=True)
        return let_time_pass(run)

    monkeypatch.setattr(running._Run, "_let_time_pass", come_due_before)

    assert run_until_empty(advance_parked=True).processed == 1
    assert handled == [1]


def test_a_handler_that_publishes_without_end_is_stopped() -> None:
    @handler("again")
    def again(delivery: Delivery) -> None:
        again.publish(None, group="g")

    again.publish(None, group="g")
    with pytest.raises(NotEmpty, match="'default' is not empty after 10 messages") as raised:
        run_until_empty(limit=10)

    assert raised.value.ran == Ran(processed=10, failures=())
    (due,) = get_queue().snapshot().waiting
    assert (due.depth, due.deliveries) == (1, 0)


def test_a_handler_that_is_retried_without_end_is_stopped() -> None:
    failing(Retry(), max_attempts=1000)
    publish("fail", 1, group="g")

    with pytest.raises(NotEmpty) as raised:
        run_until_empty(limit=10, advance_parked=True)

    assert raised.value.ran.failed == 10


def test_reaching_the_limit_with_the_last_message_is_fine() -> None:
    publish_many([Outgoing("note", number, group="g") for number in range(10)])

    assert run_until_empty(limit=10).processed == 10


# Coroutines --------------------------------------------------------------------------------


async def test_a_coroutine_awaits_the_twin(handled: list[Any]) -> None:
    @handler("async")
    async def handle(delivery: Delivery) -> None:
        handled.append(delivery.payload)
        await apublish("note", "from a coroutine", group=delivery.group)

    await apublish("async", "async", group="g")
    await apublish("note", "sync", group="h")

    ran = await arun_until_empty()

    assert ran.processed == 3
    assert sorted(handled) == ["async", "from a coroutine", "sync"]
    await get_async_transport().close()


async def test_the_twin_raises_and_stops_as_the_original() -> None:
    failing(ZeroDivisionError())
    publish("fail", 1, group="g")

    with pytest.raises(ZeroDivisionError):
        await arun_until_empty()
    with pytest.raises(NotEmpty):
        await arun_until_empty(limit=0, advance_parked=True)
    assert (await arun_until_empty(advance_parked=True, raise_errors=False)).failed == 4


async def test_an_event_loop_is_not_blocked() -> None:
    with pytest.raises(SynchronousOnlyOperation, match="await arun_until_empty"):
        run_until_empty()


# The database ------------------------------------------------------------------------------


def hook(calls: list[Any], payload: object) -> Callable[[], None]:
    """Return a commit hook that notes that it ran."""
    return functools.partial(calls.append, payload)


@override_settings(GROUPQUEUE={"default": IN_MEMORY})
class RunInATestCase(TestCase):
    """Inside TestCase's transaction, which never commits."""

    @classmethod
    def setUpTestData(cls) -> None:
        Group.objects.create(name="from the class")

    def setUp(self) -> None:
        reset_fake_redis()
        self.calls: list[Any] = []

        @handler("save")
        def save(delivery: Delivery) -> None:
            Group.objects.create(name=delivery.payload)
            with transaction.atomic():
                transaction.on_commit(hook(self.calls, "hook"))
                say("saved")

        @handler("asave")
        async def asave(delivery: Delivery) -> None:
            await Group.objects.acreate(name=delivery.payload)

        @handler("break")
        def fail(delivery: Delivery) -> None:
            with transaction.atomic():
                Group.objects.create(name=delivery.payload)
                say("never")
                raise ZeroDivisionError

    def names(self) -> list[str]:
        """Return the names of the groups in the database."""
        return list(Group.objects.order_by("pk").values_list("name", flat=True))

    def test_handlers_share_the_tests_transaction(self) -> None:
        Group.objects.create(name="from the test")
        publish("save", "sync", group="g", on_commit=False)
        publish("asave", "async", group="g", on_commit=False)

        run_until_empty()

        assert connection.in_atomic_block
        assert self.names() == ["from the class", "from the test", "sync", "async"]

    def test_nothing_of_another_test_is_left(self) -> None:
        assert self.names() == ["from the class"]

    def test_what_the_test_published_counts_as_committed(self) -> None:
        publish("save", "sync", group="g")

        assert run_until_empty().processed == 2
        assert self.names() == ["from the class", "sync"]

    def test_what_was_sent_by_a_commit_hook_is_not_sent_twice(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            publish("save", "sync", group="g")
            assert run_until_empty().processed == 2
        assert run_until_empty().processed == 0

    def test_commit_hooks_of_handlers_run_once(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            publish("save", "sync", group="g", on_commit=False)
            run_until_empty()

        assert self.calls == ["hook"]

    def test_commit_hooks_of_the_test_are_left_to_the_test(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            transaction.on_commit(hook(self.calls, "of the test"))
            publish("save", "sync", group="g")
            run_until_empty()
            assert self.calls == ["hook"]

        assert self.calls == ["hook", "of the test"]

    def test_what_a_handler_rolls_back_is_gone(self) -> None:
        publish("break", "broken", group="g")

        ran = run_until_empty(raise_errors=False)

        assert (ran.processed, ran.failed) == (0, 1)
        assert self.names() == ["from the class"]
        assert backlog() == 1

    def test_a_transaction_of_the_tests_own_is_not_committed(self) -> None:
        with transaction.atomic():
            publish("save", "sync", group="g")
            assert run_until_empty().processed == 0
            publish("save", "at once", group="g", on_commit=False)
            assert run_until_empty().processed == 1
            assert self.calls == []

        assert run_until_empty().processed == 3

    def test_a_commit_hook_that_fails_is_the_tests_to_see(self) -> None:
        def fail() -> None:
            raise ZeroDivisionError

        @handler("hooked")
        def hooked(delivery: Delivery) -> None:
            transaction.on_commit(fail, robust=delivery.payload)

        publish("hooked", False, group="g")
        with pytest.raises(ZeroDivisionError):
            run_until_empty()
        assert backlog() == 1

        reset_fake_redis()
        publish("hooked", True, group="g")
        with self.assertLogs("groupqueue", "ERROR"):
            assert run_until_empty().processed == 1

    def test_captured_messages_are_those_that_handlers_publish(self) -> None:
        publish("save", "sync", group="g", on_commit=False)

        with capture_published() as published:
            assert run_until_empty().processed == 1

        published.assert_published("note", payload="saved", group="g", count=1)


@pytest.mark.django_db(transaction=True)
def test_handlers_commit_when_the_test_has_no_transaction(handled: list[Any]) -> None:
    calls: list[Any] = []

    @handler("save")
    def save(delivery: Delivery) -> None:
        with transaction.atomic():
            Group.objects.create(name=delivery.payload)
            transaction.on_commit(hook(calls, "hook"))
            say("saved")

    with transaction.atomic():
        save.publish("sync", group="g")
        assert run_until_empty().processed == 0
    before = connection.connection

    assert run_until_empty().processed == 2
    assert connection.connection is before
    assert (calls, handled) == (["hook"], ["saved"])
    assert Group.objects.filter(name="sync").exists()


@pytest.mark.django_db
def test_pytests_own_transaction_is_like_a_testcases(handled: list[Any]) -> None:
    say(1)

    assert run_until_empty().processed == 1
    assert handled == [1]


# The server in memory ------------------------------------------------------------------------


def test_all_queues_of_the_process_share_one_server_in_memory() -> None:
    say(1)
    say(2, queue="billing")

    assert len(fake_redis().keys("gq:{default:0}:q:*")) == 1
    assert len(fake_redis().keys("gq:{billing:0}:q:*")) == 1

    reset_fake_redis()
    assert fake_redis().keys("*") == []


async def test_coroutines_share_the_server_in_memory() -> None:
    await apublish("note", 1, group="g")
    transport = get_async_transport()

    lease = await transport.claim("worker", 30)
    assert lease is not None
    assert lease.payload == b'["note",1]'
    assert await transport.wait_for_hint(0.01)
    assert not await transport.wait_for_hint(0.01)
    assert await transport.ack(lease) == 0
    await transport.close()


def test_the_server_in_memory_answers_operators() -> None:
    say(1)
    queue = get_queue()

    assert queue.pause("g", "for a look")
    assert [group.held_reason for group in queue.snapshot().held] == ["for a look"]
    assert queue.resume("g")


def test_a_server_that_cannot_tell_of_itself_is_reported_as_such() -> None:
    with pytest.raises(GroupQueueError, match="info"):
        servers.findings("default")


@pytest.mark.parametrize("missing", ["fakeredis", "lupa"])
def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find_spec(name)
    )
    fake_server._fake_server.cache_clear()

    with pytest.raises(ConfigurationError, match=rf"needs {missing}: pip install groupqueue\[tes"):
        get_transport("default")
