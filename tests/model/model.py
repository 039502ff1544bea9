"""What should a queue hold? A plain description of what the documentation promises.

Moments are either past or far away, so that nothing here depends on a clock. Where the
server may choose, the model is told what it chose; `tests.model.following` says whether it
was free to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from groupqueue.core.calls import Settlement
from groupqueue.exceptions import DedupConflict, GroupFull
from tests.model.parts import (
    AT_THE_FRONT,
    FAR,
    Doom,
    Group,
    Hold,
    Letter,
    Message,
    key_of,
    started_key,
)


@dataclass
class Model:
    """A queue."""

    step: int = 0
    groups: dict[str, Group] = field(default_factory=dict)
    scheduled: dict[str, Message] = field(default_factory=dict)
    holding: dict[str, Message] = field(default_factory=dict)
    """Messages in their places that were published to hold their groups."""
    moments: dict[str, int] = field(default_factory=dict)
    """When messages of either kind are due; the server's clock decides."""
    holds: dict[str, Hold] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)
    doomed: dict[str, Doom] = field(default_factory=dict)
    together: dict[str, int] = field(default_factory=dict)
    """How many messages of a group were leased together, and no settlement told of; once they
    go alone, how many still have to, negative."""
    dedup: dict[str, tuple[str, str]] = field(default_factory=dict)
    dead: list[Letter] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    rates: dict[str, int | None] = field(default_factory=dict)
    """What operators say: so many at once and then one an hour, or None for any number."""
    used: dict[str, int] = field(default_factory=dict)
    is_stopped: bool = False
    last_token: int = 0
    given_up: dict[str, int] = field(default_factory=dict)

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
            if message.width:
                self.widths[name] = message.width
            group = self.groups.get(name)
            if group is None:
                tiers = [started.tier for started in self.started(name)]
                tier = tiers[0] if tiers else message.tier
                self.groups[name] = Group(name, name, tier, [message], since)
            else:
                group.messages.append(message)

    def promote(self) -> None:
        """Let scheduled messages that are due join their groups, in the order of their moments."""
        due = [m for m in (*self.scheduled.values(), *self.holding.values()) if m.has_come]
        due.sort(key=lambda message: (self.moments[message.id], message.id))
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
            key, group = key_of(settlement.lease), self.groups.get(key_of(settlement.lease))
            held = group and group.lease
            if key in seen or not group or not held or held.token != settlement.lease.token:
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
        if lease.rest or lease.is_alone:
            self._note_end(group.key, settlement)
        if outcome != "ack" and done:
            self._finish(group, done)
            group.deliveries = 1
        if outcome == "ack":
            self._finish(group, done)
        elif outcome == "release":
            group.deliveries -= 1
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

    def hand_back(self, group: Group) -> None:
        """End a lease as if its message had never been delivered."""
        group.deliveries -= 1
        if group.lease and group.lease.together > 1:
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
        group.has_place = False
        self.place(group)

    def _undoom(self, name: str, ids: Sequence[str]) -> None:
        doom = self.doomed.get(name)
        if doom:
            doom.ids = [identifier for identifier in doom.ids if identifier not in ids]
            if not doom.ids:
                del self.doomed[name]

    # What operators do -----------------------------------------------------------------

    def pause(self, name: str) -> bool:
        """Hold a group."""
        if name in self.holds:
            return False
        self.holds[name] = Hold(is_paused=True)
        if name in self.groups:
            self.groups[name].is_parked = False
        return True

    def resume(self, name: str) -> bool:
        """Let a group go on, and what was started of it."""
        keys = [name, *(started.key for started in self.started(name))]
        keys = [key for key in keys if key in self.holds]
        for key in keys:
            hold, group = self.holds.pop(key), self.groups.get(key)
            if group and hold.halted is not None:
                group.forget_head()
            if group:
                self.place(group)
        return bool(keys)

    def skip(self, name: str, identifier: str) -> str:
        """Set a head that nobody holds aside."""
        group = self.groups.get(started_key(name, identifier)) or self.groups.get(name)
        if group and group.lease:
            return "leased"
        if not group or group.head.id != identifier:
            return "moved"
        self._set_aside(group, "skipped", group.error or "")
        self._undoom(group.key, [identifier])
        self.end_halt(group.key)
        group.has_place = False
        self.place(group)
        return "ok"

    def set_tier(self, name: str, tier: int) -> bool:
        """Move a group, and what was started of it."""
        groups = list(self.whole(name))
        for group in groups:
            group.tier = tier
        return bool(groups)

    def release(self, name: str, token: int | None) -> bool:
        """End the leases of a group, or only that with the token."""
        leased = [group for group in self.whole(name) if group.lease]
        leased = [g for g in leased if g.lease and token in (None, g.lease.token)]
        for group in leased:
            self.hand_back(group)
        return bool(leased)

    def recover(self, worker: str, after_token: int, upto_turn: int) -> int:
        """Hand back the leases that a worker has not heard of."""
        leased = [group for group in self.groups.values() if group.lease]
        lost = [g for g in leased if g.lease and g.lease.worker == worker
            and g.lease.token > after_token]  # fmt: skip
        for group in lost:
            self.hand_back(group)
        if upto_turn:
            self.given_up[worker] = upto_turn
        return len(lost)

    def purge(self, name: str) -> tuple[int, int]:
        """Throw a group's messages away, the leased ones too; return groups and messages."""
        count = 0
        for group in list(self.whole(name)):
            for message in group.messages:
                self.forget_moment(message)
                self.gone.add(message.id)
                count += 1
            group.messages.clear()
            self.together.pop(group.key, None)
            self.forget(group)
        self.together.pop(name, None)
        return min(count, 1), count

    def redrive(self, letters: Sequence[Letter], *, to_tail: bool) -> None:
        """Put dead letters back, given in order."""
        for name in dict.fromkeys(letter.group for letter in letters):
            mine = [letter for letter in letters if letter.group == name]
            messages = [replace(letter.message, due="", hold=False) for letter in mine]
            for letter in mine:
                self.dead.remove(letter)
            tiers = [started.tier for started in self.started(name)]
            widths = [letter.width for letter in mine if letter.width]
            group = self.groups.get(name)
            if widths and not self.depth(name):
                self.widths[name] = widths[0]
            if group is None:
                tier = tiers[0] if tiers else mine[0].tier
                self.groups[name] = Group(name, name, tier, messages, self.step)
            elif to_tail:
                group.messages += messages
            elif group.lease:
                behind = group.lease.together
                group.messages[behind:behind] = messages
            else:
                if group.is_parked or self.waits_for_its_head(group):
                    self.place(group)
                group.forget_head()
                group.messages[:0] = messages
                self.doomed.pop(name, None)

    def rate(self, name: str, burst: int | str | None) -> None:
        """Say how often messages may be delivered; "" is what the settings say."""
        if self.rates.get(name, "") == burst:
            return
        self.used.pop(name, None)
        self.rates.pop(name, None)
        if not isinstance(burst, str):
            self.rates[name] = burst
        for group in self.whole(name):
            if group.is_put_off:
                self.place(group)

    # Looking ---------------------------------------------------------------------------

    def started(self, name: str) -> list[Group]:
        """Return what was started of a wide group and has not ended."""
        return [group for group in self.groups.values() if group.name == name and group.is_started]

    def whole(self, name: str) -> Iterator[Group]:
        """Go through a group and what was started of it."""
        if name in self.groups:
            yield self.groups[name]
        yield from self.started(name)

    def depth(self, name: str) -> int:
        """Return how many messages a group has, those that were started included."""
        return sum(len(group.messages) for group in self.whole(name))

    def is_holding(self, message: Message) -> bool:
        """Tell whether a head keeps its group waiting for its own moment."""
        return message.id in self.holding and not message.has_come

    def waits_for_its_head(self, group: Group) -> bool:
        """Tell whether a group waits for its head's moment: not if that is to be set aside."""
        return self.is_holding(group.head) and group.key not in self.doomed

    def all_ids(self) -> set[str]:
        """Return the ids of all messages that have not ended."""
        waiting = {message.id for group in self.groups.values() for message in group.messages}
        return waiting | set(self.scheduled) | {letter.message.id for letter in self.dead}

    def burst(self, name: str, default: int | None) -> int | None:
        """Return how many messages of a group may be delivered at once, None for any number."""
        return self.rates.get(name, default)

    def allowed(self, name: str, default: int | None) -> int:
        """Return how many messages of a group may be delivered now."""
        burst = self.burst(name, default)
        return 10**9 if burst is None else max(0, burst - self.used.get(name, 0))

    def use(self, name: str, default: int | None, count: int) -> None:
        """Note that so many messages were delivered under a rate."""
        if self.burst(name, default) is not None:
            self.used[name] = self.used.get(name, 0) + count
