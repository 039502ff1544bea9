"""Which errors groupqueue raises, and what each asks of whoever reads it.

An error's docstring is its default message; errors that carry data say what
was wrong with which value.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from groupqueue.core.messages import Lease


class GroupQueueError(Exception):
    """groupqueue could not do what was asked."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(args or (type(self).__doc__,)))


# Configuration -----------------------------------------------------------------


class ConfigurationError(GroupQueueError):
    """A setting is wrong; the message names its path, e.g. GROUPQUEUE['default']['RATE']."""


class UnknownQueue(ConfigurationError):
    """The queue is not in the setting GROUPQUEUE."""


class HandlerError(ConfigurationError):
    """A handler is declared wrongly, or two handlers claim one topic."""


# What a caller hands in ----------------------------------------------------------


class InvalidMessage(GroupQueueError, ValueError):
    """The message cannot be published; nothing was stored."""


class PayloadTooLarge(InvalidMessage):
    """The encoded message is larger than MAX_PAYLOAD_BYTES; nothing was stored."""


class PartlyPublished(GroupQueueError):
    """Some of the messages were stored before an error, which is this one's cause.

    `published_ids` holds the ids of those that were, in order: the first so many
    messages of the call. The others are not known to be stored; publish them again.
    """

    def __init__(self, published_ids: Sequence[str], total: int, error: GroupQueueError) -> None:
        super().__init__(
            f"{len(published_ids)} of {total} messages were stored, then: {error};"
            " publish the others again"
        )
        self.published_ids = list(published_ids)


class DedupConflict(InvalidMessage):
    """The dedup key was used for other content within its window; nothing was stored."""

    def __init__(self, dedup_key: str, first_id: str) -> None:
        super().__init__(
            f"the dedup key {dedup_key!r} stands for message {first_id}, whose content or group "
            "is another; nothing was stored"
        )
        self.dedup_key = dedup_key
        self.first_id = first_id


class GroupFull(GroupQueueError):
    """The group has MAX_GROUP_DEPTH messages waiting; nothing of the call was stored."""

    def __init__(self, group: str, depth: int, limit: int) -> None:
        super().__init__(
            f"group {group!r} has {depth} messages waiting and may have {limit} "
            "(MAX_GROUP_DEPTH); nothing of the call was stored"
        )
        self.group = group
        self.depth = depth
        self.limit = limit


class InvalidArgument(GroupQueueError, ValueError):
    """An argument is out of range; nothing was changed."""


class CorruptMessage(GroupQueueError):
    """The stored bytes are not a message; it is exhausted at once, unhandled."""


# What the server answers ---------------------------------------------------------


class StaleLease(GroupQueueError):
    """The lease is no longer the caller's; its result was dropped."""

    def __init__(self, lease: Lease, word: str = "stale") -> None:
        reason = {
            "stale": "another worker holds the group or the lease ran out",
            "moved": "the message is no longer the head of its group",
        }[word]
        super().__init__(
            f"the lease on group {lease.group!r} (token {lease.token}) no longer holds: "
            f"{reason}; this result was dropped and the message will be delivered again"
            " if nobody has finished it"
        )
        self.lease = lease
        self.word = word


class OutcomeUnknown(StaleLease):
    """The lease no longer holds, perhaps because this very call ended it."""

    def __init__(self, lease: Lease) -> None:
        GroupQueueError.__init__(
            self,
            f"the reply to settling group {lease.group!r} (token {lease.token}) was lost, and the "
            "repeated call found the lease gone: either the first call ended it, or it ran out",
        )
        self.lease = lease
        self.word = "unknown"


class ServerUnavailable(GroupQueueError):
    """Redis cannot be reached or is not ready; try again when it is back."""


class ServerUnsupported(GroupQueueError):
    """The server is too old or set up in a way that could lose messages."""


class ServerOutOfMemory(GroupQueueError):
    """Redis has reached maxmemory and refuses new messages; nothing was stored."""


class ServerRefused(GroupQueueError):
    """The server refused the command: check its ACL rules and its log."""


class WrongKeyType(GroupQueueError):
    """A key of the queue holds a value of another type; nothing was written."""


LONGEST_DELAY_SECONDS = 10**9


def _is_delay(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value <= LONGEST_DELAY_SECONDS


# What a handler raises to steer its delivery ----------------------------------------


class Retry(GroupQueueError):
    """Deliver the message again after a delay, at the head of its group as before."""

    def __init__(
        self, delay: float | datetime.timedelta | None = None, reason: str = "asked for"
    ) -> None:
        """Take the delay in seconds, or None for the queue's backoff; operators see the reason."""
        if isinstance(delay, datetime.timedelta):
            delay = delay.total_seconds()
        if delay is not None and not _is_delay(delay):
            raise InvalidArgument(
                f"Retry(delay={delay!r}): the delay is 0 to {LONGEST_DELAY_SECONDS} seconds"
            )
        super().__init__(reason)
        self.delay_seconds = delay


class Snooze(GroupQueueError):
    """Deliver the message again later; the delivery does not count as an attempt."""

    def __init__(self, until: float | datetime.timedelta | datetime.datetime) -> None:
        """Take seconds from now, a timedelta, or an aware datetime."""
        if isinstance(until, datetime.datetime):
            if until.tzinfo is None:
                raise InvalidArgument(f"Snooze(until={until!r}): the time must be aware")
            until = max(0.0, (until - datetime.datetime.now(tz=datetime.UTC)).total_seconds())
        if isinstance(until, datetime.timedelta):
            until = until.total_seconds()
        if not _is_delay(until):
            raise InvalidArgument(
                f"Snooze(until={until!r}): it is 0 to {LONGEST_DELAY_SECONDS} seconds from now"
            )
        super().__init__(f"snoozed for {until:g} seconds")
        self.delay_seconds = until


class Reject(GroupQueueError):
    """Stop trying: the message counts as exhausted at once."""

    def __init__(self, reason: str = "rejected") -> None:
        self.reason = str(reason)
        super().__init__(self.reason)
