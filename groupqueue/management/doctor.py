"""`doctor`: is a queue's server fit for it, is its data in order, and what was put right?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.core.management.base import CommandParser

from groupqueue.core.audits import Audit, Fault, Level
from groupqueue.exceptions import GroupQueueError
from groupqueue.management import documents, tables
from groupqueue.management.verbs import EXIT_EXCEEDED, EXIT_UNAVAILABLE, Answer, Options
from groupqueue.queues import Queue
from groupqueue.transport import checkup
from groupqueue.transport.servers import Finding

MOST_SHOWN = 50

_FAULT_COLUMNS = ("level", "fault", "where", "what is wrong")


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What is known of one queue."""

    queue: str
    findings: Sequence[Finding] = ()
    """About its server."""
    audit: Audit | None = None
    """Of its data."""
    mended: Audit | None = None
    """What was put right before."""
    trouble: str = ""
    """Why it could not be examined to the end."""

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What is wrong with the queue's data."""
        return self.audit.faults if self.audit else ()

    @property
    def mendable(self) -> int:
        """How many of the faults repair would mend."""
        return sum(fault.is_mendable for fault in self.faults)

    @property
    def is_cut_short(self) -> bool:
        """Whether an audit ended before it had seen everything: nobody knows what is behind."""
        return self.audit is not None and not self.audit.is_complete

    def count(self, level: Level) -> int:
        """Return how much of this level is wrong, with the server and the data."""
        of_server = sum(finding.level == level for finding in self.findings)
        return of_server + sum(fault.level == level for fault in self.faults)


def examine(queue: Queue) -> Examination:
    """Look at the queue's server and at its data; changes nothing."""
    found = Examination(queue=queue.name)
    try:
        found = replace(found, findings=checkup.findings(queue.name))
        return replace(found, audit=queue.audit())
    except GroupQueueError as error:
        return replace(found, trouble=str(error))


def mend(queue: Queue, found: Examination) -> Examination:
    """Put right what can be, and look again."""
    if not found.mendable:
        return found
    try:
        found = replace(found, mended=queue.repair())
        return replace(found, audit=queue.audit())
    except GroupQueueError as error:
        return replace(found, trouble=str(error))


def question(examinations: Sequence[Examination]) -> str:
    """Return what is asked before something is mended; empty when there is nothing to mend."""
    parts = [
        f"{found.mendable:,}{' or more' if found.is_cut_short else ''} in queue {found.queue}"
        for found in examinations
        if found.mendable
    ]
    return f"Mend what is wrong ({', '.join(parts)})?" if parts else ""


def answer(examinations: Sequence[Examination], options: Options) -> Answer:
    """Return what to print, and the exit code."""
    levels: tuple[Level, ...] = ("error", "warning")
    counted: tuple[Level, ...] = levels[: levels.index(options["fail_level"]) + 1]
    failing = [
        found.queue
        for found in examinations
        if any(map(found.count, counted)) or found.is_cut_short
    ]
    unexamined = [found.queue for found in examinations if found.trouble]
    trouble = "; ".join(
        f"{what} {', '.join(names)}"
        for what, names in (
            ("could not be examined:", unexamined),
            ("something is wrong with", failing),
        )
        if names
    )
    return Answer(
        document={"queues": [_document(found) for found in examinations]},
        text=text(examinations),
        trouble=trouble,
        exit_code=EXIT_UNAVAILABLE if unexamined else EXIT_EXCEEDED if failing else 0,
    )


def text(examinations: Sequence[Examination]) -> str:
    """Return what was found, for people."""
    return "\n\n".join(_text(found) for found in examinations)


def add_arguments(parser: CommandParser) -> None:
    """Declare the arguments of the verb."""
    parser.add_argument("queues", nargs="*", metavar="QUEUE", help="the queues; else all of them")
    parser.add_argument("--repair", action="store_true", help="mend what can be mended")
    parser.add_argument("--yes", action="store_true", help="do not ask before mending")
    parser.add_argument(
        "--fail-level",
        choices=("error", "warning"),
        default="error",
        help="exit with 4 when there is something of this level, or worse (error)",
    )


def _document(found: Examination) -> dict[str, Any]:
    audit = found.audit or Audit((), 0, 0, is_complete=False)
    return {
        "queue": found.queue,
        "server": [finding._asdict() for finding in found.findings],
        "faults": [documents.fault_document(fault) for fault in audit.faults],
        "groups": audit.groups,
        "complete": audit.is_complete,
        "mended": [documents.fault_document(f) for f in found.mended.faults]
        if found.mended
        else [],
        "mended_total": found.mended.total if found.mended else 0,
        "trouble": found.trouble,
    }


def _text(found: Examination) -> str:
    parts = [f"queue {found.queue}"]
    parts += [
        f"{finding.level}: {tables.printable(f'{finding.text}. {finding.hint}')}"
        for finding in found.findings
    ]
    if found.mended and found.mended.total:
        parts.append(f"mended, {found.mended.total:,} in all:\n{_fault_table(found.mended.faults)}")
    if found.audit:
        parts.append(_audit_text(found.audit))
    if found.trouble:
        parts.append(f"could not be examined: {tables.printable(found.trouble)}")
    elif not (found.findings or found.faults):
        parts.append("all is well")
    return "\n".join(parts)


def _audit_text(audit: Audit) -> str:
    text = f"groups with messages looked at: {audit.groups:,}"
    if audit.faults:
        text += f"\n{_fault_table(audit.faults)}"
    if audit.total > len(audit.faults):
        text += f"\n{audit.total:,} in all"
    if not audit.is_complete:
        text += "\nand there may be more: not all could be looked at"
    return text


def _fault_table(faults: Sequence[Fault]) -> str:
    rows = [
        (
            fault.level,
            fault.word,
            f"{fault.subject} {tables.identifier(fault.name)}".strip(),
            tables.note(fault.text, 120),
        )
        for fault in faults[:MOST_SHOWN]
    ]
    shown = tables.table(_FAULT_COLUMNS, rows)
    left = len(faults) - MOST_SHOWN
    return shown if left <= 0 else f"{shown}\nand {left:,} more, which --json lists"
