"""Huey on Redis lists: a message is taken off the list before it is handled."""

from __future__ import annotations

import logging

from huey import RedisHuey

from benchmarks.peers import program

SETTINGS = (
    "RedisHuey with blocking reads and results=False",
    "threads, as many as the concurrency: greenlets were slower",
    "no periodic tasks, no health checks of the threads",
    "logging at ERROR",
    "by 100: not offered",
)

huey = RedisHuey("peers", url=program.job().url, results=False, blocking=True)
nothing = huey.task(name="nothing")(program.handle)


def publish() -> None:
    for _, payload in program.one_by_one():
        nothing(payload)


def work() -> None:
    logging.getLogger("huey").setLevel(logging.ERROR)
    huey.create_consumer(
        workers=program.job().concurrency,
        worker_type="thread",
        periodic=False,
        check_worker_health=False,
    ).run()


if __name__ == "__main__":
    program.run(publish=publish, work=work, settings=SETTINGS)
