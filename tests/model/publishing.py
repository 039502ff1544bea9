"""Which steps do publishers take?"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from groupqueue.core import calls
from groupqueue.core.identifiers import new_id
from tests.model.parts import FAR, PAST, Message
from tests.model.steps import NAMES, NOBODY, WIDE, Steps, choices, one_of, step, tiers


class Publishing(Steps):
    """Publish, and change what is scheduled."""

    # Publishers ------------------------------------------------------------------------

    @step(
        weight=2,
        names=st.lists(st.tuples(st.sampled_from(NAMES + WIDE), tiers), min_size=1, max_size=4),
        is_lost=st.booleans(),
        arrival=st.sampled_from(("fair", "fair", "front")),
    )
    def publish(self, *, names: list[tuple[str, int]], is_lost: bool, arrival: str) -> None:
        """Publish plain messages; perhaps the reply is lost, and the call is sent again."""
        self._publish([self._message(name, tier=tier) for name, tier in names],
            is_lost=is_lost, arrival=arrival)  # fmt: skip

    @step(
        weight=2,
        when=lambda self: "options" in self.features,
        specified=st.lists(
            st.fixed_dictionaries(
                {
                    "group": st.sampled_from(NAMES + WIDE),
                    "tier": tiers,
                    "due": st.sampled_from(("", "", FAR, FAR, PAST)),
                    "hold": st.booleans(),
                    "dedup_key": st.sampled_from(("", "", "k", "other:key")),
                    "expires": st.sampled_from(("", "later", "later", "passed")),
                    "same": st.booleans(),
                }
            ),
            min_size=1,
            max_size=3,
        ),
        is_lost=st.booleans(),
    )
    def publish_with_options(self, *, specified: list[dict[str, Any]], is_lost: bool) -> None:
        """Publish messages with options."""
        messages = []
        for wanted in specified:
            is_same = wanted.pop("same") and bool(wanted["dedup_key"])
            wanted["hold"] = wanted["hold"] and bool(wanted["due"])
            if wanted["hold"] and self.chance.randrange(2):
                # Rather the head of its group than one behind it.
                free = [name for name in NAMES + WIDE if name not in self.model.groups]
                wanted["group"] = one_of([wanted["group"], *free], self.chance.randrange(5))
            message = self._message(wanted.pop("group"), **wanted)
            if is_same:
                message.body = b"the same"
            messages.append(message)
        self._publish(messages, is_lost=is_lost)

    @step(
        when=lambda self: "wide" in self.features,
        name=st.sampled_from(WIDE),
        width=st.sampled_from((2, 3, 2, 3, 1)),
        count=st.integers(1, 4),
        due=st.sampled_from(("", "", "", FAR)),
        hold=st.booleans(),
        expires=st.sampled_from(("", "", "later", "passed")),
    )
    def publish_wide(
        self, *, name: str, width: int, count: int, due: str, hold: bool, expires: Any
    ) -> None:
        """Publish messages of a wide group."""
        options: dict[str, Any] = {"due": due, "hold": hold and bool(due), "expires": expires}
        self._publish([self._message(name, width=width, **options) for _ in range(count)])

    @step(
        when=lambda self: self.model.groups and "options" in self.features,
        which=choices,
        is_lost=st.booleans(),
    )
    def come_and_be_taken_back(self, *, which: int, is_lost: bool) -> None:
        """A message comes behind others, and is taken back."""
        name = self._one_of(sorted(self.model.groups), which).split("\udcff")[0]
        self._come_and_be_taken_back(name, is_lost=is_lost)

    @step(weight=4, when=lambda self: self.model.doomed, which=choices, is_lost=st.booleans())
    def come_after_a_doom(self, *, which: int, is_lost: bool) -> None:
        """A message comes behind others that are being set aside, and is taken back."""
        name = one_of(sorted(self.model.doomed), which)
        self._come_and_be_taken_back(name, is_lost=is_lost)

    def _come_and_be_taken_back(self, name: str, *, is_lost: bool) -> None:
        message = self._message(name, due=FAR, hold=True)
        self._publish([message], is_lost=is_lost)
        expected = self.model.cancel(message.id)
        self._operate(calls.cancel(self.prefix, message.id), expected, is_lost=is_lost)

    def _message(self, group: str, **options: Any) -> Message:
        self.numbers["body"] += 1
        return Message(new_id(), group, b"%d" % self.numbers["body"], **options)

    def _publish(
        self,
        messages: list[Message],
        *,
        is_lost: bool = False,
        arrival: str = "fair",
    ) -> None:
        self.numbers["publisher"] += 1
        call = calls.publish(
            self.prefix,
            [message.envelope() for message in messages],
            publisher="publisher",
            sequence=self.numbers["publisher"],
            arrival=arrival,
            max_group_depth=self.max_depth,
        )
        expected = self._tried(
            lambda: self.model.publish(messages, max_depth=self.max_depth, arrival=arrival)
        )
        assert self._tried(lambda: self._perform(call, is_lost=is_lost)) == expected
        if isinstance(expected, dict):
            self._note(call)

    @step(when=lambda self: self.answered, which=choices)
    def a_copy_arrives_late(self, *, which: int) -> None:
        """A call that took effect arrives once more: it does nothing."""
        call = one_of(self.answered, which)
        self._tried(lambda: self.transport.perform(call))

    # Scheduled messages ----------------------------------------------------------------

    @step(
        weight=3,
        when=lambda self: self._for_later(),
        which=choices,
        due=st.sampled_from(("cancel", "cancel", "cancel", FAR, "+0", PAST)),
        has_come=st.sampled_from((False, False, True)),
        is_lost=st.booleans(),
    )
    def change_what_is_scheduled(
        self, *, which: int, due: str, has_come: bool, is_lost: bool
    ) -> None:
        """Take a scheduled message back, or change when it is due; perhaps its moment has come."""
        groups, later = self.model.groups, self._for_later()
        heads = [
            message for message in later if message.hold and groups[message.group].head is message
        ]
        message = one_of([*later, *heads, *heads], which)
        if has_come and not message.has_come:
            self._come(message)
            self.told_tier = NOBODY
        identifier = message.id
        if due == "cancel":
            expected = self.model.cancel(identifier)
            self._operate(calls.cancel(self.prefix, identifier), expected, is_lost=is_lost)
        else:
            call = calls.reschedule(self.prefix, identifier, due)
            self._act(call, lambda: self.model.reschedule(identifier, due), is_lost=is_lost)
