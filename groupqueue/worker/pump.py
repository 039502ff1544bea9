"""How a worker process keeps messages flowing: turns, handlers, waiting, stopping."""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.exceptions import GroupQueueError
from groupqueue.handlers import blames_neighbours
from groupqueue.worker.ahead import AHEAD_SECONDS, Line
from groupqueue.worker.executor import Held, prepare
from groupqueue.worker.leases import LeaseKeeper
from groupqueue.worker.options import WorkerOptions
from groupqueue.worker.pool import Pool
from groupqueue.worker.sources import (
    PAUSE_AFTER_ERROR_SECONDS,
    Claim,
    HintListener,
    Recovery,
    Source,
)

log = logging.getLogger("groupqueue.worker")

FAILURES = ("retry", "dead", "dead_group", "halt")

# A second suspect is left to another process, or to this one a little later.
SUSPECT_PAUSE_SECONDS = 0.5
# A suspect waits this long for the handlers beside it, and nothing is claimed meanwhile;
# then it is handed back for a while, so that a long handler does not idle its process.
SUSPECT_PATIENCE_SECONDS = 2.0
SUSPECT_PARKED_SECONDS = 10.0


class Stop(enum.Enum):
    """Wakes the pump so that it sees that it is to stop."""

    NOW = enum.auto()


class Pump:
    """Claims, has handled and settles, until it is told to stop or has nothing left to do."""

    def __init__(
        self,
        sources: Sequence[Source],
        keeper: LeaseKeeper,
        options: WorkerOptions,
        *,
        on_stopping: Callable[[str], None],
        on_claimed: Callable[[int], None],
        on_loop_ended: Callable[[], None],
    ) -> None:
        self._sources = list(sources)
        self._keeper = keeper
        self._concurrency = options.concurrency
        self._burst = options.burst
        self._claims_left = options.max_messages
        self._ends_at = None
        if options.max_seconds is not None:
            self._ends_at = time.monotonic() + options.max_seconds
        self._inbox: SimpleQueue[Held | Source | Stop] = SimpleQueue()
        # A crash counts against what waits, too.
        is_ahead = not any(blames_neighbours(source.config) for source in sources)
        self._line = Line(self._hand_back, hands=self._concurrency) if is_ahead else None
        self._pool = Pool(
            self._concurrency,
            self._inbox.put,
            on_loop_ended,
            handle_next=self._handle_next,
            line=self._line,
        )
        self._listeners = {id(source): HintListener(source, self._inbox.put) for source in sources}
        self._on_stopping = on_stopping
        self._on_claimed = on_claimed
        """Told how many claims are left, if they are counted."""
        self._turning = threading.Lock()
        self._has_told = False
        self._running = 0
        """Leases that have not come back from their handlers."""
        self._claimed: list[Claim] = []
        """Those of them that nothing has been done with yet, all from one queue."""
        self._claimed_from: Source | None = None
        # Who counts claims has to know of the last ones first.
        self._overlaps = is_ahead and self._claims_left is None
        self._put_off: list[Held | Source | Stop] = []
        """What has come while a turn was under way, and is to be taken in after it."""
        self._turned_at = 0.0
        """When the last turn was answered, monotonic."""
        self._suspect: Held | None = None
        """Claimed, and handled with nothing beside it until it is settled: Held.is_suspect."""
        self._suspect_waits_until = 0.0
        self._has_begun_suspect = self._has_ended_suspect = False
        self.stop_reason = ""
        """Why no more messages are claimed; empty while they are."""
        self.processed = 0
        self.failed = 0

    def stop(self, reason: str) -> None:
        """Claim nothing more; `run` returns when the running handlers are settled.

        May be called from any thread and from a signal handler.
        """
        self.stop_reason = self.stop_reason or reason
        self._inbox.put(Stop.NOW)

    def close(self, seconds: float) -> None:
        """Let no turn begin any more; wait so long, at most, for one in flight.

        For a thread that ends the process: the pump stands still from now on.
        """
        self._turning.acquire(timeout=seconds)

    def handle(self) -> None:
        """Lend the pump this thread for its handlers until `run` is over."""
        self._pool.serve()

    def run(self) -> None:
        """Pump until stopped and drained; somebody has to call `handle` meanwhile."""
        try:
            self._run()
        finally:
            self._pool.close()

    def _run(self) -> None:
        for listener in self._listeners.values():
            listener.start()
        while True:
            self._collect()
            self._check_limits()
            if self.stop_reason and not self._has_told:
                self._has_told = True
                self._on_stopping(self.stop_reason)
                self._spare_suspect(0)
            if self.stop_reason and not self._running and not self._unsettled():
                return
            self._tend_suspect()
            if not (self._turn_all() or self._accept_claimed()):
                self._wait()

    def _turn_all(self) -> bool:
        """Give each queue a turn that has something to settle or to claim; say if one had."""
        turned = False
        now = time.monotonic()
        if now < self._turn_due():
            return False
        # Whoever was served first last time is served last this time.
        self._sources.append(self._sources.pop(0))
        for source in self._sources:
            want = self._want() if source.next_due <= now else 0
            # A hint that comes while all hands are full is passed on by a turn without claims.
            if source.is_away or source.paused_until > now:
                continue
            if not (want or source.finished or source.is_hinted):
                continue
            if self._claimed_from is not source:
                self._accept_claimed()  # another server may keep this thread waiting
            # Something to settle takes a turn anyway: claim with it what may have come.
            with self._turning:
                end = source.begin_turn(
                    self._want(), most=self._claims_left, is_stopping=self._is_stopping
                )
                if self._overlaps:
                    self._accept_claimed()
                    self._await_hands()
                claimed = end()
            put_off, self._put_off = self._put_off, []
            for event in put_off:
                self._take(event)
            self._turned_at = time.monotonic()
            self._running += len(claimed)
            self._claimed += claimed
            self._claimed_from = source
            if not self._overlaps:
                self._accept_claimed()
            if source.is_away:
                Recovery(source, self._inbox.put).start()
            turned = True
        return turned

    def _turn_due(self) -> float:
        """Return when a turn is worth making: while many wait in line, what ends may wait for
        more that ends, to be settled together."""
        if self._line is None or not self._line.is_long or self.stop_reason:
            return 0.0
        return self._turned_at + AHEAD_SECONDS

    def _await_hands(self) -> None:
        """Take in what ends while the server is at a turn: its answer is not needed before
        some hand has nothing to do."""
        until = time.monotonic() + AHEAD_SECONDS
        while self._line and not self._line.is_empty and (left := until - time.monotonic()) > 0:
            self._collect(left, is_turning=True)

    def _want(self) -> int:
        if self.stop_reason or self._suspect:
            return 0
        hands = self._concurrency + (self._line.spare if self._line else 0)
        # Half of them at a time: the server is at one half while the hands are at the other.
        most = max(self._concurrency, (hands + 1) // 2)
        free = max(0, min(hands - self._running, most, calls.MAX_LEASES_PER_CALL))
        return free if self._claims_left is None else min(free, self._claims_left)

    def _is_stopping(self) -> bool:
        return bool(self.stop_reason)

    def _accept_claimed(self) -> bool:
        """Begin with what has been claimed: at the latest while the next turn is under way, so
        that neither the server waits for that nor the other way round. Say if there was any."""
        claimed, self._claimed = self._claimed, []
        for claim in claimed:
            self._accept(claim())
        return bool(claimed)

    def _accept(self, held: Held) -> None:
        if self._claims_left is not None:
            self._claims_left -= 1 + len(held.lease.rest)
            self._on_claimed(self._claims_left)
        self._keeper.hold(held)
        if time.monotonic() >= held.lasts_until:
            # The reply came after the lease's end: somebody else may have the group by now.
            held.settlement = Settlement.release(held.lease)
        if held.settlement is not None or not prepare(held):
            self._inbox.put(held)
        elif not held.is_suspect:
            if self._line:
                self._line.add(held)
                self._pool.call_next()
            else:
                self._pool.start(held)
        elif self._suspect is None:
            self._suspect = held
            self._has_begun_suspect = self._has_ended_suspect = False
            self._suspect_waits_until = time.monotonic() + SUSPECT_PATIENCE_SECONDS
            if self._running > 1 and not self._source_of(held).recount(held, is_begun=False):
                self._spare_suspect(SUSPECT_PARKED_SECONDS)
        else:
            # Not to be beside the first one even while it waits.
            held.settlement = Settlement.release(held.lease, SUSPECT_PAUSE_SECONDS)
            self._inbox.put(held)

    def _handle_next(self) -> int:
        """Handle whoever is next in line, in the thread that calls; return how many have been
        taken from the line by then, 0 if nobody is there."""
        line = self._line
        held = line.take() if line else None
        if line is None or held is None:
            return 0
        number = line.taken
        if not line.is_empty:
            self._pool.call_next()
        if self.stop_reason or held.is_lost or time.monotonic() >= held.lasts_until:
            held.settlement = Settlement.release(held.lease)
            self._inbox.put(held)
        else:
            begun_at = line.begun()
            self._pool.run(held)
            line.ended(begun_at)
        return number

    def _hand_back(self, waiting: Sequence[Held]) -> None:
        """Release leases that wait behind a slow handler; called by the line's own thread."""
        for source in list(self._sources):
            if of_source := [held for held in waiting if held.queue is source.config]:
                source.hand_back(of_source)
        for held in waiting:
            self._inbox.put(held)

    def _tend_suspect(self) -> None:
        """Begin the suspect once nothing is beside it; go on once it is settled."""
        suspect = self._suspect
        if suspect is None:
            return
        if self._has_ended_suspect:
            if not self._awaits_answer(suspect):
                self._suspect = None
        elif self._running == 1 and not self._has_begun_suspect and not self._unsettled():
            if suspect.is_counted or self._source_of(suspect).recount(suspect, is_begun=True):
                self._has_begun_suspect = True
                self._pool.start(suspect)
            else:
                self._spare_suspect(SUSPECT_PARKED_SECONDS)
        elif time.monotonic() >= self._suspect_waits_until:
            self._spare_suspect(SUSPECT_PARKED_SECONDS)

    def _spare_suspect(self, parked_seconds: float) -> None:
        """Hand the suspect back if it has not begun: something else has to end first."""
        if self._suspect is not None and not self._has_begun_suspect:
            self._has_begun_suspect = True
            if not self._suspect.is_counted:  # as a release takes the delivery back itself
                self._source_of(self._suspect).recount(self._suspect, is_begun=True)
            self._suspect.settlement = Settlement.release(self._suspect.lease, parked_seconds)
            self._inbox.put(self._suspect)

    def _source_of(self, held: Held) -> Source:
        return next(source for source in self._sources if source.config is held.queue)

    def _collect(self, timeout: float | None = 0, *, is_turning: bool = False) -> None:
        """Take in everything that has happened, waiting for the first event if asked.

        While a turn is under way, only what has been handled: the answer knows nothing of
        what was published meanwhile, and must not make the pump forget that it was told.
        """
        try:
            event = self._inbox.get(block=timeout != 0, timeout=timeout or None)
            while True:
                if is_turning and (self._burst or not isinstance(event, Held)):
                    self._put_off.append(event)
                else:
                    self._take(event)
                event = self._inbox.get_nowait()
        except Empty:
            return

    def _take(self, event: Held | Source | Stop) -> None:
        if isinstance(event, Source):
            event.next_due = 0.0
            event.is_hinted = True
        elif isinstance(event, Held) and event.is_handed_back:
            self._running -= 1
            self._unclaim(event, 0)
        elif isinstance(event, Held):
            self._running -= 1
            self._has_ended_suspect = self._has_ended_suspect or event is self._suspect
            if event.settlement is None:
                # Handling broke off in an unforeseen way; the log says how.
                event.settlement = Settlement.retry(
                    event.lease, 1.0, "handling broke off", done=event.done
                )
            self.processed += event.settlement.done
            self.failed += event.settlement.outcome in FAILURES
            self._unclaim(
                event, max(1, event.settlement.done + (event.settlement.outcome != "ack"))
            )
            for source in self._sources:
                if source.config is event.queue:
                    source.finished.append(event)
                elif self._burst:
                    # Its handler may have published there.
                    source.is_exhausted, source.next_due = False, 0.0

    def _unclaim(self, held: Held, begun: int) -> None:
        """Count only what was begun of a lease as one of --max-messages."""
        if self._claims_left is not None:
            self._claims_left += 1 + len(held.lease.rest) - begun
            self._on_claimed(self._claims_left)

    def _wait(self) -> None:
        """Sleep until something happens; listen for hints where messages may come from."""
        now = time.monotonic()
        if (turn_due := self._turn_due()) > now:
            self._collect(turn_due - now)
            return
        wakes = [] if self._ends_at is None else [self._ends_at]
        for source in self._sources:
            if source.is_away:
                continue
            if source.paused_until > now:
                wakes.append(source.paused_until)
            elif self._want() and source.next_due > now:
                wakes.append(source.next_due)
                listener = self._listeners[id(source)]
                if listener.is_waiting:
                    continue
                if not self._running and len(self._sources) == 1 and source.transport.breaks_off:
                    self._listen(source, min(wakes) - now)
                    return
                listener.listen(source.next_due - now)
        self._collect(max(min([now + 1.0, *wakes]) - now, 0.001))

    def _listen(self, source: Source, seconds: float) -> None:
        """Wait for a hint here, as nothing else but a stop is to be expected: by way of another
        thread it would come later."""
        try:
            is_hinted = source.transport.wait_for_hint(seconds, goes_on=self._inbox.empty)
        except GroupQueueError:
            self._collect(PAUSE_AFTER_ERROR_SECONDS)  # the next turn meets the same error
            return
        if is_hinted:
            self._take(source)

    def _check_limits(self) -> None:
        if self.stop_reason:
            return
        idle = not self._running and not self._unsettled()
        if self._ends_at is not None and time.monotonic() >= self._ends_at:
            self.stop_reason = "max_seconds"
        elif self._claims_left == 0 and idle:
            self.stop_reason = "max_messages"
        elif self._burst and idle and all(source.is_exhausted for source in self._sources):
            self.stop_reason = "burst"

    def _awaits_answer(self, held: Held) -> bool:
        """Say whether a settlement is under way to a server that answers."""
        return any(held in source.finished and not source.is_away for source in self._sources)

    def _unsettled(self) -> bool:
        return any(source.finished for source in self._sources)
