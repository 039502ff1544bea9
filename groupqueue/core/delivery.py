"""What a handler is given: one message, and how its hand-over came about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from groupqueue.core.codec import Content
from groupqueue.core.messages import Lease, Leased, Message, moment


@final
class Delivery:
    """One hand-over of a message to a handler.

    `fencing_token` only grows: write it beside what the handler changes, with
    `WHERE fence < token`, and a worker that lost its lease cannot overwrite the
    work of its successor. A long handler looks at `lease_lost` now and then and
    stops when it is true: somebody else may be handling the message already.
    """

    __slots__ = (
        "_content",
        "_is_acknowledged",
        "_is_lost",
        "_lease",
        "_leased",
        "_message",
        "_own_lease",
        "_queue",
    )

    def __init__(
        self, lease: Lease, content: Content, queue: str, leased: Leased | None = None
    ) -> None:
        """`leased` is the message when it is not the head of its lease."""
        self._lease = lease
        self._content = content
        self._queue = queue
        self._leased = leased
        self._own_lease: Lease | None = None
        self._message: Message | None = None
        self._is_lost = self._is_acknowledged = False

    @property
    def message(self) -> Message:
        """The message."""
        if self._message is None:
            self._message = message_from(self.lease, self._content)
        return self._message

    @property
    def queue(self) -> str:
        """The name of the queue that the message came from."""
        return self._queue

    @property
    def attempt(self) -> int:
        """Which attempt of a handler this is, 1 for the first; crashes do not count."""
        return self.lease.failures + 1

    @property
    def deliveries(self) -> int:
        """How often the message was handed over, this time included."""
        return self.lease.deliveries

    @property
    def crashes(self) -> int:
        """How many earlier deliveries ended without a word from their worker."""
        return self.lease.crashes

    @property
    def fencing_token(self) -> int:
        """The lease's number: larger than that of every earlier lease of the group."""
        return self._lease.token

    @property
    def lease_lost(self) -> bool:
        """Whether the worker knows that it no longer holds the group."""
        return self._is_lost

    @property
    def lease(self) -> Lease:
        """The lease under which the message was handed over."""
        if self._leased is None:
            return self._lease
        if self._own_lease is None:  # few handlers look at it
            self._own_lease = self._lease.of(self._leased)
        return self._own_lease

    @property
    def id(self) -> str:
        """The message's id."""
        return self.lease.id

    @property
    def group(self) -> str:
        """The message's group."""
        return self._lease.group

    @property
    def topic(self) -> str:
        """The message's topic."""
        return self._content.topic

    @property
    def payload(self) -> Any:
        """The message's payload."""
        return self._content.payload

    @property
    def headers(self) -> Mapping[str, Any]:
        """The message's headers; empty when it has none."""
        return self._content.headers

    @property
    def is_acknowledged(self) -> bool:
        """Whether `acknowledge` was called."""
        return self._is_acknowledged

    def acknowledge(self) -> None:
        """Say that this message of a batch is done, whatever becomes of those behind it.

        When the handler of the batch raises, the messages acknowledged from the first one on
        are finished, and the error is that of the first one which is not. A handler that
        returns has finished the whole batch and need not say so.
        """
        self._is_acknowledged = True

    def mark_lost(self) -> None:
        """Note that the lease is gone; the worker's lease keeper calls this, from any thread."""
        self._is_lost = True

    def __repr__(self) -> str:
        # Without the payload, so that a delivery may be logged.
        return (
            f"<Delivery of {self.topic!r} {self.id} in group {self.group!r},"
            f" attempt {self.attempt}>"
        )


def message_from(lease: Lease, content: Content) -> Message:
    """Return the message that a lease holds, given what its body was decoded to."""
    return Message(
        id=lease.id,
        group=lease.group,
        topic=content.topic,
        payload=content.payload,
        headers=content.headers,
        priority=lease.priority,
        published_at=moment(lease.published_ms),
        expires_at=moment(lease.expires_ms) if lease.expires_ms else None,
    )
