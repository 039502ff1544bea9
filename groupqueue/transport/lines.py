"""How does a command reach the server with as little in between as can be?

The driver's way for any command, through its pool and its retries, costs the client more
than all the rest of a small call. A line is one of the driver's connections, which opens,
authenticates and reads as ever, kept at hand for the next command.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import redis

from groupqueue.transport.clients import is_fake

pack: Any = None
with contextlib.suppress(ImportError):  # an extra
    from hiredis import pack_command as pack

# What the driver does for these when a connection goes back to its pool, a line would miss.
_NEEDS_THE_POOL = ("credential_provider", "event_dispatcher")


# Whoever breaks a wait off does so by then.
ASK_SECONDS = 0.1


class Lines:
    """The lines of a transport: a call takes one that is free, or one more from the pool."""

    def __init__(self, pool: redis.ConnectionPool) -> None:
        self._pool = pool
        self._free: deque[Any] = deque()

    def ask(self, command: Sequence[str | bytes]) -> Any:
        """Send a command and return the reply; raises the driver's errors."""
        return self._received(self._sent(command))

    def begin(self, command: Sequence[str | bytes]) -> Callable[[], Any]:
        """Send a command; what is returned waits for the reply. Both raise the driver's errors."""
        return partial(self._received, self._sent(command))

    def wait(
        self, command: Sequence[str | bytes], seconds: float, goes_on: Callable[[], bool]
    ) -> Any:
        """Send a command that blocks and return the reply, which has to come within so long;
        None as soon as `goes_on`, asked ten times a second, says no. Raises the driver's errors."""
        line, until = self._sent(command), time.monotonic() + seconds
        try:
            while not line.can_read(ASK_SECONDS):
                is_late = time.monotonic() >= until
                if is_late or not goes_on():
                    line.disconnect()  # the server is not to answer any more
                    if is_late:
                        raise redis.TimeoutError("the end of a wait is overdue")
                    return None
            return line.read_response()
        finally:
            self._free.append(line)

    def _sent(self, command: Sequence[str | bytes]) -> Any:
        """Send a command; return the line that its reply will come by."""
        line = self._take()
        try:
            line.send_packed((pack(tuple(command)),) if pack else line.pack_command(*command))
        except BaseException:
            self._free.append(line)
            raise
        return line

    def _received(self, line: Any) -> Any:
        try:
            return line.read_response()
        finally:
            self._free.append(line)

    def _take(self) -> Any:
        """Return a line that nobody else uses, until it is put among the free ones again."""
        try:
            line = self._free.pop()
        except IndexError:
            return self._pool.get_connection()
        try:
            line.make_ready()
        except BaseException:
            self._free.append(line)
            raise
        return line

    def disconnect(self) -> None:
        """Let each line that is free now be opened anew when it is used again."""
        for _ in range(len(self._free)):
            try:
                line = self._free.popleft()
            except IndexError:
                return
            line.disconnect()
            self._free.append(line)


def lines_of(client: redis.Redis) -> Lines | None:
    """Return lines to where a client of ours leads; None where only its pool knows the way."""
    pool = client.connection_pool
    is_plain = type(pool) is redis.ConnectionPool and not is_fake(client)
    if not is_plain or any(pool.connection_kwargs.get(name) for name in _NEEDS_THE_POOL):
        return None
    return Lines(pool)
