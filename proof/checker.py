"""Does a history keep the promises? Each that it breaks is named, with ids and operations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from groupqueue.core.messages import split_place
from proof.findings import Findings, shown
from proof.history import Operation, ShardState, id_of
from proof.judge import Judge
from proof.leases import Held
from proof.places import DONE, SCHEDULED, WAITING, Known
from proof.records import Record

CLAIMABLE_WITHIN_US = 1_000_000
"""Beyond the visibility timeout, after a worker was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the checker has to know of a run beside its records."""

    max_attempts: int | None = None
    """Failures that exhaust a message; None when each handler says otherwise."""
    max_crashes: int | None = None
    drained: bool = False
    """Whether all faults were healed and the queues emptied: what is neither done nor dead
    then is a finding."""
    tail_lost: bool = False
    """Whether a server may have lost its last writes: workers know of leases then that it
    does not."""
    lost_allowed: Collection[str] = ()
    """Ids whose publish may have been confirmed by a server that lost its last writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a history comes to."""

    published: int = 0
    """Messages that an actor began to publish; without records, those that were stored."""
    confirmed: int = 0
    """Of those, the ones whose publish was answered."""
    delivered: int = 0
    """Messages handed over to a worker for the first time."""
    redelivered: int = 0
    """Hand-overs of messages that were handed over before."""
    stale_settles: int = 0
    """Settlements that were refused."""
    lost: int = 0
    out_of_order: int = 0
    double_leases: int = 0
    findings: tuple[str, ...] = ()
    """A sentence each: the invariant (I1 to I10), shard, group, ids, operation numbers."""


def check(
    operations_by_shard: Mapping[str, Sequence[Operation]],
    records: Sequence[Record],
    final: Mapping[str, ShardState],
    limits: Limits,
    *,
    audit: Sequence[str] = (),
) -> Verdict:
    """Replay the operations of each shard, by prefix, and hold them against the rest.

    `final` is what each shard held after its last operation. `audit` is what an audit of the
    live shards found (I6), a sentence each.
    """
    shards = [
        _Shard(prefix, operations, final.get(prefix, ShardState()), limits)
        for prefix, operations in operations_by_shard.items()
    ]
    run = _Run(shards, records, limits)
    run.check()
    told = [text for findings in run.all_findings for text in findings.told()]
    told += [f"I6 {text}" for text in audit]
    names = ("delivered", "redelivered", "stale_settles", "lost", "out_of_order", "double_leases")
    return Verdict(
        published=len(run.published),
        confirmed=len(run.confirmed),
        findings=tuple(told),
        **{name: sum(findings.counts[name] for findings in run.all_findings) for name in names},
    )


class _Shard:
    """One shard, replayed and held against what it has in the end."""

    def __init__(
        self, prefix: str, operations: Iterable[Operation], final: ShardState, limits: Limits
    ) -> None:
        self.prefix = prefix
        self.queue = prefix.partition("{")[2].rpartition(":")[0]
        self.findings = Findings(prefix)
        self.judge = Judge(self.findings)
        for operation in operations:
            self.judge.follow(operation)
        self._hold_against(final)
        self._hold_aside_against(final)
        if limits.drained:
            self._check_drained()

    def _hold_against(self, final: ShardState) -> None:
        """Each message must be in the one place where its operations have put it (I1)."""
        lists, note = self.judge.places.lists, self.findings.note
        for group in lists.groups.keys() | final.lists.keys():
            replayed, found = tuple(lists.groups.get(group, ())), final.lists.get(group, ())
            if replayed == found:
                continue
            missing = [id_of(e) for e in replayed if e not in set(found)]
            foreign = [id_of(e) for e in found if e not in set(replayed)]
            for name in missing:
                note(
                    "I1",
                    f"message {name} of {shown(group)} waits, and is not in its list",
                    count="lost",
                )
            for name in foreign:
                note("I1", f"message {name} is in the list of {shown(group)}, where nobody put it")
            if not missing and not foreign:
                note(
                    "I1", f"the messages of {shown(group)} are in another order than they were put"
                )
        for group, token in final.locks.items():
            held = self.judge.leases.current.get(group)
            if held is None or held.token != token:
                note("I4", f"{shown(group)} is leased under token {token}, which nobody was given")

    def _hold_aside_against(self, final: ShardState) -> None:
        """The same of messages that are in no list: scheduled ones, and dead ones."""
        lists, note = self.judge.places.lists, self.findings.note
        for name in lists.scheduled.keys() - final.scheduled.keys():
            note("I1", f"message {name} is scheduled, and nothing is noted of it", count="lost")
        for name in final.scheduled.keys() - lists.scheduled.keys():
            note("I1", f"message {name} is scheduled, and nobody has done that")
        for entry in lists.dead.keys() - final.dead.keys():
            name = id_of(lists.dead[entry])
            note("I1", f"message {name} was set aside, and is not among the dead", count="lost")
        for entry in final.dead.keys() - lists.dead.keys():
            note("I1", f"message {id_of(final.dead[entry])} is dead, and nobody set it aside")
        for entry in final.dead.keys() & lists.dead.keys():
            if final.dead[entry] != lists.dead[entry]:
                note("I1", f"dead message {id_of(lists.dead[entry])} is not what was set aside")
        for name in final.scheduled.keys() & lists.scheduled.keys():
            if final.scheduled[name] != lists.scheduled[name]:
                note("I1", f"message {name} is not what was scheduled")

    def _check_drained(self) -> None:
        for known in self.judge.places.messages.values():
            if known.place in (WAITING, SCHEDULED):
                text = f"message {known.id} of {shown(known.group)} is {known.place} in the end"
                self.findings.note("I2", text, known.number)


class _Run:
    """All shards together, held against what the actors wrote down."""

    def __init__(self, shards: Sequence[_Shard], records: Sequence[Record], limits: Limits) -> None:
        self.shards, self.records, self.limits = shards, records, limits
        self.findings = Findings("all shards")
        publishes = [record for record in records if record.event == "publish"]
        self.refused = {r.fields["id"] for r in publishes if r.phase == "fail"}
        if publishes:
            self.published = {r.fields["id"] for r in publishes}
            self.confirmed = {r.fields["id"] for r in publishes if r.phase == "ok"}
        else:
            self.published = {name for shard in shards for name in shard.judge.places.messages}
            self.confirmed = self.published

    @property
    def all_findings(self) -> list[Findings]:
        """The findings of each shard, and those that concern several."""
        return [*(shard.findings for shard in self.shards), self.findings]

    def check(self) -> None:
        """Find out what is wrong."""
        self._check_shards()
        self._check_publishes()
        self._check_handles()
        self._check_done()
        for record in self.records:
            if record.event == "kill" and record.phase != "fail":
                self._check_kill(record)

    def _known(self, name: str) -> Known | None:
        found = (shard.judge.places.messages.get(name) for shard in self.shards)
        return next((known for known in found if known is not None), None)

    def _check_shards(self) -> None:
        """A message is in one shard."""
        seen: dict[str, str] = {}
        for shard in self.shards:
            for name in shard.judge.places.messages:
                if name in seen:
                    self.findings.note(
                        "I1", f"message {name} is in {seen[name]} and {shard.prefix}"
                    )
                seen[name] = shard.prefix

    def _check_publishes(self) -> None:
        left_out = set().union(*(shard.judge.places.duplicates for shard in self.shards))
        for name in sorted(self.confirmed - left_out):
            if self._known(name) is None and name not in self.limits.lost_allowed:
                text = f"message {name} was confirmed, and no operation stored it"
                self.findings.note("I1", text, count="lost")
        for name in sorted(self.refused - self.confirmed):
            if known := self._known(name):
                text = f"message {name} of {shown(known.group)} was refused, and was stored"
                self.findings.note("I8", text, known.number)

    def _check_handles(self) -> None:
        """A handler runs under a lease that its worker was given, however old it is by now."""
        leases: dict[tuple[str, int], list[Held]] = {}
        for shard in self.shards:
            for held in shard.judge.leases.all:
                leases.setdefault((shard.queue, held.token), []).append(held)
        handed_over: set[tuple[str, str, int]] = set()
        for record in self.records:
            if record.event != "handle" or record.phase != "invoke":
                continue
            name, token = record.fields["id"], int(record.fields["token"])
            hand_over = (str(record.fields.get("queue", "")), name, token)
            if hand_over in handed_over:
                text = f"message {name} was handled twice under token {token}"
                self.findings.note("I7", text)
            handed_over.add(hand_over)
            group = str(record.fields["group"]).encode(errors="surrogateescape")
            under = [
                held
                for held in leases.get((str(record.fields.get("queue", "")), token), [])
                if split_place(held.group)[0] == group and name in held.ids
            ]
            if under:
                self._check_limits(record, under[0])
            elif not self.limits.tail_lost:
                text = f"message {name} of {shown(group)} was handled under token {token}"
                self.findings.note("I4", f"{text}, which no lease of it has")

    def _check_done(self) -> None:
        """What is done has been handled; what was not, is as good as lost."""
        called: dict[str, set[str]] = {"invoke": set(), "ok": set()}
        for record in self.records:
            if record.event == "handle" and record.phase in called:
                called[record.phase].add(record.fields["id"])
        for phase, how in (("invoke", "was called with it"), ("ok", "returned")):
            for shard in self.shards if called[phase] else ():
                for known in shard.judge.places.messages.values():
                    if known.place == DONE and known.id not in called[phase]:
                        text = f"message {known.id} of {shown(known.group)} is done"
                        text += f", and no handler {how}"
                        shard.findings.note("I1", text, known.number, count="lost")

    def _check_limits(self, record: Record, held: Held) -> None:
        most_attempts, most_crashes = self.limits.max_attempts, self.limits.max_crashes
        name, attempt = record.fields["id"], int(record.fields.get("attempt", 1))
        of = f"message {name} of {shown(held.group)}"
        if most_attempts is not None and attempt > most_attempts:
            self.findings.note("I7", f"{of} was handled in attempt {attempt}", held.number)
        if most_crashes is not None and name == held.ids[0] and held.crashes >= most_crashes:
            self.findings.note("I7", f"{of} was handled after {held.crashes} crashes", held.number)

    def _check_kill(self, record: Record) -> None:
        """What a killed worker held is free within its visibility timeout and a second."""
        worker = str(record.fields.get("worker") or "").encode()
        part = b":%d:" % int(record.fields.get("killed") or 0)
        killed_us = record.wall_ns // 1000
        for shard in self.shards:
            for held in shard.judge.leases.all:
                if held.worker != worker and (worker or part not in held.worker):
                    continue
                free_us = min(held.deadline_us, held.ended_us)
                latest_us = killed_us + held.visibility_us + CLAIMABLE_WITHIN_US
                if held.at_us <= killed_us and free_us > latest_us:
                    late_ms = (free_us - killed_us) / 1000
                    text = f"{shown(held.group)} was held for {late_ms:.0f} ms"
                    text += " after its worker was killed"
                    shard.findings.note("I10", text, held.number)
