"""One queue as a worker sees it: turns, lost replies, waiting, outages."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from groupqueue import signals
from groupqueue.conf import QueueConfig
from groupqueue.core import calls
from groupqueue.core.calls import Settled, Settlement, Turned
from groupqueue.exceptions import GroupQueueError, ServerUnavailable
from groupqueue.handlers import largest_batch
from groupqueue.transport.redis import RedisTransport
from groupqueue.worker.executor import Held, never
from groupqueue.worker.leases import LeaseKeeper, mark_lost
from groupqueue.worker.options import ClaimShares
from groupqueue.worker.outages import Outage

log = logging.getLogger("groupqueue.worker")

# An idle worker looks for itself this often, whatever hints say.
LONGEST_IDLE_SECONDS = 2.0
Claim = Callable[[], Held]
"""A lease that has only been claimed: decodes it."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0
PAUSE_AFTER_ERROR_SECONDS = 0.5


class Source:
    """Settles to and claims from one queue; used by one thread, the pump's."""

    def __init__(
        self,
        config: QueueConfig,
        transport: RedisTransport,
        keeper: LeaseKeeper,
        *,
        worker_id: str,
        shares: ClaimShares,
        visibility_seconds: float,
        batch: int | None = None,
    ) -> None:
        self.config = config
        self.transport = transport
        self.finished: list[Held] = []
        """Handled messages whose settlement has not been answered yet."""
        self.next_due = 0.0
        """When it is worth claiming again, monotonic; 0 means now."""
        self.paused_until = 0.0
        """When Redis is worth asking again after an error, monotonic."""
        self.is_away = False
        """Whether Redis did not answer a turn; only a Recovery brings the queue back."""
        self.is_exhausted = False
        """Whether the last turn left nothing due behind."""
        self.is_hinted = False
        """Whether a hint has come since the last turn."""
        self._worker_id = worker_id
        self._keeper = keeper
        self._shares = shares
        self._visibility_seconds = visibility_seconds
        self._visibility_ms = calls.milliseconds(visibility_seconds, "visibility", positive=True)
        self._goes_on = batch is not None
        self._lease_size = batch or largest_batch()
        self._last_token = 0
        self._turn_number = 0
        self._errors_in_a_row = 0
        self._outage = Outage(config.name)

    def begin_turn(
        self, want: int, *, most: int | None = None, is_stopping: Callable[[], bool] = never
    ) -> Callable[[], Sequence[Claim]]:
        """Ask to settle what is finished and to claim up to `want` groups, and `most` messages
        of them; what is returned waits for the answer.

        That returns the claims; none when Redis does not answer, which makes the queue
        `is_away`. What was finished is kept until the server has answered for it.
        `is_stopping` is asked before a further message of a lease is begun.
        """
        batch = self.finished[: calls.MAX_LEASES_PER_CALL]
        preference = self._shares.preference(want)
        lease_size = self._lease_size
        if most is not None and want:
            lease_size = min(lease_size, most // want)
        asked_at = time.monotonic()
        self._turn_number += 1
        answer = self.transport.begin(
            calls.turn(
                self.transport.prefix,
                self._worker_id,
                [held.settlement for held in batch if held.settlement is not None],
                want,
                visibility_ms=self._visibility_ms,
                preference=preference,
                batch=lease_size,
                number=self._turn_number,
                rates=self.config.rates,
                decode_leases=False,
            )
        )

        def claim(row: calls.Row) -> Held:
            lease, lasts_until = calls.lease_of(row), asked_at + self._visibility_seconds
            return Held(self.config, lease, lasts_until, asked_at, self._goes_on, is_stopping)

        def end() -> Sequence[Claim]:
            turned = self._answered(batch, answer)
            if turned is None:
                return []
            self._shares.charge(preference, len(turned.rows))
            self._plan(turned, want)
            return [partial(claim, row) for row in turned.rows]

        return end

    def _answered(self, batch: Sequence[Held], answer: Callable[[], Turned]) -> Turned | None:
        """Wait for the answer to a turn and take in what it says of settlements and losses;
        None when there is no answer, or an error."""
        try:
            turned = answer()
        except GroupQueueError as error:
            if isinstance(error, ServerUnavailable):
                # The turn may have happened: its claims are unknown to us, and a second
                # answer about its settlements will not tell whether the first was ok.
                self.is_away = True
                self.is_exhausted = False
                for held in batch:
                    held.is_uncertain = True
            self.paused_until = time.monotonic() + self.note_error(error)
            return None
        self._errors_in_a_row = 0
        self._outage.answered()
        self.is_hinted = False
        del self.finished[: len(batch)]
        for held, settled in zip(batch, turned.settled, strict=True):
            # Until now its lease was renewed: an outage must not cost a finished message.
            self._keeper.let_go(held)
            note_settled(held, settled)
        signals.send_expired(self.config.name, turned.expired)
        signals.send_buried(self.config.name, turned.buried)
        return turned

    def hand_back(self, waiting: Sequence[Held]) -> None:
        """Release leases that have not begun; from any thread, while a turn may be under way.

        What the server did not answer for has its settlement noted, for the next turn.
        """
        releases = [Settlement.release(held.lease) for held in waiting]
        try:
            self.transport.turn(self._worker_id, releases, 0, visibility=1)
        except GroupQueueError:
            for held, release in zip(waiting, releases, strict=True):
                held.settlement = release
            return
        for held in waiting:
            held.is_handed_back = True
            self._keeper.let_go(held)

    def recount(self, held: Held, *, is_begun: bool) -> bool:
        """Count a message as being handled only from when it is; False if that cannot be said."""
        change: Literal[-1, 1] = 1 if is_begun else -1
        try:
            self.transport.perform(calls.recount(self.transport.prefix, held.lease, change))
        except GroupQueueError as error:
            log.warning(
                "a suspect's delivery cannot be counted rightly: %s",
                error,
                extra={"action": "recount_failed", "group": held.lease.group},
            )
            return False
        held.is_counted = is_begun
        return True

    def recover(self) -> None:
        """Hand back what turns without an answer have claimed, or will claim yet."""
        released = self.transport.recover(self._worker_id, self._last_token, self._turn_number)
        if released:
            log.info(
                "leases of a turn without a reply were handed back",
                extra={"action": "recovered", "queue": self.config.name, "leases": released},
            )

    def note_error(self, error: GroupQueueError) -> float:
        """Tell of an error; return the seconds to wait before asking again."""
        self._errors_in_a_row += 1
        ceiling = min(
            FIRST_PAUSE_SECONDS * 2.0 ** min(self._errors_in_a_row, 60), LONGEST_PAUSE_SECONDS
        )
        pause_seconds = ceiling * (0.5 + random.random() / 2)  # noqa: S311 - jitter
        self._outage.failed(error)
        return pause_seconds

    def _plan(self, turned: Turned, want: int) -> None:
        if turned.rows:
            self._last_token = max(map(calls.token_of, turned.rows))
        self.is_exhausted = want > 0 and len(turned.rows) < want and turned.wait_ms != 0
        wait_seconds = LONGEST_IDLE_SECONDS
        if turned.wait_ms >= 0:
            wait_seconds = min(turned.wait_ms / 1000, LONGEST_IDLE_SECONDS)
        self.next_due = time.monotonic() + wait_seconds


def note_settled(held: Held, settled: Settled) -> None:
    """Tell what the server answered to a settlement."""
    settlement = held.settlement
    if settlement is None:
        return
    if settled.word == "ok":
        if settlement.outcome in ("dead", "dead_group", "halt"):
            _tell_exhausted(held)
        return
    fields = {"group": held.lease.group, "message_id": held.lease.id, "word": settled.word}
    if held.is_uncertain:
        log.info(
            "whether the settlement took effect is unknown: its first reply was lost",
            extra={"action": "settlement_unknown", **fields},
        )
        return
    log.warning(
        "the lease ended before the settlement; the result was dropped",
        extra={"action": "stale_settlement", **fields},
    )
    mark_lost([held])


def _tell_exhausted(held: Held) -> None:
    settlement = held.settlement
    if settlement is None:
        return
    signal = signals.group_halted if settlement.outcome == "halt" else signals.message_dead
    signals.send(
        signal,
        held.handler,
        delivery=held.delivery,
        message_id=held.lease.id if held.delivery is None else held.delivery.id,
        group=held.lease.group,
        queue=held.queue.name,
        reason=settlement.value,
        error=settlement.error,
    )


class Recovery(threading.Thread):
    """Brings a queue back whose Redis did not answer, while the pump serves the others."""

    def __init__(self, source: Source, on_back: Callable[[Source], None]) -> None:
        super().__init__(name=f"groupqueue-recovery-{source.config.name}", daemon=True)
        self._source = source
        self._on_back = on_back

    def run(self) -> None:
        """Ask until Redis answers, for ever; then let the pump have the queue again."""
        source = self._source
        time.sleep(max(0.0, source.paused_until - time.monotonic()))
        while True:
            try:
                source.recover()
                break
            except GroupQueueError as error:
                pause_seconds = source.note_error(error)
            except Exception:
                # Whatever it was, nobody else would bring the queue back.
                log.exception("a recovery broke off", extra={"action": "recovery_failed"})
                pause_seconds = LONGEST_PAUSE_SECONDS
            time.sleep(pause_seconds)
        source.is_away = False
        self._on_back(source)


class HintListener(threading.Thread):
    """Waits for hints on one queue while the pump has nothing to do, on its own connection."""

    def __init__(self, source: Source, on_hint: Callable[[Source], None]) -> None:
        super().__init__(name=f"groupqueue-hints-{source.config.name}", daemon=True)
        self._source = source
        self._on_hint = on_hint
        self._wanted = threading.Semaphore(0)
        self.is_waiting = False
        """Set by `listen`, cleared when the wait is over."""
        self._seconds = 0.0

    def listen(self, seconds: float) -> None:
        """Wait once, for at most that long; call `on_hint` if a hint comes."""
        self._seconds = seconds
        self.is_waiting = True
        self._wanted.release()

    def run(self) -> None:
        """Serve one wait after the other."""
        while True:
            self._wanted.acquire()
            hinted = False
            try:
                hinted = self._source.transport.wait_for_hint(self._seconds)
            except GroupQueueError:
                # The pump's next turn meets the same error and reports it.
                time.sleep(min(self._seconds, PAUSE_AFTER_ERROR_SECONDS))
            self.is_waiting = False
            if hinted:
                self._on_hint(self._source)
