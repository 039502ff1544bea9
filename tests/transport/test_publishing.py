"""Does publishing append in order, all or nothing, and leave running groups alone?"""

from __future__ import annotations

import asyncio

import pytest

from groupqueue.core.calls import Settlement
from groupqueue.core.messages import HEAD_LENGTH
from groupqueue.exceptions import InvalidArgument, InvalidMessage, WrongKeyType
from tests.transport.shards import Shard, envelope


async def test_a_message_comes_back_as_it_was_published(shard: Shard):
    before = shard.now_ms()
    [identifier] = await shard.publish("order-17", b'["paid",{"id":17}]', priority=3)
    after = shard.now_ms()

    lease = await shard.transport.claim("worker", 30)

    assert (lease.group, lease.id, lease.payload) == ("order-17", identifier, b'["paid",{"id":17}]')
    assert (lease.priority, lease.deliveries, lease.failures, lease.crashes) == (3, 1, 0, 0)
    assert int(before) <= lease.published_ms <= after
    assert lease.expires_ms == 0


@pytest.mark.parametrize(
    "group",
    [
        "a b\nc",
        "ÅÄÖ-日本-🚀",
        "{tag}:with:colons",
        "*?[x]\\",
        "\0",
        "q:x",
        "-1",
        "1e15",
        "x" * 512,
        "ü" * 256,
    ],
)
async def test_any_text_up_to_512_bytes_is_a_group(shard: Shard, group):
    await shard.publish(group, b"first", b"second")

    lease = await shard.transport.claim("worker", 30)
    assert lease.group == group
    assert await shard.transport.ack(lease) == 1
    lease = await shard.transport.claim("worker", 30)
    assert (lease.payload, await shard.transport.ack(lease)) == (b"second", 0)


@pytest.mark.parametrize(
    ("group", "payload", "priority", "named"),
    [
        ("", b"", 0, "''"),
        ("x" * 513, b"", 0, "513"),
        ("ü" * 257, b"", 0, "514"),
        ("\ud800", b"", 0, "ud800"),
        (None, b"", 0, "None"),
        (17, b"", 0, "17"),
        (b"bytes", b"", 0, "bytes"),
        ("g", "text", 0, "str"),
        ("g", None, 0, "NoneType"),
        ("g", b"", 1.5, "1.5"),
        ("g", b"", "high", "'high'"),
        ("g", b"", True, "True"),
        ("g", b"", None, "None"),
    ],
)
async def test_what_is_no_message_is_refused_by_name_and_not_stored(
    shard: Shard, group, payload, priority, named
):
    with pytest.raises(InvalidMessage, match=named):
        await shard.transport.publish(group, payload, priority)

    assert shard.names() == set()


@pytest.mark.parametrize("payload", [b"", b"\0\r\n\xff", bytes(range(256)) * 4096])
async def test_payloads_are_bytes_of_any_kind_up_to_a_mebibyte(shard: Shard, payload):
    await shard.publish("group", payload)

    lease = await shard.transport.claim("worker", 30)

    assert lease.payload == payload


async def test_a_call_takes_a_thousand_messages_of_one_group_in_order(shard: Shard):
    sent = [envelope("group", str(number).encode()) for number in range(1000)]

    await shard.transport.publish_envelopes(sent)

    stored = shard.redis.lrange(shard.keys.fifo("group"), 0, -1)
    assert [element[:32].decode() for element in stored] == [each.id for each in sent]
    assert [element[HEAD_LENGTH:] for element in stored] == [each.body for each in sent]


async def test_a_call_takes_a_thousand_messages_of_as_many_groups(shard: Shard):
    sent = [envelope(f"group-{number}", tier=number % 5) for number in range(1000)]

    await shard.transport.publish_envelopes(sent)

    turned = await shard.transport.turn("worker", [], 400, visibility=30)
    assert len({lease.group for lease in turned.leases}) == 400
    assert [shard.redis.zcard(shard.keys.ready(tier)) for tier in range(5)] == [200] * 5
    assert {lease.priority for lease in turned.leases} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("count", [0, 1001])
async def test_a_call_of_no_or_too_many_messages_is_refused(shard: Shard, count):
    with pytest.raises(InvalidArgument, match=str(count)):
        await shard.transport.publish_envelopes([envelope("group")] * count)

    assert shard.names() == set()


async def test_groups_published_together_queue_up_in_the_order_of_their_first_message(shard: Shard):
    sent = [envelope(group) for group in ("b", "a", "c", "a", "b", "d")]

    await shard.transport.publish_envelopes(sent)

    assert [lease.group for lease in await shard.claim_all()] == ["b", "a", "c", "d"]


async def test_groups_published_one_by_one_queue_up_in_that_order(shard: Shard):
    groups = [f"group-{number * 7 % 30}" for number in range(30)]
    for group in groups:
        await shard.publish(group)

    assert [lease.group for lease in await shard.claim_all()] == groups


async def test_messages_of_a_group_are_delivered_in_the_order_of_their_publishing(shard: Shard):
    await shard.publish("group", b"1", b"2")
    await shard.transport.publish_envelopes([envelope("group", b"3"), envelope("group", b"4")])
    seen = []
    while lease := await shard.transport.claim("worker", 30):
        seen.append(lease.payload)
        await shard.publish("group", b"later") if lease.payload == b"2" else None
        await shard.transport.ack(lease)

    assert seen == [b"1", b"2", b"3", b"4", b"later"]


async def test_one_group_of_the_wrong_kind_and_no_message_of_the_call_is_stored(shard: Shard):
    shard.redis.set(shard.keys.fifo("broken"), "no list")
    before = shard.dump()

    with pytest.raises(WrongKeyType):
        await shard.transport.publish_envelopes(
            [envelope("first"), envelope("broken"), envelope("last")]
        )

    assert shard.dump() == before


async def test_publishing_into_a_leased_group_does_not_make_it_claimable(shard: Shard):
    await shard.publish("group")
    await shard.transport.claim("worker", 30)
    place = shard.place("group")

    await shard.publish("group", b"2")

    assert shard.place("group") == place
    assert await shard.transport.claim("other", 30) is None


async def test_publishing_into_a_parked_group_does_not_make_it_claimable(shard: Shard):
    await shard.publish("group")
    await shard.transport.nack(await shard.transport.claim("worker", 30), 60)
    place = shard.place("group")

    await shard.publish("group", b"2")

    assert shard.place("group") == place
    assert await shard.transport.claim("other", 30) is None


async def test_publishing_into_a_halted_group_does_not_make_it_claimable(shard: Shard):
    await shard.publish("group")
    lease = await shard.transport.claim("worker", 30)
    await shard.transport.settle(Settlement.halt(lease, "max_attempts"))

    await shard.publish("group", b"2")

    assert shard.place("group") == (0, float("inf"))
    assert await shard.transport.claim("other", 30) is None


async def test_a_group_that_lost_its_place_gets_it_back_with_the_next_message(shard: Shard):
    await shard.publish("group", b"1", priority=2)
    shard.redis.zrem(shard.keys.ready(2), "group")
    assert await shard.transport.claim("worker", 30) is None

    await shard.publish("group", b"2", priority=4)

    lease = await shard.transport.claim("worker", 30)
    assert (lease.payload, lease.priority) == (b"1", 2)


async def test_a_leased_group_that_lost_its_place_is_not_leased_twice(shard: Shard):
    await shard.publish("group", b"1")
    await shard.transport.claim("worker", 30)
    shard.redis.zrem(shard.keys.ready(0), "group")

    await shard.publish("group", b"2")

    assert await shard.transport.claim("other", 30) is None
    lease_ends = shard.expiry(shard.keys.lock("group"))
    assert abs(shard.place("group")[1] - lease_ends) <= shard.same_moment_ms


async def test_fresh_groups_stand_in_front_when_the_queue_is_set_so(shard: Shard):
    await shard.publish("old", b"1", b"2")
    front = shard.transport
    inner = getattr(front, "bare", front)
    inner._arrival = "front"
    await shard.publish("fresh", b"1", b"2")

    fresh = await front.claim("worker", 30)
    await front.ack(fresh)

    # Only the arrival is in front: once served, it waits its turn.
    assert (fresh.group, (await front.claim("worker", 30)).group) == ("fresh", "old")


async def test_twenty_publishers_at_once_lose_nothing_and_keep_each_ones_order(shard: Shard):
    async def publisher(number: int) -> None:
        for step in range(20):
            await shard.publish("shared", f"{number}:{step}".encode())

    await asyncio.gather(*(publisher(number) for number in range(20)))

    elements = shard.redis.lrange(shard.keys.fifo("shared"), 0, -1)
    bodies = [element[HEAD_LENGTH:].decode().split(":") for element in elements]
    assert len({element[:32] for element in elements}) == 400
    for number in range(20):
        steps = [int(step) for sender, step in bodies if sender == str(number)]
        assert steps == list(range(20))
