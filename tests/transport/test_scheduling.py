"""Do scheduled messages join their groups when they are due, in due order, at a bounded cost?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.exceptions import ServerOutOfMemory, WrongKeyType
from tests.transport.envelopes import (
    SOON_MS,
    agenda,
    audit,
    bodies,
    cancel,
    due_of,
    handle_all,
    held,
    let_come,
    promote,
    reschedule,
    scheduled,
    send,
    stat,
)
from tests.transport.shards import Shard, envelope
from tests.transport.test_cleanliness import left_behind

INFINITY = float("inf")
MANY = 20_000


# Before they are due -------------------------------------------------------------------------


async def test_a_scheduled_message_is_nowhere_in_its_group_before_it_is_due(shard: Shard):
    await send(shard, scheduled("group", tier=3))

    assert await shard.transport.claim("worker", 30) is None
    assert (await shard.transport.turn("worker", [], 5, visibility=30)).leases == []
    assert shard.places("group") == []
    assert not shard.redis.exists(
        shard.keys.fifo("group"), shard.named("prio"), shard.named("backlog")
    )
    assert stat(shard, "published") == 1


async def test_a_scheduled_message_does_not_hold_up_what_is_published_after_it(shard: Shard):
    await send(shard, scheduled("group", b"later"))
    await shard.publish("group", b"now")

    assert bodies(await handle_all(shard)) == [b"now"]


async def test_a_delay_counts_from_the_servers_clock(shard: Shard):
    before = int(shard.now_ms())
    [identifier] = await send(shard, scheduled("group", due="+5000"))

    assert before + 5000 <= due_of(shard, identifier) <= shard.now_ms() + 5000


@pytest.mark.parametrize("due", ["+0", "1", "1700000000000"])
async def test_what_is_due_already_joins_at_once(shard: Shard, due: str):
    await send(shard, scheduled("group", due=due), held("group", b"2", due=due))

    assert not shard.redis.exists(shard.named("scheduled"), shard.named("scheduled:data"))
    assert bodies(await handle_all(shard)) == [b"1", b"2"]


async def test_a_turn_tells_when_the_next_message_is_due(shard: Shard):
    await send(shard, scheduled("a", due="+50000"), scheduled("b", due="+20000"))

    assert 19_000 < (await promote(shard)).wait_ms <= 20_000
    await shard.publish("parked")
    await shard.transport.nack(await shard.transport.claim("worker", 30), 10)
    assert 9_000 < (await promote(shard)).wait_ms <= 10_000


async def test_only_a_sooner_moment_than_all_so_far_wakes_a_worker(shard: Shard):
    hints = []
    for due in ("+50000", "+60000", "+40000", "+45000"):
        await send(shard, scheduled("group", due=due))
        hints.append(shard.redis.llen(shard.named("wake")))

    assert hints == [1, 1, 2, 2]


async def test_the_agenda_lists_what_is_scheduled_soonest_first(shard: Shard):
    later, sooner, in_place = await send(
        shard,
        scheduled("späte Gruppe", b"payload", due="+50000"),
        scheduled("b" * 512, due="+20000"),
        held("c", due="+30000"),
    )

    seen = await agenda(shard)

    assert seen.total == 3
    assert [(row.id, row.group, row.is_held) for row in seen.messages] == [
        (sooner, "b" * 512, False),
        (in_place, "c", True),
        (later, "späte Gruppe", False),
    ]
    assert [row.id for row in (await agenda(shard, 1, 1)).messages] == [in_place]
    assert seen.messages[2].message.size_bytes == len(b"payload")
    assert seen.messages[1].message is None


# When they are due ---------------------------------------------------------------------------


async def test_due_messages_join_in_due_order_behind_what_waits(shard: Shard):
    await shard.publish("group", b"waits")
    third, first, second = await send(
        shard, scheduled("group", b"3"), scheduled("group", b"1"), scheduled("group", b"2")
    )
    let_come(shard, first, second, third)
    # Published after their moment, and before anybody looked.
    await shard.publish("group", b"waits too")

    assert bodies(await handle_all(shard)) == [b"waits", b"waits too", b"1", b"2", b"3"]


async def test_messages_of_one_moment_join_in_the_order_of_their_ids(shard: Shard):
    due = str(int(shard.now_ms()) + SOON_MS)
    messages = [scheduled("group", b"%d" % number, due=due) for number in range(20)]
    await send(shard, *reversed(messages))
    for sent in messages:
        shard.redis.zadd(shard.named("scheduled"), {sent.id: 1})

    assert bodies(await handle_all(shard)) == [b"%d" % number for number in range(20)]


async def test_a_claim_takes_what_has_just_become_due(shard: Shard):
    [identifier] = await send(shard, scheduled("group", b"late", tier=2))
    let_come(shard, identifier)

    lease = await shard.transport.claim("worker", 30)

    assert (lease.id, lease.payload, lease.priority) == (identifier, b"late", 2)
    assert (lease.deliveries, lease.expires_ms) == (1, 0)
    assert not shard.redis.exists(shard.named("scheduled"), shard.named("scheduled:data"))
    audit(shard)


async def test_a_turn_takes_what_has_just_become_due(shard: Shard):
    ids = await send(shard, *(scheduled(f"g{number}", tier=number) for number in range(5)))
    let_come(shard, *ids)

    turned = await shard.transport.turn("worker", [], 10, visibility=30)

    assert {lease.id for lease in turned.leases} == set(ids)
    audit(shard)


async def test_a_turn_that_claims_nothing_promotes_and_wakes_somebody(shard: Shard):
    [identifier] = await send(shard, scheduled("group"))
    let_come(shard, identifier)
    shard.redis.delete(shard.named("wake"))

    assert (await promote(shard)).wait_ms == 0

    assert shard.depth("group") == 1
    assert shard.redis.llen(shard.named("wake")) == 1


async def test_a_new_group_takes_the_tier_of_its_first_due_message(shard: Shard):
    second, first = await send(shard, scheduled("group", tier=1), scheduled("group", tier=4))
    let_come(shard, first, second)

    await promote(shard)

    assert shard.place("group")[0] == 4


async def test_a_group_that_waits_keeps_its_tier_and_its_place(shard: Shard):
    await shard.publish("group", priority=1)
    place = shard.place("group")
    [identifier] = await send(shard, scheduled("group", tier=4))
    let_come(shard, identifier)

    await promote(shard)

    assert shard.place("group") == place
    audit(shard)


async def test_a_leased_group_is_joined_without_being_disturbed(shard: Shard):
    await shard.publish("group", b"1")
    lease = await shard.transport.claim("worker", 30)
    place = shard.place("group")
    [identifier] = await send(shard, scheduled("group", b"2"))
    let_come(shard, identifier)

    assert await shard.transport.claim("other", 30) is None

    assert (shard.place("group"), shard.depth("group")) == (place, 2)
    assert await shard.transport.ack(lease) == 1
    assert (await shard.transport.claim("worker", 30)).payload == b"2"


async def test_a_parked_group_is_joined_and_stays_parked(shard: Shard):
    await shard.publish("group")
    await shard.transport.nack(await shard.transport.claim("worker", 30), 60)
    place = shard.place("group")
    [identifier] = await send(shard, scheduled("group"))
    let_come(shard, identifier)

    await promote(shard)

    assert (shard.place("group"), shard.depth("group")) == (place, 2)


@pytest.mark.parametrize("has_messages", [True, False])
async def test_a_paused_group_is_joined_and_stays_paused(shard: Shard, has_messages):
    if has_messages:
        await shard.publish("group")
    await shard.transport.perform(calls.pause(shard.prefix, "group", "why"))
    [identifier] = await send(shard, scheduled("group"))
    let_come(shard, identifier)

    assert await shard.transport.claim("worker", 30) is None

    assert shard.place("group") == (0, INFINITY)
    assert shard.depth("group") == 1 + has_messages
    audit(shard)


async def test_a_group_that_the_same_turn_halts_is_joined_and_stays_halted(shard: Shard):
    await shard.publish("group")
    lease = await shard.transport.claim("worker", 30)
    [identifier] = await send(shard, scheduled("group"))
    let_come(shard, identifier)

    turned = await shard.transport.turn("worker", [Settlement.halt(lease, "why")], 5, visibility=30)

    assert turned.leases == []
    assert (shard.place("group"), shard.depth("group")) == ((0, INFINITY), 2)


async def test_a_group_that_the_same_turn_drains_is_new_again(shard: Shard):
    await shard.publish("group", priority=1)
    lease = await shard.transport.claim("worker", 30)
    [identifier] = await send(shard, scheduled("group", tier=3))
    let_come(shard, identifier)

    turned = await shard.transport.turn("worker", [Settlement.ack(lease)], 5, visibility=30)

    assert [(lease.id, lease.priority) for lease in turned.leases] == [(identifier, 3)]
    audit(shard)


async def test_at_most_a_hundred_join_per_call_and_all_come_through_in_order(shard: Shard):
    messages = [scheduled(f"g{number % 7}", b"%d" % number) for number in range(250)]
    ids = await send(shard, *messages)
    let_come(shard, *ids)

    left = []
    while shard.redis.exists(shard.named("scheduled")):
        assert (await promote(shard)).wait_ms == 0
        left.append(shard.redis.zcard(shard.named("scheduled")))
        audit(shard)

    assert left == [150, 50, 0]
    handled = await handle_all(shard)
    for group in range(7):
        numbers = [int(lease.payload) for lease in handled if lease.group == f"g{group}"]
        assert numbers == list(range(group, 250, 7))


async def test_due_messages_beyond_a_calls_bound_keep_workers_coming(shard: Shard):
    ids = await send(shard, *(scheduled("group") for _ in range(101)))
    let_come(shard, *ids)
    await shard.publish("other")
    shard.redis.delete(shard.named("wake"))

    turned = await shard.transport.turn("worker", [], 5, visibility=30)

    assert {lease.group for lease in turned.leases} == {"group", "other"}
    assert turned.wait_ms == 0
    assert shard.redis.llen(shard.named("wake")) == 1


async def test_a_drained_agenda_leaves_nothing_behind(shard: Shard):
    ids = await send(shard, *(scheduled(f"g{n}", tier=n % 5) for n in range(30)), held("h"))
    let_come(shard, *ids)

    assert len(await handle_all(shard)) == 31

    assert left_behind(shard) == set()


# What it costs -------------------------------------------------------------------------------


def commands(shard: Shard) -> dict[str, int]:
    """Return how often each command was carried out, those of scripts among them."""
    statistics = shard.redis.info("commandstats")
    told = {name.removeprefix("cmdstat_"): row["calls"] for name, row in statistics.items()}
    # The first to count in a minute lets that minute's figures expire.
    not_ours = ("info", "config|resetstat", "expire")
    return {name: told[name] for name in told if name not in not_ours}


async def counted(shard: Shard, operation: Callable[[], Awaitable[object]]) -> dict[str, int]:
    """Return the commands of one operation whose script the server knows."""
    shard.redis.config_resetstat()
    await operation()
    return commands(shard)


async def test_who_schedules_nothing_pays_nothing(real_shard: Shard):
    shard = real_shard
    await shard.publish_many([("warm", b"1", 0), ("up", b"2", 0)])
    [lease] = (await shard.transport.turn("worker", [], 1, visibility=30)).leases

    published = await counted(shard, lambda: shard.publish("group"))
    acks = [Settlement.ack(lease)]
    turned = await counted(
        shard, lambda: shard.transport.turn("worker", acks, 1, visibility=30, number=1)
    )

    # As many as if messages could not be scheduled, deduplicated or expire.
    assert sum(published.values()) == 16, published
    assert sum(turned.values()) == 39, turned


async def test_who_holds_nothing_does_not_look_at_the_heads_that_come_next(real_shard: Shard):
    shard = real_shard

    async def turn_of_twenty() -> dict[str, int]:
        leases = (await shard.transport.turn("worker", [], 20, visibility=30)).leases
        acks = [Settlement.ack(lease) for lease in leases]
        assert len(acks) == 20
        return await counted(shard, lambda: shard.transport.turn("w", acks, 0, visibility=30))

    await shard.publish_many([(f"g{number % 20}", b"1", 0) for number in range(100)])
    await turn_of_twenty()
    plain = await turn_of_twenty()
    [later] = await send(shard, scheduled("later"))
    scheduling = await turn_of_twenty()
    await cancel(shard, later)
    await send(shard, held("later"))

    # A look at the data, at what is due, and at the next moment; nothing per group.
    assert sum(scheduling.values()) == sum(plain.values()) + 3
    assert sum((await turn_of_twenty()).values()) > sum(plain.values()) + 20


async def test_a_claims_commands_do_not_grow_with_the_number_of_scheduled_messages(
    real_shard: Shard,
):
    shard = real_shard
    await shard.publish_many([("a", b"1", 0), ("b", b"1", 0), ("c", b"1", 0)])
    await send(shard, scheduled("later"))
    await shard.transport.claim("warm", 30)

    few = await counted(shard, lambda: shard.transport.claim("worker", 30))
    await send(shard, *(scheduled(f"g{n % 500}", due=f"+{SOON_MS + n}") for n in range(MANY)))
    many = await counted(shard, lambda: shard.transport.claim("worker", 30))

    assert shard.redis.zcard(shard.named("scheduled")) == MANY + 1
    assert many == few
    # One look for due ones, LIMIT 100, and one at the next moment: O(log n) each.
    assert many["zrange"] == 3


async def test_a_claims_commands_do_not_grow_with_the_number_of_due_messages(real_shard: Shard):
    shard = real_shard
    ids = await send(shard, *(scheduled("group") for _ in range(1000)))
    let_come(shard, *ids)
    await shard.transport.claim("warm", 30)

    first = await counted(shard, lambda: shard.transport.claim("worker", 30))
    for _ in range(5):
        assert await counted(shard, lambda: shard.transport.claim("worker", 30)) == first
    assert shard.redis.zcard(shard.named("scheduled")) == 300


# Cancelling and rescheduling -----------------------------------------------------------------


async def test_a_cancelled_message_never_comes(shard: Shard):
    first, second = await send(shard, scheduled("group", b"1"), scheduled("group", b"2"))

    assert await cancel(shard, first) == "ok"

    let_come(shard, second)
    assert bodies(await handle_all(shard)) == [b"2"]
    assert stat(shard, "cancelled") == 1
    assert left_behind(shard) == set()


async def test_cancelling_again_changes_nothing(shard: Shard):
    first, _ = await send(shard, scheduled("group"), scheduled("group"))
    await cancel(shard, first)
    before = shard.dump()

    assert await cancel(shard, first) == "not scheduled"
    assert shard.dump() == before


async def test_what_is_not_scheduled_cannot_be_cancelled_or_rescheduled(shard: Shard):
    [waiting] = await shard.publish("group")
    [promoted] = await send(shard, scheduled("promoted"))
    let_come(shard, promoted)
    await promote(shard)
    leases = await shard.claim_all()
    assert len(leases) == 2
    before = shard.dump()

    for identifier in (waiting, promoted, "0" * 32, "", "*"):
        assert await cancel(shard, identifier) == "not scheduled"
        assert await reschedule(shard, identifier, "+1000") is False
    assert shard.dump() == before
    for lease in leases:
        assert await shard.transport.ack(lease) == 0


async def test_a_due_message_that_has_not_joined_yet_can_still_be_cancelled(shard: Shard):
    [identifier] = await send(shard, scheduled("group"))
    let_come(shard, identifier)

    assert await cancel(shard, identifier) == "ok"
    assert await shard.transport.claim("worker", 30) is None


@pytest.mark.parametrize(("due", "wait_ms"), [("+5000", 5_000), ("+500000", 500_000)])
async def test_a_rescheduled_message_comes_sooner_or_later(shard: Shard, due: str, wait_ms: int):
    [identifier] = await send(shard, scheduled("group"))
    shard.redis.delete(shard.named("wake"))

    assert await reschedule(shard, identifier, due) is True

    assert wait_ms - 1_000 < (await promote(shard)).wait_ms <= wait_ms
    assert shard.redis.llen(shard.named("wake")) == 1


async def test_a_message_rescheduled_to_a_moment_past_comes_with_the_next_claim(shard: Shard):
    [identifier] = await send(shard, scheduled("group", b"now"))

    assert await reschedule(shard, identifier, "1") is True

    assert (await shard.transport.claim("worker", 30)).payload == b"now"


async def test_a_rescheduled_message_joins_at_its_new_place_in_due_order(shard: Shard):
    first, second = await send(
        shard, scheduled("group", b"1", due="+10000"), scheduled("group", b"2", due="+20000")
    )
    await reschedule(shard, first, "+30000")
    assert [row.id for row in (await agenda(shard)).messages] == [second, first]
    let_come(shard, second, first)

    assert bodies(await handle_all(shard)) == [b"2", b"1"]


# Without memory ------------------------------------------------------------------------------


async def test_without_memory_due_messages_come_and_scheduled_ones_can_be_taken_back(
    own_shard: Shard,
):
    shard = own_shard
    due, cancelled, moved = await send(
        shard, scheduled("group", b"due"), scheduled("group"), scheduled("group", b"moved")
    )
    let_come(shard, due)
    shard.redis.config_set("maxmemory", 1)

    with pytest.raises(ServerOutOfMemory):
        await send(shard, scheduled("group"))
    assert await cancel(shard, cancelled) == "ok"
    assert await reschedule(shard, moved, "+0") is True
    assert bodies(await handle_all(shard)) == [b"due", b"moved"]


# Keys of a wrong type, and data lost by hand ----------------------------------------------------


@pytest.mark.parametrize("stuck", [1, 150])
async def test_a_group_whose_list_is_none_does_not_hold_up_the_others(shard: Shard, stuck: int):
    ids = await send(shard, *(scheduled("broken", b"%d" % n) for n in range(stuck)))
    [live] = await send(shard, scheduled("live"))
    let_come(shard, *ids, live)
    shard.redis.set(shard.keys.fifo("broken"), "foreign")

    lease = None
    for _ in range(1 + stuck // 100):
        lease = lease or await shard.transport.claim("worker", 30)

    assert lease.id == live
    # Nobody spins: the next look is a moment away.
    assert 0 < (await promote(shard)).wait_ms <= 1_000
    assert shard.redis.get(shard.keys.fifo("broken")) == b"foreign"
    shard.redis.delete(shard.keys.fifo("broken"))
    let_come(shard, *ids)
    assert bodies(await handle_all(shard)) == [b"%d" % n for n in range(stuck)]


async def test_a_moment_whose_data_is_lost_passes_without_harm(shard: Shard):
    lost, kept = await send(shard, scheduled("group", b"lost"), scheduled("group", b"kept"))
    let_come(shard, lost, kept)
    shard.redis.hdel(shard.named("scheduled:data"), lost)

    assert bodies(await handle_all(shard)) == [b"kept"]
    assert left_behind(shard) == set()


@pytest.mark.parametrize("data", [b"", b"M", b"M9", b"M0000x", b"MXYZ", b"?"])
async def test_data_that_is_none_of_ours_stops_nobody(shard: Shard, data: bytes):
    foreign, ours = await send(shard, scheduled("group", b"foreign"), scheduled("group", b"ours"))
    let_come(shard, foreign, ours)
    shard.redis.hset(shard.named("scheduled:data"), foreign, data)

    assert (await shard.transport.claim("worker", 30)).payload == b"ours"
    assert (await promote(shard)).wait_ms > 0
    assert (await agenda(shard)).total == 1
    assert await cancel(shard, foreign) == "ok"


PERFORMED: dict[str, Callable[[Shard, str], Awaitable[object]]] = {
    "publish": lambda shard, _: send(shard, scheduled("group")),
    "cancel": cancel,
    "reschedule": lambda shard, identifier: reschedule(shard, identifier, "+5"),
    "agenda": lambda shard, _: agenda(shard),
    "claim": lambda shard, _: shard.transport.claim("worker", 30),
    "turn": lambda shard, _: promote(shard),
    "recover": lambda shard, _: shard.transport.recover("worker", 0),
    "resume": lambda shard, _: shard.transport.perform(calls.resume(shard.prefix, "paused")),
    "release": lambda shard, _: shard.transport.perform(calls.release(shard.prefix, "leased")),
}


@pytest.mark.parametrize("name", ["scheduled", "scheduled:data", "scheduled:held"])
@pytest.mark.parametrize("operation", PERFORMED.values(), ids=PERFORMED)
@pytest.mark.parametrize("is_due", [True, False])
async def test_an_agenda_of_a_wrong_type_is_an_error_and_nothing_is_written(
    sync_shard: Shard, operation, name: str, is_due
):
    shard = sync_shard
    await shard.publish_many([("leased", b"1", 0), ("leased", b"2", 0), ("paused", b"1", 0)])
    await shard.transport.perform(calls.pause(shard.prefix, "paused", "why"))
    await shard.transport.claim("worker", 30)
    identifier, _ = await send(shard, scheduled("group"), held("held"))
    if is_due:
        let_come(shard, identifier)
    shard.redis.set(shard.named(name), "foreign")
    before = shard.dump()

    with pytest.raises(WrongKeyType) as refusal:
        await operation(shard, identifier)

    assert shard.dump() == before
    assert shard.named(name) in str(refusal.value)


@pytest.mark.parametrize("name", ["scheduled", "scheduled:data", "scheduled:held"])
@pytest.mark.parametrize(
    "end",
    [Settlement.ack, lambda lease: Settlement.retry(lease, 0), Settlement.release],
    ids=["ack", "retry", "release"],
)
async def test_no_lease_is_half_ended_when_the_agenda_is_of_a_wrong_type(
    sync_shard: Shard, end, name: str
):
    shard = sync_shard
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 30)
    await send(shard, scheduled("group"), held("held"))
    kept = shard.redis.dump(shard.named(name))
    shard.redis.set(shard.named(name), "foreign")
    before = shard.dump()

    for attempt in (
        lambda: shard.transport.settle(end(lease)),
        lambda: shard.transport.ack(lease),
        lambda: shard.transport.nack(lease),
    ):
        with pytest.raises(WrongKeyType):
            await attempt()
        assert shard.dump() == before

    shard.redis.restore(shard.named(name), 0, kept, replace=True)
    assert await shard.transport.settle(end(lease)) > 0


async def test_a_turn_that_cannot_settle_promotes_nothing_either(sync_shard: Shard):
    shard = sync_shard
    await shard.publish("leased")
    lease = await shard.transport.claim("worker", 30)
    [identifier] = await send(shard, scheduled("group"))
    let_come(shard, identifier)
    shard.redis.set(shard.named("dead"), "foreign")
    before = shard.dump()

    with pytest.raises(WrongKeyType):
        await shard.transport.turn("worker", [Settlement.dead(lease, "why")], 5, visibility=30)

    assert shard.dump() == before


async def test_nobody_who_has_nothing_scheduled_minds_foreign_data(shard: Shard):
    await shard.publish("group")
    shard.redis.set(shard.named("scheduled:data"), "foreign")
    shard.redis.set(shard.named("scheduled:held"), "foreign")

    assert (await shard.transport.claim("worker", 30)).group == "group"


async def test_plain_and_scheduled_messages_of_one_call_are_stored_together(shard: Shard):
    ids = [envelope("group", b"now"), scheduled("group", b"later"), envelope("other", b"now")]

    await send(shard, *ids)

    assert (shard.depth("group"), shard.depth("other")) == (1, 1)
    assert [row.id for row in (await agenda(shard)).messages] == [ids[1].id]
    assert stat(shard, "published") == 3
    audit(shard)
