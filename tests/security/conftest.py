"""On which queues do the tests of this folder work?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from tests.servers import Server
from tests.tls import Certificates, Endpoint, endpoint, endpoint_kinds
from tests.worker.stage import Stage


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, and its certificate for servers on this machine."""
    return Certificates(tmp_path_factory.mktemp("certificates") / "ours")


@pytest.fixture(params=endpoint_kinds())
def tls(
    request: pytest.FixtureRequest, tmp_path: Path, certificates: Certificates
) -> Iterator[Endpoint]:
    """Each way to a server through TLS that this machine has."""
    with endpoint(request.param, tmp_path / "tls", certificates) as found:
        yield found


@pytest.fixture
def stage(default_server: Server, tmp_path: Path, settings: Settings) -> Iterator[Stage]:
    """A queue on the shared server, and the workers of this test."""
    stage = Stage(default_server.url, tmp_path, settings)
    try:
        yield stage
    finally:
        stage.end()
