"""How much memory does a large backlog take, and does draining it leave something behind?

On the server, and in the worker that drains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.figures import BACKLOG_BULK, Bench, Figure, Reading, fill, smallest_call
from benchmarks.handlers import FORGOTTEN
from benchmarks.memory import names_left, used_bytes
from benchmarks.workers import drain_watched

BODY = b'["%s",{"flight":1545,"delay_minutes":11}]' % FORGOTTEN.encode()
MESSAGES = 1_000_000
# In how many groups: of a hundred messages, and of one.
GROUPS = {"message": 10_000, "group": MESSAGES}
WARM_UP = 100_000


def figures() -> list[Figure]:
    """Return this module's figures."""
    return [Figure(f"memory_per_{unit}", partial(_backlog, unit), smallest_call) for unit in GROUPS]


def _backlog(unit: str, bench: Bench) -> Sequence[Reading]:
    """Publish a backlog and have a worker drain it, looking at the memory of both sides."""
    count, groups = bench.scaled(MESSAGES), bench.scaled(GROUPS[unit])
    warm_up = bench.scaled(WARM_UP)
    fill(bench.transport, BACKLOG_BULK)  # so that scripts and buffers are there already
    bench.client.flushdb()
    empty = used_bytes(bench.client)
    fill(bench.transport, count, groups=groups, body=BODY)
    full = used_bytes(bench.client)
    warm, ended = drain_watched(bench, count, warm_up=warm_up)
    drained = used_bytes(bench.client)
    left = names_left(bench.client, bench.transport.prefix)
    return [
        Reading(f"memory_per_{unit}_beyond_payload", (full - empty) / count - len(BODY), "bytes"),
        Reading(f"memory_left_per_{unit}", (drained - empty) / count, "bytes"),
        Reading(f"keys_left_by_{unit}s", len(left), "keys"),
        Reading(f"worker_warm_with_{unit}s", warm / 1e6, "MB"),
        Reading(f"worker_at_the_end_of_{unit}s", ended / 1e6, "MB"),
        Reading(f"worker_growth_per_{unit}", (ended - warm) / (count - warm_up), "bytes"),
    ]
