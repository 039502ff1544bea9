"""Which lists of groups the page shows, and what an operator may do with a group."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from groupqueue.admin import wording
from groupqueue.admin.shapes import Button, Column, Row, Table, numeric
from groupqueue.admin.wording import Cell
from groupqueue.core.snapshot import GroupView, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What one of the lists of groups shows beside the columns that all have."""

    id: str
    caption: Callable[[], str]
    empty: Callable[[], str]
    columns: Callable[[], Sequence[Column]]
    cells: Callable[[GroupView, datetime.datetime], Sequence[Cell]]


def groups_table(
    listing: Listing,
    groups: Sequence[GroupView],
    snapshot: Snapshot,
    total: int,
    *,
    may_manage: bool,
) -> Table:
    """Return the table of one list; `total` is how many groups it would have if it were whole."""
    now = snapshot.taken_at
    rows = [
        Row(
            _name(group),
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
            numeric(_("Tier")),
            Column(_("State")),
            numeric(_("Messages")),
            numeric(_("Age of head")),
            *listing.columns(),
            numeric(_("Deliveries")),
            Column(_("Last error")),
        ),
        rows=rows,
        note=note,
        empty=empty,
    )


def _name(group: GroupView) -> Cell:
    """Return the group: started messages with their ids, wide groups with their width."""
    name = wording.identifier(group.group)
    if group.is_started:
        return replace(name, text=f"{name.text} {wording.identifier(group.head_id).text}")
    if group.width:
        flying = _("%(in_flight)s of %(width)s in flight") % {
            "in_flight": wording.grouped(group.in_flight),
            "width": wording.grouped(group.width),
        }
        return replace(name, text=f"{name.text} ({flying})")
    return name


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
        "scheduled": pgettext("state of a group", "scheduled"),
        "rate-limited": pgettext("state of a group", "rate-limited"),
        "paused": pgettext("state of a group", "paused"),
        "halted": pgettext("state of a group", "halted"),
    }
    text = words[group.state]
    if group.rate:
        text = _("%(state)s, rate %(rate)s") % {
            "state": text,
            "rate": wording.printable(group.rate),
        }
    return Cell(text, badge=f"badge {group.state}")


def _lease(group: GroupView, _now: datetime.datetime) -> Sequence[Cell]:
    return (
        wording.identifier(group.holder),
        Cell("" if group.token is None else str(group.token), style="number"),
        wording.length(group.lease_left_seconds),
    )


def _hold(group: GroupView, now: datetime.datetime) -> Sequence[Cell]:
    return (wording.since(group.held_since, now), wording.prose(group.held_reason))


def _due_in(group: GroupView, now: datetime.datetime) -> Sequence[Cell]:
    due_at = group.due_at or now
    left = (due_at - now).total_seconds()
    return (Cell(wording.humanised(left), wording.exact_time(due_at), "number"),)


WAITING = Listing(
    id="waiting",
    caption=lambda: _("Longest waiting"),
    empty=lambda: _("No group is waiting."),
    columns=lambda: (numeric(_("Waiting for")),),
    cells=lambda group, _now: (wording.length(group.wait_seconds),),
)
LEASED = Listing(
    id="leased",
    caption=lambda: _("Leased, oldest lease first"),
    empty=lambda: _("No group is leased: nothing is being handled."),
    columns=lambda: (
        Column(_("Holder")),
        numeric(_("Token")),
        numeric(_("Lease left")),
    ),
    cells=_lease,
)
HELD = Listing(
    id="held",
    caption=lambda: _("Halted and paused"),
    empty=lambda: _("No group is halted or paused."),
    columns=lambda: (numeric(_("Held for")), Column(_("Reason"))),
    cells=_hold,
)
PARKED = Listing(
    id="parked",
    caption=lambda: _("Parked until their time comes, soonest first"),
    empty=lambda: _("No group is parked."),
    columns=lambda: (numeric(_("Due in")),),
    cells=_due_in,
)


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
        description=_("Skip head of group %(group)s") % {"group": shown},
        group=encoded,
        # Of bytes that are no message it need be no text.
        message_id=quote(group.head_id, safe="", errors="surrogateescape"),
        question=_(
            "Message %(id)s is set aside as a dead letter. Those behind it go on without it,"
            " unless the group is paused."
        )
        % {"id": wording.printable(group.head_id)},
    )
    return (resume, skip)
