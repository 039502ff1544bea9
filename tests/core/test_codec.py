"""Does a body come back as it was written, and is everything else refused?"""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import math
from typing import Any

import pytest

from groupqueue.core import codec as codec_module
from groupqueue.core.codec import MOST_LEVELS, Content, JSONCodec
from groupqueue.exceptions import CorruptMessage, InvalidMessage

codec = JSONCodec()


def test_bodies_are_read_with_msgspec_where_it_is_installed(monkeypatch: pytest.MonkeyPatch):
    read: list[bytes] = []

    def note(body: bytes) -> Any:
        read.append(body)
        return ["t", "from note"]

    monkeypatch.setattr(codec_module, "read_quickly", note)
    assert JSONCodec().decode(b'["t",1]') == Content("t", "from note", {})
    assert read == [b'["t",1]']


def test_bodies_are_read_alike_without_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(codec_module, "read_quickly", None)
    assert JSONCodec().decode(b' ["t", {"n": 1.5}, {"h": "\\u00fc"}] ') == Content(
        "t", {"n": 1.5}, {"h": "ü"}
    )


class _Texts(enum.StrEnum):
    PAID = "paid"


class _Dict(dict[str, int]):
    pass


@pytest.mark.parametrize("payload", [1, "ü", [], {"a": [True, None, {"b": -0.0, "c": 1234.5}]}])
def test_plain_content_is_written_with_msgspec_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, payload: Any
):
    monkeypatch.setattr(codec_module, "write_quickly", lambda content: repr(content).encode())
    content = ["t", payload]
    assert JSONCodec().encode("t", payload, None) == repr(content).encode()
    assert JSONCodec().encode("t", 1, {"h": payload}) == repr(["t", 1, {"h": payload}]).encode()


@pytest.mark.parametrize(
    "payload",
    # What it would not write, or another way than the standard library does.
    [(1,), {1: 2}, _Texts.PAID, [_Dict(a=1)], {_Texts.PAID: 1}, 1e16, [1e-5], {"a": {"b": -1e22}}],
)
def test_all_else_is_written_with_the_standard_library(
    monkeypatch: pytest.MonkeyPatch, payload: Any
):
    monkeypatch.setattr(codec_module, "write_quickly", lambda content: b"")
    written = json.dumps(["t", payload], separators=(",", ":")).encode()
    assert JSONCodec().encode("t", payload, None) == written


def test_content_that_changes_while_it_is_looked_at_is_written_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
):
    def fail(content: Any) -> bytes:
        raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr(codec_module, "write_quickly", fail)
    assert JSONCodec().encode("t", {"a": 1}, None) == b'["t",{"a":1}]'


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
