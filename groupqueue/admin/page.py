"""What the page says of one queue: its state right now, or why it cannot be read."""

from __future__ import annotations

from dataclasses import dataclass, field

from groupqueue import conf
from groupqueue.admin import wording
from groupqueue.admin.shapes import Table
from groupqueue.admin.tables import counters_of, tables_of
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
