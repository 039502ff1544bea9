"""Whether a server can be trusted with a queue: permissions, version, eviction, persistence."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from groupqueue.transport.connections import new_transport
from groupqueue.transport.errors import ANY, NO_PERMISSION, translated
from groupqueue.transport.permissions import COMMANDS, acl_rule, refused_commands
from groupqueue.transport.redis import RedisTransport

OLDEST_REDIS, OLDEST_VALKEY = (7, 0), (7, 2)


class Finding(NamedTuple):
    """One thing about a server that an operator should know."""

    id: str
    level: Literal["error", "warning"]
    text: str
    hint: str


def findings(queue: str) -> list[Finding]:
    """Ask the queue's server and return what is wrong with it.

    Raises ServerUnavailable or ServerRefused when it does not answer.
    """
    transport = new_transport(queue, patient=False)
    try:
        return findings_of(transport)
    finally:
        transport.close()


def findings_of(transport: RedisTransport) -> list[Finding]:
    """The same for a transport at hand, in two round trips."""
    try:
        if (permissions := _permissions(transport)) is not None:
            return [permissions]  # Nothing works without them, perhaps not even to ask on.
        info = transport.client.info()
    except ANY as error:
        raise translated(error) from error
    found = [_version(info), _eviction(info), _persistence(info), _role(info)]
    return [finding for finding in found if finding is not None]


def _permissions(transport: RedisTransport) -> Finding | None:
    try:
        refused = refused_commands(transport)
    except NO_PERMISSION as error:
        # Perhaps even the choice of the database, which needs one more.
        text, needed = f"the Redis user is refused: {error}", [*COMMANDS, "select"]
    else:
        if not refused:
            return None
        names, keys = ", ".join(refused), f"{transport.prefix}:*"
        text, needed = f"the Redis user may not send {names} for the keys {keys}", refused
    return Finding(
        "permissions",
        "error",
        text,
        f"Let it: {acl_rule(transport, needed)}. A script that may not go on stops half way.",
    )


def _version(info: dict[str, object]) -> Finding | None:
    name, oldest, text = "Redis", OLDEST_REDIS, str(info.get("redis_version", "0"))
    if "valkey_version" in info:
        name, oldest, text = "Valkey", OLDEST_VALKEY, str(info["valkey_version"])
    numbers = tuple(int(part) for part in re.findall(r"\d+", text)[:2])
    if numbers >= oldest:
        return None
    wanted = ".".join(map(str, oldest))
    return Finding(
        "old-server",
        "error",
        f"the server is {name} {text}; groupqueue needs {name} {wanted} or newer",
        "Upgrade the server, or point CONNECTION at a newer one.",
    )


def _eviction(info: dict[str, object]) -> Finding | None:
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy == "noeviction":
        return None
    return Finding(
        "eviction",
        "error",
        f"maxmemory-policy is {policy}: when memory runs out, Redis throws messages away",
        "Set maxmemory-policy to noeviction, or give the queue a server of its own.",
    )


def _persistence(info: dict[str, object]) -> Finding | None:
    if int(str(info.get("aof_enabled", 0))):
        return None
    return Finding(
        "no-append-only-file",
        "warning",
        "the append-only file is off: a crash of the server loses what was published and "
        "settled since the last snapshot, or everything where it makes none",
        "Set appendonly to yes; appendfsync everysec loses at most a second.",
    )


def _role(info: dict[str, object]) -> Finding | None:
    if info.get("role") == "master":
        return None
    return Finding(
        "replica",
        "error",
        f"the server is a {info.get('role')}; scripts need the primary",
        "Point CONNECTION at the primary, or use a Sentinel connection.",
    )
