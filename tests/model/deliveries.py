"""What becomes of messages? A plain description of what the documentation promises.

Where the server may choose, the model is told what it chose; `tests.model.following` says
whether it was free to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from groupqueue.core.calls import Settlement
from groupqueue.core.messages import Lease
from groupqueue.exceptions import DedupConflict, GroupFull
from tests.model.parts import AT_THE_FRONT, FAR, Doom, Group, Hold, Letter, Message, key_of
from tests.model.state import State

# What counts as dead is counted where it is set aside.
COUNTERS = {"retry": "retried", "release": "released", "halt": "halted"}


@dataclass
class Deliveries(State):
    """How messages are published, delivered and settled."""

    # Publishing ------------------------------------------------------------------------

    def publish(
        self, messages: Sequence[Message], *, max_depth: int = 0, arrival: str = "fair"
    ) -> dict[int, str]:
        """Store messages, all or none; return the first ids of duplicates, by number.

        Raises DedupConflict and GroupFull.
        """
        dedup, duplicates, fresh = dict(self.dedup), {}, []
        for number, message in enumerate(messages):
            if message.dedup_key:
                noted = (message.id, message.digest)
                first = dedup.setdefault(message.dedup_key, noted)
                if first[1] != message.digest:
                    raise DedupConflict(message.dedup_key, first[0])
                if first != noted:
                    duplicates[number] = first[0]
                    continue
            fresh.append(message)
        joining = [message for message in fresh if not message.is_for_later or message.hold]
        for name in dict.fromkeys(message.group for message in joining):
            depth = len(self.groups[name].messages) if name in self.groups else 0
            more = sum(message.group == name for message in joining)
            if max_depth and depth + more > max_depth:
                raise GroupFull(name, depth, max_depth)
        self.dedup = dedup
        self.counts.update(published=len(fresh), duplicates=len(duplicates))
        self.join(joining, arrival)
        for message in fresh:
            if message.is_for_later:
                (self.holding if message.hold else self.scheduled)[message.id] = message
        return duplicates

    def join(self, messages: Sequence[Message], arrival: str = "fair") -> None:
        """Append messages to their groups."""
        since = AT_THE_FRONT if arrival == "front" else self.step
        for message in messages:
            name = message.group
            if message.width and (message.width > 1 or name in self.widths):
                self.widths[name] = message.width
            group = self.groups.get(name)
            if group is None:
                tiers = [started.tier for started in self.started(name)]
                tier = tiers[0] if tiers else message.tier
                self.groups[name] = Group(name, name, tier, [message], since)
            else:
                group.messages.append(message)

    def promote(self) -> None:
        """Let scheduled messages that are due join their groups, in the order of their moments.

        No more than so many: the next turn goes on.
        """
        due = [m for m in (*self.scheduled.values(), *self.holding.values()) if m.has_come]
        due.sort(key=lambda message: (self.moments[message.id], message.id))
        due = due[: self.most_promoted]
        self.join([message for message in due if message.id in self.scheduled])
        for message in due:
            self.forget_moment(message)

    def cancel(self, identifier: str) -> str:
        """Take a scheduled message back."""
        message = self.scheduled.get(identifier) or self.holding.get(identifier)
        if message is None or (message.hold and message.has_come):
            return "not scheduled"
        if message.hold:
            group = self.groups[message.group]
            is_head = group.head is message
            group.messages.remove(message)
            self._undoom(group.name, [identifier])
            if is_head:
                group.forget_head()
                self.place(group)
        self.forget_moment(message)
        self.gone.add(identifier)
        self.counts["cancelled"] += 1
        if self.dedup.get(message.dedup_key, ("",))[0] == identifier:
            del self.dedup[message.dedup_key]
        return "ok"

    def reschedule(self, identifier: str, due: str) -> bool:
        """Change when a scheduled message is due."""
        message = self.scheduled.get(identifier) or self.holding.get(identifier)
        if message is None or (message.hold and message.has_come):
            return False
        message.has_come = due != FAR
        group = self.groups[message.group] if message.hold else None
        if group and group.head is message and not group.lease:
            self.place(group)
        return True

    def forget_moment(self, message: Message) -> None:
        """Drop what is noted of a message that is due, or not in its place any more."""
        for noted in (self.scheduled, self.holding, self.moments):
            noted.pop(message.id, None)
        message.has_come = False

    # Delivering ------------------------------------------------------------------------

    def settle(self, settlements: Sequence[Settlement]) -> list[tuple[str, int]]:
        """End deliveries whose lease holds; return a word and the messages left for each."""
        words, seen = [], set[str]()
        for settlement in settlements:
            key, group = key_of(settlement.lease), self.held(settlement.lease)
            if key in seen or not group:
                words.append(("stale", 0))
            elif group.head.id != settlement.lease.id:
                words.append(("moved", 0))
            else:
                seen.add(key)
                self._end(group, settlement)
                words.append(("ok", len(group.messages)))
        return words

    def _end(self, group: Group, settlement: Settlement) -> None:
        outcome, lease, value, error, done = settlement
        self._count_end(settlement)
        if lease.rest or lease.is_alone:
            self._note_end(group.key, settlement)
        if outcome != "ack" and done:
            self._finish(group, done)
            group.deliveries = 1
        if outcome == "ack":
            self._finish(group, done)
        elif outcome == "release":
            group.uncount()
            group.error = error or group.error
        else:
            group.failures += value != "poison"
            group.error = error
        if outcome == "halt":
            self.holds.setdefault(group.key, Hold()).halted = value
        failed = group.head.id if group.messages else ""
        if outcome in ("dead", "dead_group"):
            self._set_aside(group, value, error)
        whole = self.groups.get(group.name)
        if outcome == "dead_group" and whole and whole.messages:
            ids = [message.id for message in whole.messages]
            self.doomed[group.name] = Doom(ids, failed)
        self.end_lease(group, is_parked=outcome in ("retry", "release") and value != "0")

    def _count_end(self, settlement: Settlement) -> None:
        outcome, lease, _, _, done = settlement
        self.counts["acked"] += done
        if outcome in COUNTERS:
            self.counts[COUNTERS[outcome]] += 1
        self.counts["released"] += max(0, 1 + len(lease.rest) - done - (outcome != "ack"))

    def _note_end(self, key: str, settlement: Settlement) -> None:
        # Alone after a crash: with each that ends well, one less of those that were together.
        left = -self.together.pop(key, 0) if settlement.lease.is_alone else 0
        left -= settlement.outcome == "ack"
        self.together.pop(key, None)
        if left > 0 and settlement.outcome not in ("dead", "dead_group"):
            self.together[key] = -left

    def _finish(self, group: Group, count: int) -> None:
        self.gone |= {message.id for message in group.messages[:count]}
        del group.messages[:count]
        group.forget_head()

    def end_lease(self, group: Group, *, is_parked: bool = False) -> None:
        """Let a group go, whoever held it."""
        group.lease, group.has_place = None, False
        self.place(group, is_parked=is_parked)

    def renew(self, leases: Sequence[Lease], visibility_ms: int) -> list[Lease]:
        """Let leases last from now on; return those that do not hold any more."""
        lost = []
        for lease in leases:
            group = self.held(lease)
            if group and group.lease:
                group.lease.visibility_ms = visibility_ms
            else:
                lost.append(lease)
        return lost

    def recount(self, lease: Lease, change: int) -> str:
        """Count a leased message as not handed over yet, or as handed over after all."""
        group = self.held(lease)
        if not group or not group.lease:
            return "stale"
        if group.head.id != lease.id:
            return "moved"
        group.lease.is_counted = change > 0
        group.deliveries = max(0, group.deliveries + change)
        return "ok"

    def hand_back(self, group: Group) -> None:
        """End a lease as if its message had never been delivered."""
        assert group.lease
        group.uncount()
        self.counts["released"] += group.lease.together
        if group.lease.together > 1:
            del self.together[group.key]
        self.end_lease(group)

    def run_out(self, group: Group) -> None:
        """Let a lease end without a word: its message stays in flight, as far as one knows."""
        group.lease = None
        self.place(group)

    def place(self, group: Group, *, is_parked: bool = False) -> None:
        """Let a group be due, or parked, from this step on; a drained one is forgotten."""
        if not group.messages:
            self.forget(group)
            return
        group.since, group.is_put_off = self.step, False
        group.is_parked = is_parked and group.key not in self.holds

    def forget(self, group: Group) -> None:
        """Drop what is known of a group without messages; an operator's pause stays."""
        self.groups.pop(group.key, None)
        self.doomed.pop(group.key, None)
        self.end_halt(group.key)
        if group.name not in self.groups and not self.started(group.name):
            self.widths.pop(group.name, None)

    def end_halt(self, key: str) -> None:
        """Lift a halt whose head is gone."""
        hold = self.holds.get(key)
        if hold and hold.halted is not None:
            hold.halted = None
            if not hold.is_paused:
                del self.holds[key]

    def _set_aside(self, group: Group, reason: str, error: str) -> None:
        message = group.messages.pop(0)
        letter = Letter(message, group.name, group.tier, reason, error, group.deliveries,
            group.failures, self.widths.get(group.name))  # fmt: skip
        self.dead.append(letter)
        self.counts["dead"] += 1
        self.forget_moment(message)
        group.forget_head()

    def bury(self, group: Group, identifier: str) -> None:
        """Set the next message of a doomed group aside."""
        doom = self.doomed[group.key]
        assert group.head.id == identifier == doom.ids[0], "what is set aside is not next"
        self._set_aside(group, "group", f"it waited behind message {doom.behind}")
        self._undoom(group.key, [identifier])
        self.place(group)

    def drop_expired(self, group: Group, identifier: str) -> None:
        """Drop the expired head of a group."""
        assert group.head.id == identifier, f"{identifier} was dropped, and is not the head"
        assert group.head.expires == "passed", f"{identifier} has not expired"
        self._finish(group, 1)
        self.counts["expired"] += 1
        group.has_place = False
        self.place(group)

    def _undoom(self, name: str, ids: Sequence[str]) -> None:
        doom = self.doomed.get(name)
        if doom:
            doom.ids = [identifier for identifier in doom.ids if identifier not in ids]
            if not doom.ids:
                del self.doomed[name]
