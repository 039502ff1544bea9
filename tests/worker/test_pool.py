"""Do as many hands take from the line as are of use, and never too few?"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from groupqueue.worker.ahead import Line
from groupqueue.worker.executor import Held
from groupqueue.worker.pool import Pool
from tests.servers import wait_until


class Crew:
    """A pool whose hands do the same with everybody in line, and note who they are."""

    def __init__(self, hands: int, work: Callable[[], object]) -> None:
        self.line = Line(lambda _: None, hands=hands)
        self.took: list[str] = []
        self.most_at_once = self._at_once = 0
        self._work = work
        self.pool = Pool(
            hands, lambda _: None, lambda: None, handle_next=self._handle_next, line=self.line
        )
        self._serving = threading.Thread(target=self.pool.serve, name="first", daemon=True)
        self._serving.start()

    def add(self, count: int) -> None:
        """Let so many more wait in line."""
        for _ in range(count):
            self.line.add(Held(queue=None, lease=None, lasts_until=0, renewed_at=0))  # type: ignore[arg-type]
            self.pool.call_next()

    def close(self) -> None:
        """Let the hands go; all have to be free."""
        self.pool.close()
        self._serving.join(20)
        assert not self._serving.is_alive()

    def _handle_next(self) -> int:
        if self.line.take() is None:
            return 0
        number = self.line.taken
        if not self.line.is_empty:
            self.pool.call_next()
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        self._work()
        self._at_once -= 1
        self.took.append(threading.current_thread().name)
        return number


def compute(*, seconds: float) -> None:
    """Keep the interpreter busy, as a handler does that waits for nothing."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_everybody_in_line_is_taken_once_by_whichever_hand() -> None:
    crew = Crew(4, lambda: time.sleep(0.0005))
    for count in (1, 50, 1, 200):
        crew.add(count)
        time.sleep(0.01)
    wait_until(lambda: len(crew.took) == 252, "all taken")
    crew.close()


def test_hands_that_wait_are_joined_by_others() -> None:
    barrier = threading.Barrier(8, timeout=20)
    crew = Crew(8, barrier.wait)

    crew.add(8)  # none of them ends before all eight are under way

    wait_until(lambda: len(crew.took) == 8, "eight at once")
    assert len(set(crew.took)) == 8
    crew.close()


def test_a_hand_that_computes_for_long_is_joined_by_others() -> None:
    barrier = threading.Barrier(3, timeout=20)

    def compute_and_meet() -> None:
        compute(seconds=0.03)
        barrier.wait()

    crew = Crew(3, compute_and_meet)
    crew.add(3)

    wait_until(lambda: len(crew.took) == 3, "three at once")
    assert len(set(crew.took)) == 3
    crew.close()


def test_hands_that_compute_let_one_of_them_do_it() -> None:
    crew = Crew(16, lambda: compute(seconds=0.00005))

    crew.add(4000)

    wait_until(lambda: len(crew.took) == 4000, "all taken")
    # One that gives way to another is among them until it has the interpreter again.
    assert crew.most_at_once < 8
    crew.close()


@pytest.mark.parametrize("hands", [1, 3])
def test_hands_go_when_the_pool_is_closed(hands: int) -> None:
    before = set(threading.enumerate())
    crew = Crew(hands, lambda: None)
    crew.add(3)
    wait_until(lambda: len(crew.took) == 3, "all taken")

    crew.close()

    def left() -> list[str]:
        return [t.name for t in set(threading.enumerate()) - before if "handler" in t.name]

    wait_until(lambda: not left(), "the end of the hands")
