"""Is a message that is too old dropped before anybody gets it, counted, and told of?"""

from __future__ import annotations

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Gone, Settlement
from tests.transport.envelopes import (
    audit,
    bodies,
    expiring,
    handle_all,
    let_come,
    let_pass,
    promote,
    scheduled,
    send,
    send_expired,
    stat,
)
from tests.transport.shards import Shard, envelope
from tests.transport.test_cleanliness import left_behind

LONG_MS = 3_600_000
# A call drops this many, and one more per group that it looks at.
DROPPED_PER_CALL = 1000


async def test_an_expired_head_is_dropped_and_the_next_message_is_claimed(shard: Shard):
    [old] = await send_expired(shard, expiring("group", b"old"))
    await shard.publish("group", b"fresh")

    turned = await shard.transport.turn("worker", [], 1, visibility=30)

    assert bodies(turned.leases) == [b"fresh"]
    assert turned.leases[0].deliveries == 1
    assert turned.expired == [Gone("group", old)]
    assert stat(shard, "expired") == 1
    assert shard.redis.hget(shard.named("backlog"), "0") == b"1"
    audit(shard)


async def test_a_claim_drops_what_has_expired_too(shard: Shard):
    await send_expired(shard, expiring("group", b"old"))
    await shard.publish("group", b"fresh")

    assert (await shard.transport.claim("worker", 30)).payload == b"fresh"
    assert stat(shard, "expired") == 1
    audit(shard)


async def test_a_message_is_delivered_until_it_expires_and_says_when(shard: Shard):
    before = int(shard.now_ms())
    await send(shard, expiring("group", expires_ms=LONG_MS))

    turned = await shard.transport.turn("worker", [], 1, visibility=30)

    [lease] = turned.leases
    assert before + LONG_MS <= lease.expires_ms <= shard.now_ms() + LONG_MS
    assert turned.expired == []


async def test_a_turn_without_expired_messages_names_none(shard: Shard):
    await shard.publish("group")

    assert (await shard.transport.turn("worker", [], 5, visibility=30)).expired == []


async def test_expired_messages_between_live_ones_are_dropped_when_they_come_first(shard: Shard):
    await send_expired(
        shard,
        envelope("group", b"1"),
        expiring("group", b"old"),
        envelope("group", b"2"),
        expiring("group", b"old"),
        expiring("group", b"old"),
        envelope("group", b"3"),
    )

    assert bodies(await handle_all(shard)) == [b"1", b"2", b"3"]

    assert stat(shard, "expired") == 3
    assert left_behind(shard) == set()


async def test_a_group_whose_messages_have_all_expired_leaves_nothing_behind(shard: Shard):
    await send_expired(shard, *(expiring(f"g{n % 5}", tier=n % 5) for n in range(20)))

    turned = await shard.transport.turn("worker", [], 50, visibility=30)

    assert turned.leases == []
    assert len(turned.expired) == 20
    assert left_behind(shard) == set()
    assert {int(left) for left in shard.redis.hvals(shard.named("backlog"))} == {0}


async def test_dropping_takes_nothing_from_what_a_turn_may_claim(shard: Shard):
    await send_expired(shard, *(expiring(f"old-{n}") for n in range(5)))
    await shard.publish_many([(f"live-{n}", b"1", 0) for n in range(3)])

    turned = await shard.transport.turn("worker", [], 3, visibility=30)

    assert {lease.group for lease in turned.leases} == {"live-0", "live-1", "live-2"}


async def test_nobody_is_told_to_wait_while_expired_messages_are_left(shard: Shard):
    await send_expired(shard, *(expiring("group") for _ in range(DROPPED_PER_CALL + 10)))

    turned = await shard.transport.turn("worker", [], 1, visibility=30)

    assert (turned.leases, turned.wait_ms) == ([], 0)
    assert len(turned.expired) == DROPPED_PER_CALL
    assert shard.redis.llen(shard.named("wake")) > 0
    audit(shard)


@pytest.mark.parametrize("count", [101, 250, 2_500])
async def test_any_number_of_expired_heads_goes_without_one_being_delivered(
    shard: Shard, count: int
):
    await send_expired(shard, *(expiring("group", b"old") for _ in range(count)))
    await shard.publish("group", b"fresh")
    dropped = []

    leases = []
    while not leases:
        turned = await shard.transport.turn("worker", [], 1, visibility=30)
        assert turned.leases or turned.wait_ms == 0
        leases = turned.leases
        dropped.append(len(turned.expired))
        audit(shard)

    assert bodies(leases) == [b"fresh"]
    assert sum(dropped) == count == stat(shard, "expired")
    assert max(dropped) <= DROPPED_PER_CALL


async def test_what_one_call_drops_is_bounded_over_all_groups(shard: Shard):
    groups = [f"g{number}" for number in range(300)]
    await send_expired(shard, *(expiring(group, b"old") for _ in range(8) for group in groups))
    await shard.publish_many([(group, b"fresh", 0) for group in groups])
    dropped, claimed = [], []

    while len(claimed) < 300:
        turned = await shard.transport.turn("worker", [], 300, visibility=30)
        assert turned.leases or turned.expired
        claimed += turned.leases
        dropped.append(len(turned.expired))
        audit(shard)

    assert {lease.payload for lease in claimed} == {b"fresh"}
    assert sum(dropped) == 2_400
    assert max(dropped) <= DROPPED_PER_CALL + 300


# Leases ----------------------------------------------------------------------------------------


async def test_a_message_that_expires_under_its_lease_is_its_holders(shard: Shard):
    await send(shard, expiring("group", b"1", expires_ms=200), envelope("group", b"2"))
    lease = await shard.transport.claim("worker", 30)
    await let_pass(shard, 200)

    assert await shard.transport.renew([lease], 60) == []
    assert (await shard.transport.turn("other", [], 5, visibility=30)).expired == []
    assert await shard.transport.ack(lease) == 1
    assert stat(shard, "expired") == 0


async def test_expired_messages_behind_a_lease_are_left_alone(shard: Shard):
    await shard.publish("group", b"1")
    await send_expired(shard, expiring("group"), expiring("group"))
    lease = await shard.transport.claim("worker", 30)

    assert (await shard.transport.turn("other", [], 5, visibility=30)).expired == []

    assert shard.depth("group") == 3
    assert shard.redis.get(shard.keys.lock("group")) == str(lease.token).encode()
    turned = await shard.transport.turn("worker", [Settlement.ack(lease)], 5, visibility=30)
    assert len(turned.expired) == 2


GIVEN_BACK = {
    "retried": lambda shard, lease: shard.transport.nack(lease, error="boom"),
    "released": lambda shard, lease: shard.transport.settle(Settlement.release(lease)),
    "recovered": lambda shard, lease: shard.transport.recover("worker", 0),
}


@pytest.mark.parametrize("give_back", GIVEN_BACK.values(), ids=GIVEN_BACK)
async def test_a_message_that_comes_back_too_late_is_dropped_at_the_next_claim(
    shard: Shard, give_back
):
    [old] = await send(shard, expiring("group", expires_ms=200))
    lease = await shard.transport.claim("worker", 30)
    await give_back(shard, lease)
    await let_pass(shard, 200)

    turned = await shard.transport.turn("worker", [], 5, visibility=30)

    assert (turned.leases, turned.expired) == ([], [Gone("group", old)])
    # Its counters go with it.
    assert left_behind(shard) == set()


async def test_a_message_whose_worker_died_is_dropped_once_it_has_expired(shard: Shard):
    await send(shard, expiring("group", expires_ms=200), envelope("group", b"next"))
    await shard.transport.claim("dead", 30)
    shard.let_lease_run_out("group")
    await let_pass(shard, 200)

    lease = await shard.transport.claim("worker", 30)

    assert (lease.payload, lease.deliveries, lease.crashes) == (b"next", 1, 0)
    assert shard.redis.hgetall(shard.named("holders")) == {b"group": b"worker"}


# Other states ----------------------------------------------------------------------------------


async def test_a_paused_group_keeps_what_has_expired_until_it_is_resumed(shard: Shard):
    await send_expired(shard, expiring("group"))
    await shard.transport.perform(calls.pause(shard.prefix, "group", "why"))
    assert (await shard.transport.turn("worker", [], 5, visibility=30)).expired == []
    assert shard.depth("group") == 1

    await shard.transport.perform(calls.resume(shard.prefix, "group"))

    assert len((await shard.transport.turn("worker", [], 5, visibility=30)).expired) == 1


async def test_a_turn_that_claims_nothing_drops_nothing(shard: Shard):
    await send_expired(shard, expiring("group"))

    turned = await promote(shard)

    assert (turned.expired, turned.wait_ms) == ([], 0)
    assert shard.depth("group") == 1


async def test_a_scheduled_message_that_has_expired_is_dropped_once_it_is_due(shard: Shard):
    late = scheduled("group")
    late = late._replace(options=late.options._replace(expires_ms=1))
    [identifier] = await send_expired(shard, late)
    let_come(shard, identifier)

    turned = await shard.transport.turn("worker", [], 5, visibility=30)

    assert (turned.leases, turned.expired) == ([], [Gone("group", identifier)])
    assert left_behind(shard) == set()


async def test_a_held_message_that_has_expired_holds_until_it_is_due_and_is_dropped(shard: Shard):
    waits = scheduled("group")
    waits = waits._replace(options=waits.options._replace(expires_ms=1, hold=True))
    [identifier] = await send_expired(shard, waits)
    await shard.publish("group", b"behind")
    assert await shard.transport.claim("worker", 30) is None

    let_come(shard, identifier)

    assert bodies(await handle_all(shard)) == [b"behind"]
    assert left_behind(shard) == set()


async def test_a_held_message_that_has_expired_holds_behind_another_expired_one_too(shard: Shard):
    waits = scheduled("group")
    waits = waits._replace(options=waits.options._replace(expires_ms=1, hold=True))
    first, identifier = await send_expired(shard, expiring("group"), waits)
    await shard.publish("group", b"behind")

    turned = await shard.transport.turn("worker", [], 5, visibility=60)

    assert (turned.leases, turned.expired) == ([], [Gone("group", first)])
    audit(shard)
    let_come(shard, identifier)
    assert bodies(await handle_all(shard)) == [b"behind"]
    assert left_behind(shard) == set()


async def test_a_redriven_message_keeps_its_expiry(shard: Shard):
    [identifier] = await send(shard, expiring("group", expires_ms=200))
    lease = await shard.transport.claim("worker", 30)
    await shard.transport.settle(Settlement.dead(lease, "why"))
    await let_pass(shard, 200)
    [(entry, _)] = shard.redis.xrange(shard.named("dead"))

    await shard.transport.perform(calls.redrive(shard.prefix, [entry.decode()]))

    turned = await shard.transport.turn("worker", [], 5, visibility=30)
    assert turned.expired == [Gone("group", identifier)]


@pytest.mark.parametrize(
    "head", [b"f" * 58, b"a" * 45 + b"0000000000e00", b"a" * 45 + b"0x00000000001", b"short"]
)
async def test_bytes_that_are_no_message_never_expire(shard: Shard, head: bytes):
    await shard.publish("group")
    shard.redis.lset(shard.keys.fifo("group"), 0, head)

    assert (await shard.transport.claim("worker", 30)).payload == head


async def test_an_error_told_in_the_turn_that_drops_its_message_goes_with_it(shard: Shard):
    await send(shard, expiring("group", expires_ms=300))
    lease = await shard.transport.claim("worker", 30)
    await let_pass(shard, 300)

    turned = await shard.transport.turn(
        "worker", [Settlement.retry(lease, 0, "boom")], 1, visibility=30
    )

    assert [gone.id for gone in turned.expired] == [lease.id]
    assert left_behind(shard) == set()
