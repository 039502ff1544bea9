"""How one leased message is handled, and what becomes of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from groupqueue import signals
from groupqueue.conf import QueueConfig
from groupqueue.core.calls import Settlement
from groupqueue.core.delivery import Delivery
from groupqueue.core.messages import Lease
from groupqueue.core.retries import RetryPolicy
from groupqueue.exceptions import CorruptMessage, Reject, Retry, Snooze
from groupqueue.handlers import Handler, get_handler
from groupqueue.worker.databases import (
    aclean_connections,
    arefuse_open_transactions,
    clean_connections,
    refuse_open_transactions,
)

log = logging.getLogger("groupqueue.worker")

# Another worker, started from newer code, may know the topic: look again soon.
UNKNOWN_TOPIC_PAUSE_SECONDS = 5.0
# A lease of several messages is settled after this time, and what it has left handed back:
# a crash repeats no more than was handled meanwhile.
LONGEST_RUN_SECONDS = 1.0


def never() -> bool:
    """Say no: nobody wants this to end early."""
    return False


@dataclass(slots=True, eq=False)
class Held:
    """A lease in this process, from its claim to its settlement."""

    queue: QueueConfig
    lease: Lease
    lasts_until: float
    """When the lease ends, on this process's monotonic clock, if it is not renewed."""
    renewed_at: float
    goes_on: bool = False
    """Whether all messages of the lease may be handled, call after call, before it is
    settled; else what one call takes."""
    is_stopping: Callable[[], bool] = never
    """Says whether no further message of the lease is to be begun."""
    handler: Handler[Any] | None = None
    deliveries: list[Delivery] = field(default_factory=list)
    """What handlers were called with under this lease, or are about to be, from its head on."""
    done: int = 0
    """How many of them are finished."""
    is_suspect: bool = False
    """Whether one more crash would exhaust the message: it is handled with nothing beside
    it, so that no message is blamed for another's doing."""
    is_counted: bool = True
    """Whether the server counts this delivery: a suspect that waits must not be blamed for
    the death of its process."""
    started_at: float | None = None
    """When its handler was called, monotonic; None before."""
    run_until: float | None = None
    """When no further message of the lease is to be begun; None before the first."""
    settlement: Settlement | None = None
    is_handed_back: bool = False
    """Whether it was settled, not begun, while the pump was busy; see worker.ahead."""
    is_lost: bool = False
    """Whether the lease is known to be gone."""
    is_uncertain: bool = False
    """Whether a turn that carried its settlement lost its reply."""

    @property
    def at_hand(self) -> list[Delivery]:
        """What the handler is called with."""
        return self.deliveries[self.done :]

    @property
    def delivery(self) -> Delivery | None:
        """The first at hand, or the last that was; None when the message is none."""
        return (
            self.deliveries[min(self.done, len(self.deliveries) - 1)] if self.deliveries else None
        )

    @property
    def acknowledged(self) -> int:
        """How many of the lease are done whatever its handler comes to: the finished ones,
        and those that a running batch handler has acknowledged from its first one on."""
        count = self.done
        if self.handler is not None and self.handler.batch is not None:
            while count < len(self.deliveries) and self.deliveries[count].is_acknowledged:
                count += 1
        return count


def prepare(held: Held) -> bool:
    """Find deliveries and handler; False when the lease is settled without being handled."""
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
    held.deliveries.append(Delivery(lease, content, config.name))
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
    if policy.is_poison(1):
        # A crash counts at the head, which might not have caused it: this one must go alone.
        held.goes_on = False
    elif held.handler.batch is not None:
        _fill_batch(held, held.handler, held.handler.batch)
    return True


def advance(held: Held) -> bool:
    """Take the next messages of a lease of several, if all has gone well so far.

    What is not taken is handed back with the settlement, as if never delivered.
    """
    if not held.goes_on or held.settlement is None or held.settlement.outcome != "ack":
        return False
    now = time.monotonic()
    is_over = now >= held.lasts_until or (held.run_until is not None and now >= held.run_until)
    if is_over or held.is_lost or held.is_stopping():
        return False
    following = _following(held)
    found = get_handler(following.topic) if following else None
    former = held.handler
    if following is None or found is None or former is None or found.is_async != former.is_async:
        return False
    held.started_at = None  # first: the time of the former call is nothing to the new handler
    held.handler = found
    held.deliveries.append(following)
    if found.batch is not None:
        _fill_batch(held, found, found.batch)
    if held.is_lost:
        # The lease keeper found out meanwhile, and has told those that were there.
        for delivery in held.at_hand:
            delivery.mark_lost()
    held.settlement = None
    return True


def _fill_batch(held: Held, handler: Handler[Any], most: int) -> None:
    """Let a batch handler take the messages of its topic that follow."""
    while len(held.deliveries) - held.done < most:
        following = _following(held)
        if following is None or following.topic != handler.topic:
            return
        held.deliveries.append(following)


def _following(held: Held) -> Delivery | None:
    """Return the next message of the lease, if it has one more.

    None for bytes that are no message: that is told once they are the head.
    """
    place = len(held.deliveries) - 1
    if place >= len(held.lease.rest):
        return None
    leased = held.lease.rest[place]
    try:
        content = held.queue.codec.decode(leased.payload)
    except Exception:
        return None
    return Delivery(held.lease, content, held.queue.name, leased)


def handle(held: Held) -> None:
    """Call sync handlers between clean-ups of the thread's database connections.

    A handler that leaves a transaction open has failed: what it wrote is rolled back.
    """
    clean_connections()
    goes_on = True
    while goes_on:
        try:
            call(held, check=refuse_open_transactions)
        except BaseException as error:
            _tell_failed(held, error, refuse_open_transactions)
        clean_connections()
        goes_on = advance(held)


async def handle_async(held: Held) -> None:
    """Await async handlers between clean-ups of the database connections."""
    await aclean_connections()
    goes_on = True
    while goes_on:
        try:
            await call_async(held, check=arefuse_open_transactions)
        except BaseException as error:
            await _atell_failed(held, error, arefuse_open_transactions)
        await aclean_connections()
        goes_on = advance(held)


def _nothing() -> None:
    pass


async def _nothing_async() -> None:
    pass


# `handle` goes on whatever a handler raises, as a worker must; `call` lets through what
# ends a program, such as KeyboardInterrupt.


def call(held: Held, *, check: Callable[[], None] = _nothing) -> None:
    """Call a sync handler and note how the delivery ended.

    `check` may raise once the handler is over: then it has failed, and has acknowledged nothing.
    """
    handler, argument = _begun(held)
    generation = _Fork.generation
    try:
        if signals.message_started.receivers:
            for delivery in held.at_hand:
                signals.send(signals.message_started, handler, delivery=delivery)
        try:
            handler(argument)
        finally:
            if _Fork.generation != generation:
                leave_fork(sys.exception())
        check()
    except (Exception, SystemExit) as error:
        _tell_failed(held, error, check)
    else:
        for facts in _finished(held, len(held.deliveries) - held.done):
            signals.send(signals.message_succeeded, handler, **facts)


async def call_async(held: Held, *, check: Callable[[], Awaitable[None]] = _nothing_async) -> None:
    """Await an async handler and note how the delivery ended; see `call`."""
    handler, argument = _begun(held)
    generation = _Fork.generation
    try:
        if signals.message_started.receivers:
            for delivery in held.at_hand:
                await signals.asend(signals.message_started, handler, delivery=delivery)
        try:
            await handler(argument)
        finally:
            if _Fork.generation != generation:
                leave_fork(sys.exception())
        await check()
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        await _atell_failed(held, error, check)
    else:
        for facts in _finished(held, len(held.deliveries) - held.done):
            await signals.asend(signals.message_succeeded, handler, **facts)


class _Fork:
    """Tells a process that a handler has forked and lets come back from the worker: it would
    settle and claim under the worker's name."""

    generation = 0


def _note_fork() -> None:
    _Fork.generation += 1


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_note_fork)


def leave_fork(error: BaseException | None) -> NoReturn:
    """End a forked process as the interpreter would, but for what belongs to its parent."""
    code: object = 0
    if isinstance(error, SystemExit):
        code = 0 if error.code is None else error.code
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    if not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _begun(held: Held) -> tuple[Handler[Any], Any]:
    """Note that a handler is about to be called; return it and what to call it with."""
    handler = held.handler
    if handler is None:
        raise RuntimeError("a message is handled only after prepare() said so")
    held.started_at = time.monotonic()
    if held.run_until is None:
        held.run_until = held.started_at + LONGEST_RUN_SECONDS
    return handler, held.deliveries[held.done] if handler.batch is None else held.at_hand


def _finished(held: Held, count: int) -> Sequence[dict[str, Any]]:
    """Note the first ones at hand as finished; return what to tell of each, if anybody asks."""
    finished = held.at_hand[:count] if signals.message_succeeded.receivers else ()
    held.done += count
    held.settlement = Settlement.ack(held.lease, held.done)
    if not finished:
        return ()
    now = time.monotonic()
    seconds = now - (held.started_at or now)
    return [{"delivery": delivery, "duration_seconds": seconds} for delivery in finished]


def _tell_failed(held: Held, error: BaseException, check: Callable[[], None]) -> None:
    """Note and tell what a handler's error means for the messages that it was called with."""
    handler = held.handler
    with contextlib.suppress(Exception):
        check()
        for facts in _acknowledged(held):
            signals.send(signals.message_succeeded, handler, **facts)
    failure = _failed(held, error)
    if failure is not None:
        signals.send(signals.message_failed, handler, **failure)


async def _atell_failed(
    held: Held, error: BaseException, check: Callable[[], Awaitable[None]]
) -> None:
    handler = held.handler
    with contextlib.suppress(Exception):
        await check()
        for facts in _acknowledged(held):
            await signals.asend(signals.message_succeeded, handler, **facts)
    failure = _failed(held, error)
    if failure is not None:
        await signals.asend(signals.message_failed, handler, **failure)


def _acknowledged(held: Held) -> Sequence[dict[str, Any]]:
    """Note as finished what a batch handler acknowledged before it raised an error."""
    count = held.acknowledged - held.done
    if not count or held.settlement is not None:
        return []
    facts = _finished(held, count)
    if held.at_hand:
        held.settlement = None  # that of the first one which is not acknowledged is to come
    return facts


def exhausted(
    lease: Lease, policy: RetryPolicy, reason: str, error_text: str, *, done: int = 0
) -> Settlement:
    """Return what the policy has in store for a message that is not tried again."""
    if policy.on_exhausted == "dead_letter":
        return Settlement.dead(lease, reason, error_text, done=done)
    if policy.on_exhausted == "dead_letter_group":
        return Settlement.dead_group(lease, reason, error_text, done=done)
    return Settlement.halt(lease, reason, error_text, done=done)


def _prepared(held: Held) -> tuple[Handler[Any], Delivery]:
    if held.handler is None or held.delivery is None:
        raise RuntimeError("a message is handled only after prepare() said so")
    return held.handler, held.delivery


def _failed(held: Held, error: BaseException) -> dict[str, Any] | None:
    """Note what becomes of the message whose handler raised; return what to tell of it.

    None when there is nothing to tell: it is to be snoozed, or how it ended is settled.
    """
    handler, delivery = _prepared(held)
    if held.settlement is not None:
        log.error(
            "an error was raised after a message had been handled; it changes nothing",
            exc_info=error,
            extra={"action": "failed_when_done", "group": delivery.group, "topic": delivery.topic},
        )
        return None
    if isinstance(error, Snooze):
        held.settlement = Settlement.release(held.lease, error.delay_seconds, done=held.done)
        return None
    now = time.monotonic()
    policy = handler.policy_after(error, held.queue.policy)
    failures = delivery.attempt
    block_left = policy.block_left_seconds(_blocked_seconds(held, delivery.lease, now))
    text = _text_of(error)
    retry_seconds: float | None = None
    if isinstance(error, Reject):
        held.settlement = exhausted(held.lease, policy, error.reason, text, done=held.done)
    elif policy.exhausts(failures):
        held.settlement = exhausted(held.lease, policy, "max_attempts", text, done=held.done)
    elif block_left <= 0:
        held.settlement = exhausted(held.lease, policy, "max_block", text, done=held.done)
    else:
        asked = error.delay_seconds if isinstance(error, Retry) else None
        # Jitter spreads retries out; it is no secret.
        backoff = policy.backoff_seconds(failures, random.random())  # noqa: S311
        retry_seconds = min(backoff if asked is None else asked, block_left)
        held.settlement = Settlement.retry(held.lease, retry_seconds, text, done=held.done)
    return {
        "delivery": delivery,
        "error": error,
        "duration_seconds": now - (held.started_at or now),
        "retry_seconds": retry_seconds,
    }


def _blocked_seconds(held: Held, lease: Lease, now: float) -> float:
    """Return for how long a message's failing has held its group."""
    if not lease.failing_since_ms:
        return 0.0
    # A token is the server's clock in µs when the lease was given, or a little later.
    until_claimed = lease.token / 1_000_000 - lease.failing_since_ms / 1000
    return max(0.0, until_claimed) + now - (held.started_at or now)


def _text_of(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:  # its __str__ is the project's code
        return f"{name}, whose text cannot be shown"
