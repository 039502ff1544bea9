"""What the page says of one queue: its state right now, or why it cannot be read."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.utils.translation import gettext as _

from groupqueue import conf
from groupqueue.admin import wording
from groupqueue.admin.shapes import Button, Table
from groupqueue.admin.tables import counters_of, tables_of
from groupqueue.core.snapshot import Snapshot
from groupqueue.exceptions import GroupQueueError
from groupqueue.queues import get_queue
from groupqueue.transport import connections

ROWS_PER_LIST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """One look at a queue. Either there is trouble, or there are tables."""

    taken: wording.Cell | None = None
    tables: list[Table] = field(default_factory=list)
    counters: list[tuple[str, wording.Cell]] = field(default_factory=list)
    stopped: wording.Cell | None = None
    """Since when all of the queue is paused; None while it is not."""
    stopped_reason: wording.Cell | None = None
    rate: str = ""
    """The rate that an operator gave the whole queue."""
    buttons: list[Button] = field(default_factory=list)
    """What may be done with the whole queue."""
    trouble: str = ""
    location: str = ""
    """Where the queue lives, without a password; only said when there is trouble."""


def look_at(queue: str, *, may_manage: bool) -> QueueState:
    """Read a queue in one round trip; gives up within two seconds, and never raises for Redis."""
    try:
        snapshot = get_queue(queue, patient=False).snapshot(limit=ROWS_PER_LIST)
    except GroupQueueError as error:
        return QueueState(trouble=wording.printable(str(error)), location=_location(queue))
    return QueueState(
        taken=wording.clock_time(snapshot.taken_at),
        tables=tables_of(snapshot, may_manage=may_manage),
        counters=counters_of(snapshot),
        stopped=wording.clock_time(snapshot.stopped_since) if snapshot.stopped_since else None,
        stopped_reason=wording.prose(snapshot.stopped_reason),
        rate=wording.printable(snapshot.rate),
        buttons=[_button(queue, snapshot)] if may_manage else [],
    )


def _button(queue: str, snapshot: Snapshot) -> Button:
    if snapshot.stopped_since is not None:
        return Button(
            action="start",
            label=_("Start queue"),
            description=_("Start queue %(queue)s") % {"queue": queue},
        )
    return Button(
        action="stop",
        label=_("Stop queue"),
        description=_("Stop queue %(queue)s") % {"queue": queue},
        question=_("Nothing of this queue is handled until it is started again."),
    )


def _location(queue: str) -> str:
    connection = conf.get_config(queue).connection
    if isinstance(connection, str) and conf.connection_kind(connection) == "embedded":
        # It holds no password, and says more to people than the path of a socket.
        return connection
    try:
        return connections.location(queue)
    except GroupQueueError:
        return f"GROUPQUEUE[{queue!r}]['CONNECTION']"
