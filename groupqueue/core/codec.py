"""How a message's topic, payload and headers become bytes, and back.

A codec never executes what it reads: decoding bytes from a queue must be safe
even when somebody else wrote them.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from groupqueue.exceptions import CorruptMessage, InvalidMessage

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

    Accepts what JSON can say exactly, up to 100 levels deep. NaN and infinity are
    refused; tuples come back as lists, as JSON has no tuples.
    """

    def __init__(self) -> None:
        self._encode = json.JSONEncoder(
            ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).encode
        self._decode = json.JSONDecoder().decode

    def encode(self, topic: str, payload: Any, headers: Mapping[str, Any] | None) -> bytes:
        content = [topic, payload, dict(headers)] if headers else [topic, payload]
        try:
            written = self._encode(content)
            body = written.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidMessage(
                f"the message for topic {topic!r} cannot be written as JSON: {error}"
                f"{_culprit(payload, 'payload')}"
            ) from error
        # Each level opens a bracket: with few of them nobody need look.
        if written.count("[") + written.count("{") > MOST_LEVELS:
            _refuse_deep(topic, payload=payload, headers=headers)
        return body

    def decode(self, body: bytes) -> Content:
        try:
            content = self._decode(body.decode())
        except (ValueError, RecursionError) as error:
            raise CorruptMessage(f"a body of {len(body)} bytes is not JSON: {error}") from error
        match content:
            case [str(topic), payload]:
                return Content(topic, payload, {})
            case [str(topic), payload, dict(headers)]:
                return Content(topic, payload, headers)
        raise CorruptMessage(f"a body of {len(body)} bytes is not [topic, payload, headers]")


_CONTAINERS = (dict, list, tuple)


def _refuse_deep(topic: str, **parts: Any) -> None:
    """Raise InvalidMessage when a part has more levels than it may have, naming where it begins."""
    for name, value in parts.items():
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
