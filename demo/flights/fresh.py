"""How does each run of the demo begin with nothing, and alone in its directory?"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from django.core.management import call_command
from django.db import connections

from demo.place import DIRECTORY
from groupqueue.transport.connections import get_transport


class DemoFailed(Exception):
    """The demo cannot do what it is for; the message says why."""


@contextlib.contextmanager
def fresh_directory() -> Iterator[int]:
    """Yield a lock on an empty database and an empty queue; raises DemoFailed."""
    with _locked() as lock:
        _empty_database()
        # Emptied while it runs, and not removed: its server may be just about to leave.
        get_transport().client.flushall()
        yield lock


@contextlib.contextmanager
def _locked() -> Iterator[int]:
    """Yield the lock that says whose the directory is; programs inherit it."""
    DIRECTORY.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = DIRECTORY / "demo.lock"
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(lock, 100).decode(errors="replace").strip() or "unknown"
            raise DemoFailed(
                f"another demo, started by process {holder}, still uses {DIRECTORY}: end it"
                f" first (`fuser {path}` lists its processes)"
            ) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield lock
    finally:
        os.close(lock)


def _empty_database() -> None:
    connections.close_all()
    for path in DIRECTORY.glob("demo.sqlite3*"):
        path.unlink()
    call_command("migrate", verbosity=0)
