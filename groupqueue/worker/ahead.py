"""Which messages may be claimed before a hand is free for them, and for how long may they wait?

A turn per message costs more than a quick handler does, and while it is under way the hands are
idle. So a worker whose handlers have been quick claims the next few groups together; each message
keeps a lease and a settlement of its own. Should all hands be busy for long, what waits for one is
handed back, uncounted, by a thread that does not wait for them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from groupqueue.worker.executor import Held

# What waits should be handled within this time, as far as one can tell from the handlers so far.
AHEAD_SECONDS = 0.01
MOST_AHEAD = 63
# So long may handlers hold up what waits for a hand.
PATIENCE_SECONDS = 0.05


class Line:
    """Leases that wait for one of so many hands, in the order of their claims."""

    def __init__(self, hand_back: Callable[[Sequence[Held]], None], *, hands: int = 1) -> None:
        """`hand_back` is called from a thread of the line's own."""
        self._hand_back = hand_back
        self._hands = hands
        self._waiting: deque[Held] = deque()
        self._has_any = threading.Event()
        self._watcher: threading.Thread | None = None
        self._noting = threading.Lock()
        self._busy = 0
        self._begun_at = 0.0
        """When a hand was last put to work."""
        self.taken = 0
        """How many hands have taken so far."""
        self._pace_seconds = float("inf")
        """About how long a lease has taken of late; one that took long counts at once."""

    @property
    def spare(self) -> int:
        """How many leases more than there are hands may be claimed now."""
        if self._pace_seconds > AHEAD_SECONDS:
            return 0
        return min(MOST_AHEAD, self._hands * int(AHEAD_SECONDS / max(self._pace_seconds, 1e-6)))

    @property
    def is_long(self) -> bool:
        """Whether so many wait that the next turn is better made a little later, for more."""
        return len(self._waiting) > self.spare // 2

    @property
    def is_empty(self) -> bool:
        """Whether nobody waits."""
        return not self._waiting

    def add(self, held: Held) -> None:
        """Let a lease wait for its turn."""
        self._waiting.append(held)
        if not self._has_any.is_set():
            self._has_any.set()
            if self._watcher is None:
                self._watcher = threading.Thread(
                    target=self._watch, name="groupqueue-line", daemon=True
                )
                self._watcher.start()

    def take(self) -> Held | None:
        """Return whoever is next, and is nobody else's to hand back from now on."""
        try:
            held = self._waiting.popleft()
        except IndexError:
            return None
        self.taken += 1
        return held

    def begun(self) -> float:
        """Note that one more hand is busy; return the moment, for `ended`."""
        now = time.monotonic()
        with self._noting:
            self._busy += 1
            self._begun_at = now
        return now

    def ended(self, begun_at: float) -> None:
        """Note that a hand is free again."""
        seconds = time.monotonic() - begun_at
        with self._noting:
            self._busy -= 1
            former = min(self._pace_seconds, AHEAD_SECONDS)
            self._pace_seconds = max(seconds / 2, former + (seconds - former) / 5)

    def _watch(self) -> None:
        """Hand back what has waited too long for a hand; look up while any waits."""
        while True:
            self._has_any.wait()
            time.sleep(PATIENCE_SECONDS)
            if self._busy == self._hands and time.monotonic() - self._begun_at >= PATIENCE_SECONDS:
                late = []
                while (held := self.take()) is not None:
                    late.append(held)
                if late:
                    self._hand_back(late)
            if not self._waiting:
                self._has_any.clear()
                if self._waiting:  # somebody came in between
                    self._has_any.set()
