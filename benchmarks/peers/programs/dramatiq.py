"""Dramatiq on its Redis broker."""

from __future__ import annotations

import logging
import threading

import dramatiq
from dramatiq import worker as dramatiq_worker
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers import program

PREFETCH = 1000
SETTINGS = (
    f"dramatiq_queue_prefetch={PREFETCH}: with the default of 2 per thread the consumer"
    " sleeps whenever that is full",
    "threads in one process, as many as the concurrency",
    "no result backend, standard middleware, logging at ERROR",
    "by 100: not offered; groups enqueue their messages one by one",
)

broker = RedisBroker(url=program.job().url)
dramatiq.set_broker(broker)
nothing = dramatiq.actor(program.handle, actor_name="nothing")


def publish() -> None:
    for _, payload in program.one_by_one():
        nothing.send(payload)


def work() -> None:
    logging.getLogger("dramatiq").setLevel(logging.ERROR)
    dramatiq_worker.QUEUE_PREFETCH = PREFETCH  # what the environment's variable sets
    dramatiq.Worker(broker, worker_threads=program.job().concurrency).start()
    threading.Event().wait()


if __name__ == "__main__":
    program.run(publish=publish, work=work, settings=SETTINGS)
