"""How does the suite start a real server, hurt it, and be sure that it ends?"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Literal

from groupqueue.transport.embedded import server_binary as valkey_binary

Kind = Literal["valkey", "redis"]

DEADLINE_SECONDS = 20.0
# Below the ports that systems hand out by themselves, so that none is taken
# between being found free and being listened on.
PORTS = range(20_000, 30_000)


def available_kinds() -> list[Kind]:
    """Return which servers this machine has: Valkey's always, Redis's when installed."""
    return ["valkey", "redis"] if shutil.which("redis-server") else ["valkey"]


def free_port() -> int:
    """Return a loopback port that nobody listens on."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def wait_until(condition: Callable[[], bool], what: str, *, seconds: float = 20.0) -> None:
    """Return once the condition holds; fail naming `what` when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"still waiting after {seconds:.0f} s: {what}")
        time.sleep(0.01)


def start_server(
    kind: Kind, directory: Path, *, extra_args: Sequence[str] = (), port: int | None = None
) -> Server:
    """Start a server that keeps its data in `directory`, and return it once it answers."""
    binary = valkey_binary() if kind == "valkey" else shutil.which("redis-server")
    if binary is None:
        raise FileNotFoundError("redis-server is not installed")
    return Server(kind, Path(binary), directory, port or free_port(), extra_args)


class Server:
    """One server process of the suite; it keeps port and data through restarts."""

    def __init__(
        self, kind: Kind, binary: Path, directory: Path, port: int, extra_args: Sequence[str]
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.kind = kind
        self.port = port
        self.directory = directory
        self.log_path = directory / "server.log"
        self.url = f"redis://127.0.0.1:{port}/0"
        self._command = [str(binary), *_options(port, directory), *extra_args]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int:
        """Return the pid of the running server."""
        if self._process is None:
            raise ProcessLookupError(f"the server on port {self.port} is not running")
        return self._process.pid

    def start(self) -> None:
        """Start it, on the same port and data, and return once it answers."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for the suite; it ends the server by itself.
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        guardian.watch(self.pid)
        try:
            wait_until(self._is_up, f"the {self.kind} server on port {self.port}")
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End it as an operator would; nothing happens when it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Make it hang: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Stop it and start it again."""
        self.stop()
        self.start()

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        guardian.forget(process.pid)

    def _is_up(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"{self._command} ended at once:\n{self.log_path.read_text()}")
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False


def _options(port: int, directory: Path) -> list[str]:
    options = {
        "port": str(port),
        "bind": "127.0.0.1",
        "dir": str(directory),
        "save": "",
        # Data survives kill and restart; nobody pulls the plug on the machine.
        "appendonly": "yes",
        "appendfsync": "no",
        "maxmemory-policy": "noeviction",
        "enable-debug-command": "local",
        "daemonize": "no",
        "logfile": "",
    }
    return [word for name, value in options.items() for word in (f"--{name}", value)]


class Guardian:
    """Ends the servers when the suite is killed and cannot do it itself.

    A small process reads pids from a pipe. The pipe closes with the suite,
    whatever ends it; then the guardian ends what is left.
    """

    PROGRAM = """
import os, signal, sys
pids = set()
for line in sys.stdin:
    (pids.add if line[0] == "+" else pids.discard)(int(line[1:]))
for pid in pids:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""

    def __init__(self) -> None:
        self._pipe: IO[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self, pid: int) -> None:
        """End this process when the suite ends before it is forgotten."""
        self._tell(f"+{pid}\n")

    def forget(self, pid: int) -> None:
        """The process is gone; its pid may come to be somebody else's."""
        self._tell(f"-{pid}\n")

    def dismiss(self) -> None:
        """End the guardian, and with it what it still watches."""
        if self._pipe is not None and self._process is not None:
            self._pipe.close()
            self._process.wait()
            self._pipe = self._process = None

    def _tell(self, line: str) -> None:
        if self._pipe is None:
            reader, writer = os.pipe()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", self.PROGRAM],
                stdin=reader,
                start_new_session=True,
            )
            os.close(reader)
            self._pipe = os.fdopen(writer, "w")
        self._pipe.write(line)
        self._pipe.flush()


guardian = Guardian()
