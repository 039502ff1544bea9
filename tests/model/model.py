"""What do operators change? The model of a queue: all that may happen to one is said by now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.model.deliveries import Deliveries
from tests.model.parts import Group, Hold, Letter, started_key


@dataclass
class Model(Deliveries):
    """A queue, and what operators do to it."""

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

    def recover(self, worker: str, after_token: int) -> int:
        """Hand back the leases that a worker has not heard of."""
        leased = [group for group in self.groups.values() if group.lease]
        lost = [g for g in leased if g.lease and g.lease.worker == worker
            and g.lease.token > after_token]  # fmt: skip
        for group in lost:
            self.hand_back(group)
        return len(lost)

    def purge(self, names: Sequence[str]) -> tuple[int, int]:
        """Throw the messages of groups away, leased ones too; return how many of both."""
        counts = [self._throw_messages_away(name) for name in names]
        self.counts["purged"] += sum(counts)
        return sum(count > 0 for count in counts), sum(counts)

    def _throw_messages_away(self, name: str) -> int:
        count = self.depth(name)
        for group in list(self.whole(name)):
            for message in group.messages:
                self.forget_moment(message)
                self.gone.add(message.id)
            group.messages.clear()
            self.together.pop(group.key, None)
            self.forget(group)
        self.together.pop(name, None)
        return count

    def redrive(self, letters: Sequence[Letter], *, to_tail: bool) -> None:
        """Put dead letters back, given in order."""
        self.counts["redriven"] += len(letters)
        for name in dict.fromkeys(letter.group for letter in letters):
            mine = [letter for letter in letters if letter.group == name]
            messages = [replace(letter.message, due="", hold=False) for letter in mine]
            for letter in mine:
                self.dead.remove(letter)
            tiers = [started.tier for started in self.started(name)]
            widths = [letter.width for letter in mine if letter.width]
            group = self.groups.get(name)
            if widths and widths[0] > 1 and not self.depth(name):
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
            if not to_tail:
                self.doomed.pop(name, None)

    def throw_away(self, letters: Sequence[Letter], counter: str) -> int:
        """Let dead letters be gone, thrown away or too old; return how many."""
        self.gone |= {letter.message.id for letter in letters}
        self.dead = [letter for letter in self.dead if letter not in letters]
        self.counts[counter] += len(letters)
        return len(letters)

    def trim(self, days: int | None, count: int | None) -> int:
        """Throw away letters beyond a number; if there are none, those older than that."""
        over = len(self.dead) - count if count is not None else 0
        if over > 0:
            return self.throw_away(self.dead[: min(over, self.most_trimmed)], "trimmed")
        old = [letter for letter in self.dead if days is not None and letter.days > days]
        return self.throw_away(old, "trimmed")

    def rate(self, name: str, burst: int | str | None) -> int | str | None:
        """Say how often messages may be delivered; return what was said so far.

        "" is what the settings say.
        """
        former = self.rates.get(name, "")
        if former == burst:
            return former
        self.used.pop(name, None)
        self.rates.pop(name, None)
        if not isinstance(burst, str):
            self.rates[name] = burst
        for group in self.whole(name):
            if group.is_put_off:
                self.place(group)
        return former

    # Workers that come and go ------------------------------------------------------------

    def heartbeat(self, worker: str, fields: dict[str, str], version: int) -> int:
        """Enter a worker in the registry, and take the silent ones out; return how many are in."""
        self.workers = {name: told for name, told in self.workers.items() if told}
        self.workers[worker] = self.workers.get(worker, {}) | fields
        self.version = self.version or version
        return len(self.workers)

    def depart(self, worker: str) -> None:
        """Take a worker out of the registry."""
        self.workers.pop(worker, None)
