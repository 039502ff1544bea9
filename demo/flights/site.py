"""What is there to see in the admin? A site with a live queue in which things go wrong."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice

from django.contrib.auth import get_user_model
from django.urls import reverse

from demo.flights.fresh import DemoFailed, fresh_directory
from demo.flights.programs import Program
from demo.flights.progress import Progress
from demo.flights.timetable import RejectedRow, read_rows, tier_of
from groupqueue import Outgoing, get_queue, publish_many
from groupqueue.exceptions import ServerUnavailable

HOST = "127.0.0.1"
PORTS_TRIED = 100
ACCOUNT = "admin"
START_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.5
# So many groups are always due, and so fast they are handled: enough to see them move.
DUE_GROUPS = 300
FLIGHTS_PER_LOOK = 100
WORKERS = ("run_group_workers", "--processes", "2", "--concurrency", "4")
SLOW_AND_TROUBLED = {"DEMO_HANDLER_MS": "150", "DEMO_TROUBLE": "1"}
PAUSED_AIRCRAFT = ("N14228", "N24211")


@dataclass(slots=True, kw_only=True)
class Site:
    """The site, its workers and a publisher, until told to stop."""

    progress: Progress
    port: int
    """Where to listen; the next free port is taken when it is in use."""
    seconds: float | None = None
    """How long to run; None for until interrupted."""

    def run(self) -> None:
        """Run; raises DemoFailed when something does not start, or ends by itself."""
        self.progress.say("Setting up an empty database, an empty queue, a site and workers ...")
        with ExitStack() as stack:
            lock = stack.enter_context(fresh_directory())
            get_user_model().objects.create_superuser(ACCOUNT, "", ACCOUNT)
            for tail_number in PAUSED_AIRCRAFT:
                get_queue().pause(tail_number, "in the hangar for inspection")
            port = free_port(self.port)
            address = f"{HOST}:{port}"
            programs = [
                Program("workers", WORKERS, lock=lock, environment=SLOW_AND_TROUBLED),
                Program("site", ("runserver", "--noreload", address), lock=lock),
            ]
            for program in programs:
                stack.enter_context(program)
            self._wait_for_site(port, programs)
            self._say_where(f"http://{address}")
            self._keep_going(programs)
            self.progress.say("Ending the site and the workers ...")

    def _wait_for_site(self, port: int, programs: list[Program]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not answers(port):
            _refuse_ended(programs)
            if time.monotonic() > deadline:
                raise DemoFailed(f"the site does not answer on port {port}")
            time.sleep(LOOK_EVERY_SECONDS / 5)

    def _say_where(self, base_url: str) -> None:
        page = reverse("admin:groupqueue_groupqueue_changelist")
        self.progress.say(f"The queue:  {base_url}{page}")
        self.progress.say(f"Sign in as {ACCOUNT}, password {ACCOUNT}. Ctrl-C ends everything.")

    def _keep_going(self, programs: list[Program]) -> None:
        flights = _flights_without_end()
        ends_at = None if self.seconds is None else time.monotonic() + self.seconds
        while ends_at is None or time.monotonic() < ends_at:
            _refuse_ended(programs)
            try:
                snapshot = get_queue().snapshot()
                if sum(tier.due for tier in snapshot.tiers) < DUE_GROUPS:
                    publish_many(islice(flights, FLIGHTS_PER_LOOK))
                    continue
            except ServerUnavailable as error:
                self.progress.say(f"{error}; trying again")
            time.sleep(LOOK_EVERY_SECONDS)


def free_port(first: int) -> int:
    """Return the first port from there on that nobody listens on; raises DemoFailed."""
    for port in range(first, first + PORTS_TRIED):
        with socket.socket() as listener:
            # As the site does: a port whose last connections linger is free.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((HOST, port))
            except OSError:
                continue
        return port
    raise DemoFailed(f"all ports from {first} to {first + PORTS_TRIED - 1} are in use: give --port")


def answers(port: int) -> bool:
    """Return whether somebody listens on a port."""
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False


def _flights_without_end() -> Iterator[Outgoing]:
    while True:
        for row in read_rows():
            if not isinstance(row, RejectedRow):
                yield Outgoing(
                    "flights.departed",
                    row,
                    group=row["tail_number"],
                    priority=tier_of(row["carrier"]),
                )


def _refuse_ended(programs: list[Program]) -> None:
    for program in programs:
        if not program.is_running:
            raise DemoFailed(f"the {program.name} ended early:\n{program.last_words()}")
