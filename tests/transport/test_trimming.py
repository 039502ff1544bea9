"""Are old dead letters thrown away, those alone, and in bounded steps?"""

from __future__ import annotations

from typing import Any

import pytest

from groupqueue.core import calls
from tests.transport.envelopes import stat
from tests.transport.shards import Shard
from tests.transport.test_dead_letters import bury, bury_many, entered

HOUR_MS = 3_600_000


async def trim(shard: Shard, *, age: int | None = None, count: int | None = None) -> int:
    call = calls.trim(shard.prefix, max_age_ms=age, max_count=count)
    return await shard.transport.perform(call)


async def trim_all(shard: Shard, **limits: Any) -> list[int]:
    """Trim until there is nothing more to do; return what each call threw away."""
    steps = []
    while gone := await trim(shard, **limits):
        steps.append(gone)
    return steps


def hours_old(shard: Shard, *ages: float) -> list[str]:
    """Write letters as if they had been set aside so many hours ago; return their entries."""
    now = int(shard.now_ms())
    return [entered(shard, now - int(age * HOUR_MS), "group") for age in ages]


def kept(shard: Shard) -> list[str]:
    return [entry.decode() for entry, _ in shard.redis.xrange(shard.named("dead"))]


async def test_letters_beyond_the_count_go_the_oldest_first(shard: Shard):
    entries = hours_old(shard, 5, 4, 3, 2, 1)

    assert await trim(shard, count=2) == 3

    assert kept(shard) == entries[3:]
    assert stat(shard, "trimmed") == 3


async def test_letters_beyond_the_age_go(shard: Shard):
    entries = hours_old(shard, 5, 4, 3, 2, 1)

    assert await trim_all(shard, age=int(3.5 * HOUR_MS)) == [2]

    assert kept(shard) == entries[2:]
    assert stat(shard, "trimmed") == 2


async def test_with_both_limits_a_letter_has_to_be_within_both(shard: Shard):
    entries = hours_old(shard, 5, 4, 3, 2, 1)

    assert sum(await trim_all(shard, age=int(1.5 * HOUR_MS), count=4)) == 4

    assert kept(shard) == entries[4:]


@pytest.mark.parametrize("limits", [{}, {"count": 5}, {"count": 9}, {"age": 6 * HOUR_MS}])
async def test_what_is_within_the_limits_stays(shard: Shard, limits: dict[str, int]):
    entries = hours_old(shard, 5, 4, 3, 2, 1)
    before = shard.dump()

    assert await trim(shard, **limits) == 0

    assert kept(shard) == entries
    assert shard.dump() == before


async def test_a_queue_without_letters_has_none_to_throw_away(shard: Shard):
    assert await trim(shard, age=1, count=1) == 0
    assert shard.names() == set()


@pytest.mark.parametrize("limits", [{"count": 100}, {"age": 1}])
async def test_failure_39_any_number_of_letters_goes_in_bounded_steps(
    sync_shard: Shard, limits: Any
):
    shard = sync_shard
    long_ago = [f"{number}-1" for number in range(1, 3001)]
    letter = {"group": "group", "tier": "0", "element": b"x" * 100, "reason": "why"}
    with shard.redis.pipeline() as pipeline:
        for entry in long_ago:
            pipeline.xadd(shard.named("dead"), letter, id=entry)
        pipeline.execute()

    steps = await trim_all(shard, **limits)

    assert sum(steps) == 3000 - limits.get("count", 0)
    assert max(steps) <= 500
    assert kept(shard) == long_ago[3000 - limits.get("count", 0) :]


async def test_letters_of_messages_that_were_handled_go_as_well(shard: Shard):
    await bury_many(shard, ["a", "b"], 3)

    assert await trim(shard, count=1) == 5

    await bury(shard, "group", 1)
    assert len(kept(shard)) == 2
