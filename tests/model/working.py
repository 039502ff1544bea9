"""Which steps do workers take?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from groupqueue.core import calls
from groupqueue.core.calls import Preference, Settlement, Turned
from groupqueue.core.messages import Lease
from groupqueue.core.rates import Rate, Rates
from groupqueue.exceptions import StaleLease
from tests.model.audit import read_all
from tests.model.following import Request, follow
from tests.model.parts import HOUR_MS, key_of
from tests.model.steps import HOUR_SECONDS, WORKERS, Steps, choices, one_of

settlements = st.tuples(
    choices,
    st.sampled_from(("ack", "ack", "retry", "release", "dead", "dead_group", "halt")),
    st.sampled_from((0, 0, HOUR_SECONDS)),
    st.integers(0, 3),
    st.sampled_from(("poison", "max_attempts")),
)

turns = {
    "worker": st.sampled_from(WORKERS),
    "chosen": st.lists(settlements, min_size=1, max_size=4),
    "want": st.sampled_from((4, 3, 2, 1, 0)),
    "batch": st.sampled_from((1, 3, 4)),
    "preference": st.builds(
        Preference, st.sampled_from((0, 0, 0, 2)), st.integers(0, 3), st.sampled_from((-1, -1, 3))
    ),
    "fate": st.sampled_from(("answered", "answered", "answered", "lost", "late")),
}


class Working(Steps):
    """Claim, settle, renew and recover."""

    # Workers ---------------------------------------------------------------------------

    @rule(**turns)
    def turn(
        self,
        *,
        worker: str,
        chosen: list[tuple[Any, ...]],
        want: int,
        batch: int,
        preference: Preference,
        fate: str,
    ) -> None:
        """Settle and claim; perhaps the reply is lost, or the worker has given the turn up."""
        ends = [self._settlement(*one) for one in chosen] if self.leases else []
        self.numbers[worker] += 1
        number, last_token = self.numbers[worker], self.model.last_token
        if "batch" not in self.features:
            batch = 1
        request = Request(worker, want, batch, preference, *self.bursts)
        if fate == "late":
            self._recover(worker, last_token, number)
        turned = self.transport.turn(
            worker,
            ends,
            want,
            visibility=HOUR_SECONDS,
            preference=preference,
            batch=batch,
            number=number,
            rates=Rates(*map(_rate, self.bursts)),
        )
        assert [(one.word, one.left) for one in turned.settled] == self.model.settle(ends)
        if fate == "late":
            assert turned.leases == [], "a turn that was given up claimed something"
            request = replace(request, want=0)
        self._follow(request, turned)
        if fate == "lost":
            self._recover(worker, last_token, number)
        else:
            self._remember(turned.leases)

    @rule(**turns)
    def another_turn(self, **asked: Any) -> None:
        """Turns are what workers do most."""
        self.turn(**asked)

    def _settlement(
        self, which: int, outcome: str, delay: float, done: int, reason: str
    ) -> Settlement:
        lease = self._lease(which)
        done = done % (1 + len(lease.rest))
        if outcome == "dead_group" and "doom" not in self.features:
            outcome = "dead"
        if outcome == "ack":
            return Settlement.ack(lease, 1 + done)
        if outcome == "retry":
            return Settlement.retry(lease, delay, reason, done=done)
        if outcome == "release":
            return Settlement.release(lease, delay, "", done=done)
        return Settlement(outcome, lease, reason, "boom", done)  # type: ignore[arg-type]

    def _follow(self, request: Request, turned: Turned) -> None:
        self.model.promote()
        follow(self.model, request, turned)

    def _remember(self, leases: list[Lease]) -> None:
        self.leases = [*self.leases, *leases][-12:]

    def _recover(self, worker: str, after_token: int, upto_turn: int) -> None:
        expected = self.model.recover(worker, after_token, upto_turn)
        assert self.transport.recover(worker, after_token, upto_turn) == expected

    @rule(worker=st.sampled_from(WORKERS), min_tier=st.sampled_from((0, 0, 0, 3)))
    def claim(self, *, worker: str, min_tier: int) -> None:
        """Claim one group; the reply tells nothing of what was dropped on the way."""
        call = calls.claim(self.prefix, worker, visibility_ms=HOUR_MS, min_tier=min_tier)
        lease, wait_ms = self.transport.perform(
            replace(call, decode=lambda reply: (call.decode(reply), reply[1]))
        )
        leases = [lease] if lease else []
        self.model.promote()
        turned = Turned([], leases, wait_ms, *self._vanished())
        follow(self.model, Request(worker, 1, preference=Preference(min_tier)), turned)
        self._remember(leases)

    def _vanished(self) -> tuple[list[calls.Gone], list[calls.Gone]]:
        """Return what a claim dropped and set aside."""
        found = read_all(self.redis, self.prefix)
        there = {m[:32].decode() for elements in found.each("q:").values() for m in elements}
        dead = [letter["element"][:32].decode() for letter in found.letters()]
        lost = {
            message.id: calls.Gone(group.name, message.id)
            for group in self.model.groups.values()
            for message in group.messages
            if message.id not in there
        }
        buried = [lost.pop(identifier) for identifier in dead if identifier in lost]
        return list(lost.values()), buried

    @precondition(lambda self: self.leases)
    @rule(
        chosen=settlements,
        how=st.sampled_from(("settle", "ack", "nack", "wrong")),
        is_repeated=st.booleans(),
    )
    def settle(self, *, chosen: tuple[Any, ...], how: str, is_repeated: bool) -> None:
        """End a lease by itself, perhaps twice, or naming a message that is not the head."""
        end = self._settlement(*chosen)
        lease, delay = end.lease, end.value if end.outcome == "retry" else "0"
        call = calls.settle(self.prefix, end)
        if how == "wrong":
            lease = lease._replace(id="0" * 32)
        if how in ("ack", "wrong"):
            end = Settlement.ack(lease, 1 + len(lease.rest))
            call = calls.ack(self.prefix, lease)
        if how == "nack":
            end = Settlement.retry(lease, int(delay) / 1000, "nack")
            call = calls.nack(self.prefix, lease, delay_ms=int(delay), error="nack")
        for _ in range(1 + is_repeated):
            [expected] = self.model.settle([end])
            try:
                found = ("ok", self.transport.perform(call))
            except StaleLease as error:
                found = ("moved" if "no longer the head" in str(error) else "stale", 0)
            assert found == expected
            if call.script == "turn":
                self.model.promote()

    @precondition(lambda self: self.leases)
    @rule(chosen=st.lists(choices, max_size=4), worker=st.sampled_from(WORKERS))
    def renew_or_recover(self, *, chosen: list[int], worker: str) -> None:
        """Push deadlines out, of those that still hold; or hand back what is newer than known."""
        if not chosen:
            self._recover(worker, self.leases[len(self.leases) // 2].token, 0)
            return
        leases = [self._lease(which) for which in chosen]
        lost = [lease for lease in leases if not self._holds(lease)]
        assert self.transport.renew(leases, HOUR_SECONDS) == lost

    def _lease(self, which: int) -> Lease:
        """Return a lease, one that does not hold any more now and then."""
        good = [lease for lease in self.leases if self._holds(lease)]
        return one_of(good if good and which % 4 else self.leases, which // 4)  # type: ignore[no-any-return]

    def _holds(self, lease: Lease) -> bool:
        group = self.model.groups.get(key_of(lease))
        return bool(group and group.lease and group.lease.token == lease.token)


def _rate(burst: int | None) -> Rate | None:
    return Rate(HOUR_MS * 1000, burst) if burst else None
