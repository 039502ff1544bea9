"""How many commands may an operation call, given what it was asked for?

Nothing here grows with the number of groups or of messages that wait: that is the point.
"""

from __future__ import annotations

from typing import Protocol

from proof import history
from proof.history import Operation

ENTRY = 45
"""Opening the shard, and the steps that come once: counters, flags, hints."""
PER_SETTLEMENT = 30
"""Of a started message of a wide group, whose place goes to another one."""
PER_LEASE = 15
PER_EFFECT = 12
"""Each message that is dropped, set aside, started or let join is one or more."""
PER_LOOK = 20
"""To put a group off that is due, and may not go."""
LOOKS, TIERS = 10, 5
STARTED = 1000
"""Messages of a wide group that one call sees."""
HOLDERS = 1200
"""What a page of 400 holders has at most: small hashes come whole."""


class Bound(Protocol):
    """What a script may call beside its entry and its effects."""

    def __call__(self, operation: Operation, /, *, is_special: bool) -> int: ...


def most_commands(operation: Operation, *, is_special: bool) -> int:
    """Return the bound; a script without one is as free as it likes.

    `is_special` tells whether the shard has wide groups, rates or groups that are set aside:
    then an operation may find groups due that may not go, and sees started messages.
    """
    bound = _BOUNDS.get(operation.script)
    if bound is None or operation.error:
        return 10**9
    return ENTRY + PER_EFFECT * len(operation.effects) + bound(operation, is_special=is_special)


def _turn(operation: Operation, *, is_special: bool) -> int:
    want = int(operation.args[3])
    leased = sum(1 + len(lease.rest) for lease in history.leases(operation))
    looks = LOOKS * TIERS * (want + 1) * PER_LOOK if is_special and want else TIERS * LOOKS
    settled = PER_SETTLEMENT * int(operation.args[10])
    return settled + PER_LEASE * want + 6 * leased + looks


def _claim(_: Operation, *, is_special: bool) -> int:
    return PER_LEASE + LOOKS * TIERS * (2 * PER_LOOK if is_special else 1)


def _publish_with(operation: Operation, *, is_special: bool) -> int:
    # Who widens a group gives its new places away.
    return (12 + 12 * is_special) * int(operation.args[4])


def _of_started(each: int) -> Bound:
    return lambda _, *, is_special: each * (1 + STARTED * is_special)


def _per(each: int, argument: int) -> Bound:
    """Return a bound that grows with a number among the arguments."""
    return lambda operation, *, is_special: each * int(operation.args[argument])  # noqa: ARG005


def _at_most(most: int) -> Bound:
    return lambda _, *, is_special: most  # noqa: ARG005


def _recover(operation: Operation, *, is_special: bool) -> int:  # noqa: ARG001
    return 2 * HOLDERS + PER_SETTLEMENT * len(operation.effects)


def _purge(operation: Operation, *, is_special: bool) -> int:  # noqa: ARG001
    return PER_SETTLEMENT * (len(operation.args) + len(operation.effects))


_BOUNDS: dict[str, Bound] = {
    "publish": _per(3, 3),
    "publish_with": _publish_with,
    "turn": _turn,
    "claim": _claim,
    "ack": _at_most(PER_SETTLEMENT),
    "nack": _at_most(PER_SETTLEMENT),
    "recount": _at_most(0),
    "renew": _per(12, 1),
    "recover": _recover,
    "cancel": _at_most(50),
    "reschedule": _at_most(20),
    "redrive": _per(25, 1),
    "drop": _at_most(0),
    "trim": _at_most(0),
    "pause": _at_most(0),
    "resume": _of_started(12),
    "skip": _at_most(PER_SETTLEMENT),
    "set_tier": _of_started(12),
    "release": _of_started(PER_SETTLEMENT),
    "purge": _purge,
    "rate": _of_started(10),
    "stop": _at_most(0),
    "start": _at_most(0),
    "heartbeat": _at_most(0),
    "depart": _at_most(0),
}
