"""Is a function declared as a handler found by its topic, and is every slip refused?"""

from __future__ import annotations

import functools
import importlib
import inspect
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.test import override_settings

import groupqueue
from groupqueue import Delivery, handler, handlers, publishing
from groupqueue.conf import get_config
from groupqueue.core.codec import Content
from groupqueue.core.delivery import message_from
from groupqueue.core.messages import Lease
from groupqueue.core.retries import RetryPolicy
from groupqueue.exceptions import HandlerError, Reject, Retry

if TYPE_CHECKING:
    from pytest_django import Settings

LEASE = Lease("order-17", 1_000, "0" * 32, b"", 2, 4, 1, 1_700_000_000_123, 0)


def a_delivery(topic: str = "orders.paid", payload: object = None) -> Delivery:
    return Delivery(LEASE, Content(topic, payload, {"trace": "t1"}), "default")


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty registry for each test."""
    monkeypatch.setattr(handlers, "_handlers", {})
    yield
    sys.modules.pop("tests.handlers_app.handlers", None)


# Declaring -----------------------------------------------------------------------------


def test_a_handler_is_found_by_its_topic() -> None:
    @handler("orders.paid")
    def order_paid(delivery: Delivery) -> None: ...

    assert handlers.get_handler("orders.paid") is order_paid
    assert handlers.get_handler("orders.sent") is None
    assert dict(handlers.registered()) == {"orders.paid": order_paid}
    assert order_paid.topic == "orders.paid"
    assert not order_paid.is_async


def test_the_registry_cannot_be_changed_from_outside() -> None:
    with pytest.raises(TypeError):
        handlers.registered()["orders.paid"] = None  # type: ignore[index]


def test_a_handler_is_called_like_the_function_it_is() -> None:
    @handler("orders.paid")
    def order_paid(delivery: Delivery) -> str:
        """Book the payment."""
        return f"booked {delivery.payload}"

    assert order_paid(a_delivery(payload=17)) == "booked 17"
    assert order_paid.__doc__ == "Book the payment."
    assert order_paid.__name__ == "order_paid"  # type: ignore[attr-defined]
    assert repr(order_paid).endswith("order_paid of 'orders.paid'>")


async def test_an_async_handler_is_awaited() -> None:
    @handler("orders.paid")
    async def order_paid(delivery: Delivery) -> str:
        return f"booked {delivery.payload}"

    assert order_paid.is_async
    assert await order_paid(a_delivery(payload=17)) == "booked 17"


def test_an_object_with_an_async_call_is_async() -> None:
    class OrderPaid:
        async def __call__(self, delivery: Delivery) -> None: ...

    assert handler("orders.paid")(OrderPaid()).is_async


def test_a_function_may_handle_two_topics() -> None:
    @handler("orders.paid")
    @handler("orders.refunded")
    def booked(delivery: Delivery) -> str:
        return delivery.topic

    assert handlers.get_handler("orders.paid") is booked
    refunded = handlers.get_handler("orders.refunded")
    assert refunded is not None
    assert refunded.topic == "orders.refunded"
    assert refunded(a_delivery("orders.refunded")) == "orders.refunded"


def test_two_functions_for_one_topic_are_refused_by_name() -> None:
    @handler("orders.paid")
    def first(delivery: Delivery) -> None: ...

    with pytest.raises(HandlerError) as caught:

        @handler("orders.paid")
        def second(delivery: Delivery) -> None: ...

    where = f"{__name__}.test_two_functions_for_one_topic_are_refused_by_name.<locals>"
    assert f"'orders.paid' has two handlers, {where}.first and {where}.second" in str(caught.value)
    assert handlers.get_handler("orders.paid") is first


def test_a_module_loaded_again_replaces_its_handlers() -> None:
    module = importlib.import_module("tests.handlers_app.handlers")
    before = handlers.get_handler("handlers_app.sync")

    importlib.reload(module)

    after = handlers.get_handler("handlers_app.sync")
    assert after is module.handle
    assert after is not before


@pytest.mark.parametrize("topic", ["", "t" * 201, None, 17, b"orders.paid"])
def test_an_unfit_topic_is_refused(topic: Any) -> None:
    with pytest.raises(HandlerError, match="needs a topic"):
        handler(topic)


@pytest.mark.parametrize("batch", [0, -1, 1001, True, 2.0, "x", [3]])
def test_an_unfit_batch_is_refused(batch: Any) -> None:
    with pytest.raises(HandlerError, match="batch=…\\) must be an integer from 1 to 1000, not"):
        handler("orders.paid", batch=batch)


@pytest.mark.parametrize("batch", [1, 1000])
def test_a_batch_handler_is_called_with_a_list(batch: int) -> None:
    @handler("orders.paid", batch=batch)
    def orders_paid(deliveries: list[Delivery]) -> list[object]:
        return [delivery.payload for delivery in deliveries]

    assert orders_paid.batch == batch
    assert orders_paid([a_delivery(payload=17)]) == [17]


def test_the_largest_batch_declared_decides_how_much_a_lease_takes() -> None:
    assert handlers.largest_batch() == 1
    handler("orders.paid")(takes_one)
    assert handlers.largest_batch() == 1
    handler("orders.sent", batch=20)(takes_one)
    handler("orders.lost", batch=3)(takes_one)

    assert handlers.largest_batch() == 20


def test_a_forgotten_topic_is_explained() -> None:
    with pytest.raises(HandlerError, match=r'as in @handler\("orders.paid"\)'):

        @handler  # type: ignore[arg-type]
        def order_paid(delivery: Delivery) -> None: ...


def takes_nothing() -> None: ...


def takes_two(delivery: Delivery, other: object) -> None: ...


def takes_a_keyword(*, delivery: Delivery) -> None: ...


def yields(delivery: Delivery) -> Iterator[None]:
    yield


async def yields_in_loop(delivery: Delivery) -> Any:
    yield


class NoFunction:
    def __init__(self, delivery: Delivery) -> None: ...


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (takes_nothing, "must take one argument, the delivery: too many positional arguments"),
        (takes_two, "must take one argument, the delivery: missing a required argument: 'other'"),
        (takes_a_keyword, "must take one argument, the delivery"),
        (yields, "contains yield"),
        (yields_in_loop, "contains yield"),
        (NoFunction, "must be a function that takes a delivery"),
        (17, "must be a function that takes a delivery"),
    ],
)
def test_an_unfit_function_is_refused_when_it_is_declared(function: Any, complaint: str) -> None:
    with pytest.raises(HandlerError) as caught:
        handler("orders.paid")(function)

    assert complaint in str(caught.value)
    assert handlers.get_handler("orders.paid") is None


def with_a_ledger(function: Callable[[Delivery, str], str]) -> Callable[[Delivery], str]:
    @functools.wraps(function)
    def wrapper(delivery: Delivery) -> str:
        return function(delivery, "ledger")

    return wrapper


def test_a_decorator_may_hand_in_further_arguments() -> None:
    @handler("orders.paid")
    @with_a_ledger
    def order_paid(delivery: Delivery, ledger: str) -> str:
        return ledger

    assert order_paid(a_delivery()) == "ledger"


def test_a_coroutine_that_a_decorator_hid_does_not_pass_for_success() -> None:
    def hiding(function: Callable[[Delivery], Any]) -> Callable[[Delivery], Any]:
        def wrapper(delivery: Delivery) -> Any:
            return function(delivery)

        return wrapper

    @handler("orders.paid")
    @hiding
    async def order_paid(delivery: Delivery) -> None: ...

    with pytest.raises(HandlerError, match="one of its decorators must be made async"):
        order_paid(a_delivery())


# Options -------------------------------------------------------------------------------


def test_a_handler_without_options_keeps_the_queues_policy(settings: Settings) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": "default", "HANDLER_TIMEOUT": 9}}
    policy = RetryPolicy(max_attempts=2)

    declared = handler("orders.paid")(takes_one)

    assert declared.policy_for(policy) is policy
    assert declared.timeout_seconds is None
    assert declared.timeout_for(get_config()) == 9.0


def takes_one(delivery: Delivery) -> None: ...


def test_a_handlers_options_stand_in_for_the_queues(settings: Settings) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": "default", "HANDLER_TIMEOUT": 9}}

    declared = handler(
        "orders.paid",
        max_attempts=1,
        max_crashes=2,
        backoff=(3, 4),
        max_block=timedelta(hours=1),
        on_exhausted="dead_letter",
        timeout=5,
    )(takes_one)

    assert declared.policy_for(RetryPolicy()) == RetryPolicy(
        max_attempts=1,
        max_crashes=2,
        backoff_base_seconds=3.0,
        backoff_cap_seconds=4.0,
        max_block_seconds=3600.0,
        on_exhausted="dead_letter",
    )
    assert declared.timeout_for(get_config()) == 5.0


def test_an_option_left_out_keeps_the_queues_value() -> None:
    declared = handler("orders.paid", backoff={"cap": 60})(takes_one)

    policy = declared.policy_for(RetryPolicy(max_attempts=9, backoff_base_seconds=7.0))

    assert policy == RetryPolicy(max_attempts=9, backoff_base_seconds=7.0, backoff_cap_seconds=60.0)


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("max_attempts", 0, "must be an integer of at least 1, not 0"),
        ("max_crashes", True, "must be an integer of at least 1, not True"),
        ("backoff", 5, "must be (base, cap)"),
        (
            "on_exhausted",
            "drop",
            "must be 'halt' or 'dead_letter' or 'dead_letter_group', not 'drop'",
        ),
        ("max_block", 0, "must be a positive number of seconds, not 0"),
        ("timeout", 0, "must be a positive number of seconds, not 0"),
        ("queue", None, "must be a queue's name, not None"),
    ],
)
def test_a_wrong_option_is_refused_when_it_is_declared(
    option: str, value: object, complaint: str
) -> None:
    with pytest.raises(HandlerError) as caught:
        handler("orders.paid", **{option: value})  # type: ignore[arg-type]

    assert str(caught.value).startswith(f"@handler('orders.paid', {option}=…) {complaint}")


# Policies by error ---------------------------------------------------------------------


class Flaky(OSError):
    """An error of an error."""


def test_an_errors_policy_stands_in_for_the_handlers() -> None:
    declared = handler(
        "orders.paid",
        max_attempts=7,
        on_error={
            ValueError: "dead_letter",
            KeyError: "retry",
            OSError: {"max_attempts": 20, "backoff": (1, 60), "max_block": 600},
        },
    )(takes_one)
    own = RetryPolicy(max_attempts=7)

    assert declared.policy_after(ValueError(), RetryPolicy()) == RetryPolicy(
        max_attempts=1, on_exhausted="dead_letter"
    )
    assert declared.policy_after(KeyError(), RetryPolicy()) == own
    assert declared.policy_after(OSError(), RetryPolicy()) == RetryPolicy(
        max_attempts=20, backoff_cap_seconds=60.0, max_block_seconds=600.0
    )
    assert declared.policy_after(ZeroDivisionError(), RetryPolicy()) == own
    assert declared.policy_for(RetryPolicy()) == own


def test_the_nearest_class_of_an_error_decides_whatever_the_order() -> None:
    for kinds in ([Exception, OSError, Flaky], [Flaky, OSError, Exception]):
        attempts = {Exception: 2, OSError: 3, Flaky: 4}
        declared = handler(
            f"orders.{kinds[0].__name__}",
            on_error={kind: {"max_attempts": attempts[kind]} for kind in kinds},
        )(takes_one)

        for error, allowed in ((Flaky(), 4), (TimeoutError(), 3), (ValueError(), 2)):
            assert declared.policy_after(error, RetryPolicy()).max_attempts == allowed


def test_what_ends_a_program_may_have_a_policy_as_well() -> None:
    declared = handler("orders.paid", on_error={SystemExit: "halt"})(takes_one)

    assert declared.policy_after(SystemExit(), RetryPolicy()).max_attempts == 1


@pytest.mark.parametrize("asked", [Retry(delay=1), Reject("no such order")])
def test_what_a_handler_asks_for_is_no_error_of_any_class(asked: Exception) -> None:
    declared = handler("orders.paid", on_error={Exception: "dead_letter"})(takes_one)

    assert declared.policy_after(asked, RetryPolicy()) == RetryPolicy()


@pytest.mark.parametrize(
    ("on_error", "complaint"),
    [
        ([ValueError], "on_error=…) must be a mapping, not [<class 'ValueError'>]"),
        ({"ValueError": "retry"}, "on_error=…): 'ValueError' is no class of errors"),
        ({int: "retry"}, "on_error=…): <class 'int'> is no class of errors"),
        (
            {ValueError: "drop"},
            "on_error[ValueError]=…) must be 'halt' or 'dead_letter' or 'dead_letter_group'",
        ),
        ({ValueError: 3}, "on_error[ValueError]) must be 'retry', one of on_exhausted's words, or"),
        (
            {ValueError: {"attempts": 3}},
            "on_error[ValueError]) must be 'retry', one of on_exhausted's words, or a mapping of"
            " backoff, max_attempts, max_block, on_exhausted, not {'attempts': 3}",
        ),
        (
            {ValueError: {"max_attempts": 0}},
            "on_error[ValueError] max_attempts=…) must be an integer of at least 1, not 0",
        ),
        ({ValueError: {"backoff": 5}}, "on_error[ValueError] backoff=…) must be (base, cap)"),
    ],
)
def test_a_wrong_policy_for_an_error_is_refused_when_it_is_declared(
    on_error: Any, complaint: str
) -> None:
    with pytest.raises(HandlerError) as caught:
        handler("orders.paid", on_error=on_error)

    assert str(caught.value).startswith(f"@handler('orders.paid', {complaint}")


# Publishing ----------------------------------------------------------------------------


def test_a_handler_publishes_to_its_topic_and_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[tuple[object, ...], dict[str, object]]] = []

    class Recorder:
        def publish(self, *args: object, **options: object) -> str:
            asked.append((args, options))
            return "id"

    monkeypatch.setattr(handlers, "_publisher", Recorder())
    declared = handler("orders.paid", queue="billing")(takes_one)

    assert declared.publish({"id": 17}, group="order-17", priority=3) == "id"
    assert declared.publish({"id": 18}, group=None, queue="default") == "id"

    assert asked == [
        (("orders.paid", {"id": 17}), {"group": "order-17", "queue": "billing", "priority": 3}),
        (("orders.paid", {"id": 18}), {"group": None, "queue": "default"}),
    ]


async def test_a_handler_publishes_from_a_coroutine(monkeypatch: pytest.MonkeyPatch) -> None:
    class Recorder:
        async def apublish(self, topic: str, payload: Any, **options: Any) -> str:
            return f"{topic} {payload} {options}"

    monkeypatch.setattr(handlers, "_publisher", Recorder())
    declared = handler("orders.paid")(takes_one)

    published = await declared.apublish(17, group="order-17")
    assert published == "orders.paid 17 {'group': 'order-17', 'queue': 'default'}"


def test_publishing_makes_itself_known_to_the_handlers() -> None:
    assert isinstance(handlers._publisher, publishing._Publisher)


def test_a_handler_says_what_it_takes_to_publish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_publisher", None)

    with pytest.raises(HandlerError, match="'groupqueue' in INSTALLED_APPS"):
        handler("orders.paid")(takes_one).publish(17, group="order-17")


@pytest.mark.parametrize("function", [publishing.publish, publishing.apublish])
def test_a_handlers_publish_has_the_options_of_publish(function: Callable[..., Any]) -> None:
    options = set(inspect.signature(function).parameters) - {"topic", "payload", "group"}

    assert options == handlers.PublishOptions.__optional_keys__


# Discovery -----------------------------------------------------------------------------


def test_the_handlers_of_installed_apps_are_discovered(settings: Settings) -> None:
    installed = [*settings.INSTALLED_APPS, "tests.handlers_app"]

    # Django's own override, as it sets the apps up again; their start discovers handlers.
    with override_settings(INSTALLED_APPS=installed):
        found = handlers.registered()
        assert set(found) == {"handlers_app.sync", "handlers_app.async"}
        assert found["handlers_app.async"].is_async


def test_an_error_in_a_handlers_module_stops_the_start(settings: Settings) -> None:
    handler("handlers_app.sync")(takes_one)

    installed = override_settings(INSTALLED_APPS=[*settings.INSTALLED_APPS, "tests.handlers_app"])
    with pytest.raises(HandlerError, match=r"takes_one and tests\.handlers_app\.handlers\.handle"):
        installed.enable()


# The public names -----------------------------------------------------------------------


def test_importing_the_package_imports_neither_django_nor_redis() -> None:
    program = (
        "import sys, groupqueue, groupqueue.exceptions; "
        "from groupqueue import Retry, Message, Outgoing, Delivery; "
        "print([name for name in ('django', 'redis', 'asyncio') if name in sys.modules])"
    )

    outcome = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert outcome.stdout == "[]\n"


@pytest.mark.parametrize("name", groupqueue.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(groupqueue, name) is not None
    assert name in dir(groupqueue)


def test_the_version_is_that_of_the_distribution() -> None:
    pyproject = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())

    assert groupqueue.__version__ == pyproject["project"]["version"]


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'enqueue'"):
        groupqueue.enqueue  # noqa: B018


# Delivery ------------------------------------------------------------------------------


def test_a_delivery_tells_of_its_message_and_its_lease() -> None:
    delivery = a_delivery(payload={"id": 17})

    assert (delivery.id, delivery.group) == ("0" * 32, "order-17")
    assert (delivery.topic, delivery.payload) == ("orders.paid", {"id": 17})
    assert delivery.headers == {"trace": "t1"}
    assert delivery.queue == "default"
    assert delivery.message.priority == 2
    assert delivery.message.published_at.isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert delivery.message.expires_at is None
    # Handed over four times: once it failed, twice its worker was not heard of again.
    assert (delivery.attempt, delivery.deliveries, delivery.crashes) == (2, 4, 2)
    assert delivery.fencing_token == 1_000
    assert delivery.lease is LEASE


def test_a_message_that_expires_says_when() -> None:
    lease = LEASE._replace(expires_ms=1_700_000_060_000)

    message = message_from(lease, Content("orders.paid", None, {}))

    assert message.expires_at is not None
    assert message.expires_at.isoformat() == "2023-11-14T22:14:20+00:00"


def test_a_delivery_learns_that_its_lease_is_lost() -> None:
    delivery = a_delivery()
    assert not delivery.lease_lost

    delivery.mark_lost()

    assert delivery.lease_lost


@pytest.mark.parametrize("name", ["payload", "message", "fencing_token", "note"])
def test_a_delivery_cannot_be_changed(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(a_delivery(), name, 1)


def test_a_delivery_is_acknowledged_by_whoever_handles_it() -> None:
    delivery = a_delivery()
    assert not delivery.is_acknowledged

    delivery.acknowledge()

    assert delivery.is_acknowledged


def test_a_delivery_can_be_logged_without_its_payload() -> None:
    shown = repr(a_delivery(payload="hunter2"))

    assert shown == f"<Delivery of 'orders.paid' {'0' * 32} in group 'order-17', attempt 2>"
