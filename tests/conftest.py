"""Which servers and clients may a test ask for?

`server` is each kind of server in turn, `own_server` one to hurt,
`default_server` the one that the settings name.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
import redis.asyncio

from tests.servers import Kind, Server, available_kinds, guardian, start_server


class Servers:
    """The servers that the whole suite shares, each started when first asked for."""

    def __init__(self, directory: Path, default_url: str) -> None:
        self._directory = directory
        self._default_url = default_url
        self._started: dict[Kind, Server] = {}
        self.default_kind = available_kinds()[0]
        """That of the server which the settings name."""

    def get(self, kind: Kind) -> Server:
        """Return the shared server of this kind."""
        if kind not in self._started:
            port = urlsplit(self._default_url).port if kind == self.default_kind else None
            self._started[kind] = start_server(kind, self._directory / kind, port=port)
        return self._started[kind]

    def stop(self) -> None:
        """End them all."""
        while self._started:
            self._started.popitem()[1].stop()


_servers = pytest.StashKey[Servers]()
# Of few long tests each: last, they would leave all but one process idle.
LONG = ("proof", "worker", "demo", "benchmarks", "model")


def pytest_configure(config: pytest.Config) -> None:
    """Start the server that the settings name: any test may use Django's API."""
    from tests import settings

    settings.DIRECTORY.mkdir(mode=0o700, parents=True, exist_ok=True)
    servers = config.stash[_servers] = Servers(settings.DIRECTORY, settings.SERVER_URL)

    def clean_up() -> None:
        servers.stop()
        guardian.dismiss()
        shutil.rmtree(settings.DIRECTORY, ignore_errors=True)

    config.add_cleanup(clean_up)
    if not config.option.collectonly:
        servers.get(servers.default_kind)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long."""
    items.sort(key=lambda item: item.path.parent.name not in LONG)


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> Servers:
    """The shared servers, by kind."""
    return pytestconfig.stash[_servers]


@pytest.fixture(params=available_kinds())
def server(servers: Servers, request: pytest.FixtureRequest) -> Server:
    """Each kind of server that this machine has; shared, so leave it running."""
    return servers.get(request.param)


@pytest.fixture
def default_server(servers: Servers) -> Server:
    """The server that the settings name; shared, so leave it running."""
    return servers.get(servers.default_kind)


@pytest.fixture(params=available_kinds())
def own_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server for one test alone, which may pause, kill and restart it."""
    server = start_server(request.param, tmp_path / "own-server")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def redis_client(server: Server) -> Iterator[redis.Redis]:
    """A client of `server`, emptied, which never repeats a command."""
    yield from _client(server)


@pytest.fixture
def default_client(default_server: Server) -> Iterator[redis.Redis]:
    """A client of `default_server`, emptied."""
    yield from _client(default_server)


@pytest.fixture
async def async_redis_client(server: Server) -> AsyncIterator[redis.asyncio.Redis]:
    """An async client of `server`, emptied, which never repeats a command."""
    client = redis.asyncio.Redis.from_url(server.url, retry=None)
    try:
        await client.flushdb()
        yield client
    finally:
        await client.aclose()


@pytest.fixture
def queue_prefix() -> str:
    """A key prefix that no other test uses."""
    return f"gq:{{test-{uuid.uuid4().hex[:12]}:0}}"


def _client(server: Server) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(server.url, retry=None)
    try:
        client.flushdb()
        yield client
    finally:
        client.close()
