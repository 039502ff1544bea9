"""How do workers claim and settle?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from groupqueue.core import calls
from groupqueue.core.calls import Preference, Settlement, Turned
from groupqueue.core.messages import Lease
from groupqueue.core.rates import Rate, Rates
from groupqueue.exceptions import OutcomeUnknown, StaleLease
from tests.model.audit import read_all
from tests.model.following import Request, follow
from tests.model.parts import DAY_MS, key_of
from tests.model.steps import DAY_SECONDS, NOBODY, WORKERS, Steps, choices, one_of, step

settlements = st.tuples(
    choices,
    st.sampled_from(("ack", "ack", "retry", "release", "dead", "dead_group", "halt")),
    st.sampled_from((0, 0, DAY_SECONDS)),
    st.integers(0, 3),
    st.sampled_from(("poison", "max_attempts")),
)

# Each a day or more from the others, so that no stall makes one look like another.
visibilities = st.sampled_from((1, 2, 4))

turns = {
    "worker": st.sampled_from(WORKERS),
    "chosen": st.lists(settlements, max_size=3),
    "want": st.sampled_from((4, 3, 2, 1, 0)),
    "batch": st.sampled_from((1, 3, 4)),
    "preference": st.builds(
        Preference, st.sampled_from((0, 0, 0, 2)), st.integers(0, 3), st.sampled_from((-1, -1, 3))
    ),
    "visibility_days": visibilities,
    "fate": st.sampled_from(("answered", "answered", "answered", "lost", "late")),
}


class Working(Steps):
    """Claim and settle."""

    # Workers ---------------------------------------------------------------------------

    @step(weight=8, **turns)
    def turn(
        self,
        *,
        worker: str,
        chosen: list[tuple[Any, ...]],
        want: int,
        batch: int,
        preference: Preference,
        visibility_days: int,
        fate: str,
    ) -> None:
        """Settle and claim; perhaps the reply is lost, or the worker has given the turn up."""
        ends = [self._settlement(*one) for one in chosen] if self.leases else []
        self.numbers[worker] += 1
        number, last_token = self.numbers[worker], self.model.last_token
        if "batch" not in self.features:
            batch = 1
        request = Request(worker, want, batch, preference, *self.bursts, visibility_days * DAY_MS)
        if fate == "late":
            self._recover(worker, last_token, number)
        call = calls.turn(
            self.prefix,
            worker,
            ends,
            want,
            visibility_ms=request.visibility_ms,
            preference=preference,
            batch=batch,
            number=number,
            rates=Rates(*map(_rate, self.bursts)),
        )
        self.told_tier = preference.min_tier  # what is below is none of its business
        send = self.transport.send_unheard if fate == "lost" else self.transport.perform
        turned = send(call)
        assert [(one.word, one.left) for one in turned.settled] == self.model.settle(ends)
        if fate == "late":
            assert turned.leases == [], "a turn that was given up claimed something"
            request = replace(request, want=0)
        self._follow(request, turned)
        if fate == "lost":
            self._recover(worker, last_token, number)
        else:
            self._remember(turned.leases)

    def _settlement(
        self, which: int, outcome: str, delay: float, done: int, reason: str
    ) -> Settlement:
        lease = self._lease(which)
        done = done % (1 + len(lease.rest))
        if outcome == "dead_group" and "doom" not in self.features:
            outcome = "dead"
        if self._is_paused(lease) and self.chance.randrange(2):
            outcome = "halt"  # else few groups are held twice
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
        expected = self.model.recover(worker, after_token)
        assert self.transport.recover(worker, after_token, upto_turn) == expected

    @step(
        worker=st.sampled_from(WORKERS),
        min_tier=st.sampled_from((0, 0, 0, 3)),
        visibility_days=visibilities,
        is_lost=st.booleans(),
    )
    def claim(self, *, worker: str, min_tier: int, visibility_days: int, is_lost: bool) -> None:
        """Claim one group; the reply tells nothing of what was dropped on the way."""
        visibility_ms = visibility_days * DAY_MS
        call = calls.claim(self.prefix, worker, visibility_ms=visibility_ms, min_tier=min_tier)
        self.told_tier = NOBODY  # it is for those who ask without being told
        # A lease whose reply is lost is nobody's until it ends, or its worker asks for it.
        send = self.transport.send_unheard if is_lost else self.transport.perform
        lease, wait_ms = send(replace(call, decode=lambda reply: (call.decode(reply), reply[1])))
        leases = [lease] if lease else []
        self.model.promote()
        turned = Turned([], leases, wait_ms, *self._vanished())
        request = Request(worker, 1, preference=Preference(min_tier), visibility_ms=visibility_ms)
        follow(self.model, request, turned)
        if not is_lost:
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

    @step(
        weight=2,
        when=lambda self: self.leases,
        chosen=settlements,
        how=st.sampled_from(("settle", "settle", "paused", "ack", "nack", "wrong")),
        is_lost=st.booleans(),
    )
    def settle(self, *, chosen: tuple[Any, ...], how: str, is_lost: bool) -> None:
        """End a lease by itself, perhaps unheard, or naming a message that is not the head."""
        if how == "paused":
            self._pause_leased(self._lease(chosen[0]))
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
        expected = self.model.settle([end])
        if is_lost:
            # It is sent again and finds the lease gone, by itself or by another.
            expected = [("unknown", 0)]
        assert [self._said(lambda: self._perform(call, is_lost=is_lost))] == expected
        for _ in range(1 + is_lost if call.script == "turn" else 0):
            self.model.promote()

    @staticmethod
    def _said(attempt: Callable[[], int | None]) -> tuple[str, int | None]:
        """Return the script's word for what became of a lease, and what it said beside."""
        try:
            return "ok", attempt()
        except OutcomeUnknown:
            return "unknown", 0
        except StaleLease as error:
            return "moved" if "no longer the head" in str(error) else "stale", 0

    def _lease(self, which: int) -> Lease:
        """Return a lease, one in three times one that does not hold any more."""
        good = [lease for lease in self.leases if self.model.held(lease)]
        stale = [lease for lease in self.leases if not self.model.held(lease)]
        # Rather one whose group is paused, or another's by now.
        good += 2 * [lease for lease in good if self._is_paused(lease)]
        stale += 2 * [lease for lease in stale if self._is_leased(key_of(lease))]
        lease: Lease = one_of((stale or good) if which % 3 == 0 else (good or stale), which // 3)
        return lease

    def _pause_leased(self, lease: Lease) -> None:
        """An operator holds a group while its head is being handled."""
        if self.model.held(lease) and "operators" in self.features:
            self._pause_group(lease.group)

    def _is_paused(self, lease: Lease) -> bool:
        group = self.model.held(lease)
        return group is not None and group.key in self.model.holds

    def _is_leased(self, key: str) -> bool:
        group = self.model.groups.get(key)
        return group is not None and group.lease is not None


def _rate(burst: int | None) -> Rate | None:
    return Rate(DAY_MS * 1000, burst) if burst else None
