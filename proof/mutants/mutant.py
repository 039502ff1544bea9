"""What is a mutant?"""

from __future__ import annotations

from typing import NamedTuple

from proof.edits import Edit


class Mutant(NamedTuple):
    """A queue that is broken in one way."""

    name: str
    breaks: str
    """What does not hold any more."""
    edits: tuple[Edit, ...]


def mutant(name: str, breaks: str, *edits: tuple[str, str, str]) -> Mutant:
    """Return a mutant; an edit is a file, a text that is in it once, and what is there instead."""
    return Mutant(name, breaks, tuple(Edit(*edit) for edit in edits))
