"""How a test has the messages of a queue handled: by the worker's own code, in its own thread."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

from asgiref.sync import async_to_sync, sync_to_async
from django.utils.asyncio import async_unsafe

from groupqueue import signals
from groupqueue.conf import get_config
from groupqueue.core.calls import Settled, Settlement
from groupqueue.core.keys import ShardKeys
from groupqueue.core.messages import TIERS, Lease
from groupqueue.exceptions import (
    CorruptMessage,
    GroupQueueError,
    HandlerError,
    Reject,
    Retry,
    Snooze,
    StaleLease,
)
from groupqueue.handlers import largest_batch
from groupqueue.testing import transactions
from groupqueue.transport.connections import get_transport
from groupqueue.worker.executor import Held, call, call_async, prepare
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
    outcome: Literal["retry", "halt", "dead", "dead_group", "release", "lost"]
    """What became of the message: release when this process has no handler for its topic,
    lost when its lease had ended before it was settled."""
    parked_seconds: float | None
    """How long its group waits after retry and release; None after the others."""


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
    """Handle the messages of a queue in this thread until none is due.

    One by one, or in lists where the handler declares `batch`, as a worker without --batch
    does. Messages that handlers publish are handled as well. Groups that are parked for a
    while, messages that are scheduled or held, and what a rate does not let go are left
    alone; with `advance_parked` their time passes at once.

    What a handler raises is raised here, after its message was settled as a worker
    settles it; but for Retry and Reject, with which handlers end a delivery on purpose.
    With `raise_errors=False` the run goes on, and its result tells of all failures.

    Inside TestCase, whose transaction never commits, what the test published counts as
    committed, and so does what handlers do: their commit hooks are run. Database
    connections are left as they are, and HANDLER_TIMEOUT is not enforced. Raises
    NotEmpty when `limit` deliveries are not enough.
    """
    run = _Run(queue, limit, raise_errors=raise_errors)
    with run.listening():
        transactions.send_unsent()
        while run.deliver_next() or (advance_parked and run.deliver_later()):
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
        # The groups whose heads were handed back.
        self._unhandled: set[bytes] = set()
        self._error: BaseException | None = None

    def result(self) -> Ran:
        """Return what was done so far."""
        return Ran(processed=self._processed, failures=tuple(self._failures))

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Learn from message_failed what handlers raise."""

        def note(error: BaseException, **_: object) -> None:
            self._error = error

        signals.message_failed.connect(note)
        try:
            yield
        finally:
            signals.message_failed.disconnect(note)

    def deliver_next(self) -> bool:
        """Claim, handle and settle what one call of a handler takes; False when none is due."""
        lease = self._claim()
        if lease is None:
            return False
        now = time.monotonic()
        held = Held(self._config, lease, now + LEASE_SECONDS, now)
        self._error = None
        try:
            if self._left() <= 0:
                raise NotEmpty(self._config.name, self.result())
            if prepare(held):
                _handle(held)
        except BaseException:
            self._settled(Settlement.release(lease))
            raise
        self._conclude(held)
        return True

    def deliver_later(self) -> bool:
        """Let time pass until there is a message to handle, and do so; False when none comes."""
        # A message may join a group that is held. But whatever still waits once its time
        # has passed is nothing to wait for.
        fewest = math.inf
        while 0 < (waiting := self._let_time_pass()) < fewest:
            if self.deliver_next():
                return True
            fewest = waiting
        # Meanwhile the clock may have come to a moment by itself.
        return self.deliver_next()

    def _let_time_pass(self) -> int:
        """Bring what waits for a moment forward by the wait of the first; return how much it is."""
        client: Any = self._transport.client
        keys = ShardKeys(self._transport.prefix)
        seconds, microseconds = client.time()
        now_ms = seconds * 1000 + microseconds / 1000
        # What waits, by its key, name and moment: first the scheduled messages.
        agenda = keys.named("scheduled")
        waiting = [
            (agenda, name, due_ms)
            for name, due_ms in client.zrangebyscore(agenda, f"({now_ms}", "+inf", withscores=True)
        ]
        for tier in TIERS:
            for name, due_ms in client.zrangebyscore(
                keys.ready(tier), now_ms, "(+inf", withscores=True
            ):
                lock = keys.lock("").encode() + name
                # The ready score of a leased group is its lease's deadline.
                if name not in self._unhandled and not client.exists(lock):
                    waiting.append((keys.ready(tier), name, due_ms))
        moments = [due_ms for _, _, due_ms in waiting]
        if (queue_free_ms := _rate(client, keys.named("tat:"))[1] / 1000) > now_ms:
            moments.append(queue_free_ms)
        wait_ms = min(moments, default=now_ms) - now_ms
        for key, name, due_ms in waiting:
            earlier_ms = due_ms - wait_ms
            # Moments of messages are whole.
            client.zadd(key, {name: math.floor(earlier_ms) if key == agenda else earlier_ms})
        _make_older(client, keys, wait_ms)
        return len(moments)

    def _left(self) -> int:
        """Return how many deliveries there may still be."""
        return self._limit - self._processed - len(self._failures)

    def _claim(self) -> Lease | None:
        preference = self._shares.preference(1)
        while True:
            turned = self._transport.turn(
                WORKER_ID,
                [],
                1,
                visibility=LEASE_SECONDS,
                preference=preference,
                rates=self._config.rates,
                batch=max(1, min(largest_batch(), self._left())),
            )
            signals.send_expired(self._config.name, turned.expired)
            signals.send_buried(self._config.name, turned.buried)
            # A turn that drops or sets aside as much as it may leaves the rest to the next.
            if turned.leases or turned.wait_ms != 0:
                break
        self._shares.charge(preference, len(turned.leases))
        return turned.leases[0] if turned.leases else None

    def _settled(self, settlement: Settlement) -> Settled:
        return self._transport.turn(WORKER_ID, [settlement], 0, visibility=1).settled[0]

    def _conclude(self, held: Held) -> None:
        """Settle a call and keep count; raise what its handler raised, if asked to."""
        settlement = cast(Settlement, held.settlement)
        settled = self._settled(settlement)
        note_settled(held, settled)
        if settled.word == "ok":
            self._processed += settlement.done
            if settlement.outcome == "ack":
                return
        failure = _failure(held, settlement, settled, self._error)
        self._failures.append(failure)
        if failure.outcome == "release":
            self._unhandled.add(held.lease.key)
        if self._raise_errors and not isinstance(failure.error, Retry | Reject | Snooze):
            failure.error.add_note(
                f"run_until_empty() handled {failure.topic!r} of group {failure.group!r},"
                f" attempt {failure.attempt}; the outcome is {failure.outcome}"
            )
            raise failure.error


def _rate(client: Any, key: str | bytes) -> list[int]:
    """Return the two moments in µs that are noted of a rate; zeros when it has not been used."""
    return [int(part) for part in (client.get(key) or b"0 0").split()]


def _make_older(client: Any, keys: ShardKeys, by_ms: float) -> None:
    """Move what is noted of rates and of first failures into the past."""
    for key in client.scan_iter(f"{keys.named('tat:')}*"):
        earlier = " ".join(str(us - math.ceil(by_ms * 1000)) for us in _rate(client, key))
        client.set(key, earlier, keepttl=True)
    for group, noted in client.hgetall(keys.named("failures")).items():
        count, since_ms = noted.split()
        earlier = f"{int(count)} {int(since_ms) - math.ceil(by_ms)}"
        client.hset(keys.named("failures"), group, earlier)


def _failure(
    held: Held, settlement: Settlement, settled: Settled, error: BaseException | None
) -> Failure:
    # What is dropped for a lost lease begins with its head.
    delivery = held.deliveries[0] if held.deliveries and settled.word != "ok" else held.delivery
    topic = "" if delivery is None else delivery.topic
    outcome = settlement.outcome
    if error is None and settled.word != "ok":
        error = StaleLease(held.lease, settled.word)
    elif error is None and outcome == "release" and held.handler is not None:
        error = Snooze(int(settlement.value) / 1000)
    elif error is None and outcome == "release":
        error = HandlerError(
            f"no handler for topic {topic!r}: declare it with @handler in the handlers.py of an"
            " installed app; capture_published() keeps messages for other projects away"
        )
    elif error is None:
        kind = CorruptMessage if settlement.value == "corrupt" else GroupQueueError
        error = kind(settlement.error)
    is_parked = settled.word == "ok" and outcome in ("retry", "release")
    return Failure(
        message_id=held.lease.id if delivery is None else delivery.id,
        group=held.lease.group,
        topic=topic,
        attempt=held.lease.failures + 1 if delivery is None else delivery.attempt,
        error=error,
        outcome="lost" if settled.word != "ok" or outcome == "ack" else outcome,
        parked_seconds=int(settlement.value) / 1000 if is_parked else None,
    )


def _handle(held: Held) -> None:
    with transactions.hooks_run():
        if held.handler is not None and held.handler.is_async:
            async_to_sync(call_async)(held)
        else:
            call(held)
