"""Which events groupqueue tells of, and how receivers are called.

The sender of every `message_…`, `group_…` and `lease_…` signal is the Handler of
the message's topic, so that a receiver can be connected for one handler alone:

    @receiver(message_failed, sender=order_paid)
    def tell_finance(sender, delivery, error, **kwargs): ...

It is None when this process knows no handler of the topic, as in a project that
only publishes; receivers connected without a sender are called all the same. The
sender of the `worker_…` signals is the class that runs the worker.

Receivers are called with `send_robust`: what one raises is logged under
"groupqueue" and disturbs neither the message nor the other receivers. They run
where the event happens and hold it up, so they are to be quick. What must not be held
up is told from a thread of its own, "groupqueue-signals": leases that are lost while a
handler runs, handlers that ran out of time, and the end of a worker process, which waits
a second for its receivers.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from typing import Any

from django.dispatch import Signal

from groupqueue.core.calls import Gone

log = logging.getLogger("groupqueue")

message_published = Signal()
"""A message is stored. Arguments: `message_id`, `group`, `topic`, `queue`, all str.

Inside a transaction it is sent after the commit; nothing is said of messages that
were refused."""

message_started = Signal()
"""A handler is about to be called. Arguments: `delivery`."""

message_succeeded = Signal()
"""A handler returned, or had acknowledged the message of a batch before it raised an error.
Arguments: `delivery`, `duration_seconds` (of the call)."""

message_failed = Signal()
"""A handler raised an error or ran out of time. Arguments: `delivery`, `error` (the
exception), `duration_seconds`, `retry_seconds` (the wait before the next attempt, or
None when the message is exhausted)."""

message_expired = Signal()
"""A message was too old to be delivered and was dropped. Arguments: `message_id`, `group`,
`queue`, all str; the sender is None."""

message_dead = Signal()
"""A message was set aside as a dead letter. Arguments: `delivery` (None when the stored
bytes cannot be decoded, and for what is set aside with the head of its group), `message_id`,
`group`, `queue`, `reason` (a word such as "max_attempts", "poison", "group" or the one given
to Reject) and `error` (text, perhaps empty)."""

group_halted = Signal()
"""A group is held until an operator resumes it. Arguments: as for message_dead."""

lease_lost = Signal()
"""A worker no longer holds the group of a message that it handles, or has handled and not settled.
Arguments: `delivery`."""

worker_started = Signal()
"""A worker process is about to make its first claim. Arguments: `worker_id`, `queues` (names)."""

worker_stopping = Signal()
"""A worker process takes no new messages. Arguments: `worker_id`, `queues`, `reason` (a word)."""

worker_stopped = Signal()
"""A worker process has handed back what it held. Arguments: `worker_id`, `queues`."""


def send(signal: Signal, sender: object, **arguments: Any) -> None:
    """Call the receivers; returns at once when there are none. Never raises an Exception."""
    if not signal.receivers:
        return
    try:
        _log_errors(signal.send_robust(sender, **arguments))
    except Exception as error:  # such as async receivers called from within an event loop
        _log_error(None, error)


def send_expired(queue: str, expired: Iterable[Gone]) -> None:
    """Tell of the messages that a turn has dropped."""
    for message in expired:
        send(message_expired, None, message_id=message.id, group=message.group, queue=queue)


def send_buried(queue: str, buried: Iterable[Gone]) -> None:
    """Tell of the messages that a turn has set aside with the head of their group."""
    for message in buried:
        send(
            message_dead,
            None,
            delivery=None,
            message_id=message.id,
            group=message.group,
            queue=queue,
            reason="group",
            error="it waited behind a message that was given up",
        )


async def asend(signal: Signal, sender: object, **arguments: Any) -> None:
    """Call the receivers from a coroutine; sync ones run in a thread, as Django does it."""
    if not signal.receivers:
        return
    try:
        _log_errors(await signal.asend_robust(sender, **arguments))
    except Exception as error:
        _log_error(None, error)


def _log_errors(responses: Iterable[tuple[Any, Any]]) -> None:
    for receiver, response in responses:
        if isinstance(response, Exception):
            _log_error(receiver, response)


def _log_error(receiver: object, error: Exception) -> None:
    name = getattr(receiver, "__qualname__", None) or repr(receiver)
    log.error(
        "a receiver of a signal raised an error",
        exc_info=error,
        extra={"action": "signal_receiver_failed", "receiver": name},
    )


def _unlock_after_fork() -> None:
    """Give the signals locks of their own: another thread may have been sending at the fork."""
    for signal in globals().values():
        if isinstance(signal, Signal):
            signal.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_after_fork)
