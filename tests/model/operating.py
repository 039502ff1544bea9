"""Which steps do operators take?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.messages import Lease
from tests.model.parts import DAY_MS, Letter
from tests.model.steps import NAMES, WIDE, Steps, choices, one_of, step

BURSTS: tuple[int | str | None, ...] = (1, 2, 5, None, "", "")
Verb = Callable[..., None]


class Operating(Steps):
    """Hold, skip, move, release, purge, stop, limit; and handle dead letters."""

    @step(weight=5, what=choices, which=choices, other=choices, is_lost=st.booleans())
    def operate(self, *, what: int, which: int, other: int, is_lost: bool) -> None:
        """An operator does something to a group, with messages or without, or to the queue."""
        possible = self._what_operators_do()
        if possible:
            self._one_of(possible, what)(which, other, is_lost=is_lost)

    def _what_operators_do(self) -> list[Verb]:
        verbs: list[Verb] = [self._rate] if "rates" in self.features else []
        if self.model.is_stopped or "stop" in self.features:
            verbs += [self._stop_or_start] * (20 if self.model.is_stopped else 1)
        if "operators" in self.features:
            verbs += [self._purge, self._set_tier, self._release, self._skip, self._skip]
            verbs += [self._pause, self._pause]
            verbs += [self._skip] * 5 * len(self._held_twice())
        if self.model.holds:
            verbs += [self._resume, self._resume]
        return verbs

    def _leased(self) -> list[str]:
        return [key for key, group in self.model.groups.items() if group.lease]

    def _held_twice(self) -> list[str]:
        """Return the groups that are paused, and halted as well."""
        holds = self.model.holds.items()
        return [key for key, hold in holds if hold.is_paused and hold.halted is not None]

    # Groups and the queue ----------------------------------------------------------------

    def _resume(self, which: int, _: int, *, is_lost: bool) -> None:
        """Let a held group go on."""
        name = one_of(sorted(self.model.holds), which).split("\udcff")[0]
        call = calls.resume(self.prefix, name)
        self._operate(call, self.model.resume(name), is_lost=is_lost)
        for started in self.model.started(name):
            if not started.lease and not started.is_parked and started.key not in self.model.holds:
                self._move(started, self._now_ms())  # it looks again after a minute

    def _pause(self, which: int, _: int, *, is_lost: bool) -> None:
        """Hold a group."""
        rather = [key for key in self._leased() if key not in self.model.holds]
        self._pause_group(self._name(which, 2 * rather), is_lost=is_lost)

    def _stop_or_start(self, _: int, __: int, *, is_lost: bool) -> None:
        """Hold all of the queue, or let it go on; what it was not it cannot end to be."""
        was_stopped, self.model.is_stopped = self.model.is_stopped, not self.model.is_stopped
        stop, start = calls.stop(self.prefix, "why"), calls.start(self.prefix)
        assert self.transport.perform(stop if was_stopped else start) is False
        self._operate(start if was_stopped else stop, True, is_lost=is_lost)

    def _skip(self, which: int, other: int, *, is_lost: bool) -> None:
        """Set a head aside, or try to set aside what is none."""
        model = self.model
        name = self._name(which, [*model.holds, *model.doomed, *self._held_twice() * 3])
        messages = [m for group in model.whole(name) for m in group.messages[: 1 + other % 2]]
        identifier = one_of(messages, other // 2).id if messages else "0" * 32
        call = calls.skip(self.prefix, name, identifier)
        self._operate(call, model.skip(name, identifier), is_lost=is_lost)

    @step(
        when=lambda self: self._held_of_normal_groups() and "operators" in self.features,
        which=choices,
        is_renewed=st.booleans(),
        is_lost=st.booleans(),
    )
    def skip_what_failed_while_paused(self, *, which: int, is_renewed: bool, is_lost: bool) -> None:
        """A leased group is paused, its head fails for good and is set aside: it stays paused.

        Or its lease is renewed, and goes on.
        """
        lease = one_of(self._held_of_normal_groups(), which)
        self._operate(
            calls.pause(self.prefix, lease.group, "why"),
            self.model.pause(lease.group),
            is_lost=is_lost,
        )
        if is_renewed:
            call = calls.renew(self.prefix, [lease], visibility_ms=DAY_MS)
            assert self._perform(call, is_lost=is_lost) == self.model.renew([lease], DAY_MS)
            return
        end = Settlement.halt(lease, "max_attempts", "boom")
        left = self.transport.perform(calls.settle(self.prefix, end))
        assert [("ok", left)] == self.model.settle([end])
        self.model.promote()
        call = calls.skip(self.prefix, lease.group, lease.id)
        self._operate(call, self.model.skip(lease.group, lease.id), is_lost=is_lost)

    def _held_of_normal_groups(self) -> list[Lease]:
        return [lease for lease in self.leases if self.model.held(lease) and not lease.place]

    @step(
        weight=4,
        when=lambda self: self.model.doomed and "operators" in self.features,
        which=choices,
        is_lost=st.booleans(),
    )
    def skip_what_is_doomed(self, *, which: int, is_lost: bool) -> None:
        """Set the head of a group aside that is being set aside anyway."""
        name = one_of(sorted(self.model.doomed), which)
        identifier = self.model.groups[name].head.id
        call = calls.skip(self.prefix, name, identifier)
        self._operate(call, self.model.skip(name, identifier), is_lost=is_lost)

    def _release(self, which: int, other: int, *, is_lost: bool) -> None:
        """End the leases of a group, or one that is named."""
        name = self._name(which, self._leased())
        tokens = [None, *(lease.token for lease in self.leases if lease.group == name)]
        token = one_of(tokens, other)
        call = calls.release(self.prefix, name, token)
        self._operate(call, self.model.release(name, token), is_lost=is_lost)

    def _set_tier(self, which: int, tier: int, *, is_lost: bool) -> None:
        """Move a group into another tier."""
        name = self._name(which)
        moved = calls.set_tier(self.prefix, name, tier % 5)
        call = replace(moved, decode=lambda reply: moved.decode(reply).is_known)
        self._act(call, lambda: self.model.set_tier(name, tier % 5), is_lost=is_lost)

    def _purge(self, which: int, other: int, *, is_lost: bool) -> None:
        """Throw the messages of one or two groups away."""
        rather = [message.group for message in self.model.holding.values()]
        names = list(dict.fromkeys(self._name(one, rather) for one in (which, other)))
        names = names[: 1 + other % 2]
        call = calls.purge(self.prefix, names)
        self._act(call, lambda: self.model.purge(names), is_lost=is_lost)

    def _rate(self, which: int, other: int, *, is_lost: bool) -> None:
        """Say how often messages may be delivered, or take that back."""
        # One of the whole queue is soon used up, and then nothing happens any more.
        name = "" if "" in self.model.rates else one_of(("", *NAMES, *NAMES, *WIDE), which)
        self._set_rate(name, self._one_of(BURSTS, other), is_lost=is_lost)

    def _set_rate(self, name: str, burst: int | str | None, *, is_lost: bool = False) -> None:
        call = calls.rate(self.prefix, name, _written(burst))
        call = replace(call, decode=lambda reply: reply[0].decode())
        self._act(call, lambda: _written(self.model.rate(name, burst)), is_lost=is_lost)

    # Dead letters ----------------------------------------------------------------------

    @step(
        weight=2,
        when=lambda self: self.model.dead and "letters" in self.features,
        what=choices,
        chosen=st.lists(choices, min_size=1, max_size=3),
        other=choices,
        is_lost=st.booleans(),
    )
    def handle_letters(self, *, what: int, chosen: list[int], other: int, is_lost: bool) -> None:
        """Put dead letters back or throw them away, among them some that there are none of."""
        verbs: list[Verb] = [self._trim, self._drop, self._redrive, self._redrive]
        dead = self.model.dead
        groups = self.model.groups.values()
        leased = {group.key: group.lease.together for group in groups if group.lease}
        numbers = list(range(len(dead)))  # rather those of leased groups, and of large leases
        numbers += [n for n in numbers for _ in range(2 * leased.get(dead[n].group, 0))]
        letters = [dead[number] for number in sorted({one_of(numbers, which) for which in chosen})]
        self._one_of(verbs, what)(letters, other, is_lost=is_lost)

    def _redrive(self, letters: list[Letter], other: int, *, is_lost: bool) -> None:
        to_tail = other % 3 == 2
        # What comes before a group that is being set aside is not.
        before = [one for one in self.model.dead if one.group in self.model.doomed][:1]
        letters = letters + [one for one in before if one not in letters]

        def put_back() -> int:
            there = [letter for letter in letters if letter in self.model.dead]
            self.model.redrive(there, to_tail=to_tail)
            return len(there)

        call = calls.redrive(self.prefix, _entries(letters), to_tail=to_tail)
        self._act(call, put_back, is_lost=is_lost)

    def _drop(self, letters: list[Letter], _: int, *, is_lost: bool) -> None:
        model = self.model

        def throw_away() -> int:
            return model.throw_away([one for one in letters if one in model.dead], "dropped")

        self._act(calls.drop(self.prefix, _entries(letters)), throw_away, is_lost=is_lost)

    def _trim(self, letters: list[Letter], other: int, *, is_lost: bool) -> None:
        """Throw the oldest away: those beyond a number, else those of an age."""
        days, count = one_of((None, 0, 1, 2), other), one_of((None, 0, 1, 2), other // 4)
        max_age_ms = None if days is None else days * DAY_MS + DAY_MS // 2
        call = calls.trim(self.prefix, max_age_ms=max_age_ms, max_count=count)
        self._act(call, lambda: self.model.trim(days, count), is_lost=is_lost)


def _written(burst: int | str | None) -> str:
    return {None: "none", "": ""}.get(burst, f"{DAY_MS}000 {burst}")  # type: ignore[call-overload, no-any-return]


def _entries(letters: list[Letter]) -> list[str]:
    return ["1-1", *(letter.entry for letter in letters), letters[0].entry]
