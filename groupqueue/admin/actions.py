"""What an operator may do with a group from the admin: pause, resume, skip its head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from django.utils.translation import gettext as _

from groupqueue.admin import wording
from groupqueue.core import calls
from groupqueue.core.keys import shard_prefix
from groupqueue.core.messages import checked_group
from groupqueue.transport import connections

T = TypeVar("T")


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
    call = calls.pause(shard_prefix(target.queue), checked_group(target.group), why)
    if _perform(target.queue, call):
        return Outcome(True, _("Paused group %(group)s.") % _named(target))
    return Outcome(False, _("Group %(group)s is held already.") % _named(target))


def resume(target: Target) -> Outcome:
    """Let the group go on; the head of a halted group gets a new set of attempts."""
    call = calls.resume(shard_prefix(target.queue), checked_group(target.group))
    if _perform(target.queue, call):
        return Outcome(True, _("Resumed group %(group)s.") % _named(target))
    return Outcome(False, _("Group %(group)s is not held any more.") % _named(target))


def skip(target: Target) -> Outcome:
    """Set the head aside as a dead letter, if it is still the message that was shown."""
    call = calls.skip(shard_prefix(target.queue), checked_group(target.group), target.message_id)
    texts = {
        "ok": _("Skipped message %(message)s, the head of group %(group)s."),
        "leased": _("Nothing was skipped: a worker holds group %(group)s at the moment."),
        "moved": _("Nothing was skipped: message %(message)s is not the head of %(group)s now."),
    }
    word = _perform(target.queue, call)
    return Outcome(word == "ok", texts[word] % _named(target))


ACTIONS: Mapping[str, Callable[[Target], Outcome]] = {
    "pause": pause,
    "resume": resume,
    "skip": skip,
}


def _perform(queue: str, call: calls.Call[T]) -> T:
    # Somebody waits for a page: an answer within two seconds, or an error. The facade's
    # methods would go on trying for longer than a web server lets a request last.
    transport = connections.new_transport(queue, patient=False)
    try:
        return transport.perform(call)
    finally:
        transport.close()


def _named(target: Target) -> dict[str, str]:
    return {
        "group": wording.printable(target.group),
        "message": wording.printable(target.message_id),
    }
