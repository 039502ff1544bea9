"""groupqueue itself, as a Django project runs it."""

from __future__ import annotations

import os

import django
from django.core.management import call_command

import groupqueue
from benchmarks.peers import program

TOPIC = "benchmark.peers"

SETTINGS = (
    "run_group_workers with one process; a plain handler, sync, in threads at concurrency 16",
    "hiredis as the parser",
    "logging at WARNING",
    "by 100: publish_many",
)

os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
os.environ["GROUPQUEUE_BENCHMARK_URL"] = program.job().url
django.setup()


def publish() -> None:
    if program.job().by == 1:
        for group, payload in program.one_by_one():
            groupqueue.publish(TOPIC, payload, group=group)
        return
    for messages in program.at_once():
        groupqueue.publish_many(
            groupqueue.Outgoing(TOPIC, payload, group=group) for group, payload in messages
        )


def work() -> None:
    call_command(
        "run_group_workers",
        verbosity=0,
        processes=1,
        concurrency=program.job().concurrency,
        **dict(program.job().options),
    )


if __name__ == "__main__":
    program.run(publish=publish, work=work, settings=SETTINGS)
