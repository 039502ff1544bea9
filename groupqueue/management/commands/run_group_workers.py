"""`run_group_workers`: handle the messages of one or more queues."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import autoreload

import groupqueue
from groupqueue import conf
from groupqueue.exceptions import GroupQueueError, ServerRefused, ServerUnavailable
from groupqueue.handlers import registered
from groupqueue.transport.connections import location
from groupqueue.transport.servers import findings
from groupqueue.worker import arguments
from groupqueue.worker.logs import configure_logging
from groupqueue.worker.options import WorkerOptions
from groupqueue.worker.supervisor import Supervisor


class Command(BaseCommand):
    """Run the worker until it is stopped (SIGTERM or Ctrl-C; twice to leave at once)."""

    help = "Handle the messages of one or more queues, each group strictly in order."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        arguments.add_to(parser)

    def handle(self, **values: Any) -> None:
        """Check, then run the supervisor, under the autoreloader if asked."""
        try:
            options = arguments.options_from(values)
        except GroupQueueError as error:
            raise CommandError(str(error)) from error
        if values["reload"]:
            autoreload.run_with_reloader(self._run, options)
        else:
            self._run(options)

    def _run(self, options: WorkerOptions) -> None:
        configure_logging(options.verbosity)
        self._check_servers(options)
        if options.verbosity:
            self._write_banner(options)
        summary = Supervisor(options).run()
        if options.verbosity:
            rate = summary.processed / summary.seconds if summary.seconds else 0.0
            self.stdout.write(
                f"groupqueue: {summary.processed} processed, {summary.failed} failed, "
                f"{summary.restarts} restarts in {summary.seconds:.1f} s ({rate:.0f}/s)"
            )
        if summary.gave_up:
            raise CommandError("a worker process died for good; see the log", returncode=1)

    def _check_servers(self, options: WorkerOptions) -> None:
        for queue in options.queues:
            try:
                found = findings(queue)
            except (ServerUnavailable, ServerRefused) as error:
                # The processes wait for it and come back by themselves.
                self.stderr.write(self.style.WARNING(f"queue {queue!r}: {error}"))
                continue
            except GroupQueueError as error:
                raise CommandError(str(error)) from error
            for finding in found:
                text = f"queue {queue!r}: {finding.text}. {finding.hint}"
                if finding.level == "error" and not options.unsafe_server:
                    raise CommandError(f"{text} (--unsafe-server runs all the same.)")
                if options.verbosity:
                    self.stderr.write(self.style.WARNING(text))

    def _write_banner(self, options: WorkerOptions) -> None:
        topics = sorted(registered())
        self.stdout.write(
            f"groupqueue {groupqueue.__version__}: {options.processes} processes × "
            f"concurrency {options.concurrency}"
        )
        for queue in options.queues:
            seconds = options.visibility_for(conf.get_config(queue))
            self.stdout.write(f"  queue    {queue} at {location(queue)}, visibility {seconds:g} s")
        for topic in topics:
            self.stdout.write(f"  handler  {topic} → {registered()[topic]}")
        if not topics:
            self.stdout.write(self.style.WARNING("  no handlers found in any app's handlers.py"))
        self.stdout.write("  stop with Ctrl-C or SIGTERM; a second one leaves at once")
        self.stdout.flush()
