"""`group_queues`: look at queues and their groups, and put right what needs somebody."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
import traceback
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from groupqueue import conf
from groupqueue.exceptions import (
    ConfigurationError,
    GroupQueueError,
    InvalidArgument,
    InvalidMessage,
)
from groupqueue.management import arguments, doctor, looking, tables
from groupqueue.management.acting import ACTING
from groupqueue.management.looking import LOOKING
from groupqueue.management.verbs import (
    EXIT_FAULT,
    EXIT_NOT_DONE,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    Answer,
    Options,
    Verb,
)
from groupqueue.queues import Queue, get_queue

VERBS = {verb.name: verb for verb in (*LOOKING, *ACTING)}
DOCTOR = "doctor"
WATCH = "watch"
CLEAR_SCREEN = "\x1b[H\x1b[2J"


class Command(BaseCommand):
    """Parse the verb and its arguments, have it performed, and print its answer."""

    help = "Look at queues and their groups, and put right what needs somebody."
    # It must work, and exit with its own codes, when something else is in disorder.
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's type
    sleep = staticmethod(time.sleep)

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare each verb with its own arguments."""
        verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
        for verb in VERBS.values():
            of_verb = verbs.add_parser(verb.name, help=verb.help, description=verb.help)
            verb.add_arguments(of_verb)
            if verb.question:
                of_verb.add_argument("--yes", action="store_true", help="do not ask")
            _add_common_arguments(of_verb)
        text = "examine queues and their servers, and mend what is wrong"
        of_doctor = verbs.add_parser(DOCTOR, help=text, description=text)
        doctor.add_arguments(of_doctor)
        _add_common_arguments(of_doctor)
        text = "show stats again and again, until Ctrl-C"
        of_watch = verbs.add_parser(WATCH, help=text, description=text)
        of_watch.add_argument(
            "--every", type=arguments.interval, default=2.0, metavar="SECONDS", help="the pause (2)"
        )
        of_watch.add_argument("--count", type=arguments.count, help="end after so many looks")
        _add_common_arguments(of_watch)

    def run_from_argv(self, argv: list[str]) -> None:
        """Run as a program: also what nobody foresaw has an exit code of its own."""
        try:
            super().run_from_argv(argv)
        except CommandError as error:  # with --traceback Django lets it pass
            traceback.print_exc()
            sys.exit(error.returncode)
        except Exception:
            traceback.print_exc()
            sys.exit(EXIT_FAULT)

    def handle(self, *, verb: str, **options: Any) -> None:
        """Perform the verb; the exit code says how it went."""
        arguments.refuse_lost_values(options)
        try:
            if verb == DOCTOR:
                self._examine(options)
                return
            queue = get_queue(_queue_name(options["queue"]))
            if verb == WATCH:
                self._watch(queue, options)
            else:
                self._perform(VERBS[verb], queue, options)
        except GroupQueueError as error:
            raise _command_error(error) from error

    def _perform(self, verb: Verb, queue: Queue, options: Options) -> None:
        if verb.question and not options["yes"]:
            _check_terminal(verb.name)
            self._confirm(verb.question(queue, options))
        answer = verb.perform(queue, options)
        self._print(queue, answer, as_json=options["json"])
        if answer.exit_code:
            raise CommandError(answer.trouble, returncode=answer.exit_code)

    def _examine(self, options: Options) -> None:
        """Examine queues; with --repair mend what is wrong, and tell what is left."""
        is_asking = options["repair"] and not options["yes"]
        if is_asking:
            _check_terminal(DOCTOR)
        named = [*options["queues"], *filter(None, [options["queue"]])]
        queues = [get_queue(name) for name in dict.fromkeys(named or conf.configured_queues())]
        found = [doctor.examine(queue) for queue in queues]
        if is_asking and (question := doctor.question(found)):
            self.stderr.write(doctor.text(found), str)
            self._confirm(question)
        if options["repair"]:
            found = [doctor.mend(queue, each) for queue, each in zip(queues, found, strict=True)]
        answer = doctor.answer(found, options)
        self._write(json.dumps(answer.document, indent=2) if options["json"] else answer.text)
        if answer.exit_code:
            raise CommandError(tables.printable(answer.trouble), returncode=answer.exit_code)

    def _confirm(self, question: str) -> None:
        # Not to stdout, which is for the answer.
        self.stderr.write(f"{question} [y/N] ", str, ending="")
        self.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("nothing was changed", returncode=EXIT_NOT_DONE)

    def _watch(self, queue: Queue, options: Options) -> None:
        trouble, looks = None, 0
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                trouble = self._look(queue, options)
                looks += 1
                if looks == options["count"]:
                    break
                self.sleep(options["every"])
        if trouble:
            raise trouble

    def _look(self, queue: Queue, options: Options) -> CommandError | None:
        """Print stats once; return what was in the way, which may be over next time."""
        try:
            answer = looking.stats(queue, options)
        except GroupQueueError as error:
            trouble = _command_error(error)
            self.stderr.write(str(trouble))
            return trouble
        if self.stdout.isatty() and not options["json"]:
            self.stdout.write(CLEAR_SCREEN, ending="")
        self._print(queue, answer, as_json=options["json"], indent=None)
        return None

    def _print(
        self, queue: Queue, answer: Answer, *, as_json: bool, indent: int | None = 2
    ) -> None:
        text = answer.text
        if as_json:
            # Escaped, it can do a terminal no harm and needs no encoding.
            text = json.dumps({"queue": queue.name, **answer.document}, indent=indent)
        self._write(text)

    def _write(self, text: str) -> None:
        if text:
            encoding = getattr(self.stdout, "encoding", None) or "utf-8"
            self.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self.stdout.flush()


def _add_common_arguments(parser: CommandParser) -> None:
    parser.add_argument("--queue", metavar="NAME", help="the queue; else the default or only one")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    # Django's own stand before the verb; people write them behind it.
    for name in ("--settings", "--pythonpath"):
        parser.add_argument(name, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    for name in ("--traceback", "--no-color", "--force-color"):
        parser.add_argument(
            name, action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )
    parser.add_argument(
        "-v",
        "--verbosity",
        type=int,
        choices=range(4),
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS,
    )


def _check_terminal(verb: str) -> None:
    if not (sys.stdin and sys.stdin.isatty()):
        raise CommandError(
            f"{verb} does not ask when its input is no terminal: add --yes", returncode=EXIT_USAGE
        )


def _queue_name(given: str | None) -> str:
    configured = conf.configured_queues()
    return given or (configured[0] if len(configured) == 1 else "default")


def _command_error(error: GroupQueueError) -> CommandError:
    is_usage = isinstance(error, ConfigurationError | InvalidMessage | InvalidArgument)
    # A server's error quotes keys, and with them group ids.
    text = tables.printable(str(error))
    return CommandError(text, returncode=EXIT_USAGE if is_usage else EXIT_UNAVAILABLE)
