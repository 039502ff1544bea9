"""What `doctor` asks a queue's server beyond what a worker must know before it starts:
clock, memory and the version of the queue's layout."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from groupqueue.core.calls import SCHEMA_VERSION
from groupqueue.core.keys import ShardKeys
from groupqueue.transport import servers
from groupqueue.transport.connections import new_transport
from groupqueue.transport.errors import ANY, translated
from groupqueue.transport.redis import RedisTransport
from groupqueue.transport.servers import Finding

Clock = Callable[[], float]

MOST_CLOCK_SECONDS = 5.0
MOST_MEMORY_SHARE = 0.8


def findings(queue: str, *, clock: Clock = time.time) -> list[Finding]:
    """Ask the queue's server and return all that an operator should know of it.

    Raises ServerUnavailable or ServerRefused when it does not answer.
    """
    transport = new_transport(queue, patient=False)
    try:
        return findings_of(transport, clock=clock)
    finally:
        transport.close()


def findings_of(transport: RedisTransport, *, clock: Clock = time.time) -> list[Finding]:
    """The same for a transport at hand."""
    found = servers.findings_of(transport)
    if any(finding.id == "permissions" for finding in found):
        return found  # It may not be asked further.
    try:
        further = (_clock(transport, clock), _memory(transport), _schema(transport))
    except ANY as error:
        raise translated(error) from error
    return [*found, *(finding for finding in further if finding is not None)]


def _clock(transport: RedisTransport, clock: Clock) -> Finding | None:
    before = clock()
    seconds, microseconds = transport.client.time()
    after = clock()
    there = seconds + microseconds / 1_000_000
    # However long the answer took, the server's clock was read in between.
    apart = there - before if there < before else max(0.0, there - after)
    if abs(apart) <= MOST_CLOCK_SECONDS:
        return None
    way = "ahead of" if apart > 0 else "behind"
    return Finding(
        "clock",
        "warning",
        f"the server's clock is {abs(apart):.0f} seconds {way} this machine's",
        "Have both follow a time server: what is given as eta is due by the server's clock.",
    )


def _memory(transport: RedisTransport) -> Finding | None:
    info = transport.client.info("memory")
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not most or used <= most * MOST_MEMORY_SHARE:
        return None
    return Finding(
        "memory",
        "warning",
        f"{used / most:.0%} of maxmemory is used; at 100% publishing is refused",
        "Raise maxmemory, or see which groups, dead letters or other data take it.",
    )


def _schema(transport: RedisTransport) -> Finding | None:
    meta = ShardKeys(transport.prefix).named("meta")
    if transport.client.type(meta) != b"hash":
        return None  # No worker was there yet; a wrong type is the audit's finding.
    field: Any = transport.client.hget(meta, "schema")  # bytes: the client is ours
    noted = (field or b"0").decode(errors="replace")
    if noted.isdecimal() and int(noted) <= SCHEMA_VERSION:
        return None
    return Finding(
        "schema",
        "error",
        f"the queue's data has layout {noted!r}; this version of groupqueue knows {SCHEMA_VERSION}",
        "Upgrade groupqueue here, as it has been where the layout was written.",
    )
