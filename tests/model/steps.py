"""What do all steps need, and what happens by itself, in time?"""

from __future__ import annotations

import math
import random
import sys
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from groupqueue.core import calls
from groupqueue.core.calls import Call
from groupqueue.core.messages import Lease
from groupqueue.exceptions import DedupConflict, GroupFull
from tests.model.audit import Found, check_expiries, check_rules, read_all
from tests.model.comparing import compare
from tests.model.following import Request, may_go
from tests.model.lossy import LossyTransport
from tests.model.model import Model
from tests.model.parts import DAY_MS, LONG_AGO, Group, Letter, Message

NAMES = ("one", "two", "Ärger: ein Konto")
WIDE = ("wide", "w:i d\ne")
WORKERS = ("anna", "bert")
DAY_SECONDS = DAY_MS // 1000
NOBODY = 5
"""More than any tier."""
# An index into whatever there is to choose from.
choices = st.integers(0, 59)
tiers = st.integers(0, 4)


@dataclass(frozen=True)
class How:
    """How often a step is taken, when it is possible, and what is chosen for it."""

    name: str
    weight: int
    when: Callable[[Any], Any] | None
    asked: st.SearchStrategy[dict[str, Any]]

    def __repr__(self) -> str:
        return self.name


def step(
    *, weight: int = 1, when: Callable[[Any], Any] | None = None, **asked: st.SearchStrategy[Any]
) -> Callable[[Any], Any]:
    """Declare that a method is a step."""

    def declare(method: Any) -> Any:
        method.how = How(method.__name__, weight, when, st.fixed_dictionaries(asked))
        return method

    return declare


class Steps(RuleBasedStateMachine):
    """The queue, the model, and how both are reached."""

    def __init__(self, client: redis.Redis, transport: LossyTransport) -> None:
        super().__init__()
        self.raised_before = sys.exception()
        self.redis, self.transport, self.prefix = client, transport, transport.prefix
        self.redis.flushdb()
        self.model = Model()
        self.leases: list[Lease] = []
        self.answered: list[Call[Any]] = []
        """Calls that took effect, and do nothing when they arrive once more."""
        self.numbers: dict[str, int] = dict.fromkeys((*WORKERS, "publisher", "body"), 0)
        self.steps = [
            getattr(type(self), name).how
            for name in dir(type(self))
            if hasattr(getattr(type(self), name), "how")
        ]
        self.features: frozenset[str] = frozenset()
        self.bursts: tuple[int | None, int | None] = (None, None)
        """What the settings say of the rates of the queue and of its groups."""
        self.max_depth = 0
        """What they say of how many messages may wait in a group; 0 for any number."""
        self.due: set[str] = set()
        """Whom anybody would be given after the last step."""
        self.found: Found | None = None
        """What the server held after the last step."""
        self.earliest = math.inf
        """The next moment at which a scheduled message was due then."""
        self.chance = random.Random(0)
        self.told_tier = 0
        """The lowest tier of which somebody is told when the step lets a group be due."""

    @rule(data=st.data())
    def take_a_step(self, data: st.DataObject) -> None:
        """Take any step that is possible."""
        # One rule for all: of several, most would be left out of each life.
        steps = [how for how in self.steps if how.when is None or how.when(self)]
        how = data.draw(st.sampled_from([how for how in steps for _ in range(how.weight)]))
        getattr(self, how.name)(**data.draw(how.asked, how.name))

    @invariant()
    def audit(self) -> None:
        """Read every key after every step."""
        found = read_all(self.redis, self.prefix)
        check_rules(found)
        compare(self.model, found)
        check_expiries(self.found or found, found)
        self._check_hints(found)
        self.found = found
        self.model.step += 1

    def _check_hints(self, found: Found) -> None:
        """Fail when nobody was woken for what has become due; take the hints, as the idle do."""
        hints, due = found.values.get("wake"), self._whoever_is_due(found)
        news = {key for key in due - self.due if self.model.groups[key].tier >= self.told_tier}
        assert hints or not news, f"nobody is told that {news} are due"
        earliest = min(found.zset("scheduled").values(), default=math.inf)
        is_sooner = earliest < self.earliest and self.told_tier < NOBODY
        assert hints or not is_sooner, "nobody is told of a moment before all others"
        self.earliest = earliest
        self.due, self.told_tier = due, 0
        if hints:
            self.redis.delete(self._key("wake"))

    def _whoever_is_due(self, found: Found) -> set[str]:
        model = self.model
        request = Request("", 1, queue_burst=self.bursts[0], group_burst=self.bursts[1])
        if model.is_stopped or not model.allowed("", self.bursts[0]):
            return set()
        # What a wide group waits for may be over before its moment has come.
        due = {key for key, group in model.groups.items() if may_go(model, request, group)}
        return {key for key in due if found.places(key)[0][1] <= found.now_ms}

    # Time ------------------------------------------------------------------------------

    @step(weight=4, what=choices, which=choices)
    def time_passes(self, *, what: int, which: int) -> None:
        """Let one of the things happen that happen by themselves."""
        possible = [(do, of) for do, of in self._what_time_does() if of]
        happen, to_what = self._one_of(possible, what)
        happen(one_of(to_what, which))
        self.told_tier = NOBODY

    def _what_time_does(self) -> list[tuple[Callable[[Any], None], list[Any]]]:
        """Return what can happen, and to what each."""
        model = self.model
        groups = list(model.groups.values())
        to_come = [message for message in self._for_later() if not message.has_come]
        aging = [(g, m) for g in groups for m in g.messages if m.expires == "later"]
        leased = [group for group in groups if group.lease]
        return [
            (self._set_clock_back, [None]),
            (self._forget_scripts, [None]),
            (self._fall_silent, [name for name, fields in model.workers.items() if fields]),
            (self._age, model.dead),
            (self._forget_key, sorted(model.dedup)),
            (self._refill, sorted(name for name, count in model.used.items() if count)),
            (self._expire, aging),
            *[(self._expire, [(g, m) for g, m in aging if g.deliveries and m is g.head])] * 3,
            (self._come, to_come),
            (self._come_together, [to_come] if len(to_come) > 1 else []),
            *[(self._end_wait, self._parked())] * 2,
            *[(self._run_out, leased)] * 4,
            *[(self._run_out, [group for group in leased if group.head.expires == "passed"])] * 3,
        ]

    def _forget_scripts(self, _: None) -> None:
        """The server restarts, or another one that has never seen the scripts takes over."""
        self.redis.script_flush()

    def _set_clock_back(self, _: None) -> None:
        """The server's clock was ahead by a day when it gave the last lease."""
        ahead = int(self._now_ms() + DAY_MS) * 1000
        self.model.last_token = max(ahead, self.model.last_token)
        self.redis.set(self._key("fence"), self.model.last_token)

    def _fall_silent(self, worker: str) -> None:
        """A worker is not heard of any more."""
        self.redis.zadd(self._key("workers"), {worker: 1})
        self.redis.delete(self._key("worker:", worker))
        self.model.workers[worker] = {}

    def _age(self, youngest: Letter) -> None:
        """A dead letter, and with it all that are older, gets older by a day."""
        letters = self.redis.xrange(self._key("dead"))
        self.redis.delete(self._key("dead"))
        is_aged = True
        for (entry, fields), letter in zip(letters, self.model.dead, strict=True):
            moment, number = entry.decode().split("-")
            aged = f"{int(moment) - DAY_MS * is_aged}-{number}"
            self.redis.xadd(self._key("dead"), fields, aged)
            letter.days += is_aged
            is_aged = is_aged and letter is not youngest

    def _come(self, message: Message) -> None:
        """A scheduled message's moment passes, and that of the group it holds."""
        due = int(self._now_ms()) - DAY_MS + self.model.step
        self.redis.zadd(self._key("scheduled"), {message.id: due})
        message.has_come, self.model.moments[message.id] = True, due
        group = self.model.groups.get(message.group) if message.hold else None
        model = self.model
        if not group or group.head is not message or group.lease or group.key in model.holds:
            return
        if group.key not in model.doomed:
            self._move(group, due)
            group.since = LONG_AGO

    def _come_together(self, messages: list[Message]) -> None:
        """The moments of several messages pass before anybody looks."""
        for message in messages:
            self._come(message)

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

    def _refill(self, name: str) -> None:
        """A day passes for a rate: one message more may go, and what was put off as well."""
        key = self._key("tat:", name)
        arrival_us, free_us = map(int, self.redis.get(key).split())
        for group in self.model.whole(name):
            score = self.redis.zscore(self._key(f"ready:{group.tier}"), self._member(group))
            if abs(score * 1000 - free_us) < 1:
                self._end_wait(group)
        left_ms = arrival_us // 1000 - DAY_MS - int(self._now_ms())
        self.model.used[name] -= 1
        if left_ms <= 0:
            self.redis.delete(key)
        else:
            noted = f"{arrival_us - DAY_MS * 1000} {free_us - DAY_MS * 1000}"
            self.redis.set(key, noted, px=left_ms)

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

    def _name(self, which: int, rather: Iterable[str] = ()) -> str:
        """Return the name of a group, rather one of those given by their keys."""
        keys = [*NAMES, *WIDE, *self.model.groups, *([*rather] * 3)]
        return str(one_of(keys, which)).split("\udcff")[0]

    def _one_of(self, items: Any, which: int) -> Any:
        """Return one of what there is, any as likely as another.

        Many choices are drawn alike, and those of one life as those of another: what has been
        done so far tells them apart.
        """
        done = f"{self.model.step} {self.numbers} {which} {self.chance.random()}"
        return one_of(items, zlib.crc32(done.encode()))

    # Calls -------------------------------------------------------------------------------

    def _note(self, call: Call[Any]) -> None:
        self.answered = [*self.answered[-9:], call]

    def _operate(self, call: Call[Any], expected: Any, *, is_lost: bool) -> None:
        """Perform an operation that has a name: it has one effect, however often it is sent."""
        assert self._perform(call, is_lost=is_lost) == expected
        if expected in (True, "ok"):
            self._note(call)

    def _pause_group(self, name: str, *, is_lost: bool = False) -> None:
        call = calls.pause(self.prefix, name, "why")
        self._operate(call, self.model.pause(name), is_lost=is_lost)

    def _act(self, call: Call[Any], act: Callable[[], Any], *, is_lost: bool) -> None:
        """Perform an operation that is done again when it is sent again."""
        for _ in range(1 + is_lost):
            expected = act()
        assert self._perform(call, is_lost=is_lost) == expected

    def _perform(self, call: Call[Any], *, is_lost: bool) -> Any:
        return self.transport.perform_unheard(call) if is_lost else self.transport.perform(call)

    @staticmethod
    def _tried(attempt: Callable[[], Any]) -> Any:
        try:
            return attempt()
        except (DedupConflict, GroupFull) as refusal:
            return str(refusal)

    # Reaching inside ---------------------------------------------------------------------

    def _key(self, name: str, rest: str = "") -> bytes:
        return f"{self.prefix}:{name}{rest}".encode(errors="surrogateescape")

    @staticmethod
    def _member(group: Group) -> bytes:
        return group.key.encode(errors="surrogateescape")

    def _move(self, group: Group, moment: float) -> None:
        self.redis.zadd(self._key(f"ready:{group.tier}"), {self._member(group): moment}, xx=True)

    def _now_ms(self) -> float:
        seconds, microseconds = self.redis.time()
        return float(seconds * 1000 + microseconds / 1000)


def one_of(items: Any, which: int) -> Any:
    """Return one of what there is; the last ones first, since they are the liveliest."""
    return items[-1 - which % len(items)]
