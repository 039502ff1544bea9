"""Is what goes into a queue checked, and what comes out of it read without surprise?"""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from groupqueue.core.messages import (
    HEAD_LENGTH,
    Message,
    Outgoing,
    checked_group,
    checked_tier,
    checked_topic,
    moment,
    split_element,
)
from groupqueue.exceptions import InvalidMessage

ID = "01a22a6b17f97d1a8366acf11c966662"


def test_an_element_is_split_at_its_fixed_places():
    element = f"{ID}17960079912971796007999999body".encode()

    assert HEAD_LENGTH == 58
    assert split_element(element) == (ID, 1796007991297, 1796007999999, b"body")


def test_an_element_without_expiry_or_body():
    element = f"{ID}1796007991297{'0' * 13}".encode()

    assert split_element(element) == (ID, 1796007991297, 0, b"")


@pytest.mark.parametrize(
    "element",
    [
        b"",
        b"short",
        b"x" * 45,
        b"x" * 57,
        b"x" * 58,
        ID.encode() + b"1796007991297",
        ID.encode() + b"1796007991297" + b"12",
        ID.encode() + b"-796007991297" + b"0" * 13 + b"body",
        ID.encode() + "\uff11\uff17\uff19\uff16".encode() + b"0" * 20,
        b"\xff" * 100,
    ],
)
def test_what_is_no_element_comes_back_whole_as_its_own_body(element: bytes):
    identifier, published_ms, expires_ms, body = split_element(element)

    assert identifier.encode(errors="surrogateescape") == element[:32]
    assert (published_ms, expires_ms, body) == (0, 0, element)


@pytest.mark.parametrize("group", ["a", " ", "\0", "x" * 512, "ü" * 256, "🚀" * 128])
def test_a_group_is_any_text_of_up_to_512_bytes(group: str):
    assert checked_group(group) is group


@pytest.mark.parametrize(
    ("group", "named"),
    [
        ("", "''"),
        ("x" * 513, "513 bytes"),
        ("ü" * 257, "514 bytes"),
        ("\ud800", "UTF-8"),
        (b"x", "str"),
        (None, "None"),
        (1, "1"),
    ],
)
def test_any_other_group_is_refused_by_name(group: Any, named: str):
    with pytest.raises(InvalidMessage, match=named):
        checked_group(group)


def test_an_endless_group_is_not_shown_in_full():
    with pytest.raises(InvalidMessage) as refusal:
        checked_group("x" * 100_000)

    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(("priority", "tier"), [(-(10**9), 0), (-1, 0), (0, 0), (4, 4), (99, 4)])
def test_priorities_are_clamped_to_tiers(priority: int, tier: int):
    assert checked_tier(priority) == tier


@pytest.mark.parametrize("priority", [1.5, 2.0, "high", "1", None, True])
def test_priorities_that_are_no_integers_are_refused(priority: Any):
    with pytest.raises(InvalidMessage, match="priority"):
        checked_tier(priority)


@pytest.mark.parametrize(("topic", "named"), [("", "''"), ("x" * 201, "201"), (None, "None")])
def test_a_topic_is_a_text_of_1_to_200_characters(topic: Any, named: str):
    assert checked_topic("x" * 200) == "x" * 200
    with pytest.raises(InvalidMessage, match=named):
        checked_topic(topic)


def test_moments_are_aware_and_in_utc():
    assert moment(1796007991297) == datetime.datetime(
        2026, 11, 30, 3, 6, 31, 297000, tzinfo=datetime.UTC
    )


def test_payloads_and_headers_are_not_shown_where_a_message_is_printed():
    message = Message(
        id=ID,
        group="group",
        topic="topic",
        payload="secret",
        headers={"token": "secret"},
        priority=0,
        published_at=moment(0),
        expires_at=None,
    )

    assert "secret" not in repr(message)
    assert "secret" not in repr(Outgoing("topic", "secret", group="g", headers={"a": "secret"}))
