"""How one leased message is handled, and what becomes of it."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from groupqueue import signals
from groupqueue.conf import QueueConfig
from groupqueue.core.calls import Settlement
from groupqueue.core.delivery import Delivery, message_from
from groupqueue.core.messages import Lease
from groupqueue.core.retries import RetryPolicy
from groupqueue.exceptions import CorruptMessage, Reject, Retry, Snooze
from groupqueue.handlers import Handler, get_handler

log = logging.getLogger("groupqueue.worker")

# Another worker, started from newer code, may know the topic: look again soon.
UNKNOWN_TOPIC_PAUSE_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class Held:
    """A leased message in this process, from its claim to its settlement."""

    queue: QueueConfig
    lease: Lease
    lasts_until: float
    """When the lease ends, on this process's monotonic clock, if it is not renewed."""
    renewed_at: float
    handler: Handler[Any] | None = None
    delivery: Delivery | None = None
    is_suspect: bool = False
    """Whether one more crash would exhaust the message: it is handled with nothing beside
    it, so that no message is blamed for another's doing."""
    started_at: float | None = None
    """When its handler was called, monotonic; None before."""
    settlement: Settlement | None = None
    is_lost: bool = False
    """Whether the lease is known to be gone."""
    is_uncertain: bool = False
    """Whether a turn that carried its settlement lost its reply."""


def prepare(held: Held) -> bool:
    """Find delivery and handler; False when the message is settled without being handled."""
    lease, config = held.lease, held.queue
    try:
        content = config.codec.decode(lease.payload)
    except CorruptMessage as error:
        log.error(
            "the stored bytes are not a message",
            extra={"action": "corrupt_message", "group": lease.group, "message_id": lease.id},
        )
        held.settlement = exhausted(lease, config.policy, "corrupt", str(error))
        return False
    except Exception as error:  # a codec of the project's own may raise anything
        log.exception("the codec broke", extra={"action": "codec_failed", "group": lease.group})
        text = f"{type(error).__name__}: {error}"
        held.settlement = exhausted(lease, config.policy, "codec", text)
        return False
    held.delivery = Delivery(lease, message_from(lease, content), config.name)
    held.handler = get_handler(content.topic)
    if held.handler is None:
        text = f"this worker has no handler for topic {content.topic!r}"
        log.error(
            "%s; group %r of queue %r waits and is tried again",
            text,
            lease.group,
            config.name,
            extra={"action": "unknown_topic", "topic": content.topic, "group": lease.group},
        )
        held.settlement = Settlement.release(lease, UNKNOWN_TOPIC_PAUSE_SECONDS, text)
        return False
    policy = held.handler.policy_for(config.policy)
    if policy.is_poison(lease.crashes):
        error_text = (
            f"{lease.crashes} workers died, fell silent or ran out of time while handling"
            " this message"
        )
        held.settlement = exhausted(lease, policy, "poison", error_text)
        return False
    held.is_suspect = lease.crashes > 0 and policy.is_poison(lease.crashes + 1)
    return True


def handle(held: Held) -> None:
    """Call a sync handler between two clean-ups of the thread's database connections.

    A handler that leaves a transaction open has failed: what it wrote is rolled back.
    """
    clean_connections()
    try:
        call(held, check=refuse_open_transactions)
    except BaseException as error:
        signals.send(signals.message_failed, held.handler, **_failed(held, error))
    clean_connections()


async def handle_async(held: Held) -> None:
    """Await an async handler between two clean-ups of the database connections."""
    await _clean_connections_async()
    try:
        await call_async(held, check=_refuse_open_transactions_async)
    except BaseException as error:
        await signals.asend(signals.message_failed, held.handler, **_failed(held, error))
    await _clean_connections_async()


def _nothing() -> None:
    pass


async def _nothing_async() -> None:
    pass


# `handle` goes on whatever a handler raises, as a worker must; `call` lets through what
# ends a program, such as KeyboardInterrupt.


def call(held: Held, *, check: Callable[[], None] = _nothing) -> None:
    """Call a sync handler and note how the delivery ended.

    `check` may raise after the handler has returned; then the handler has failed.
    """
    handler, delivery = _prepared(held)
    started = held.started_at = time.monotonic()
    try:
        signals.send(signals.message_started, handler, delivery=delivery)
        handler(delivery)
        check()
    except Snooze as snooze:
        held.settlement = Settlement.release(held.lease, snooze.delay_seconds)
    except (Exception, SystemExit) as error:
        signals.send(signals.message_failed, handler, **_failed(held, error))
    else:
        held.settlement = Settlement.ack(held.lease)
        signals.send(
            signals.message_succeeded,
            handler,
            delivery=delivery,
            duration_seconds=time.monotonic() - started,
        )


async def call_async(held: Held, *, check: Callable[[], Awaitable[None]] = _nothing_async) -> None:
    """Await an async handler and note how the delivery ended; see `call`."""
    handler, delivery = _prepared(held)
    started = held.started_at = time.monotonic()
    try:
        await signals.asend(signals.message_started, handler, delivery=delivery)
        await handler(delivery)
        await check()
    except Snooze as snooze:
        held.settlement = Settlement.release(held.lease, snooze.delay_seconds)
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        await signals.asend(signals.message_failed, handler, **_failed(held, error))
    else:
        held.settlement = Settlement.ack(held.lease)
        await signals.asend(
            signals.message_succeeded,
            handler,
            delivery=delivery,
            duration_seconds=time.monotonic() - started,
        )


def exhausted(lease: Lease, policy: RetryPolicy, reason: str, error_text: str) -> Settlement:
    """Return what the policy has in store for a message that is not tried again."""
    if policy.on_exhausted == "dead_letter":
        return Settlement.dead(lease, reason, error_text)
    return Settlement.halt(lease, reason, error_text)


def clean_connections() -> None:
    """Give the next message usable database connections: none that died, grew too old or
    was left inside a transaction. Never raises: what is wrong, the next query tells."""
    try:
        for connection in connections.all(initialized_only=True):
            if connection.connection is None:
                continue
            if connection.in_atomic_block or not connection.autocommit:
                _end_transaction(connection)
            # A worker idles for hours: whether the server still knows a connection that
            # was kept is asked before its next use, whatever CONN_HEALTH_CHECKS says.
            connection.health_check_enabled = True  # type: ignore[attr-defined] # not in the stubs
        close_old_connections()
    except DatabaseError:
        log.exception("a connection cannot be cleaned", extra={"action": "clean_up_failed"})


def _end_transaction(connection: BaseDatabaseWrapper) -> None:
    log.warning(
        "a handler left a transaction open; it is rolled back",
        extra={"action": "transaction_left_open", "database": connection.alias},
    )
    try:
        connection.close()
    finally:
        # A wrapper that is closed inside a transaction refuses to connect again.
        del connections[connection.alias]


def refuse_open_transactions() -> None:
    """Raise TransactionManagementError when the handler left a transaction open."""
    for connection in connections.all(initialized_only=True):
        is_off = not connection.autocommit and connection.settings_dict["AUTOCOMMIT"]
        if connection.connection is not None and (connection.in_atomic_block or is_off):
            raise TransactionManagementError(
                f"the handler left a transaction of database {connection.alias!r} open;"
                " what it wrote is rolled back"
            )


_clean_connections_async = sync_to_async(clean_connections)
_refuse_open_transactions_async = sync_to_async(refuse_open_transactions)


def _prepared(held: Held) -> tuple[Handler[Any], Delivery]:
    if held.handler is None or held.delivery is None:
        raise RuntimeError("a message is handled only after prepare() said so")
    return held.handler, held.delivery


def _failed(held: Held, error: BaseException) -> dict[str, Any]:
    """Note what becomes of a message whose handler raised; return what to tell of it."""
    handler, delivery = _prepared(held)
    now = time.monotonic()
    policy = handler.policy_for(held.queue.policy)
    failures = held.lease.failures + 1
    text = _text_of(error)
    retry_seconds: float | None = None
    if isinstance(error, Reject):
        held.settlement = exhausted(held.lease, policy, error.reason, text)
    elif policy.exhausts(failures):
        held.settlement = exhausted(held.lease, policy, "max_attempts", text)
    else:
        asked = error.delay_seconds if isinstance(error, Retry) else None
        # Jitter spreads retries out; it is no secret.
        backoff = policy.backoff_seconds(failures, random.random())  # noqa: S311
        retry_seconds = backoff if asked is None else asked
        held.settlement = Settlement.retry(held.lease, retry_seconds, text)
    return {
        "delivery": delivery,
        "error": error,
        "duration_seconds": now - (held.started_at or now),
        "retry_seconds": retry_seconds,
    }


def _text_of(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:  # its __str__ is the project's code
        return f"{name}, whose text cannot be shown"
