"""Which databases can a worker's handlers use on this machine?"""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import sqlite3
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TABLE = "CREATE TABLE notes (n INTEGER)"
POSTGRESQL: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 5432,
    "user": "postgres",
    "dbname": "test",
}


class Database(ABC):
    """A database with the table `notes` in it."""

    @abstractmethod
    def settings(self, **more: Any) -> dict[str, Any]:
        """Return what Django's setting DATABASES says of it."""

    @abstractmethod
    def count_notes(self) -> int:
        """Return how many rows were committed."""

    @abstractmethod
    def drop(self) -> None:
        """Leave nothing of it behind."""


class SQLite(Database):
    """A file of the test's own."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "notes.sqlite3"
        with contextlib.closing(sqlite3.connect(self._path)) as connection:
            connection.execute(TABLE)

    def settings(self, **more: Any) -> dict[str, Any]:
        engine = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(self._path)}
        return engine | {"OPTIONS": {"timeout": 5}} | more

    def count_notes(self) -> int:
        with contextlib.closing(sqlite3.connect(self._path)) as connection:
            return int(connection.execute("SELECT COUNT(*) FROM notes").fetchone()[0])

    def drop(self) -> None:
        self._path.unlink()


class PostgreSQL(Database):
    """A schema of the test's own on the machine's server."""

    def __init__(self) -> None:
        import psycopg

        self._schema = f"worker_{uuid.uuid4().hex[:12]}"
        self._connection: Any = psycopg.connect(**POSTGRESQL, autocommit=True)
        self._connection.execute(f"CREATE SCHEMA {self._schema}")
        self._connection.execute(f"SET search_path = {self._schema}")
        self._connection.execute(TABLE)

    def settings(self, **more: Any) -> dict[str, Any]:
        return {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": POSTGRESQL["host"],
            "PORT": POSTGRESQL["port"],
            "USER": POSTGRESQL["user"],
            "NAME": POSTGRESQL["dbname"],
            "OPTIONS": {"options": f"-c search_path={self._schema}"},
            **more,
        }

    def count_notes(self) -> int:
        return int(self._connection.execute("SELECT COUNT(*) FROM notes").fetchone()[0])

    def cut(self, session: int) -> None:
        """End a session, as a restart of the server or a firewall would."""
        ended = self._connection.execute("SELECT pg_terminate_backend(%s, 5000)", [session])
        assert ended.fetchone()[0]

    def drop(self) -> None:
        self._connection.execute(f"DROP SCHEMA {self._schema} CASCADE")
        self._connection.close()


def available() -> Sequence[str]:
    """Return the databases that can be had: SQLite always, PostgreSQL where it answers."""
    return ["sqlite", "postgresql"] if has_postgresql() else ["sqlite"]


def has_postgresql() -> bool:
    """Say whether a PostgreSQL server lets us in without a password."""
    if importlib.util.find_spec("psycopg") is None:
        return False
    import psycopg

    try:
        with socket.create_connection((POSTGRESQL["host"], POSTGRESQL["port"]), timeout=1):
            psycopg.connect(**POSTGRESQL, connect_timeout=2).close()
    except (OSError, psycopg.OperationalError):
        return False
    return True
