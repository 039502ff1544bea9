"""What do all steps need, and what happens by itself, in time?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from groupqueue.core.calls import Call
from groupqueue.core.messages import Lease
from groupqueue.exceptions import DedupConflict, GroupFull
from groupqueue.transport.redis import RedisTransport
from tests.model.audit import check_rules, compare, read_all
from tests.model.model import Model
from tests.model.parts import HOUR_MS, LONG_AGO, Group, Message

NAMES = ("one", "two", "Ärger: ein Konto")
WIDE = ("wide", "w:i d\ne")
WORKERS = ("anna", "bert")
HOUR_SECONDS = HOUR_MS // 1000
# An index into whatever there is to choose from.
choices = st.integers(0, 59)
tiers = st.integers(0, 4)


class Steps(RuleBasedStateMachine):
    """The queue, the model, and how both are reached."""

    def __init__(self, client: redis.Redis, transport: RedisTransport) -> None:
        super().__init__()
        self.raised_before = sys.exception()
        self.redis, self.transport, self.prefix = client, transport, transport.prefix
        self.redis.flushdb()
        self.model = Model()
        self.leases: list[Lease] = []
        self.answered: list[tuple[Call[Any], Any]] = []
        self.numbers = dict.fromkeys((*WORKERS, "publisher", "body"), 0)
        self.features: frozenset[str] = frozenset()
        self.bursts: tuple[int | None, int | None] = (None, None)
        """What the settings say of the rates of the queue and of its groups."""

    @invariant()
    def audit(self) -> None:
        """Read every key after every step."""
        found = read_all(self.redis, self.prefix)
        check_rules(found)
        compare(self.model, found)
        self.model.step += 1

    # Time ------------------------------------------------------------------------------

    @rule(which=choices)
    def time_passes(self, *, which: int) -> None:
        """Let one of the things happen that happen by themselves."""
        happen, what = one_of(self._what_time_does(), which)
        happen(what)

    def _what_time_does(self) -> list[tuple[Callable[[Any], None], Any]]:
        groups = self.model.groups.values()
        return [
            *((self._forget_key, key) for key in sorted(self.model.dedup)),
            *((self._expire, (g, m)) for g in groups for m in g.messages if m.expires == "later"),
            *((self._come, message) for message in self._for_later() if not message.has_come),
            *((self._end_wait, group) for group in self._parked()),
            *((self._run_out, group) for group in groups if group.lease),
            (self._forget_scripts, None),
        ]

    def _forget_scripts(self, _: None) -> None:
        """The server restarts, or another one that has never seen the scripts takes over."""
        self.redis.script_flush()

    def _come(self, message: Message) -> None:
        """A scheduled message's moment passes, and that of the group it holds."""
        due = int(self._now_ms()) - HOUR_MS + self.model.step
        self.redis.zadd(self._key("scheduled"), {message.id: due})
        message.has_come, self.model.moments[message.id] = True, due
        group = self.model.groups.get(message.group) if message.hold else None
        model = self.model
        if not group or group.head is not message or group.lease or group.key in model.holds:
            return
        if group.key not in model.doomed:
            self._move(group, due)
            group.since = LONG_AGO

    def _expire(self, where: tuple[Group, Message]) -> None:
        """A message becomes too old to be delivered."""
        group, message = where
        index, key = group.messages.index(message), self._key("q:", group.key)
        element = self.redis.lindex(key, index)
        self.redis.lset(key, index, element[:45] + b"0000000000001" + element[58:])
        message.expires = "passed"

    def _forget_key(self, key: str) -> None:
        """The window of a dedup key ends."""
        self.redis.delete(self._key("dedup:", key))
        del self.model.dedup[key]

    def _run_out(self, group: Group) -> None:
        """A lease ends without a word from its worker."""
        self.redis.delete(self._key("lock:", group.key))
        if group.key not in self.model.holds:
            self._move(group, self._now_ms())
        self.model.run_out(group)

    def _end_wait(self, group: Group) -> None:
        """A parked group is due."""
        self._move(group, self._now_ms())
        self.model.place(group)

    def _parked(self) -> list[Group]:
        return [
            group
            for group in self.model.groups.values()
            if group.is_parked and not group.lease and group.key not in self.model.holds
        ]

    def _for_later(self) -> list[Message]:
        return [*self.model.scheduled.values(), *self.model.holding.values()]

    def _note(self, call: Call[Any]) -> None:
        self.answered = [*self.answered[-9:], call]

    def _operate(self, call: Call[Any], expected: Any, *, is_repeated: bool) -> None:
        for _ in range(1 + (is_repeated and expected in (True, "ok"))):
            assert self.transport.perform(call) == expected
        if expected in (True, "ok"):
            self._note(call)

    @staticmethod
    def _tried(attempt: Callable[[], Any]) -> Any:
        try:
            return attempt()
        except (DedupConflict, GroupFull) as refusal:
            return str(refusal)

    # Reaching inside ---------------------------------------------------------------------

    def _key(self, name: str, rest: str = "") -> bytes:
        return f"{self.prefix}:{name}{rest}".encode(errors="surrogateescape")

    def _move(self, group: Group, moment: float) -> None:
        member = group.key.encode(errors="surrogateescape")
        self.redis.zadd(self._key(f"ready:{group.tier}"), {member: moment}, xx=True)

    def _now_ms(self) -> float:
        seconds, microseconds = self.redis.time()
        return float(seconds * 1000 + microseconds / 1000)


def one_of(items: Any, which: int) -> Any:
    """Return one of what there is; the last ones first, since they are the liveliest."""
    return items[-1 - which % len(items)]
