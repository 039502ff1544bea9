"""Who starts the embedded server, restarts it when it dies, and stops it when nobody is left?

One keeper per data directory does, as a daemon of its own. Every process that
uses the server holds a shared lock on `users.lock`; the keeper waits for the
exclusive one, which the kernel grants when the last user has left, however it
left. The keeper is run as a script and imports the standard library alone, so
that it starts fast and depends on nobody's settings.

Usage: embedded_keeper.py <data directory> <socket> <server binary>
It returns 0 when the server answers; else it says why on stderr and returns 1.
"""

from __future__ import annotations

import enum
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

READY_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.02
SOCKET_CHECK_SECONDS = 1.0
# A server that starts makes its socket first, in no time.
CHECKS_WITHOUT_SOCKET_TOLERATED = 2
RESTART_DELAY_SECONDS = 0.1
MAX_RESTART_DELAY_SECONDS = 5.0
HEALTHY_AFTER_SECONDS = 10.0
MAX_LOG_BYTES = 8 * 1024 * 1024
READY = b"ready"


class Answer(enum.Enum):
    """How a server socket reacts to PING."""

    ABSENT = "absent"
    LOADING = "loading"
    SERVING = "serving"


class KeeperError(Exception):
    """The server cannot be brought up."""


def probe(socket_path: Path) -> Answer:
    """Return how the server at `socket_path` answers; a busy one counts as serving."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(socket_path))
            connection.sendall(b"PING\r\n")
            reply = connection.recv(64)
        except (TimeoutError, BlockingIOError):
            return Answer.SERVING
        except OSError:
            return Answer.ABSENT
    if reply.startswith(b"-LOADING"):
        return Answer.LOADING
    return Answer.SERVING if reply else Answer.ABSENT


def open_lock(path: Path) -> int:
    """Return a new descriptor for a lock file; exec'd programs do not inherit it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock if that needs no waiting; return whether it is held now."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_kept(directory: Path) -> bool:
    """Return whether a living keeper looks after the directory."""
    descriptor = open_lock(directory / "keeper.lock")
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


class Server:
    """The server's process: started, watched, restarted, stopped."""

    def __init__(self, directory: Path, socket_path: Path, binary: Path) -> None:
        self._directory = directory
        self._socket_path = socket_path
        self._binary = binary
        self._log_path = directory / "valkey.log"
        self._guard = threading.Lock()
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._restart_whenever_it_dies, daemon=True)
        self._doorkeeper = threading.Thread(target=self._see_to_the_socket, daemon=True)
        # The server inherits this lock: while one runs on the data, with or
        # without its keeper, no second one can.
        self._lock = open_lock(directory / "server.lock")

    def start(self) -> None:
        """Start the server and return when it answers; raise KeeperError when it does not."""
        self._end_orphan()
        first = self._process = self._spawn()
        self._watcher.start()
        self._doorkeeper.start()
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        while (answer := probe(self._socket_path)) is not Answer.SERVING:
            if first.returncode is not None:
                raise KeeperError(f"the server ended at once.\n{self._last_words()}")
            if time.monotonic() > deadline:
                if answer is Answer.LOADING:
                    return  # Stopping it would only make the next start load again.
                raise KeeperError(f"the server does not answer on {self._socket_path}")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Stop the server, if it runs, and return when it is gone."""
        with self._guard:
            self._stopping.set()
            if not self._watcher.is_alive():
                return
            self._end()
        self._watcher.join(STOP_TIMEOUT_SECONDS)
        if self._watcher.is_alive():
            self._process.kill()
            self._watcher.join()

    def _restart_whenever_it_dies(self) -> None:
        delay_seconds = RESTART_DELAY_SECONDS
        while True:
            started_at = time.monotonic()
            self._process.wait()
            if time.monotonic() - started_at > HEALTHY_AFTER_SECONDS:
                delay_seconds = RESTART_DELAY_SECONDS
            if self._stopping.wait(delay_seconds):
                return
            delay_seconds = min(2 * delay_seconds, MAX_RESTART_DELAY_SECONDS)
            with self._guard:
                if self._stopping.is_set():
                    return
                self._process = self._spawn()

    def _see_to_the_socket(self) -> None:
        """Have a server that nobody finds any more, as its socket is gone, restarted."""
        missed = 0
        while not self._stopping.wait(SOCKET_CHECK_SECONDS):
            with self._guard:
                missed = 0 if self._socket_path.exists() else missed + 1
                if not self._has_its_directory():
                    self._stopping.set()  # newcomers meet at another server
                    self._end()
                elif missed > CHECKS_WITHOUT_SOCKET_TOLERATED:
                    self._end()
                    missed = 0

    def _end(self) -> None:
        if self._has_its_directory():
            self._process.terminate()
        else:
            # There is no data to save, and on its way out it would remove the socket of the
            # server that has taken its place.
            self._process.kill()

    def _has_its_directory(self) -> bool:
        """Return whether the data directory is still the one that the keeper began with."""
        try:
            found, held = (self._directory / "server.lock").stat(), os.fstat(self._lock)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._log_path.open("ab") as log:
            if log.tell() > MAX_LOG_BYTES:
                log.truncate(0)
                log.seek(0)
            self._log_offset = log.tell()
            return subprocess.Popen(
                [str(self._binary), *server_options(self._directory, self._socket_path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(self._lock,),
            )

    def _end_orphan(self) -> None:
        """End the server of a keeper that was killed, so that its data has one owner."""
        deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
        while not try_lock(self._lock):
            with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1.0)
                connection.connect(str(self._socket_path))
                connection.sendall(b"SHUTDOWN\r\n")
            if time.monotonic() > deadline:
                raise KeeperError(
                    f"another server still uses {self._directory}: end it"
                    f" (see {self._log_path} for its pid) and try again"
                )
            time.sleep(POLL_SECONDS)

    def _last_words(self) -> str:
        with self._log_path.open("rb") as log:
            log.seek(self._log_offset)
            return log.read()[-2000:].decode(errors="replace").strip()


def server_options(directory: Path, socket_path: Path) -> list[str]:
    """Return the command line that makes the server private, durable and unforgetful."""
    options = {
        "port": "0",
        "unixsocket": str(socket_path),
        "unixsocketperm": "700",
        "dir": str(directory),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
        "logfile": "",
        # The environment may name a locale that this machine lacks; the
        # server would refuse to start.
        "locale-collate": "C",
    }
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def keep(
    directory: Path, socket_path: Path, binary: Path, report_ready: Callable[[], None]
) -> None:
    """Be the keeper until the last user has left; return at once when there is one already."""
    keeper_lock = _become_keeper(directory, socket_path)
    if keeper_lock is None:
        report_ready()
        return
    users_lock = open_lock(directory / "users.lock")
    server = Server(directory, socket_path, binary)
    try:
        server.start()
        report_ready()
        fcntl.flock(users_lock, fcntl.LOCK_EX)
    finally:
        # A newcomer waits for users.lock, held until this process ends: it
        # cannot meet the server on its way out.
        server.stop()
        if socket_path.parent != directory:
            with suppress(OSError):  # It is not empty, so somebody else's as well.
                socket_path.parent.rmdir()


def _become_keeper(directory: Path, socket_path: Path) -> int | None:
    """Return the keeper's lock, or None when another keeper's server answers."""
    descriptor = open_lock(directory / "keeper.lock")
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    while not try_lock(descriptor):
        if probe(socket_path) is Answer.SERVING:
            return None
        if time.monotonic() > deadline:
            raise KeeperError(f"its server does not come up; {directory / 'valkey.log'} says why")
        time.sleep(POLL_SECONDS)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def main(arguments: list[str]) -> int:
    """Fork the keeper, wait for its report, and return the exit status."""
    directory, socket_path, binary = map(Path, arguments)
    report_reader, report_writer = os.pipe()
    if os.fork() == 0:
        os.close(report_reader)
        _run_as_daemon(directory, socket_path, binary, report_writer)
    os.close(report_writer)
    with os.fdopen(report_reader, "rb") as report:
        message = report.read()
    if message == READY:
        return 0
    reason = message.decode(errors="replace") or "the keeper ended before its server was up"
    sys.stderr.write(reason)
    return 1


def _run_as_daemon(
    directory: Path, socket_path: Path, binary: Path, report_writer: int
) -> NoReturn:
    _detach(directory / "valkey.log")
    with os.fdopen(report_writer, "wb", buffering=0) as report:

        def report_ready() -> None:
            report.write(READY)
            report.close()

        try:
            keep(directory, socket_path, binary, report_ready)
        except (KeeperError, OSError) as error:
            if not report.closed:
                report.write(str(error).encode(errors="replace"))
            sys.exit(1)
    sys.exit(0)


def _detach(log_path: Path) -> None:
    """Leave the starter's session, terminal, folder, signals and streams behind."""
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(log)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
