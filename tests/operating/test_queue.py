"""Do the operator's methods of a queue do what their verbs do, sync and async?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from groupqueue import get_queue
from groupqueue.core.views import LetterFilter
from groupqueue.exceptions import InvalidArgument, InvalidMessage
from groupqueue.transport.connections import get_async_transport
from tests.operating.conftest import Bench

Ask = Callable[..., Awaitable[Any]]


@pytest.fixture(params=["sync", "async"])
async def ask(request: pytest.FixtureRequest):
    """Ask the default queue by a method's name, through the method or its async twin."""
    queue = get_queue()

    async def asked(name: str, *args: Any, **kwargs: Any) -> Any:
        if request.param == "async":
            return await getattr(queue, f"a{name}")(*args, **kwargs)
        return getattr(queue, name)(*args, **kwargs)

    yield asked
    if request.param == "async":
        await get_async_transport().close()


async def test_setting_a_tier(bench: Bench, ask: Ask) -> None:
    bench.publish("group")

    assert await ask("set_tier", "group", 9) is True
    assert (await ask("explain", "group")).group.tier == 4
    assert await ask("set_tier", "nowhere", 1) is False
    with pytest.raises(InvalidMessage, match="priority"):
        await ask("set_tier", "group", "high")


async def test_releasing_and_purging(bench: Bench, ask: Ask) -> None:
    bench.publish("group", 1, 2)
    bench.claim()

    assert (await ask("explain", "group")).state == "leased"
    assert await ask("release", "group") is True
    assert await ask("release", "group") is False
    assert await ask("purge", "group") == 2
    assert await ask("purge", "group") == 0


async def test_peeking(bench: Bench, ask: Ask) -> None:
    bench.publish("group", *range(5))

    depth, messages = await ask("peek", "group", start=1, limit=2)

    assert (depth, [message.payload for message in messages]) == (5, [1, 2])
    assert (await ask("peek", "group", start=-3, limit=0)).messages[0].payload == 0


async def test_dead_letters_there_and_back(bench: Bench, ask: Ask) -> None:
    bench.bury("a", 1, 2, 3)
    bench.bury("b", 1)

    total, letters = await ask("dead_letters", limit=2)
    assert (total, [letter.group for letter in letters]) == (4, ["b", "a"])
    assert (await ask("dead_letters", limit=0)).total == 4
    assert await ask("redrive", LetterFilter(entries=[letters[1].entry])) == 1
    assert await ask("redrive", LetterFilter(group="a"), to_tail=True) == 2
    assert bench.waiting("a") == [3, 1, 2]
    assert await ask("drop", LetterFilter()) == 1
    assert await ask("redrive") == 0


@pytest.mark.parametrize("method", ["dead_letters", "redrive", "drop"])
async def test_what_is_no_entry_is_refused(bench: Bench, ask: Ask, method: str) -> None:
    with pytest.raises(InvalidArgument, match="entry id"):
        await ask(method, LetterFilter(entries=["nonsense"]))


@pytest.mark.parametrize("group", ["", "x" * 513, None, 7])
async def test_what_is_no_group_is_refused(bench: Bench, ask: Ask, group: Any) -> None:
    for name, *further in (("set_tier", 1), ("release",), ("purge",), ("explain",), ("peek",)):
        with pytest.raises(InvalidMessage, match="group"):
            await ask(name, group, *further)
