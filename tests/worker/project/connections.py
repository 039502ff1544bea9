"""Which client does a project hand in?"""

from __future__ import annotations

import redis

from tests import settings as suite

_client = redis.Redis.from_url(suite.SERVER_URL, max_connections=1)


def one_connection() -> redis.Redis:
    """Return the project's client, which may have a single connection."""
    return _client
