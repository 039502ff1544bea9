"""May each operation of a shard do what it did, after all those before it?"""

from __future__ import annotations

from collections.abc import Callable

from groupqueue.core.messages import Lease, split_place
from proof import history
from proof.bounds import most_commands
from proof.findings import Findings, shown
from proof.history import Operation, Settlement
from proof.leases import Held, Leases, MayEnd
from proof.places import DEAD, DONE, Places, Placing

REMEMBERED_US = 590_000_000
"""How long the server knows a publisher's last call at least."""

# Which argument of an operator's script names the operation.
_OPERATIONS = {"pause": 2, "resume": 1, "stop": 1, "start": 0, "skip": 2, "release": 2, "cancel": 1}
_SET_ASIDE = ("dead", "dead_group")


class Judge:
    """Follows the operations of one shard."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.leases = Leases(findings)
        self.places = Places(findings, self.leases)
        self.holds: dict[bytes, set[str]] = {}
        """Why groups are not to be leased: `paused`, `halted`; of the empty one `stopped`."""
        self.calls: dict[bytes, tuple[int, int]] = {}
        """The number of each publisher's last call, and when it was."""
        self.given_up: dict[bytes, tuple[int, int]] = {}
        """Up to which number turns of each worker claim nothing, and since when."""
        self._last_number = 0
        self._is_special = False
        """Whether the shard has had wide groups, rates or groups that were set aside."""

    def follow(self, operation: Operation) -> None:
        """Replay an operation, and judge it."""
        number, script = operation.number, operation.script
        if number != self._last_number + 1:
            self.findings.note("I1", f"operation {number} follows {self._last_number}", number)
        self._last_number = number
        if operation.error and operation.effects:
            self.findings.note("I8", f"{script} failed half-way: {operation.error}", number)
        _Step(self, operation).take()
        self._is_special = self._is_special or _is_special(operation)
        most = most_commands(operation, is_special=self._is_special)
        if operation.commands > most:
            text = f"{script} called {operation.commands} commands; {most} would be many"
            self.findings.note("I9", text, number)


class _Step:
    """One operation, while it is judged."""

    def __init__(self, judge: Judge, operation: Operation) -> None:
        self.judge, self.operation = judge, operation
        self.leases, self.places = judge.leases, judge.places
        self.script, self.args, self.at_us = operation.script, operation.args, operation.at_us
        self.ended: dict[str, str] = {}
        """Messages that accepted settlements end, and where those go."""
        self.settled: set[bytes] = set()
        """Groups whose settlements were accepted."""
        self.refused: set[bytes] = set()
        """Groups of which a settlement was refused."""

    def take(self) -> None:
        """Judge and replay."""
        is_repeated = self._is_repeated()
        if is_repeated and self.operation.effects:
            self._note("I8", f"a repeated {self.script} had effects")
        for settlement in history.settlements(self.operation):
            self._settle(settlement)
        if not self.operation.error:
            self._renew()
            self._recount()
        self._check_refused()
        may_end = MayEnd(self.operation, self.settled)
        self._hand_back(may_end)
        placing = Placing(self.places, self.operation, self.ended)
        for effect in self.operation.effects:
            self.places.lists.apply(effect, self.operation.number, placing.changes)
            self.leases.apply(effect, self.operation, may_end)
        placing.judge()
        self._check_ended()
        told = history.leases(self.operation)
        if told:
            self._check_given_up()
        for lease in told:
            self._tell(lease)
        self._operate()

    # Settling ------------------------------------------------------------------------------

    def _settle(self, settlement: Settlement) -> None:
        if settlement.word != "ok":
            self.judge.findings.counts["stale_settles"] += 1
            self.refused.add(settlement.group)
            return
        group, is_set_aside = settlement.group, settlement.outcome in _SET_ASIDE
        done = settlement.done + is_set_aside
        ids = self.places.lists.ids(group, max(1, done))
        self._check_settlement(settlement, ids, done)
        self.settled.add(group)
        self.ended |= dict.fromkeys(ids[:done], DONE)
        if is_set_aside and ids:
            self.ended[ids[-1]] = DEAD
        if settlement.outcome == "dead_group":
            self._doom(group, done)
        if settlement.outcome == "halt":
            self.judge.holds.setdefault(group, set()).add("halted")
        self.leases.count_settlement(settlement)

    def _check_settlement(self, settlement: Settlement, ids: list[str], done: int) -> None:
        """An accepted settlement is by the holder, of its head, and of what it holds."""
        group = settlement.group
        named = f"{settlement.outcome} of {shown(group)} under token {settlement.token}"
        held = self.leases.current.get(group)
        if not self._is_valid(held, settlement.token):
            is_held = held is not None and not held.is_over(self.at_us)
            whose = f"{held.token} holds it" if held and is_held else "nobody holds it"
            self._note("I5", f"{named} was accepted, but {whose}")
        elif group in self.settled:
            self._note("I5", f"{named} was accepted twice in one call")
        if ids[:1] != [settlement.id]:
            head = ids[0] if ids else "nothing"
            text = f"{named} was accepted for message {settlement.id}, but {head} is the head"
            self._note("I5", text)
        elif held is not None and not set(ids[:done]) <= set(held.ids):
            self._note("I1", f"{named} ended messages that were not leased: {ids[:done]}")

    def _check_refused(self) -> None:
        """What is refused changes nothing: nobody but its holder touches a leased group."""
        is_alone = self.script in ("ack", "nack")
        for effect in self.operation.effects:
            kind, _, group = effect.key.partition(b":")
            is_touched = kind in (b"q", b"lock") and effect.command not in ("RPUSH", "SET")
            is_others = is_touched and self.leases.holding(group, self.at_us) is not None
            if group in self.refused - self.settled and (is_alone or is_others):
                text = f"{effect.command} of {effect.key.decode(errors='backslashreplace')}"
                self._note("I5", f"a refused settlement of {shown(group)} had an effect: {text}")

    def _check_ended(self) -> None:
        """An accepted settlement ends its lease, and so does a purge."""
        purged = self.args[1:] if self.script == "purge" else ()
        for group in {*self.settled, *purged}:
            held = self.leases.current.get(group)
            if held and held.number != self.operation.number and held.holds(self.at_us):
                text = f"the lease of {shown(group)} under token {held.token} goes on"
                self._note("I4", f"{text} after {self.script}")

    def _doom(self, group: bytes, done: int) -> None:
        """All that waits behind the head of a group is to follow it."""
        whole, place = split_place(group)
        behind = self.places.lists.ids(whole, len(self.places.lists.groups.get(whole, ())))
        self.places.doomed[whole] = set(behind if place else behind[done:])

    def _renew(self) -> None:
        if self.script != "renew":
            return
        extended = {effect.key[5:] for effect in self.operation.effects if effect.reply}
        words = enumerate(self.operation.reply)
        accepted = {self.args[2 + place * 2] for place, word in words if word == b"ok"}
        for place, word in enumerate(self.operation.reply):
            group, token = self.args[2 + place * 2], int(self.args[3 + place * 2])
            is_ok, named = word == b"ok", f"a renewal of {shown(group)} under token {token}"
            if is_ok and not self._is_valid(self.leases.current.get(group), token):
                self._note("I5", f"{named} was accepted, which is not that of its lease")
            if is_ok and group not in extended:
                self._note("I4", f"{named} was accepted, and changed nothing")
            if not is_ok and group in extended - accepted:
                self._note("I5", f"{named} was refused, and had an effect")

    def _recount(self) -> None:
        if self.script != "recount" or self.operation.word != b"ok":
            return
        group, token, name, change = self.args
        is_valid = self._is_valid(self.leases.current.get(group), int(token))
        if not is_valid or self.places.lists.ids(group, 1) != [name.decode(errors="replace")]:
            text = f"a recount of {shown(group)} under token {int(token)} was accepted"
            self._note("I5", f"{text}, which is not that of its lease")
        count = self.leases.counts[group]
        count.deliveries = max(0, count.deliveries + int(change))

    def _hand_back(self, may_end: MayEnd) -> None:
        """Leases that are handed back do not count as hand-overs."""
        if self.script not in ("release", "recover"):
            return
        for effect in self.operation.effects:
            held = self.leases.current.get(effect.key[5:])
            if effect.command == "DEL" and held is not None and may_end(held):
                self.leases.counts[held.group].take_back()

    def _is_valid(self, held: Held | None, token: int) -> bool:
        return held is not None and held.token == token and not held.is_over(self.at_us)

    # Claiming -------------------------------------------------------------------------------

    def _check_given_up(self) -> None:
        """A turn that its worker does not wait for any more leases nothing."""
        upto, at_us = self.judge.given_up.get(self.args[0], (0, 0))
        number = int(self.args[1]) if self.script == "turn" else 0
        if 0 < number <= upto and self.at_us - at_us < REMEMBERED_US:
            self._note(
                "I8", f"turn {number} of {self.args[0]!r} leased groups after it was given up"
            )

    def _tell(self, lease: Lease) -> None:
        """A worker was told of a lease."""
        places, group = self.places, lease.key
        held = self.leases.tell(lease, self.operation)
        if held is None:
            return
        heads = places.lists.ids(group, len(held.ids))
        if heads != held.ids:
            text = f"{held.ids} were leased of {shown(group)}, which begins with {heads}"
            self._note("I3", text)
        first = places.order.first(group)
        if first is not None and first != held.ids[0]:
            text = f"message {held.ids[0]} of {shown(group)} was leased before {first} had ended"
            self._note("I3", text, count="out_of_order")
        for known in filter(None, map(places.messages.get, held.ids)):
            how = "redelivered" if known.deliveries else "delivered"
            self.judge.findings.counts[how] += 1
            known.deliveries += 1
        for key in {group, split_place(group)[0], b""}:
            if why := self.judge.holds.get(key):
                self._note("I7", f"{shown(group)} was leased while {' and '.join(sorted(why))}")

    # What operators and repetitions do --------------------------------------------------

    def _is_repeated(self) -> bool:
        """Whether an operation says that it has taken effect before; note when that is wrong."""
        caller, sequence = b"", 1
        if self.script in ("publish", "publish_with"):
            caller, sequence = self.args[0], int(self.args[1])
        elif self.script in _OPERATIONS:
            caller = self.args[_OPERATIONS[self.script]]
        if not caller or self.operation.error:
            return False
        last, last_us = self.judge.calls.get(caller, (0, 0))
        is_known = sequence <= last and self.at_us - last_us < REMEMBERED_US
        word, named = self.operation.word, f"{self.script} {sequence} under {caller!r}"
        if is_known and word != b"repeated":
            self._note("I8", f"{named} had been done, and was answered {word!r}")
        if word == b"repeated" and sequence > last:
            self._note("I8", f"{named} was said to be a repetition")
        if word == b"ok":
            self.judge.calls[caller] = (sequence, self.at_us)
        return word == b"repeated"

    def _operate(self) -> None:
        """Note what holds groups, or does no more."""
        if self.script == "recover" and self.args[2] != b"0" and not self.operation.error:
            self.judge.given_up[self.args[0]] = (int(self.args[2]), self.at_us)
        if self.script == "purge":
            self._purge(set(self.args[1:]))
        if self.operation.word != b"ok":
            return
        holds = self.judge.holds
        match self.script:
            case "pause":
                holds.setdefault(self.args[0], set()).add("paused")
            case "stop":
                holds.setdefault(b"", set()).add("stopped")
            case "start":
                holds.pop(b"", None)
            case "resume":
                self._resume(self.args[0])
            case "cancel":
                self.places.free_key_of(self.args[0].decode(errors="replace"))
            case "skip":
                drained = self.places.lists.groups
                self._end_halts(lambda group: group not in drained or group == self.args[0])

    def _resume(self, whole: bytes) -> None:
        """A group goes on, and what was started of it; what had been exhausted begins anew."""
        holds = self.judge.holds
        for group in [one for one in holds if whole in (one, split_place(one)[0])]:
            if "halted" in holds.pop(group):
                self.leases.counts.pop(group, None)

    def _purge(self, purged: set[bytes]) -> None:
        self._end_halts(lambda group: bool({group, split_place(group)[0]} & purged))
        for group in purged:
            self.places.doomed.pop(group, None)

    def _end_halts(self, is_meant: Callable[[bytes], bool]) -> None:
        """The halted heads of groups are gone; an operator's pause stays."""
        for group, why in list(self.judge.holds.items()):
            if "halted" in why and is_meant(group):
                why.discard("halted")
                if not why:
                    del self.judge.holds[group]

    def _note(self, invariant: str, text: str, *, count: str = "") -> None:
        self.judge.findings.note(invariant, text, self.operation.number, count=count)


def _is_special(operation: Operation) -> bool:
    """Whether an operation brings something into use that costs others commands."""
    if operation.script in ("rate", "redrive"):
        return True
    if operation.script == "turn":
        has_rates = operation.args[8] or operation.args[9]
        return bool(has_rates) or b"dead_group" in operation.args[11::7]
    return any(effect.key == b"wide" for effect in operation.effects)
