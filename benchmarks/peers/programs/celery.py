"""Celery on its Redis transport, acknowledging late."""

from __future__ import annotations

from celery import Celery

from benchmarks.peers import program

SETTINGS = (
    "task_acks_late: acknowledged after handling",
    "worker_prefetch_multiplier=128, as the optimizing guide advises for many short tasks",
    "pool solo at concurrency 1; threads at 16, all in one process: gevent was slower",
    "task_ignore_result, no result backend, events off, rate limits disabled",
    "--without-gossip --without-mingle --without-heartbeat, logging at ERROR",
    "by 100: apply_async on one producer held for all",
)

app = Celery("peers", broker=program.job().url)
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
    task_ignore_result=True,
    task_track_started=False,
    worker_disable_rate_limits=True,
    worker_prefetch_multiplier=128,
    worker_send_task_events=False,
)
nothing = app.task(name="nothing")(program.handle)


def publish() -> None:
    if program.job().by == 1:
        for _, payload in program.one_by_one():
            nothing.delay(payload)
        return
    with app.producer_pool.acquire(block=True) as producer:
        for messages in program.at_once():
            for _, payload in messages:
                nothing.apply_async((payload,), producer=producer)


def work() -> None:
    concurrency = program.job().concurrency
    pool = "solo" if concurrency == 1 else "threads"
    app.worker_main(
        [
            "worker",
            f"--pool={pool}",
            f"--concurrency={concurrency}",
            "--loglevel=ERROR",
            "--without-gossip",
            "--without-mingle",
            "--without-heartbeat",
        ]
    )


if __name__ == "__main__":
    program.run(publish=publish, work=work, settings=SETTINGS)
