"""The options of `run_group_workers`: how each is declared and checked."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from groupqueue import conf
from groupqueue.worker.options import WorkerOptions


def add_to(parser: argparse.ArgumentParser) -> None:
    """Declare the options; the command line wins over the settings."""
    parser.add_argument("queues", nargs="*", help="queues to work on; all configured by default")
    parser.add_argument(
        "--processes", type=_count, default=1, help="worker processes (default 1)"
    )
    parser.add_argument(
        "--concurrency", type=_count, default=1, help="messages at once per process (default 1)"
    )
    parser.add_argument(
        "--visibility", type=_seconds, help="seconds a lease lasts; else VISIBILITY_TIMEOUT"
    )
    parser.add_argument(
        "--min-priority", type=_tier, default=0, help="leave tiers below this one alone (0 to 4)"
    )
    parser.add_argument(
        "--priority-share",
        type=_share,
        help="share of claims that go to the most urgent tier; else PRIORITY_SHARE",
    )
    parser.add_argument(
        "--high-ratio",
        type=_share,
        help="instead: share of claims for the tiers from --priority-threshold up",
    )
    parser.add_argument(
        "--priority-threshold", type=_tier, help="the lowest of the tiers that --high-ratio favours"
    )
    parser.add_argument(
        "--burst", action="store_true", help="end when no group is due, instead of waiting"
    )
    parser.add_argument(
        "--max-messages", type=_count, help="end after claiming this many, over all processes"
    )
    parser.add_argument("--max-seconds", type=_seconds, help="end after this time")
    parser.add_argument(
        "--shutdown-timeout",
        type=_seconds,
        default=30.0,
        help="seconds for running handlers to finish when stopping; then their messages are "
        "handed back (default 30)",
    )
    parser.add_argument(
        "--reload", action="store_true", help="restart when code changes; for development"
    )
    parser.add_argument("--name", default="", help="the worker's name in the registry")
    parser.add_argument(
        "--unsafe-server",
        action="store_true",
        help="run although the server could lose messages or is too old",
    )


def options_from(values: Mapping[str, Any]) -> WorkerOptions:
    """Return what the command line asks for; raises UnknownQueue and ConfigurationError."""
    queues = tuple(dict.fromkeys(values["queues"])) or conf.configured_queues()
    for queue in queues:
        conf.get_config(queue)
    names = WorkerOptions.__dataclass_fields__
    taken = {name: value for name, value in values.items() if name in names}
    return WorkerOptions(**taken | {"queues": queues})


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < 10**9:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of seconds")
    return number


def _share(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share from 0 to 1")
    return number


def _tier(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 4:
        raise argparse.ArgumentTypeError(f"{text} is not a tier from 0 to 4")
    return number
