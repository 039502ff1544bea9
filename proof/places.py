"""Where is each message after an operation, and had it any right to go there?"""

from __future__ import annotations

from dataclasses import dataclass

from groupqueue.core.messages import split_element, split_place
from proof import history
from proof.findings import Findings, shown
from proof.history import Operation, Sent, id_of
from proof.leases import BY_HAND, Leases
from proof.lists import Changes, Lists, Move, Order

WAITING, SCHEDULED, DEAD, DONE, LOST = "waiting", "scheduled", "dead", "done", "lost"
CLOCKS_US = 1_000_000
"""How much sooner than told a key may be forgotten, on a server of another's clock."""


@dataclass(slots=True, eq=False)
class Known:
    """Where a message is."""

    id: str
    group: bytes
    place: str
    """`waiting`, `scheduled`, `dead` or why it ended: `done`, `expired`, `lost`, ..."""
    number: int
    """Of the operation that brought it there."""
    deliveries: int = 0


class Places:
    """All messages of a shard."""

    def __init__(self, findings: Findings, leases: Leases) -> None:
        self.findings, self.leases = findings, leases
        self.lists = Lists(findings)
        self.order = Order()
        self.messages: dict[str, Known] = {}
        self.duplicates: set[str] = set()
        """Messages that were left out since another was published under their key."""
        self.letters: dict[bytes, str] = {}
        """Which message each dead letter is."""
        self.doomed: dict[bytes, set[str]] = {}
        """Messages that are to follow the failed head of their group."""
        self.keys: dict[bytes, tuple[str, int]] = {}
        """Who was published under each dedup key, and until when that counts."""

    def know(self, name: str, group: bytes, place: str, number: int) -> None:
        """Note where a message is."""
        known = self.messages.get(name)
        if known is None:
            self.messages[name] = Known(name, group, place, number)
        else:
            known.place, known.number = place, number
        if place not in (WAITING, SCHEDULED):
            self.order.forget(name)

    def is_waiting(self, name: str) -> bool:
        """Whether a message is in the list of a group."""
        known = self.messages.get(name)
        return known is not None and known.place == WAITING

    def free_key_of(self, name: str) -> None:
        """A message was taken back: its dedup key is free again."""
        self.keys = {key: noted for key, noted in self.keys.items() if noted[0] != name}


class Placing:
    """What one operation does to messages; `ended` says which ones accepted settlements end."""

    def __init__(self, places: Places, operation: Operation, ended: dict[str, str]) -> None:
        self.places, self.operation, self.ended = places, operation, ended
        self.number, self.script, self.args = operation.number, operation.script, operation.args
        self.at_us = operation.at_us
        self.changes = Changes()
        self.sent = {message.id: message for message in history.sent(operation)}
        self._may_come_first = self._find_leased() if operation.script == "redrive" else {}

    def judge(self) -> None:
        """Find out where each message is now, once all effects have been applied."""
        places, changes = self.places, self.changes
        for name, last in {move.id: move for move in changes.moves}.items():
            if not last.is_join:
                places.order.forget(name)
        published = self._published()
        gone = self._follow_moves(published)
        for move in gone.values():
            self._leave(move)
        for name, place in self.ended.items():
            if name not in gone:
                self._note("I1", f"message {name} is {place}, and waits on")
        for name, letter in changes.letters.items():
            places.letters[letter.entry] = name
            if name not in gone or gone[name].element != letter.element:
                self._note("I1", f"message {name} was set aside, and is not gone from its group")
            elif letter.group != split_place(gone[name].group)[0]:
                text = f"message {name} of {shown(gone[name].group)} was set aside as one of"
                self._note("I1", f"{text} {shown(letter.group)}")
        for name in changes.scheduled.keys() - published:
            self._note("I8", f"message {name} was scheduled by {self.script}")
        for entry, element in changes.taken_back.items():
            self._take_back(entry, element)
        for name, data in changes.unscheduled.items():
            self._unschedule(name, history.scheduled(data).group)
        self._put_in_order()

    def _follow_moves(self, published: set[str]) -> dict[str, Move]:
        """Judge what joined and what went from list to list; return what is in none any more."""
        under_way: dict[str, Move] = {}
        returned = {id_of(element): element for element in self.changes.taken_back.values()}
        may_join = {*published, *self.changes.unscheduled, *returned}
        for move in self.changes.moves:
            if not move.is_join:
                if move.id in under_way:
                    self._note("I8", f"message {move.id} left {shown(move.group)} twice")
                under_way[move.id] = move
            elif move.id in under_way:
                self._carry(under_way.pop(move.id), move)
            elif move.id in may_join:
                self._join(move, returned)
            else:
                text = f"message {move.id} appeared in {shown(move.group)} by {self.script}"
                self._note("I8", text)
                self._know(move.id, move.group, WAITING)
        return under_way

    # Joining ------------------------------------------------------------------------------

    def _published(self) -> set[str]:
        """Return the ids that an accepted publish may let join; note those that join later."""
        if self.operation.word != b"ok":
            return set()
        left_out = history.duplicates(self.operation)
        joined = {move.id for move in self.changes.moves}
        for message in self.sent.values():
            if message.number in left_out:
                self._leave_out(message, left_out[message.number])
                continue
            self._use_key(message)
            of = f"message {message.id} of {shown(message.group)}"
            if message.id in self.places.messages:
                self._note("I8", f"{of} was published again")
            elif message.is_later and message.id in self.changes.scheduled:
                noted = history.scheduled(self.changes.scheduled[message.id])
                self._check_stored(message, noted.group, noted.element)
                self._know(message.id, message.group, SCHEDULED)
            elif message.id not in joined:
                self._note("I1", f"{of} was published, and is nowhere", count="lost")
                self._know(message.id, message.group, LOST)
        return {message.id for message in self.sent.values() if message.number not in left_out}

    def _leave_out(self, message: Sent, first: str) -> None:
        self.places.duplicates.add(message.id)
        text = f"message {message.id} was left out as a duplicate of {first}"
        if first not in self.places.messages and first not in self.sent:
            self._note("I8", f"{text}, which nobody published")
            return
        noted, until_us = self.places.keys.get(message.dedup_key, ("", 0))
        if noted != first:
            self._note("I1", f"{text}, which has not its key", count="lost")
        elif self.at_us > until_us + CLOCKS_US:
            self._note("I1", f"{text}, whose key was free again", count="lost")

    def _use_key(self, message: Sent) -> None:
        if not message.dedup_key:
            return
        first, until_us = self.places.keys.get(message.dedup_key, ("", 0))
        if first not in ("", message.id) and self.at_us < until_us - CLOCKS_US:
            self._note("I8", f"messages {first} and {message.id} were published under one key")
        ends_us = self.at_us + message.dedup_ms * 1000
        self.places.keys[message.dedup_key] = (message.id, ends_us)

    def _join(self, move: Move, returned: dict[str, bytes]) -> None:
        """A message is in a list that was in none."""
        name, (group, _) = move.id, split_place(move.group)
        known = self.places.messages.get(name)
        if name in self.sent:
            self._check_stored(self.sent[name], move.group, move.element)
        elif name in self.changes.unscheduled:
            expected = history.scheduled(self.changes.unscheduled[name])
            self._check_as_before(expected.group, expected.element, move)
        else:
            self._check_as_before(known.group if known else group, returned[name], move)
        if self.places.is_waiting(name):
            self._note("I8", f"message {name} waits in {shown(move.group)} twice")
        self._know(name, group, WAITING)

    def _check_stored(self, message: Sent, group: bytes, element: bytes) -> None:
        """What is stored is what was sent, and lives as long as it is to live."""
        _, _, expires_ms, body = split_element(element)
        asked_ms = message.expires_ms
        lives_until_ms = 0 if asked_ms is None else self.at_us // 1000 + asked_ms
        if (group, body, expires_ms) != (message.group, message.body, lives_until_ms):
            text = f"message {message.id} is not what was published to {shown(message.group)}"
            self._note("I1", text)

    def _check_as_before(self, group: bytes, element: bytes, move: Move) -> None:
        """What waited elsewhere joins the group that it was for, as it was."""
        if (move.group, move.element) != (group, element):
            self._note("I1", f"message {move.id} is not what was to join {shown(group)}")

    def _carry(self, left: Move, joined: Move) -> None:
        """A message left one list for another: of a wide group, or in a redrive."""
        whole, place = split_place(joined.group)
        is_start = whole == left.group and place.decode(errors="replace") == left.id
        if is_start and self.script in ("turn", "claim"):
            self._start(left, joined.group)
        elif self.script != "redrive" or left.group != joined.group:
            text = f"{self.script} moved message {left.id} of {shown(left.group)} from its place"
            self._note("I3", text)

    def _start(self, left: Move, group: bytes) -> None:
        places, whole = self.places, left.group
        first = places.order.first(whole)
        if first not in (left.id, None):
            text = f"message {left.id} of {shown(whole)} was started before {first}"
            self._note("I3", text, count="out_of_order")
        if places.leases.holding(whole, self.at_us):
            text = f"a message of {shown(whole)} was started while all of it was leased"
            self._note("I4", text)
        places.order.forget(left.id)
        places.leases.start(whole, group)

    # Leaving ------------------------------------------------------------------------------

    def _leave(self, move: Move) -> None:
        """A message is in no list any more."""
        place = self.ended.get(move.id) or self._reason(move)
        if place == DEAD and move.id not in self.changes.letters:
            place = None
        if place is None:
            text = f"{self.script} took message {move.id} out of {shown(move.group)}"
            self._note("I1", text, count="lost")
        if move.id not in self.ended and move.was_head:
            self.places.leases.counts.pop(move.group, None)
        self._know(move.id, split_place(move.group)[0], place or LOST)

    def _reason(self, move: Move) -> str | None:
        """Return where a message went that no settlement ended; None when it may not go."""
        whole, _ = split_place(move.group)
        held = self.places.leases.holding(move.group, self.at_us)
        is_leased = held is not None and held.number != self.number and move.id in held.ids
        if self.script == "purge":  # what is leased as well
            return "purged" if {whole, move.group} & set(self.args[1:]) else None
        if is_leased:
            return None
        if self.script in ("turn", "claim"):
            return self._taken_by_a_turn(move, whole)
        named = {"skip": (1, DEAD), "cancel": (0, "cancelled")}.get(self.script)
        if named is None or self.operation.word != b"ok":
            return None
        return named[1] if self.args[named[0]].decode(errors="replace") == move.id else None

    def _taken_by_a_turn(self, move: Move, whole: bytes) -> str | None:
        letter = self.changes.letters.get(move.id)
        if letter is not None:
            is_doomed = move.id in self.places.doomed.get(whole, set())
            return DEAD if is_doomed and letter.reason == b"group" else None
        expires_ms = split_element(move.element)[2]
        return "expired" if 0 < expires_ms * 1000 <= self.at_us else None

    def _take_back(self, entry: bytes, element: bytes) -> None:
        """A dead letter is gone."""
        name = self.places.letters.pop(entry, id_of(element))
        if self.script == "redrive" and self.places.is_waiting(name):
            return
        place = {"drop": "dropped", "trim": "trimmed"}.get(self.script)
        if place is not None and not self._may_go(entry):
            place = None
            text = f"{self.script} took the dead letter of message {name} away"
            self._note("I1", text, count="lost")
        known = self.places.messages.get(name)
        if known is not None and known.place == DEAD:
            known.place, known.number = place or LOST, self.number

    def _may_go(self, entry: bytes) -> bool:
        """Whether a dead letter is one that was to be thrown away: it is named, or too old, or
        one too many; of the latter the oldest go."""
        if self.script == "drop":
            return entry in self.args[1:]
        max_age_ms, max_count = self.args
        left = self.places.lists.dead
        oldest = next(iter(left), None)
        if oldest is not None and _moment(oldest) < _moment(entry):
            return False
        is_too_old = max_age_ms and _moment(entry)[0] < self.at_us // 1000 - int(max_age_ms)
        return bool(is_too_old or (max_count and len(left) >= int(max_count)))

    def _unschedule(self, name: str, group: bytes) -> None:
        """A message is scheduled no more."""
        known = self.places.messages.get(name)
        if known is None or known.place != SCHEDULED:
            return
        is_named = self.operation.word == b"ok" and self.args[0].decode(errors="replace") == name
        if self.script == "cancel" and is_named:
            known.place, known.number = "cancelled", self.number
        elif self.script not in BY_HAND:
            text = f"{self.script} forgot scheduled message {name} of {shown(group)}"
            self._note("I1", text, count="lost")
            known.place, known.number = LOST, self.number

    # The order in which messages have to end ------------------------------------------------

    def _put_in_order(self) -> None:
        order, joins = self.places.order, [move for move in self.changes.moves if move.is_join]
        if self.script == "redrive":
            self._order_redriven()
        elif self.sent:  # as they were sent, whatever the script did
            joined = {move.id for move in joins}
            for message in self.sent.values():
                if message.id in joined:
                    order.put_last(message.group, message.id)
        else:
            for move in joins:
                is_new = split_place(move.group)[1] or move.id in self.changes.unscheduled
                if is_new and self.places.is_waiting(move.id):
                    order.put_last(move.group, move.id)

    def _find_leased(self) -> dict[bytes, list[list[str]]]:
        """Return which heads may come before letters that return to the front, by group: those
        leased, if any; both when it is the moment at which a lease runs out."""
        found: dict[bytes, list[list[str]]] = {}
        for effect in self.operation.effects:
            if effect.command not in ("LPUSH", "RPUSH"):
                continue
            group = effect.key[2:]
            held = self.places.leases.current.get(group)
            leased = held.ids if held and group in self.places.lists.groups else []
            found[group] = [leased] if held and not held.is_over(self.at_us) else [[]]
            if held and not held.holds(self.at_us):
                found[group].append([])
        return found

    def _order_redriven(self) -> None:
        places, elements = self.places, self.changes.taken_back
        by_group: dict[bytes, list[str]] = {}
        for entry in dict.fromkeys(self.args[2:]):
            known = places.messages.get(id_of(elements[entry])) if entry in elements else None
            if known is not None:
                by_group.setdefault(known.group, []).append(known.id)
        for group, names in by_group.items():
            if self.args[0] == b"front":
                self._order_in_front(group, names)
            else:
                for name in names:
                    places.order.put_last(group, name)

    def _order_in_front(self, group: bytes, names: list[str]) -> None:
        places, options = self.places, self._may_come_first.get(group, [[]])
        heads = places.lists.ids(group, max(map(len, options)) + len(names))
        fits = [leased for leased in options if heads[: len(leased + names)] == leased + names]
        if not fits:
            text = f"dead letters {names} of {shown(group)}, of which {options[0]} were leased"
            self._note("I3", f"{text}, returned so that it begins with {heads}")
        leased = (fits or options)[0]
        places.order.put_first(group, leased + names)
        places.doomed.pop(group, None)
        if not leased:
            places.leases.counts.pop(group, None)

    def _know(self, name: str, group: bytes, place: str) -> None:
        self.places.know(name, group, place, self.number)

    def _note(self, invariant: str, text: str, *, count: str = "") -> None:
        self.places.findings.note(invariant, text, self.number, count=count)


def _moment(entry: bytes) -> tuple[int, int]:
    """Return when a dead letter was written, as its stream orders them."""
    ms, _, number = entry.partition(b"-")
    return int(ms), int(number)
