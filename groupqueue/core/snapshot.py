"""What people are shown of a shard: the reply of `inspect`, as named values."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from groupqueue.core.messages import LAST_MOMENT_MS, moment, split_element, split_place
from groupqueue.core.rates import MAX_DIGITS, rate_text

GroupState = Literal["due", "leased", "parked", "scheduled", "rate-limited", "paused", "halted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierView:
    """How much of a tier is in which state; everything counts groups but `messages`."""

    tier: int
    groups: int
    due: int
    leased: int
    parked: int
    held: int
    """Paused by an operator, or halted after exhausted attempts; running leases aside."""
    messages: int
    longest_wait_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """One group and the state of its head."""

    group: str
    tier: int
    state: GroupState
    due_at: datetime.datetime | None
    """When it is next claimable by itself; None while paused or halted."""
    wait_seconds: float
    """How long a due group has waited; 0 for others."""
    depth: int
    head_id: str
    head_published_at: datetime.datetime | None
    token: int | None
    lease_left_seconds: float
    holder: str
    """The worker id of the lease's holder; empty when not leased."""
    deliveries: int
    failures: int
    last_error: str
    held_since: datetime.datetime | None
    held_reason: str
    """Why it is paused or halted."""
    rate: str
    """The rate that an operator gave it, as `core.rates` writes it; empty for none."""
    width: int
    """How many of its messages may be in flight at once, if it is a wide group; else 0."""
    in_flight: int
    """How many are, if it is wide."""
    started: int
    """How many of a wide group's messages have been started; `depth` is that of the others."""
    halted: int
    """How many of those are halted."""
    is_started: bool
    """Whether this is one started message of a wide group, which has its own row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """One worker process as it describes itself."""

    id: str
    seen_at: datetime.datetime
    silent_seconds: float
    """Since its last heartbeat."""
    fields: Mapping[str, str]
    """host, pid, name, queues, concurrency, started_at, state, processed, failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One moment of a shard."""

    taken_at: datetime.datetime
    tiers: tuple[TierView, ...]
    """Most urgent first; all five."""
    waiting: tuple[GroupView, ...]
    """Due groups, longest wait first."""
    leased: tuple[GroupView, ...]
    """Oldest lease first."""
    parked: tuple[GroupView, ...]
    """Soonest due first."""
    held: tuple[GroupView, ...]
    """Halted groups, then paused ones."""
    workers: tuple[WorkerView, ...]
    counters: Mapping[str, int]
    """What was published, delivered, acked, and so on: totals, by the names of `stats`."""
    leases_counted_fully: bool
    """False when there were more leases than one snapshot looks at."""
    halted: int
    """Groups that are halted; among the first 2,000 that are held."""
    dead_letters: int
    """Messages set aside that are still kept."""
    stopped_since: datetime.datetime | None
    """Since when all of the queue is paused; None while it is not."""
    stopped_reason: str
    rate: str
    """The rate that an operator gave the whole queue; empty for none."""


class HeldGroups(NamedTuple):
    """A page of the groups that are paused or halted."""

    total: int
    """How many there are in all."""
    cursor: str
    """Where the next page begins; empty after the last one."""
    groups: tuple[GroupView, ...]


def snapshot_decoder(limit: int) -> Any:
    """Return the decoder of an `inspect` reply that keeps `limit` groups per list."""

    def decode(reply: list[Any]) -> Snapshot:
        now_ms, tiers, waiting, leased, parked, held, workers, counters, seen = reply[:9]
        halted, dead, stopped, rate = reply[9:]
        stopped_since, stopped_reason = stop_of(stopped)
        due = [group_view(row, now_ms) for row in waiting]
        later = [group_view(row, now_ms) for row in parked]
        return Snapshot(
            taken_at=moment(now_ms),
            tiers=tuple(_tier(row) for row in tiers),
            waiting=tuple(sorted(due, key=lambda view: -view.wait_seconds)[:limit]),
            leased=tuple(group_view(row, now_ms) for row in leased),
            parked=tuple(sorted(later, key=lambda view: view.due_at or moment(0))[:limit]),
            held=tuple(group_view(row, now_ms) for row in held)[:limit],
            workers=tuple(_worker(row, now_ms) for row in workers),
            counters={
                text(name): whole_number(value)
                for name, value in zip(counters[::2], counters[1::2], strict=True)
            },
            leases_counted_fully=seen < MOST_LEASES_SEEN,
            halted=halted,
            dead_letters=dead,
            stopped_since=stopped_since,
            stopped_reason=stopped_reason,
            rate=rate_text(rate),
        )

    return decode


def held_groups(reply: list[Any]) -> HeldGroups:
    """Decode a `held` reply."""
    now_ms, total, cursor, rows = reply
    following = "" if cursor == b"0" else text(cursor)
    return HeldGroups(total, following, tuple(group_view(row, now_ms) for row in rows))


MOST_LEASES_SEEN = 2000


def _tier(row: list[int]) -> TierView:
    tier, groups, due, leased, held, messages, wait_ms = row
    return TierView(
        tier=tier,
        groups=groups,
        due=due,
        leased=leased,
        parked=max(0, groups - due - leased - held),
        held=held,
        messages=messages,
        longest_wait_seconds=wait_ms / 1000,
    )


def group_view(row: list[Any], now_ms: int) -> GroupView:
    """Return a group row of the scripts as named values."""
    group, tier, due, depth, head, token, left_ms, holder, deliveries, failures, error, why = row[
        :12
    ]
    rate, free_us, is_head_held, width, in_flight, started, halted = row[12:]
    group, place = split_place(group)
    due_ms = max(0.0, float(due or b"inf"))
    held = due_ms == float("inf")
    kind, held_ms, reason = _held(why) if why else ("paused", 0, "")
    # Also of bytes that are no message, an operator must be able to name them.
    identifier, published_ms, _, _ = split_element(head)
    # A group that arrived in front has no moment of its own.
    since_ms = due_ms or published_ms or now_ms
    state: GroupState = "parked"
    if token:
        state = "leased"
    elif held:
        state = "halted" if kind == "halted" else "paused"
    elif int(due_ms) <= now_ms:  # scores carry µs, the clock here does not
        state = "due"
    elif in_flight >= width > 0:
        state = "leased"  # all of its places are taken
    elif is_head_held:
        state = "scheduled"
    elif free_us and round(due_ms * 1000) == whole_number(free_us):
        state = "rate-limited"
    return GroupView(
        group=text(group),
        tier=int(tier),
        state=state,
        due_at=None if held else moment(since_ms),
        wait_seconds=max(0.0, (now_ms - since_ms) / 1000) if state == "due" else 0.0,
        depth=depth,
        head_id=identifier,
        head_published_at=moment(published_ms) if published_ms else None,
        token=whole_number(token) or None,
        lease_left_seconds=max(0, left_ms) / 1000,
        holder=text(holder),
        deliveries=whole_number(deliveries),
        failures=whole_number(failures),
        last_error=text(error),
        held_since=moment(held_ms) if held_ms else None,
        held_reason=reason,
        rate=rate_text(rate),
        width=width,
        in_flight=in_flight,
        started=started,
        halted=halted,
        is_started=bool(place),
    )


def stop_of(stopped: bytes) -> tuple[datetime.datetime | None, str]:
    """Return since when and why a queue is stopped, given "<ms> <why>" or nothing."""
    since, _, reason = stopped.partition(b" ")
    return (moment(whole_number(since)), text(reason)) if since.isdigit() else (None, "")


def _held(why: bytes) -> tuple[str, int, str]:
    """Split "halted 1796007627120 max_attempts" into kind, since ms and reason."""
    kind, _, rest = why.partition(b" ")
    since, _, reason = rest.partition(b"\n")[0].partition(b" ")
    return text(kind), whole_number(since), text(reason)


def _worker(row: list[Any], now_ms: int) -> WorkerView:
    identifier, seen, pairs = row
    seen_ms = int(min(max(float(seen), 0), LAST_MOMENT_MS))  # somebody may write infinity
    return WorkerView(
        id=text(identifier),
        seen_at=moment(seen_ms),
        silent_seconds=max(0, now_ms - seen_ms) / 1000,
        fields={
            text(name): text(value) for name, value in zip(pairs[::2], pairs[1::2], strict=True)
        },
    )


def whole_number(digits: bytes | None) -> int:
    """Return digits from the server as a number; 0 for what somebody made none."""
    return int(digits) if digits and digits.isdigit() and len(digits) <= MAX_DIGITS else 0


def text(value: bytes) -> str:
    """Return bytes from the server as text that can be shown."""
    return value.decode(errors="replace")
