"""How often an operator hears that a queue is out of reach, and that it is back."""

from __future__ import annotations

import logging
import threading
import time

log = logging.getLogger("groupqueue.worker")

REMIND_SECONDS = 30.0


class Outage:
    """Tells of one queue's outages: when one begins, now and then while it lasts, at its end.

    Told of every attempt by whoever makes them; may be used by several threads.
    """

    def __init__(self, queue: str, *, by: str = "") -> None:
        self._queue = queue
        self._by = by and f" by {by}"
        self._began_at: float | None = None
        self._remind_at = 0.0
        self._lock = threading.Lock()

    def failed(self, error: Exception) -> None:
        """Note an attempt that failed."""
        now = time.monotonic()
        with self._lock:
            if self._began_at is None:
                self._began_at = now
            elif now < self._remind_at:
                return
            self._remind_at = now + REMIND_SECONDS
            lasted_seconds = now - self._began_at
        since = f" for {lasted_seconds:.0f} s" if lasted_seconds else ""
        log.warning(
            "queue %r cannot be reached%s%s; trying again: %s",
            self._queue,
            self._by,
            since,
            error,
            extra=self._fields("queue_unreachable", lasted_seconds),
        )

    def answered(self) -> None:
        """Note an attempt that succeeded."""
        if self._began_at is None:  # nearly always, and not worth a lock
            return
        with self._lock:
            if self._began_at is None:
                return
            lasted_seconds = time.monotonic() - self._began_at
            self._began_at = None
        log.info(
            "queue %r is reached again%s after %.1f s",
            self._queue,
            self._by,
            lasted_seconds,
            extra=self._fields("queue_reached_again", lasted_seconds),
        )

    def _fields(self, action: str, lasted_seconds: float) -> dict[str, object]:
        return {
            "action": action,
            "queue": self._queue,
            "outage_seconds": round(lasted_seconds, 1),
        }
