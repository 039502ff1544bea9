"""Does the operators' view of a queue do what its scripts do, with an async twin for each?"""

from __future__ import annotations

import inspect as introspection
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from groupqueue import get_queue
from groupqueue.exceptions import InvalidMessage, UnknownQueue
from groupqueue.queues import Queue
from groupqueue.transport.connections import get_async_transport, get_transport

Ask = Callable[..., Awaitable[Any]]


@pytest.fixture(params=["sync", "async"])
async def ask(request: pytest.FixtureRequest, default_client: redis.Redis):
    """Ask the default queue by a method's name, through the method or its async twin."""
    queue = get_queue()

    async def asked(name: str, *args: Any, **kwargs: Any) -> Any:
        if request.param == "async":
            return await getattr(queue, f"a{name}")(*args, **kwargs)
        return getattr(queue, name)(*args, **kwargs)

    yield asked
    if request.param == "async":
        await get_async_transport().close()


async def test_pausing_and_resuming_a_group(ask: Ask):
    get_transport().publish("group", b"1")

    assert await ask("pause", "group", "data fix") is True
    assert await ask("pause", "group") is False
    [held] = (await ask("snapshot")).held
    assert (held.group, held.state, held.held_reason) == ("group", "paused", "data fix")
    assert await ask("resume", "group") is True
    assert await ask("resume", "group") is False
    assert (await ask("snapshot")).held == ()


async def test_skipping_the_head_of_a_group(ask: Ask):
    first = get_transport().publish("group", b"1")
    second = get_transport().publish("group", b"2")

    assert await ask("skip", "group", second) == "moved"
    assert await ask("skip", "group", first) == "ok"
    lease = get_transport().claim("worker", 30)
    assert lease is not None
    assert await ask("skip", "group", second) == "leased"


@pytest.mark.parametrize("group", ["", "x" * 513, None, 7])
async def test_what_is_no_group_is_refused(ask: Ask, group: Any):
    for name, *further in (("pause",), ("resume",), ("skip", "0" * 32)):
        with pytest.raises(InvalidMessage, match="group"):
            await ask(name, group, *further)


@pytest.mark.parametrize(("limit", "shown"), [(1, 1), (3, 3), (200, 200)])
async def test_a_snapshots_lists_are_bounded(ask: Ask, limit: int, shown: int):
    for number in range(230):
        get_transport().publish(f"group-{number}", b"1", number % 5)

    assert len((await ask("snapshot", limit=limit)).waiting) == shown


def test_an_impatient_snapshot_leaves_no_connection_behind(default_client: redis.Redis):
    get_queue().snapshot()
    before = len(default_client.client_list())

    for _ in range(5):
        assert get_queue(patient=False).snapshot().held == ()

    assert len(default_client.client_list()) <= before


def test_a_queue_that_is_not_configured_is_an_error():
    with pytest.raises(UnknownQueue, match="nowhere"):
        get_queue("nowhere")


def test_every_method_has_an_async_twin_with_the_same_parameters():
    methods = {name for name in vars(Queue) if not name.startswith("_")}
    sync = {name for name in methods if not introspection.iscoroutinefunction(getattr(Queue, name))}

    assert {f"a{name}" for name in sync} == methods - sync
    for name in sync - {"snapshot"}:
        assert introspection.signature(getattr(Queue, name)) == introspection.signature(
            getattr(Queue, f"a{name}")
        )
