"""How a test has the messages of a queue handled: by the worker's own code, in its own thread."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast
from unittest import mock

from asgiref.sync import async_to_sync, sync_to_async
from django.utils.asyncio import async_unsafe

from groupqueue import signals
from groupqueue.conf import get_config
from groupqueue.core.calls import Outcome, Settled, Settlement
from groupqueue.core.keys import ShardKeys
from groupqueue.core.messages import TIERS, Lease
from groupqueue.exceptions import (
    CorruptMessage,
    GroupQueueError,
    HandlerError,
    Reject,
    Retry,
    StaleLease,
)
from groupqueue.transport.connections import get_transport
from groupqueue.worker import executor
from groupqueue.worker.executor import Held, handle, handle_async, prepare
from groupqueue.worker.options import ClaimShares, WorkerOptions
from groupqueue.worker.sources import note_settled

WORKER_ID = "run_until_empty"
# Nobody renews the lease, and somebody may be stepping through the handler.
LEASE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One delivery that did not end with the message handled."""

    message_id: str
    group: str
    topic: str
    """Empty when the stored bytes are no message."""
    attempt: int
    error: BaseException
    """What the handler raised, or why none was called."""
    outcome: Outcome
    """retry, halt or dead; release when this process has no handler for the topic."""
    retry_seconds: float | None
    """How long the group is parked; None after halt and dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What `run_until_empty` did."""

    processed: int
    """Messages handled with success."""
    failures: tuple[Failure, ...]
    """All other deliveries, in order."""

    @property
    def failed(self) -> int:
        """How many deliveries did not end with the message handled."""
        return len(self.failures)


class NotEmpty(AssertionError):
    """`run_until_empty` has reached its limit; `ran` tells what it did until then."""

    def __init__(self, queue: str, ran: Ran) -> None:
        super().__init__(
            f"queue {queue!r} is not empty after {ran.processed} messages were processed and"
            f" {ran.failed} deliveries failed: look for handlers that publish without end, or"
            " raise `limit`"
        )
        self.ran = ran


@async_unsafe("run_until_empty() would block the event loop: await arun_until_empty()")
def run_until_empty(
    queue: str = "default",
    *,
    limit: int = 1000,
    advance_parked: bool = False,
    raise_errors: bool = True,
) -> Ran:
    """Handle the messages of a queue in this thread, one by one, until none is due.

    Messages that handlers publish are handled as well. Groups that are parked for a
    while are left alone; with `advance_parked` their time passes at once.

    What a handler raises is raised here, after its message was settled as a worker
    settles it; but for Retry and Reject, with which handlers end a delivery on purpose.
    With `raise_errors=False` the run goes on, and its result tells of all failures.

    Inside TestCase, whose transaction never commits, messages that the test published
    count as committed, and so does what handlers write: their commit hooks are run.
    Database connections are left as they are, and HANDLER_TIMEOUT is not enforced.
    Raises NotEmpty when `limit` deliveries are not enough.
    """
    run = _Run(queue, limit, raise_errors=raise_errors)
    with _told_of_errors(run), _connections_left_alone():
        _send_what_waits_for_the_test()
        while run.deliver_next() or (advance_parked and run.let_time_pass()):
            continue
    return run.result()


async def arun_until_empty(
    queue: str = "default",
    *,
    limit: int = 1000,
    advance_parked: bool = False,
    raise_errors: bool = True,
) -> Ran:
    """Handle the messages of a queue until none is due; the async twin of `run_until_empty`."""
    return await sync_to_async(run_until_empty)(
        queue, limit=limit, advance_parked=advance_parked, raise_errors=raise_errors
    )


# Helpers ---------------------------------------------------------------------------------


class _Run:
    """One `run_until_empty`: a worker of one queue, without its threads and its waiting."""

    def __init__(self, queue: str, limit: int, *, raise_errors: bool) -> None:
        self._config = get_config(queue)
        self._transport = get_transport(queue)
        self._shares = ClaimShares(WorkerOptions(queues=(queue,)), self._config)
        self._limit = limit
        self._raise_errors = raise_errors
        self._processed = 0
        self._failures: list[Failure] = []
        self._error: BaseException | None = None

    def result(self) -> Ran:
        """Return what was done so far."""
        return Ran(processed=self._processed, failures=tuple(self._failures))

    def note_error(self, delivery: Delivery, error: BaseException, **_: object) -> None:
        """Keep what the handler raised; a receiver of message_failed."""
        self._error = error

    def deliver_next(self) -> bool:
        """Claim, handle and settle one message; False when none is due."""
        lease = self._claim()
        if lease is None:
            return False
        now = time.monotonic()
        held = Held(self._config, lease, now + LEASE_SECONDS, now)
        self._error = None
        try:
            if self._processed + len(self._failures) == self._limit:
                raise NotEmpty(self._config.name, self.result())
            if prepare(held):
                _handle(held)
        except BaseException:
            self._turn(Settlement.release(lease))
            raise
        self._settle(held)
        return True

    def let_time_pass(self) -> bool:
        """Bring parked groups forward by the wait of the first of them; False without any."""
        client, keys = self._transport.client, ShardKeys(self._transport.prefix)
        seconds, microseconds = client.time()
        now_ms = seconds * 1000 + microseconds / 1000
        unhandled = {failure.group for failure in self._failures if failure.outcome == "release"}
        parked = []
        for tier in TIERS:
            rows = client.zrangebyscore(keys.ready(tier), now_ms, "(inf", withscores=True)
            for name, due_ms in rows:
                group = name.decode(errors="surrogateescape")
                if group not in unhandled and not client.exists(keys.lock(group)):
                    parked.append((tier, name, due_ms))
        wait_ms = min((due_ms for _, _, due_ms in parked), default=now_ms) - now_ms
        for tier, name, due_ms in parked:
            client.zadd(keys.ready(tier), {name: due_ms - wait_ms})
        return bool(parked)

    def _claim(self) -> Lease | None:
        preference = self._shares.preference(1)
        turned = self._transport.turn(
            WORKER_ID, [], 1, visibility=LEASE_SECONDS, preference=preference
        )
        self._shares.charge(preference, len(turned.leases))
        return turned.leases[0] if turned.leases else None

    def _turn(self, settlement: Settlement) -> Settled:
        return self._transport.turn(WORKER_ID, [settlement], 0, visibility=1).settled[0]

    def _settle(self, held: Held) -> None:
        settlement = cast(Settlement, held.settlement)
        settled = self._turn(settlement)
        note_settled(held, settled)
        if settlement.outcome == "ack" and settled.word == "ok":
            self._processed += 1
            return
        error = self._error or _why_unhandled(held, settled)
        is_parked = settlement.outcome in ("retry", "release")
        failure = Failure(
            message_id=held.lease.id,
            group=held.lease.group,
            topic=held.delivery.topic if held.delivery else "",
            attempt=held.lease.failures + 1,
            error=error,
            outcome=settlement.outcome,
            retry_seconds=int(settlement.value) / 1000 if is_parked else None,
        )
        self._failures.append(failure)
        if self._raise_errors and not isinstance(error, Retry | Reject):
            error.add_note(
                f"while run_until_empty() handled {failure.topic!r} of group {failure.group!r},"
                f" attempt {failure.attempt}, which ended in: {failure.outcome}"
            )
            raise error


def _why_unhandled(held: Held, settled: Settled) -> GroupQueueError:
    settlement = cast(Settlement, held.settlement)
    if settled.word != "ok":
        return StaleLease(held.lease, settled.word)
    if settlement.outcome == "release" and held.delivery is not None:
        return HandlerError(
            f"no handler for topic {held.delivery.topic!r}: declare one with @handler in the"
            " handlers.py of an installed app, or capture what is published for others"
        )
    if held.delivery is None:
        return CorruptMessage(settlement.error)
    return GroupQueueError(settlement.error)


def _handle(held: Held) -> None:
    """Call the handler, then the commit hooks that it left in the test's transaction."""
    before = [
        (connection, len(connection.run_on_commit))
        for connection in _connections()
        if _counts_as_committed(connection)
    ]
    if held.handler is not None and held.handler.is_async:
        async_to_sync(handle_async)(held)
    else:
        handle(held)
    for connection, count in before:
        hooks = cast(list[Any], connection.run_on_commit)
        while len(hooks) > count:
            _, hook, robust = hooks.pop(count)
            try:
                hook()
            except Exception:
                if not robust:
                    raise
                log.exception("a commit hook failed", extra={"action": "commit_hook_failed"})


@contextlib.contextmanager
def _told_of_errors(run: _Run) -> Iterator[None]:
    signals.message_failed.connect(run.note_error)
    try:
        yield
    finally:
        signals.message_failed.disconnect(run.note_error)


@contextlib.contextmanager
def _connections_left_alone() -> Iterator[None]:
    """Keep the executor from closing connections: the test's transaction would be gone."""

    async def nothing() -> None: ...

    with (
        mock.patch.object(executor, "clean_connections", lambda: None),
        mock.patch.object(executor, "_clean_connections_async", nothing),
    ):
        yield
