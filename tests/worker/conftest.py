"""Where does a test of the worker get its stage?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from tests.servers import Server, start_server
from tests.worker.stage import Stage


@pytest.fixture
def stage(default_server: Server, tmp_path: Path, settings: Settings) -> Iterator[Stage]:
    """A queue on the shared server, for workers of this test alone."""
    yield from _stage(default_server, tmp_path, settings)


@pytest.fixture
def own_stage(own_server: Server, tmp_path: Path, settings: Settings) -> Iterator[Stage]:
    """A queue on a server that this test may hurt, of each kind in turn."""
    yield from _stage(own_server, tmp_path, settings)


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Server]:
    """A server for one test alone, where it does not matter of which kind."""
    server = start_server("valkey", tmp_path / "valkey")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def valkey_stage(valkey: Server, tmp_path: Path, settings: Settings) -> Iterator[Stage]:
    """A queue on a server that this test may hurt."""
    yield from _stage(valkey, tmp_path, settings)


def _stage(server: Server, directory: Path, settings: Settings) -> Iterator[Stage]:
    stage = Stage(server.url, directory, settings)
    try:
        yield stage
    finally:
        stage.end()
