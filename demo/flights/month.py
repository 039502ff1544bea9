"""Does a month of flights come through the queue, complete and in order?"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from demo.flights.fresh import DemoFailed, fresh_directory
from demo.flights.handlers import flight_departed
from demo.flights.models import Aircraft
from demo.flights.programs import Program
from demo.flights.progress import Progress
from demo.flights.record import out_of_order
from demo.flights.timetable import Flight, NotATimetable, RejectedRow, read_rows, tier_of
from groupqueue import get_queue
from groupqueue.core.snapshot import Snapshot
from groupqueue.exceptions import GroupQueueError, ServerUnavailable

PROCESSES = 2
# Eight flights under way at once, though SQLite lets one of them write at a time. Should
# this process be killed, the workers do not stay for ever.
WORKERS = (
    "run_group_workers",
    *("--processes", str(PROCESSES)),
    *("--concurrency", "4"),
    *("--max-seconds", "1800"),
)
START_SECONDS = 60.0
LOOK_EVERY_SECONDS = 0.1
EXAMPLES = 3


@dataclass(slots=True, kw_only=True)
class Result:
    """What became of the file's rows."""

    read: int = 0
    published: int = 0
    rejected: int = 0
    processed: int = 0
    out_of_order: int = 0
    """Aircraft whose flights were not handled in the file's order."""
    duplicates: int = 0
    """Deliveries of messages handled before; they were recognised and left out."""
    seconds: float = 0.0
    messages_per_second: float = 0.0


class Month:
    """One run: publish while workers consume, then compare with the file."""

    def __init__(
        self, *, progress: Progress, patience_seconds: float, limit: int | None = None
    ) -> None:
        """`patience_seconds`: how long nothing may be handled before the run is given up.

        `limit`: how many rows to read; None for all.
        """
        self.result = Result()
        self.problems: list[str] = []
        """Everything that is wrong; all is right when it is empty."""
        self._progress = progress
        self._patience_seconds = patience_seconds
        self._limit = limit
        self._flights: list[Flight] = []
        self._rejected: list[RejectedRow] = []
        self._handled = 0
        self._moved_at = self._next_look_at = self._started_at = 0.0

    def run(self) -> None:
        """Run; afterwards `result` and `problems` tell how it went.

        Raises DemoFailed when it cannot begin.
        """
        self._progress.say("Setting up an empty database, an empty queue and the workers ...")
        with fresh_directory() as lock, Program("workers", WORKERS, lock=lock) as workers:
            self._wait_for(workers)
            self._started_at = self._moved_at = time.monotonic()
            try:
                self._publish_all(workers)
                self._wait_until_drained(workers)
            except (DemoFailed, GroupQueueError, NotATimetable) as error:
                self.problems.append(str(error))
            self.result.seconds = round(time.monotonic() - self._started_at, 2)
            self._progress.close_line()
            self._end(workers)
            self._report_rejected()
            self._check()

    def _wait_for(self, workers: Program) -> None:
        deadline = time.monotonic() + START_SECONDS
        while len(get_queue().snapshot().workers) < PROCESSES:
            if not workers.is_running or time.monotonic() > deadline:
                raise DemoFailed(f"the workers do not start:\n{workers.last_words()}")
            time.sleep(LOOK_EVERY_SECONDS)

    def _publish_all(self, workers: Program) -> None:
        for row in read_rows(limit=self._limit):
            self.result.read += 1
            if isinstance(row, RejectedRow):
                self._rejected.append(row)
                self.result.rejected += 1
                continue
            self._flights.append(row)
            flight_departed.publish(row, group=row["tail_number"], priority=tier_of(row["carrier"]))
            self.result.published += 1
            if time.monotonic() >= self._next_look_at:
                self._look(workers)

    def _wait_until_drained(self, workers: Program) -> None:
        while True:
            snapshot = self._look(workers)
            if snapshot is not None:
                groups = sum(tier.groups for tier in snapshot.tiers)
                if not groups:
                    return
                _refuse_to_wait_for_held(snapshot, groups)
            time.sleep(LOOK_EVERY_SECONDS)

    def _look(self, workers: Program) -> Snapshot | None:
        """See how far the workers are; raises DemoFailed when they get no further.

        Returns None when the queue does not answer, which the workers can wait out too.
        """
        snapshot = None
        try:
            snapshot = get_queue().snapshot(limit=EXAMPLES)
        except ServerUnavailable as error:
            self._progress.show(f"{error}; trying again")
        if snapshot is not None:
            self._show(snapshot)
        now = time.monotonic()
        self._next_look_at = now + LOOK_EVERY_SECONDS
        if not workers.is_running:
            raise DemoFailed(f"the workers have ended early:\n{workers.last_words()}")
        if now - self._moved_at > self._patience_seconds:
            raise DemoFailed(
                f"nothing was handled for {self._patience_seconds:g} seconds;"
                f" {workers.log_path} may say why"
            )
        return snapshot

    def _show(self, snapshot: Snapshot) -> None:
        now = time.monotonic()
        handled = snapshot.counters.get("acked", 0)
        if handled > self._handled:
            self._handled, self._moved_at = handled, now
        waiting = sum(tier.messages for tier in snapshot.tiers)
        seconds = max(now - self._started_at, LOOK_EVERY_SECONDS)
        self._progress.show(
            f"{seconds:5.1f} s   published {self.result.published:6,}   handled {handled:6,}"
            f"   waiting {waiting:6,}   {handled / seconds:5,.0f} per second"
        )

    def _end(self, workers: Program) -> None:
        was_running = workers.is_running
        exit_code = workers.stop()
        if was_running and exit_code != 0:
            self.problems.append(
                f"the workers ended with exit code {exit_code}:\n{workers.last_words()}"
            )

    def _report_rejected(self) -> None:
        for reason, count in Counter(row.reason for row in self._rejected).items():
            self._progress.say(f"Rejected {count:,} rows: {reason}. For example")
            examples = [row for row in self._rejected if row.reason == reason]
            for row in examples[:EXAMPLES]:
                self._progress.say(f"  line {row.line}: {row.text}")

    def _check(self) -> None:
        """Compare what the database holds with a plain loop over the file."""
        result = self.result
        aircraft = list(Aircraft.objects.all())
        result.processed = sum(row.flights for row in aircraft)
        result.duplicates = sum(row.duplicates for row in aircraft)
        if result.seconds:
            result.messages_per_second = round(result.processed / result.seconds, 1)
        wrong = out_of_order(self._flights, {row.tail_number: row.record for row in aircraft})
        result.out_of_order = len(wrong)
        if wrong:
            self.problems.append(
                f"{len(wrong):,} of {len(aircraft):,} aircraft have another hash chain than a"
                f" plain loop over the file gives: {', '.join(wrong[:EXAMPLES])} ..."
            )
        if result.processed != result.published:
            self.problems.append(
                f"{result.published:,} flights were published and {result.processed:,} handled"
            )
        if result.duplicates:
            self._progress.say(
                f"Duplicate deliveries, recognised and left out: {result.duplicates:,}. At least"
                " once is what the queue promises."
            )
        if not self.problems:
            self._progress.say(
                f"All {len(aircraft):,} aircraft have the hash chain that a plain loop over"
                " the file gives."
            )


def _refuse_to_wait_for_held(snapshot: Snapshot, groups: int) -> None:
    held = sum(tier.held for tier in snapshot.tiers)
    if held == groups and snapshot.held:
        first = snapshot.held[0]
        raise DemoFailed(
            f"all groups that are left, {held:,}, are halted or paused: such as {first.group!r},"
            f" {first.last_error or first.held_reason}"
        )
