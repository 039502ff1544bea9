"""`run_group_workers`: handle the messages of one or more queues."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper

from groupqueue import conf
from groupqueue.core.calls import MAX_BATCH
from groupqueue.core.values import LONGEST_SECONDS
from groupqueue.exceptions import GroupQueueError
from groupqueue.management.arguments import refuse_lost_values
from groupqueue.worker import reloading
from groupqueue.worker.logs import configure_logging
from groupqueue.worker.options import ClaimShares, WorkerOptions
from groupqueue.worker.startup import UnsafeServer, banner, closing_line, server_warnings
from groupqueue.worker.supervisor import Supervisor, on_signals

T = TypeVar("T", int, float)
UNSAFE_HELP = "--unsafe-server runs although the server could lose messages"


class Command(BaseCommand):
    """Run the worker until it is stopped (SIGTERM or Ctrl-C; twice to leave at once)."""

    help = "Handle the messages of one or more queues, each group strictly in order."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options; they win over the settings."""
        parser.add_argument("queues", nargs="*", help="queues to work on; default all")
        parser.add_argument("--processes", type=_count, default=1, help="worker processes (1)")
        parser.add_argument(
            "--concurrency", type=_count, default=1, help="messages at once per process (1)"
        )
        parser.add_argument(
            "--batch",
            type=_batch,
            help="messages of one group taken at once; else as many as handlers declare",
        )
        parser.add_argument(
            "--visibility",
            type=_lease_seconds,
            help="seconds a lease lasts; else VISIBILITY_TIMEOUT",
        )
        parser.add_argument(
            "--min-priority",
            type=_tier,
            default=0,
            help="leave tiers below this one alone (0-4)",
        )
        parser.add_argument(
            "--priority-share",
            type=_share,
            help="share of claims that go to the most urgent tier; else PRIORITY_SHARE",
        )
        parser.add_argument(
            "--high-ratio",
            type=_share,
            help="instead: share of claims for the tiers from --priority-threshold up",
        )
        parser.add_argument(
            "--priority-threshold",
            type=_tier,
            help="the lowest tier that --high-ratio favours",
        )
        parser.add_argument(
            "--burst", action="store_true", help="end when no group is due, instead of waiting"
        )
        parser.add_argument(
            "--max-messages", type=_count, help="end after claiming this many, over all processes"
        )
        parser.add_argument("--max-seconds", type=_seconds, help="end after this time")
        parser.add_argument(
            "--shutdown-timeout",
            type=_seconds,
            default=30.0,
            help="seconds for running handlers to finish when stopping; then their messages are "
            "handed back (default 30)",
        )
        parser.add_argument(
            "--reload", action="store_true", help="restart when code changes; for development"
        )
        parser.add_argument(
            "--name", type=_name, default="", help="the worker's name in the registry"
        )
        parser.add_argument(
            "--unsafe-server",
            action="store_true",
            help=UNSAFE_HELP,
        )

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Leave on a signal from now on; `handle` does so in good order.

        Process 1 of a container ignores SIGTERM while nothing handles it, and the checks
        before the start take their time.
        """
        with on_signals(lambda *_: sys.exit(0)):
            return super().execute(*args, **options)

    def handle(self, **values: Any) -> None:
        """Run the supervisor; with --reload, again and again."""
        refuse_lost_values(values)
        try:
            options = _options(values)
        except GroupQueueError as error:
            raise CommandError(str(error)) from error
        self._run(options, is_reloading=values["reload"])

    def _run(self, options: WorkerOptions, *, is_reloading: bool) -> None:
        configure_logging(options.verbosity)
        supervisor = Supervisor(options)
        if is_reloading:
            reloading.watch(supervisor.note_changed_code)
        try:
            for warning in server_warnings(options):
                self._say(options, self.style.WARNING(warning), self.stderr)
            summary = supervisor.run(lambda: self._say(options, banner(options), self.stdout))
        except UnsafeServer as error:
            raise CommandError(f"{error} ({UNSAFE_HELP})") from error
        except GroupQueueError as error:
            raise CommandError(str(error)) from error
        self._say(options, closing_line(summary), self.stdout)
        if summary.gave_up:
            raise CommandError("a worker process died for good; see the log")
        if summary.is_to_start_anew:
            reloading.start_anew()

    def _say(self, options: WorkerOptions, text: str, to: OutputWrapper) -> None:
        if not options.verbosity:
            return
        try:
            to.write(text)
            to.flush()
        except BrokenPipeError:
            # Nobody reads any more, as behind `| head`. That is no reason to stop working,
            # nor to complain of it at the interpreter's end.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, to.fileno())
            os.close(nowhere)


def _options(values: dict[str, Any]) -> WorkerOptions:
    queues = tuple(dict.fromkeys(values["queues"])) or conf.configured_queues()
    known = WorkerOptions.__dataclass_fields__
    given = {name: value for name, value in values.items() if name in known}
    options = WorkerOptions(**given | {"queues": queues})
    for queue in queues:
        ClaimShares(options, conf.get_config(queue))
    return options


def _number(
    convert: Callable[[str], T], demand: str, low: float, high: float = math.inf
) -> Callable[[str], T]:
    """Return an option's parser, which says what it demands and what it was given."""

    def parse(text: str) -> T:
        try:
            number = convert(text)
        except ValueError:
            number = None
        if number is not None and low <= number <= high:  # NaN fails both
            return number
        raise argparse.ArgumentTypeError(f"{text!r} is not {demand}")

    return parse


def _name(text: str) -> str:
    """Return a name that can be stored, which is text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid UTF-8") from None
    return text


_count = _number(int, "a whole number of 1 or more", 1)
_batch = _number(int, f"a whole number from 1 to {MAX_BATCH}", 1, MAX_BATCH)
_seconds = _number(float, "a number of seconds from 0.001 up", 0.001, 10**9)
_lease_seconds = _number(
    float, f"a number of seconds from 0.001 to {LONGEST_SECONDS}", 0.001, LONGEST_SECONDS
)
_share = _number(float, "a share from 0 to 1", 0, 1)
_tier = _number(int, "a tier from 0 to 4", 0, 4)
