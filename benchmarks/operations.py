"""How fast are publishing, claiming and settling through a transport?"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import groupqueue
from benchmarks.figures import (
    BODY,
    GROUPS,
    MESSAGES_PER_SECOND,
    PAYLOAD,
    VISIBILITY_SECONDS,
    Bench,
    Figure,
    Reading,
    envelopes,
    fill,
    sample_lease,
)
from benchmarks.handlers import NOTHING
from groupqueue import Outgoing
from groupqueue.core import calls
from groupqueue.core.calls import Call, Settlement

MESSAGES = 4_000
MESSAGES_IN_BULK = 40_000
MESSAGES_IN_BATCHES = 16_000
BULK = 100


def figures() -> list[Figure]:
    """Return this module's figures."""
    return [
        Figure("bare_round_trip", bare_round_trip, smallest_call),
        Figure("publish_one_transport", publish_one_transport, partial(publish_call, 1)),
        Figure("publish_one", publish_one, partial(publish_call, 1)),
        Figure("publish_by_100_transport", publish_in_bulk_transport, partial(publish_call, BULK)),
        Figure("publish_by_100", publish_in_bulk, partial(publish_call, BULK)),
        Figure("publish_by_100_one_group", publish_to_one_group, partial(publish_call, BULK)),
        *(
            Figure(f"turn_want_{want}", partial(turns, want, messages), partial(turn_call, want))
            for want, messages in (
                (1, MESSAGES),
                (16, MESSAGES_IN_BATCHES),
                (64, MESSAGES_IN_BATCHES),
            )
        ),
        Figure("claim_then_ack", claim_then_ack, ack_call),
    ]


def bare_round_trip(bench: Bench) -> Sequence[Reading]:
    """`return 1` by EVALSHA with one key and nothing else: what the client can do at most."""
    sha = bench.client.script_load("return 1")
    execute = bench.client.execute_command
    prefix = bench.transport.prefix

    def work(count: int) -> None:
        for _ in range(count):
            execute("EVALSHA", sha, 1, prefix)

    return [_timed(bench, "bare_round_trip", bench.scaled(MESSAGES), work, unit="round trips/s")]


def publish_one_transport(bench: Bench) -> Sequence[Reading]:
    """One message per call, by the transport."""

    def work(count: int) -> None:
        for number in range(count):
            bench.transport.publish(f"group-{number % GROUPS:07d}", BODY)

    return [_timed(bench, "publish_one_transport", bench.scaled(MESSAGES), work)]


def publish_one(bench: Bench) -> Sequence[Reading]:
    """One message per call, by `groupqueue.publish`."""

    def work(count: int) -> None:
        for number in range(count):
            groupqueue.publish(NOTHING, PAYLOAD, group=f"group-{number % GROUPS:07d}")

    return [_timed(bench, "publish_one", bench.scaled(MESSAGES), work)]


def publish_in_bulk_transport(bench: Bench) -> Sequence[Reading]:
    """A hundred messages of a hundred groups per call, by the transport."""

    def work(count: int) -> None:
        for start in range(0, count, BULK):
            messages = [
                groupqueue_envelope(number) for number in range(start, min(start + BULK, count))
            ]
            bench.transport.publish_envelopes(messages)

    return [_timed(bench, "publish_by_100_transport", bench.scaled(MESSAGES_IN_BULK), work)]
