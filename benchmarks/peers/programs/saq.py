"""SAQ: jobs on an event loop."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import orjson
import uvloop
from saq import Queue, Worker

from benchmarks.peers import program

SETTINGS = (
    "uvloop, orjson as dump and load",
    "ttl=-1: finished jobs are not kept",
    "logging at ERROR",
    "by 100: a hundred enqueues awaited together; a bulk call is not offered",
)


async def nothing(_: Any, *, payload: Any) -> None:
    program.handle(payload)


async def publish() -> None:
    queue = _queue()
    await queue.connect()
    if program.job().by == 1:
        for _, payload in program.one_by_one():
            await queue.enqueue("nothing", payload=payload, ttl=-1)
        return
    for messages in program.at_once():
        await asyncio.gather(
            *(queue.enqueue("nothing", payload=payload, ttl=-1) for _, payload in messages)
        )


async def work() -> None:
    logging.getLogger("saq").setLevel(logging.ERROR)
    queue = _queue()
    await queue.connect()
    worker = Worker(queue, functions=[nothing], concurrency=program.job().concurrency)
    await worker.start()


def _queue() -> Queue:
    return Queue.from_url(program.job().url, dump=orjson.dumps, load=orjson.loads)


if __name__ == "__main__":
    program.run(
        publish=lambda: uvloop.run(publish()),
        work=lambda: uvloop.run(work()),
        settings=SETTINGS,
    )
