"""Does a shard with wide groups hold what it should, whatever is done to it in whatever order?"""

from __future__ import annotations

import random

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Settlement, Turned
from groupqueue.core.identifiers import new_id
from groupqueue.core.messages import PLACE, Envelope, EnvelopeOptions, Lease, split_place
from groupqueue.core.rates import Rate, Rates
from groupqueue.exceptions import StaleLease
from tests.transport.envelopes import audit
from tests.transport.shards import Shard
from tests.transport.test_auditing import audit as audit_as_operators_do
from tests.transport.test_cleanliness import left_behind
from tests.transport.wide_model import Group, Model, key

STEPS = 400
VISIBILITY_SECONDS = 300
# What ends sooner ends at once, and not while somebody looks.
SHORTEST_LEASE_MS = 20_000
GROUPS = ("wide", "mixed", "Gruppe für sich", "plain")
WEIGHTS = {
    "publish": 12,
    "turn": 40,
    "claim": 5,
    "settle_one": 6,
    "let_a_lease_run_out": 6,
    "recover": 2,
    "pause": 2,
    "resume": 5,
    "skip": 4,
    "redrive": 4,
    "wait": 8,
}
"""How often something is done; 1 for what is not named."""
WORKERS = ("worker-1", "worker-2", "worker-3")


class Sequence:
    """Whatever a random generator makes up, done to a shard and told to a model."""

    def __init__(self, shard: Shard, seed: int) -> None:
        self.shard, self.random, self.model = shard, random.Random(seed), Model()
        self.done: list[str] = []
        self.known: dict[str, list[Lease]] = {worker: [] for worker in WORKERS}
        """What each worker believes to hold."""
        self.operations = [name[3:] for name in dir(self) if name.startswith("do_")]

    async def step(self) -> None:
        weights = [WEIGHTS.get(name, 1) for name in self.operations]
        [name] = self.random.choices(self.operations, weights)
        self.done.append(name)
        await getattr(self, f"do_{name}")()
        self.check()

    # What may be done ----------------------------------------------------------------------

    async def do_publish(self) -> None:
        envelopes = [self.envelope() for _ in range(self.random.choice((1, 1, 2, 5)))]
        self.note(*((sent.group, sent.options) for sent in envelopes))
        now_ms = self.shard.now_ms()
        await self.shard.transport.publish_envelopes(envelopes)
        self.model.publish(envelopes, now_ms)

    def envelope(self) -> Envelope:
        group = self.random.choice(GROUPS)
        options = EnvelopeOptions()
        if group != "plain" and self.random.random() < (0.8 if group == "wide" else 0.3):
            options = options._replace(width=self.random.choice((1, 2, 2, 3, 4)))
        lot = self.random.random()
        if lot < 0.1:
            options = options._replace(expires_ms=1)
        elif lot < 0.3:
            options = options._replace(due="+900000", hold=lot > 0.2)
        return Envelope(
            new_id(), group, self.random.randrange(5), b"x", options if any(options) else None
        )

    async def do_turn(self) -> None:
        worker = self.random.choice(WORKERS)
        await self.turn(worker, self.some_settlements(worker), self.random.choice((0, 1, 1, 3, 8)))

    async def turn(self, worker: str, settlements: list[Settlement], want: int) -> Turned:
        rates = Rates(group=Rate(5_000_000, 2)) if self.random.random() < 0.1 else Rates()
        batch = self.random.choice((1, 1, 3))
        self.note(worker, [(s.outcome, *key(s.lease)) for s in settlements], want, batch, rates)
        before = self.moments()
        turned = await self.shard.transport.turn(
            worker, settlements, want, visibility=VISIBILITY_SECONDS, batch=batch, rates=rates
        )
        self.known[worker] += turned.leases
        self.note(turned)
        self.model.turn(settlements, turned, self.left(before))
        return turned

    def some_settlements(self, worker: str) -> list[Settlement]:
        held = self.known[worker]
        chosen = self.random.sample(held, self.random.randint(0, len(held)))
        self.known[worker] = [lease for lease in held if lease not in chosen]
        seen, settlements = set(), []
        for lease in chosen:
            if key(lease) in seen:  # a group settles once per call
                self.known[worker].append(lease)
            else:
                seen.add(key(lease))
                settlements.append(self.settlement(lease))
        return settlements

    def settlement(self, lease: Lease) -> Settlement:
        done = self.random.randint(0, len(lease.rest))
        return self.random.choice(
            (
                lambda: Settlement.ack(lease, done + 1),
                lambda: Settlement.ack(lease, done + 1),
                lambda: Settlement.ack(lease, done + 1),
                lambda: Settlement.retry(lease, 0, "boom", done=done),
                lambda: Settlement.retry(lease, 30, "boom", done=done),
                lambda: Settlement.retry(lease, 300, "boom", done=done),
                lambda: Settlement.release(lease, self.random.choice((0, 100)), done=done),
                lambda: Settlement.dead(lease, "why", "boom", done=done),
                lambda: Settlement.halt(lease, "why", "boom", done=done),
                lambda: Settlement.dead_group(lease, "why", done=done),
            )
        )()

    async def do_claim(self) -> None:
        worker, before = self.random.choice(WORKERS), self.moments()
        listed = self.stored()
        lease = await self.shard.transport.claim(worker, VISIBILITY_SECONDS)
        leases = [lease] if lease else []
        self.known[worker] += leases
        self.note(lease)
        self.model.promote(self.left(before))
        # This call does not say what it dropped.
        gone = [
            calls.Gone(split(group)[0], i)
            for i, group in listed.items()
            if i not in self.stored() and not self.died(i)
        ]
        buried = [calls.Gone(split(group)[0], i) for i, group in listed.items() if self.died(i)]
        self.model.claim(Turned([], leases, 0, gone, buried))

    def died(self, identifier: str) -> bool:
        return identifier in {element[:32].decode() for _, element in self.letters()} - {
            told.id for told in self.model.dead
        }

    async def do_settle_one(self) -> None:
        worker = self.random.choice(WORKERS)
        if not self.known[worker]:
            return
        lease = self.known[worker].pop(self.random.randrange(len(self.known[worker])))
        if self.random.random() < 0.5:
            settlement, call = (
                Settlement.ack(lease, 1 + len(lease.rest)),
                calls.ack(self.shard.prefix, lease),
            )
        else:
            settlement = Settlement.retry(lease, 5)
            call = calls.nack(self.shard.prefix, lease, delay_ms=5000)
        self.note(settlement)
        before = self.moments()
        try:
            await self.shard.transport.perform(call)
            word = "ok"
        except StaleLease as stale:
            word = stale.word
        self.model.settle(settlement, word)
        self.model.promote(self.left(before))

    async def do_let_a_lease_run_out(self) -> None:
        if self.model.leases:
            self.let_run_out(self.random.choice(list(self.model.leases.values())))

    def let_run_out(self, lease: Lease) -> None:
        self.note(key(lease))
        name, shard = lease.key, self.shard
        shard.redis.delete(self.lock(lease))
        for tier in range(5):
            score = shard.redis.zscore(shard.keys.ready(tier), name)
            if score is not None and score != float("inf"):
                shard.redis.zadd(shard.keys.ready(tier), {name: shard.now_ms() - 1})
        self.model.let_run_out(lease)

    async def do_renew(self) -> None:
        leases = self.known[self.random.choice(WORKERS)]
        if leases:
            lost = await self.shard.transport.renew(leases, VISIBILITY_SECONDS)
            assert lost == [one for one in leases if self.model.leases.get(key(one)) != one]

    async def do_recover(self) -> None:
        worker = self.random.choice(WORKERS)
        valid = [one for one in self.known[worker] if self.model.leases.get(key(one)) == one]
        if not valid:
            return
        after = self.random.choice(valid).token
        back = [lease for lease in valid if lease.token > after]
        self.note(worker, [key(lease) for lease in back])
        assert await self.shard.transport.recover(worker, after) == len(back)
        for lease in back:
            self.model.hand_back(lease)

    async def do_pause(self) -> None:
        group = self.group()
        was_held = group.paused or "" in group.halted
        call = calls.pause(self.shard.prefix, group.name, "why")
        assert await self.shard.transport.perform(call) is not was_held
        group.paused = group.paused or not was_held

    async def do_resume(self) -> None:
        await self.resume(self.group())

    async def resume(self, group: Group) -> None:
        self.note(group.name)
        is_held = group.paused or bool(group.halted)
        call = calls.resume(self.shard.prefix, group.name)
        assert await self.shard.transport.perform(call) is is_held
        self.model.resume(group)

    async def do_skip(self) -> None:
        group = self.group()
        ids = [told.id for told in (*group.listed[:2], *group.started.values())]
        if ids:
            chosen = self.random.choice(ids)
            self.note(group.name, chosen)
            word = await self.shard.transport.perform(
                calls.skip(self.shard.prefix, group.name, chosen)
            )
            self.model.skip(group, chosen, word)

    async def do_release(self) -> None:
        group = self.group()
        held = [lease for lease in self.model.leases.values() if lease.group == group.name]
        chosen = self.random.choice([None, *held])
        ended = held if chosen is None else [chosen]
        token = chosen and chosen.token
        call = calls.release(self.shard.prefix, group.name, token)
        assert await self.shard.transport.perform(call) is bool(ended)
        for lease in ended:
            self.model.hand_back(lease)

    async def do_purge(self) -> None:
        group = self.group()
        self.note(group.name)
        purged = await self.shard.transport.perform(calls.purge(self.shard.prefix, [group.name]))
        assert purged.messages == self.model.purge(group)

    async def do_set_tier(self) -> None:
        group, tier = self.group(), self.random.randrange(5)
        call = calls.set_tier(self.shard.prefix, group.name, tier)
        assert (await self.shard.transport.perform(call)).is_known is not group.is_empty
        group.tier = tier

    async def do_redrive(self) -> None:
        dead = {told.id: told.group for told in self.model.dead}
        # Where they go behind a lease of several messages is asked elsewhere.
        letters = [
            (entry, element)
            for entry, element in self.letters()
            if not self.shard.redis.exists(self.shard.named(f"batch:{dead[element[:32].decode()]}"))
        ]
        chosen = self.random.sample(letters, min(len(letters), self.random.randint(1, 4)))
        chosen.sort(key=letters.index)
        if not chosen:
            return
        to_tail = self.random.random() < 0.3
        self.note(chosen, to_tail)
        call = calls.redrive(self.shard.prefix, [entry for entry, _ in chosen], to_tail=to_tail)
        assert await self.shard.transport.perform(call) == len(chosen)
        self.model.redrive([element[:32].decode() for _, element in chosen], to_tail=to_tail)

    async def do_cancel(self) -> None:
        told = [*self.model.scheduled.values(), *self.model.held.values()]
        ids = [each.id for each in told if abs(each.due_ms - self.shard.now_ms()) > 1000]
        if ids:
            chosen = self.random.choice(ids)
            self.note(chosen)
            word = await self.shard.transport.perform(calls.cancel(self.shard.prefix, chosen))
            self.model.cancel(chosen, word, self.shard.now_ms())

    async def do_rate(self) -> None:
        rate = self.random.choice(("", "", "none", "10000000 1"))
        await self.shard.transport.perform(calls.rate(self.shard.prefix, self.group().name, rate))

    async def do_wait(self) -> None:
        self.let_pass(self.random.choice((1_000, 10_000, 40_000, 400_000)))

    def let_pass(self, milliseconds: int) -> None:
        """Move all that is to come closer by so much."""
        shard = self.shard
        self.note(milliseconds)
        for tier in range(5):
            for name, score in shard.redis.zrange(shard.keys.ready(tier), 0, -1, withscores=True):
                if score != float("inf"):
                    shard.redis.zadd(shard.keys.ready(tier), {name: score - milliseconds})
        shard.redis.eval(
            "for _, m in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do"
            " redis.call('ZINCRBY', KEYS[1], -ARGV[1], m) end",
            1,
            shard.named("scheduled"),
            milliseconds,
        )
        for told in (*self.model.scheduled.values(), *self.model.held.values()):
            told.due_ms -= milliseconds
        for name in shard.redis.keys(shard.named("tat:*")):
            moments = [
                int(us) - milliseconds * 1000 for us in (shard.redis.get(name) or b"").split()
            ]
            shard.redis.set(name, " ".join(map(str, moments)), keepttl=True)
        for lease in list(self.model.leases.values()):
            lock = self.lock(lease)
            left_ms = shard.redis.pttl(lock)
            if left_ms <= milliseconds + SHORTEST_LEASE_MS:
                self.let_run_out(lease)
            else:
                shard.redis.pexpire(lock, left_ms - milliseconds)

    # What must hold after it ---------------------------------------------------------------

    def check(self) -> None:
        shard, model = self.shard, self.model
        audit(shard)
        lists = self.lists()
        locks = {shard.redis.get(k) for k in shard.redis.keys(shard.keys.lock("*"))}
        assert locks == {b"%d" % lease.token for lease in model.leases.values()}
        widths = {
            name.decode(): int(width)
            for name, width in shard.redis.hgetall(shard.named("wide")).items()
        }
        assert widths == {g.name: g.width for g in model.groups.values() if g.width}
        for group in model.groups.values():
            assert lists.pop(group.name.encode(), []) == [told.id for told in group.listed]
            for identifier in group.started:
                assert lists.pop(group.name.encode() + PLACE + identifier.encode()) == [identifier]
            places = shard.redis.zrange(shard.named(f"places:{group.name}"), 0, -1, withscores=True)
            assert {split(name)[1] for name, _ in places} == set(group.started)
            in_flight = {split(name)[1] for name, score in places if score == 1}
            if group.paused:  # a silent worker's message gives its place up when it is looked at
                group.places &= in_flight | {i for _, i in model.leases}
            assert in_flight == group.places
            self.check_moves(group, {split(name)[1] for name, score in places if score == 2})
        assert lists == {}
        assert {element[:32].decode() for _, element in self.letters()} == {
            told.id for told in model.dead
        }
        assert set(self.moments()) == {*model.scheduled, *model.held}
        kept = sum(len(g.listed) + len(g.started) for g in model.groups.values())
        assert model.published == kept + len(model.scheduled) + len(model.dead) + model.ended

    def check_moves(self, group: Group, late: set[str]) -> None:
        """Fail if a place is free, a message could have it, and nobody will look soon."""
        free = group.width - len(group.places)
        if (
            free <= 0
            or group.paused
            or self.shard.redis.exists(self.shard.named(f"tat:{group.name}"))
        ):
            return
        soon = self.shard.now_ms() + 11_000  # a rate may have put it off
        coming = [
            told
            for told in group.started.values()
            if told.id not in group.places
            and told.id not in late
            and self.score(group.name.encode() + PLACE + told.id.encode()) <= soon
        ]
        listed = bool(group.listed) and (group.name, "") not in self.model.leases
        listed = listed and group.listed[0].id not in self.model.held and "" not in group.halted
        listed = listed and not group.listed[0].is_parked
        is_looked_at = bool(group.listed) and self.score(group.name.encode()) <= soon
        assert not late or is_looked_at or len(coming) >= min(free, len(late)), "it waits for ever"
        assert not listed or is_looked_at or len(coming) >= free, "it starts nothing"

    def score(self, name: bytes) -> float:
        found = [self.shard.redis.zscore(self.shard.keys.ready(tier), name) for tier in range(5)]
        return next(score for score in found if score is not None)

    async def settle_down(self) -> None:
        """Let everything come to its end."""
        for name in GROUPS:
            for group in (*self.model.groups.values(),):
                await self.resume(group)
            await self.shard.transport.perform(calls.rate(self.shard.prefix, name, ""))
        self.known = {worker: [] for worker in WORKERS}
        for _ in range(300):
            self.let_pass(61_000)
            turned = await self.turn("worker-1", [], 20)
            await self.turn("worker-1", [ack_all(lease) for lease in turned.leases], 0)
            self.check()
            if all(g.is_empty for g in self.model.groups.values()) and not self.moments():
                return
        raise AssertionError(f"{self.model.groups} never drain")

    def check_end(self) -> None:
        left = {
            name
            for name in left_behind(self.shard)
            if self.shard.redis.pttl(self.shard.named(name)) == -1
        }
        assert left <= {"dead"}, left

    # How it looks --------------------------------------------------------------------------

    def lock(self, lease: Lease) -> bytes:
        return self.shard.keys.lock("").encode() + lease.key

    def note(self, *what: object) -> None:
        self.done.append(f"    {what}")

    def group(self) -> Group:
        return self.model.groups.setdefault(name := self.random.choice(GROUPS), Group(name))

    def lists(self) -> dict[bytes, list[str]]:
        prefix = self.shard.keys.fifo("").encode()
        return {
            name.removeprefix(prefix): [
                e[:32].decode() for e in self.shard.redis.lrange(name, 0, -1)
            ]
            for name in self.shard.redis.keys(self.shard.keys.fifo("*"))
        }

    def stored(self) -> dict[str, bytes]:
        return {i: name for name, ids in self.lists().items() for i in ids}

    def letters(self) -> list[tuple[str, bytes]]:
        found = self.shard.redis.xrange(self.shard.named("dead"))
        return [(entry.decode(), letter[b"element"]) for entry, letter in found]

    def moments(self) -> list[str]:
        return [i.decode() for i in self.shard.redis.zrange(self.shard.named("scheduled"), 0, -1)]

    def left(self, before: list[str]) -> list[str]:
        now = self.moments()
        return [identifier for identifier in before if identifier not in now]


def split(name: bytes) -> tuple[str, str]:
    """Return a group's name and, of a started message, its id."""
    group, identifier = split_place(name)
    return group.decode(), identifier.decode()


def ack_all(lease: Lease) -> Settlement:
    """Return the settlement of a lease whose messages all ended well."""
    return Settlement.ack(lease, 1 + len(lease.rest))


@pytest.mark.parametrize("seed", range(3))
async def test_failure_13_whatever_happens_nothing_is_lost_doubled_or_stuck(
    real_shard: Shard, seed: int
):
    sequence = Sequence(real_shard, seed)

    try:
        for number in range(STEPS):
            await sequence.step()
            if number % 10 == 0:
                assert (await audit_as_operators_do(real_shard)).faults == ()
        await sequence.settle_down()
    except BaseException as error:
        error.add_note("\n".join(sequence.done[-40:]))
        raise

    sequence.check_end()
