"""What does the thread that takes turns do while one is under way, and what not?"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from groupqueue import conf
from groupqueue.core.calls import Settlement
from groupqueue.core.messages import Lease
from groupqueue.worker.executor import Held
from groupqueue.worker.options import WorkerOptions
from groupqueue.worker.pump import Pump
from groupqueue.worker.sources import Claim


class Turns:
    """A queue that always has another group, and notes what is asked of it."""

    is_away = is_hinted = is_exhausted = False
    next_due = paused_until = 0.0

    def __init__(self, name: str, told: list[str]) -> None:
        self.config = copy.copy(conf.get_config())
        self.finished: list[Held] = []
        self._name = name
        self._told = told
        self._turns = 0

    def begin_turn(self, want: int, **_: Any) -> Callable[[], Sequence[Claim]]:
        self._turns += 1
        self._told.append(f"{self._name}{self._turns} begins")
        return partial(self._end, self._turns)

    def _end(self, number: int) -> Sequence[Claim]:
        self._told.append(f"{self._name}{number} ends")
        return [partial(self._claim, number)]

    def _claim(self, number: int) -> Held:
        self._told.append(f"{self._name}{number} is accepted")
        now = time.monotonic()
        lease = Lease(f"{number}", number, "1" * 32, b"", 0, 1, 0, 0, 0)
        # It need not be handled any more.
        return Held(self.config, lease, now + 60, now, settlement=Settlement.release(lease))


def told_of(count: int, turns: int, **options: Any) -> list[str]:
    """Return what happens when so many queues are given so many turns."""
    told: list[str] = []
    sources: list[Any] = [Turns(name, told) for name in "ab"[:count]]
    pump = Pump(
        sources,
        _Keeper(),
        WorkerOptions(queues=("default",), **options),
        on_stopping=lambda _: None,
        on_claimed=lambda _: None,
        on_loop_ended=lambda: None,
    )
    for _ in range(turns):
        pump._turn_all()
        pump._collect()
    return told


class _Keeper:
    def hold(self, held: Held) -> None:
        """Take a lease in."""


def test_the_next_turn_is_sent_before_what_the_last_one_claimed_is_accepted() -> None:
    assert told_of(1, 2, concurrency=2) == [
        "a1 begins",
        "a1 ends",
        "a2 begins",
        "a1 is accepted",
        "a2 ends",
    ]


def test_nothing_waits_for_the_server_of_another_queue() -> None:
    assert told_of(2, 2, concurrency=4) == [
        "b1 begins",
        "b1 ends",
        "b1 is accepted",
        "a1 begins",
        "a1 ends",
        # The same queue's again.
        "a2 begins",
        "a1 is accepted",
        "a2 ends",
        "a2 is accepted",
        "b2 begins",
        "b2 ends",
    ]


@pytest.mark.parametrize("options", [{"concurrency": 1}, {"concurrency": 2, "max_messages": 9}])
def test_where_handlers_run_in_between_or_claims_are_counted_nothing_waits(
    options: dict[str, Any],
) -> None:
    assert told_of(1, 2, **options) == [
        "a1 begins",
        "a1 ends",
        "a1 is accepted",
        "a2 begins",
        "a2 ends",
        "a2 is accepted",
    ]
