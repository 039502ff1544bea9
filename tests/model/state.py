"""What is there to know of a queue? What the model notes, and how one looks at it.

Moments are either past or far away, so that nothing here depends on a clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from groupqueue.core.messages import Lease
from tests.model.parts import Doom, Group, Hold, Letter, Message, key_of


@dataclass
class State:
    """A queue, as far as it matters."""

    step: int = 0
    most_promoted: int = 100
    """Messages that join their groups per turn."""
    most_trimmed: int = 500
    """Dead letters that are thrown away per call as too many."""
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
    published: dict[str, int] = field(default_factory=dict)
    """When messages were published; the server's clock decides."""
    began_ms: float = 0
    """Before that none was."""
    rates: dict[str, int | None] = field(default_factory=dict)
    """What operators say: so many at once and then one a day, or None for any number."""
    used: dict[str, int] = field(default_factory=dict)
    is_stopped: bool = False
    last_token: int = 0
    workers: dict[str, dict[str, str]] = field(default_factory=dict)
    """What the workers that have not left say of themselves; of a silent one, nothing."""
    version: int | None = None
    """Which version of the keys' layout the first worker knew."""
    counts: Counter[str] = field(default_factory=Counter)
    """The counters that people are shown."""

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

    def held(self, lease: Lease) -> Group | None:
        """Return the group that a lease holds; None when it does not any more."""
        group = self.groups.get(key_of(lease))
        return group if group and group.lease and group.lease.token == lease.token else None

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
