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
from io import FileIO
from typing import NoReturn

from groupqueue import conf, signals
from groupqueue.core import calls
from groupqueue.exceptions import GroupQueueError
from groupqueue.transport.connections import new_transport
from groupqueue.worker.executor import Held
from groupqueue.worker.exits import EXIT_CONFIGURATION, EXIT_OVERDUE
from groupqueue.worker.leases import LeaseKeeper
from groupqueue.worker.logs import configure_logging
from groupqueue.worker.options import ClaimShares, WorkerOptions
from groupqueue.worker.pump import Pump
from groupqueue.worker.sources import Source

log = logging.getLogger("groupqueue.worker")

# How long the handlers beside an overdue one may take to finish.
OVERDUE_GRACE_SECONDS = 10.0


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
        self.worker_id = f"{self._name}:{os.getpid()}:{secrets.token_hex(2)}"
        self._started_at = int(time.time())
        configs = [conf.get_config(queue) for queue in options.queues]
        visibility = {config.name: options.visibility_for(config) for config in configs}
        self._keeper = LeaseKeeper(
            self.worker_id,
            {config.name: new_transport(config.name, patient=False) for config in configs},
            visibility,
            describe=self._describe,
            on_overdue=self._overdue,
            on_newer_schema=self._newer_schema,
        )
        sources = [
            Source(
                config,
                new_transport(config.name),
                self._keeper,
                worker_id=self.worker_id,
                shares=ClaimShares(options, config),
                visibility_seconds=visibility[config.name],
            )
            for config in configs
        ]
        self._pump = Pump(sources, self._keeper, options, on_stopping=self._stopping)
        self._signals_seen = 0
        self._is_leaving = False
        self._exit_code = 0

    def run(self, orders: FileIO) -> int:
        """Work until told to stop; return the exit code."""
        signal.signal(signal.SIGTERM, self._on_signal)
        threading.Thread(
            target=self._follow, args=(orders,), name="groupqueue-orders", daemon=True
        ).start()
        self._keeper.beat()
        self._keeper.start()
        queues = self._options.queues
        signals.send(signals.worker_started, type(self), worker_id=self.worker_id, queues=queues)
        try:
            self._pump.run()
        except Exception:
            # A fault of ours: others take over at once what this process holds.
            log.exception("the pump broke", extra={"action": "pump_failed"})
            self._exit_code = 1
            self.hand_back()
        self._keeper.stop()
        self._keeper.depart()
        signals.send(signals.worker_stopped, type(self), worker_id=self.worker_id, queues=queues)
        self._report()
        return self._exit_code

    def drain(self, reason: str) -> None:
        """Claim nothing more and leave when the running handlers are settled."""
        self._leave_after(self._options.shutdown_timeout)
        self._pump.stop(reason)

    def hand_back(self) -> NoReturn:
        """Release every lease, uncounted and at the head of its group, and leave at once."""
        handed_back = self._keeper.hand_back()
        self._keeper.depart()
        log.warning(
            "left with handlers running; their messages were handed back",
            extra={"action": "handed_back", "leases": handed_back},
        )
        self._leave(self._exit_code)

    def _stopping(self, reason: str) -> None:
        signals.send(
            signals.worker_stopping,
            type(self),
            worker_id=self.worker_id,
            queues=self._options.queues,
            reason=reason,
        )
        self._leave_after(self._options.shutdown_timeout)

    def _leave(self, code: int) -> NoReturn:
        self._report()
        logging.shutdown()
        # Handlers may still be running: nothing but this ends their threads.
        os._exit(code)

    def _leave_after(self, seconds: float) -> None:
        """Hand back what is unfinished by then; the first call sets the time."""
        if self._is_leaving:
            return
        self._is_leaving = True
        timer = threading.Timer(seconds, self.hand_back)
        timer.daemon = True
        timer.start()

    def _on_signal(self, *_: object) -> None:
        # Handing back takes a while and locks: not the work of a signal handler.
        self._signals_seen += 1
        if self._signals_seen == 1:
            self._pump.stop("SIGTERM")
        leave = threading.Thread(
            target=self._leave_after if self._signals_seen == 1 else self.hand_back,
            args=(self._options.shutdown_timeout,) if self._signals_seen == 1 else (),
            daemon=True,
        )
        leave.start()

    def _follow(self, orders: FileIO) -> None:
        """Carry out the supervisor's orders; when it is gone, finish and leave."""
        for order in orders:
            if order.strip() == b"stop":
                self.hand_back()
            self.drain("asked to")
        self.drain("supervisor gone")

    def _overdue(self, held: Held) -> None:
        """A handler has run out of time. No thread can be ended from outside, so its
        process goes: the others finish, this message counts a crash."""
        if self._exit_code:
            return
        self._exit_code = EXIT_OVERDUE
        self._keeper.let_go(held)
        log.error(
            "a handler ran out of time; its process drains and is replaced",
            extra={
                "action": "handler_overdue",
                "group": held.lease.group,
                "topic": held.handler.topic if held.handler else "",
            },
        )
        self._pump.stop("handler overdue")
        self._leave_after(OVERDUE_GRACE_SECONDS)

    def _newer_schema(self, schema: int) -> None:
        """Newer workers have changed the layout of the keys: this one must not touch them."""
        log.error(
            "the queue's keys have schema %s, this version knows %s; upgrade groupqueue",
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

    def _report(self) -> None:
        """Leave the closing figures in the supervisor's pipe."""
        figures = {
            "processed": self._pump.processed,
            "failed": self._pump.failed,
            "reason": self._pump.stop_reason,
        }
        # The supervisor may be gone, and nobody else wants to know.
        with contextlib.suppress(OSError):
            os.write(self._report_to, (json.dumps(figures) + "\n").encode())
