"""Does a lease of several messages keep their order, their counters, and nobody else waiting?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.messages import Lease
from groupqueue.core.rates import Rate, Rates
from groupqueue.exceptions import StaleLease
from tests.transport.envelopes import audit, expiring, held, send, send_expired, stat
from tests.transport.shards import Shard, envelope

MEGABYTE = 1024 * 1024


async def take(shard: Shard, batch: int = 5, want: int = 10) -> list[Lease]:
    turned = await shard.transport.turn("worker", [], want, visibility=60, batch=batch)
    return turned.leases


async def settle(shard: Shard, settlement: Settlement) -> tuple[str, int]:
    [settled] = (await shard.transport.turn("worker", [settlement], 0, visibility=60)).settled
    audit(shard)
    return tuple(settled)


def payloads(lease: Lease) -> list[bytes]:
    return [lease.payload, *(leased.payload for leased in lease.rest)]


def note(shard: Shard, group: str = "group") -> bytes | None:
    return shard.redis.get(shard.named(f"batch:{group}"))


async def numbers(shard: Shard, count: int = 8, group: str = "group") -> list[str]:
    return await shard.publish(group, *(b"%d" % number for number in range(count)))


async def test_a_lease_takes_up_to_batch_messages_in_order(shard: Shard):
    ids = await numbers(shard)

    [lease] = await take(shard, batch=5)

    assert payloads(lease) == [b"0", b"1", b"2", b"3", b"4"]
    assert [lease.id, *(leased.id for leased in lease.rest)] == ids[:5]
    assert not lease.is_alone
    assert stat(shard, "delivered") == 5


async def test_a_group_with_fewer_messages_gives_what_it_has(shard: Shard):
    await numbers(shard, 3)
    await shard.publish("other", b"x")

    first, second = await take(shard, batch=50)

    assert payloads(first) == [b"0", b"1", b"2"]
    assert payloads(second) == [b"x"]
    assert second.rest == ()


async def test_while_it_lasts_nobody_else_gets_any_of_the_group(shard: Shard):
    await numbers(shard)
    await take(shard, batch=3)

    assert await take(shard) == []


async def test_acknowledging_all_leaves_what_came_behind(shard: Shard):
    await numbers(shard)
    [lease] = await take(shard, batch=5)

    assert await settle(shard, Settlement.ack(lease, 5)) == ("ok", 3)

    assert stat(shard, "acked") == 5
    assert note(shard) is None
    [following] = await take(shard, batch=5)
    assert payloads(following) == [b"5", b"6", b"7"]
    assert following.deliveries == 1


async def test_acknowledging_a_prefix_hands_the_rest_back_uncounted(shard: Shard):
    await numbers(shard)
    [lease] = await take(shard, batch=5)

    assert await settle(shard, Settlement.ack(lease, 2)) == ("ok", 6)

    [following] = await take(shard, batch=5)
    assert payloads(following)[0] == b"2"
    assert (following.deliveries, following.crashes) == (1, 0)


async def test_a_failure_behind_finished_messages_is_the_failed_ones_own(shard: Shard):
    await numbers(shard)
    [lease] = await take(shard, batch=5)

    assert await settle(shard, Settlement.retry(lease, 0, "boom", done=2)) == ("ok", 6)

    assert (stat(shard, "acked"), stat(shard, "retried")) == (2, 1)
    [again] = await take(shard, batch=5)
    # What failed goes alone: should it be at fault for others' failing, it is found.
    assert payloads(again) == [b"2"]
    assert (again.deliveries, again.failures, again.crashes) == (2, 1, 0)


async def test_a_release_behind_finished_messages_counts_no_delivery(shard: Shard):
    await numbers(shard)
    [lease] = await take(shard, batch=5)

    assert await settle(shard, Settlement.release(lease, done=2)) == ("ok", 6)

    [again] = await take(shard, batch=2)
    assert payloads(again) == [b"2", b"3"]
    assert (again.deliveries, again.failures) == (1, 0)


async def test_a_dead_letter_behind_finished_messages_is_that_message(shard: Shard):
    ids = await numbers(shard)
    [lease] = await take(shard, batch=5)

    assert await settle(shard, Settlement.dead(lease, "why", "boom", done=2)) == ("ok", 5)

    [(_, letter)] = shard.redis.xrange(shard.named("dead"))
    assert letter[b"element"][:32].decode() == ids[2]
    assert (letter[b"deliveries"], letter[b"failures"]) == (b"1", b"1")
    [following] = await take(shard, batch=2)
    assert payloads(following) == [b"3", b"4"]
    assert following.deliveries == 1


async def test_a_halt_behind_finished_messages_holds_the_group_at_that_message(shard: Shard):
    await numbers(shard)
    [lease] = await take(shard, batch=5)

    assert await settle(shard, Settlement.halt(lease, "why", "boom", done=2)) == ("ok", 6)

    assert await take(shard) == []
    await shard.transport.perform(calls.resume(shard.prefix, "group"))
    [again] = await take(shard, batch=2)
    assert payloads(again)[0] == b"2"
    assert again.failures == 0


async def test_a_stale_token_takes_nothing_of_the_batch(shard: Shard):
    await numbers(shard)
    [stale] = await take(shard, batch=5)
    shard.let_lease_run_out("group")
    await take(shard)
    before = shard.dump()

    assert await settle(shard, Settlement.ack(stale, 5)) == ("stale", 0)
    with pytest.raises(StaleLease):
        await shard.transport.ack(stale)
    assert shard.dump() == before


async def test_acking_and_nacking_by_themselves_know_leases_of_several(shard: Shard):
    await numbers(shard)
    [lease] = await take(shard, batch=3)
    assert await shard.transport.ack(lease) == 5
    [lease] = await take(shard, batch=3)

    assert await shard.transport.nack(lease) == 5

    assert note(shard) is None
    [again] = await take(shard, batch=3)
    assert (payloads(again), again.failures) == ([b"3"], 1)


# After a crash ------------------------------------------------------------------------------


async def test_after_a_crash_each_of_those_in_flight_goes_alone_until_all_have_ended(shard: Shard):
    await numbers(shard)
    await take(shard, batch=3)

    for number in range(3):
        if number == 0:
            shard.let_lease_run_out("group")
        [lease] = await take(shard, batch=3)
        assert payloads(lease) == [b"%d" % number]
        assert lease.is_alone
        # Only the head can be blamed at first; it is not for those that follow it.
        assert lease.crashes == (1 if number == 0 else 0)
        await settle(shard, Settlement.ack(lease))

    [lease] = await take(shard, batch=3)
    assert payloads(lease) == [b"3", b"4", b"5"]
    assert not lease.is_alone


async def test_the_guilty_one_of_a_batch_is_exhausted_and_the_others_are_not(shard: Shard):
    await numbers(shard, 4)
    crashes: dict[bytes, int] = {}
    done: list[bytes] = []

    for _ in range(40):
        if not (leases := await take(shard, batch=4)):
            break
        [lease] = leases
        if lease.crashes >= 3:
            crashes[lease.payload] = lease.crashes
            await settle(shard, Settlement.dead(lease, "poison"))
        elif b"2" in payloads(lease):
            shard.let_lease_run_out("group")  # it takes its worker down
        else:
            done += payloads(lease)
            await settle(shard, Settlement.ack(lease, len(payloads(lease))))

    assert done == [b"0", b"1", b"3"]
    assert crashes == {b"2": 3}
    assert note(shard) is None


async def test_what_goes_alone_counts_as_one_delivery_and_once_for_a_rate(shard: Shard):
    await numbers(shard, 3)
    await take(shard, batch=3)
    shard.let_lease_run_out("group")
    rates = Rates(group=Rate(3_600_000_000, 2))

    async def take_under_rate(*ends: Settlement) -> list[Lease]:
        turned = await shard.transport.turn("w", ends, 1, visibility=60, batch=3, rates=rates)
        return turned.leases

    [first] = await take_under_rate()
    assert first.is_alone
    assert stat(shard, "delivered") == 4

    [second] = await take_under_rate(Settlement.ack(first))
    assert payloads(second) == [b"1"]
    assert await take_under_rate(Settlement.ack(second)) == []


async def test_a_dead_letter_ends_going_alone(shard: Shard):
    await numbers(shard)
    await take(shard, batch=4)
    shard.let_lease_run_out("group")
    [lease] = await take(shard, batch=4)

    await settle(shard, Settlement.dead(lease, "poison"))

    [following] = await take(shard, batch=4)
    assert len(payloads(following)) == 4


@pytest.mark.parametrize("end", ["recover", "release"])
async def test_leases_handed_back_unhandled_do_not_go_alone(shard: Shard, end: str):
    await numbers(shard)
    await take(shard, batch=4)

    if end == "recover":
        assert await shard.transport.recover("worker", 0) == 1
    else:
        await shard.transport.perform(calls.release(shard.prefix, "group"))

    [again] = await take(shard, batch=4)
    assert len(payloads(again)) == 4
    assert again.deliveries == 1


@pytest.mark.parametrize("end", ["recover", "release"])
async def test_going_alone_is_not_over_when_a_lease_is_handed_back(shard: Shard, end: str):
    await numbers(shard)
    await take(shard, batch=3)
    shard.let_lease_run_out("group")
    [lease] = await take(shard, batch=3)
    assert lease.is_alone

    if end == "recover":
        assert await shard.transport.recover("worker", 0) == 1
    else:
        await shard.transport.perform(calls.release(shard.prefix, "group"))

    [again] = await take(shard, batch=3)
    assert again.is_alone


@pytest.mark.parametrize(
    ("settlement", "acked", "released"),
    [
        (lambda lease: Settlement.ack(lease, 5), 5, 0),
        (lambda lease: Settlement.ack(lease, 2), 2, 3),
        (lambda lease: Settlement.retry(lease, 0, done=2), 2, 2),
        (lambda lease: Settlement.dead(lease, "why", done=2), 2, 2),
        (lambda lease: Settlement.release(lease, done=1), 1, 4),
        (Settlement.release, 0, 5),
    ],
)
async def test_what_is_handed_back_of_a_batch_is_counted_as_released(
    shard: Shard, settlement: Callable[[Lease], Settlement], acked: int, released: int
):
    await numbers(shard)
    [lease] = await take(shard, batch=5)

    await settle(shard, settlement(lease))

    assert (stat(shard, "acked"), stat(shard, "released")) == (acked, released)
    assert stat(shard, "delivered") == 5


@pytest.mark.parametrize("end", ["recover", "release"])
async def test_a_batch_handed_back_as_a_whole_is_counted_message_by_message(shard: Shard, end: str):
    await numbers(shard)
    await take(shard, batch=5)

    if end == "recover":
        assert await shard.transport.recover("worker", 0) == 1
    else:
        await shard.transport.perform(calls.release(shard.prefix, "group"))

    assert stat(shard, "released") == stat(shard, "delivered") == 5


async def test_what_is_noted_of_a_batch_ends_by_itself(shard: Shard):
    await numbers(shard)
    await take(shard, batch=4)

    assert 0 < shard.redis.pttl(shard.named("batch:group")) <= 3_600_000


async def test_a_purge_forgets_the_batch(shard: Shard):
    await numbers(shard)
    await take(shard, batch=4)

    await shard.transport.perform(calls.purge(shard.prefix, ["group"]))

    assert note(shard) is None


# What ends a batch ----------------------------------------------------------------------------


async def test_what_was_tried_before_goes_alone(shard: Shard):
    await numbers(shard)
    lease = await shard.transport.claim("worker", 60)
    await shard.transport.nack(lease)

    [again] = await take(shard, batch=4)

    assert payloads(again) == [b"0"]
    assert not again.is_alone


async def test_an_expired_message_ends_a_batch_and_is_dropped_once_it_is_the_head(shard: Shard):
    await shard.publish("group", b"0", b"1")
    [expired] = await send_expired(shard, expiring("group"))
    await shard.publish("group", b"3")

    [lease] = await take(shard, batch=10)
    assert payloads(lease) == [b"0", b"1"]
    await settle(shard, Settlement.ack(lease, 2))
    turned = await shard.transport.turn("worker", [], 1, visibility=60, batch=10)

    assert [gone.id for gone in turned.expired] == [expired]
    assert [payloads(lease) for lease in turned.leases] == [[b"3"]]


async def test_a_held_message_ends_a_batch(shard: Shard):
    await shard.publish("group", b"0", b"1")
    await send(shard, held("group"))
    await shard.publish("group", b"3")

    [lease] = await take(shard, batch=10)

    assert payloads(lease) == [b"0", b"1"]


async def test_a_turn_leases_no_more_than_some_megabytes(shard: Shard):
    for number in range(12):
        messages = [envelope(f"group-{number}", b"x" * MEGABYTE)]
        await shard.transport.publish_envelopes(messages)

    turned = await shard.transport.turn("worker", [], 12, visibility=60)

    assert len(turned.leases) == 4
    assert turned.wait_ms == 0  # somebody else takes the others at once


async def test_a_batch_of_large_messages_is_cut_short(shard: Shard):
    for _ in range(30):
        await shard.transport.publish_envelopes([envelope("group", b"x" * MEGABYTE)])
    await shard.publish("other", b"small")

    first, *others = await take(shard, batch=30)

    assert 4 <= len(payloads(first)) <= 17
    assert others == []


async def test_a_batch_of_a_thousand_is_taken_in_few_commands(real_shard: Shard):
    shard = real_shard
    await numbers(shard, 1000)
    shard.redis.config_resetstat()

    [lease] = await take(shard, batch=1000)

    assert len(payloads(lease)) == 1000
    ranges = shard.redis.info("commandstats")["cmdstat_lrange"]["calls"]
    assert ranges <= 2


# Dead letters that come back meanwhile ----------------------------------------------------------


async def redrive(shard: Shard) -> int:
    entries = [entry.decode() for entry, _ in shard.redis.xrange(shard.named("dead"))]
    return await shard.transport.perform(calls.redrive(shard.prefix, entries))


async def dead_letter(shard: Shard) -> None:
    """Set the first of a group's messages aside."""
    await shard.publish("group", b"dead")
    [lease] = await take(shard, batch=1)
    await settle(shard, Settlement.dead(lease, "why"))


async def test_a_redriven_message_goes_behind_all_that_a_lease_holds(shard: Shard):
    await dead_letter(shard)
    await numbers(shard)
    [lease] = await take(shard, batch=3)

    assert await redrive(shard) == 1
    assert await settle(shard, Settlement.ack(lease, 3)) == ("ok", 6)

    [following] = await take(shard, batch=3)
    assert payloads(following) == [b"dead", b"3", b"4"]


async def test_a_redriven_message_goes_right_behind_one_that_goes_alone(shard: Shard):
    await dead_letter(shard)
    await numbers(shard)
    await take(shard, batch=3)
    shard.let_lease_run_out("group")
    [lease] = await take(shard, batch=3)

    assert await redrive(shard) == 1
    await settle(shard, Settlement.ack(lease))

    [following] = await take(shard, batch=3)
    assert payloads(following) == [b"dead"]


async def test_a_lease_that_is_renewed_keeps_its_note(shard: Shard):
    await numbers(shard)
    [lease] = await take(shard, batch=3)
    shard.redis.pexpire(shard.named("batch:group"), 1000)

    await shard.transport.renew([lease], 60)

    assert shard.redis.pttl(shard.named("batch:group")) > 3_500_000


async def test_who_takes_no_batches_is_not_mistaken_for_the_worker_that_fell_silent(shard: Shard):
    await dead_letter(shard)
    await numbers(shard)
    await take(shard, batch=3)
    shard.let_lease_run_out("group")
    [lease] = await take(shard, batch=1)
    before = stat(shard, "released")

    assert await redrive(shard) == 1
    assert await shard.transport.perform(calls.release(shard.prefix, "group"))

    assert stat(shard, "released") == before + 1
    assert shard.redis.lrange(shard.keys.fifo("group"), 0, 1)[0].startswith(lease.id.encode())
    assert shard.redis.lindex(shard.keys.fifo("group"), 1).endswith(b"dead")
