"""The verbs of `group_queues` that look and change nothing."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser

from groupqueue.conf import get_config
from groupqueue.core.snapshot import GroupView, Snapshot, WorkerView
from groupqueue.core.views import DeadLetter, Explanation, Scheduled, StoredMessage
from groupqueue.management import arguments, documents, tables
from groupqueue.management.tables import NOTHING, ago, humanised, identifier, note
from groupqueue.management.verbs import EXIT_EXCEEDED, EXIT_USAGE, Answer, Options, Verb
from groupqueue.queues import LONGEST_LIST, Queue

STATES = {"due": "waiting", "leased": "leased", "parked": "parked", "held": "held"}
MOST_PAYLOAD_CHARACTERS = 200

_TIER_COLUMNS = ("tier", "groups", "due", "leased", "parked", "held", "messages", "longest wait")
_WORKER_COLUMNS = ("worker", "name", "host", "pid", "state", "processed", "failed", "heard")
_GROUP_COLUMNS = ("group", "tier", "state", "messages", "since", "tries", "holder", "why")
_LETTER_COLUMNS = ("entry", "group", "topic", "reason", "set aside", "tries", "error")
_MESSAGE_COLUMNS = ("place", "id", "topic", "published", "bytes")


def stats(queue: Queue, options: Options) -> Answer:
    """Count groups, messages and workers; alarm when a limit is exceeded."""
    snapshot = queue.snapshot(limit=1)
    document = documents.snapshot_document(snapshot) | _rates(queue, snapshot)
    exceeded = _exceeded(document, options)
    trouble = "; ".join(
        f"{entry['name']} is {entry['found']:g}, more than {entry['limit']:g}" for entry in exceeded
    )
    return Answer(
        document=document | {"exceeded": exceeded},
        text=_stats_text(queue, snapshot, document),
        trouble=trouble,
        exit_code=EXIT_EXCEEDED if exceeded else 0,
    )


def groups(queue: Queue, options: Options) -> Answer:
    """List groups by state."""
    if options["all"] and options["state"] != "held":
        raise CommandError("--all goes with --state held alone", returncode=EXIT_USAGE)
    snapshot = queue.snapshot(limit=options["limit"])
    states = [options["state"]] if options["state"] else list(STATES)
    views = [view for state in states for view in getattr(snapshot, STATES[state])]
    if options["all"]:
        views = _every_held(queue)
    table = tables.table(
        _GROUP_COLUMNS, [_group_row(view, snapshot) for view in views], empty="no groups"
    )
    rates = _rates(queue, snapshot)
    return Answer(
        document={
            **documents.moment_document(snapshot),
            **rates,
            "groups": [documents.group_document(view) for view in views],
        },
        text="\n".join((*_controls(snapshot, rates), table)),
    )


def explain(queue: Queue, options: Options) -> Answer:
    """Say why a group is where it is."""
    found = queue.explain(options["group"])
    return Answer(
        document=documents.explanation_document(found),
        text=tables.pairs(_explanation_rows(found)),
    )


def peek(queue: Queue, options: Options) -> Answer:
    """Show messages of a group, from the head on."""
    start, with_payloads = options["start"], options["payloads"]
    found = queue.peek(options["group"], start=start, limit=options["limit"])
    columns = (*_MESSAGE_COLUMNS, "payload") if with_payloads else _MESSAGE_COLUMNS
    rows = [
        (place, *_message_cells(message), *([_payload(message)] if with_payloads else []))
        for place, message in enumerate(found.messages, start)
    ]
    return Answer(
        document={
            "group": options["group"],
            "depth": found.depth,
            "start": start,
            "messages": [
                documents.message_document(message, with_payload=with_payloads)
                for message in found.messages
            ],
        },
        text=tables.table(columns, rows, empty="no messages there")
        + f"\n{len(rows):,} of {found.depth:,} messages",
    )


def dead(queue: Queue, options: Options) -> Answer:
    """List dead letters, newest first."""
    found = queue.dead_letters(arguments.letter_filter(options), limit=options["limit"])
    return Answer(
        document={
            "total": found.total,
            "letters": [documents.letter_document(letter) for letter in found.letters],
        },
        text=tables.table(
            _LETTER_COLUMNS,
            [_letter_row(one) for one in found.letters],
            empty="no such dead letter",
        )
        + f"\n{len(found.letters):,} shown, {found.total:,} in all",
    )


def scheduled(queue: Queue, options: Options) -> Answer:
    """List messages that are not due yet, soonest first."""
    found = queue.scheduled(start=options["start"], limit=options["limit"])
    return Answer(
        document={
            "total": found.total,
            "start": options["start"],
            "messages": [documents.scheduled_document(message) for message in found.messages],
        },
        text=tables.table(
            ("id", "group", "topic", "due at"),
            [_scheduled_row(message) for message in found.messages],
            empty="no scheduled messages there",
        )
        + f"\n{len(found.messages):,} of {found.total:,} scheduled messages",
    )


def _add_limits(parser: CommandParser) -> None:
    parser.add_argument(
        "--max-lag",
        type=arguments.seconds,
        metavar="SECONDS",
        help="exit with 4 when a due group has waited longer",
    )
    parser.add_argument(
        "--max-dead", type=arguments.whole, metavar="N", help="… when there are more dead letters"
    )
    parser.add_argument(
        "--max-halted", type=arguments.whole, metavar="N", help="… when more groups are halted"
    )


def _add_groups_arguments(parser: CommandParser) -> None:
    parser.add_argument("--state", choices=list(STATES), help="only these; else all four lists")
    parser.add_argument(
        "--limit",
        type=arguments.number(int, f"a number from 1 to {LONGEST_LIST}", 1, LONGEST_LIST),
        default=20,
        help="groups per list (20)",
    )
    parser.add_argument(
        "--all", action="store_true", help="with --state held: all of them, however many"
    )


def _add_page(parser: CommandParser) -> None:
    parser.add_argument(
        "--start", type=arguments.whole, default=0, help="the first place shown (0)"
    )
    parser.add_argument(
        "--limit",
        type=arguments.number(int, f"a number from 1 to {LONGEST_LIST}", 1, LONGEST_LIST),
        default=20,
        help="messages shown (20)",
    )


def _add_peek_arguments(parser: CommandParser) -> None:
    arguments.add_group(parser)
    _add_page(parser)
    parser.add_argument("--payloads", action="store_true", help="show payloads and headers too")


def _add_dead_arguments(parser: CommandParser) -> None:
    arguments.add_letter_filters(parser)
    parser.add_argument(
        "--limit", type=arguments.count, default=20, help="letters shown, the newest (20)"
    )


LOOKING = (
    Verb(
        name="stats",
        help="count groups, messages, dead letters and workers",
        perform=stats,
        add_arguments=_add_limits,
    ),
    Verb(
        name="groups",
        help="list groups that are due, leased, parked or held",
        perform=groups,
        add_arguments=_add_groups_arguments,
    ),
    Verb(
        name="explain",
        help="say why a group is where it is",
        perform=explain,
        add_arguments=arguments.add_group,
    ),
    Verb(
        name="peek",
        help="show messages of a group, from its head on",
        perform=peek,
        add_arguments=_add_peek_arguments,
    ),
    Verb(
        name="scheduled",
        help="list messages that are not due yet",
        perform=scheduled,
        add_arguments=_add_page,
    ),
    Verb(name="dead", help="list dead letters", perform=dead, add_arguments=_add_dead_arguments),
)


# Limits and rows -----------------------------------------------------------------------


def _every_held(queue: Queue) -> list[GroupView]:
    """Return all groups that are halted or paused, halted ones first, then by time."""
    page = queue.held(limit=LONGEST_LIST)
    found = {(view.group, view.is_started and view.head_id): view for view in page.groups}
    while page.cursor:
        page = queue.held(cursor=page.cursor, limit=LONGEST_LIST)
        found |= {(view.group, view.is_started and view.head_id): view for view in page.groups}

    def order(view: GroupView) -> tuple[bool, str, str]:
        return view.state != "halted", str(view.held_since), view.group

    return sorted(found.values(), key=order)


def _exceeded(document: dict[str, Any], options: Options) -> list[dict[str, Any]]:
    found = {
        "lag_seconds": (options.get("max_lag"), document["totals"]["longest_wait_seconds"]),
        "dead_letters": (options.get("max_dead"), document["dead_letters"]),
        "halted": (options.get("max_halted"), document["halted"]),
    }
    return [
        {"name": name, "limit": limit, "found": value}
        for name, (limit, value) in found.items()
        if limit is not None and value > limit
    ]


def _rates(queue: Queue, snapshot: Snapshot) -> dict[str, str]:
    """Return the rates in force: of the whole queue, and of groups that have none of their own."""
    of_settings = get_config(queue.name).rates
    return {
        "rate": snapshot.rate or (of_settings.queue.text if of_settings.queue else ""),
        "group_rate": of_settings.group.text if of_settings.group else "",
    }


def _stats_text(queue: Queue, snapshot: Snapshot, document: dict[str, Any]) -> str:
    totals = document["totals"]
    rows = [
        (
            str(tier.tier),
            tier.groups,
            tier.due,
            tier.leased,
            tier.parked,
            tier.held,
            tier.messages,
            humanised(tier.longest_wait_seconds) if tier.due else NOTHING,
        )
        for tier in snapshot.tiers
    ]
    longest = humanised(totals["longest_wait_seconds"]) if totals["due"] else NOTHING
    rows.append(("all", *(totals[name] for name in _TIER_COLUMNS[1:-1]), longest))
    counters = ", ".join(
        f"{identifier(name)} {count:,}" for name, count in sorted(snapshot.counters.items())
    )
    return "\n\n".join(
        (
            "\n".join(
                (
                    f"{queue.name} at {tables.clock_time(snapshot.taken_at)}",
                    *_controls(snapshot, document),
                )
            ),
            tables.table(_TIER_COLUMNS, rows),
            f"{snapshot.halted:,} halted groups, {snapshot.dead_letters:,} dead letters\n"
            + (counters or "nothing was published so far"),
            tables.table(
                _WORKER_COLUMNS,
                [_worker_row(worker) for worker in snapshot.workers],
                empty="no workers",
            ),
        )
    )


def _controls(snapshot: Snapshot, document: dict[str, Any]) -> list[str]:
    """Return a line for each thing that holds the queue back on purpose."""
    lines = []
    if snapshot.stopped_since is not None:
        why = f": {note(snapshot.stopped_reason)}" if snapshot.stopped_reason else ""
        lines.append(f"stopped since {tables.clock_time(snapshot.stopped_since)}{why}")
    if document["rate"]:
        lines.append(f"rate of the whole queue: {note(document['rate'])}")
    if document["group_rate"]:
        lines.append(f"rate of each group: {document['group_rate']}")
    return lines


def _worker_row(worker: WorkerView) -> tuple[str, ...]:
    told = (note(worker.fields.get(name, ""), 30) or NOTHING for name in _WORKER_COLUMNS[1:-1])
    return (identifier(worker.id), *told, f"{humanised(worker.silent_seconds)} ago")


def _group_row(view: GroupView, snapshot: Snapshot) -> tuple[str | int, ...]:
    now = snapshot.taken_at
    since = {
        "due": f"waits {humanised(view.wait_seconds)}",
        "leased": f"{humanised(view.lease_left_seconds)} left" if view.token else NOTHING,
        "paused": ago(view.held_since, now),
        "halted": ago(view.held_since, now),
    }.get(view.state, ago(view.due_at, now))
    rate = f"rate {view.rate}" if view.rate else ""
    return (
        _group_name(view),
        view.tier,
        view.state,
        view.depth,
        since,
        view.deliveries,
        identifier(view.holder) or NOTHING,
        note("; ".join(filter(None, (view.held_reason, rate, view.last_error)))) or NOTHING,
    )


def _group_name(view: GroupView) -> str:
    """Return the group as a cell: started messages with their ids, wide groups with their width."""
    name = identifier(view.group)
    if view.is_started:
        return f"{name} {identifier(view.head_id)}"
    return f"{name} ({view.in_flight} of {view.width})" if view.width else name


def _explanation_rows(found: Explanation) -> list[tuple[str, str]]:
    view = found.group
    holder = " ".join(f"{name}={value}" for name, value in sorted(found.holder.items()))
    line = f"{found.groups_ahead:,} groups have waited longer, {found.groups_above:,} are in"
    return [
        ("group", tables.printable(view.group)),
        ("state", found.state),
        ("reason", tables.printable(found.reason)),
        ("tier", str(view.tier) if view.depth else ""),
        ("messages", f"{view.depth:,}"),
        ("width", str(view.width or "")),
        ("in flight", f"{view.in_flight:,}" if view.width else ""),
        ("head", tables.printable(view.head_id)),
        ("published", tables.clock_time(view.head_published_at)),
        ("due", tables.clock_time(view.due_at) if view.depth else ""),
        ("waits", humanised(view.wait_seconds) if found.state == "due" else ""),
        ("in line", f"{line} higher tiers" if found.state == "due" else ""),
        ("held since", tables.clock_time(view.held_since)),
        ("rate", tables.printable(view.rate)),
        ("queue stopped", tables.clock_time(found.stopped_since)),
        ("holder", tables.printable(f"{view.holder} {holder}".strip())),
        ("leased since", tables.clock_time(found.leased_since)),
        ("lease ends in", humanised(view.lease_left_seconds) if view.token else ""),
        ("token", str(view.token or "")),
        ("deliveries", f"{view.deliveries:,}" if view.deliveries else ""),
        ("failures", f"{view.failures:,}" if view.failures else ""),
        ("last error", note(view.last_error, 500)),
    ]


def _message_cells(message: StoredMessage) -> tuple[str | int, ...]:
    return (
        identifier(message.id),
        identifier(message.topic) or NOTHING,
        tables.clock_time(message.published_at),
        message.size_bytes,
    )


def _payload(message: StoredMessage) -> str:
    written = json.dumps(documents.writable(message.payload), ensure_ascii=False)
    return tables.shortened(tables.printable(written), MOST_PAYLOAD_CHARACTERS)


def _letter_row(letter: DeadLetter) -> tuple[str | int, ...]:
    return (
        letter.entry,
        identifier(letter.group) or NOTHING,
        identifier(letter.message.topic) or NOTHING,
        note(letter.reason, 30),
        tables.clock_time(letter.died_at),
        letter.deliveries,
        note(letter.error) or NOTHING,
    )


def _scheduled_row(scheduled: Scheduled) -> tuple[str, ...]:
    topic = identifier(scheduled.message.topic) if scheduled.message else "(held in its group)"
    return (
        identifier(scheduled.id),
        identifier(scheduled.group),
        topic or NOTHING,
        tables.clock_time(scheduled.due_at),
    )
