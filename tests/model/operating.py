"""Which steps do operators take?"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from groupqueue.core import calls
from tests.model.parts import HOUR_MS, Letter
from tests.model.steps import NAMES, WIDE, Steps, choices, one_of, tiers


class Operating(Steps):
    """Hold, skip, move, release, purge, stop, limit; and handle dead letters."""

    # Operators -------------------------------------------------------------------------

    @precondition(lambda self: self.model.holds)
    @rule(which=choices, is_repeated=st.booleans())
    def resume(self, *, which: int, is_repeated: bool) -> None:
        """Let a held group go on."""
        name = one_of(sorted(self.model.holds), which).split("\udcff")[0]
        self._resume(name, is_repeated=is_repeated)

    def _resume(self, name: str, *, is_repeated: bool = False) -> None:
        self._operate(
            calls.resume(self.prefix, name), self.model.resume(name), is_repeated=is_repeated
        )
        for started in self.model.started(name):
            if not started.lease and not started.is_parked and started.key not in self.model.holds:
                self._move(started, self._now_ms())  # it looks again after a second

    @precondition(lambda self: self.model.is_stopped)
    @rule(is_repeated=st.booleans())
    def start(self, *, is_repeated: bool) -> None:
        """Let the queue go on."""
        self.model.is_stopped = False
        self._operate(calls.start(self.prefix), True, is_repeated=is_repeated)

    @precondition(lambda self: "operators" in self.features)
    @rule(
        verb=st.sampled_from(("skip", "skip", "release", "pause", "set_tier", "purge", "stop")),
        which=choices,
        other=choices,
        tier=tiers,
        is_repeated=st.booleans(),
    )
    def operate(self, *, verb: str, which: int, other: int, tier: int, is_repeated: bool) -> None:
        """An operator does something to a group, with messages or without."""
        names = [*NAMES, *WIDE, *(group.name for group in self.model.groups.values())]
        name, model, prefix = one_of(names, which), self.model, self.prefix
        if verb == "pause":
            self._operate(
                calls.pause(prefix, name, "why"), model.pause(name), is_repeated=is_repeated
            )
        elif verb == "skip":
            messages = [m for group in model.whole(name) for m in group.messages[: 1 + other % 2]]
            identifier = one_of(messages, other // 2).id if messages else "0" * 32
            expected: Any = model.skip(name, identifier)
            self._operate(calls.skip(prefix, name, identifier), expected, is_repeated=is_repeated)
        elif verb == "release":
            tokens = [None, *(lease.token for lease in self.leases if lease.group == name)]
            token = one_of(tokens, other)
            expected = model.release(name, token)
            self._operate(calls.release(prefix, name, token), expected, is_repeated=is_repeated)
        elif verb == "set_tier":
            expected = model.set_tier(name, tier)
            assert self.transport.perform(calls.set_tier(prefix, name, tier)) == expected
        elif verb == "purge":
            assert tuple(self.transport.perform(calls.purge(prefix, [name]))) == model.purge(name)
        elif verb == "stop":
            expected, model.is_stopped = not model.is_stopped, True
            self._operate(calls.stop(prefix, "why"), expected, is_repeated=is_repeated)

    @precondition(lambda self: "rates" in self.features)
    @rule(name=st.sampled_from(("", *NAMES, *WIDE)), burst=st.sampled_from((1, 2, 5, None, "")))
    def rate(self, *, name: str, burst: int | str | None) -> None:
        """Say how often messages may be delivered, or take that back."""
        argument = {None: "none", "": ""}.get(burst, f"{HOUR_MS}000 {burst}")
        self.transport.perform(calls.rate(self.prefix, name, argument))
        self.model.rate(name, burst)

    # Dead letters ----------------------------------------------------------------------

    @precondition(lambda self: self.model.dead and "letters" in self.features)
    @rule(
        chosen=st.lists(choices, min_size=1, max_size=3),
        to_tail=st.sampled_from((False, False, True)),
    )
    def redrive(self, *, chosen: list[int], to_tail: bool) -> None:
        """Put dead letters back, among them some that there are none of."""
        letters = self._letters(chosen)
        entries = ["1-1", *(letter.entry for letter in letters), letters[0].entry]
        call = calls.redrive(self.prefix, entries, to_tail=to_tail)
        assert self.transport.perform(call) == len(letters)
        self.model.redrive(letters, to_tail=to_tail)

    @precondition(lambda self: self.model.dead and "letters" in self.features)
    @rule(chosen=st.lists(choices, min_size=1, max_size=3), is_trimmed=st.booleans())
    def throw_letters_away(self, *, chosen: list[int], is_trimmed: bool) -> None:
        """Drop dead letters, or trim them to so many."""
        letters, dead = self._letters(chosen), self.model.dead
        call = calls.drop(self.prefix, ["1-1", *(letter.entry for letter in letters)])
        if is_trimmed:
            call = calls.trim(self.prefix, max_age_ms=HOUR_MS, max_count=len(letters))
            letters = dead[: len(dead) - len(letters)]
        assert self.transport.perform(call) == len(letters)
        self._throw_away(letters)

    def _letters(self, chosen: list[int]) -> list[Letter]:
        dead = self.model.dead
        return [dead[index] for index in sorted({which % len(dead) for which in chosen})]

    def _throw_away(self, letters: list[Letter]) -> None:
        self.model.gone |= {letter.message.id for letter in letters}
        self.model.dead = [letter for letter in self.model.dead if letter not in letters]
