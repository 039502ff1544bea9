"""Is the diagram of messages with options in docs/lifecycle.md what the scripts do?"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
import redis

from groupqueue import RedisTransport
from groupqueue.core import calls
from groupqueue.core.identifiers import new_id
from groupqueue.core.keys import ShardKeys
from groupqueue.core.messages import Envelope, EnvelopeOptions
from tests.documents import DOCS, blocks

GROUP, SOON = "order-17", "+60000"


class Bench:
    """One message, alone in a group of a shard of its own."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self.client = client
        self.keys = ShardKeys(prefix)
        self.transport = RedisTransport(client, prefix)
        self.message = ""

    def perform(self, call: calls.Call[object]) -> None:
        """Carry out a call."""
        self.transport.perform(call)

    def publish(self, options: EnvelopeOptions) -> None:
        """Publish the message; there is but one."""
        if not self.message:
            self.message = new_id()
            self.transport.publish_envelopes([Envelope(self.message, GROUP, 0, b"body", options)])

    def age(self) -> None:
        """Let the moment of a scheduled or held message come, or that of an expiry."""
        element = self.client.lindex(self.keys.fifo(GROUP), 0)
        if self.client.zscore(self.keys.named("scheduled"), self.message) is not None:
            self.client.zadd(self.keys.named("scheduled"), {self.message: 1})
            if element is not None:
                self.client.zadd(self.keys.ready(0), {GROUP: 1})
        elif element is not None and element[45:58] != b"0" * 13:
            self.client.lset(self.keys.fifo(GROUP), 0, element[:45] + b"1".zfill(13) + b"body")

    def state(self) -> str:
        """Return the message's state, in the diagram's names."""
        if not self.message:
            return "[*]"
        if self.client.exists(self.keys.named("dead")):
            return "Dead"
        is_listed = self.client.exists(self.keys.fifo(GROUP))
        noted = self.client.hget(self.keys.named("scheduled:data"), self.message) or b""
        if noted.startswith(b"M"):
            return "Scheduled"
        if not is_listed:
            return "Gone"
        if self.client.exists(self.keys.lock(GROUP)):
            return "Leased"
        seconds, _ = self.client.time()
        due = self.client.zscore(self.keys.named("scheduled"), self.message) or 0
        return "Held" if due > seconds * 1000 else "Waiting"


Step = Callable[[Bench], object]
SCHEDULED = EnvelopeOptions(due=SOON)
HELD = EnvelopeOptions(due=SOON, hold=True)
EXPIRING = EnvelopeOptions(expires_ms=60_000)

STATES: list[tuple[str, list[Step]]] = [
    ("[*]", []),
    ("Scheduled", [lambda b: b.publish(SCHEDULED)]),
    ("Scheduled", [lambda b: b.publish(SCHEDULED), Bench.age]),
    ("Held", [lambda b: b.publish(HELD)]),
    ("Waiting", [lambda b: b.publish(EXPIRING)]),
    ("Waiting", [lambda b: b.publish(EXPIRING), Bench.age]),
]

OPERATIONS: list[tuple[str, Step]] = [
    ("publish_with", lambda b: b.publish(SCHEDULED)),
    ("publish_with", lambda b: b.publish(HELD)),
    ("publish_with", lambda b: b.publish(EXPIRING)),
    ("turn", lambda b: b.transport.turn("worker", [], 1, visibility=30)),
    ("turn", lambda b: b.transport.turn("worker", [], 0, visibility=30)),
    ("claim", lambda b: b.transport.claim("worker", 30)),
    ("cancel", lambda b: b.perform(calls.cancel(b.keys.prefix, b.message))),
    ("reschedule", lambda b: b.perform(calls.reschedule(b.keys.prefix, b.message, "+90000"))),
    ("reschedule", lambda b: b.perform(calls.reschedule(b.keys.prefix, b.message, "1"))),
    ("skip", lambda b: b.perform(calls.skip(b.keys.prefix, GROUP, b.message))),
    ("purge", lambda b: b.perform(calls.purge(b.keys.prefix, [GROUP]))),
    ("(time passes)", Bench.age),
]


@pytest.fixture
def observed(redis_client: redis.Redis) -> set[tuple[str, str, str]]:
    """Every change of the message's state that any operation makes."""
    edges = set()
    for number, ((state, steps), (label, operation)) in enumerate(
        itertools.product(STATES, OPERATIONS)
    ):
        bench = Bench(redis_client, f"gq:{{options-{number}:0}}")
        for step in steps:
            step(bench)
        assert bench.state() == state
        operation(bench)
        if bench.state() != state:
            edges.add((state, bench.state(), label))
        bench.transport.close()
    return edges


def test_the_diagram_shows_what_the_scripts_do(observed: set[tuple[str, str, str]]):
    *_, diagram = (block.text for block in blocks((DOCS / "lifecycle.md").read_text(), "mermaid"))
    shown = re.findall(r"^\s*(\S+) --> (\S+): (.+)$", diagram, re.MULTILINE)

    assert observed == {
        (source, target, "(time passes)" if label.startswith("(") else label)
        for source, target, labels in shown
        for label in labels.split(", ")
        if source != target
    }
