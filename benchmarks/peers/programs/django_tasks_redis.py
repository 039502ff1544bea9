"""django-tasks-redis: a backend of Django's own tasks framework, on streams."""

from __future__ import annotations

import logging
import os
from typing import Any

import django
from django.conf import settings  # noqa: TID251
from django.core.management import call_command
from django.tasks import task

from benchmarks.peers import program

SETTINGS = (
    "run_redis_tasks --continuous: waits on the streams; one task at a time (no concurrency)",
    "results cannot be turned off; no database",
    "logging off",
    "by 100: not offered",
)

settings.configure(
    INSTALLED_APPS=["django_tasks_redis"],
    LOGGING_CONFIG=None,
    TASKS={
        "default": {
            "BACKEND": "django_tasks_redis.RedisTaskBackend",
            "OPTIONS": {"REDIS_URL": program.job().url},
        }
    },
    USE_TZ=True,
)
django.setup()


@task
def nothing(payload: Any) -> None:
    """Count the message; the framework wants a function of this module."""
    program.handle(payload)


def publish() -> None:
    for _, payload in program.one_by_one():
        nothing.enqueue(payload)


def work() -> None:
    logging.disable(logging.CRITICAL)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        call_command("run_redis_tasks", continuous=True, stdout=nowhere)


if __name__ == "__main__":
    program.run(publish=publish, work=work, settings=SETTINGS)
