"""Which tables the page shows of a snapshot: their columns, rows, and buttons."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from urllib.parse import quote

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext

from groupqueue.admin import wording
from groupqueue.admin.wording import Cell
from groupqueue.core.snapshot import GroupView, Snapshot, TierView, WorkerView

# Three heartbeats of a worker.
SILENT_AFTER_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """One thing an operator may do with a group, as a form of its own."""

    action: str
    label: str
    description: str
    group: str
    """The group id, percent-encoded: a browser would change line ends and control
    characters in a form."""
    message_id: str = ""
    question: str = ""
    """What to ask before it is done; empty to do it at once."""


class Column(NamedTuple):
    """One column's heading."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its header, and a cell for every other column."""

    header: Cell
    cells: Sequence[Cell]
    buttons: Sequence[Button] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of the page."""

    id: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    total: Row | None = None
    note: str = ""
    empty: str = ""
    """The sentence that stands in for the rows when there are none."""

    @property
    def has_buttons(self) -> bool:
        """Whether the last column is one of buttons."""
        return any(row.buttons for row in self.rows)


def tables_of(snapshot: Snapshot, *, may_manage: bool) -> list[Table]:
    """Return the page's tables in their order; buttons only for those who may use them."""
    tiers = snapshot.tiers
    return [
        _tiers(snapshot),
        _groups(_WAITING, snapshot.waiting, snapshot, _sum(tiers, "due"), may_manage=may_manage),
        _groups(_LEASED, snapshot.leased, snapshot, _sum(tiers, "leased"), may_manage=may_manage),
        _groups(_HELD, snapshot.held, snapshot, _sum(tiers, "held"), may_manage=may_manage),
        _groups(_PARKED, snapshot.parked, snapshot, _sum(tiers, "parked"), may_manage=may_manage),
        _workers(snapshot),
    ]


def counters_of(snapshot: Snapshot) -> list[tuple[str, Cell]]:
    """Return the queue's counters with their labels."""
    return [
        (str(_COUNTERS.get(name, name)), wording.count(value))
        for name, value in sorted(
            snapshot.counters.items(), key=lambda item: _COUNTER_ORDER.get(item[0], 99)
        )
    ]


_COUNTERS = {
    "published": gettext_lazy("Published"),
    "delivered": gettext_lazy("Delivered"),
    "acked": gettext_lazy("Acknowledged"),
    "retried": gettext_lazy("Retried"),
    "released": gettext_lazy("Released"),
    "dead": gettext_lazy("Dead-lettered"),
    "halted": gettext_lazy("Halted"),
}
_COUNTER_ORDER = {name: place for place, name in enumerate(_COUNTERS)}


# Tiers ------------------------------------------------------------------------------


def _tiers(snapshot: Snapshot) -> Table:
    tiers = snapshot.tiers
    longest = max((tier.longest_wait_seconds for tier in tiers), default=0.0)
    total = (
        wording.count(_sum(tiers, "groups")),
        wording.count(_sum(tiers, "due"), link=f"#{_WAITING.id}"),
        wording.count(_sum(tiers, "leased"), link=f"#{_LEASED.id}"),
        wording.count(_sum(tiers, "parked"), link=f"#{_PARKED.id}"),
        wording.count(_sum(tiers, "held"), link=f"#{_HELD.id}", alarming=True),
        wording.count(_sum(tiers, "messages")),
        _wait(longest),
    )
    note = ""
    if not snapshot.leases_counted_fully:
        note = _(
            "There are more leases than one look takes in: “leased” is at least, and “parked”"
            " at most, the number shown."
        )
    return Table(
        id="tiers",
        caption=_("Groups by tier, most urgent first"),
        columns=(
            Column(_("Tier")),
            _numeric(_("Groups")),
            _numeric(_("Due")),
            _numeric(_("Leased")),
            _numeric(_("Parked")),
            _numeric(_("Paused or halted")),
            _numeric(_("Messages")),
            _numeric(_("Longest wait")),
        ),
        rows=[_tier(tier) for tier in tiers],
        total=Row(Cell(_("All")), total),
        note=note,
    )


def _tier(tier: TierView) -> Row:
    cells = (
        wording.count(tier.groups),
        wording.count(tier.due),
        wording.count(tier.leased),
        wording.count(tier.parked),
        wording.count(tier.held, alarming=True),
        wording.count(tier.messages),
        _wait(tier.longest_wait_seconds),
    )
    return Row(Cell(str(tier.tier)), cells)


def _numeric(text: str) -> Column:
    return Column(text, "number")


def _wait(seconds: float) -> Cell:
    return wording.length(seconds) if seconds else Cell(wording.NOTHING, style="number quiet")


def _sum(tiers: Iterable[TierView], name: str) -> int:
    return sum(getattr(tier, name) for tier in tiers)


# Groups -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """What one of the lists of groups shows beside the columns that all have."""

    id: str
    caption: Callable[[], str]
    empty: Callable[[], str]
    columns: Callable[[], Sequence[Column]]
    cells: Callable[[GroupView, datetime.datetime], Sequence[Cell]]


def _groups(
    listing: _Listing,
    groups: Sequence[GroupView],
    snapshot: Snapshot,
    total: int,
    *,
    may_manage: bool,
) -> Table:
    now = snapshot.taken_at
    rows = [
        Row(
            wording.identifier(group.group),
            (*_common(group, now), *listing.cells(group, now), *_attempts(group)),
            _buttons(group) if may_manage else (),
        )
        for group in groups
    ]
    note = empty = ""
    if total > len(groups):
        note = _("%(shown)s of %(total)s groups are shown.") % {
            "shown": wording.grouped(len(groups)),
            "total": wording.grouped(total),
        }
    elif not groups:
        empty = listing.empty()
    return Table(
        id=listing.id,
        caption=listing.caption(),
        columns=(
            Column(_("Group")),
            _numeric(_("Tier")),
            Column(_("State")),
            _numeric(_("Messages")),
            _numeric(_("Age of head")),
            *listing.columns(),
            _numeric(_("Deliveries")),
            Column(_("Last error")),
        ),
        rows=rows,
        note=note,
        empty=empty,
    )


def _common(group: GroupView, now: datetime.datetime) -> Sequence[Cell]:
    return (
        Cell(str(group.tier), style="number"),
        _state(group),
        wording.count(group.depth),
        wording.since(group.head_published_at, now, more=wording.printable(group.head_id)),
    )


def _attempts(group: GroupView) -> Sequence[Cell]:
    deliveries = wording.count(group.deliveries)
    if group.failures:
        text = _("%(deliveries)s, %(failures)s failed") % {
            "deliveries": deliveries.text,
            "failures": wording.grouped(group.failures),
        }
        deliveries = Cell(text, style="number")
    error = wording.prose(group.last_error)
    return (deliveries, replace(error, style="long-text error") if error.text else error)


def _state(group: GroupView) -> Cell:
    if group.state == "leased" and group.held_since is not None:
        return Cell(
            _("leased, then paused"),
            _("The running delivery may finish; after it the group is paused."),
            badge="badge paused",
        )
    words = {
        "due": pgettext("state of a group", "due"),
        "leased": pgettext("state of a group", "leased"),
        "parked": pgettext("state of a group", "parked"),
        "paused": pgettext("state of a group", "paused"),
        "halted": pgettext("state of a group", "halted"),
    }
    return Cell(words[group.state], badge=f"badge {group.state}")


def _lease(group: GroupView, _now: datetime.datetime) -> Sequence[Cell]:
    return (
        wording.identifier(group.holder),
        Cell("" if group.token is None else str(group.token), style="number"),
        wording.length(group.lease_left_seconds),
    )


def _hold(group: GroupView, now: datetime.datetime) -> Sequence[Cell]:
    return (wording.since(group.held_since, now), wording.prose(group.held_reason))


def _due_in(group: GroupView, now: datetime.datetime) -> Sequence[Cell]:
    if group.due_at is None:
        return (Cell(wording.NOTHING, style="number quiet"),)
    left = (group.due_at - now).total_seconds()
    return (Cell(wording.humanised(left), wording.exact_time(group.due_at), "number"),)


_WAITING = _Listing(
    id="waiting",
    caption=lambda: _("Longest waiting"),
    empty=lambda: _("No group is waiting."),
    columns=lambda: (_numeric(_("Waiting for")),),
    cells=lambda group, _now: (wording.length(group.wait_seconds),),
)
_LEASED = _Listing(
    id="leased",
    caption=lambda: _("Leased, oldest lease first"),
    empty=lambda: _("No group is leased: nothing is being handled."),
    columns=lambda: (
        Column(_("Holder")),
        _numeric(_("Token")),
        _numeric(_("Lease left")),
    ),
    cells=_lease,
)
_HELD = _Listing(
    id="held",
    caption=lambda: _("Halted and paused"),
    empty=lambda: _("No group is halted or paused."),
    columns=lambda: (_numeric(_("Held for")), Column(_("Reason"))),
    cells=_hold,
)
_PARKED = _Listing(
    id="parked",
    caption=lambda: _("Parked until their next attempt, soonest first"),
    empty=lambda: _("No group is parked."),
    columns=lambda: (_numeric(_("Due in")),),
    cells=_due_in,
)


# Buttons ----------------------------------------------------------------------------


def _buttons(group: GroupView) -> Sequence[Button]:
    encoded = quote(group.group, safe="")
    shown = wording.identifier(group.group).text
    if group.held_since is None and group.state not in ("paused", "halted"):
        pause = Button(
            action="pause",
            label=_("Pause"),
            description=_("Pause group %(group)s") % {"group": shown},
            group=encoded,
        )
        return (pause,)
    resume = Button(
        action="resume",
        label=_("Resume"),
        description=_("Resume group %(group)s, beginning with its head") % {"group": shown},
        group=encoded,
    )
    if group.state == "leased" or not group.head_id:
        return (resume,)
    skip = Button(
        action="skip",
        label=_("Skip head"),
        description=_("Skip the head of group %(group)s") % {"group": shown},
        group=encoded,
        message_id=group.head_id,
        question=_(
            "Message %(id)s is set aside as a dead letter. Those behind it go on without it,"
            " unless the group is paused."
        )
        % {"id": wording.printable(group.head_id)},
    )
    return (resume, skip)


# Workers ----------------------------------------------------------------------------


def _workers(snapshot: Snapshot) -> Table:
    return Table(
        id="workers",
        caption=_("Workers"),
        columns=(
            Column(_("Worker")),
            Column(_("Name")),
            Column(_("Host")),
            Column(_("Process")),
            Column(_("Queues")),
            _numeric(_("Concurrency")),
            Column(_("State")),
            _numeric(_("Processed")),
            _numeric(_("Failed")),
            Column(_("Last heartbeat")),
        ),
        rows=[_worker(worker) for worker in snapshot.workers],
        empty=_("No worker serves this queue. Start one with: manage.py run_group_workers"),
    )


def _worker(worker: WorkerView) -> Row:
    fields = worker.fields
    silent = worker.silent_seconds > SILENT_AFTER_SECONDS
    heard = _("silent for %(time)s") if silent else _("%(time)s ago")
    cells = (
        *(wording.plain(fields.get(name, "")) for name in ("name", "host", "pid", "queues")),
        _number(fields.get("concurrency", "")),
        wording.plain(fields.get("state", "")),
        _number(fields.get("processed", "")),
        _number(fields.get("failed", "")),
        Cell(
            heard % {"time": wording.humanised(worker.silent_seconds)},
            wording.exact_time(worker.seen_at),
            badge="badge warning" if silent else "",
        ),
    )
    return Row(wording.identifier(worker.id), cells)


def _number(text: str) -> Cell:
    """Return a number that a worker wrote; an older or newer one may write something else."""
    return wording.count(int(text)) if text.isdecimal() else wording.plain(text)
