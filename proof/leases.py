"""Who holds which group, by the server's order and clock, and how often was it handed over?"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

from groupqueue.core.messages import Lease, split_place
from proof.findings import Findings, shown
from proof.history import Effect, Operation, Settlement

SLACK_US = 5_000
"""How far a script's reading of the clock may be from the moment by which keys expire."""


@dataclass(slots=True, eq=False)
class Held:
    """A lease, from the operation that gave it."""

    group: bytes
    token: int
    worker: bytes
    number: int
    """Of the operation that gave it."""
    at_us: int
    visibility_us: int
    deadline_us: float
    ids: list[str] = field(default_factory=list)
    """Its messages, as the worker was told of them; empty when it was not told."""
    crashes: int = 0
    """Of its head, as the worker was told."""
    ended_us: float = math.inf

    def is_over(self, at_us: int) -> bool:
        """Whether the deadline has passed beyond doubt."""
        return at_us > self.deadline_us + SLACK_US

    def holds(self, at_us: int) -> bool:
        """Whether the deadline has not passed beyond doubt."""
        return at_us < self.deadline_us - SLACK_US


@dataclass(slots=True)
class Count:
    """Hand-overs and failures of a group's head."""

    deliveries: int = 0
    failures: int = 0

    def take_back(self) -> None:
        """The last hand-over does not count."""
        self.deliveries = max(0, self.deliveries - 1)


class Leases:
    """The locks of one shard, and what is counted of the heads of its groups."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.current: dict[bytes, Held] = {}
        """By group, until ended; what has run out is still there."""
        self.all: list[Held] = []
        self.last_told = 0
        """The last token that a worker was told of. One that a group was only locked under while
        its expired messages were dropped may be given again."""
        self.counts: defaultdict[bytes, Count] = defaultdict(Count)
        self.widths: dict[bytes, int] = {}
        self._in_flight: defaultdict[bytes, set[bytes]] = defaultdict(set)
        self._are_lowered: set[bytes] = set()

    def holding(self, group: bytes, at_us: int) -> Held | None:
        """Return the lease of a group, if it has one beyond doubt."""
        held = self.current.get(group)
        return held if held is not None and held.holds(at_us) else None

    def apply(self, effect: Effect, operation: Operation, may_end: MayEnd) -> None:
        """Do what a command did to a lock, or to the widths."""
        kind, _, group = effect.key.partition(b":")
        if effect.key == b"wide":
            self._apply_to_widths(effect)
        elif kind != b"lock":
            return
        elif effect.command == "SET":
            self._begin(group, effect, operation)
        elif effect.command in ("DEL", "UNLINK"):
            self._end(group, operation, may_end)
        elif effect.command == "PEXPIRE":
            self._extend(group, effect, operation)
        else:
            self._findings.note(
                "I4", f"{effect.command} of the lock of {shown(group)}", operation.number
            )

    def _begin(self, group: bytes, effect: Effect, operation: Operation) -> None:
        if effect.reply != b"OK":
            return
        note, number, at_us = self._findings.note, operation.number, operation.at_us
        token, options = int(effect.arguments[0]), effect.arguments[1:]
        lasts_ms = int(options[options.index(b"PX") + 1]) if b"PX" in options else math.inf
        is_turn = operation.script == "turn"
        asked_ms = (
            int(operation.args[2 if is_turn else 1])
            if is_turn or operation.script == "claim"
            else 0
        )
        former = self.current.get(group)
        if former is not None and former.holds(at_us):
            text = f"{shown(group)} was leased again while token {former.token} held it"
            note("I4", text, former.number, number, count="double_leases")
        if not asked_ms:
            note("I4", f"{shown(group)} was leased by {operation.script}", number)
        if token <= self.last_told:
            text = f"{shown(group)} was leased under token {token} after {self.last_told}"
            note("I5", text, number)
        if lasts_ms > asked_ms:
            text = f"the lease of {shown(group)} lasts {lasts_ms} ms, not {asked_ms}"
            note("I10", text, number)
        if former is not None:
            former.ended_us = min(former.ended_us, at_us)
        held = Held(
            group, token, operation.args[0], number, at_us,
            visibility_us=asked_ms * 1000, deadline_us=at_us + lasts_ms * 1000,
        )  # fmt: skip
        self.current[group] = held
        self.all.append(held)

    def _end(self, group: bytes, operation: Operation, may_end: MayEnd) -> None:
        held = self.current.get(group)
        if (
            operation.script != "lapse"
        ):  # what has run out keeps its place until it is claimed again
            self._leave(group)
        if held is None:
            return
        if held.holds(operation.at_us) and not may_end(held):
            text = f"{operation.script} ended the lease of {shown(group)} under token {held.token}"
            self._findings.note("I4", text, held.number, operation.number)
        held.ended_us = min(held.ended_us, operation.at_us)
        del self.current[group]

    def _extend(self, group: bytes, effect: Effect, operation: Operation) -> None:
        held = self.current.get(group)
        if held is None or not effect.reply or operation.script not in ("renew", "repair"):
            if effect.reply:
                text = f"{operation.script} changed how long {shown(group)} is leased"
                self._findings.note("I10", text, operation.number)
            return
        lasts_ms = int(effect.arguments[0])
        if operation.script == "renew":
            asked_ms = int(operation.args[0])
            if lasts_ms > asked_ms:
                text = f"the lease of {shown(group)} was renewed for {lasts_ms} ms, not {asked_ms}"
                self._findings.note("I10", text, operation.number)
            held.visibility_us = asked_ms * 1000
        held.deadline_us = operation.at_us + lasts_ms * 1000

    def tell(self, lease: Lease, operation: Operation) -> Held | None:
        """Note what a worker was told of its lease; returns it, if there is one."""
        group, note, number = lease.key, self._findings.note, operation.number
        held = self.current.get(group)
        if held is None or held.number != number or held.token != lease.token:
            text = f"a lease of {shown(group)} under token {lease.token} that is not on the server"
            note("I4", f"the worker was told of {text}", number)
            return None
        self.last_told = max(self.last_told, lease.token)
        count = self.counts[group]
        count.deliveries += 1
        if (lease.deliveries, lease.failures) != (count.deliveries, count.failures):
            told = f"{lease.deliveries} hand-overs and {lease.failures} failures"
            text = f"of message {lease.id} of {shown(group)} a worker was told {told}"
            note("I7", f"{text}, not {count.deliveries} and {count.failures}", number)
            count.deliveries, count.failures = lease.deliveries, lease.failures
        held.ids = [lease.id, *(behind.id for behind in lease.rest)]
        held.crashes = lease.crashes
        if lease.place:
            self._take_place(group, operation)
        return held

    def _take_place(self, group: bytes, operation: Operation) -> None:
        whole, _ = split_place(group)
        flying = self._in_flight[whole]
        flying.add(group)
        holding = sum(self.holding(one, operation.at_us) is not None for one in flying)
        width = self.widths.get(whole, 0)
        if holding > width and whole not in self._are_lowered:
            text = f"{holding} messages of {shown(whole)} are in flight; its width is {width}"
            self._findings.note("I4", text, operation.number)

    def _leave(self, group: bytes) -> None:
        whole, place = split_place(group)
        if not place:
            return
        flying = self._in_flight[whole]
        flying.discard(group)
        if len(flying) <= self.widths.get(whole, 0):
            self._are_lowered.discard(whole)

    def _apply_to_widths(self, effect: Effect) -> None:
        if effect.command == "HSET":
            whole, width = effect.arguments[0], int(effect.arguments[1])
            if len(self._in_flight[whole]) > width:
                # What is in flight already may stay so.
                self._are_lowered.add(whole)
            self.widths[whole] = width
        for whole in effect.arguments if effect.command == "HDEL" else ():
            self.widths.pop(whole, None)
            self._are_lowered.discard(whole)
            self._in_flight.pop(whole, None)

    def count_settlement(self, settlement: Settlement) -> None:
        """Count what an accepted settlement says of its group's head."""
        group, outcome = settlement.group, settlement.outcome
        if outcome in ("ack", "dead", "dead_group"):
            self.counts.pop(group, None)
            return
        if settlement.done:
            self.counts[group] = Count(deliveries=1)
        if outcome == "release":
            self.counts[group].take_back()
        elif not (outcome == "halt" and settlement.value == b"poison"):
            self.counts[group].failures += 1

    def start(self, whole: bytes, group: bytes) -> None:
        """A message of a wide group takes along what was counted of it as a head."""
        if whole in self.counts:
            self.counts[group] = self.counts.pop(whole)


class MayEnd:
    """Says whether an operation may end a lease that holds."""

    def __init__(self, operation: Operation, settled: set[bytes]) -> None:
        self._operation, self._settled = operation, settled

    def __call__(self, held: Held) -> bool:
        """Answer for one lease."""
        operation, args = self._operation, self._operation.args
        whole, _ = split_place(held.group)
        match operation.script:
            case "turn" | "claim" | "ack" | "nack":
                # Its own: the messages had expired. A lease that it tells of is still there.
                return held.number == operation.number or held.group in self._settled
            case "recover":
                return held.worker == args[0] and held.token > int(args[1])
            case "release":
                is_named = args[0] in (whole, held.group)
                return is_named and args[1] in (b"", b"%d" % held.token)
            case "purge":
                return whole in args[1:] or held.group in args[1:]
        return operation.script in BY_HAND


BY_HAND = ("lapse", "repair")
"""Scripts that may end any lease: `lapse` stands for the time that passes, see driver.py."""
