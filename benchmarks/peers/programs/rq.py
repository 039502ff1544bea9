"""RQ: a job per message, handled in the worker's own process."""

from __future__ import annotations

from redis import Redis
from rq import Queue, SimpleWorker
from rq.serializers import JSONSerializer

from benchmarks.peers import program

SETTINGS = (
    "SimpleWorker: no fork per job, one job at a time (RQ has no concurrency in a process)",
    "JSONSerializer in place of pickle",
    "result_ttl=0: results are not kept",
    "logging at ERROR, job descriptions not logged",
    "by 100: Queue.enqueue_many",
)


def publish() -> None:
    queue = _queue()
    if program.job().by == 1:
        for _, payload in program.one_by_one():
            queue.enqueue(program.handle, payload, result_ttl=0, description="")
        return
    for messages in program.at_once():
        queue.enqueue_many(
            [
                Queue.prepare_data(program.handle, (payload,), result_ttl=0, description="")
                for _, payload in messages
            ]
        )


def work() -> None:
    queue = _queue()
    worker = SimpleWorker(
        [queue],
        connection=queue.connection,
        serializer=JSONSerializer,
        log_job_description=False,
    )
    worker.work(logging_level="ERROR")


def _queue() -> Queue:
    return Queue(connection=Redis.from_url(program.job().url), serializer=JSONSerializer)


if __name__ == "__main__":
    program.run(publish=publish, work=work, settings=SETTINGS)
