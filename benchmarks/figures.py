"""What is a figure, and what does it need to be measured?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import redis

from benchmarks.server import Meter, Server, ServerCost
from groupqueue.core import calls
from groupqueue.core.calls import Call, Settlement
from groupqueue.core.messages import Envelope, Lease
from groupqueue.transport.connections import new_transport
from groupqueue.transport.redis import RedisTransport

GROUPS = 1000
PAYLOAD = {"flight": 1545, "delay_minutes": 11}
BODY = b'["benchmark.nothing",{"flight":1545,"delay_minutes":11}]'
VISIBILITY_SECONDS = 60.0
# How many messages a call publishes where only the backlog matters.
BACKLOG_BULK = 500
# How long one look at the bare round trip takes; two of them stand beside each figure.
BARE_SECONDS = 0.15
SHORTEST_SECONDS = 0.02

MESSAGES_PER_SECOND = "messages/s"
MILLISECONDS = "ms"


class Reading(NamedTuple):
    """One number that came out of one round."""

    name: str
    value: float
    unit: str
    cost: ServerCost | None = None
    """What the server did for it."""
    messages: int = 0
    """Over how many messages that cost is spread."""


class Figure(NamedTuple):
    """Something to measure, once per round."""

    name: str
    measure: Callable[[Bench], Sequence[Reading]]
    typical_call: Callable[[Bench], Call[Any]]
    """A call of the kind that it makes: a bare round trip with the same arguments is
    measured right before and after it."""


@dataclass
class Bench:
    """The server under load and how much load to put on it."""

    server: Server
    client: redis.Redis
    """A plain client, as users of redis-py have it."""
    transport: RedisTransport
    """The default queue's, emptied before each figure."""
    scale: float
    crowds: dict[str, RedisTransport] = field(default_factory=dict)
    """Shards that several figures share, filled by the first one that asks for it."""

    def scaled(self, full: int) -> int:
        """Return a count cut down to the scale asked for."""
        return max(int(full * self.scale), 4)

    def scaled_seconds(self, full: float) -> float:
        """Return a time cut down to the scale asked for; a larger load takes no longer."""
        return max(full * min(self.scale, 1), SHORTEST_SECONDS)

    @property
    def meter(self) -> Meter:
        """What reads the server's statistics."""
        return Meter(self.client)


def new_bench(server: Server, *, scale: float) -> Bench:
    """Return a bench on a running server."""
    return Bench(server, server.client(), new_transport("default"), scale)


def bare_round_trips(bench: Bench, call: Call[Any]) -> float:
    """Return how many scripts that do nothing redis-py gets answered in a second."""
    sha = bench.client.script_load("return 1")
    words = ("EVALSHA", sha, 1, call.prefix, *call.arguments)
    execute: Callable[..., Any] = bench.client.execute_command
    seconds = bench.scaled_seconds(BARE_SECONDS)
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        for _ in range(20):
            execute(*words)
        count += 20
    return count / (time.perf_counter() - started)


def envelopes(count: int, *, groups: int = GROUPS, body: bytes = BODY) -> Iterator[Envelope]:
    """Return messages for the groups in turn."""
    for number in range(count):
        yield Envelope(f"{number:032x}", f"group-{number % groups:07d}", 0, body)


def fill(
    transport: RedisTransport, count: int, *, groups: int = GROUPS, body: bytes = BODY
) -> None:
    """Publish a backlog."""
    messages = envelopes(count, groups=groups, body=body)
    while bulk := list(islice(messages, BACKLOG_BULK)):
        transport.publish_envelopes(bulk)


def drain(transport: RedisTransport, count: int, *, want: int = 1, batch: int = 1) -> None:
    """Handle so many messages, by turns that each ack what the one before claimed.

    Where turns want several groups, the last one may take a few messages more.
    """
    handled, ends = 0, list[Settlement]()
    while handled < count or ends:
        turned = transport.turn(
            "bench:1:abcd",
            ends,
            want if handled < count else 0,
            visibility=VISIBILITY_SECONDS,
            batch=min(batch, max(count - handled, 1)),
            number=1,
        )
        ends = [Settlement.ack(lease, 1 + len(lease.rest)) for lease in turned.leases]
        handled += sum(settlement.done for settlement in ends)


# Typical calls -------------------------------------------------------------------------


def smallest_call(bench: Bench) -> Call[Any]:
    """Return a call without arguments."""
    return Call("none", bench.transport.prefix, (), lambda reply: reply, repeatable=True)


def publish_call(count: int, bench: Bench) -> Call[Any]:
    """Return a publish of so many messages."""
    prefix = bench.transport.prefix
    return calls.publish(prefix, list(envelopes(count)), publisher=f"{1:032x}", sequence=1)


def turn_call(want: int, bench: Bench) -> Call[Any]:
    """Return a turn that acks and claims so many."""
    lease = Lease("group-0000001", 1_790_000_000_000_000, f"{1:032x}", BODY, 0, 1, 0, 0, 0)
    return calls.turn(
        bench.transport.prefix,
        "benchmark:12345:abcd",
        [Settlement.ack(lease)] * want,
        want,
        visibility_ms=round(VISIBILITY_SECONDS * 1000),
    )
