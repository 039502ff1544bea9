"""How does a call that is broken off anywhere leave nothing behind for the next caller?

A signal handler may raise between any two steps of a call, and a coroutine may be
cancelled while it waits. The driver closes the connection in most such places, not in all:
an unread reply would answer the next caller's command, and an unfinished handshake would
let it write into another database.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import redis.asyncio
from redis.exceptions import ConnectionError as DriverConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as DriverTimeoutError


@functools.cache
def unbroken(connection_class: type) -> type:
    """Return the connection class with a memory of what it has not finished."""
    if issubclass(connection_class, _Unbroken | _AsyncUnbroken):
        return connection_class
    is_async = issubclass(connection_class, redis.asyncio.connection.AbstractConnection)
    memory = _AsyncUnbroken if is_async else _Unbroken
    return type(connection_class.__name__, (memory, connection_class), {})


# What the classes below are mixed into.
_Connection: Any = object


class _Unbroken(_Connection):  # type: ignore[misc]
    """A connection that is opened anew when its last user did not read to the end.

    It notes what is under way before it begins, so that no step, not even the clean-up
    after an interruption, has to run for the next user to be safe.
    """

    _unfinished = 0

    def connect(self) -> None:
        """Open the connection; the pool calls this whenever it hands one out."""
        if self._unfinished:
            self.disconnect()
        self._unfinished = 1
        super().connect()
        self._unfinished = 0

    def send_command(self, *args: Any, **kwargs: Any) -> None:
        """Send a command, for which a reply is due from now on."""
        self._unfinished += 1
        super().send_command(*without_numbers(args), **kwargs)

    def make_ready(self) -> None:
        """Prepare for a command what has lain idle: the server may have closed it meanwhile."""
        self.connect()
        try:
            if not self.can_read():
                return
        except (DriverConnectionError, DriverTimeoutError, OSError):
            pass
        self.disconnect()
        self.connect()

    def send_packed(self, packed: Any) -> None:
        """Send a command that is packed already, for which a reply is due from now on."""
        self._unfinished += 1
        self.send_packed_command(packed)

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        """Read a reply; an error of the server's is one too."""
        try:
            reply = super().read_response(*args, **kwargs)
        except ResponseError:
            self._unfinished -= 1
            raise
        self._unfinished -= 1
        return reply


class _AsyncUnbroken(_Connection):  # type: ignore[misc]
    """The same for `async` connections."""

    _unfinished = 0

    async def connect(self) -> None:
        """See _Unbroken.connect."""
        if self._unfinished:
            await self.disconnect(nowait=True)
        self._unfinished = 1
        await super().connect()
        self._unfinished = 0

    async def send_command(self, *args: Any, **kwargs: Any) -> None:
        """See _Unbroken.send_command."""
        self._unfinished += 1
        await super().send_command(*args, **kwargs)

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        """See _Unbroken.read_response."""
        try:
            reply = await super().read_response(*args, **kwargs)
        except ResponseError:
            self._unfinished -= 1
            raise
        self._unfinished -= 1
        return reply


def without_numbers(args: Iterable[Any]) -> list[Any]:
    """Write numbers out: hiredis crashes when a signal handler raises while it does that."""
    return [str(arg) if isinstance(arg, int) else arg for arg in args]
