"""How dead letters are read, put back and thrown away, call by call.

Nothing here talks to a server: a flow yields the calls to perform and is sent each
result, so that sync and async code perform the same steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any, TypeVar

from groupqueue.core import calls
from groupqueue.core.codec import Codec
from groupqueue.core.views import (
    DeadLetter,
    Explanation,
    LetterFilter,
    Letters,
    explanation,
    letters_decoder,
)

T = TypeVar("T")

# What one operation asks for, call by call; it is sent each reply, decoded.
Flow = Generator[calls.Call[Any], Any, T]

LETTERS_PER_CALL = calls.MAX_REDRIVEN_PER_CALL
WHY_HELD = "its dead letters are being put back"


def read_letters(prefix: str, codec: Codec, wanted: LetterFilter, limit: int) -> Flow[Letters]:
    """Read the newest letters that a filter lets through, `limit` at most."""
    size = min(limit, LETTERS_PER_CALL) if wanted.is_about_time else LETTERS_PER_CALL
    reader = _Reader(prefix, codec, wanted, newest_first=True, page_size=size)
    found: list[DeadLetter] = []
    while reader.has_more and len(found) < limit:
        found += yield from reader.next_page()
    return Letters(reader.total, tuple(found[:limit]))


def redrive_letters(prefix: str, codec: Codec, wanted: LetterFilter, *, to_tail: bool) -> Flow[int]:
    """Put letters back; the result counts them.

    To the front, the letters of a group go back in one call, so that no worker sees
    half of them, or, when there are too many for one, while the group is held.
    """
    reader = _Reader(prefix, codec, wanted)
    if to_tail:
        return (yield from _redrive_to_tail(prefix, reader))
    by_group: dict[str, list[str]] = {}
    while reader.has_more:
        for letter in (yield from reader.next_page()):
            by_group.setdefault(letter.group, []).append(letter.entry)
    done, together = 0, list[str]()
    for group, entries in by_group.items():
        if len(entries) > LETTERS_PER_CALL:
            done += yield from _redrive_held(prefix, group, entries)
            continue
        if len(together) + len(entries) > LETTERS_PER_CALL:
            done += yield calls.redrive(prefix, together)
            together = []
        together += entries
    if together:
        done += yield calls.redrive(prefix, together)
    return done


def drop_letters(prefix: str, codec: Codec, wanted: LetterFilter) -> Flow[int]:
    """Throw letters away; the result counts them."""
    reader = _Reader(prefix, codec, wanted)
    done = 0
    while reader.has_more:
        if letters := (yield from reader.next_page()):
            done += yield calls.drop(prefix, [letter.entry for letter in letters])
    return done


def _redrive_to_tail(prefix: str, reader: _Reader) -> Flow[int]:
    done = 0
    while reader.has_more:
        if letters := (yield from reader.next_page()):
            entries = [letter.entry for letter in letters]
            done += yield calls.redrive(prefix, entries, to_tail=True)
    return done


def _redrive_held(prefix: str, group: str, entries: list[str]) -> Flow[int]:
    """Put back more letters of a group than one call takes: the newest first, so that in
    the end the oldest are foremost. A worker must not take any before they all are there."""
    if not group:
        return 0  # no dead letters at all: somebody else wrote into the stream
    is_ours = yield calls.pause(prefix, group, WHY_HELD)
    if not is_ours:
        # Held by an operator; or by a redrive that broke off.
        held: Explanation = yield calls.explain(prefix, group, explanation)
        is_ours = held.group.held_reason == WHY_HELD
    done = 0
    for chunk in reversed(list(calls.in_chunks(entries, LETTERS_PER_CALL))):
        done += yield calls.redrive(prefix, chunk)
    if is_ours:
        yield calls.resume(prefix, group)
    return done


class _Reader:
    """Reads the letters that a filter lets through, page by page."""

    def __init__(
        self,
        prefix: str,
        codec: Codec,
        wanted: LetterFilter,
        *,
        newest_first: bool = False,
        page_size: int = LETTERS_PER_CALL,
    ) -> None:
        self.total = 0
        """How many letters there are in all; known after the first page."""
        self._prefix = prefix
        self._decode = letters_decoder(codec)
        self._wanted = wanted
        self._newest_first = newest_first
        self._page_size = page_size
        self._stretches = deque(wanted.stretches(newest_first=newest_first))

    @property
    def has_more(self) -> bool:
        """Whether there may be another page."""
        return bool(self._stretches)

    def next_page(self) -> Flow[list[DeadLetter]]:
        """Read a page and keep what the filter lets through, which may be nothing."""
        first, last = self._stretches.popleft()
        page: Letters = yield calls.letters(
            self._prefix,
            first,
            last,
            self._page_size,
            newest_first=self._newest_first,
            decode=self._decode,
        )
        self.total = page.total
        if first != last and len(page.letters) == self._page_size:
            self._stretches.appendleft((f"({page.letters[-1].entry}", last))
        return [letter for letter in page.letters if self._wanted.lets_through(letter)]
