"""How what a queue says becomes JSON: stable names, times in ISO 8601, lengths in seconds."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping
from typing import Any

from groupqueue.core.audits import Fault
from groupqueue.core.snapshot import GroupView, Snapshot, TierView
from groupqueue.core.views import DeadLetter, Explanation, Scheduled, StoredMessage


def snapshot_document(snapshot: Snapshot) -> dict[str, Any]:
    """Return the numbers of a snapshot, without single groups."""
    return moment_document(snapshot) | {
        "tiers": [_fields(tier) for tier in snapshot.tiers],
        "totals": totals(snapshot.tiers),
        "halted": snapshot.halted,
        "dead_letters": snapshot.dead_letters,
        "counters": dict(sorted(snapshot.counters.items())),
        "leases_counted_fully": snapshot.leases_counted_fully,
        "workers": [_fields(worker) for worker in snapshot.workers],
    }


def moment_document(snapshot: Snapshot) -> dict[str, Any]:
    """Return when a snapshot was taken, and whether the queue was stopped then."""
    return {
        "taken_at": _plain(snapshot.taken_at),
        "stopped_since": _plain(snapshot.stopped_since),
        "stopped_reason": snapshot.stopped_reason,
    }


def totals(tiers: tuple[TierView, ...]) -> dict[str, Any]:
    """Return the tiers' numbers taken together."""
    sums = ("groups", "due", "leased", "parked", "held", "messages")
    return {name: sum(getattr(tier, name) for tier in tiers) for name in sums} | {
        "longest_wait_seconds": max(tier.longest_wait_seconds for tier in tiers)
    }


def group_document(view: GroupView) -> dict[str, Any]:
    """Return what is known of a group."""
    return _fields(view)


def explanation_document(found: Explanation) -> dict[str, Any]:
    """Return what is known of a group, why it is so, and who holds it."""
    return group_document(found.group) | {
        "state": found.state,
        "reason": found.reason,
        "groups_ahead": found.groups_ahead,
        "groups_above": found.groups_above,
        "leased_since": _plain(found.leased_since),
        "holder_fields": dict(found.holder),
        "stopped_since": _plain(found.stopped_since),
        "stopped_reason": found.stopped_reason,
    }


def message_document(message: StoredMessage, *, with_payload: bool = False) -> dict[str, Any]:
    """Return a message; its payload and headers only if they are asked for."""
    document = {
        "id": message.id,
        "topic": message.topic,
        "published_at": _plain(message.published_at),
        "size_bytes": message.size_bytes,
    }
    if with_payload:
        document["payload"] = writable(message.payload)
        document["headers"] = writable(dict(message.headers))
    return document


def letter_document(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter."""
    return _fields(letter) | {"message": message_document(letter.message)}


def scheduled_document(scheduled: Scheduled) -> dict[str, Any]:
    """Return a scheduled message; what it holds is None while it lies in its group."""
    message = scheduled.message
    return _fields(scheduled) | {"message": message_document(message) if message else None}


def fault_document(fault: Fault) -> dict[str, Any]:
    """Return a fault of a queue's data."""
    return fault._asdict() | {
        "level": fault.level,
        "text": fault.text,
        "mendable": fault.is_mendable,
    }


def writable(value: Any) -> Any:
    """Return a payload if JSON can say it, else its representation: codecs differ."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
    return value


def _fields(value: Any) -> dict[str, Any]:
    return {
        each.name: _plain(getattr(value, each.name))
        for each in dataclasses.fields(value)
        if each.name != "message"
    }


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="milliseconds")
    return dict(value) if isinstance(value, Mapping) else value
