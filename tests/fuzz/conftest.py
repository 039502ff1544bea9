"""On which queue is random input tried?"""

from __future__ import annotations

import pytest
import redis

from tests.operating.conftest import Bench


@pytest.fixture
def bench(default_client: redis.Redis) -> Bench:
    """The default queue, empty."""
    return Bench(default_client)
