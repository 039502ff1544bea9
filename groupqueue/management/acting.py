"""The verbs of `group_queues` that change something."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from groupqueue.management import arguments
from groupqueue.management.tables import identifier, note
from groupqueue.management.verbs import EXIT_NOT_DONE, Answer, Options, Verb
from groupqueue.queues import Queue


def pause(queue: Queue, options: Options) -> Answer:
    """Hold a group until it is resumed."""
    return _of_group(
        options,
        "ok" if queue.pause(options["group"], options["why"]) else "held",
        ok="paused group {group}",
        held="group {group} is held already",
    )


def resume(queue: Queue, options: Options) -> Answer:
    """Let a paused or halted group go on."""
    return _of_group(
        options,
        "ok" if queue.resume(options["group"]) else "not held",
        ok="resumed group {group}",
        not_held="group {group} is neither paused nor halted",
    )


def stop(queue: Queue, options: Options) -> Answer:
    """Pause the whole queue."""
    return _answer(
        "ok" if queue.stop(options["why"]) else "stopped",
        {},
        ok=f"stopped queue {queue.name}",
        stopped=f"queue {queue.name} is stopped already",
    )


def start(queue: Queue, _: Options) -> Answer:
    """Let a stopped queue go on."""
    return _answer(
        "ok" if queue.start() else "not stopped",
        {},
        ok=f"started queue {queue.name}",
        not_stopped=f"queue {queue.name} is not stopped",
    )


def rate(queue: Queue, options: Options) -> Answer:
    """Say how often messages of a group, or of the whole queue, may be delivered."""
    given, group = options["rate"], options["group"]
    former = queue.set_rate(None if given == "default" else given, group)
    return _answer(
        "ok",
        {"rate": given, "former": former or "default", "group": group},
        ok=("queue " + queue.name if group is None else "group {group}")
        + ": rate {rate}, formerly {former}",
    )


def set_tier(queue: Queue, options: Options) -> Answer:
    """Move a group into another tier."""
    return _of_group(
        options,
        "ok" if queue.set_tier(options["group"], options["tier"]) else "empty",
        {"tier": options["tier"]},
        ok="group {group} is in tier {tier}",
        empty="group {group} has no messages, so it has no tier",
    )


def skip(queue: Queue, options: Options) -> Answer:
    """Set the head of a group aside."""
    return _of_group(
        options,
        queue.skip(options["group"], options["id"]),
        {"id": options["id"]},
        ok="skipped message {id}, the head of group {group}",
        leased="nothing was skipped: a worker holds group {group}",
        moved="nothing was skipped: message {id} is not the head of group {group}",
    )


def release(queue: Queue, options: Options) -> Answer:
    """End the lease of a group."""
    return _of_group(
        options,
        "ok" if queue.release(options["group"], options["token"]) else "not leased",
        ok="released group {group}",
        not_leased="nobody holds group {group}, or not with that token",
    )


def purge(queue: Queue, options: Options) -> Answer:
    """Throw the messages of a group away."""
    messages = queue.purge(options["group"])
    return _of_group(
        options,
        "ok" if messages else "empty",
        {"messages": messages},
        ok="threw {messages:,} messages of group {group} away",
        empty="group {group} has no messages",
    )


def cancel(queue: Queue, options: Options) -> Answer:
    """Take a scheduled message back."""
    return _answer(
        "ok" if queue.cancel(options["id"]) else "not scheduled",
        {"id": options["id"]},
        ok="cancelled message {id}",
        not_scheduled="message {id} is not scheduled (any more)",
    )


def reschedule(queue: Queue, options: Options) -> Answer:
    """Change when a scheduled message is due."""
    done = queue.reschedule(options["id"], delay=options["delay"], eta=options["eta"])
    return _answer(
        "ok" if done else "not scheduled",
        {"id": options["id"]},
        ok="rescheduled message {id}",
        not_scheduled="message {id} is not scheduled (any more)",
    )


def redrive(queue: Queue, options: Options) -> Answer:
    """Put dead letters back into their groups."""
    wanted = arguments.letter_selection(options)
    return _of_letters(queue.redrive(wanted, to_tail=options["to_tail"]), "put back")


def drop(queue: Queue, options: Options) -> Answer:
    """Throw dead letters away."""
    return _of_letters(queue.drop(arguments.letter_selection(options)), "thrown away")


# What is asked before something is lost, or stands still -------------------------------


def _ask_stop(queue: Queue, _: Options) -> str:
    return f"Stop all of queue {queue.name}? Nothing is handled until it is started again."


def _ask_skip(_: Queue, options: Options) -> str:
    return f"Set message {identifier(options['id'])} of group {_group(options)} aside?"


def _ask_release(queue: Queue, options: Options) -> str:
    found = queue.explain(options["group"])
    return (
        f"End the lease of group {_group(options)} ({note(found.reason)})? "
        "Its handler may go on while another worker handles the same message."
    )


def _ask_purge(queue: Queue, options: Options) -> str:
    depth = queue.peek(options["group"], limit=1).depth
    return f"Throw the {depth:,} messages of group {_group(options)} away for good?"


def _ask_cancel(_: Queue, options: Options) -> str:
    return f"Take the scheduled message {identifier(options['id'])} back for good?"


def _ask_drop(queue: Queue, options: Options) -> str:
    wanted = arguments.letter_selection(options)
    total = queue.dead_letters(limit=1).total
    return (
        f"Throw dead letters away for good ({arguments.selection_in_words(wanted)}; "
        f"{total:,} in the queue)?"
    )


# Arguments -----------------------------------------------------------------------------


def _add_pause_arguments(parser: CommandParser) -> None:
    arguments.add_group(parser)
    _add_why(parser)


def _add_why(parser: CommandParser) -> None:
    parser.add_argument("--why", default="", help="shown to whoever looks")


def _add_rate_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "rate",
        type=arguments.rate,
        metavar="RATE",
        help='such as 10/m, 5/s, 1/5m or 10/m:4; "none" for any number, "default" for what the'
        " settings say",
    )
    parser.add_argument("--group", help="of this group; else of the whole queue")


def _add_set_tier_arguments(parser: CommandParser) -> None:
    arguments.add_group(parser)
    parser.add_argument("tier", type=arguments.tier, metavar="TIER", help="0 to 4")


def _add_skip_arguments(parser: CommandParser) -> None:
    arguments.add_group(parser)
    parser.add_argument("id", metavar="ID", help="the head's id, as explain shows it")


def _add_release_arguments(parser: CommandParser) -> None:
    arguments.add_group(parser)
    parser.add_argument(
        "--token",
        type=arguments.number(int, "a fencing token", 1, 1e18),
        help="only the lease with this token, as explain shows it",
    )


def _add_cancel_arguments(parser: CommandParser) -> None:
    parser.add_argument("id", metavar="ID")


def _add_reschedule_arguments(parser: CommandParser) -> None:
    parser.add_argument("id", metavar="ID")
    due = parser.add_mutually_exclusive_group(required=True)
    due.add_argument(
        "--delay", type=arguments.length, metavar="LENGTH", help="due so long from now: 90s, 2h, 7d"
    )
    due.add_argument(
        "--eta", type=arguments.moment_to_come, metavar="TIME", help="due at a time: ISO 8601"
    )


def _add_redrive_arguments(parser: CommandParser) -> None:
    arguments.add_letter_selection(parser)
    parser.add_argument(
        "--to-tail", action="store_true", help="behind what waits instead of before it"
    )


ACTING = (
    Verb(
        name="pause",
        help="hold a group until it is resumed",
        perform=pause,
        add_arguments=_add_pause_arguments,
    ),
    Verb(
        name="resume",
        help="let a paused or halted group go on",
        perform=resume,
        add_arguments=arguments.add_group,
    ),
    Verb(
        name="stop",
        help="pause the whole queue until it is started again",
        perform=stop,
        add_arguments=_add_why,
        question=_ask_stop,
    ),
    Verb(name="start", help="let a stopped queue go on", perform=start),
    Verb(
        name="rate",
        help="say how often messages of a group, or of the whole queue, may be delivered",
        perform=rate,
        add_arguments=_add_rate_arguments,
    ),
    Verb(
        name="set-tier",
        help="move a group into another tier, until it has drained",
        perform=set_tier,
        add_arguments=_add_set_tier_arguments,
    ),
    Verb(
        name="skip",
        help="set the head of a group aside as a dead letter",
        perform=skip,
        add_arguments=_add_skip_arguments,
        question=_ask_skip,
    ),
    Verb(
        name="release",
        help="end the lease of a group, uncounted",
        perform=release,
        add_arguments=_add_release_arguments,
        question=_ask_release,
    ),
    Verb(
        name="redrive",
        help="put dead letters back in front of their groups",
        perform=redrive,
        add_arguments=_add_redrive_arguments,
    ),
    Verb(
        name="purge",
        help="throw the messages of a group away",
        perform=purge,
        add_arguments=arguments.add_group,
        question=_ask_purge,
    ),
    Verb(
        name="drop",
        help="throw dead letters away",
        perform=drop,
        add_arguments=arguments.add_letter_selection,
        question=_ask_drop,
    ),
    Verb(
        name="cancel",
        help="take a scheduled message back",
        perform=cancel,
        add_arguments=_add_cancel_arguments,
        question=_ask_cancel,
    ),
    Verb(
        name="reschedule",
        help="change when a scheduled message is due",
        perform=reschedule,
        add_arguments=_add_reschedule_arguments,
    ),
)


# Answers -------------------------------------------------------------------------------


def _of_group(
    options: Options, outcome: str, more: dict[str, Any] | None = None, **texts: str
) -> Answer:
    return _answer(outcome, {"group": options["group"], **(more or {})}, **texts)


def _of_letters(letters: int, what: str) -> Answer:
    return _answer(
        "ok" if letters else "none",
        {"letters": letters},
        ok=f"{letters:,} dead letters were {what}",
        none="no such dead letter",
    )


def _answer(outcome: str, details: dict[str, Any], **texts: str) -> Answer:
    """Return what came of it; `texts` says each outcome, by its name, to people."""
    shown = {
        name: identifier(value) if isinstance(value, str) else value
        for name, value in details.items()
    }
    text = texts[outcome.replace(" ", "_")].format(**shown)
    is_done = outcome == "ok"
    return Answer(
        document={"done": is_done, "outcome": outcome, **details},
        text=text if is_done else "",
        trouble="" if is_done else text,
        exit_code=0 if is_done else EXIT_NOT_DONE,
    )


def _group(options: Options) -> str:
    return identifier(options["group"])
