"""Which server a test uses when there is none: a Redis in memory, for CONNECTION."""

from __future__ import annotations

import functools
import importlib.util
from typing import TYPE_CHECKING

from groupqueue.exceptions import ConfigurationError

if TYPE_CHECKING:
    from fakeredis import FakeRedis, FakeServer


def fake_redis() -> FakeRedis:
    """Return a client of this process's Redis in memory, as `CONNECTION` may name it.

    Raises ConfigurationError when fakeredis or lupa, which runs the scripts, is missing.
    """
    server = _fake_server()
    from fakeredis import FakeRedis  # noqa: PLC0415 - an extra

    return FakeRedis(server=server, host="in-memory")


def reset_fake_redis() -> None:
    """Empty the Redis in memory."""
    fake_redis().flushall()


@functools.cache
def _fake_server() -> FakeServer:
    missing = [name for name in ("fakeredis", "lupa") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"groupqueue.testing.fake_redis needs {' and '.join(missing)}:"
            " pip install groupqueue[testing]"
        )
    from fakeredis import FakeServer  # noqa: PLC0415 - an extra

    return FakeServer()
