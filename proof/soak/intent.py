"""What is to be published, and how are its handlers to treat it? The seed decides.

The same seed gives each publisher the same messages. What becomes of them depends on the
moment, and on what breaks meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Fate(NamedTuple):
    """One way in which a handler treats a message."""

    name: str
    times: int
    """How often, before it is treated well."""
    weight: float = 0
    """Share of all messages, beside those that come in every cycle."""


FATES = (
    Fate("raise", 1, 0.012),
    Fate("exhaust", 3, 0.001),
    Fate("retry", 1, 0.004),
    Fate("snooze", 1, 0.004),
    Fate("reject", 1, 0.001),
    Fate("slow", 1, 0.01),
    Fate("oversleep", 1),
    Fate("hang", 1),
    Fate("crash", 1),
    Fate("poison", 3),
)
"""What handlers do, beside what they are for."""
OK = "ok"

# Each publisher has every fate once in so many messages; some are too dear for more. They stand
# apart and each publisher has an order of its own: what is refused for a while may hit some.
CYCLE_MESSAGES = 6000
APART_MESSAGES = 40
# Topic and its share. The last two set messages aside, alone or with all behind them.
TOPICS = (
    ("proof.sync", 40),
    ("proof.async", 25),
    ("proof.each", 15),
    ("proof.all", 10),
    ("proof.aside", 6),
    ("proof.doom", 4),
)
GROUPS = 150
WIDE_GROUPS = 5
WAYS = (("one", 40), ("many", 25), ("async one", 15), ("async many", 10), ("commit", 10))
MOST_AT_ONCE = 12


@dataclass(frozen=True, slots=True)
class Intent:
    """One message to be published."""

    topic: str
    group: str | None
    fate: str
    times: int
    options: dict[str, Any]


class Call(NamedTuple):
    """Messages that are published together."""

    way: str
    messages: list[Intent]


def calls(seed: int, publisher: str) -> Iterator[Call]:
    """Return what a publisher is to publish, without an end."""
    chance = random.Random(f"{seed}/{publisher}")  # noqa: S311 - it is to be foreseen
    order = chance.sample(FATES, len(FATES))
    number = 0
    while True:
        way = _choice(chance, WAYS)
        count = chance.randint(2, MOST_AT_ONCE) if way.endswith("many") else 1
        if way == "commit":
            count = chance.randint(1, 4)
        messages = []
        for _ in range(count):
            # What is published after a commit cannot tell which message it was a duplicate of.
            messages.append(_intent(chance, order, number, with_dedup=way != "commit"))
            number += 1
        yield Call(way, messages)


def _intent(
    chance: random.Random, order: Sequence[Fate], number: int, *, with_dedup: bool
) -> Intent:
    fate, times = _fate(chance, order, number)
    options = _options(chance, number, with_dedup=with_dedup)
    return Intent(_choice(chance, TOPICS), _group(chance, options), fate, times, options)


def _fate(chance: random.Random, order: Sequence[Fate], number: int) -> tuple[str, int]:
    place, rest = divmod(number % CYCLE_MESSAGES, APART_MESSAGES)
    if rest == 0 and place < len(order):
        return order[place][:2]
    weights = [fate.weight for fate in FATES]
    drawn = chance.choices([*FATES, None], [*weights, 1 - sum(weights)])[0]
    return drawn[:2] if drawn else (OK, 0)


def _group(chance: random.Random, options: dict[str, Any]) -> str | None:
    kind = chance.random()
    if kind < 0.05:
        return None
    if kind < 0.12:
        options["width"] = 3
        return f"wide-{chance.randrange(WIDE_GROUPS)}"
    # The lower a group's number, the more it has to do.
    return f"group-{int(GROUPS * chance.random() ** 2)}"


def _options(chance: random.Random, number: int, *, with_dedup: bool) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if chance.random() < 0.3:
        options["priority"] = chance.randint(0, 4)
    kind = chance.random()
    if kind < 0.04:
        options["delay"] = round(chance.uniform(0.1, 3), 2)
    elif kind < 0.05:
        options |= {"delay": round(chance.uniform(0.1, 1), 2), "hold": True}
    elif kind < 0.07:
        options["expires_in"] = round(chance.uniform(0.5, 5), 2)
    elif kind < 0.10 and with_dedup:
        options["dedup_key"] = f"key-{number}"
    return options


def _choice(chance: random.Random, weighted: tuple[tuple[str, int], ...]) -> str:
    names = [name for name, _ in weighted]
    return chance.choices(names, [weight for _, weight in weighted])[0]
