"""Which peers are there, where do they come from, and what can they do?

How each is set up is told by its program, in benchmarks/peers/programs/.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Acknowledges = Literal["after handling", "partly", "before handling"]
Language = Literal["python", "node", "ours"]

OURS = "groupqueue"
REDIS = ("redis==8.1.0", "hiredis==3.5.0")


class Peer(NamedTuple):
    """A queue to measure."""

    name: str
    program: str
    """The name of its module in benchmarks/peers/programs/."""
    acknowledges: Acknowledges
    """When a message is off the queue; after handling, it survives a killed worker."""
    because: str
    """How that was found."""
    language: Language = "python"
    requirements: tuple[str, ...] = ()
    """Pinned; the run's result tells all versions that came with them."""
    python: tuple[int, int] = (3, 11)
    """The oldest that it runs on."""
    has_groups: bool = False
    has_bulk: bool = True
    """Whether it offers to publish many at once, or many concurrently."""
    has_concurrency: bool = True
    """Whether one process handles several messages at once."""
    publishes: bool = True
    """Whether publishing is measured too, or only needed for the backlog."""
    options: tuple[tuple[str, int], ...] = ()


PEERS = (
    Peer(
        OURS,
        "groupqueue",
        "after handling",
        "a lease is settled when its handler has returned",
        language="ours",
        has_groups=True,
    ),
    Peer(
        "groupqueue --batch 32",
        "groupqueue",
        "after handling",
        "as above, up to 32 messages of a group with one lease",
        language="ours",
        has_groups=True,
        publishes=False,
        options=(("batch", 32),),
    ),
    Peer(
        "GroupMQ",
        "groupmq",
        "after handling",
        "completed after the handler; jobs of dead workers are found when their deadline is over",
        language="node",
        requirements=("groupmq@1.1.0", "ioredis@6.0.0"),
        has_groups=True,
    ),
    Peer(
        "BullMQ",
        "bullmq",
        "after handling",
        "completed after the handler; jobs of dead workers are found by the stalled check",
        language="node",
        requirements=("bullmq@6.7.0", "ioredis@6.0.0"),
    ),
    Peer(
        "RQ",
        "rq",
        "partly",
        "a job of a dead worker ends among the failed ones and is not run again by itself",
        requirements=("rq==3.0.0", *REDIS),
        has_concurrency=False,
    ),
    Peer(
        "Celery",
        "celery",
        "after handling",
        "task_acks_late; restored after the visibility timeout of an hour",
        requirements=("celery[redis]==5.7.0", *REDIS),
    ),
    Peer(
        "Dramatiq",
        "dramatiq",
        "after handling",
        "acknowledged after the actor; requeued when the worker's heartbeat is old",
        requirements=("dramatiq[redis]==2.2.1", *REDIS),
        has_bulk=False,
    ),
    Peer(
        "Huey",
        "huey",
        "before handling",
        "popped from its list before it is handled",
        requirements=("huey==3.5.4", *REDIS),
        has_bulk=False,
    ),
    Peer(
        "django-tasks-redis",
        "django_tasks_redis",
        "after handling",
        "XACK after the task; claimed by others after the claim timeout",
        requirements=("django-tasks-redis==0.4.0", "django==6.1.3", *REDIS),
        python=(3, 12),
        has_bulk=False,
        has_concurrency=False,
    ),
    Peer(
        "taskiq",
        "taskiq",
        "after handling",
        "XACK when executed; claimed by others after the idle timeout",
        requirements=(
            "taskiq==0.13.0",
            "taskiq-redis==1.2.4",
            "orjson==3.13.0",
            "uvloop==0.23.0",
            *REDIS,
        ),
    ),
    Peer(
        "SAQ",
        "saq",
        "partly",
        "kept in a list of active jobs; a sweep finds those of dead workers and, unless they may"
        " be retried, aborts them",
        requirements=(
            "saq[redis]==0.26.4",
            "typing-extensions==4.16.0",  # which it imports without asking for it
            "orjson==3.13.0",
            "uvloop==0.23.0",
            "redis==7.4.1",
            "hiredis==3.5.0",
        ),
    ),
)
