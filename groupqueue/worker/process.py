"""What runs in one worker process, from its first claim to its last settlement."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from io import FileIO
from queue import SimpleQueue
from typing import NoReturn

from groupqueue import conf, signals
from groupqueue.core import calls
from groupqueue.exceptions import GroupQueueError
from groupqueue.transport.connections import new_transport
from groupqueue.worker.executor import Held
from groupqueue.worker.exits import EXIT_BROKEN, EXIT_CONFIGURATION, EXIT_OVERDUE
from groupqueue.worker.leases import LeaseKeeper
from groupqueue.worker.logs import configure_logging
from groupqueue.worker.options import ClaimShares, WorkerOptions
from groupqueue.worker.pump import Pump
from groupqueue.worker.sources import Source
from groupqueue.worker.teller import Teller

log = logging.getLogger("groupqueue.worker")

# How long the handlers beside an overdue one may take to finish.
OVERDUE_GRACE_SECONDS = 10.0
SETTLED_CHECK_SECONDS = 0.05
# How long the end waits for the reply of a turn, and for receivers of signals.
LAST_TURN_SECONDS = 1.0
LAST_RECEIVERS_SECONDS = 1.0


def run(options_json: str, orders: FileIO, *, report_to: int) -> int:
    """Work as the options say until told to stop; return the process's exit code."""
    options = WorkerOptions.from_json(options_json)
    configure_logging(options.verbosity)
    try:
        process = WorkerProcess(options, report_to=report_to)
    except GroupQueueError as error:
        log.error("the worker cannot start: %s", error, extra={"action": "start_failed"})
        return EXIT_CONFIGURATION
    return process.run(orders)


class WorkerProcess:
    """What runs in one worker process."""

    def __init__(self, options: WorkerOptions, *, report_to: int) -> None:
        self._options = options
        self._report_to = report_to
        self._host = socket.gethostname()
        self._name = options.name or self._host
        self.worker_id = f"{self._name}:{os.getpid()}:{secrets.token_hex(4)}"
        self._started_at = int(time.time())
        configs = [conf.get_config(queue) for queue in options.queues]
        visibility = {config.name: options.visibility_for(config) for config in configs}
        self._teller = Teller()
        self._keeper = LeaseKeeper(
            self.worker_id,
            {config.name: new_transport(config.name, patient=False) for config in configs},
            visibility,
            retentions={config.name: config.dead_retention for config in configs},
            describe=self._describe,
            on_overdue=self._overdue,
            on_unknown_schema=self._unknown_schema,
            tell=self._teller.tell,
        )
        sources = [
            Source(
                config,
                new_transport(config.name),
                self._keeper,
                worker_id=self.worker_id,
                shares=ClaimShares(options, config),
                visibility_seconds=visibility[config.name],
                batch=options.batch,
            )
            for config in configs
        ]
        self._pump = Pump(
            sources,
            self._keeper,
            options,
            on_stopping=self.drain,
            on_claimed=lambda left: self._report({"claims_left": left}),
            on_loop_ended=self._loop_ended,
        )
        self._exit_code = 0
        self._is_leaving = self._has_stopped = False
        self._begin_leaving = threading.Lock()
        # Taken by whoever ends the process.
        self._last_word = threading.Lock()
        self._orders: SimpleQueue[str] = SimpleQueue()

    def run(self, orders: FileIO) -> int:
        """Work until told to stop; return the exit code."""
        # Only noted there: a signal may come in the middle of anything.
        signal.signal(signal.SIGTERM, lambda *_: self._orders.put("SIGTERM"))
        threading.Thread(target=self._listen, args=(orders,), daemon=True).start()
        threading.Thread(target=self._obey, name="groupqueue-orders", daemon=True).start()
        self._keeper.beat()
        self._keeper.start()
        queues = self._options.queues
        signals.send(signals.worker_started, type(self), worker_id=self.worker_id, queues=queues)
        self._report({"started": True})
        pumping = threading.Thread(target=self._pump_messages, name="groupqueue-pump", daemon=True)
        pumping.start()
        with self._breaking_off():
            # Handlers may do here what only the main thread can, above all catch signals.
            self._pump.handle()
        pumping.join()
        with self._last_word:
            self._keeper.stop()
            self._keeper.depart()
            self._tell_stopped()
        return self._exit_code

    def _pump_messages(self) -> None:
        with self._breaking_off():
            self._pump.run()

    @contextlib.contextmanager
    def _breaking_off(self) -> Iterator[None]:
        """Leave on any error: a fault of ours, or SystemExit from a receiver of a signal."""
        try:
            yield
        except BaseException:
            log.exception("the pump broke", extra={"action": "pump_failed"})
            self._break_off("pump failed")

    def drain(self, reason: str, *, seconds: float | None = None) -> None:
        """Claim nothing more and leave when the running handlers are settled.

        What is unfinished after `seconds`, else --shutdown-timeout, is handed back. Only
        the first call counts.
        """
        self._pump.stop(reason)
        with self._begin_leaving:
            if self._is_leaving:
                return
            self._is_leaving = True
            timeout = self._options.shutdown_timeout if seconds is None else seconds
            timer = threading.Timer(timeout, self.hand_back)
            timer.daemon = True
            timer.start()
            # The lease keeper drains as well, and must not wait for receivers.
            self._teller.tell(
                signals.worker_stopping,
                type(self),
                worker_id=self.worker_id,
                queues=self._options.queues,
                reason=reason,
            )

    def hand_back(self) -> NoReturn:
        """Release every lease, uncounted and at the head of its group, and leave at once."""
        self._last_word.acquire()
        try:
            self._pump.close(LAST_TURN_SECONDS)
            self._teller.finish(LAST_RECEIVERS_SECONDS)
            self._keeper.stop()
            self._keeper.depart()
            # Last before the end: from here on others may handle the same messages.
            handed_back = self._keeper.hand_back()
            log.warning(
                "left at once; %s handed back",
                "1 lease was" if handed_back == 1 else f"{handed_back} leases were",
                extra={"action": "handed_back", "leases": handed_back},
            )
            self._tell_stopped()
            logging.shutdown()
        except BaseException:
            log.exception("handing back broke off", extra={"action": "hand_back_failed"})
        finally:
            # Handlers may still be running: nothing but this ends their threads.
            os._exit(self._exit_code)

    def _loop_ended(self) -> NoReturn:
        """A handler has ended the event loop, nobody knows which: for all that ran on it this
        is a crash, as their leases run out."""
        self._keeper.let_run_out(lambda held: held.handler is not None and held.handler.is_async)
        self._break_off("event loop ended")

    def _break_off(self, reason: str) -> NoReturn:
        """Leave because messages cannot be handled any more: others take over at once what
        this process holds, and another process its place."""
        self._exit_code = self._exit_code or EXIT_BROKEN
        self.drain(reason)
        self.hand_back()

    def _tell_stopped(self) -> None:
        if self._has_stopped:
            return
        self._has_stopped = True
        queues = self._options.queues
        self._teller.tell(
            signals.worker_stopped, type(self), worker_id=self.worker_id, queues=queues
        )
        self._teller.finish(LAST_RECEIVERS_SECONDS)
        self._report(
            {
                "processed": self._pump.processed,
                "failed": self._pump.failed,
                "reason": self._pump.stop_reason,
            }
        )

    def _listen(self, orders: FileIO) -> None:
        """Take in the supervisor's orders; when it is gone, that is one too."""
        for order in orders:
            self._orders.put(order.decode().strip())
        self._orders.put("supervisor gone")

    def _obey(self) -> None:
        """Drain on the first order, whatever it says; hand back on "stop" or a second SIGTERM."""
        signals_seen = 0
        while True:
            order = self._orders.get()
            signals_seen += order == "SIGTERM"
            if order == "stop" or signals_seen > 1:
                self.hand_back()
            self.drain("asked to" if order == "drain" else order)

    def _overdue(self, held: Held) -> None:
        """A handler has run out of time. No thread can be ended from outside, so its
        process goes: the others finish, this message counts a crash."""
        self._keeper.let_go(held)
        seconds = 0.0 if held.started_at is None else time.monotonic() - held.started_at
        log.error(
            "a handler ran out of time; its process drains and is replaced",
            extra={
                "action": "handler_overdue",
                "group": held.lease.group,
                "topic": held.handler.topic if held.handler else "",
            },
        )
        self._teller.tell(
            signals.message_failed,
            held.handler,
            delivery=held.delivery,
            error=TimeoutError(f"the handler ran out of time after {seconds:.1f} seconds"),
            duration_seconds=seconds,
            # Its lease is not renewed any more: then it is somebody else's turn.
            retry_seconds=max(0.0, held.lasts_until - time.monotonic()),
        )
        if not self._exit_code:
            self._exit_code = EXIT_OVERDUE
            self.drain("handler overdue", seconds=OVERDUE_GRACE_SECONDS)
            threading.Thread(target=self._leave_when_settled, daemon=True).start()

    def _leave_when_settled(self) -> None:
        """End the process once only overdue handlers are left: nobody waits for those."""
        time.sleep(SETTLED_CHECK_SECONDS)
        while not self._keeper.is_idle:
            time.sleep(SETTLED_CHECK_SECONDS)
        self.hand_back()

    def _unknown_schema(self, schema: int | str) -> None:
        """Newer workers have changed the layout of the keys, or somebody has written what is none
        there: this one must not touch them."""
        log.error(
            "the queue's keys have schema %r, this version knows %s: upgrade groupqueue, or, if no"
            " version wrote that, put the field schema of the queue's key meta right",
            schema,
            calls.SCHEMA_VERSION,
            extra={"action": "newer_schema"},
        )
        self._exit_code = EXIT_CONFIGURATION
        self._pump.stop("newer schema")

    def _describe(self) -> dict[str, str | int]:
        return {
            "host": self._host,
            "pid": os.getpid(),
            "name": self._name,
            "queues": ",".join(self._options.queues),
            "concurrency": self._options.concurrency,
            "started_at": self._started_at,
            "state": self._pump.stop_reason or "working",
            "processed": self._pump.processed,
            "failed": self._pump.failed,
        }

    def _report(self, facts: dict[str, object]) -> None:
        """Leave a line in the supervisor's pipe."""
        # The supervisor may be gone, and nobody else wants to know.
        with contextlib.suppress(OSError):
            os.write(self._report_to, (json.dumps(facts) + "\n").encode())
