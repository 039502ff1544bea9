"""Which tables the page shows of a snapshot, and in which order."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from groupqueue.admin import wording
from groupqueue.admin.groups import HELD, LEASED, PARKED, WAITING, groups_table
from groupqueue.admin.shapes import Column, Row, Table, numeric
from groupqueue.admin.wording import Cell
from groupqueue.core.snapshot import Snapshot, TierView, WorkerView

# Three heartbeats of a worker.
SILENT_AFTER_SECONDS = 15.0


def tables_of(snapshot: Snapshot, *, may_manage: bool) -> list[Table]:
    """Return the page's tables in their order; buttons only for those who may use them."""
    tiers = snapshot.tiers
    return [
        _tiers(snapshot),
        groups_table(
            WAITING, snapshot.waiting, snapshot, _sum(tiers, "due"), may_manage=may_manage
        ),
        groups_table(
            LEASED, snapshot.leased, snapshot, _sum(tiers, "leased"), may_manage=may_manage
        ),
        groups_table(HELD, snapshot.held, snapshot, _sum(tiers, "held"), may_manage=may_manage),
        groups_table(
            PARKED, snapshot.parked, snapshot, _sum(tiers, "parked"), may_manage=may_manage
        ),
        _workers(snapshot),
    ]


def counters_of(snapshot: Snapshot) -> list[tuple[str, Cell]]:
    """Return the queue's counters with their labels."""
    return [
        (str(_COUNTERS.get(name, wording.printable(name))), wording.count(value))
        for name, value in sorted(
            snapshot.counters.items(), key=lambda item: _COUNTER_ORDER.get(item[0], 99)
        )
    ]


_COUNTERS = {
    "published": gettext_lazy("Published"),
    "duplicates": gettext_lazy("Duplicates left out"),
    "delivered": gettext_lazy("Delivered"),
    "acked": gettext_lazy("Acknowledged"),
    "retried": gettext_lazy("Retried"),
    "released": gettext_lazy("Released"),
    "dead": gettext_lazy("Dead-lettered"),
    "halted": gettext_lazy("Halted"),
    "expired": gettext_lazy("Expired"),
    "cancelled": gettext_lazy("Cancelled"),
    "purged": gettext_lazy("Purged"),
    "redriven": gettext_lazy("Redriven"),
    "dropped": gettext_lazy("Dropped dead letters"),
    "trimmed": gettext_lazy("Dead letters too old or too many"),
}
_COUNTER_ORDER = {name: place for place, name in enumerate(_COUNTERS)}


def _tiers(snapshot: Snapshot) -> Table:
    tiers = snapshot.tiers
    longest = max((tier.longest_wait_seconds for tier in tiers), default=0.0)
    total = (
        wording.count(_sum(tiers, "groups")),
        wording.count(_sum(tiers, "due"), link=f"#{WAITING.id}"),
        wording.count(_sum(tiers, "leased"), link=f"#{LEASED.id}"),
        wording.count(_sum(tiers, "parked"), link=f"#{PARKED.id}"),
        wording.count(_sum(tiers, "held"), link=f"#{HELD.id}", alarming=True),
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
            numeric(_("Groups")),
            numeric(_("Due")),
            numeric(_("Leased")),
            numeric(_("Parked")),
            numeric(_("Paused or halted")),
            numeric(_("Messages")),
            numeric(_("Longest wait")),
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


def _wait(seconds: float) -> Cell:
    return wording.length(seconds) if seconds else Cell(wording.NOTHING, style="number quiet")


def _sum(tiers: Iterable[TierView], name: str) -> int:
    return sum(getattr(tier, name) for tier in tiers)


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
            numeric(_("Concurrency")),
            Column(_("State")),
            numeric(_("Processed")),
            numeric(_("Failed")),
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
