"""How is what breaks a promise told and counted?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from groupqueue.core.messages import split_place

MOST_PER_INVARIANT = 50
"""One fault is followed by many others: the first tell most."""


class Findings:
    """The findings about one shard, or about all of them."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._told: dict[str, list[str]] = {}
        self.counts: Counter[str] = Counter()
        """What is counted beside: `lost`, `out_of_order`, `double_leases`, ..."""

    def note(self, invariant: str, text: str, *numbers: int, count: str = "") -> None:
        """Note that an invariant does not hold, as the operations of these numbers show."""
        if count:
            self.counts[count] += 1
        shown = f" (operation {' and '.join(map(str, numbers))})" if numbers else ""
        self._told.setdefault(invariant, []).append(f"{invariant} {self._where}: {text}{shown}")

    def told(self) -> Iterable[str]:
        """Return the findings, a sentence each."""
        for invariant, texts in self._told.items():
            yield from texts[:MOST_PER_INVARIANT]
            if len(texts) > MOST_PER_INVARIANT:
                yield f"{invariant} {self._where}: {len(texts) - MOST_PER_INVARIANT} more"


def shown(group: bytes) -> str:
    """Return a group's name for people."""
    whole, place = split_place(group)
    name = repr(whole.decode(errors="backslashreplace"))
    return f"group {name}, message {place.decode(errors='replace')}" if place else f"group {name}"
