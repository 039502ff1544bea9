"""What does an operator do meanwhile? `python -m proof.soak.operator NAME` does it.

Halted groups are resumed, or their heads skipped; groups are paused and resumed, moved into
other tiers, explained; dead letters are put back; now and then all of the queue is stopped.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from typing import Any

import django

from groupqueue import get_queue
from groupqueue.core.snapshot import GroupView
from groupqueue.core.views import LetterFilter
from groupqueue.exceptions import GroupQueueError
from groupqueue.queues import Queue
from proof.plan import Plan, current_plan
from proof.records import Recorder
from proof.soak.ending import Ending
from proof.soak.intent import GROUPS, WIDE_GROUPS

ROUND_SECONDS = 0.4
STOP_SECONDS = 0.5
MOST_REDRIVEN_GROUPS = 3


class Operator:
    """Does what operators do, at random, and writes it down."""

    def __init__(self, plan: Plan, name: str, ending: Ending) -> None:
        self._ending = ending
        self._chance = random.Random(f"{plan.seed}/{name}/{os.getpid()}")  # noqa: S311
        self._recorder = Recorder(plan.records / f"{name}-{os.getpid()}.jsonl")
        self._queue: Queue = get_queue(plan.queue, patient=False)
        self._acts: list[Callable[[], None]] = [
            self._look,
            self._pause_some,
            self._move_some,
            self._redrive_some,
            self._stop_for_a_while,
        ]

    def run(self) -> None:
        """Act until told to end."""
        while not self._ending.wait(ROUND_SECONDS):
            weights = [4, 2, 3, 1, 0.3]
            for act in (self.let_go, *self._chance.choices(self._acts, weights)):
                # An operator sees the error, and tries again in the next round.
                try:
                    act()
                except GroupQueueError as error:
                    self._recorder.write("operator", phase="unknown", error=str(error)[:200])

    def let_go(self) -> None:
        """Resume what is held, or skip what it hangs on; start the queue if it is stopped."""
        if self._queue.snapshot(limit=1).stopped_since is not None:
            self._tell("start", "", self._queue.start())
        page = self._queue.held(limit=50)
        for view in page.groups:
            if view.state == "halted" and self._chance.random() < 0.15 and view.head_id:
                self._skip(view)
            elif view.state == "halted" or self._chance.random() < 0.5:
                self._tell("resume", view.group, self._queue.resume(view.group))

    def _skip(self, view: GroupView) -> None:
        self._tell("skip", view.group, self._queue.skip(view.group, view.head_id))

    def _look(self) -> None:
        found = self._queue.explain(self._some_group())
        self._tell("explain", found.group.group, found.state)
        self._tell("stats", "", sum(tier.messages for tier in self._queue.snapshot().tiers))

    def _pause_some(self) -> None:
        group = self._some_group()
        self._tell("pause", group, self._queue.pause(group, "to see what happens"))

    def _move_some(self) -> None:
        group, tier = self._some_group(), self._chance.randint(0, 4)
        self._tell("set_tier", group, self._queue.set_tier(group, tier), tier=tier)

    def _redrive_some(self) -> None:
        letters = self._queue.dead_letters(limit=20).letters
        groups = sorted({letter.group for letter in letters})
        for group in groups[:MOST_REDRIVEN_GROUPS]:
            is_to_tail = self._chance.random() < 0.3
            count = self._queue.redrive(LetterFilter(group=group), to_tail=is_to_tail)
            self._tell("redrive", group, count, to_tail=is_to_tail)

    def _stop_for_a_while(self) -> None:
        self._tell("stop", "", self._queue.stop("to see what happens"))
        self._ending.wait(STOP_SECONDS)
        self._tell("start", "", self._queue.start())

    def _some_group(self) -> str:
        if self._chance.random() < 0.1:
            return f"wide-{self._chance.randrange(WIDE_GROUPS)}"
        return f"group-{int(GROUPS * self._chance.random() ** 2)}"

    def _tell(self, act: str, group: str, answer: Any, **more: Any) -> None:
        self._recorder.write("operator", phase="ok", act=act, group=group, answer=answer, **more)


def main(name: str) -> None:
    """Act until told to stop."""
    django.setup()
    plan = current_plan()
    if plan is None:
        raise SystemExit("an operator is started by the soak, with a plan")
    Operator(plan, name, Ending()).run()


if __name__ == "__main__":
    main(sys.argv[1])
