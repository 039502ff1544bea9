"""On which queue does a test operate, and how does it run a verb?"""

from __future__ import annotations

import io
import json
from typing import Any, NamedTuple

import pytest
import redis
from django.core.management import call_command
from django.core.management.base import CommandError

from groupqueue import get_queue
from groupqueue.core.calls import Settlement
from groupqueue.core.codec import JSONCodec
from groupqueue.core.messages import Lease
from groupqueue.queues import Queue
from groupqueue.transport.connections import get_transport
from groupqueue.transport.redis import RedisTransport


class Said(NamedTuple):
    """What a verb printed, and the exit code that goes with it."""

    code: int
    out: str
    trouble: str

    @property
    def document(self) -> Any:
        """What was printed, read as the one JSON document that it should be."""
        return json.loads(self.out)


def operate(*arguments: object) -> Said:
    """Run a verb in this process."""
    out = io.StringIO()
    try:
        call_command("group_queues", *map(str, arguments), stdout=out, stderr=io.StringIO())
    except CommandError as error:
        return Said(error.returncode, out.getvalue(), str(error))
    return Said(0, out.getvalue(), "")


class Bench:
    """The default queue, and how to bring its groups into each state."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client

    @property
    def queue(self) -> Queue:
        """The queue as Python code operates on it."""
        return get_queue()

    @property
    def transport(self) -> RedisTransport:
        """The transport beneath."""
        return get_transport()

    def publish(self, group: str, *payloads: Any, topic: str = "note", tier: int = 0) -> list[str]:
        """Publish each payload, or one; return the messages' ids."""
        encode = JSONCodec().encode
        return [
            self.transport.publish(group, encode(topic, payload, None), tier)
            for payload in payloads or (1,)
        ]

    def claim(self, worker_id: str = "worker-1") -> Lease:
        """Lease the group that is next."""
        lease = self.transport.claim(worker_id, 60)
        assert lease is not None
        return lease

    def park(self, group: str) -> None:
        """Have the head of a group fail once, and wait an hour."""
        self.publish(group)
        self.transport.nack(self.claim(), 3600, error="RuntimeError: out of paint")

    def halt(self, group: str) -> None:
        """Have the head of a group given up."""
        self.publish(group)
        self.transport.settle(Settlement.halt(self.claim(), "max_attempts", "RuntimeError: boom"))

    def bury(self, group: str, *payloads: Any, topic: str = "note", reason: str = "why") -> None:
        """Make dead letters of new messages, one after the other."""
        self.publish(group, *payloads, topic=topic)
        for _ in payloads or (1,):
            self.transport.settle(Settlement.dead(self.claim(), reason, "RuntimeError: boom"))

    def waiting(self, group: str) -> list[Any]:
        """Return the payloads of a group's messages, from the head on."""
        return [message.payload for message in self.queue.peek(group, limit=200).messages]


@pytest.fixture
def bench(default_client: redis.Redis) -> Bench:
    """The default queue, empty."""
    return Bench(default_client)
