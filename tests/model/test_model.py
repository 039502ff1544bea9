"""Do the scripts do what the model says, whatever comes after what?

`MODEL_EXAMPLES` says how many lives of a queue are tried, of 60 steps at most, each time others;
without it the same few are. A failure prints the steps that lead to it, as short as they can be.
"""

from __future__ import annotations

import os

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from groupqueue.transport.redis import RedisTransport
from tests.model.machine import QueueMachine

ASKED_FOR = os.environ.get("MODEL_EXAMPLES", "")

settings.register_profile(
    "model",
    max_examples=int(ASKED_FOR or 50),
    stateful_step_count=60,
    derandomize=not ASKED_FOR,
    deadline=None,
    database=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


# Shortening a failure takes minutes.
@pytest.mark.timeout(0 if ASKED_FOR else 600)
def test_server_and_model_agree_after_every_step(redis_client: redis.Redis, queue_prefix: str):
    transport = RedisTransport(redis_client, queue_prefix)
    try:
        run_state_machine_as_test(
            lambda: QueueMachine(redis_client, transport), settings=settings.get_profile("model")
        )
    finally:
        transport.close()
