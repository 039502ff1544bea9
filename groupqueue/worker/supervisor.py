"""How the processes of a worker are started, watched, replaced and stopped."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from groupqueue.worker import child
from groupqueue.worker.exits import EXIT_CONFIGURATION, EXIT_OVERDUE
from groupqueue.worker.options import WorkerOptions

log = logging.getLogger("groupqueue.worker")

# A process that lives this long has started well; its next death begins a new count.
HEALTHY_SECONDS = 10.0
# A process that dies before it could claim anything will hardly ever start.
FAILED_STARTS_TOLERATED = 5
FIRST_RESTART_SECONDS, LONGEST_RESTART_SECONDS = 0.1, 10.0
# What a child needs beyond --shutdown-timeout to hand its leases back.
LEAVING_SECONDS = 10.0
MOST_REPORT_BYTES = 4096


@dataclass(slots=True)
class Summary:
    """What the worker did, over all its processes."""

    processed: int = 0
    failed: int = 0
    restarts: int = 0
    seconds: float = 0.0
    gave_up: bool = False
    """Whether a process died for good."""


@dataclass(slots=True, eq=False)
class Place:
    """One of the worker's process slots."""

    number: int
    options: WorkerOptions
    process: subprocess.Popen[bytes] | None = None
    report: int | None = None
    """The file descriptor on which the process tells of its start, and its figures."""
    started_at: float = 0.0
    deaths_in_a_row: int = 0
    failed_starts_in_a_row: int = 0
    restart_at: float | None = None
    is_done: bool = field(default=False)


class Supervisor:
    """Keeps a worker's processes running until they finish or are told to."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._places = [Place(number, self._share(number)) for number in range(options.processes)]
        self._summary = Summary()
        self._orders_given: list[str] = []
        self._kill_at: float | None = None
        """When processes that were told to leave have had time enough, monotonic."""
        self._signals_seen = 0
        self._began_at = 0.0
        # Signals and dying children write here, so that one wait covers everything.
        self._bell, self._ring = os.pipe()
        os.set_blocking(self._ring, False)
        os.set_blocking(self._bell, False)

    def run(self, announce: Callable[[], None]) -> Summary:
        """Run the processes; return when the last one has left.

        `announce` tells people of the start, once signals are heeded.
        """
        self._began_at = time.monotonic()
        restore = self._install_signals()
        try:
            announce()
            for place in self._places:
                self._start(place)
            while not all(place.is_done for place in self._places):
                self._wait()
                self._heed_signals()
                self._kill_if_late()
                for place in self._places:
                    self._look_after(place)
        finally:
            self._end_all()
            restore()
        self._summary.seconds = time.monotonic() - self._began_at
        return self._summary

    def order(self, order: str) -> None:
        """Tell all processes to "drain" or to "stop" (hand back and leave at once)."""
        self._orders_given.append(order)
        patience = self._options.shutdown_timeout if order == "drain" else 0.0
        self._kill_at = time.monotonic() + patience + LEAVING_SECONDS
        for place in self._places:
            if place.restart_at is not None:
                place.restart_at, place.is_done = None, True
            self._tell(place, order)

    def _heed_signals(self) -> None:
        """Drain on the first SIGTERM or SIGINT, hand back on the second."""
        wanted = ("drain", "stop")[: self._signals_seen]
        for order in wanted:
            if order not in self._orders_given:
                self.order(order)

    def _share(self, number: int) -> WorkerOptions:
        """Return a process's options: --max-messages is shared out among all."""
        total = self._options.max_messages
        if total is None:
            return self._options
        share, rest = divmod(total, self._options.processes)
        return replace(self._options, max_messages=share + (number < rest))

    def _with_time_left(self, options: WorkerOptions) -> WorkerOptions:
        """A process that is replaced does not start the clock of --max-seconds anew."""
        if options.max_seconds is None:
            return options
        left = options.max_seconds - (time.monotonic() - self._began_at)
        return replace(options, max_seconds=max(0.001, left))

    def _start(self, place: Place) -> None:
        if place.options.max_messages == 0:
            place.is_done = True
            return
        reading, writing = os.pipe()
        # Ctrl-C goes to all processes: a new one inherits that it waits until it is ignored.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            place.process = subprocess.Popen(
                [sys.executable, *_interpreter_flags(), child.__file__],
                stdin=subprocess.PIPE,
                pass_fds=(writing,),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(writing)
        # Whoever else may have inherited the other end: nobody waits for it.
        os.set_blocking(reading, False)
        place.report = reading
        place.started_at, place.restart_at = time.monotonic(), None
        options = self._with_time_left(place.options)
        start = {"path": sys.path, "options": options.to_json(), "report_to": writing}
        self._tell(place, json.dumps(start))
        for order in self._orders_given:
            self._tell(place, order)
        threading.Thread(target=self._ring_at_end, args=(place.process,), daemon=True).start()

    def _ring_at_end(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._ring_bell()

    def _ring_bell(self) -> None:
        # A full pipe rings already.
        with contextlib.suppress(BlockingIOError):
            os.write(self._ring, b".")

    def _tell(self, place: Place, line: str) -> None:
        process = place.process
        if process is None or process.stdin is None or process.poll() is not None:
            return
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()

    def _wait(self) -> None:
        moments = [place.restart_at for place in self._places] + [self._kill_at]
        nearest = min((moment for moment in moments if moment is not None), default=None)
        timeout = None if nearest is None else max(0.0, nearest - time.monotonic())
        with selectors.DefaultSelector() as selector:
            selector.register(self._bell, selectors.EVENT_READ)
            selector.select(timeout)
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 4096)

    def _kill_if_late(self) -> None:
        """End processes that cannot leave: stopped, or with a handler that lets nobody run."""
        if self._kill_at is None or time.monotonic() < self._kill_at:
            return
        self._kill_at = None
        for place in self._places:
            if place.process is not None and place.process.poll() is None:
                log.error(
                    "a worker process does not leave; it is killed, and its messages are"
                    " delivered again when their leases end",
                    extra={"action": "process_killed", "pid": place.process.pid},
                )
                place.process.kill()

    def _look_after(self, place: Place) -> None:
        if place.restart_at is not None and time.monotonic() >= place.restart_at:
            self._start(place)
        if place.process is None or place.is_done or place.process.poll() is None:
            return
        code = place.process.returncode
        if self._close(place):
            place.failed_starts_in_a_row = 0
        else:
            place.failed_starts_in_a_row += 1
        if code == 0 or self._orders_given:
            place.is_done = True
        elif code == EXIT_CONFIGURATION:
            self._give_up(place, code)
        else:
            self._replace(place, code)

    def _replace(self, place: Place, code: int) -> None:
        lived_seconds = time.monotonic() - place.started_at
        if lived_seconds >= HEALTHY_SECONDS or code == EXIT_OVERDUE:
            place.deaths_in_a_row = 0
        place.deaths_in_a_row += 1
        if place.failed_starts_in_a_row > FAILED_STARTS_TOLERATED:
            self._give_up(place, code)
            return
        pause = min(
            FIRST_RESTART_SECONDS * 2.0 ** min(place.deaths_in_a_row, 60), LONGEST_RESTART_SECONDS
        )
        place.restart_at = time.monotonic() + pause
        self._summary.restarts += 1
        log.error(
            "a worker process died (%s); it is replaced",
            _died_how(code),
            extra={"action": "process_replaced", "exit_code": code, "pause_seconds": pause},
        )

    def _give_up(self, place: Place, code: int) -> None:
        log.error(
            "a worker process died for good (%s); the worker drains and ends",
            _died_how(code),
            extra={"action": "process_given_up", "exit_code": code},
        )
        place.is_done = True
        self._summary.gave_up = True
        if not self._orders_given:
            self.order("drain")

    def _close(self, place: Place) -> bool:
        """Read what a process that has ended told of itself; say whether it had started."""
        process, report = place.process, place.report
        if process is not None and process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        if report is None:
            return False
        told: dict[str, Any] = {}
        with os.fdopen(report, "rb", buffering=0) as pipe:
            for line in (pipe.read(MOST_REPORT_BYTES) or b"").splitlines():
                told |= json.loads(line)
        place.process = place.report = None
        self._summary.processed += told.get("processed", 0)
        self._summary.failed += told.get("failed", 0)
        return "started" in told

    def _end_all(self) -> None:
        """Leave no process behind, whatever ended the supervisor."""
        deadline = time.monotonic() + self._options.shutdown_timeout + LEAVING_SECONDS
        for place in self._places:
            if place.process is None:
                continue
            self._tell(place, "drain")
            try:
                place.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                place.process.kill()
                place.process.wait()
            self._close(place)

    def _install_signals(self) -> Callable[[], None]:
        """Have signals noted; return what puts the former handlers back."""
        if threading.current_thread() is not threading.main_thread():
            return lambda: None  # under --reload, the autoreloader has the main thread

        def on_signal(*_: object) -> None:
            # Only noted here: a signal may come in the middle of a write to a child.
            self._signals_seen += 1
            self._ring_bell()

        previous = {
            number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)
        }

        def restore() -> None:
            for number, handler in previous.items():
                signal.signal(number, handler)

        return restore


def _interpreter_flags() -> list[str]:
    """Return the options that this interpreter was started with, for its children."""
    warnings = [f"-W{option}" for option in sys.warnoptions]
    return warnings + [
        f"-X{name}" if value is True else f"-X{name}={value}"
        for name, value in sys._xoptions.items()
    ]


def _died_how(code: int) -> str:
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"
