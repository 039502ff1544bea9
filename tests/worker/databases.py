"""Which databases can handlers, and the code that publishes, use on this machine?"""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

TABLE = "CREATE TABLE notes (n INTEGER)"
VARIABLE = "GROUPQUEUE_TEST_POSTGRESQL"
"""Where the tests' PostgreSQL server is: a URL of somebody who may make schemas there."""
URL = os.environ.get(VARIABLE, "postgresql://postgres@127.0.0.1:5432/test")


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

        self._schema = f"groupqueue_{uuid.uuid4().hex[:12]}"
        self._connection: Any = psycopg.connect(URL, autocommit=True)
        self._connection.execute(f"CREATE SCHEMA {self._schema}")
        self._connection.execute(f"SET search_path = {self._schema}")
        self._connection.execute(TABLE)

    def settings(self, **more: Any) -> dict[str, Any]:
        from psycopg.conninfo import conninfo_to_dict

        given = {name: str(value) for name, value in conninfo_to_dict(URL).items()}
        return {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": given.pop("host", ""),
            "PORT": given.pop("port", ""),
            "USER": given.pop("user", ""),
            "PASSWORD": given.pop("password", ""),
            "NAME": given.pop("dbname", ""),
            "OPTIONS": {**given, "options": f"-c search_path={self._schema}"},
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


@contextlib.contextmanager
def as_default(database: Database) -> Iterator[None]:
    """Have Django's connection "default" lead to this database, in all threads."""
    kept = connections.settings["default"]
    connections["default"].close()
    del connections["default"]
    given = connections.configure_settings({"default": database.settings()})
    connections.settings["default"] = given["default"]
    try:
        yield
    finally:
        connections["default"].close()
        del connections["default"]
        connections.settings["default"] = kept


@functools.cache
def has_postgresql() -> bool:
    """Say whether a PostgreSQL server lets us in; one that was asked for has to."""
    try:
        import psycopg

        psycopg.connect(URL, connect_timeout=2).close()
    except (ImportError, psycopg.OperationalError):
        if VARIABLE in os.environ:
            raise
        return False
    return True


on_postgresql = pytest.mark.skipif(
    not has_postgresql(), reason=f"no PostgreSQL server answers at {URL}; {VARIABLE} names another"
)
EACH = ("sqlite", pytest.param("postgresql", marks=on_postgresql))
"""The parameters of a test for each kind of database."""
