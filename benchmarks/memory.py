"""How much memory does a process hold, how much a server's data, and what is left of these?"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import redis

LONGEST_FREEING_SECONDS = 30.0
# What every queue has, and keeps.
KEPT = {"backlog", "fence", "stats", "wake", "meta"}


def resident_bytes(pid: int) -> int:
    """Return how much of a process is in memory, as Linux counts it."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def used_bytes(client: redis.Redis) -> int:
    """Return how much a server has allocated, once it has freed what it was told to."""
    deadline = time.monotonic() + LONGEST_FREEING_SECONDS
    while True:
        memory: dict[str, Any] = client.info("memory")
        if not memory["lazyfree_pending_objects"]:
            return int(memory["used_memory"])
        if time.monotonic() > deadline:
            raise TimeoutError(f"the server still frees memory: {memory}")
        time.sleep(0.02)


def names_left(client: redis.Redis, prefix: str) -> set[str]:
    """Return which keys a drained shard has beside the fixed few and those about to expire."""
    keys: list[bytes] = list(client.scan_iter(f"{prefix}:*", count=1000))
    names = {key: key.decode(errors="replace").removeprefix(f"{prefix}:") for key in keys}
    return {name for key, name in names.items() if name not in KEPT and client.ttl(key) < 0}
