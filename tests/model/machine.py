"""Which steps may come after which? The real scripts and the model take the same ones."""

from __future__ import annotations

import sys

from hypothesis import strategies as st
from hypothesis.stateful import initialize

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from tests.model.audit import check_drained, read_all
from tests.model.following import Request
from tests.model.operating import Operating
from tests.model.publishing import Publishing
from tests.model.steps import HOUR_SECONDS, NAMES, WIDE, WORKERS, tiers
from tests.model.working import Working

FEATURES = ("options", "wide", "batch", "doom", "rates", "operators", "letters")
ENOUGH_ROUNDS = 500


class QueueMachine(Publishing, Working, Operating):
    """The life of a queue, from its first messages until it is drained."""

    @initialize(
        without=st.frozensets(st.sampled_from(FEATURES), max_size=4),
        names=st.lists(st.tuples(st.sampled_from(NAMES), tiers), min_size=4, max_size=10),
        bursts=st.sampled_from(((None, None), (None, None), (None, 1), (None, 3), (4, None))),
    )
    def begin(
        self,
        without: frozenset[str],
        names: list[tuple[str, int]],
        bursts: tuple[int | None, int | None],
    ) -> None:
        """Publish something, and leave some features out, so that the others meet more often."""
        self.features = frozenset(FEATURES) - without
        if "rates" in self.features:
            self.bursts = bursts
        self._publish([self._message(name, tier=tier) for name, tier in names])
        if "wide" in self.features:
            self._publish([self._message(WIDE[0], width=2) for _ in range(len(names))])

    # The end ---------------------------------------------------------------------------

    def teardown(self) -> None:
        """Let all that holds anything up end, and handle all: nothing is left behind."""
        if sys.exception() is not self.raised_before:
            return  # a step has failed already
        model, worker = self.model, WORKERS[0]
        if model.is_stopped:
            self.start(is_repeated=False)
        for name in {key.split("\udcff")[0] for key in model.holds}:
            self._resume(name)
        for name in list(model.rates):
            self.rate(name=name, burst="")
        for message in self._for_later():
            if not message.has_come:
                self._come(message)
        for group in model.groups.values():
            if group.lease:
                self._run_out(group)
        rounds = 0
        ends: list[Settlement] = []
        while ends or model.groups or model.scheduled:
            for group in self._parked():
                self._end_wait(group)
            turned = self.transport.turn(worker, ends, 50, visibility=HOUR_SECONDS)
            words = [(one.word, one.left) for one in turned.settled]
            assert words == model.settle(ends)
            self._follow(Request(worker, 50), turned)
            ends = [Settlement.ack(lease) for lease in turned.leases]
            rounds += 1
            assert rounds < ENOUGH_ROUNDS, f"stuck: {model.groups}"
        self.audit()
        if model.dead:
            self.transport.perform(calls.drop(self.prefix, [letter.entry for letter in model.dead]))
            self._throw_away(model.dead)
        check_drained(read_all(self.redis, self.prefix))
