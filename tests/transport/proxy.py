"""What stands between a client and a server and can lose a request or a reply?"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Literal, NamedTuple, Self

Fault = Literal["lose reply", "lose request", "hold request"]


class _Planned(NamedTuple):
    fault: Fault
    command: bytes


class Proxy:
    """Passes on what clients send, notes each command, and does the harm it is told to."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self.commands: list[str] = []
        """What clients sent, by name, since the list was last cleared."""
        self.before_loss: Callable[[], object] = lambda: None
        """Called when a reply is to be lost, before its client learns of it."""
        self._planned: deque[_Planned] = deque()
        self._held: list[bytes] = []
        self._closing = False
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def lead_to(self, server_port: int) -> None:
        """Lead new connections to another server, as an address does after a failover."""
        self._server_port = server_port

    def lose_reply(self, *, times: int = 1, command: str = "EVALSHA") -> None:
        """Let the server carry out the next such commands, then cut instead of answering."""
        self._planned += [_Planned("lose reply", command.encode())] * times

    def lose_request(self, *, times: int = 1, command: str = "EVALSHA") -> None:
        """Cut the connection of the next such commands; the server never sees them."""
        self._planned += [_Planned("lose request", command.encode())] * times

    def hold_request(self, *, command: str = "EVALSHA") -> None:
        """Cut the connection of the next such command and keep what was sent."""
        self._planned.append(_Planned("hold request", command.encode()))

    def deliver_held(self) -> bytes:
        """Send what was kept to the server, late; return the beginning of its answer."""
        with socket.create_connection(("127.0.0.1", self._server_port), timeout=10) as late:
            late.sendall(self._held.pop(0))
            return late.recv(65536)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing = True
        with contextlib.suppress(OSError):
            # The accepting thread looks up once more, and leaves.
            socket.create_connection(self._listener.getsockname()).close()
        for each in self._sockets:
            _cut(each)
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._closing:
                client.close()
                return
            # A server that is down refuses, and so does the proxy.
            with contextlib.suppress(OSError), contextlib.ExitStack() as undo:
                undo.callback(client.close)
                server = socket.create_connection(("127.0.0.1", self._server_port))
                undo.pop_all()
                self._sockets += (client, server)
                losing = threading.Event()
                self._start(self._pass_requests, client, server, losing)
                self._start(self._pass_replies, client, server, losing)

    def _pass_requests(
        self, client: socket.socket, server: socket.socket, losing: threading.Event
    ) -> None:
        with contextlib.suppress(OSError), client.makefile("rb") as stream:
            while request := _read_request(stream):
                fault = self._fault_for(request)
                if fault in ("lose request", "hold request"):
                    if fault == "hold request":
                        self._held.append(request)
                    break
                if fault == "lose reply":
                    losing.set()
                server.sendall(request)
        if not losing.is_set():
            _cut(client)
            _cut(server)

    def _pass_replies(
        self, client: socket.socket, server: socket.socket, losing: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while reply := server.recv(65536):
                if losing.is_set():
                    self.before_loss()
                    break
                client.sendall(reply)
        _cut(client)
        _cut(server)

    def _fault_for(self, request: bytes) -> Fault | None:
        command = request.split(b"\r\n", 3)[2].upper()
        self.commands.append(command.decode())
        if self._planned and self._planned[0].command == command:
            return self._planned.popleft().fault
        return None


def _read_request(stream: object) -> bytes:
    """Return one whole command as it was sent; nothing at the end of the stream."""
    parts = [stream.readline()]
    for _ in range(int(parts[0][1:] or 0)):
        size = stream.readline()
        parts += (size, stream.read(int(size[1:]) + 2))
    return b"".join(parts)


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
