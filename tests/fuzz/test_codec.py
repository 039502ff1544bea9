"""Does every content come back from the codec, and is everything else refused?"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupqueue.core.codec import Content, JSONCodec
from groupqueue.core.messages import split_element
from groupqueue.exceptions import CorruptMessage, InvalidMessage
from tests.fuzz.fuzzing import UNICODE, fuzzed

codec = JSONCodec()
# As on a machine without the extra.
plain = JSONCodec()
plain._read_quickly, plain._write_quickly = plain._read, None
texts = st.text(UNICODE)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
payloads = st.recursive(
    scalars,
    lambda parts: st.lists(parts, max_size=5) | st.dictionaries(texts, parts, max_size=5),
    max_leaves=30,
)
headers = st.dictionaries(texts, payloads, max_size=3)
anything = st.recursive(
    scalars
    | st.floats()
    | st.binary()
    | st.text()
    | st.complex_numbers()
    | st.decimals()
    | st.dates()
    | st.integers(min_value=10**4000, max_value=10**5000),
    lambda parts: (
        st.lists(parts, max_size=4)
        | st.tuples(parts, parts)
        | st.dictionaries(scalars | st.binary(), parts, max_size=4)
        | st.sets(st.integers(), max_size=2)
    ),
    max_leaves=20,
)


@given(texts, payloads, headers)
@fuzzed(300)
def test_content_comes_back_as_it_was(topic: str, payload: Any, given_headers: Any) -> None:
    body = codec.encode(topic, payload, given_headers)

    assert plain.encode(topic, payload, given_headers) == body
    assert codec.decode(body) == Content(topic, payload, given_headers)


@given(st.text(), anything, st.none() | st.dictionaries(st.text(), anything, max_size=2))
@fuzzed(300)
def test_what_is_accepted_can_be_read_again_and_the_rest_is_refused(
    topic: str, payload: Any, given_headers: Any
) -> None:
    try:
        body = codec.encode(topic, payload, given_headers)
    except InvalidMessage as error:
        with pytest.raises(InvalidMessage, match=re.escape(str(error))):
            plain.encode(topic, payload, given_headers)
        return
    # Two ways to write it would be two contents under one dedup key.
    assert plain.encode(topic, payload, given_headers) == body
    content = codec.decode(body)
    # JSON has no tuples and only texts as names; what it has comes back for good.
    assert codec.encode(*content) == codec.encode(*codec.decode(codec.encode(*content)))


def outcome(by: JSONCodec, body: bytes) -> str:
    try:
        return repr(by.decode(body))
    except CorruptMessage as error:
        return str(error)


def assert_read_or_refused(body: bytes) -> None:
    """Hold that bytes are content, which can be written again, or corrupt, whoever reads them."""
    assert outcome(codec, body) == outcome(plain, body)
    try:
        content = codec.decode(body)
    except CorruptMessage as error:
        refusal = str(error)
    else:
        refusal = ""
        assert codec.decode(codec.encode(*content)) == content
    assert refusal.isprintable()


@given(st.binary(max_size=200))
@fuzzed(500)
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    assert_read_or_refused(body)


@given(st.text(alphabet='[]{}",:0123456789eE+-.\\u tfnrasl dD8N', max_size=60))
@fuzzed(500)
def test_what_looks_like_json_is_read_or_refused(body: str) -> None:
    assert_read_or_refused(body.encode())
    assert_read_or_refused(f'["t",{body}]'.encode())


@given(st.data(), texts, payloads)
@fuzzed(300)
def test_a_body_that_was_damaged_is_read_or_refused(
    data: st.DataObject, topic: str, payload: Any
) -> None:
    body = bytearray(codec.encode(topic, payload, None))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body)))
        body[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))

    assert_read_or_refused(bytes(body))


@given(st.binary(max_size=120))
@fuzzed(300)
def test_any_bytes_can_be_taken_apart_as_an_element(element: bytes) -> None:
    identifier, published_ms, expires_ms, body = split_element(element)

    assert element.endswith(body)
    assert (published_ms, expires_ms) == (0, 0) or len(identifier) == 32
