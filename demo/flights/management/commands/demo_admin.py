"""`demo_admin`: the demo's site with a live queue, to look at in the admin."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from demo.flights.fresh import DemoFailed
from demo.flights.programs import interruptible
from demo.flights.progress import Progress
from demo.flights.site import Site
from groupqueue.exceptions import GroupQueueError


class Command(BaseCommand):
    """Run the site until Ctrl-C."""

    help = "Run the demo's site with a live queue; sign in as admin, password admin."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--port", type=int, default=8000, help="the port, or the next free one (default 8000)"
        )
        parser.add_argument("--seconds", type=float, help="end after so long; else on Ctrl-C")

    def handle(self, *, port: int, seconds: float | None, **_: Any) -> None:
        """Run the site."""
        progress = Progress(sys.stdout)
        try:
            with interruptible():
                Site(progress=progress, port=port, seconds=seconds).run()
        except (DemoFailed, GroupQueueError) as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            progress.say("Interrupted; the site and the workers have ended.")
