"""taskiq on a Redis stream, acknowledging after handling."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import uvloop
from taskiq.acks import AcknowledgeType
from taskiq.api import run_receiver_task
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import RedisStreamBroker

from benchmarks.peers import program

PREFETCH = 100
SETTINGS = (
    "RedisStreamBroker: the one of its brokers that acknowledges; read by 100",
    f"max_prefetch={PREFETCH}, max_async_tasks as the concurrency, acknowledged when executed",
    "uvloop, ORJSONSerializer, parameters not validated",
    "no result backend, logging at ERROR",
    "by 100: a hundred kiq() awaited together; a bulk call is not offered",
)

# A group that began at the end would not see the backlog if the worker came first.
broker = RedisStreamBroker(program.job().url, consumer_id="0").with_serializer(ORJSONSerializer())


@broker.task(task_name="nothing")
async def nothing(payload: Any) -> None:
    program.handle(payload)


async def publish() -> None:
    await broker.startup()
    if program.job().by == 1:
        for _, payload in program.one_by_one():
            await nothing.kiq(payload)
        return
    for messages in program.at_once():
        await asyncio.gather(*(nothing.kiq(payload) for _, payload in messages))


async def work() -> None:
    logging.getLogger("taskiq").setLevel(logging.ERROR)
    await run_receiver_task(
        broker,
        max_async_tasks=program.job().concurrency,
        max_prefetch=PREFETCH,
        validate_params=False,
        ack_time=AcknowledgeType.WHEN_EXECUTED,
        run_startup=True,
    )


if __name__ == "__main__":
    program.run(
        publish=lambda: uvloop.run(publish()),
        work=lambda: uvloop.run(work()),
        settings=SETTINGS,
    )
