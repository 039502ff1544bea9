"""What a test has published: captured instead of sent, looked at and asserted."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload
from unittest import mock

from groupqueue import publishing
from groupqueue.conf import get_config
from groupqueue.core.messages import Envelope
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

    def __str__(self) -> str:
        extras = {"queue": self.queue, "priority": self.priority, "headers": self.headers}
        usual = {"queue": "default", "priority": 0, "headers": {}}
        more = {name: value for name, value in extras.items() if value != usual[name]}
        return _described(self.topic, {"payload": self.payload, "group": self.group, **more})


class PublishedMessages(Sequence[PublishedMessage]):
    """The messages that `capture_published` has kept, in the order of their sending."""

    def __init__(self, queue: str | None = None) -> None:
        """Use `capture_published`."""
        self.queue = queue
        """The queue whose messages are kept; None for all queues."""
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
        self,
        topic: str = mock.ANY,
        *,
        payload: Any = mock.ANY,
        group: str | None = mock.ANY,
        queue: str = mock.ANY,
        priority: int = mock.ANY,
        headers: Mapping[str, Any] = mock.ANY,
    ) -> list[PublishedMessage]:
        """Return the messages that are equal to everything that is given."""
        wanted = (topic, payload, group, queue, priority, headers)
        return [
            message
            for message in self
            if (
                message.topic,
                message.payload,
                message.group,
                message.queue,
                message.priority,
                message.headers,
            )
            == wanted
        ]

    def assert_published(
        self, topic: str, *, count: int | None = None, **wanted: Any
    ) -> list[PublishedMessage]:
        """Return the messages of a topic that match, of which there has to be one or more.

        `payload`, `group`, `queue`, `priority` and `headers` narrow down which do; see
        `matching`. With `count` there have to be exactly so many. Raises AssertionError.
        """
        found = self.matching(topic, **wanted)
        if len(found) == count or (count is None and found):
            return found
        expected = "a message" if count is None else f"{count} of the message"
        raise AssertionError(
            f"expected {expected} {_described(topic, wanted)},"
            f" but {len(found) or 'none'} was published. {self._account()}"
        )

    def assert_nothing_published(self) -> None:
        """Raise AssertionError when there is any message."""
        if self:
            raise AssertionError(f"expected no message. {self._account()}")

    def clear(self) -> None:
        """Forget the messages so far."""
        self._messages.clear()

    def add(self, queue: str, envelopes: Sequence[Envelope]) -> None:
        """Keep what would have been sent in one call."""
        codec = get_config(queue).codec
        for identifier, group, tier, body in envelopes:
            content = codec.decode(body)
            self._messages.append(
                PublishedMessage(
                    id=identifier,
                    queue=queue,
                    topic=content.topic,
                    payload=content.payload,
                    group=None if group == identifier else group,
                    priority=tier,
                    headers=content.headers,
                )
            )

    def _account(self) -> str:
        if self:
            lines = [f"\n  {number}. {message}" for number, message in enumerate(self, 1)]
            return f"Published, in this order:{''.join(lines)}"
        if any(_publishing_hooks(connection) for connection in _connections()):
            return (
                "Nothing was published, but publish() was called in a transaction, which it waits"
                " for: inside capture_published(), wrap the code under test in"
                " captureOnCommitCallbacks(execute=True), as a TestCase never commits"
            )
        return "Nothing was published"


@contextlib.contextmanager
def capture_published(queue: str | None = None) -> Iterator[PublishedMessages]:
    """Keep messages from being sent and give them as a list that grows; no Redis is needed.

    Everything else is as usual: messages are checked, those published inside `atomic()`
    wait for the commit, and message_published is sent. Given a queue, only its messages
    are kept and those of other queues are sent. Raises UnknownQueue.
    """
    if queue is not None:
        get_config(queue)
    published = PublishedMessages(queue)
    _captures.append(published)
    try:
        with (
            mock.patch.object(publishing, "get_transport", _transport_or_capture),
            mock.patch.object(publishing, "get_async_transport", _async_transport_or_capture),
        ):
            yield published
    finally:
        # By identity: two of them are equal only by chance.
        _captures[:] = [capture for capture in _captures if capture is not published]


# Helpers ---------------------------------------------------------------------------------

_captures: list[PublishedMessages] = []


class _Capture:
    """Stands for a queue's transport while its messages are captured."""

    def __init__(self, queue: str, captures: Sequence[PublishedMessages]) -> None:
        self._queue = queue
        self._captures = captures

    def publish_envelopes(self, envelopes: Sequence[Envelope]) -> None:
        for capture in self._captures:
            capture.add(self._queue, envelopes)


class _AsyncCapture(_Capture):
    async def publish_envelopes(self, envelopes: Sequence[Envelope]) -> None:  # type: ignore[override]
        super().publish_envelopes(envelopes)


def _transport_or_capture(queue: str) -> RedisTransport | _Capture:
    captures = _captures_of(queue)
    return _Capture(queue, captures) if captures else get_transport(queue)


def _async_transport_or_capture(queue: str) -> AsyncRedisTransport | _AsyncCapture:
    captures = _captures_of(queue)
    return _AsyncCapture(queue, captures) if captures else get_async_transport(queue)


def _captures_of(queue: str) -> list[PublishedMessages]:
    return [capture for capture in _captures if capture.queue in (None, queue)]


def _described(topic: str, wanted: Mapping[str, Any]) -> str:
    """Return a message in words, `'orders.paid' with group 'order-17'`, cut short."""
    parts = [f"{name} {value!r}" for name, value in wanted.items()]
    text = f"{topic!r} with {', '.join(parts)}" if parts else repr(topic)
    return textwrap.shorten(text, MOST_CHARACTERS_SHOWN, placeholder=" …")
