"""Which messages wait where, as the noted commands have it, and in which order must they end?"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from proof.findings import Findings, shown
from proof.history import Effect, id_of


class Move(NamedTuple):
    """An element joined or left a list."""

    id: str
    group: bytes
    element: bytes
    is_join: bool
    was_head: bool = False


class Letter(NamedTuple):
    """A message that was set aside."""

    entry: bytes
    element: bytes
    group: bytes
    reason: bytes


@dataclass(slots=True)
class Changes:
    """What one operation did to the messages of a shard."""

    moves: list[Move] = field(default_factory=list)
    """In the order in which they happened."""
    letters: dict[str, Letter] = field(default_factory=dict)
    """Of those set aside."""
    taken_back: dict[bytes, bytes] = field(default_factory=dict)
    """Elements of letters that are gone, by entry."""
    scheduled: dict[str, bytes] = field(default_factory=dict)
    unscheduled: dict[str, bytes] = field(default_factory=dict)

    def join(self, group: bytes, element: bytes) -> None:
        """Note that an element joined a list."""
        self.moves.append(Move(id_of(element), group, element, is_join=True))

    def leave(self, group: bytes, element: bytes, *, was_head: bool) -> None:
        """Note that an element left a list."""
        self.moves.append(Move(id_of(element), group, element, is_join=False, was_head=was_head))


class Lists:
    """The lists, dead letters and scheduled messages of one shard."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.groups: dict[bytes, deque[bytes]] = {}
        self.dead: dict[bytes, bytes] = {}
        """Elements by entry, oldest first."""
        self.scheduled: dict[str, bytes] = {}
        """What `scheduled:data` holds."""

    def heads(self, group: bytes, count: int) -> list[bytes]:
        """Return the first elements of a group."""
        return list(islice(self.groups.get(group, ()), count))

    def ids(self, group: bytes, count: int) -> list[str]:
        """Return the ids of the first messages of a group."""
        return [id_of(element) for element in self.heads(group, count)]

    def apply(self, effect: Effect, number: int, changes: Changes) -> None:
        """Do what a command did, and note it in the operation's changes."""
        kind, _, group = effect.key.partition(b":")
        if kind == b"q":
            self._apply_to_list(group, effect, number, changes)
        elif effect.key == b"dead":
            self._apply_to_letters(effect, number, changes)
        elif effect.key == b"scheduled:data":
            self._apply_to_scheduled(effect, changes)

    def _apply_to_list(self, group: bytes, effect: Effect, number: int, changes: Changes) -> None:
        elements = self.groups.setdefault(group, deque())
        command, arguments, reply = effect.command, effect.arguments, effect.reply
        expected: object = reply
        if command in ("RPUSH", "LPUSH"):
            (elements.extend if command == "RPUSH" else elements.extendleft)(arguments)
            expected = len(elements)
            for element in arguments:
                changes.join(group, element)
        elif command in ("LPOP", "RPOP"):
            count = min(int(arguments[0]) if arguments else 1, len(elements))
            pop = elements.popleft if command == "LPOP" else elements.pop
            gone = [pop() for _ in range(count)]
            expected = (gone or None) if arguments else (gone[0] if gone else None)
            for element in gone:
                changes.leave(group, element, was_head=command == "LPOP")
        elif command == "LREM":
            place = elements.index(arguments[1]) if arguments[1] in elements else None
            expected = 0 if place is None else 1
            if place is not None:
                del elements[place]
                changes.leave(group, arguments[1], was_head=place == 0)
        elif command in ("UNLINK", "DEL"):
            for element in elements:
                changes.leave(group, element, was_head=True)
            elements.clear()
        else:
            self._findings.note("I1", f"{command} of the list of {shown(group)}", number)
        if expected != reply:
            text = f"{command} of the list of {shown(group)} was answered {_short(reply)}"
            self._findings.note("I1", f"{text} where {_short(expected)} was to be expected", number)
        if not elements:
            del self.groups[group]

    def _apply_to_letters(self, effect: Effect, number: int, changes: Changes) -> None:
        if effect.command == "XADD":
            fields = dict(zip(effect.arguments[1::2], effect.arguments[2::2], strict=True))
            element = fields[b"element"]
            letter = Letter(effect.reply, element, fields[b"group"], fields[b"reason"])
            self.dead[letter.entry] = element
            changes.letters[id_of(element)] = letter
            return
        if effect.command == "XDEL":
            gone = [entry for entry in effect.arguments if entry in self.dead]
        else:  # trimmed, the oldest first, or thrown away by hand
            count = effect.reply if effect.command == "XTRIM" else len(self.dead)
            gone = list(islice(self.dead, count))
        changes.taken_back |= {entry: self.dead.pop(entry) for entry in gone}
        if effect.command in ("XDEL", "XTRIM") and len(gone) != effect.reply:
            text = f"{effect.reply} dead letters were taken out where {len(gone)} were to be had"
            self._findings.note("I1", text, number)

    def _apply_to_scheduled(self, effect: Effect, changes: Changes) -> None:
        if effect.command == "HSET":
            for name, data in zip(effect.arguments[::2], effect.arguments[1::2], strict=True):
                self.scheduled[name.decode()] = changes.scheduled[name.decode()] = data
            return
        gone = {name.decode(errors="replace") for name in effect.arguments}
        for known in (
            gone & self.scheduled.keys() if effect.command == "HDEL" else {*self.scheduled}
        ):
            changes.unscheduled[known] = self.scheduled.pop(known)


class Order:
    """In which order the messages of each group have to end, whatever their lists say."""

    def __init__(self) -> None:
        self._tail = self._front = 0
        self._keys: dict[str, tuple[bytes, int]] = {}
        self._heaps: dict[bytes, list[tuple[int, str]]] = {}

    def put_last(self, group: bytes, name: str) -> None:
        """A message comes after all that its group has."""
        self._tail += 1
        self._put(group, name, self._tail)

    def put_first(self, group: bytes, names: Sequence[str]) -> None:
        """Messages come before all that their group has, in the order given."""
        for name in reversed(names):
            self._front -= 1
            self._put(group, name, self._front)

    def forget(self, name: str) -> None:
        """A message has ended, or does not belong to the order of its group any more."""
        self._keys.pop(name, None)

    def first(self, group: bytes) -> str | None:
        """Return the message that has to end before all others of its group."""
        heap = self._heaps.get(group, [])
        while heap:
            key, name = heap[0]
            if self._keys.get(name) == (group, key):
                return name
            heapq.heappop(heap)
        self._heaps.pop(group, None)
        return None

    def _put(self, group: bytes, name: str, key: int) -> None:
        self._keys[name] = (group, key)
        heapq.heappush(self._heaps.setdefault(group, []), (key, name))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 100 else f"{text[:100]}…"
