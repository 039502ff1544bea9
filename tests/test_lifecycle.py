"""Are the diagrams of docs/lifecycle.md what the scripts do, edge by edge?

Each operation is carried out in each state of a group, and what became of the group
and of its head is held against the diagrams: no edge is missing, none is made up.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import redis

from groupqueue import RedisTransport
from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.keys import ShardKeys
from groupqueue.core.messages import Lease
from groupqueue.exceptions import StaleLease
from tests.documents import DOCS, blocks

Edges = set[tuple[str, str, str]]
GROUP, WORKER = "order-17", "worker-1"


class Bench:
    """One group on a shard of its own, and the lease that its worker believes in."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self.client = client
        self.keys = ShardKeys(prefix)
        self.transport = RedisTransport(client, prefix)
        self.lease: Lease | None = None
        self.head = ""

    def publish(self) -> None:
        """Append a message."""
        identifier = self.transport.publish(GROUP, b"payload")
        self.head = self.head or identifier

    def claim(self) -> None:
        """Lease the head, if it is due."""
        self.lease = self.transport.claim(WORKER, 30) or self.lease

    def turn(self) -> None:
        """The same by a turn."""
        turned = self.transport.turn(WORKER, [], 1, visibility=30)
        self.lease = turned.leases[0] if turned.leases else self.lease

    def settle(self, outcome: Callable[[Lease], Settlement]) -> None:
        """End the delivery, if its lease still holds."""
        if self.lease is not None:
            with suppress(StaleLease):
                self.transport.settle(outcome(self.lease))

    def end(self, script: Callable[[Lease], int]) -> None:
        """The same by one of the scripts that only settle."""
        if self.lease is not None:
            with suppress(StaleLease):
                script(self.lease)

    def renew(self) -> None:
        """Let the lease last longer."""
        if self.lease is not None:
            self.transport.renew([self.lease], 30)

    def bury(self) -> None:
        """Set the leased head aside."""
        self.settle(lambda lease: Settlement.dead(lease, "why"))

    def doom(self) -> None:
        """Set the leased head aside, and all that waits behind it."""
        self.settle(lambda lease: Settlement.dead_group(lease, "why"))

    def use_up_a_rate(self) -> None:
        """Have the head handled, and let no further message go for an hour."""
        self.perform(calls.rate(self.keys.prefix, GROUP, "3600000000 1"))
        self.publish()
        self.claim()
        self.settle(Settlement.ack)

    def redrive(self) -> None:
        """Put back what was set aside: the head, or an older message of the group."""
        letters = self.client.xrange(self.keys.named("dead"))
        if not letters:
            element = "f" * 32 + "1" * 13 + "0" * 13 + "payload"
            letter = {"group": GROUP, "tier": "0", "element": element}
            letters = [(self.client.xadd(self.keys.named("dead"), letter), {})]
        self.perform(calls.redrive(self.keys.prefix, [entry.decode() for entry, _ in letters]))

    def drop(self) -> None:
        """Throw away what was set aside."""
        for entry, _ in self.client.xrange(self.keys.named("dead")):
            self.perform(calls.drop(self.keys.prefix, [entry.decode()]))

    def age(self) -> None:
        """Let the time pass at which a lease or a wait would end."""
        self.client.delete(self.keys.lock(GROUP))
        score = self.client.zscore(self.keys.ready(0), GROUP)
        if score is not None and score != float("inf"):
            self.client.zadd(self.keys.ready(0), {GROUP: 1})

    def perform(self, call: calls.Call[object]) -> None:
        """Carry out an operator's call."""
        self.transport.perform(call)

    def state(self) -> str:
        """Return the group's state, in the diagram's names."""
        why = self.client.hget(self.keys.named("paused"), GROUP)
        if self.client.exists(self.keys.lock(GROUP)):
            return "LeasedPaused" if why else "Leased"
        if why:
            return "Halted" if why.startswith(b"halted") else "Paused"
        scores = [self.client.zscore(self.keys.ready(tier), GROUP) for tier in range(5)]
        [score] = [found for found in scores if found is not None] or [None]
        if score is None:
            return "Empty"
        if self.client.hexists(self.keys.named("doomed"), GROUP):
            return "Doomed"
        seconds, microseconds = self.client.time()
        return "Due" if score <= seconds * 1000 + microseconds / 1000 else "Parked"

    def state_of_head(self) -> str:
        """Return the state of the message that was the head at first, in the diagram's names."""
        if not self.head:
            return "[*]"
        elements = self.client.lrange(self.keys.fifo(GROUP), 0, -1)
        if not any(element.startswith(self.head.encode()) for element in elements):
            letters = self.client.xrange(self.keys.named("dead"))
            dead = [fields[b"element"][:32].decode() for _, fields in letters]
            return "Dead" if self.head in dead else "Done"
        if self.client.exists(self.keys.lock(GROUP)):
            return "Leased"
        return "Retried" if self.client.hexists(self.keys.named("attempts"), GROUP) else "Waiting"


def _pause(bench: Bench) -> None:
    bench.perform(calls.pause(bench.keys.prefix, GROUP, "why"))


def _resume(bench: Bench) -> None:
    bench.perform(calls.resume(bench.keys.prefix, GROUP))


def _set_tier(bench: Bench) -> None:
    bench.perform(calls.set_tier(bench.keys.prefix, GROUP, 4))


def _release(bench: Bench) -> None:
    bench.perform(calls.release(bench.keys.prefix, GROUP))


def _purge(bench: Bench) -> None:
    bench.perform(calls.purge(bench.keys.prefix, [GROUP]))


def _lift_rate(bench: Bench) -> None:
    bench.perform(calls.rate(bench.keys.prefix, GROUP, "none"))


def _trim(bench: Bench) -> None:
    # Those of the next minute are old as well.
    bench.perform(calls.trim(bench.keys.prefix, max_age_ms=-60_000, max_count=None))


def _skip(bench: Bench) -> None:
    bench.perform(calls.skip(bench.keys.prefix, GROUP, bench.head))


Operation = tuple[str, Callable[[Bench], object]]

# What leads into each state once the messages are there. A group can be due in two ways,
# and empty because its only message is a dead letter.
STATES: list[tuple[str, list[Callable[[Bench], object]]]] = [
    ("Empty", []),
    ("Empty", [Bench.claim, Bench.bury]),
    ("Due", []),
    ("Due", [Bench.claim, lambda b: b.settle(lambda lease: Settlement.retry(lease, 0))]),
    ("Due", [Bench.use_up_a_rate]),
    ("Leased", [Bench.claim]),
    ("LeasedPaused", [Bench.claim, _pause]),
    ("Parked", [Bench.claim, lambda b: b.settle(lambda lease: Settlement.retry(lease, 60))]),
    ("Parked", [Bench.use_up_a_rate, Bench.claim]),
    ("Paused", [_pause]),
    ("Paused", [Bench.claim, _pause, Bench.doom]),
    ("Halted", [Bench.claim, lambda b: b.settle(lambda lease: Settlement.halt(lease, "why"))]),
    ("Doomed", [Bench.claim, Bench.doom]),
    ("Doomed", [Bench.claim, Bench.doom, Bench.publish]),
]

OPERATIONS: list[Operation] = [
    ("publish", Bench.publish),
    ("claim", Bench.claim),
    ("turn", Bench.turn),
    ("renew", Bench.renew),
    ("ack", lambda b: b.end(b.transport.ack)),
    ("nack", lambda b: b.end(b.transport.nack)),
    ("nack", lambda b: b.end(lambda lease: b.transport.nack(lease, 60))),
    ("turn / ack", lambda b: b.settle(Settlement.ack)),
    ("turn / retry", lambda b: b.settle(lambda lease: Settlement.retry(lease, 0))),
    ("turn / retry", lambda b: b.settle(lambda lease: Settlement.retry(lease, 60))),
    ("turn / release", lambda b: b.settle(Settlement.release)),
    ("turn / release", lambda b: b.settle(lambda lease: Settlement.release(lease, 60))),
    ("turn / dead", lambda b: b.settle(lambda lease: Settlement.dead(lease, "why"))),
    ("turn / dead_group", Bench.doom),
    ("turn / halt", lambda b: b.settle(lambda lease: Settlement.halt(lease, "why"))),
    ("recover", lambda b: b.transport.recover(WORKER, 0)),
    ("pause", _pause),
    ("resume", _resume),
    ("skip", _skip),
    ("set_tier", _set_tier),
    ("release", _release),
    ("purge", _purge),
    ("redrive", Bench.redrive),
    ("drop", Bench.drop),
    ("trim", _trim),
    ("rate", _lift_rate),
    ("(time passes)", Bench.age),
]


@pytest.fixture
def observed(redis_client: redis.Redis) -> tuple[Edges, Edges]:
    """Every change of a group's and of a head's state that any operation makes."""
    of_groups: Edges = set()
    of_heads: Edges = set()
    for bench, (label, operation) in _experiments(redis_client):
        before, head_before = bench.state(), bench.state_of_head()
        operation(bench)
        after, head_after = bench.state(), bench.state_of_head()
        bench.transport.close()
        if before != after:
            of_groups.add((before, after, label))
        if head_before != head_after:
            of_heads.add((head_before, head_after, label))
    return of_groups, of_heads


def test_the_diagrams_show_what_the_scripts_do(observed: tuple[Edges, Edges]):
    of_groups, of_heads = observed
    group_diagram, message_diagram, _ = (
        block.text for block in blocks((DOCS / "lifecycle.md").read_text(), "mermaid")
    )

    assert of_groups == _changes(group_diagram)
    assert of_heads == _changes(message_diagram)


def _experiments(client: redis.Redis) -> Iterator[tuple[Bench, Operation]]:
    """Yield a fresh group in each state, with one message and with two, per operation."""
    cases = itertools.product(STATES, (0, 1, 2), OPERATIONS)
    for number, ((state, steps), messages, operation) in enumerate(cases):
        # Only a group that is empty, or paused, can be without messages.
        if state == "Empty" and messages != len(steps) // 2:
            continue
        if messages == 0 and (state not in ("Empty", "Paused") or len(steps) > 1):
            continue
        # Only a group with something behind its head can be set aside with it.
        if messages < 2 and state == "Doomed":
            continue
        bench = Bench(client, f"gq:{{lifecycle-{number}:0}}")
        for _ in range(messages):
            bench.publish()
        for step in steps:
            step(bench)
        assert bench.state() == state
        yield bench, operation


def _changes(diagram: str) -> Edges:
    """Return the edges of a diagram that lead to another state, one per label."""
    edges = re.findall(r"^\s*(\S+) --> (\S+): (.+)$", diagram, re.MULTILINE)
    return {
        (source, target, "(time passes)" if label.startswith("(") else label)
        for source, target, labels in edges
        for label in labels.split(", ")
        if source != target
    }
