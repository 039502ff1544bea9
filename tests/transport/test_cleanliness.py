"""Does a drained queue leave nothing behind but a fixed few keys, whatever it went through?"""

from __future__ import annotations

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from tests.transport import lua_files
from tests.transport.envelopes import let_come
from tests.transport.operations import OPERATIONS
from tests.transport.shards import Shard

# What a shard that has worked and is drained may keep, however much went through it.
KEPT = {"backlog", "fence", "stats", "wake"}
EXPIRING = ("publisher:", "stats:")


def left_behind(shard: Shard) -> set[str]:
    """Return the keys that are neither of the fixed few nor about to expire."""
    names = shard.names()
    for name in names:
        if name.startswith(EXPIRING):
            assert shard.redis.pttl(shard.named(name)) > 0, name
    return {name for name in names - KEPT if not name.startswith(EXPIRING)}


async def drain(shard: Shard) -> int:
    """Ack everything, the leases of dead workers included; return how much it was."""
    acked = 0
    finished: list[Settlement] = []
    while True:
        turned = await shard.transport.turn("worker", finished, 50, visibility=60)
        acked += len(turned.leases)
        finished = [Settlement.ack(lease) for lease in turned.leases]
        if not finished:
            return acked


async def test_a_published_and_acked_message_leaves_only_the_fixed_few(shard: Shard):
    await shard.publish("group")
    await shard.transport.ack(await shard.transport.claim("worker", 30))

    assert left_behind(shard) == set()
    assert KEPT - {"wake"} <= shard.names()


async def test_failure_38_a_thousand_groups_of_all_tiers_leave_only_the_fixed_few(shard: Shard):
    await shard.publish_many([(f"group-{n % 1000}", b"1", n % 5) for n in range(2000)])

    assert await drain(shard) == 2000

    assert left_behind(shard) == set()
    assert len(shard.names()) <= 8
    assert {int(left) for left in shard.redis.hvals(shard.named("backlog"))} == {0}


async def test_failure_38_groups_that_went_through_everything_leave_only_the_fixed_few(
    shard: Shard,
):
    groups = [f"group-{number}" for number in range(8)]
    await shard.publish_many([(group, b"%d" % n, n % 5) for n in range(3) for group in groups])
    leases = {lease.group: lease for lease in await shard.claim_all()}
    await shard.transport.turn(
        "worker",
        [
            Settlement.retry(leases["group-0"], 0, "boom"),
            Settlement.release(leases["group-1"]),
            Settlement.halt(leases["group-2"], "max_attempts", "boom"),
            Settlement.ack(leases["group-3"]),
        ],
        0,
        visibility=30,
    )
    shard.let_lease_run_out("group-4")
    shard.let_lease_run_out("group-5")
    await shard.transport.perform(calls.pause(shard.prefix, "group-6", "why"))
    await shard.transport.recover("worker", leases["group-5"].token)
    for group in ("group-2", "group-6"):
        assert await shard.transport.perform(calls.resume(shard.prefix, group))

    await drain(shard)
    if shard.places("group-6"):
        shard.let_lease_run_out("group-6")
        await drain(shard)

    assert left_behind(shard) == set()


async def test_failure_38_whatever_was_done_to_a_drained_queue_only_the_fixed_few_stay(
    shard: Shard,
):
    for prepare in OPERATIONS.values():
        operation = await prepare(shard)
        await operation(shard)
    assert len(shard.names()) > 50

    await end_what_holds(shard)
    rounds = 0
    while groups_of(shard) or scheduled_of(shard):
        come_due(shard)
        await drain(shard)
        rounds += 1
        assert rounds < 20, f"these never drain: {groups_of(shard)}, {scheduled_of(shard)}"
    for entry, _ in shard.redis.xrange(shard.named("dead")):
        await shard.transport.perform(calls.drop(shard.prefix, [entry.decode()]))

    staying = {name for name in shard.names() if shard.redis.pttl(shard.named(name)) == -1}
    assert staying <= KEPT | {"meta", "dead"}
    assert shard.redis.xlen(shard.named("dead")) == 0
    assert {int(left) for left in shard.redis.hvals(shard.named("backlog"))} == {0}


async def test_failure_39_figures_have_a_field_per_word_and_two_days_of_minutes(shard: Shard):
    for prepare in OPERATIONS.values():
        operation = await prepare(shard)
        await operation(shard)

    minutes = [name for name in shard.names() if name.startswith("stats:")]
    assert minutes
    for name in ("stats", *minutes):
        fields = {field.decode() for field in shard.redis.hkeys(shard.named(name))}
        assert fields <= lua_files.counters()
    for name in minutes:
        assert 0 < shard.redis.ttl(shard.named(name)) <= 48 * 3600


async def end_what_holds(shard: Shard) -> None:
    """End what operators have asked for, and take what each worker said of itself away."""
    perform = shard.transport.perform
    await perform(calls.start(shard.prefix))
    for group in {"group", "wide", "rated", *groups_of(shard)}:
        await perform(calls.resume(shard.prefix, group))
        await perform(calls.rate(shard.prefix, group, ""))
    await perform(calls.rate(shard.prefix, "", ""))
    await perform(calls.depart(shard.prefix, "worker"))


def groups_of(shard: Shard) -> list[str]:
    """Return the groups that stand anywhere."""
    return [
        group.decode(errors="surrogateescape")
        for tier in range(5)
        for group in shard.redis.zrange(shard.keys.ready(tier), 0, -1)
    ]


def scheduled_of(shard: Shard) -> list[str]:
    """Return the ids of what is scheduled."""
    return [one.decode() for one in shard.redis.zrange(shard.named("scheduled"), 0, -1)]


def come_due(shard: Shard) -> None:
    """Do what time would: leases run out, waits end, moments come."""
    let_come(shard, *scheduled_of(shard))
    for name in shard.names():
        if name.startswith(("lock:", "tat:")):
            shard.redis.delete(shard.named(name).encode(errors="surrogateescape"))
    for tier in range(5):
        for group in shard.redis.zrange(shard.keys.ready(tier), 0, -1):
            shard.redis.zadd(shard.keys.ready(tier), {group: shard.now_ms() - 1})


async def test_dead_letters_are_all_that_stays_of_messages_set_aside(shard: Shard):
    ids = await shard.publish("group", *[b"%d" % number for number in range(6)])
    for number in range(3):
        await shard.transport.nack(await shard.transport.claim("worker", 30), error="boom")
        lease = await shard.transport.claim("worker", 30)
        await shard.transport.settle(Settlement.dead(lease, f"reason {number}", "boom"))
    await shard.transport.claim("dead", 30)
    shard.let_lease_run_out("group")
    for identifier in ids[3:]:
        await shard.transport.perform(calls.skip(shard.prefix, "group", identifier))

    assert left_behind(shard) == {"dead"}
    assert shard.redis.xlen(shard.named("dead")) == 6


async def test_a_pause_of_an_empty_group_is_kept_until_it_is_resumed(shard: Shard):
    await shard.transport.perform(calls.pause(shard.prefix, "group", "why"))
    assert left_behind(shard) == {"paused"}

    await shard.transport.perform(calls.resume(shard.prefix, "group"))
    assert left_behind(shard) == set()


async def test_a_worker_that_leaves_takes_its_entry_along(shard: Shard):
    call = calls.heartbeat(shard.prefix, "worker", {"pid": 7}, kept_ms=60_000)
    await shard.transport.perform(call)
    await shard.transport.perform(calls.depart(shard.prefix, "worker"))

    assert left_behind(shard) == {"meta"}
