"""What is done to a whole group, call by call? See core.letters for what a flow is."""

from __future__ import annotations

from groupqueue.core import calls
from groupqueue.core.identifiers import new_id
from groupqueue.core.letters import Flow

STARTED_PER_CALL = 1000


def purge_group(prefix: str, group: str) -> Flow[int]:
    """Throw a group's messages away; the result counts them.

    A call sees a thousand started messages of a wide group.
    """
    done = 0
    while True:
        purged: calls.Purged = yield calls.purge(prefix, [group])
        done += purged.messages
        if purged.messages < STARTED_PER_CALL:
            return done


def move_group(prefix: str, group: str, tier: int) -> Flow[bool]:
    """Move a group into a tier, its started messages included; False when it has no messages."""
    is_known, cursor = False, ""
    while cursor != "0":
        moved: calls.Moved = yield calls.set_tier(prefix, group, tier, cursor or "0")
        is_known, cursor = is_known or moved.is_known, moved.cursor
    return is_known


def rate_group(prefix: str, group: str, argument: str) -> Flow[str]:
    """Say how often messages of a group may be delivered, "" for the queue; see calls.rate.

    The result is the former rate. Of a wide group a call lets a page of the started messages go
    that this has put off.
    """
    operation = new_id()
    rated: calls.Rated = yield calls.rate(prefix, group, argument, operation=operation)
    former = rated.former
    while rated.cursor != "0":
        rated = yield calls.rate(prefix, group, argument, rated.cursor, operation=operation)
    return former
