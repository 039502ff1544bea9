"""Which function handles a topic."""

from __future__ import annotations

import datetime
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Generic, Literal, Protocol, TypedDict, TypeVar, Unpack, overload

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.utils.module_loading import autodiscover_modules

from groupqueue import conf
from groupqueue.core.calls import MAX_BATCH
from groupqueue.core.delivery import Delivery
from groupqueue.core.messages import checked_topic
from groupqueue.core.retries import OnExhausted, RetryPolicy
from groupqueue.exceptions import (
    ConfigurationError,
    HandlerError,
    InvalidMessage,
    Reject,
    Retry,
)

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")
Backoff = tuple[float, float] | Mapping[str, float]
ErrorPolicy = OnExhausted | Literal["retry"] | Mapping[str, Any]


class PublishOptions(TypedDict, total=False):
    """What may be said of a message beside topic, payload and group; see `publish`."""

    queue: str
    priority: int | None
    headers: Mapping[str, Any] | None
    delay: float | datetime.timedelta | None
    eta: datetime.datetime | None
    hold: bool
    dedup_key: str | None
    dedup_window: float | datetime.timedelta | None
    expires_in: float | datetime.timedelta | None
    width: int | None
    on_commit: bool
    using: str | None


class Publisher(Protocol):
    """What a handler publishes with."""

    def publish(
        self, topic: str, payload: Any, *, group: str | None, **options: Unpack[PublishOptions]
    ) -> str:
        """Publish one message; return its id."""
        ...

    async def apublish(
        self, topic: str, payload: Any, *, group: str | None, **options: Unpack[PublishOptions]
    ) -> str:
        """Publish one message; return its id."""
        ...


class Handler(Generic[R_co]):
    """A function and the topic it handles. Calling it calls the function, as a test may do.

    It takes a Delivery; or, when `batch` is set, a list of them.
    """

    def __init__(
        self,
        topic: str,
        function: Callable[[Any], R_co],
        *,
        queue: str,
        batch: int | None,
        policy_changes: Mapping[str, Any],
        error_policies: Mapping[type[BaseException], Mapping[str, Any]],
        timeout_seconds: float | None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.topic = topic
        self.function = function
        self.queue = queue
        """Where `publish` sends by default."""
        self.batch = batch
        """How many messages of one group a call takes at most; None for one, not in a list."""
        self.is_async = _is_async(function)
        self.timeout_seconds = timeout_seconds
        """How long a call may take; None for the queue's HANDLER_TIMEOUT."""
        self._policy_changes = dict(policy_changes)
        self._error_policies = dict(error_policies)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, delivery: Delivery | list[Delivery]) -> R_co:
        result = self.function(delivery)
        if result is not None and not self.is_async and inspect.iscoroutine(result):
            # A decorator hid that it is async: nothing has run, which must not pass for success.
            result.close()
            raise HandlerError(
                f"{self!r} returned a coroutine but is not declared with async def:"
                " one of its decorators must be made async as well"
            )
        return result

    def __repr__(self) -> str:
        return f"<Handler {self.where} of {self.topic!r}>"

    @property
    def where(self) -> str:
        """The dotted place of the function."""
        return _where(self.function)

    def policy_for(self, policy: RetryPolicy) -> RetryPolicy:
        """Return a queue's retry policy with what this handler declares differently."""
        return replace(policy, **self._policy_changes) if self._policy_changes else policy

    def policy_after(self, error: BaseException, policy: RetryPolicy) -> RetryPolicy:
        """Return the policy for a message whose handler raised this error.

        The nearest of the error's classes that `on_error` names decides. Retry and Reject
        say themselves what is to become of the message.
        """
        policy = self.policy_for(policy)
        if not self._error_policies or isinstance(error, Retry | Reject):
            return policy
        for kind in type(error).__mro__:
            if kind in self._error_policies:
                return replace(policy, **self._error_policies[kind])
        return policy

    def timeout_for(self, config: conf.QueueConfig) -> float | None:
        """Return the seconds that a call may take for a message of this queue."""
        return config.handler_timeout if self.timeout_seconds is None else self.timeout_seconds

    def publish(self, payload: Any, *, group: str | None, **options: Unpack[PublishOptions]) -> str:
        """Publish a message of this topic; return its id. Options as for `publish`."""
        options.setdefault("queue", self.queue)
        return _known_publisher().publish(self.topic, payload, group=group, **options)

    async def apublish(
        self, payload: Any, *, group: str | None, **options: Unpack[PublishOptions]
    ) -> str:
        """Publish a message of this topic; return its id. Options as for `apublish`."""
        options.setdefault("queue", self.queue)
        return await _known_publisher().apublish(self.topic, payload, group=group, **options)


class PolicyOptions(TypedDict, total=False):
    """What a handler may declare differently from its queue's settings."""

    queue: str
    max_attempts: int | None
    max_crashes: int | None
    backoff: Backoff | None
    max_block: float | datetime.timedelta | None
    on_exhausted: OnExhausted | None
    on_error: Mapping[type[BaseException], ErrorPolicy] | None
    timeout: float | None


@overload
def handler(
    topic: str, *, batch: None = None, **options: Unpack[PolicyOptions]
) -> Callable[[Callable[[Delivery], R]], Handler[R]]: ...


@overload
def handler(
    topic: str, *, batch: int, **options: Unpack[PolicyOptions]
) -> Callable[[Callable[[list[Delivery]], R]], Handler[R]]: ...


def handler(
    topic: str,
    *,
    queue: str = "default",
    batch: int | None = None,
    max_attempts: int | None = None,
    max_crashes: int | None = None,
    backoff: Backoff | None = None,
    max_block: float | datetime.timedelta | None = None,
    on_exhausted: OnExhausted | None = None,
    on_error: Mapping[type[BaseException], ErrorPolicy] | None = None,
    timeout: float | None = None,
) -> Callable[[Callable[[Any], R]], Handler[R]]:
    """Declare a function, sync or async, to be the handler of a topic.

    It takes one Delivery; what it returns is ignored, and what it raises counts as a
    failed attempt. It handles the topic's messages from whatever queue; `queue` is
    where its own `publish` sends. The other options stand in for the queue's
    MAX_ATTEMPTS, MAX_CRASHES, BACKOFF, MAX_BLOCK, ON_EXHAUSTED and HANDLER_TIMEOUT.

    `on_error` says otherwise for classes of errors: "retry" as declared, one of the words of
    `on_exhausted` to give up at once, or a mapping of `max_attempts`, `backoff`, `max_block`
    and `on_exhausted`: `on_error={ValueError: "dead_letter", OSError: {"max_attempts": 20}}`.

    With `batch`, 1 to 1,000, it takes a list of up to so many deliveries, which follow one
    another in one group. Returning finishes all of them; see Delivery.acknowledge for
    finishing some. A message that was tried before comes alone.

    Raises HandlerError when it cannot be a handler, or when the topic has another.
    """
    try:
        checked_topic(topic)
    except InvalidMessage as error:
        raise HandlerError(
            f'@handler needs a topic, as in @handler("orders.paid"): {error}'
        ) from error
    if not isinstance(queue, str):
        raise HandlerError(f"@handler({topic!r}, queue=…) must be a queue's name, not {queue!r}")
    if batch is not None and (type(batch) is not int or not 1 <= batch <= MAX_BATCH):
        raise HandlerError(
            f"@handler({topic!r}, batch=…) must be an integer from 1 to {MAX_BATCH}, not {batch!r}"
        )
    given = {
        "max_attempts": max_attempts,
        "max_crashes": max_crashes,
        "backoff": backoff,
        "max_block": max_block,
        "on_exhausted": on_exhausted,
    }
    changes = _policy_changes(topic, "", given)
    error_policies = _error_policies(topic, on_error or {})
    timeout_seconds = _checked_option(topic, "timeout", "HANDLER_TIMEOUT", timeout)

    def register(function: Callable[[Any], R]) -> Handler[R]:
        # @handler("a") above @handler("b"): one function for two topics.
        function = function.function if isinstance(function, Handler) else function
        _refuse_unfit(topic, function)
        declared = Handler(
            topic,
            function,
            queue=queue,
            batch=batch,
            policy_changes=changes,
            error_policies=error_policies,
            timeout_seconds=timeout_seconds,
        )
        _register(declared)
        return declared

    return register


def largest_batch() -> int:
    """Return how many messages the most demanding handler takes at once."""
    return max((declared.batch or 1 for declared in _handlers.values()), default=1)


def blames_neighbours(config: conf.QueueConfig) -> bool:
    """Say whether some message of a queue is given up after one crash, which may be another's."""
    policies = (config.policy, *(h.policy_for(config.policy) for h in _handlers.values()))
    return any(policy.is_poison(1) for policy in policies)


def get_handler(topic: str) -> Handler[Any] | None:
    """Return the handler of a topic, or None when this process knows none."""
    return _handlers.get(topic)


def registered() -> Mapping[str, Handler[Any]]:
    """Return all handlers by topic; the view follows later registrations."""
    return MappingProxyType(_handlers)


def autodiscover() -> None:
    """Import the module `handlers` of every installed app that has one."""
    autodiscover_modules("handlers")


def set_publisher(publisher: Publisher) -> None:
    """Say what handlers publish with. Publishing is a layer above and calls this itself."""
    global _publisher  # noqa: PLW0603 - set once, when groupqueue.publishing is loaded
    _publisher = publisher


# Helpers -------------------------------------------------------------------------------

_handlers: dict[str, Handler[Any]] = {}
_publisher: Publisher | None = None


def _register(declared: Handler[Any]) -> None:
    present = _handlers.get(declared.topic)
    # The same place means that its module was loaded again.
    if present is not None and _where(present.function) != _where(declared.function):
        raise HandlerError(
            f"topic {declared.topic!r} has two handlers, {_where(present.function)} and"
            f" {_where(declared.function)}: give one of them another topic"
        )
    _handlers[declared.topic] = declared


def _known_publisher() -> Publisher:
    if _publisher is None:
        raise HandlerError(
            "a handler can publish once Django is set up with 'groupqueue' in INSTALLED_APPS"
        )
    return _publisher


def _policy_changes(topic: str, place: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a RetryPolicy that options change; None leaves one as it is."""
    changes = {
        name: _checked_option(topic, f"{place}{name}", name.upper(), value)
        for name, value in given.items()
        if value is not None
    }
    changes |= changes.pop("backoff", {})
    if "max_block" in changes:
        changes["max_block_seconds"] = changes.pop("max_block")
    return changes


def _error_policies(
    topic: str, on_error: Mapping[type[BaseException], ErrorPolicy]
) -> dict[type[BaseException], dict[str, Any]]:
    if not isinstance(on_error, Mapping):
        raise HandlerError(f"@handler({topic!r}, on_error=…) must be a mapping, not {on_error!r}")
    policies: dict[type[BaseException], dict[str, Any]] = {}
    for kind, policy in on_error.items():
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise HandlerError(f"@handler({topic!r}, on_error=…): {kind!r} is no class of errors")
        place = f"on_error[{kind.__name__}]"
        if policy == "retry":
            policies[kind] = {}
        elif isinstance(policy, str):
            given_up = _checked_option(topic, place, "ON_EXHAUSTED", policy)
            policies[kind] = {"max_attempts": 1, "on_exhausted": given_up}
        elif isinstance(policy, Mapping) and policy.keys() <= _ERROR_OPTIONS:
            policies[kind] = _policy_changes(topic, f"{place} ", policy)
        else:
            raise HandlerError(
                f"@handler({topic!r}, {place}) must be 'retry', one of on_exhausted's words, or a"
                f" mapping of {', '.join(sorted(_ERROR_OPTIONS))}, not {policy!r}"
            )
    return policies


_ERROR_OPTIONS = frozenset({"max_attempts", "backoff", "max_block", "on_exhausted"})


def _checked_option(topic: str, name: str, key: str, value: object) -> Any:
    try:
        return conf.checked(key, f"@handler({topic!r}, {name}=…)", value)
    except ConfigurationError as error:
        raise HandlerError(str(error)) from error


def _refuse_unfit(topic: str, function: object) -> None:
    """Raise HandlerError for what would not do as a handler once a message comes."""
    where = f"the handler of {topic!r}, {_where(function)},"
    if not callable(function) or isinstance(function, type):
        raise HandlerError(f"{where} must be a function that takes a delivery")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise HandlerError(f"{where} contains yield, so calling it would run nothing")
    try:
        # Not of what it wraps: a decorator may hand in arguments of its own.
        inspect.signature(function, follow_wrapped=False).bind(object())
    except TypeError as error:
        raise HandlerError(f"{where} must take one argument, the delivery: {error}") from error
    except ValueError:
        return  # a builtin that does not tell its signature


def _is_async(function: Callable[..., Any]) -> bool:
    return iscoroutinefunction(function) or iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with `async def __call__`
    )


def _where(function: object) -> str:
    """Return the dotted place of a function, or the repr of what has none."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    return f"{module}.{name}" if module and name else repr(function)
