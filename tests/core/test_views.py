"""Is a group's state put into words that are right, and is odd data shown as it is?"""

from __future__ import annotations

from typing import Any

import pytest

from groupqueue.core.codec import JSONCodec
from groupqueue.core.messages import moment
from groupqueue.core.views import LetterFilter, explanation, letters_decoder, peeked_decoder

NOW = 1796007991297
HEAD = b"0" * 32 + b"1796007990000" + b"0" * 13
CODEC = JSONCodec()


def explained(
    *, stopped: bytes = b"", queue_free_us: bytes = b"", doom: bytes = b"", **other: Any
) -> Any:
    """Return what is made of an `explain` reply about a group that is due, but for this."""
    row = {
        "group": b"g",
        "tier": b"2",
        "due": b"1796007991000.5",
        "depth": 3,
        "head": HEAD,
        "token": b"",
        "left_ms": 0,
        "holder": b"",
        "deliveries": b"",
        "failures": b"",
        "error": b"",
        "why": b"",
        "rate": b"",
        "free_us": b"",
        "is_head_held": 0,
        "width": 0,
        "in_flight": 0,
        "started": 0,
        "halted": 0,
    } | other
    return explanation([NOW, list(row.values()), [4, 5], [], stopped, queue_free_us, doom])


EMPTY: dict[str, Any] = {"due": b"", "depth": 0, "head": b""}
PARKED: dict[str, Any] = {"due": b"1796008021297"}
LEASED: dict[str, Any] = {"due": b"1796008021297", "token": b"1796007991000123", "holder": b"w-1"}
PAUSED: dict[str, Any] = {"due": b"inf", "why": b"paused 1796007990000 data fix"}


@pytest.mark.parametrize(
    ("other", "state", "reason"),
    [
        ({}, "due", "it waits for a worker"),
        (EMPTY, "empty", "the group has no messages"),
        (
            EMPTY | {"why": b"paused 1796007990000 "},
            "paused",
            "the group has no messages; it is paused: what is published to it will wait",
        ),
        (PARKED, "parked", "it waits until its head is due"),
        (PARKED | {"failures": b"1"}, "parked", "it waits until its head is due after 1 failure"),
        (PARKED | {"failures": b"2"}, "parked", "it waits until its head is due after 2 failures"),
        (
            PARKED | {"free_us": b"1796008021297000"},
            "rate-limited",
            "its rate does not let it go yet",
        ),
        (
            {"due": b"1796008021297.123", "free_us": b"1796008021297123", "rate": b"6000000 1"},
            "rate-limited",
            "its rate does not let it go yet: 10/m",
        ),
        # It waits for something else for longer than its rate asks for.
        (PARKED | {"free_us": b"1796008021296999"}, "parked", "it waits until its head is due"),
        (
            PARKED | {"is_head_held": 1},
            "scheduled",
            "its head was published to hold it until it is due",
        ),
        (
            {"doom": b"17 an-id"},
            "due",
            "it waits for a worker; 17 of its messages are to be set aside with message an-id",
        ),
        (
            {"queue_free_us": b"1796007992497000"},
            "due",
            "it waits for a worker; the queue's rate lets no message go for another 1.2 seconds",
        ),
        ({"queue_free_us": b"1796007991296000"}, "due", "it waits for a worker"),
        (
            PARKED | {"queue_free_us": b"1796007992497000"},
            "parked",
            "it waits until its head is due",
        ),
        (
            {"stopped": b"1796007990000 moving house"},
            "due",
            "it waits for a worker; all of the queue is stopped: moving house",
        ),
        (
            {"stopped": b"1796007990000 "},
            "due",
            "it waits for a worker; all of the queue is stopped",
        ),
        (LEASED, "leased", "w-1 handles its head"),
        (LEASED | {"holder": b""}, "leased", "somebody handles its head"),
        (LEASED | PAUSED, "leased", "w-1 handles its head; then it is paused"),
        (PAUSED, "paused", "an operator paused it: data fix"),
        (PAUSED | {"why": b"paused 1796007990000 "}, "paused", "an operator paused it"),
        (
            PAUSED | {"why": b"halted 1796007990000 poison"},
            "halted",
            "its head was given up (poison): resume the group or skip the head",
        ),
    ],
)
def test_a_state_in_words(other: dict[str, Any], state: str, reason: str):
    found = explained(**other)

    assert (found.state, found.reason) == (state, reason)


def test_a_lease_began_when_its_token_was_made():
    found = explained(**LEASED)

    assert found.leased_since == moment(1796007991000)
    assert (found.groups_ahead, found.groups_above) == (4, 5)
    assert explained().leased_since is None


def test_a_letter_with_nothing_in_it_is_shown_empty():
    total, [letter] = letters_decoder(CODEC)([1, [[b"1796007991297-3", [b"note", b"\xff"]]]])

    assert (total, letter.entry, letter.died_at) == (1, "1796007991297-3", moment(NOW))
    assert (letter.group, letter.tier, letter.reason, letter.error) == ("", 0, "", "")
    assert (letter.message.id, letter.message.topic, letter.message.size_bytes) == ("", "", 0)


def test_a_letter_with_numbers_that_are_none_counts_zero():
    pairs = [b"group", b"g", b"tier", b"high", b"deliveries", b"-1", b"failures", b""]

    [letter] = letters_decoder(CODEC)([1, [[b"1-0", pairs]]]).letters

    assert (letter.tier, letter.deliveries, letter.failures) == (0, 0, 0)


def test_bytes_that_no_codec_reads_have_no_topic():
    body = b"\xff\xfe"

    [message] = peeked_decoder(CODEC)([1, [HEAD + body]]).messages

    assert (message.id, message.topic, message.payload) == ("0" * 32, "", None)
    assert (message.published_at, message.size_bytes) == (moment(1796007990000), 2)


@pytest.mark.parametrize(
    ("wanted", "oldest_first", "newest_first"),
    [
        (LetterFilter(), [("-", "+")], [("+", "-")]),
        (LetterFilter(since=moment(5), group="g"), [("5-0", "+")], [("+", "5-0")]),
        (LetterFilter(until=moment(9)), [("-", "(9-0")], [("(9-0", "-")]),
        (
            LetterFilter(entries=["10-1", "9-0", "10-0", "9-0"]),
            [("9-0", "9-0"), ("10-0", "10-0"), ("10-1", "10-1")],
            [("10-1", "10-1"), ("10-0", "10-0"), ("9-0", "9-0")],
        ),
    ],
)
def test_a_filter_knows_where_its_letters_can_lie(
    wanted: LetterFilter, oldest_first: Any, newest_first: Any
):
    assert wanted.stretches(newest_first=False) == oldest_first
    assert wanted.stretches(newest_first=True) == newest_first
