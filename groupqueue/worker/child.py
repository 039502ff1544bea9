"""One worker process; the supervisor runs this file as a program.

Its standard input is the line to the supervisor: first the options, then "drain" or
"stop"; its end means that the supervisor is gone. It starts clean: nothing is
connected before this module runs.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from io import FileIO
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from groupqueue.worker.executor import Held
    from groupqueue.worker.options import WorkerOptions
    from groupqueue.worker.pump import Pump

log = logging.getLogger("groupqueue.worker")

EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h: starting again would not help
EXIT_OVERDUE = 75  # EX_TEMPFAIL: a handler ran out of time; a new process takes over
EXIT_HANDED_BACK = 0
# How long the handlers beside an overdue one may take to finish.
OVERDUE_GRACE_SECONDS = 10.0


def main() -> int:
    """Set Django up and work; return the process's exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches us through the supervisor
    orders = _take_standard_input()
    start = json.loads(orders.readline())
    sys.path[:] = start["path"]
    os.set_inheritable(start["report_to"], False)

    import django

    django.setup()
    from groupqueue.exceptions import GroupQueueError
    from groupqueue.worker.logs import configure_logging
    from groupqueue.worker.options import WorkerOptions

    options = WorkerOptions.from_json(start["options"])
    configure_logging(options.verbosity)
    try:
        child = Child(options, report_to=start["report_to"])
    except GroupQueueError as error:
        log.error("the worker cannot start: %s", error, extra={"action": "start_failed"})
        return EXIT_CONFIGURATION
    return child.run(orders)


def _take_standard_input() -> FileIO:
    """Return the line to the supervisor; handlers that read find their input empty.

    Unbuffered: a buffer's lock, held by a waiting thread, breaks the interpreter's end.
    """
    orders = open(os.dup(0), "rb", buffering=0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return orders


class Child:
    """What runs in one worker process."""

    def __init__(self, options: WorkerOptions, *, report_to: int) -> None:
        from groupqueue import conf
        from groupqueue.transport.connections import new_transport
        from groupqueue.worker.leases import LeaseKeeper
        from groupqueue.worker.options import ClaimShares
        from groupqueue.worker.pump import Pump
        from groupqueue.worker.sources import Source

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
        )
        sources = [
            Source(
                config,
                new_transport(config.name),
                self.worker_id,
                self._keeper,
                ClaimShares(options, config),
                visibility[config.name],
            )
            for config in configs
        ]
        self._pump: Pump = Pump(sources, self._keeper, options, on_stopping=self._stopping)
        self._signals_seen = 0
        self._is_leaving = False
        self._exit_code = 0

    def run(self, orders: FileIO) -> int:
        """Work until told to stop; return the exit code."""
        from groupqueue import signals

        signal.signal(signal.SIGTERM, self._on_signal)
        threading.Thread(
            target=self._follow, args=(orders,), name="groupqueue-orders", daemon=True
        ).start()
        self._keeper.beat()
        self._keeper.start()
        queues = self._options.queues
        signals.send(
            signals.worker_started, type(self), worker_id=self.worker_id, queues=queues
        )
        self._pump.run()
        self._keeper.stop()
        self._keeper.depart()
        signals.send(
            signals.worker_stopped, type(self), worker_id=self.worker_id, queues=queues
        )
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
        self._leave(self._exit_code or EXIT_HANDED_BACK)

    def _stopping(self, reason: str) -> None:
        from groupqueue import signals

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
        target = self.drain if self._signals_seen == 1 else self.hand_back
        arguments = ("SIGTERM",) if self._signals_seen == 1 else ()
        threading.Thread(target=target, args=arguments, daemon=True).start()

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


if __name__ == "__main__":
    sys.exit(main())
