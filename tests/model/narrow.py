"""How does a life of few messages come upon what the scripts do in pages? The pages are short."""

from __future__ import annotations

import hashlib
from functools import cache

from groupqueue.transport.scripts import Script

PROMOTED, TRIMMED = 1, 1
"""Messages that join and letters that are thrown away per call, where the bounds are narrow."""

# Texts of the scripts and what is there instead: those of a line all or none.
BOUNDS: tuple[tuple[tuple[str, str], ...], ...] = (
    (("BURIED_AT_ONCE, DEAD_UNFIT_PAUSE_MS = 100,", "BURIED_AT_ONCE, DEAD_UNFIT_PAUSE_MS = 2,"),),
    (("DROPPED_AT_ONCE = 100", "DROPPED_AT_ONCE = 2"),),
    (("MOST_MESSAGES = 10, 1000,", "MOST_MESSAGES = 10, 3,"),),
    (("PIECE = 16", "PIECE = 1"),),
    (("MOST_PROMOTED = 100", f"MOST_PROMOTED = {PROMOTED}"),),
    (("MOST_TRIMMED = 500", f"MOST_TRIMMED = {TRIMMED}"),),
    (("PLACES_AT_ONCE = 1000, 50", "PLACES_AT_ONCE = 1000, 1"),),
    (("#values, 1000 do", "#values, 2 do"), ("from + 999, #values", "from + 1, #values")),
)


@cache
def narrowed(plain: Script) -> Script:
    """Return a script that does in a few steps what it would do in one."""
    source = plain.source
    for texts in BOUNDS:
        if all(text in source for text, _ in texts):
            for text, instead in texts:
                source = source.replace(text, instead)
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(plain.name, source, sha)
