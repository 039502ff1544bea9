"""What a test has published: captured instead of sent, looked at and asserted."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, overload
from unittest import mock

from groupqueue import publishing
from groupqueue.conf import get_config
from groupqueue.core.calls import Duplicates
from groupqueue.core.messages import Envelope, EnvelopeOptions, moment
from groupqueue.testing import transactions
from groupqueue.transport.connections import get_async_transport, get_transport
from groupqueue.transport.redis import AsyncRedisTransport, RedisTransport

MOST_CHARACTERS_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedMessage:
    """One message that was published, as its handler would get it."""

    id: str
    queue: str
    topic: str
    payload: Any
    """Encoded and decoded by the queue's codec: with JSON a tuple has become a list."""
    group: str | None
    """None when it was published with `group=None`."""
    priority: int
    headers: Mapping[str, Any]
    delay: float | None = None
    """Seconds; None when it was published without."""
    eta: datetime.datetime | None = None
    """Aware, to the millisecond."""
    hold: bool = False
    dedup_key: str | None = None
    expires_in: float | None = None
    """Seconds."""
    width: int | None = None

    def __str__(self) -> str:
        details: dict[str, Any] = {"group": self.group, "payload": self.payload}
        usual = {"queue": "default", "priority": 0, "headers": {}} | _NO_OPTIONS
        details |= {name: value for name in usual if (value := getattr(self, name)) != usual[name]}
        return _described(self.topic, details)


class Criteria(TypedDict, total=False):
    """What a message may be asked for beside its topic; each has to be equal.

    A length of time may be given as it was when publishing: in seconds or as a timedelta.
    """

    payload: Any
    group: str | None
    queue: str
    priority: int
    headers: Mapping[str, Any]
    delay: float | datetime.timedelta | None
    eta: datetime.datetime | None
    hold: bool
    dedup_key: str | None
    expires_in: float | datetime.timedelta | None
    width: int | None


class PublishedMessages(Sequence[PublishedMessage]):
    """The messages that `capture_published` has captured, in the order of their sending."""

    def __init__(self, queue: str | None = None) -> None:
        """Use `capture_published`."""
        self.queue = queue
        """The queue whose messages are captured; None for all queues."""
        self._messages: list[PublishedMessage] = []

    @overload
    def __getitem__(self, index: int) -> PublishedMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PublishedMessage]: ...
    def __getitem__(self, index: int | slice) -> PublishedMessage | Sequence[PublishedMessage]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        return f"<PublishedMessages {self._messages!r}>"

    def topics(self) -> list[str]:
        """Return the messages' topics, in order."""
        return [message.topic for message in self]

    def matching(
        self, topic: str | None = None, **criteria: Unpack[Criteria]
    ) -> list[PublishedMessage]:
        """Return the messages of a topic, or of any, that are equal to everything given."""
        return [
            message
            for message in self
            if topic in (None, message.topic)
            and all(
                getattr(message, name) == _as_kept(name, value) for name, value in criteria.items()
            )
        ]

    def assert_published(
        self, topic: str, *, count: int | None = None, **criteria: Unpack[Criteria]
    ) -> list[PublishedMessage]:
        """Return the messages that match; raise AssertionError when there is none.

        With `count` there have to be exactly so many.
        """
        found = self.matching(topic, **criteria)
        if len(found) == count or (count is None and found):
            return found
        times = {None: "", 1: " once"}.get(count, f" {count} times")
        raise AssertionError(
            f"expected {_described(topic, criteria)} to be published{times},"
            f" found {len(found) or 'none'}. {self._account()}"
        )

    def assert_nothing_published(self) -> None:
        """Raise AssertionError when there is any message."""
        if self:
            raise AssertionError(f"expected nothing to be published. {self._account()}")

    def clear(self) -> None:
        """Forget the messages so far."""
        self._messages.clear()

    def add(self, queue: str, envelopes: Sequence[Envelope]) -> None:
        """Take in what would have been sent in one call."""
        codec = get_config(queue).codec
        for envelope in envelopes:
            content = codec.decode(envelope.body)
            self._messages.append(
                PublishedMessage(
                    id=envelope.id,
                    queue=queue,
                    topic=content.topic,
                    payload=content.payload,
                    group=None if envelope.group == envelope.id else envelope.group,
                    priority=envelope.tier,
                    headers=content.headers,
                    **_options(envelope.options),
                )
            )

    def _account(self) -> str:
        if self:
            lines = [f"\n  {number}. {message}" for number, message in enumerate(self, 1)]
            return f"Published, in this order:{''.join(lines)}"
        if transactions.has_unsent():
            return (
                "Nothing was published, but a transaction is open in which publish() was called:"
                " messages are sent after the commit, and a TestCase never commits. Wrap the"
                " code under test in captureOnCommitCallbacks(execute=True), inside"
                " capture_published()."
            )
        return "Nothing was published."


@contextlib.contextmanager
def capture_published(queue: str | None = None) -> Iterator[PublishedMessages]:
    """Capture messages instead of sending them; gives a list of them that grows.

    Everything else is as usual: messages are checked, those published inside `atomic()`
    wait for the commit, and the signal message_published is sent. Given a queue, only
    its messages are captured; those of other queues are sent. Raises UnknownQueue.
    """
    if queue is not None:
        get_config(queue)
    published = PublishedMessages(queue)
    _captures.append(published)
    try:
        with (
            mock.patch.object(publishing, "get_transport", _get_transport),
            mock.patch.object(publishing, "get_async_transport", _get_async_transport),
        ):
            yield published
    finally:
        # By identity: as sequences, two captures may be equal.
        _captures[:] = [capture for capture in _captures if capture is not published]


# Helpers ---------------------------------------------------------------------------------

# All that are open: where one is inside another, both take a message in.
_captures: list[PublishedMessages] = []


_NO_OPTIONS: dict[str, Any] = {
    "delay": None,
    "eta": None,
    "hold": False,
    "dedup_key": None,
    "expires_in": None,
    "width": None,
}


def _options(options: EnvelopeOptions | None) -> dict[str, Any]:
    """Return a message's options as it is asked for them."""
    if options is None:
        return _NO_OPTIONS
    is_delay = options.due.startswith("+")
    return {
        "delay": int(options.due) / 1000 if is_delay else None,
        "eta": moment(int(options.due)) if options.due and not is_delay else None,
        "hold": options.hold,
        "dedup_key": options.dedup_key or None,
        "expires_in": None if options.expires_ms is None else options.expires_ms / 1000,
        "width": options.width,
    }


def _as_kept(name: str, value: Any) -> Any:
    """Return what a message is asked for as it would be kept."""
    if name in ("delay", "expires_in") and isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000) / 1000
    if name == "eta" and isinstance(value, datetime.datetime):
        return moment(round(value.timestamp() * 1000))
    return value


class _Capture:
    """Stands for a queue's transport while its messages are captured."""

    def __init__(self, queue: str) -> None:
        self._queue = queue

    def publish_envelopes(self, envelopes: Sequence[Envelope]) -> Duplicates:
        for capture in _captures_of(self._queue):
            capture.add(self._queue, envelopes)
        return {}


class _AsyncCapture:
    """The same for a coroutine's transport."""

    def __init__(self, queue: str) -> None:
        self._capture = _Capture(queue)

    async def publish_envelopes(self, envelopes: Sequence[Envelope]) -> Duplicates:
        return self._capture.publish_envelopes(envelopes)


def _get_transport(queue: str) -> RedisTransport | _Capture:
    return _Capture(queue) if _captures_of(queue) else get_transport(queue)


def _get_async_transport(queue: str) -> AsyncRedisTransport | _AsyncCapture:
    return _AsyncCapture(queue) if _captures_of(queue) else get_async_transport(queue)


def _captures_of(queue: str) -> list[PublishedMessages]:
    return [capture for capture in _captures if capture.queue in (None, queue)]


def _described(topic: str, details: Mapping[str, Any]) -> str:
    """Return a message in words, such as `'orders.paid' with group 'order-17'`, cut short."""
    text = ", ".join(f"{name} {value!r}" for name, value in details.items())
    if len(text) > MOST_CHARACTERS_SHOWN:
        text = f"{text[:MOST_CHARACTERS_SHOWN]}…"
    return f"{topic!r} with {text}" if text else repr(topic)
