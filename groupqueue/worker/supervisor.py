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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from groupqueue.worker import child
from groupqueue.worker.exits import EXIT_CONFIGURATION, EXIT_OVERDUE, FINISHED
from groupqueue.worker.options import WorkerOptions

log = logging.getLogger("groupqueue.worker")

# A process that lives this long has started well; its next death begins a new count.
HEALTHY_SECONDS = 10.0
# A process that dies before it could claim anything will hardly ever start.
FAILED_STARTS_TOLERATED = 5
FIRST_RESTART_SECONDS, LONGEST_RESTART_SECONDS = 0.1, 10.0
# What a child needs beyond --shutdown-timeout to hand its leases back.
LEAVING_SECONDS = 10.0
MOST_REPORT_BYTES = 65536


@dataclass(slots=True)
class Summary:
    """What the worker did, over all its processes."""

    processed: int = 0
    failed: int = 0
    restarts: int = 0
    seconds: float = 0.0
    untold: int = 0
    """How many processes ended without telling their figures, which are missing here."""
    gave_up: bool = False
    """Whether a process died for good."""
    is_to_start_anew: bool = False
    """Whether it ended because its code has changed."""


@dataclass(slots=True, eq=False)
class Place:
    """One of the worker's process slots."""

    number: int
    options: WorkerOptions
    process: subprocess.Popen[bytes] | None = None
    report: int | None = None
    """The file descriptor on which the process tells of its start, and its figures."""
    unread: bytes = b""
    """The beginning of a line that has not arrived completely."""
    told: dict[str, Any] = field(default_factory=dict)
    """What the process has reported, the latest of each kind."""
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
        self._has_code_changed = False
        self._began_at = 0.0
        # Signals and dying children write here, so that one wait covers everything.
        self._bell, self._ring = os.pipe()
        os.set_blocking(self._ring, False)
        os.set_blocking(self._bell, False)
        # Made once: later there may be no file descriptor left for it.
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._bell, selectors.EVENT_READ)

    def run(self, announce: Callable[[], None]) -> Summary:
        """Run the processes; return when the last one has left.

        `announce` tells people of the start, once signals are heeded.
        """
        self._began_at = time.monotonic()
        with on_signals(self._note_signal):
            try:
                announce()
                self._heed_signals()
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
        self._summary.seconds = time.monotonic() - self._began_at
        # Who has pressed Ctrl-C meanwhile wants it to end.
        self._summary.is_to_start_anew = self._has_code_changed and not self._signals_seen
        return self._summary

    def note_changed_code(self) -> None:
        """Drain and end, to be started anew; may be called from any thread."""
        self._has_code_changed = True
        self._ring_bell()

    def order(self, order: str) -> None:
        """Tell all processes to "drain" or to "stop" (hand back and leave at once)."""
        self._orders_given.append(order)
        patience = self._options.shutdown_timeout if order == "drain" else 0.0
        self._kill_at = time.monotonic() + patience + LEAVING_SECONDS
        for place in self._places:
            if place.restart_at is not None:
                place.restart_at, place.is_done = None, True
            self._tell(place, order)

    def _note_signal(self, *_: object) -> None:
        # Only noted here: a signal may come in the middle of a write to a child.
        self._signals_seen += 1
        self._ring_bell()

    def _heed_signals(self) -> None:
        """Drain on changed code and the first SIGTERM or SIGINT, hand back on the second."""
        wanted = ("drain", "stop")[: max(self._signals_seen, self._has_code_changed)]
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
        if place.options.max_messages == 0 or self._orders_given:
            place.is_done = True
            return
        try:
            place.process, place.report, report_to = _start_child(self._ring_bell)
        except (OSError, RuntimeError) as error:
            self._start_later(place, error)
            return
        self._selector.register(place.report, selectors.EVENT_READ, place)
        place.told, place.unread = {}, b""
        place.started_at, place.restart_at = time.monotonic(), None
        options = self._with_time_left(place.options)
        start = {"path": sys.path, "options": options.to_json(), "report_to": report_to}
        self._tell(place, json.dumps(start))

    def _start_later(self, place: Place, error: Exception) -> None:
        """The system has no process, thread, memory or file for us: nobody knows how long."""
        place.deaths_in_a_row += 1
        pause = _pause_seconds(place.deaths_in_a_row)
        place.restart_at = time.monotonic() + pause
        log.error(
            "a worker process cannot be started; trying again: %s",
            error,
            extra={"action": "start_failed", "pause_seconds": pause},
        )

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
        for key, _ in self._selector.select(timeout):
            if key.data is not None:
                self._hear(key.data)
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 4096)

    def _hear(self, place: Place) -> None:
        """Take in what a process has reported since."""
        if place.report is None:
            return
        # What others may have inherited of the other end: nobody waits for it.
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(place.report, MOST_REPORT_BYTES):
                *lines, place.unread = (place.unread + chunk).split(b"\n")
                for line in lines:
                    place.told |= json.loads(line)
            # Closed at the other end, it would be ready to be read for ever.
            self._listen_no_more(place.report)

    def _listen_no_more(self, report: int) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(report)

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
        self._close(place)
        place.failed_starts_in_a_row = (
            0 if "started" in place.told else place.failed_starts_in_a_row + 1
        )
        left = place.told.get("claims_left", place.options.max_messages)
        place.options = replace(place.options, max_messages=left)
        has_finished = code == 0 and place.told.get("reason") in FINISHED
        if has_finished or self._orders_given:
            place.is_done = True
        elif left == 0:
            place.is_done = True
            log.error(
                "a worker process died (%s); nothing of its share of --max-messages is left",
                _died_how(place, code),
                extra={"action": "process_not_replaced", "exit_code": code},
            )
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
        pause = _pause_seconds(place.deaths_in_a_row)
        place.restart_at = time.monotonic() + pause
        self._summary.restarts += 1
        log.error(
            "a worker process died (%s); it is replaced",
            _died_how(place, code),
            extra={"action": "process_replaced", "exit_code": code, "pause_seconds": pause},
        )

    def _give_up(self, place: Place, code: int) -> None:
        log.error(
            "a worker process died for good (%s); the worker drains and ends",
            _died_how(place, code),
            extra={"action": "process_given_up", "exit_code": code},
        )
        place.is_done = True
        self._summary.gave_up = True
        if not self._orders_given:
            self.order("drain")

    def _close(self, place: Place) -> None:
        """Let go of a process that has ended, and take in the last of what it told."""
        if place.process is not None and place.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                place.process.stdin.close()
        if place.report is not None:
            self._hear(place)
            self._listen_no_more(place.report)
            os.close(place.report)
        place.process = place.report = None
        self._summary.processed += place.told.get("processed", 0)
        self._summary.failed += place.told.get("failed", 0)
        self._summary.untold += "started" in place.told and "processed" not in place.told

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


@contextlib.contextmanager
def on_signals(react: Callable[..., None]) -> Iterator[None]:
    """Have SIGTERM and SIGINT call `react` meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        yield  # the program around us has the main thread, and the signals
        return
    previous = {number: signal.signal(number, react) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _start_child(on_ended: Callable[[], None]) -> tuple[subprocess.Popen[bytes], int, int]:
    """Start a process; return it, where to read its reports, and where it writes them.

    `on_ended` is called from another thread. Raises OSError or RuntimeError when the
    system cannot have one more process or thread, or has no memory or file for it.
    """
    with contextlib.ExitStack() as undo:
        reading, writing = os.pipe()
        undo.callback(os.close, reading)
        os.set_blocking(reading, False)
        # Ctrl-C goes to all processes: a new one inherits that it waits until it is handled.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process = undo.enter_context(
                subprocess.Popen(
                    [sys.executable, *_interpreter_flags(), child.__file__],
                    stdin=subprocess.PIPE,
                    pass_fds=(writing,),
                )
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(writing)
        undo.callback(process.kill)

        def wait() -> None:
            process.wait()
            on_ended()

        threading.Thread(target=wait, daemon=True).start()
        undo.pop_all()
    return process, reading, writing


def _pause_seconds(deaths_in_a_row: int) -> float:
    return min(FIRST_RESTART_SECONDS * 2.0 ** min(deaths_in_a_row, 60), LONGEST_RESTART_SECONDS)


def _interpreter_flags() -> list[str]:
    """Return the options that this interpreter was started with, for its children."""
    warnings = [f"-W{option}" for option in sys.warnoptions]
    return warnings + [
        f"-X{name}" if value is True else f"-X{name}={value}"
        for name, value in sys._xoptions.items()
    ]


def _died_how(place: Place, code: int) -> str:
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    reason = place.told.get("reason")
    return f"exit code {code}, {reason}" if reason else f"exit code {code}"
