"""What is there in a run to be broken? Servers, the network before them, and the actors."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import redis

from groupqueue.core.keys import shard_prefix
from groupqueue.transport.redis import RedisTransport
from proof.plan import Plan
from proof.records import has_succeeded
from proof.soak.proxy import Proxy
from proof.soak.troupe import Troupe
from tests.servers import Kind, Server, start_server, wait_until

SERVER_OPTIONS = (
    "--appendfsync",
    "always",
    "--repl-diskless-sync-delay",
    "0",
)
TELL_SECONDS = 30.0
IN_STEP_SECONDS = 20.0


class Stage:
    """A server, or a primary with its replica, behind a proxy; and the actors in front."""

    def __init__(self, kind: Kind, plan: Plan, *, with_replica: bool = False) -> None:
        """Start the servers; `plan` needs no URL."""
        self._kind: Kind = kind
        self._folder = Path(plan.folder)
        self._servers = 0
        self._replication: Proxy | None = None
        self._replica: Server | None = None
        self._failed_over_ns = 0
        self.prefix = shard_prefix(plan.queue)
        self.server = self._new_server()
        self.proxy = Proxy(self.server.port)
        self.plan = replace(plan, url=self.proxy.url)
        self.plan.write()
        self.troupe = Troupe(self.plan)
        if with_replica:
            self._add_replica()

    def client(self) -> redis.Redis:
        """Return a client to the server itself, past the proxy."""
        return redis.Redis.from_url(self.server.url, socket_timeout=TELL_SECONDS, retry=None)

    def transport(self) -> RedisTransport:
        """Return a transport to the server itself."""
        return RedisTransport(self.client(), self.prefix)

    def tell_server(self, *command: str) -> Any:
        """Send the server a command, past the proxy; wait until it can be told."""
        deadline = time.monotonic() + TELL_SECONDS
        with self.client() as client:
            while True:
                try:
                    return client.execute_command(*command)
                except (redis.ConnectionError, redis.TimeoutError):
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)

    def heal(self) -> None:
        """Let server and network be good again."""
        self.proxy.heal()
        self.tell_server("CLIENT", "UNPAUSE")
        self.tell_server("CONFIG", "SET", "maxmemory", "0")

    def fail_over(self, *, unsent_seconds: float) -> dict[str, Any]:
        """Let the replica take over from a primary that dies with writes it has not sent on.

        The primary comes back empty, as the new one's replica.
        """
        if self._replica is None or self._replication is None:
            raise RuntimeError("there is no replica")
        old, new = self.server, self._replica
        self._wait_until_in_step()
        self._replication.swallow("replies")
        time.sleep(unsent_seconds)  # what is written meanwhile is going to be lost
        killed = old.pid
        old.kill()
        self._replication.close()
        self.server, self._replica, self._replication = new, None, None
        self.tell_server("REPLICAOF", "NO", "ONE")
        self.proxy.lead_to(new.port)
        shutil.rmtree(old.directory)
        self._add_replica()
        self._failed_over_ns = time.time_ns()
        return {"killed": killed, "unsent_seconds": round(unsent_seconds, 2)}

    @property
    def has_something_to_lose(self) -> bool:
        """Whether a publish was confirmed since the failover before, or the beginning."""
        return has_succeeded(self.plan.records, "publisher", self._failed_over_ns)

    def close(self) -> None:
        """Leave nothing of it running."""
        try:
            self.troupe.end()
        finally:
            self.proxy.close()
            if self._replication is not None:
                self._replication.close()
            for server in (self.server, self._replica):
                if server is not None:
                    server.kill()

    def _new_server(self, *options: str) -> Server:
        self._servers += 1
        directory = self._folder / f"server-{self._servers}"
        return start_server(self._kind, directory, extra_args=(*SERVER_OPTIONS, *options))

    def _add_replica(self) -> None:
        self._replication = Proxy(self.server.port)
        leader = f"127.0.0.1 {self._replication.port}"
        self._replica = self._new_server("--replicaof", *leader.split())

    def _wait_until_in_step(self) -> None:
        """Return once the replica has what the primary had."""

        def is_in_step() -> bool:
            if self._replica is None:
                return False
            with redis.Redis.from_url(self._replica.url, retry=None) as client:
                found: Any = client.info("replication")
            return bool(found["master_link_status"] == "up")

        wait_until(is_in_step, "the replica to be in step", seconds=IN_STEP_SECONDS)
