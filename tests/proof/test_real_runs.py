"""Is what really happens, with many at work on one queue at once, found to be in order?"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.identifiers import new_id
from groupqueue.core.messages import Envelope, EnvelopeOptions, Lease
from groupqueue.exceptions import GroupFull, OutcomeUnknown, StaleLease
from groupqueue.transport.redis import RedisTransport
from proof import history
from proof.checker import Limits, Verdict, check
from proof.life import let_lapse
from proof.records import Recorder, read_records
from tests.proof.histories import named

GROUPS = ("a", "b", "c", "wide")
VISIBILITY_SECONDS = 30.0
BRIEF_SECONDS = 0.02


class Run:
    """Several actors on one shard, each a thread with what it knows."""

    def __init__(self, client: redis.Redis, prefix: str, folder: Path) -> None:
        self.redis, self.prefix, self.folder = client, prefix, folder
        self.recorder = Recorder(folder / "run.jsonl")
        self.queue = prefix.partition("{")[2].rpartition(":")[0]
        self.leases: list[Lease] = []
        """All that anybody was given: old ones are settled again."""

    def together(self, *actors: Callable[[random.Random, RedisTransport], None]) -> None:
        """Let all act at once; fail with what any of them raised."""
        errors: list[BaseException] = []

        def act(number: int, actor: Callable[[random.Random, RedisTransport], None]) -> None:
            transport = RedisTransport(self.redis, self.prefix)
            try:
                actor(random.Random(number), transport)
            except BaseException as error:
                errors.append(error)
            finally:
                transport.close()

        threads = [threading.Thread(target=act, args=one) for one in enumerate(actors)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise ExceptionGroup("an actor failed", errors)

    def publisher(self, rng: random.Random, transport: RedisTransport) -> None:
        """Publish all kinds of messages."""
        for _ in range(60):
            envelopes = [self._envelope(rng) for _ in range(rng.randint(1, 3))]
            for one in envelopes:
                self.note(one, "invoke")
            transport.publish_envelopes(envelopes)
            for one in envelopes:
                self.note(one, "ok")

    def note(self, envelope: Envelope, phase: str) -> None:
        """Note that a message is to be published, or has been."""
        group, name = envelope.group, envelope.id
        self.recorder.write("publish", phase=phase, id=name, group=group, queue=self.queue)

    def _envelope(self, rng: random.Random) -> Envelope:
        group, kind = rng.choice(GROUPS), rng.random()
        options = EnvelopeOptions(width=2) if group == "wide" else None
        if kind < 0.1:
            options = EnvelopeOptions(due=rng.choice(("+1", "+20")), hold=rng.random() < 0.5)
        elif kind < 0.2:
            options = EnvelopeOptions(expires_ms=rng.choice((1, 60_000)))
        elif kind < 0.25:
            options = EnvelopeOptions(dedup_key="key", dedup_ms=60_000, digest="same")
        return Envelope(new_id(), group, 0, b"body", options)

    def worker(self, rng: random.Random, transport: RedisTransport) -> None:
        """Claim, handle and settle in all ways; some leases run out first."""
        name, ends = f"worker-{rng.random()}", list[Settlement]()
        for number in range(1, 90):
            visibility = BRIEF_SECONDS if rng.random() < 0.3 else VISIBILITY_SECONDS
            batch = rng.choice((1, 3))
            turned = transport.turn(
                name, ends, 2, visibility=visibility, batch=batch, number=number
            )
            self.leases += turned.leases
            for lease in turned.leases:
                self.handle(lease)
            if visibility == BRIEF_SECONDS and turned.leases and rng.random() < 0.5:
                self._outlast(turned.leases)
            ends = [self._end(rng, lease) for lease in turned.leases if rng.random() < 0.9]
            if rng.random() < 0.2 and self.leases:
                old = rng.choice(self.leases)
                ends.append(self._end(rng, old))
                transport.renew([old], BRIEF_SECONDS)
            if rng.random() < 0.1:
                transport.recover(name, max((lease.token for lease in turned.leases), default=0))
        transport.turn(name, ends, 0, visibility=VISIBILITY_SECONDS)

    def handle(self, lease: Lease) -> None:
        """Note that the messages of a lease are handled."""
        for number, one in enumerate((lease, *lease.rest)):
            self.recorder.write(
                "handle",
                phase="invoke",
                id=one.id,
                group=lease.group,
                queue=self.queue,
                token=lease.token,
                attempt=1 if number else lease.failures + 1,
            )

    def _outlast(self, leases: list[Lease]) -> None:
        """Return once none of the leases is on the server any more."""
        keys = [f"{self.prefix}:lock:".encode() + lease.key for lease in leases]
        tokens = [b"%d" % lease.token for lease in leases]
        while any(found in tokens for found in self.redis.mget(keys)):
            pass

    def _end(self, rng: random.Random, lease: Lease) -> Settlement:
        done = rng.randrange(1 + len(lease.rest))
        way = rng.randrange(10)
        if way < 6:
            return Settlement.ack(lease, 1 + done)
        if way < 8:
            return Settlement.retry(lease, 0, "boom", done=done)
        if way < 9:
            return Settlement.dead(lease, "why", "boom", done=done)
        return Settlement.release(lease, done=done)

    def operator(self, rng: random.Random, transport: RedisTransport) -> None:
        """Do what operators do, and now and then let time take a lease."""
        for _ in range(60):
            group = rng.choice(GROUPS)
            letters = [entry.decode() for entry, _ in self.redis.xrange(f"{self.prefix}:dead")]
            leased = [one for one, _ in history.groups(self.redis, self.prefix, "lock:")]
            if head := self.redis.lindex(f"{self.prefix}:q:{group}", 0):
                transport.perform(calls.skip(self.prefix, group, history.id_of(head)))
            for build in rng.choices((calls.pause, calls.resume, calls.release), (1, 3, 1)):
                named = (group, "why") if build is calls.pause else (group,)
                transport.perform(build(self.prefix, *named))
            if letters:
                to_tail = rng.random() < 0.3
                transport.perform(calls.redrive(self.prefix, letters[-3:], to_tail=to_tail))
            if leased:
                let_lapse(self.redis, self.prefix, rng.choice(leased))

    def drain(self) -> None:
        """Handle what is left."""
        transport = RedisTransport(self.redis, self.prefix)
        for group in GROUPS:
            transport.perform(calls.resume(self.prefix, group))
        keys = [f"{self.prefix}:{name}" for name in ("scheduled", "prio")]
        while self.redis.exists(*keys):
            turned = transport.turn("last", [], 50, visibility=VISIBILITY_SECONDS)
            for lease in turned.leases:
                self.handle(lease)
            transport.turn("last", [*map(Settlement.ack, turned.leases)], 0, visibility=1)
            for group, _ in history.groups(self.redis, self.prefix, "lock:"):
                let_lapse(self.redis, self.prefix, group)
        transport.close()

    def verdict(self, **limits: Any) -> Verdict:
        """Return what the checker makes of it."""
        return check(
            {self.prefix: history.read(self.redis, self.prefix)},
            read_records(self.folder),
            {self.prefix: history.read_state(self.redis, self.prefix)},
            Limits(drained=True, **limits),
        )


@pytest.fixture
def run(redis_client: redis.Redis, queue_prefix: str, tmp_path: Path, stamped: None) -> Run:
    """A run on a shard of its own."""
    return Run(redis_client, queue_prefix, tmp_path)


def test_many_at_once_keep_the_promises(run: Run):
    run.together(run.publisher, run.publisher, run.worker, run.worker, run.worker, run.operator)
    run.drain()
    verdict = run.verdict()
    assert verdict.findings == ()
    assert verdict.published == verdict.confirmed > 100
    assert min(verdict.delivered, verdict.redelivered, verdict.stale_settles) > 20


def test_a_message_that_is_taken_out_by_hand_is_missed(run: Run):
    run.together(run.publisher)
    group = next(group for group in GROUPS if run.redis.exists(f"{run.prefix}:q:{group}"))
    lost = history.id_of(run.redis.lpop(f"{run.prefix}:q:{group}"))
    run.drain()
    verdict = run.verdict()
    assert verdict.lost
    assert any(lost in finding for finding in verdict.findings)


def test_a_refused_publish_has_no_effect(
    redis_client: redis.Redis, queue_prefix: str, stamped: None, tmp_path: Path
):
    run = Run(redis_client, queue_prefix, tmp_path)
    transport = RedisTransport(redis_client, queue_prefix, max_group_depth=1)
    transport.publish("a", b"1")
    with pytest.raises(GroupFull):
        transport.publish("a", b"2")
    lease = transport.claim("worker", 30)
    assert lease is not None
    transport.ack(lease)
    with pytest.raises((StaleLease, OutcomeUnknown)):
        transport.ack(lease)
    transport.close()
    assert run.verdict() == Verdict(published=1, confirmed=1, delivered=1, stale_settles=1)


def test_a_server_that_lost_its_last_writes_is_told_from_one_that_broke_a_promise(run: Run):
    run.together(run.publisher)
    transport = RedisTransport(run.redis, run.prefix)
    before = {key: (run.redis.dump(key), run.redis.pttl(key)) for key in run.redis.keys("*")}
    sent = Envelope(new_id(), "a", 0, b"body")
    for phase in ("invoke", "ok"):
        run.note(sent, phase)
    transport.publish_envelopes([sent])
    turned = transport.turn("worker", [], 3, visibility=VISIBILITY_SECONDS)
    for lease in turned.leases:
        run.handle(lease)
    run.redis.flushdb()
    for key, (value, left_ms) in before.items():
        run.redis.restore(key, max(0, left_ms), value)
    transport.turn("worker", [Settlement.ack(lease) for lease in turned.leases], 0, visibility=1)
    transport.close()
    run.drain()
    told = named(run.verdict())
    assert told == {"I1", "I4"}
    verdict = run.verdict(tail_lost=True, lost_allowed={sent.id})
    assert verdict.findings == ()
    assert verdict.stale_settles == len(turned.leases)
