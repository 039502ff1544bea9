"""Which fixtures does a project's pytest suite get when groupqueue is installed?

pytest loads this in every project of the environment: nothing is imported before a
fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fakeredis import FakeRedis

    from groupqueue.testing import PublishedMessages


@pytest.fixture
def published_messages() -> Iterator[PublishedMessages]:
    """What the test publishes, captured instead of sent; see groupqueue.testing."""
    from groupqueue.testing import capture_published  # noqa: PLC0415 - see above

    with capture_published() as published:
        yield published


@pytest.fixture
def groupqueue_server(settings: Any) -> FakeRedis:
    """An empty Redis in memory for all queues, whatever CONNECTION says: a client of it."""
    from groupqueue.testing import fake_redis, reset_fake_redis  # noqa: PLC0415 - see above

    reset_fake_redis()
    settings.GROUPQUEUE = {
        name: {**keys, "CONNECTION": fake_redis} for name, keys in settings.GROUPQUEUE.items()
    }
    return fake_redis()
