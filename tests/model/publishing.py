"""Which steps do publishers take?"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from groupqueue.core import calls
from groupqueue.core.identifiers import new_id
from tests.model.parts import FAR, PAST, Message
from tests.model.steps import NAMES, WIDE, Steps, choices, one_of, tiers


class Publishing(Steps):
    """Publish, and change what is scheduled."""

    # Publishers ------------------------------------------------------------------------

    @rule(
        names=st.lists(st.tuples(st.sampled_from(NAMES + WIDE), tiers), min_size=1, max_size=4),
        is_repeated=st.booleans(),
        arrival=st.sampled_from(("fair", "fair", "front")),
    )
    def publish(self, *, names: list[tuple[str, int]], is_repeated: bool, arrival: str) -> None:
        """Publish plain messages; perhaps the reply is lost, and the call is sent again."""
        self._publish([self._message(name, tier=tier) for name, tier in names],
            is_repeated=is_repeated, arrival=arrival)  # fmt: skip

    @precondition(lambda self: "options" in self.features)
    @rule(
        specified=st.lists(
            st.fixed_dictionaries(
                {
                    "group": st.sampled_from(NAMES + WIDE),
                    "tier": tiers,
                    "due": st.sampled_from(("", "", FAR, FAR, PAST)),
                    "hold": st.booleans(),
                    "dedup_key": st.sampled_from(("", "", "k", "other:key")),
                    "expires": st.sampled_from(("", "later", "passed", "passed")),
                    "same": st.booleans(),
                }
            ),
            min_size=1,
            max_size=3,
        ),
        is_repeated=st.booleans(),
        max_depth=st.sampled_from((0, 0, 0, 3)),
    )
    def publish_with_options(
        self, *, specified: list[dict[str, Any]], is_repeated: bool, max_depth: int
    ) -> None:
        """Publish messages with options."""
        messages = []
        for wanted in specified:
            is_same = wanted.pop("same") and bool(wanted["dedup_key"])
            wanted["hold"] = wanted["hold"] and bool(wanted["due"])
            message = self._message(wanted.pop("group"), **wanted)
            if is_same:
                message.body = b"the same"
            messages.append(message)
        self._publish(messages, is_repeated=is_repeated, max_depth=max_depth)

    @precondition(lambda self: "wide" in self.features)
    @rule(
        name=st.sampled_from(WIDE),
        width=st.integers(2, 3),
        count=st.integers(1, 4),
        due=st.sampled_from(("", "", "", FAR)),
        hold=st.booleans(),
        expires=st.sampled_from(("", "", "", "passed")),
    )
    def publish_wide(
        self, *, name: str, width: int, count: int, due: str, hold: bool, expires: Any
    ) -> None:
        """Publish messages of a wide group."""
        options: dict[str, Any] = {"due": due, "hold": hold and bool(due), "expires": expires}
        self._publish([self._message(name, width=width, **options) for _ in range(count)])

    def _message(self, group: str, **options: Any) -> Message:
        self.numbers["body"] += 1
        return Message(new_id(), group, b"%d" % self.numbers["body"], **options)

    def _publish(
        self,
        messages: list[Message],
        *,
        is_repeated: bool = False,
        arrival: str = "fair",
        max_depth: int = 0,
    ) -> None:
        self.numbers["publisher"] += 1
        call = calls.publish(
            self.prefix,
            [message.envelope() for message in messages],
            publisher="publisher",
            sequence=self.numbers["publisher"],
            arrival=arrival,
            max_group_depth=max_depth,
        )
        expected = self._tried(
            lambda: self.model.publish(messages, max_depth=max_depth, arrival=arrival)
        )
        for _ in range(1 + is_repeated):
            found = self._tried(lambda: self.transport.perform(call))
            assert found == expected
        if isinstance(expected, dict):
            self._note(call)
        if any(message.expires == "passed" for message in messages):
            self._let_pass(2)

    def _let_pass(self, milliseconds: int) -> None:
        end = self._now_ms() + milliseconds
        while self._now_ms() < end:
            pass

    @precondition(lambda self: self.answered)
    @rule(which=choices)
    def a_copy_arrives_late(self, *, which: int) -> None:
        """A call that took effect arrives once more: it does nothing."""
        call = one_of(self.answered, which)
        self._tried(lambda: self.transport.perform(call))

    # Scheduled messages ----------------------------------------------------------------

    @precondition(lambda self: self._for_later())
    @rule(
        which=choices,
        due=st.sampled_from(("cancel", "cancel", FAR, "+0", PAST)),
        is_repeated=st.booleans(),
    )
    def change_what_is_scheduled(self, *, which: int, due: str, is_repeated: bool) -> None:
        """Take a scheduled message back, or change when it is due."""
        identifier = one_of(self._for_later(), which).id
        if due == "cancel":
            expected = self.model.cancel(identifier)
            self._operate(calls.cancel(self.prefix, identifier), expected, is_repeated=is_repeated)
        else:
            found = self.transport.perform(calls.reschedule(self.prefix, identifier, due))
            assert found == self.model.reschedule(identifier, due)
