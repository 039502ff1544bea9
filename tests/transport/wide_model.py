"""What would a shard with wide groups hold, said in plain Python, after whatever was done to it?"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from groupqueue.core.calls import Settlement, Turned
from groupqueue.core.messages import Envelope, EnvelopeOptions, Lease


@dataclass
class Told:
    """One message: what was said when it was published, and what it has been through."""

    id: str
    group: str
    tier: int
    options: EnvelopeOptions
    due_ms: int = 0
    expires_ms: int = 0
    deliveries: int = 0
    failures: int = 0
    is_parked: bool = False
    """Whether it waits for its own moment as the head of a group that was not wide."""
    died_in: tuple[int, int] = (0, 0)
    """Tier and width of its group when it was set aside."""


@dataclass
class Group:
    """One group: what waits in its list, what was started of it, and who holds what."""

    name: str
    tier: int = 0
    width: int = 0
    listed: list[Told] = field(default_factory=list)
    started: dict[str, Told] = field(default_factory=dict)
    places: set[str] = field(default_factory=set)
    """The started messages that are in flight, those of silent workers included."""
    halted: set[str] = field(default_factory=set)
    """The started messages that were halted; "" for the group."""
    paused: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.listed and not self.started


class Model:
    """The whole shard; each method is told what the server was asked and what it said."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.scheduled: dict[str, Told] = {}
        self.held: dict[str, Told] = {}
        self.dead: list[Told] = []
        self.leases: dict[tuple[str, str], Lease] = {}
        """The leases that hold, by group and, of a started message, id."""
        self.published = 0
        self.ended = 0
        """Messages that are gone for good, by whatever way."""
        self.last_token = 0

    # What is asked -------------------------------------------------------------------------

    def publish(self, envelopes: Iterable[Envelope], now_ms: float) -> None:
        """Take messages in; those that were scheduled join later."""
        joining = []
        for sent in envelopes:
            options = sent.options or EnvelopeOptions()
            told = Told(sent.id, sent.group, sent.tier, options)
            if options.due:
                told.due_ms = int(now_ms) + int(options.due)
            if options.expires_ms is not None:
                told.expires_ms = int(now_ms) + options.expires_ms
            self.published += 1
            if options.due and not options.hold:
                self.scheduled[told.id] = told
                continue
            if options.due:
                self.held[told.id] = told
            joining.append(told)
        self._join(joining)

    def _join(self, joining: Iterable[Told]) -> None:
        widths = {}
        for told in joining:
            group = self.groups.setdefault(told.group, Group(told.group))
            if group.is_empty:
                group.tier = told.tier
            group.listed.append(told)
            if told.options.width:
                widths[told.group] = told.options.width
        for name, width in widths.items():
            if width > 1 or self.groups[name].width:
                self.groups[name].width = width

    def turn(
        self, settlements: Iterable[Settlement], turned: Turned, left_schedule: Iterable[str]
    ) -> None:
        """Follow a turn: it settles, lets scheduled messages join, and claims."""
        for settlement, settled in zip(settlements, turned.settled, strict=True):
            self.settle(settlement, settled.word)
        self.promote(left_schedule)
        self.claim(turned)

    def promote(self, ids: Iterable[str]) -> None:
        """Let scheduled messages join their groups, and held ones be as others."""
        ids = [identifier for identifier in ids if not self.held.pop(identifier, None)]
        self._join([self.scheduled.pop(identifier) for identifier in ids])

    def settle(self, settlement: Settlement, word: str) -> None:
        """End a lease as the settlement says, if it still holds."""
        lease, outcome, done = settlement.lease, settlement.outcome, settlement.done
        if self.leases.get(key(lease)) != lease:
            assert word == "stale", settlement
            return
        assert word == "ok", (settlement, word)
        del self.leases[key(lease)]
        group = self.groups[lease.group]
        if lease.place:
            told = group.started[lease.id]
        else:
            for _ in range(done):
                group.listed.pop(0)
                self.ended += 1
            if outcome == "ack":
                self._after(group)
                return
            told = group.listed[0]
            if done:
                told.deliveries, told.failures = 1, 0
        group.places.discard(told.id)
        if outcome == "ack":
            self._remove(group, told)
            self.ended += 1
        elif outcome in ("dead", "dead_group"):
            self._die(group, told)
        elif outcome == "release":
            told.deliveries -= 1
            told.is_parked = not lease.place
        else:
            told.failures += 1
            told.is_parked = not lease.place
            if outcome == "halt":
                group.halted.add(told.id if lease.place else "")
        self._after(group)

    def claim(self, turned: Turned) -> None:
        """Take note of leases, of what was dropped and of what was set aside."""
        for gone in turned.expired:
            group = self.groups[gone.group]
            told = group.started.get(gone.id) or self._passed(group, gone.id, turned)
            assert told.expires_ms, "it was not to expire"
            self._remove(group, told)
            self.ended += 1
        for gone in turned.buried:
            group = self.groups[gone.group]
            self._die(group, self._passed(group, gone.id, turned))
        flying = {name: len(group.places) for name, group in self.groups.items()}
        for lease in turned.leases:
            self._lease(lease)
        for name, before in flying.items():
            group = self.groups[name]
            assert len(group.places) <= max(before, group.width), f"{name} has too many in flight"
        for group in list(self.groups.values()):
            self._after(group)

    def _passed(self, group: Group, identifier: str, turned: Turned) -> Told:
        """Return a message of a group's list, before which none is but what this turn took."""
        taken = {taken.id for taken in (*turned.leases, *turned.expired, *turned.buried)}
        for told in group.listed:
            if told.id == identifier:
                return told
            assert told.id in taken, f"{told} waits before"
        raise AssertionError(f"{identifier} was not there")

    def _lease(self, lease: Lease) -> None:
        group = self.groups[lease.group]
        assert lease.token > self.last_token, "tokens grow"
        self.last_token = lease.token
        assert key(lease) not in self.leases, "one lease at a time"
        assert lease.priority == group.tier
        assert bool(lease.place) == bool(group.width), f"{lease.group} is {group.width} wide"
        assert not group.paused
        if lease.place and lease.id in group.started:
            told = group.started[lease.id]
            assert lease.id not in group.halted
        else:
            assert "" not in group.halted
            told = group.listed[0]
            assert told.id == lease.id, "messages start in order"
            assert told.id not in self.held, f"{told} is held"
            for behind, leased in zip(group.listed[1:], lease.rest, strict=False):
                assert behind.id == leased.id
        assert lease.deliveries == told.deliveries + 1
        assert lease.failures == told.failures
        told.deliveries += 1
        if lease.place:
            assert (lease.group, "") not in self.leases, "the plain lease has not ended"
            if told in group.listed:
                group.listed.remove(told)
            group.started[told.id] = told
            group.places.add(told.id)
        self.leases[key(lease)] = lease

    def let_run_out(self, lease: Lease) -> None:
        """Forget a lease whose time has passed; its place stays taken until it goes again."""
        self.leases.pop(key(lease), None)

    def hand_back(self, lease: Lease) -> None:
        """End a lease as if its message had never been delivered."""
        del self.leases[key(lease)]
        group = self.groups[lease.group]
        told = group.started[lease.id] if lease.place else group.listed[0]
        told.deliveries -= 1
        group.places.discard(told.id)

    def resume(self, group: Group) -> None:
        """Let a group go on, and what is halted of it."""
        group.paused = False
        for halted in group.halted:
            told = group.started[halted] if halted else group.listed[0]
            told.deliveries = told.failures = 0
        group.halted.clear()

    def skip(self, group: Group, identifier: str, word: str) -> None:
        """Set a message aside, if it is the head or started, and nobody has it."""
        started = group.started.get(identifier)
        told = started or next(iter(group.listed), None)
        if (group.name, identifier if started else "") in self.leases:
            assert word == "leased"
            return
        if told is None or told.id != identifier:
            assert word == "moved"
            return
        assert word == "ok"
        if not started:
            group.halted.discard("")
        self._die(group, told)
        self.held.pop(identifier, None)
        self._after(group)

    def purge(self, group: Group) -> int:
        """Throw all of a group away; return how much it was."""
        gone = [*group.listed, *group.started.values()]
        self.ended += len(gone)
        self.held = {i: told for i, told in self.held.items() if told.group != group.name}
        self.leases = {k: v for k, v in self.leases.items() if k[0] != group.name}
        group.listed.clear()
        group.started.clear()
        self._after(group)
        return len(gone)

    def cancel(self, identifier: str, word: str, now_ms: float) -> None:
        """Take a message back that is not due yet, or has at least not joined its group."""
        if not self.scheduled.pop(identifier, None):
            told = self.held[identifier]
            if told.due_ms <= now_ms:
                assert word == "not scheduled"
                return
            del self.held[identifier]
            group = self.groups[told.group]
            self._remove(group, told)
            self._after(group)
        assert word == "ok"
        self.ended += 1

    def redrive(self, ids: Collection[str], *, to_tail: bool) -> None:
        """Put dead letters back, given oldest first."""
        back = [told for identifier in ids for told in self.dead if told.id == identifier]
        self.dead = [told for told in self.dead if told.id not in ids]
        by_group: dict[str, list[Told]] = {}
        for told in back:
            told.deliveries = told.failures = 0
            by_group.setdefault(told.group, []).append(told)
        for name, tolds in by_group.items():
            group = self.groups[name]
            if group.is_empty:
                group.tier = tolds[0].died_in[0]
                width = next((width for _, width in [t.died_in for t in tolds] if width), 0)
                group.width = width if width > 1 else 0
            if to_tail:
                group.listed += tolds
                continue
            is_leased = (name, "") in self.leases
            if not is_leased and group.listed:
                group.listed[0].deliveries = group.listed[0].failures = 0
            group.listed[is_leased:is_leased] = tolds

    def _die(self, group: Group, told: Told) -> None:
        told.died_in = (group.tier, group.width)
        self._remove(group, told)
        self.dead.append(told)
        self.held.pop(told.id, None)

    def _remove(self, group: Group, told: Told) -> None:
        if told.id in group.started:
            del group.started[told.id]
            group.places.discard(told.id)
            group.halted.discard(told.id)
        else:
            group.listed.remove(told)

    def _after(self, group: Group) -> None:
        if group.is_empty:
            group.width = 0
            group.places.clear()
            group.halted.clear()


def key(lease: Lease) -> tuple[str, str]:
    """Return by what a lease is told apart."""
    return lease.group, lease.place
