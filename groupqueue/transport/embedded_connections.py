"""How does a client of an embedded server come to a server that runs, each time it connects?"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import redis
import redis.asyncio

from groupqueue.transport.embedded import ensure_running, socket_path


def embedded_client(directory: Path) -> redis.Redis:
    """Return a client of the server of `directory`, which its first connection starts."""
    directory = directory.expanduser().resolve()
    pool = redis.ConnectionPool(
        connection_class=EmbeddedConnection,
        path=str(socket_path(directory)),
        directory=directory,
    )
    return redis.Redis(connection_pool=pool)


class EmbeddedConnection(redis.UnixDomainSocketConnection):
    """A connection that brings the server up, or back, before it opens its socket."""

    def __init__(self, *, directory: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self._directory = directory

    def _connect(self) -> Any:
        ensure_running(self._directory)
        return super()._connect()  # type: ignore[no-untyped-call]


class AsyncEmbeddedConnection(redis.asyncio.UnixDomainSocketConnection):
    """The same for `async` clients; the event loop does not wait for the server's start."""

    def __init__(self, *, directory: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._directory = directory

    async def _connect(self) -> None:
        await asyncio.to_thread(ensure_running, self._directory)
        await super()._connect()  # type: ignore[no-untyped-call]
