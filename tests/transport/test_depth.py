"""Is a call refused as a whole that would make a group deeper than it may be?"""

from __future__ import annotations

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.exceptions import GroupFull, InvalidArgument
from tests.transport.envelopes import (
    audit,
    bodies,
    handle_all,
    held,
    keyed,
    let_come,
    promote,
    scheduled,
    send,
)
from tests.transport.proxy import Proxy
from tests.transport.shards import Shard, envelope


def limit(shard: Shard, depth: int) -> None:
    """Let groups have so many messages at most."""
    inner = getattr(shard.transport, "bare", shard.transport)
    inner._max_group_depth = depth


async def test_a_group_takes_exactly_as_many_messages_as_it_may_have(shard: Shard):
    limit(shard, 3)
    await shard.publish("group", b"1", b"2", b"3")
    before = shard.dump()

    with pytest.raises(GroupFull) as refusal:
        await shard.publish("group", b"4")

    assert (refusal.value.group, refusal.value.depth, refusal.value.limit) == ("group", 3, 3)
    assert shard.dump() == before
    await shard.publish("other")


async def test_a_call_that_would_overfill_one_group_is_refused_for_all(shard: Shard):
    limit(shard, 3)
    await shard.publish_many([("a", b"1", 0), ("b", b"1", 0), ("b", b"2", 0)])
    before = shard.dump()

    with pytest.raises(GroupFull) as refusal:
        await send(shard, *(envelope(group) for group in ("c", "a", "b", "a", "b")))

    assert (refusal.value.group, refusal.value.depth) == ("b", 2)
    assert shard.dump() == before
    await send(shard, *(envelope(group) for group in ("c", "a", "b", "a")))
    audit(shard)


async def test_a_call_larger_than_an_empty_group_may_be_is_refused(shard: Shard):
    limit(shard, 3)

    with pytest.raises(GroupFull) as refusal:
        await send(shard, *(envelope("group") for _ in range(4)))

    assert refusal.value.depth == 0
    assert shard.names() == set()


async def test_the_leased_head_counts_until_it_is_gone(shard: Shard):
    limit(shard, 2)
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)
    with pytest.raises(GroupFull):
        await shard.publish("group", b"3")

    await shard.transport.ack(lease)

    await shard.publish("group", b"3")
    assert bodies(await handle_all(shard)) == [b"2", b"3"]


async def test_duplicates_take_no_place(shard: Shard):
    limit(shard, 1)
    first = keyed("key")
    await send(shard, first)

    assert await shard.transport.publish_envelopes([keyed("key"), keyed("key")]) == {
        0: first.id,
        1: first.id,
    }


async def test_held_messages_take_their_place_at_once(shard: Shard):
    limit(shard, 1)
    await send(shard, held("group"))

    with pytest.raises(GroupFull):
        await shard.publish("group")


async def test_scheduled_messages_take_none_until_they_join_and_then_join_a_full_group(
    shard: Shard,
):
    limit(shard, 2)
    ids = await send(shard, *(scheduled("group", b"%d" % n) for n in (3, 4, 5)))
    await shard.publish("group", b"1", b"2")
    let_come(shard, *ids)

    await promote(shard)

    assert shard.depth("group") == 5
    with pytest.raises(GroupFull):
        await shard.publish("group")
    assert bodies(await handle_all(shard)) == [b"1", b"2", b"3", b"4", b"5"]


async def test_a_redrive_goes_into_a_full_group(shard: Shard):
    limit(shard, 1)
    await shard.publish("group", b"dead")
    lease = await shard.transport.claim("worker", 30)
    await shard.transport.settle(Settlement.dead(lease, "why"))
    await shard.publish("group")
    [(entry, _)] = shard.redis.xrange(shard.named("dead"))

    assert await shard.transport.perform(calls.redrive(shard.prefix, [entry.decode()])) == 1

    assert shard.depth("group") == 2


async def test_without_a_limit_a_group_takes_any_number(shard: Shard):
    await send(shard, *(keyed(f"key-{number}") for number in range(1_000)))

    assert shard.depth("group") == 1_000


async def test_refused_calls_do_not_use_up_publishers_names(shard: Shard):
    limit(shard, 1)
    for number in range(20):
        await shard.publish(f"group-{number}")
        with pytest.raises(GroupFull):
            await shard.publish(f"group-{number}")

    assert len([name for name in shard.names() if name.startswith("publisher:")]) == 1


async def test_a_refusal_whose_reply_was_lost_is_a_refusal_when_repeated(
    proxied_shard: Shard, proxy: Proxy
):
    limit(proxied_shard, 1)
    await proxied_shard.publish("group")
    proxy.lose_reply()

    with pytest.raises(GroupFull):
        await proxied_shard.publish("group")

    assert proxied_shard.depth("group") == 1


async def test_the_last_place_taken_by_a_lost_reply_is_not_refused_when_repeated(
    proxied_shard: Shard, proxy: Proxy
):
    limit(proxied_shard, 1)
    proxy.lose_reply()

    await proxied_shard.publish("group")

    assert proxied_shard.depth("group") == 1


async def test_with_a_limit_a_call_takes_five_hundred_messages(shard: Shard):
    limit(shard, 1_000)

    with pytest.raises(InvalidArgument, match="1 to 500"):
        await shard.transport.publish_envelopes([envelope("group") for _ in range(501)])
    await shard.transport.publish_envelopes([envelope("group") for _ in range(500)])
