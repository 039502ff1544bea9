"""How a thread that must not be held up tells receivers of what happened."""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue
from typing import Any

from django.dispatch import Signal

from groupqueue import signals
from groupqueue.worker.databases import clean_connections

log = logging.getLogger("groupqueue.worker")


class Teller:
    """Calls the receivers of signals in a thread of its own, in the order of `tell`."""

    def __init__(self) -> None:
        self._untold: SimpleQueue[tuple[Signal, object, dict[str, Any]] | threading.Event] = (
            SimpleQueue()
        )
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def tell(self, signal: Signal, sender: object, **arguments: Any) -> None:
        """Have the receivers called; returns at once."""
        self._untold.put((signal, sender, arguments))
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="groupqueue-signals", daemon=True)
                thread.start()
                self._thread = thread

    def finish(self, seconds: float) -> None:
        """Wait until all of that is told, at most so long: a receiver may hang."""
        if self._thread is None:
            return
        all_told = threading.Event()
        self._untold.put(all_told)
        all_told.wait(seconds)

    def _run(self) -> None:
        while True:
            told = self._untold.get()
            if isinstance(told, threading.Event):
                told.set()
                continue
            signal, sender, arguments = told
            clean_connections()
            try:
                signals.send(signal, sender, **arguments)
            except BaseException:  # such as SystemExit: the next ones are to be told all the same
                log.exception("a receiver broke off", extra={"action": "signal_receiver_failed"})
            clean_connections()
