"""How is a script broken on purpose? For this process alone, and no file is touched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from groupqueue.transport import scripts
from proof.stamps import load_plain


class Edit(NamedTuple):
    """A text that is in a file exactly once, and what is read there instead."""

    path: str
    """Below `groupqueue/lua`."""
    text: str
    instead: str


class DoesNotFit(ValueError):
    """The text of an edit is not in its file exactly once."""


def put_in(edits: Sequence[Edit]) -> None:
    """Let this process read the scripts with the edits from now on; raises DoesNotFit."""
    read = scripts._read

    def read_edited(path: str) -> str:
        return _edited(read(path), [edit for edit in edits if edit.path == path])

    for edit in edits:
        read_edited(edit.path)
    scripts._read = read_edited
    load_plain.cache_clear()


@contextmanager
def in_place(edits: Sequence[Edit]) -> Iterator[None]:
    """Let this process read the scripts with the edits meanwhile; raises DoesNotFit."""
    read = scripts._read
    put_in(edits)
    try:
        yield
    finally:
        scripts._read = read
        load_plain.cache_clear()


def _edited(source: str, edits: Sequence[Edit]) -> str:
    for edit in edits:
        if (number := source.count(edit.text)) != 1:
            raise DoesNotFit(f"{edit.text!r} is in {edit.path} {number} times, not once")
        source = source.replace(edit.text, edit.instead)
    return source
