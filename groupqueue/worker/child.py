"""How one worker process begins; the supervisor runs this file as a program.

Its standard input is the line to the supervisor: first the options, then "drain" or
"stop"; its end means that the supervisor is gone. It starts clean: nothing of the
project is imported, and nothing connected, before the supervisor's paths are known.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from io import FileIO


def main() -> int:
    """Set Django up and work; return the process's exit code."""
    # Ctrl-C reaches us through the supervisor, which has held it back until now. Not
    # SIG_IGN: programs that handlers start would inherit it, and nobody could stop them.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.register_at_fork(after_in_child=end_on_signals)
    orders = take_standard_input()
    start = json.loads(orders.readline())
    sys.path[:] = start["path"]
    os.set_inheritable(start["report_to"], False)

    # Only now is it known from where.
    import django  # noqa: PLC0415
    from django.core.exceptions import ImproperlyConfigured  # noqa: PLC0415

    from groupqueue.exceptions import ConfigurationError  # noqa: PLC0415
    from groupqueue.worker.exits import EXIT_CONFIGURATION  # noqa: PLC0415

    try:
        django.setup()
    except (ImproperlyConfigured, ConfigurationError):
        traceback.print_exc()
        return EXIT_CONFIGURATION
    from groupqueue.worker.process import run  # noqa: PLC0415

    return run(start["options"], orders, report_to=start["report_to"])


def end_on_signals() -> None:
    """Let signals do what they usually do: nobody drains what a handler has forked."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def take_standard_input() -> FileIO:
    """Return the line to the supervisor; handlers that read find their input empty.

    Unbuffered: a buffer's lock, held by a waiting thread, breaks the interpreter's end.
    """
    orders = open(os.dup(0), "rb", buffering=0)  # noqa: SIM115 - open as long as the process
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return orders


if __name__ == "__main__":
    sys.exit(main())
