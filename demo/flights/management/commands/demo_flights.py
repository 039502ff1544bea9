"""`demo_flights`: a month of real flights through the queue, checked; ends with a line of JSON."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from demo.flights.fresh import DemoFailed
from demo.flights.month import Month
from demo.flights.programs import interruptible
from demo.flights.progress import Progress
from groupqueue.exceptions import GroupQueueError

INTERRUPTED = 128 + 2  # as shells say that SIGINT ended a program


class Command(BaseCommand):
    """Run the demo; exit code 0 says that all is right."""

    help = "Send a month of flights through the queue, and check that each aircraft's are in order."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--rows", type=_count, help="read only the first rows; all by default")
        parser.add_argument(
            "--patience",
            type=float,
            default=75.0,
            help="give up when nothing is handled for so many seconds (default 75: two leases"
            " may have to run out)",
        )

    def handle(self, *, rows: int | None, patience: float, **_: Any) -> None:
        """Run, write the result, and fail if anything is wrong."""
        progress = Progress(sys.stderr)
        month = Month(progress=progress, patience_seconds=patience, limit=rows)
        try:
            with interruptible():
                month.run()
        except (DemoFailed, GroupQueueError) as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            progress.say("Interrupted; the workers have ended.")
            sys.exit(INTERRUPTED)
        self.stdout.write(json.dumps(asdict(month.result)))
        if month.problems:
            raise CommandError("\n".join(month.problems))


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number
