"""What a verb of `group_queues` is, and what it answers with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.core.management.base import CommandParser

from groupqueue.queues import Queue

Options = Mapping[str, Any]

# What the exit code tells a script. 0: all is well.
EXIT_NOT_DONE = 1
EXIT_USAGE = 2
EXIT_UNAVAILABLE = 3
EXIT_EXCEEDED = 4
EXIT_FAULT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a verb has to say, for people and for scripts."""

    document: dict[str, Any]
    """For `--json`; the queue's name is added to it."""
    text: str
    trouble: str = ""
    """Why the exit code is not 0."""
    exit_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One verb: its arguments, what it does, and what has to be confirmed before."""

    name: str
    help: str
    perform: Callable[[Queue, Options], Answer]
    add_arguments: Callable[[CommandParser], None] = field(default=lambda _: None)
    question: Callable[[Queue, Options], str] | None = None
    """What is asked before something is lost, or stands still; None for all other verbs."""
