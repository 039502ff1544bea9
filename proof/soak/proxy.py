"""What stands between clients and their server, and can be a bad network?"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Literal, TypeVar

T = TypeVar("T")
Direction = Literal["requests", "replies"]
DIRECTIONS: tuple[Direction, Direction] = ("requests", "replies")

CHUNK_BYTES = 65536
# Of the event loop, from the moment at which a client is accepted: it is served after three.
ROUNDS_TO_BE_LET_IN = 5
# Closed with a reset, as by a firewall that has forgotten the connection.
_RESET = struct.pack("ii", 1, 0)


class _Link:
    """One client's connection, and the one to the server that belongs to it."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.ends = (client, server)
        self.swallowed: set[Direction] = set()
        """Ways in which something was sent that has not arrived."""

    def cut(self) -> None:
        """Reset both connections."""
        for end in self.ends:
            connection = end.get_extra_info("socket")
            if connection is not None and connection.fileno() >= 0:
                with contextlib.suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.transport.abort()


class Proxy:
    """Passes on what clients and server send, until told to do harm. Its methods may be
    called from any thread, and what they ask for holds once they return."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._links: set[_Link] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._delay_seconds = 0.0
        self._loop = asyncio.new_event_loop()
        self._open = {direction: asyncio.Event() for direction in DIRECTIONS}
        for gate in self._open.values():
            gate.set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        starting = asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._listener = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        self.port: int = self._listener.sockets[0].getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"

    # What it can be told ---------------------------------------------------------------------

    def cut(self) -> int:
        """Reset every connection; return how many there were."""
        return self._do(lambda: self._cut(list(self._links)))

    def delay(self, seconds: float) -> None:
        """Let everything that passes take so long, each way; 0 ends that."""
        self._delay_seconds = seconds

    def swallow(self, direction: Direction) -> None:
        """Let nothing more through in this direction: neither end is told."""
        self._do(self._open[direction].clear)

    def release(self, direction: Direction, *, late: bool) -> int:
        """End `swallow`: deliver what was sent meanwhile, late, or reset those connections.

        Returns how many connections had something to deliver.
        """

        def release() -> int:
            caught = [link for link in self._links if direction in link.swallowed]
            if not late:
                self._cut(caught)
            self._open[direction].set()
            return len(caught)

        return self._do(release)

    def lead_to(self, server_port: int) -> None:
        """Send all clients to another server from now on, as a failover does."""
        self._server_port = server_port
        self.cut()

    def heal(self) -> None:
        """Be a good network again."""
        self.delay(0)
        for direction in DIRECTIONS:
            self.release(direction, late=False)

    @property
    def caught(self) -> int:
        """How many connections have sent something that was swallowed and not delivered yet."""
        return self._do(lambda: sum(bool(link.swallowed) for link in self._links))

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return self._do(lambda: len(self._links))

    def close(self) -> None:
        """Reset all connections and accept no more."""
        if not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    # In the loop's thread ----------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        # One task each, so that closing can wait for them.
        serving = self._loop.create_task(self._serve(reader, client))
        self._serving.add(serving)

        def end(_: object) -> None:
            client.transport.abort()  # it may have been cancelled before it began
            self._serving.discard(serving)

        serving.add_done_callback(end)

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            from_server, server = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            return  # a server that is down refuses, and so does the proxy
        link = _Link(client, server)
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(link, "requests", reader, server))
                both.create_task(self._pass(link, "replies", from_server, client))
        finally:
            self._links.discard(link)
            link.cut()

    async def _pass(
        self,
        link: _Link,
        direction: Direction,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        gate = self._open[direction]
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if self._delay_seconds:
                    await asyncio.sleep(self._delay_seconds)
                if not gate.is_set():
                    link.swallowed.add(direction)
                    await gate.wait()
                    link.swallowed.discard(direction)
                writer.write(data)
                await writer.drain()
        # The end of one way is the end of both, once what came before it has been delivered.
        with contextlib.suppress(OSError):
            writer.write_eof() if writer.can_write_eof() else writer.close()
            if direction == "replies":
                writer.close()
                link.ends[1].transport.abort()

    def _cut(self, links: list[_Link]) -> int:
        for link in links:
            link.cut()
        return len(links)

    async def _close(self) -> None:
        # asyncio leaves open what it has accepted and not handed on when the listener is closed.
        for accepting in self._listener.sockets:
            self._loop.remove_reader(accepting.fileno())
        for _ in range(ROUNDS_TO_BE_LET_IN):
            await asyncio.sleep(0)
        self._listener.close()
        self._cut(list(self._links))
        for serving in self._serving:
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._listener.wait_closed()

    def _do(self, act: Callable[[], T]) -> T:
        """Do something in the loop's thread; return what it returned."""

        async def do() -> T:
            return act()

        return asyncio.run_coroutine_threadsafe(do(), self._loop).result()
