"""How a message's topic, payload and headers become bytes, and back.

A codec never executes what it reads: decoding bytes from a queue must be safe
even when somebody else wrote them.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from groupqueue.exceptions import CorruptMessage, InvalidMessage

# Several times as fast. What it reads, the standard library reads alike; what it writes of what
# `_is_plain` says, the standard library writes alike, byte for byte.
read_quickly: Any = None
write_quickly: Any = None
with contextlib.suppress(ImportError):  # an extra
    from msgspec.json import Decoder, Encoder

    read_quickly, write_quickly = Decoder().decode, Encoder().encode

MOST_LEVELS = 100
"""How deep JSONCodec lets a payload be nested. How deep JSON can be read depends on how deep
the reader's own stack is: what anybody may publish, everybody must be able to read."""


class Content(NamedTuple):
    """What a body holds."""

    topic: str
    payload: Any
    headers: Mapping[str, Any]


class Codec(Protocol):
    """Turns content into bytes and back; the setting CODEC names an instance or class."""

    def encode(self, topic: str, payload: Any, headers: Mapping[str, Any] | None) -> bytes:
        """Return the body; raise InvalidMessage when the content cannot be written."""
        ...

    def decode(self, body: bytes) -> Content:
        """Return the content; raise CorruptMessage when the body is not one of ours."""
        ...


class JSONCodec:
    """Compact JSON: `[topic, payload]`, or `[topic, payload, headers]`.

    Accepts what JSON can say exactly, up to 100 levels deep. NaN, infinity and halves of
    surrogate pairs are refused, read as well as written; tuples come back as lists, as JSON
    has no tuples. Of a name that an object has twice, the last value counts.
    """

    def __init__(self) -> None:
        self._encode = json.JSONEncoder(
            ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).encode
        decoder = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
        self._decode, self._decode_first = decoder.decode, decoder.raw_decode
        self._read_quickly: Callable[[bytes], Any] = read_quickly or self._read
        self._write_quickly: Callable[[Any], bytes] | None = write_quickly

    def encode(self, topic: str, payload: Any, headers: Mapping[str, Any] | None) -> bytes:
        content = [topic, payload, dict(headers)] if headers else [topic, payload]
        quick = self._write_quickly
        try:
            body = quick(content) if quick and _is_plain(content, MOST_LEVELS + 1) else b""
        except Exception:
            body = b""  # what is wrong, if anything is, is said below
        return body or self._write(content)

    def decode(self, body: bytes) -> Content:
        try:
            content = self._read_quickly(body)
        except Exception:
            content = self._read(body)  # says what is wrong, if anything is
        if type(content) is list and content and type(content[0]) is str:
            if len(content) == 2:
                return Content(content[0], content[1], {})
            if len(content) == 3 and type(content[2]) is dict:
                return Content(*content)
        raise CorruptMessage(f"a body of {len(body)} bytes is not [topic, payload, headers]")

    def _write(self, content: list[Any]) -> bytes:
        try:
            written = self._encode(content)
            body = written.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidMessage(
                f"the message for topic {content[0]!r} cannot be written as JSON: {error}"
                f"{_culprit(content[1], 'payload')}"
            ) from error
        # Each level opens a bracket: with few of them nobody need look.
        if written.count("[") + written.count("{") > MOST_LEVELS:
            _refuse_deep(*content)
        return body

    def _read(self, body: bytes) -> Any:
        try:
            text = body.decode()
            # What `encode` writes has no spaces around it, which are looked for at some cost.
            content, end = self._decode_first(text) if text[:1] == "[" else (None, 0)
            if end != len(text):
                content = self._decode(text)
            # What other programs write as escapes may be no characters.
            if "\\u" in text and _HALF_OF_A_PAIR.search(text):
                self._encode(content).encode()
        except (ValueError, RecursionError) as error:
            raise CorruptMessage(f"a body of {len(body)} bytes is not JSON: {error}") from error
        return content


_SCALARS = frozenset((str, int, bool, type(None)))
_CONTAINERS = (dict, list, tuple)
_HALF_OF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


def _finite(text: str) -> float:
    """Return the number that JSON's text means; raise ValueError for NaN and infinity."""
    if math.isfinite(number := float(text)):
        return number
    raise ValueError("a number is not finite")


def _is_plain(container: Any, levels: int) -> bool:
    """Say whether all of it, so many levels deep at most, is of the types that JSON has.

    Not of their subclasses, which may say something else of themselves, nor a float that would
    be written with an exponent, of which there are several ways.
    """
    if type(container) is dict:
        for name in container:
            if type(name) is not str:
                return False
        container = container.values()
    elif type(container) is not list:
        return False
    if not levels:
        return False
    for part in container:
        kind = type(part)
        if kind is str:
            continue
        if kind is float:
            if part and not 1e-4 <= abs(part) < 1e16:
                return False
        elif kind not in _SCALARS and not _is_plain(part, levels - 1):
            return False
    return True


def _refuse_deep(topic: str, payload: Any, headers: Any = None) -> None:
    """Raise InvalidMessage when a part has more levels than it may have, naming where it begins."""
    for name, value in (("payload", payload), ("headers", headers)):
        if _is_deeper(value, MOST_LEVELS):
            key = next(key for key, part in _entries(value) if _is_deeper(part, MOST_LEVELS - 1))
            raise InvalidMessage(
                f"the message for topic {topic!r} is nested too deep: {name}[{reprlib.repr(key)}]…"
                f" goes on beyond {MOST_LEVELS} levels"
            )


def _is_deeper(value: Any, levels: int) -> bool:
    """Say whether containers are nested in a value, itself included, deeper than so many levels."""
    containers = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(levels):
        if not containers:
            return False
        containers = [
            part
            for container in containers
            for part in (container.values() if isinstance(container, dict) else container)
            if isinstance(part, _CONTAINERS)
        ]
    return bool(containers)


def _entries(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, dict) else enumerate(value)


def _culprit(value: Any, path: str) -> str:
    """Say where in a payload the value lies that JSON cannot say; empty when unclear."""
    if isinstance(value, Mapping):
        found = (_culprit(part, f"{path}[{key!r}]") for key, part in value.items())
    elif isinstance(value, list | tuple):
        found = (_culprit(part, f"{path}[{index}]") for index, part in enumerate(value))
    elif (
        value is None
        or isinstance(value, str | int | bool)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        return ""
    else:
        return f"; {path} is {reprlib.repr(value)}"
    try:
        return next((where for where in found if where), "")
    except RecursionError:
        return ""
