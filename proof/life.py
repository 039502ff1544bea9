"""What does the one actor of a driven shard do, and what does it remember?"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import redis

from groupqueue.core import calls
from groupqueue.core.calls import Call, Preference, Settlement
from groupqueue.core.messages import Envelope, EnvelopeOptions, Lease
from groupqueue.exceptions import DedupConflict, GroupFull, GroupQueueError, StaleLease
from groupqueue.transport.redis import RedisTransport
from proof import history, stamps

GROUPS = ("one", "two", "three", "Ärger: ein Konto")
WIDE = ("wide", "w:i d\ne")
WORKERS = ("anna", "bert")
HOUR_MS = 3_600_000
MOST_ROUNDS = 300
"""To empty a shard: more than any that keeps its promises needs."""

# What time would do: the lock is gone, and the deadline has passed.
LAPSE = """
redis.call("DEL", KEYS[1] .. ":lock:" .. ARGV[1])
if redis.call("HEXISTS", KEYS[1] .. ":paused", ARGV[1]) == 0 then
  for tier = 0, 4 do redis.call("ZADD", KEYS[1] .. ":ready:" .. tier, "XX", ARGV[2], ARGV[1]) end
end
return { "ok" }
"""


def let_lapse(client: redis.Redis, prefix: str, group: bytes) -> None:
    """Let a group's lease run out now, by an edit of which the history knows."""
    seconds, microseconds = client.time()
    now_ms = f"{seconds * 1000 + microseconds / 1000:.3f}"
    stamps.run(client, "lapse", LAPSE, prefix, group, now_ms)


_REFUSALS = (StaleLease, DedupConflict, GroupFull)


class Life:
    """A shard, and what its one actor remembers of it."""

    def __init__(self, client: redis.Redis, prefix: str, rng: random.Random) -> None:
        self.errors: list[str] = []
        """Operations that failed where none may."""
        self._redis, self._prefix, self._random = client, prefix, rng
        self._transport = RedisTransport(client, prefix)
        self._leases: list[Lease] = []
        self._sequences = {"publisher": 0, "another": 0}
        self._turns = dict.fromkeys(WORKERS, 0)
        self._repeatable: list[Call[Any]] = []
        self._ids: list[str] = []
        steps: dict[Callable[[], object], int] = {
            self._publish: 20,
            self._turn: 30,
            self._settle_alone: 12,
            self._claim: 6,
            self._renew: 4,
            self._recover: 2,
            self._recount: 2,
            self._lapse: 6,
            self._hasten: 2,
            self._come_due: 10,
            self._repeat: 4,
            self._hold: 4,
            self._let_go: 6,
            self._take_out: 5,
            self._change: 4,
            self._redrive: 7,
        }
        self._steps, self._weights = list(steps), list(steps.values())

    def step(self) -> None:
        """Do one thing or another."""
        [step] = self._random.choices(self._steps, self._weights)
        step()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def drain(self) -> None:
        """Let all go on, and handle what there is until nothing is left."""
        self._perform(calls.start(self._prefix))
        for _ in range(MOST_ROUNDS):
            for group in self._redis.hkeys(self._key("paused")):
                if group:
                    self._perform(calls.resume(self._prefix, _text(group)))
            for group, _ in history.groups(self._redis, self._prefix, "lock:"):
                let_lapse(self._redis, self._prefix, group)
            for group in self._groups():
                self._make_due(group)
            for name in self._redis.zrange(self._key("scheduled"), 0, -1):
                self._redis.zadd(self._key("scheduled"), {name: self._now_ms() - 1000})
            turned = self._turned([], 50)
            if turned is None:
                return
            self._turned([Settlement.ack(lease) for lease in turned.leases], 0)
            if (
                not turned.leases
                and not self._groups()
                and not self._redis.exists(self._key("scheduled"))
            ):
                return

    # Publishing -----------------------------------------------------------------------

    def _publish(self) -> None:
        envelopes = [self._envelope() for _ in range(self._random.choice((1, 1, 2, 4)))]
        publisher = self._random.choice(("publisher", "publisher", "another"))
        self._sequences[publisher] += 1
        call = calls.publish(
            self._prefix,
            envelopes,
            publisher=publisher,
            sequence=self._sequences[publisher],
            max_group_depth=self._random.choice((0, 0, 0, 12)),
        )
        self._perform(call)
        self._note(call)
        self._ids += [envelope.id for envelope in envelopes if envelope.options]
        if any(envelope.options for envelope in envelopes):
            self._let_pass(2)

    def _envelope(self) -> Envelope:
        rng, options = self._random, None
        group, tier = rng.choice(GROUPS), rng.choice((0, 0, 1, 4))
        kind = rng.random()
        body = b"%d" % rng.randrange(5)
        if kind < 0.2:
            group = rng.choice(WIDE)
            options = EnvelopeOptions(width=rng.choice((None, 1, 2, 2, 3)))
        elif kind < 0.35:
            options = EnvelopeOptions(
                due=rng.choice(("+1", f"+{HOUR_MS}")), hold=rng.random() < 0.5
            )
        elif kind < 0.45:
            options = EnvelopeOptions(expires_ms=rng.choice((1, HOUR_MS)))
        elif kind < 0.55:
            digest = group + body.decode()
            options = EnvelopeOptions(
                dedup_key=rng.choice("ab"),
                dedup_ms=HOUR_MS,
                digest=digest,
                due=rng.choice(("", "", f"+{HOUR_MS}")),
            )
        return Envelope(f"{rng.getrandbits(128):032x}", group, tier, body, options)

    def _repeat(self) -> None:
        """A call comes once more, at once or late."""
        if self._repeatable:
            self._perform(self._random.choice(self._repeatable))

    # Working ----------------------------------------------------------------------------

    def _turn(self) -> None:
        rng = self._random
        chosen = [self._settlement() for _ in range(rng.choice((0, 1, 1, 2, 3))) if self._leases]
        batch, want = rng.choice((1, 1, 3)), rng.choice((0, 1, 2, 4))
        worker, last_token = rng.choice(WORKERS), max((o.token for o in self._leases), default=0)
        fate = rng.choices(("answered", "lost", "late"), (17, 2, 1))[0]

        def give_up(number: int) -> None:
            self._try(lambda: self._transport.recover(worker, last_token, number))

        if fate == "late":  # its worker gives it up before it comes
            give_up(self._turns[worker] + 1)
        turned = self._turned(chosen, want, worker, batch=batch)
        if turned is None:
            return
        if fate == "lost":
            give_up(self._turns[worker])
        self._remember(turned.leases)

    def _turned(
        self, settlements: Sequence[Settlement], want: int, worker: str = "anna", *, batch: int = 1
    ) -> calls.Turned | None:
        self._turns[worker] += 1
        preference = Preference(self._random.choice((0, 0, 0, 1)) if want < 5 else 0, want // 2)
        return self._try(
            lambda: self._transport.turn(
                worker,
                settlements,
                want,
                visibility=HOUR_MS / 1000,
                preference=preference,
                batch=batch,
                number=self._turns[worker],
            )
        )

    def _settlement(self) -> Settlement:
        rng, lease = self._random, self._lease()
        delay, done = rng.choice((0, 0, 3600)), rng.randrange(1 + len(lease.rest))
        match rng.choices(
            ("ack", "retry", "release", "dead", "halt", "dead_group"), (8, 5, 2, 3, 1, 2)
        )[0]:
            case "retry":
                return Settlement.retry(lease, delay, "boom", done=done)
            case "release":
                return Settlement.release(lease, delay, done=done)
            case "dead":
                return Settlement.dead(lease, "why", "boom", done=done)
            case "dead_group":
                return Settlement.dead_group(lease, "why", "boom", done=done)
            case "halt":
                return Settlement.halt(lease, rng.choice(("poison", "max_attempts")), done=done)
        return Settlement.ack(lease, 1 + done)

    def _settle_alone(self) -> None:
        """Settle by itself: at times twice, or naming another message than the head."""
        if not self._leases:
            return
        rng, lease = self._random, self._lease()
        way = rng.choice(("ack", "nack", "settle", "wrong"))
        if way == "wrong":
            lease = lease._replace(id="0" * 32)
        if way in ("ack", "wrong"):
            call = calls.ack(self._prefix, lease)
        elif way == "nack":
            call = calls.nack(self._prefix, lease, delay_ms=rng.choice((0, HOUR_MS)))
        else:
            call = calls.settle(self._prefix, self._settlement())
        for _ in range(rng.choice((1, 1, 2))):
            self._perform(call)

    def _claim(self) -> None:
        worker = self._random.choice(WORKERS)
        lease = self._try(lambda: self._transport.claim(worker, HOUR_MS / 1000))
        self._remember([lease] if lease else [])

    def _renew(self) -> None:
        leases = [self._lease() for _ in range(3) if self._leases]
        if leases:
            self._try(lambda: self._transport.renew(leases, HOUR_MS / 1000))

    def _recover(self) -> None:
        if self._leases:
            worker, token = self._random.choice(WORKERS), self._lease().token
            self._try(lambda: self._transport.recover(worker, token))

    def _recount(self) -> None:
        """A message waits in its worker's hands, and is begun; or the worker dies meanwhile."""
        if not self._leases:
            return
        lease = self._lease()
        self._perform(calls.recount(self._prefix, lease, -1))
        if self._random.random() < 0.5:
            self._perform(calls.recount(self._prefix, lease, 1))
        elif self._holds(lease):
            let_lapse(self._redis, self._prefix, lease.key)

    def _remember(self, leases: Sequence[Lease]) -> None:
        self._leases = [*self._leases, *leases][-10:]

    def _lease(self) -> Lease:
        """Return a lease: one that holds, one whose group is another's by now, or any."""
        tokens = [self._redis.get(self._lock(lease.key)) for lease in self._leases]
        told = list(zip(self._leases, tokens, strict=True))
        holding = [lease for lease, token in told if token == b"%d" % lease.token]
        others = [lease for lease, token in told if token not in (None, b"%d" % lease.token)]
        kinds = self._random.choices((holding, others, self._leases), (6, 3, 1))
        return self._random.choice(kinds[0] or self._leases)

    def _holds(self, lease: Lease) -> bool:
        return bool(self._redis.get(self._lock(lease.key)) == b"%d" % lease.token)

    # Time --------------------------------------------------------------------------------

    def _lapse(self) -> None:
        leased = sorted(group for group, _ in history.groups(self._redis, self._prefix, "lock:"))
        if leased:
            let_lapse(self._redis, self._prefix, self._random.choice(leased))

    def _hasten(self) -> None:
        """A leased group is said to be due, as only an edit by hand can leave it."""
        leased = sorted(group for group, _ in history.groups(self._redis, self._prefix, "lock:"))
        for group in [one for one in leased if not self._redis.hexists(self._key("paused"), one)][
            :1
        ]:
            for tier in range(5):
                self._redis.zadd(self._key(f"ready:{tier}"), {group: 1}, xx=True)
            self._claim()

    def _come_due(self) -> None:
        scheduled = sorted(self._redis.zrange(self._key("scheduled"), 0, -1))
        if scheduled and self._random.random() < 0.5:
            moment = self._now_ms() - 1000
            self._redis.zadd(self._key("scheduled"), {self._random.choice(scheduled): moment})
        for group in self._groups():
            self._make_due(group)

    def _make_due(self, group: bytes) -> None:
        """End what a group waits for, unless it is held or leased."""
        is_held = self._redis.hexists(self._key("paused"), group)
        if not is_held and not self._redis.exists(self._lock(group)):
            for tier in range(5):
                key = self._key(f"ready:{tier}")
                self._redis.zadd(key, {group: self._now_ms()}, xx=True, lt=True)

    def _let_pass(self, milliseconds: int) -> None:
        ends = self._now_ms() + milliseconds
        while self._now_ms() < ends:
            pass

    # Operating ----------------------------------------------------------------------------

    def _hold(self) -> None:
        group = self._random.choice((*GROUPS, *WIDE))
        build = self._random.choice((calls.pause, calls.pause, calls.stop))
        named = (group, "why") if build is calls.pause else ("why",)
        self._operate(build(self._prefix, *named))

    def _let_go(self) -> None:
        self._operate(calls.start(self._prefix))
        group = self._random.choice((*GROUPS, *WIDE))
        self._operate(calls.resume(self._prefix, group))

    def _take_out(self) -> None:
        rng = self._random
        group = rng.choice((*GROUPS, *WIDE))
        way = rng.choice(("skip", "skip", "cancel", "cancel", "purge", "release", "release"))
        if way == "skip" and (head := self._redis.lindex(self._key(f"q:{group}"), 0)):
            self._operate(calls.skip(self._prefix, group, history.id_of(head)))
        elif way == "cancel" and self._ids:
            self._operate(calls.cancel(self._prefix, rng.choice(self._ids[-8:])))
        elif way == "purge":
            self._perform(calls.purge(self._prefix, [group]))
        elif way == "release":
            token = rng.choice((None, None, 1))
            self._operate(calls.release(self._prefix, group, token))

    def _change(self) -> None:
        rng = self._random
        if self._ids and rng.random() < 0.5:
            due = rng.choice(("+1", f"+{HOUR_MS}"))
            self._perform(calls.reschedule(self._prefix, rng.choice(self._ids[-8:]), due))
            self._let_pass(2)
        else:
            group, tier = rng.choice((*GROUPS, *WIDE)), rng.randrange(5)
            self._perform(calls.set_tier(self._prefix, group, tier))

    def _redrive(self) -> None:
        rng = self._random
        found = self._redis.xrange(self._key("dead"))
        letters = [entry.decode() for entry, _ in found]
        if not letters:
            return
        some = letters[rng.randrange(len(letters)) :][: rng.choice((1, 2, 4))]
        behind = [
            entry.decode()
            for entry, fields in found
            if self._redis.exists(self._lock(fields[b"group"]))
        ]
        if behind and rng.random() < 0.5:
            some = [rng.choice(behind)]
        way = rng.choice(("front", "front", "front", "tail", "drop", "trim"))
        if way == "drop":
            self._perform(calls.drop(self._prefix, some))
        elif way == "trim":
            self._perform(calls.trim(self._prefix, max_age_ms=None, max_count=3))
        else:
            self._perform(calls.redrive(self._prefix, some, to_tail=way == "tail"))

    def _operate(self, call: Call[Any]) -> None:
        self._perform(call)
        self._note(call)

    def _note(self, call: Call[Any]) -> None:
        self._repeatable = [*self._repeatable[-6:], call]

    # Reaching the shard ------------------------------------------------------------------

    def _perform(self, call: Call[Any]) -> Any:
        return self._try(lambda: self._transport.perform(call))

    def _try(self, attempt: Callable[[], Any]) -> Any:
        try:
            return attempt()
        except _REFUSALS:
            return None
        except (GroupQueueError, redis.RedisError) as error:
            self.errors.append(f"I8 {self._prefix}: an operation failed: {error}")
            return None

    def _groups(self) -> list[bytes]:
        return sorted(group for group, _ in history.groups(self._redis, self._prefix, "q:"))

    def _lock(self, group: bytes) -> bytes:
        return self._key("lock:").encode() + group

    def _key(self, name: str) -> str:
        return f"{self._prefix}:{name}"

    def _now_ms(self) -> float:
        seconds, microseconds = self._redis.time()
        return float(seconds * 1000 + microseconds / 1000)


def _text(group: bytes) -> str:
    return group.decode(errors="surrogateescape")
