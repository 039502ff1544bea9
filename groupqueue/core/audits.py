"""What an audit of a queue looks for, and how it goes through a queue, call by call.

Nothing here talks to a server; see core.letters for what a flow is. The scripts judge: `survey`
names who is to be judged, `audit` and `repair` judge each at one moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from groupqueue.core import calls
from groupqueue.core.calls import FaultRow, Judged, Page
from groupqueue.core.letters import Flow
from groupqueue.core.messages import TIERS

Level = Literal["error", "warning"]


class Kind(NamedTuple):
    """One way in which a queue's data can be broken."""

    level: Level
    """error: messages are held up, lost, repeated or wrongly judged, or will be."""
    text: str
    is_mendable: bool = True
    """Whether repair mends it."""


# Every word that the scripts know, in the order of the documentation.
KINDS = {
    "not-ready": Kind("error", "has messages and stands in no tier: nobody is given them"),
    "several-tiers": Kind("error", "stands in several tiers: {detail}"),
    "no-tier": Kind("error", "its tier is not known: {detail}"),
    "wrong-tier": Kind("error", "its tier and the tier that it stands in differ: {detail}"),
    "bad-token": Kind("error", "its lease's token is none: {detail}"),
    "lock-without-expiry": Kind("error", "its lease never ends by itself"),
    "lock-too-long": Kind("error", "its lease ends in {detail} ms: none is that long"),
    "lock-gone": Kind("error", "its lease is gone before its time; its holder was {detail}"),
    "not-the-deadline": Kind(
        "error", "its moment is not the end of its lease, but {detail} ms from it"
    ),
    "bad-moment": Kind("error", "when it is due is no moment: {detail}"),
    "held-without-pause": Kind("error", "is held, and neither paused nor halted"),
    "paused-but-due": Kind("error", "is paused or halted, and yet claimable"),
    "too-early": Kind("error", "its head holds it until {detail}, and it is claimable before"),
    "bad-counters": Kind("error", "the counters of its head are no numbers: {detail}"),
    "bad-pause": Kind("error", "since when and why it is held cannot be told: {detail}"),
    "bad-rate": Kind("error", "its rate is none: {detail}"),
    "bad-doom": Kind(
        "error",
        "is to be set aside, more of it than it has: messages and cause; its messages {detail}",
    ),
    "no-place": Kind("error", "is a started message of a wide group, and its place is {detail}"),
    "stray-place": Kind("error", "has a place for what is no started message of it: {detail}"),
    "bad-width": Kind("error", "is wide, and how wide is no number: {detail}"),
    "lock-without-messages": Kind("error", "is leased and has no messages"),
    "left-over": Kind("error", "has no messages, and left this behind: {detail}"),
    "bad-message": Kind(
        "error", "what lies in its place {detail} is no message", is_mendable=False
    ),
    "twice-in-group": Kind("error", "has message {detail} more than once", is_mendable=False),
    "dead-and-alive": Kind(
        "error", "is a dead letter and still waits: message and group {detail}", is_mendable=False
    ),
    "bad-letter": Kind("warning", "is no dead letter, or its tier is none", is_mendable=False),
    "late-letter": Kind(
        "error",
        "was set aside at a moment to come, and so is all that follows it",
        is_mendable=False,
    ),
    "never-due": Kind("error", "is scheduled for no moment"),
    "bad-schedule": Kind("error", "what is scheduled is no message", is_mendable=False),
    "data-alone": Kind("error", "is scheduled for no moment, and no message"),
    "scheduled-twice": Kind("error", "is both scheduled and held in its group {detail}"),
    "held-without-moment": Kind("error", "holds its group {detail} until no moment"),
    "held-but-gone": Kind("warning", "is to hold its group {detail}, and is not there"),
    "moment-alone": Kind("warning", "has a moment, and there is no message"),
    "dedup-alone": Kind("warning", "has a dedup key, {detail}, and is not scheduled"),
    "bad-heartbeat": Kind("warning", "its last heartbeat is a moment to come: {detail}"),
    "wrong-flag": Kind("error", "what is noted as special about the queue is not so: {detail}"),
    "bad-fence": Kind("error", "the last fencing token is none: {detail}"),
    "bad-counter": Kind("error", "a counter of its statistics is no count: {detail}"),
    "wrong-backlog": Kind("error", "tier, messages noted and counted differ: {detail}"),
    "backlog-apart": Kind(
        "warning", "tier, messages noted and roughly counted differ: {detail}", is_mendable=False
    ),
    "wrong-type": Kind("error", "is of another type: {detail}", is_mendable=False),
    "unknown-key": Kind("warning", "is none of ours: a {detail}", is_mendable=False),
    "bad-value": Kind("error", "holds what is none of ours: {detail}"),
    "no-expiry": Kind("warning", "stays for ever, and should not"),
}
UNCOUNTED = "uncounted"
"""Said of a queue with so many groups that they are not counted in one step."""

# Which kinds judge something else than they are called after, perhaps up to a colon.
_SUBJECTS = {"list": "group", "places": "group", "flags": "queue", "backlog": "queue"}
_GROUP_SOURCES = (
    "prio",
    "attempts",
    "failures",
    "errors",
    "holders",
    "paused",
    "doomed",
    "wide",
    "rates",
)
_MESSAGE_SOURCES = ("scheduled", "scheduled:data", "scheduled:held", "scheduled:dedup")


class Fault(NamedTuple):
    """Something that the rules of the queue exclude."""

    subject: str
    """What `name` names: a group, a scheduled message by its id, a dead letter by its entry, a
    worker by its id, a key without the queue's prefix; for the queue itself it is empty."""
    name: str
    word: str
    """Which fault; a key of `KINDS`."""
    detail: str

    @property
    def level(self) -> Level:
        """How bad it is."""
        return KINDS[self.word].level

    @property
    def is_mendable(self) -> bool:
        """Whether repair mends this kind of fault."""
        return KINDS[self.word].is_mendable

    @property
    def text(self) -> str:
        """What is wrong, in words."""
        return KINDS[self.word].text.format(detail=self.detail)


class Audit(NamedTuple):
    """What an audit found, or a repair mended."""

    faults: tuple[Fault, ...]
    total: int
    """How many there were, of which `faults` has the first."""
    groups: int
    """How many groups with messages were judged."""
    is_complete: bool
    """Whether everything was judged: an audit ends when it has as many errors as it may list,
    and does not judge groups when keys that they share are of another type."""


def audit_queue(prefix: str, *, limit: int) -> Flow[Audit]:
    """Look through a whole shard; end once so many errors are found."""
    return _Auditor(prefix, limit, is_repair=False).go_through()


def repair_queue(prefix: str, *, limit: int) -> Flow[Audit]:
    """Mend what can be mended in a shard; the result lists so much of it."""
    return _Auditor(prefix, limit, is_repair=True).go_through()


class _Count(NamedTuple):
    """How many messages a tier seems to have: counted page by page, while it may change."""

    counted: int
    noted: set[int]
    """What `backlog` said meanwhile."""

    @property
    def is_apart(self) -> bool:
        """Whether the two differ by more than what came and went can explain."""
        if not self.noted:
            return False
        moved = max(self.noted) - min(self.noted)
        allowed = 2 * moved + self.counted // 100 if moved else 0
        return not min(self.noted) - allowed <= self.counted <= max(self.noted) + allowed


class _Auditor:
    """One way through a shard, page by page."""

    def __init__(self, prefix: str, limit: int, *, is_repair: bool) -> None:
        self._prefix = prefix
        self._limit = limit
        self._is_repair = is_repair
        # The same fault may be met from several sides.
        self._found: dict[Fault, None] = {}
        self._total = 0
        self._errors = 0
        self._groups = 0
        self._is_counted = True

    def go_through(self) -> Flow[Audit]:
        """See audit_queue."""
        own: Page = yield calls.survey(self._prefix, "own")
        is_sound = not any(row.word == "wrong-type" for row in own.faults)
        if is_sound:
            if self._is_repair:
                # First its flags, without which the scripts overlook what is special.
                # Messages are counted once their groups are in order.
                yield from self._judge("flags", [""])
            # Then what is noted of scheduled messages: it decides when their groups are due.
            for source in _MESSAGE_SOURCES:
                yield from self._survey("message", source)
        yield from self._keys(is_judging=is_sound)
        if is_sound:
            yield from self._records()
        found = sorted(self._found, key=lambda fault: fault.level)  # errors first
        return Audit(
            tuple(found[: self._limit]), self._total, self._groups, is_sound and not self._is_full
        )

    @property
    def _is_full(self) -> bool:
        return not self._is_repair and self._errors >= self._limit

    def _keys(self, *, is_judging: bool) -> Flow[None]:
        """Go through all keys, and with them the groups that have messages."""
        cursor = ""
        while cursor != "0" and not self._is_full:
            page: Page = yield calls.survey(self._prefix, "keys", cursor or "0")
            cursor = page.cursor
            if not self._is_repair:
                self._note("key", page.faults)
            elif is_judging:
                # The script looks again whether a key is one that it can mend.
                yield from self._judge("key", [row.name for row in page.faults])
            if is_judging:
                self._groups += len(page.names)
                yield from self._judge("group", page.names)
                if not self._is_repair:
                    yield from self._judge("list", page.names)
                # What is started of them has lists of its own, and is in order by now.
                yield from self._judge("group", page.wide)
                for group in page.wide:
                    yield from self._survey(f"places:{group}", f"places:{group}")

    def _records(self) -> Flow[None]:
        """Go through what is noted of groups, for those without messages, and the rest."""
        for source in _GROUP_SOURCES:
            yield from self._survey("group", source)
        counts: dict[int, _Count] = {}
        for tier in TIERS:
            counts[tier] = yield from self._survey("group", f"ready:{tier}")
        yield from self._survey("worker", "workers")
        if not self._is_repair:
            yield from self._survey("letter", "dead")
        if self._is_full:
            return
        yield from self._judge("queue", [""])
        if self._is_repair:
            # The script looks again whether it is no number, as of too many groups to count.
            unread = [
                f"{tier} {count.counted}" for tier, count in counts.items() if not count.noted
            ]
            yield from self._judge("backlog", unread)
        elif not self._is_counted:
            self._note(
                "queue",
                [
                    FaultRow("", "backlog-apart", f"{tier}, {max(count.noted)}, {count.counted}")
                    for tier, count in counts.items()
                    if count.is_apart
                ],
            )

    def _survey(self, kind: str, source: str) -> Flow[_Count]:
        """Judge whom a key of the shard names."""
        cursor, count = "", _Count(0, set())
        while cursor != "0" and not self._is_full:
            page: Page = yield calls.survey(self._prefix, source, cursor or "0")
            cursor = page.cursor
            noted = set() if page.backlog is None else {page.backlog}
            count = _Count(count.counted + page.messages, count.noted | noted)
            yield from self._judge(kind, page.names)
        return count

    def _judge(self, kind: str, names: Sequence[str]) -> Flow[None]:
        ask = calls.repair if self._is_repair else calls.audit
        for chunk in calls.in_chunks(names, calls.MAX_AUDITED_PER_CALL):
            rest = chunk
            while rest:
                judged: Judged = yield ask(self._prefix, kind, rest)
                subject = kind.partition(":")[0]
                self._note(_SUBJECTS.get(subject, subject), judged.faults)
                rest = rest[judged.done :]

    def _note(self, subject: str, rows: Iterable[FaultRow]) -> None:
        for name, word, detail in rows:
            fault = Fault(subject, name, word, detail)
            if word == UNCOUNTED:
                self._is_counted = False
            elif fault not in self._found:
                self._total += 1
                self._errors += fault.level == "error"
                is_kept = fault.level == "error" and not self._is_repair
                if is_kept or len(self._found) < self._limit:
                    self._found[fault] = None
