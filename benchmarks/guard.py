"""`python -m benchmarks.guard`: does an operation cost more than it did, by what can be counted?

Times depend on the machine and its mood; how many scripts a client calls, how many commands these
call and how many bytes go to and fro do not. They are held against `guard.json`, which is changed
with the code (`--update`), so that a cost that grows is seen in review.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import BODY, VISIBILITY_SECONDS, drain
from benchmarks.server import Meter, Server
from groupqueue.core.messages import Envelope, EnvelopeOptions
from groupqueue.transport.redis import RedisTransport

BASELINE = Path(__file__).parent / "guard.json"
# Bytes vary a little with the digits of moments and counts.
TOLERANCE = 0.01
GROUPS = 200
MESSAGES = 1600
# A minute that begins meanwhile costs a few commands.
SLACK = 4 / MESSAGES

Costs = dict[str, dict[str, float]]
Work = Callable[[RedisTransport], Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, compare and say what has grown; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the baseline anew")
    options = parser.parse_args(arguments)
    counted = count_all()
    if options.update:
        BASELINE.write_text(json.dumps(counted, indent=2) + "\n")
        print(f"{len(counted)} operations written to {BASELINE.name}")
        return 0
    grown, shrunk = compare(json.loads(BASELINE.read_text()), counted)
    for line in shrunk:
        print(f"cheaper: {line}; --update notes it")
    for line in grown:
        print(f"dearer: {line}", file=sys.stderr)
    if not grown:
        print(f"{len(counted)} operations cost no more than the baseline says")
    return 1 if grown else 0


def compare(baseline: Mapping[str, Any], counted: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return what costs more than the baseline says, or is not in it, and what costs less."""
    grown, shrunk = [], []
    for operation in sorted({*baseline, *counted}):
        before, now = baseline.get(operation), counted.get(operation)
        if before is None or now is None:
            grown.append(f"{operation}: only {'counted' if now else 'in the baseline'}")
            continue
        for name in before:
            line = f"{operation}: {name} {before[name]:g} before, {now[name]:g} now"
            allowed = before[name] * TOLERANCE + SLACK
            if now[name] > before[name] + allowed:
                grown.append(line)
            elif now[name] < before[name] - allowed:
                shrunk.append(line)
    return grown, shrunk


def count_all() -> Costs:
    """Return what each operation costs per message, on a server of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="groupqueue-guard-") as folder,
        Server("valkey", "tcp", Path(folder)) as server,
    ):
        return {name: _count(server, fill, work) for name, (fill, work) in OPERATIONS.items()}


def _count(server: Server, fill: Work, work: Work) -> dict[str, float]:
    with server.client() as client:
        transport = RedisTransport(client, "gq:{guard:0}")
        meter = Meter(client)
        for _ in range(2):  # the first time scripts are loaded and connections opened
            client.flushdb()
            prepared = fill(transport)
            meter.reset()
            received, sent = _bytes(client)
            work(prepared)
            cost = meter.read()
            received_after, sent_after = _bytes(client)
        transport.close()
    return {
        "scripts": round(cost.sent / MESSAGES, 4),
        "commands": round(cost.called / MESSAGES, 3),
        "bytes_to_server": round((received_after - received) / MESSAGES, 1),
        "bytes_from_server": round((sent_after - sent) / MESSAGES, 1),
    }


def _bytes(client: Any) -> tuple[int, int]:
    stats = client.info("stats")
    return stats["total_net_input_bytes"], stats["total_net_output_bytes"]


def _envelopes(groups: int = GROUPS, options: EnvelopeOptions | None = None) -> list[Envelope]:
    return [
        Envelope(f"{number:032x}", f"group-{number % groups:07d}", 0, BODY, options)
        for number in range(MESSAGES)
    ]


# What is filled in before the counting, and what is counted --------------------------------


def _empty(transport: RedisTransport) -> RedisTransport:
    return transport


def _filled(transport: RedisTransport, groups: int = GROUPS) -> RedisTransport:
    _publish_by(500, transport, groups=groups)
    return transport


def _publish_by(
    size: int,
    transport: RedisTransport,
    *,
    groups: int = GROUPS,
    options: EnvelopeOptions | None = None,
) -> None:
    envelopes = _envelopes(groups, options)
    for start in range(0, MESSAGES, size):
        transport.publish_envelopes(envelopes[start : start + size])


def _claims_and_acks(transport: RedisTransport) -> None:
    while lease := transport.claim("guard:1:abcd", VISIBILITY_SECONDS):
        transport.ack(lease)


def _claims_and_nacks(transport: RedisTransport) -> None:
    for _ in range(MESSAGES):
        lease = transport.claim("guard:1:abcd", VISIBILITY_SECONDS)
        assert lease is not None
        transport.nack(lease, error="boom")


OPERATIONS: dict[str, tuple[Work, Work]] = {
    "publish_one": (_empty, lambda t: _publish_by(1, t)),
    "publish_by_100": (_empty, lambda t: _publish_by(100, t)),
    "publish_by_100_of_one_group": (_empty, lambda t: _publish_by(100, t, groups=1)),
    "publish_by_100_with_options": (
        _empty,
        lambda t: _publish_by(100, t, options=EnvelopeOptions(expires_ms=3_600_000)),
    ),
    "schedule_by_100": (
        _empty,
        lambda t: _publish_by(100, t, options=EnvelopeOptions(due="+3600000")),
    ),
    "turn_of_1": (_filled, lambda t: drain(t, MESSAGES)),
    "turn_of_16": (_filled, lambda t: drain(t, MESSAGES, want=16)),
    "turn_of_64": (_filled, lambda t: drain(t, MESSAGES, want=64)),
    "turn_of_16_in_batches_of_32": (
        lambda t: _filled(t, groups=16),
        lambda t: drain(t, MESSAGES, want=16, batch=32),
    ),
    "claim_then_ack": (_filled, _claims_and_acks),
    "claim_then_nack": (_filled, _claims_and_nacks),
}


if __name__ == "__main__":
    sys.exit(main())
