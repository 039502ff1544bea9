"""What does the thread that takes turns do while one is under way, and what not?"""

from __future__ import annotations

import copy
import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from groupqueue import conf
from groupqueue.core.calls import Settlement
from groupqueue.core.messages import Lease
from groupqueue.worker.ahead import AHEAD_SECONDS, MOST_AHEAD, Line
from groupqueue.worker.executor import Held
from groupqueue.worker.options import WorkerOptions
from groupqueue.worker.pump import Pump
from groupqueue.worker.sources import Claim, Source


class Turns:
    """A queue that always has another group, and notes what is asked of it."""

    is_away = is_hinted = is_exhausted = False
    next_due = paused_until = 0.0

    def __init__(self, name: str, told: list[str], *, is_generous: bool = False) -> None:
        """It gives one group a turn, or as many as are wanted."""
        self.config = copy.copy(conf.get_config())
        self.finished: list[Held] = []
        self.wants: list[int] = []
        self._is_generous = is_generous
        self._name = name
        self._told = told
        self._turns = 0

    def begin_turn(self, want: int, **_: Any) -> Callable[[], Sequence[Claim]]:
        self._turns += 1
        self.wants.append(want)
        self._told.append(f"{self._name}{self._turns} begins")
        return partial(self._end, self._turns, want if self._is_generous else 1)

    def _end(self, number: int, count: int) -> Sequence[Claim]:
        self._told.append(f"{self._name}{number} ends")
        return [partial(self._claim, number)] * count

    def _claim(self, number: int) -> Held:
        self._told.append(f"{self._name}{number} is accepted")
        return self.held(number)

    def held(self, number: int) -> Held:
        """Return a lease that has been settled."""
        now = time.monotonic()
        lease = Lease(f"{number}", number, "1" * 32, b"", 0, 1, 0, 0, 0)
        return Held(self.config, lease, now + 60, now, settlement=Settlement.release(lease))


def told_of(count: int, turns: int, **options: Any) -> list[str]:
    """Return what happens when so many queues are given so many turns."""
    told: list[str] = []
    pump = pump_of(*(Turns(name, told) for name in "ab"[:count]), **options)
    quick_line(pump)
    for _ in range(turns):
        pump._turn_all()
        pump._collect()
    return told


def pump_of(*sources: Any, **options: Any) -> Pump:
    """Return a pump that has hands, of which none takes what waits in line."""
    return Pump(
        sources,
        _Keeper(),
        WorkerOptions(queues=("default",), **options),
        on_stopping=lambda _: None,
        on_claimed=lambda _: None,
        on_loop_ended=lambda: None,
    )


def quick_line(pump: Pump) -> Line:
    """Let the pump believe that handlers are quick; return its line."""
    assert pump._line
    for _ in range(60):
        pump._line.ended(pump._line.begun())
    return pump._line


class _Keeper:
    def hold(self, held: Held) -> None:
        """Take a lease in."""


@pytest.mark.parametrize("concurrency", [1, 2])
def test_the_next_turn_is_sent_before_what_the_last_one_claimed_is_accepted(
    concurrency: int,
) -> None:
    assert told_of(1, 2, concurrency=concurrency) == [
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


def test_where_claims_are_counted_nothing_waits() -> None:
    assert told_of(1, 2, concurrency=2, max_messages=9) == [
        "a1 begins",
        "a1 ends",
        "a1 is accepted",
        "a2 begins",
        "a2 ends",
        "a2 is accepted",
    ]


@pytest.mark.parametrize(("concurrency", "wants"), [(1, [32, 32]), (16, [40, 39])])
def test_half_of_what_may_be_claimed_is_claimed_at_a_time(
    concurrency: int, wants: list[int]
) -> None:
    turns = Turns("a", [], is_generous=True)
    pump = pump_of(turns, concurrency=concurrency)
    quick_line(pump)

    for _ in range(3):
        pump._turn_all()

    assert turns.wants == wants


def test_a_turn_waits_for_more_to_settle_while_many_wait_in_line_but_not_for_long() -> None:
    pump = pump_of(Turns("a", []), concurrency=1)
    line = quick_line(pump)
    assert pump._turn_all()

    for _ in range(MOST_AHEAD // 2 + 1):
        line.add(a_held())
    assert not pump._turn_all()
    pump._turned_at -= AHEAD_SECONDS
    assert pump._turn_all()

    assert not pump._turn_all()
    line.take()
    assert pump._turn_all()


def test_the_answer_to_a_turn_is_read_once_the_line_is_empty(monkeypatch) -> None:
    monkeypatch.setattr("groupqueue.worker.pump.AHEAD_SECONDS", 3600)
    turns = Turns("a", [])
    pump = pump_of(turns, concurrency=1)
    line, held = quick_line(pump), turns.held(1)
    line.add(held)

    hand = threading.Thread(target=lambda: pump._inbox.put(line.take() or held))
    hand.start()
    pump._turn_all()

    hand.join()
    pump._collect()
    assert turns.finished == [held]


class Emptied(Turns, Source):
    """A queue that has nothing more to give, as far as a turn can tell."""

    def _end(self, number: int, count: int) -> Sequence[Claim]:
        self.is_hinted, self.is_exhausted, self.next_due = False, True, math.inf
        return []


def test_a_hint_that_comes_while_a_turn_is_under_way_is_not_forgotten() -> None:
    emptied = Emptied("a", [])
    pump = pump_of(emptied, concurrency=1)
    quick_line(pump).add(a_held())
    pump._inbox.put(emptied)

    assert pump._turn_all()

    assert (emptied.is_hinted, emptied.next_due) == (True, 0.0)


def test_a_burst_goes_on_where_a_handler_may_have_published_while_a_turn_was_under_way() -> None:
    other, emptied = Turns("a", []), Emptied("b", [])
    pump = pump_of(other, emptied, concurrency=1, burst=True)
    quick_line(pump).add(a_held())
    pump._inbox.put(other.held(1))

    assert pump._turn_all()

    assert (emptied.is_exhausted, emptied.next_due) == (False, 0.0)


def test_the_answer_to_a_turn_is_read_after_a_while_at_the_latest() -> None:
    pump = pump_of(Turns("a", told := []), concurrency=1)
    quick_line(pump).add(a_held())

    assert pump._turn_all()

    assert told == ["a1 begins", "a1 ends"]


def a_held() -> Held:
    """A lease that nobody looks into."""
    return Held(queue=None, lease=None, lasts_until=0, renewed_at=0)  # type: ignore[arg-type]
