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
    last = await ask("peek", "group", start=4, limit=200)
    assert [message.payload for message in last.messages] == [4]


@pytest.mark.parametrize("method", ["snapshot", "held", "peek", "scheduled", "dead_letters"])
@pytest.mark.parametrize("limit", [-5, 0, 10**9 + 1, "20", True])
async def test_a_list_that_cannot_be_had_is_refused_and_not_cut(
    bench: Bench, ask: Ask, method: str, limit: Any
) -> None:
    with pytest.raises(InvalidArgument, match="limit"):
        await ask(method, *(["group"] if method == "peek" else []), limit=limit)


@pytest.mark.parametrize("method", ["peek", "scheduled"])
async def test_a_list_begins_at_a_place(bench: Bench, ask: Ask, method: str) -> None:
    with pytest.raises(InvalidArgument, match="start"):
        await ask(method, *(["group"] if method == "peek" else []), start=-1)


async def test_every_held_group_can_be_had_page_by_page(bench: Bench, ask: Ask) -> None:
    names = [f"group-{number}" for number in range(1000)]
    for name in names:
        bench.queue.pause(name, "why")
    bench.publish(names[0])
    found: dict[str, Any] = {}
    page = await ask("held")
    pages = 1
    while page.cursor:
        found |= {view.group: view for view in page.groups}
        page = await ask("held", cursor=page.cursor)
        pages += 1
    found |= {view.group: view for view in page.groups}

    assert sorted(found) == sorted(names)
    assert (page.total, pages > 3) == (1000, True)
    assert {(view.state, view.held_reason) for view in found.values()} == {("paused", "why")}
    assert [view.depth for view in found.values() if view.depth] == [1]


async def test_what_is_no_cursor_is_refused(bench: Bench, ask: Ask) -> None:
    with pytest.raises(InvalidArgument, match="cursor"):
        await ask("held", cursor="-1")


async def test_dead_letters_there_and_back(bench: Bench, ask: Ask) -> None:
    bench.bury("a", 1, 2, 3)
    bench.bury("b", 1)

    total, letters = await ask("dead_letters", limit=2)
    assert (total, [letter.group for letter in letters]) == (4, ["b", "a"])
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


async def test_stopping_and_starting(bench: Bench, ask: Ask) -> None:
    bench.publish("group")

    assert await ask("stop", "moving house") is True
    assert await ask("stop") is False
    assert (await ask("snapshot")).stopped_reason == "moving house"
    assert bench.transport.claim("worker", 60) is None
    assert await ask("start") is True
    assert await ask("start") is False
    assert (await ask("snapshot")).stopped_since is None


async def test_setting_a_rate(bench: Bench, ask: Ask) -> None:
    bench.publish("group", 1, 2)

    assert await ask("set_rate", "10/m:2", "group") == ""
    assert await ask("set_rate", "5/s") == ""
    assert (await ask("snapshot")).rate == "5/s"
    assert (await ask("explain", "group")).group.rate == "10/m:2"
    assert await ask("set_rate", "none", "group") == "10/m:2"
    assert await ask("set_rate", None, "group") == "none"
    assert await ask("set_rate", None) == "5/s"
    assert (await ask("explain", "group")).group.rate == ""


@pytest.mark.parametrize("rate", ["", "often", "0/m", 10, "default"])
async def test_what_is_no_rate_is_refused(bench: Bench, ask: Ask, rate: Any) -> None:
    with pytest.raises(InvalidArgument, match="is no rate"):
        await ask("set_rate", rate, "group")


@pytest.mark.parametrize("group", ["", "x" * 513, 7])
async def test_no_rate_is_set_for_what_is_no_group(bench: Bench, ask: Ask, group: Any) -> None:
    with pytest.raises(InvalidMessage, match="group"):
        await ask("set_rate", "10/m", group)
