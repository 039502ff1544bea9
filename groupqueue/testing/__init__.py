"""For the tests of projects that use groupqueue: without a worker, and without Redis if wished."""

from __future__ import annotations

from groupqueue.testing.published import PublishedMessage, PublishedMessages, capture_published
from groupqueue.testing.running import Failure, NotEmpty, Ran, arun_until_empty, run_until_empty
from groupqueue.testing.server import fake_redis, reset_fake_redis

__all__ = [
    "Failure",
    "NotEmpty",
    "PublishedMessage",
    "PublishedMessages",
    "Ran",
    "arun_until_empty",
    "capture_published",
    "fake_redis",
    "reset_fake_redis",
    "run_until_empty",
]
