"""Does a body come back as it was written, and is everything else refused?"""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import pytest

from groupqueue.core.codec import MOST_LEVELS, Content, JSONCodec
from groupqueue.exceptions import CorruptMessage, InvalidMessage

codec = JSONCodec()


@pytest.mark.parametrize(
    "payload",
    [
        None,
        True,
        0,
        -(2**80),
        1.5,
        "",
        "ü🚀\0\n\"'\\",
        [],
        [1, [2, [3]]],
        {},
        {"ä": {"b": [None, False]}},
        "x" * 1_000_000,
    ],
)
@pytest.mark.parametrize("headers", [None, {}, {"trace": "a-b", "n": 1}])
def test_content_comes_back_as_it_was(payload: Any, headers: Any):
    body = codec.encode("orders.paid", payload, headers)

    assert codec.decode(body) == Content("orders.paid", payload, headers or {})


def test_bodies_are_compact_and_readable():
    assert codec.encode("t", {"a": [1, "ü"]}, None) == '["t",{"a":[1,"ü"]}]'.encode()
    assert codec.encode("t", 1, {"h": 2}) == b'["t",1,{"h":2}]'


def test_tuples_come_back_as_lists():
    assert codec.decode(codec.encode("t", (1, (2,)), None)).payload == [1, [2]]


def endless() -> list[Any]:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


def circular() -> list[Any]:
    own: list[Any] = []
    own.append(own)
    return own


@pytest.mark.parametrize(
    "payload",
    [
        object(),
        b"bytes",
        {1, 2},
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        decimal.Decimal(1),
        math.nan,
        math.inf,
        {"a": object()},
        {(1, 2): 3},
        "\ud800",
        circular(),
        endless(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_say_is_refused_naming_the_topic(payload: Any):
    with pytest.raises(InvalidMessage, match="orders\\.paid"):
        codec.encode("orders.paid", payload, None)


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = {"deeper": value, "flat": [1]} if level % 2 and level > 1 else (value,)
    return value


def test_a_payload_may_be_nested_as_deep_as_every_reader_can_read():
    wide = [[{"n": n}, [n]] for n in range(200)]

    for part in (nested(MOST_LEVELS), [wide, nested(MOST_LEVELS - 1)]):
        assert codec.decode(codec.encode("orders.paid", part, None)).topic == "orders.paid"
        assert codec.decode(codec.encode("orders.paid", 1, {"h": nested(MOST_LEVELS - 1)}))


@pytest.mark.parametrize(
    ("payload", "headers", "where"),
    [
        (nested(MOST_LEVELS + 1), None, "payload"),
        # A reader with a deeper stack than the writer's could not read it.
        (nested(700), None, "payload"),
        ([1, nested(MOST_LEVELS)], None, "payload\\[1\\]"),
        ({"order": nested(MOST_LEVELS), "flat": 1}, None, "payload\\['order'\\]"),
        (1, {"trace": nested(MOST_LEVELS)}, "headers\\['trace'\\]"),
    ],
)
def test_what_is_nested_deeper_is_refused_naming_where_it_begins(
    payload: Any, headers: Any, where: str
):
    with pytest.raises(InvalidMessage, match=f"orders.paid.*{where}"):
        codec.encode("orders.paid", payload, headers)


def test_brackets_in_texts_are_no_levels():
    assert codec.decode(codec.encode("t", "[{" * 1000, None)).payload == "[{" * 1000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"\xff\xfe",
        b"null",
        b"{}",
        b"[]",
        b'["t"]',
        b"[1,2]",
        b'["t",1,2]',
        b'["t",1,{},4]',
        b"[" * 100_000,
    ],
    ids=lambda value: repr(value[:12]),
)
def test_a_body_that_is_none_of_ours_is_corrupt(body: bytes):
    with pytest.raises(CorruptMessage, match=f"{len(body)} bytes"):
        codec.decode(body)


def test_an_error_about_a_body_does_not_show_it():
    with pytest.raises(CorruptMessage) as refusal:
        codec.decode(b'["t", "secret", 5]')
    assert "secret" not in str(refusal.value)
