"""What an operator may do with a group from the admin: pause, resume, skip its head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from django.utils.translation import gettext as _

from groupqueue.admin import wording
from groupqueue.queues import Queue, get_queue


class Target(NamedTuple):
    """What an action is about, and who asks for it."""

    queue: str
    group: str
    message_id: str
    operator: str

    def __str__(self) -> str:
        return f"{self.queue}/{wording.printable(self.group)}"


class Outcome(NamedTuple):
    """What came of an action."""

    done: bool
    text: str
    """For the operator, and for the log when it is done."""


def pause(target: Target) -> Outcome:
    """Hold the group until it is resumed."""
    why = _("by %(operator)s") % {"operator": target.operator}
    if _queue(target).pause(target.group, why):
        return Outcome(True, _("Paused group %(group)s.") % _named(target))
    return Outcome(False, _("Group %(group)s is held already.") % _named(target))


def resume(target: Target) -> Outcome:
    """Let the group go on; the head of a halted group gets a new set of attempts."""
    if _queue(target).resume(target.group):
        return Outcome(True, _("Resumed group %(group)s.") % _named(target))
    return Outcome(False, _("Group %(group)s is not held any more.") % _named(target))


def skip(target: Target) -> Outcome:
    """Set the head aside as a dead letter, if it is still the message that was shown."""
    texts = {
        "ok": _("Skipped message %(message)s, the head of group %(group)s."),
        "leased": _("Nothing was skipped: a worker holds group %(group)s at the moment."),
        "moved": _("Nothing was skipped: message %(message)s is not the head of %(group)s now."),
    }
    word = _queue(target).skip(target.group, target.message_id)
    return Outcome(word == "ok", texts[word] % _named(target))


ACTIONS: Mapping[str, Callable[[Target], Outcome]] = {
    "pause": pause,
    "resume": resume,
    "skip": skip,
}


def _queue(target: Target) -> Queue:
    return get_queue(target.queue, patient=False)


def _named(target: Target) -> dict[str, str]:
    return {
        "group": wording.printable(target.group),
        "message": wording.printable(target.message_id),
    }
