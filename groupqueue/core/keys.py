"""Where a shard of a queue lives in Redis: the names of its keys."""

from __future__ import annotations

import re
from dataclasses import dataclass

from groupqueue.exceptions import ConfigurationError

_QUEUE_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")


def shard_prefix(queue: str, shard: int = 0) -> str:
    """Return the prefix of a shard's keys; its braces are a Redis Cluster hash tag."""
    if not _QUEUE_NAME.fullmatch(queue):
        raise ConfigurationError(
            f"{queue!r} is no queue name: 1 to 64 letters, digits, '_', '.' and '-'"
        )
    return f"gq:{{{queue}:{shard}}}"


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """The names of one shard's keys; the group is always the last part, verbatim."""

    prefix: str

    def fifo(self, group: str) -> str:
        """LIST: the group's messages, head at index 0."""
        return f"{self.prefix}:q:{group}"

    def lock(self, group: str) -> str:
        """STRING: the group's lease; its value is the fencing token."""
        return f"{self.prefix}:lock:{group}"

    def ready(self, tier: int) -> str:
        """ZSET: the groups of a tier by the epoch-ms at which each is next claimable."""
        return f"{self.prefix}:ready:{tier}"

    def worker(self, worker_id: str) -> str:
        """HASH: what a worker says of itself."""
        return f"{self.prefix}:worker:{worker_id}"

    def named(self, name: str) -> str:
        """Any of the keys that a shard has one of, such as `prio` or `dead`."""
        return f"{self.prefix}:{name}"
