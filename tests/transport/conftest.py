"""On which servers, through which executor does a test meet a shard?

`shard` is everything: both executors on each real server, and on fakeredis;
`real_shard` leaves fakeredis out, `sync_shard` the async executor as well. `proxied_shard` has
a proxy on the way that sees every command and can hurt the connection. `own_shard` has
a server to hurt.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.conftest import Servers
from tests.servers import Server, available_kinds
from tests.transport.proxy import Proxy
from tests.transport.shards import Shard, load_scripts, look_inside, reach, reach_fake

EXECUTORS = ("sync", "async")
REAL = [f"{executor}-{kind}" for kind in available_kinds() for executor in EXECUTORS]
FAKE = [f"{executor}-fakeredis" for executor in EXECUTORS]


@pytest.fixture(params=REAL + FAKE)
async def shard(
    request: pytest.FixtureRequest, servers: Servers, queue_prefix: str
) -> AsyncIterator[Shard]:
    """A shard on each kind of server, reached through each executor."""
    async with _opened(request.param, servers, queue_prefix) as shard:
        yield shard


@pytest.fixture(params=[name for name in REAL if name.startswith("sync")])
async def sync_shard(
    request: pytest.FixtureRequest, servers: Servers, queue_prefix: str
) -> AsyncIterator[Shard]:
    """A shard on each kind of real server, for what is the scripts' doing alone."""
    async with _opened(request.param, servers, queue_prefix) as shard:
        yield shard


@pytest.fixture(params=REAL)
async def real_shard(
    request: pytest.FixtureRequest, servers: Servers, queue_prefix: str
) -> AsyncIterator[Shard]:
    """The same on real servers only."""
    async with _opened(request.param, servers, queue_prefix) as shard:
        yield shard


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A proxy before a shared server."""
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture(params=EXECUTORS)
async def proxied_shard(
    request: pytest.FixtureRequest, server: Server, proxy: Proxy, queue_prefix: str
) -> AsyncIterator[Shard]:
    """A shard behind `proxy`; the server knows the scripts, and the connection is made."""
    with look_inside(server.url) as inside:
        load_scripts(inside)
        async with reach(request.param, proxy.url, queue_prefix) as transport:
            shard = Shard(transport, inside, queue_prefix)
            await transport.wait_for_hint(0.001)
            proxy.commands.clear()
            yield shard


@pytest.fixture(params=EXECUTORS)
async def own_shard(
    request: pytest.FixtureRequest, own_server: Server, queue_prefix: str
) -> AsyncIterator[Shard]:
    """A shard on `own_server`, which a test may hurt."""
    with look_inside(own_server.url) as inside:
        async with reach(request.param, own_server.url, queue_prefix) as transport:
            yield Shard(transport, inside, queue_prefix)


@asynccontextmanager
async def _opened(name: str, servers: Servers, prefix: str) -> AsyncIterator[Shard]:
    executor, _, kind = name.partition("-")
    if kind == "fakeredis":
        async with reach_fake(executor, prefix) as fake:
            yield fake
        return
    url = servers.get(kind).url
    with look_inside(url) as inside:
        async with reach(executor, url, prefix) as transport:
            yield Shard(transport, inside, prefix)
