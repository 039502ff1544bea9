"""Does a worker stay as small as it was, however many messages and groups go through it?"""

from __future__ import annotations

import pytest

from benchmarks.figures import fill
from benchmarks.memory import resident_bytes
from groupqueue.transport.connections import get_transport
from tests.servers import wait_until
from tests.worker.stage import Stage

pytestmark = pytest.mark.timeout(300)

# Measured: 0 to 1. Python takes memory by the MB, and one more is 9 for each of 120,000 messages.
# What keeps a little of each message keeps a hundred.
FLAT_BYTES = 25.0
LEAKED_BYTES = 100
MESSAGES_PER_GROUP = 10

PLAIN_AND_LEAKING = f"""
from groupqueue import handler, signals
from tests.worker.project.handlers import RECEIVERS

# Traces of so many messages would take longer than the messages.
for name in ("message_started", "message_succeeded"):
    getattr(signals, name).disconnect(RECEIVERS[name])

leaked = []

@handler("plain")
def plain(delivery):
    pass

@handler("leaking")
def leaking(delivery):
    leaked.append(bytes({LEAKED_BYTES} - bytes().__sizeof__()))
"""


def growth_per_message(stage: Stage, topic: str, count: int, *, warm_up: int) -> float:
    """Have a worker drain so many messages; return by how many bytes each after the first grew it.

    All the while it meets groups that it has not met before.
    """
    stage.configure(VISIBILITY_TIMEOUT=30)
    stage.add_app("leaking", PLAIN_AND_LEAKING)
    body = b'["%s",{"flight":1545,"delay_minutes":11}]' % topic.encode()
    fill(get_transport(stage.queue), count, groups=count // MESSAGES_PER_GROUP, body=body)
    stage.work("--concurrency", 16, "--batch", 32)
    [pid] = stage.wait_for_processes()
    wait_for_acked(stage, warm_up)
    warm = resident_bytes(pid)
    wait_for_acked(stage, count)
    return (resident_bytes(pid) - warm) / (count - warm_up)


def wait_for_acked(stage: Stage, count: int) -> None:
    """Return once so many messages are handled and settled."""
    stats = stage.keys.named("stats")
    wait_until(
        lambda: int(stage.client.hget(stats, "acked") or 0) >= count,
        f"{count} handled messages",
        seconds=250,
    )


def test_a_worker_does_not_grow_with_the_messages_and_groups_that_it_has_handled(
    stage: Stage,
) -> None:
    growth = growth_per_message(stage, "plain", 150_000, warm_up=30_000)

    assert growth < FLAT_BYTES


def test_a_handler_that_keeps_a_hundred_bytes_of_each_message_is_noticed(stage: Stage) -> None:
    growth = growth_per_message(stage, "leaking", 40_000, warm_up=10_000)

    assert FLAT_BYTES * 2 < growth < LEAKED_BYTES * 2
