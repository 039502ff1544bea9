"""What an operator may do from the admin: pause or resume a group, skip its head, stop or
start the whole queue."""

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
    """Empty for the whole queue."""
    message_id: str
    operator: str

    def __str__(self) -> str:
        return f"{self.queue}/{wording.printable(self.group)}" if self.group else self.queue


class Outcome(NamedTuple):
    """What came of an action."""

    done: bool
    text: str
    """For the operator, and for the log when it is done."""


def pause(target: Target) -> Outcome:
    """Hold the group until it is resumed."""
    if _queue(target).pause(target.group, _by(target)):
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


def stop(target: Target) -> Outcome:
    """Pause the whole queue."""
    if _queue(target).stop(_by(target)):
        return Outcome(True, _("Stopped queue %(queue)s.") % _named(target))
    return Outcome(False, _("Queue %(queue)s is stopped already.") % _named(target))


def start(target: Target) -> Outcome:
    """Let a stopped queue go on."""
    if _queue(target).start():
        return Outcome(True, _("Started queue %(queue)s.") % _named(target))
    return Outcome(False, _("Queue %(queue)s is not stopped any more.") % _named(target))


Actions = Mapping[str, Callable[[Target], Outcome]]
ACTIONS: Actions = {"pause": pause, "resume": resume, "skip": skip}
QUEUE_ACTIONS: Actions = {"stop": stop, "start": start}


def _by(target: Target) -> str:
    return _("by %(operator)s") % {"operator": target.operator}


def _queue(target: Target) -> Queue:
    return get_queue(target.queue, patient=False)


def _named(target: Target) -> dict[str, str]:
    return {
        "queue": target.queue,
        "group": wording.printable(target.group),
        "message": wording.printable(target.message_id),
    }
