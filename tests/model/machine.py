"""Which steps may come after which? The real scripts and the model take the same ones."""

from __future__ import annotations

import random
import sys
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize

from groupqueue.core.calls import Preference, Settlement
from tests.model.accidents import Accidents
from tests.model.audit import check_drained, read_all
from tests.model.following import Request
from tests.model.keeping import Keeping
from tests.model.looking import ALL, Looking
from tests.model.narrow import PROMOTED, TRIMMED
from tests.model.operating import Operating
from tests.model.publishing import Publishing
from tests.model.steps import DAY_SECONDS, NAMES, WIDE, WORKERS, tiers
from tests.model.working import settlements

FEATURES = ("options", "wide", "batch", "doom", "rates", "operators", "stop", "letters")
ENOUGH_ROUNDS = 500


class QueueMachine(Publishing, Keeping, Accidents, Operating, Looking):
    """The life of a queue, from its first messages until it is drained."""

    @initialize(
        without=st.frozensets(st.sampled_from(FEATURES), max_size=2),
        names=st.lists(st.tuples(st.sampled_from(NAMES), tiers), min_size=4, max_size=10),
        bursts=st.sampled_from(((None, None),) * 4 + ((None, 2), (None, 4), (9, None))),
        max_depth=st.sampled_from((0, 5)),
        first=st.lists(settlements, min_size=1, max_size=3),
        chance=st.integers(0, 2**32),
        is_narrow=st.booleans(),
    )
    def begin(
        self,
        *,
        without: frozenset[str],
        names: list[tuple[str, int]],
        bursts: tuple[int | None, int | None],
        max_depth: int,
        first: list[tuple[Any, ...]],
        chance: int,
        is_narrow: bool,
    ) -> None:
        """Bring some life into the queue; and leave some features out, so that others meet."""
        self.features, self.chance = frozenset(FEATURES) - without, random.Random(chance)
        self.transport.is_narrow = is_narrow
        if is_narrow:
            self.model.most_promoted, self.model.most_trimmed = PROMOTED, TRIMMED
        if "rates" in self.features:
            self.bursts = bursts
        self._publish([self._message(name, tier=tier) for name, tier in names])
        if "wide" in self.features:
            self._publish([self._message(WIDE[0], width=2) for _ in range(len(names))])
        self.max_depth = max_depth
        asked = {"batch": 3, "preference": Preference(), "visibility_days": 1, "fate": "answered"}
        for want in (4, 2):
            self.turn(worker=WORKERS[0], chosen=first, want=want, **asked)
            first = [(which, "dead", *rest) for which, _, *rest in first]

    # The end ---------------------------------------------------------------------------

    def teardown(self) -> None:
        """Let all that holds anything up end, and handle all: nothing is left behind."""
        if sys.exception() is not self.raised_before:
            return  # a step has failed already
        for script in ALL:
            self._look_by(script, self._name(self.model.step), 1 + self.model.step % 3)
        self._let_all_go()
        self._handle_all()
        self.audit()
        if self.model.dead:
            self._drop(list(self.model.dead), 0, is_lost=False)
        self._let_workers_go()
        check_drained(read_all(self.redis, self.prefix))

    def _let_workers_go(self) -> None:
        """Let a worker fall silent, and another one come; then let all leave."""
        for which in range(len(WORKERS)):
            self._beat(which, 0, is_lost=False)
            self._fall_silent(WORKERS[-1 - which])
        self._beat(0, 0, is_lost=False)
        for which in range(len(WORKERS)):
            self._leave(which, 0, is_lost=False)

    def _let_all_go(self) -> None:
        """End what holds messages up: holds, rates, moments to come, and leases."""
        model = self.model
        if model.is_stopped:
            self._stop_or_start(0, 0, is_lost=False)
        while model.holds:
            self._resume(0, 0, is_lost=False)
        for name in list(model.rates):
            self._set_rate(name, "")
        for message in self._for_later():
            if not message.has_come:
                self._come(message)
        for group in model.groups.values():
            if group.lease:
                self._run_out(group)

    def _handle_all(self) -> None:
        model, worker, rounds = self.model, WORKERS[0], 0
        ends: list[Settlement] = []
        while ends or model.groups or model.scheduled or model.holding:
            for group in self._parked():
                self._end_wait(group)
            turned = self.transport.turn(worker, ends, 50, visibility=DAY_SECONDS)
            words = [(one.word, one.left) for one in turned.settled]
            assert words == model.settle(ends)
            self._follow(Request(worker, 50), turned)
            ends = [Settlement.ack(lease) for lease in turned.leases]
            rounds += 1
            assert rounds < ENOUGH_ROUNDS, f"stuck: {model.groups}"
