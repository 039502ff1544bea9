"""Does a rate let exactly so many messages go, of one group and of all, and hold up nothing else?

Nobody waits here: time passes by moving what the server notes of it.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Settlement, Turned
from groupqueue.core.groups import rate_group
from groupqueue.core.messages import Lease
from groupqueue.core.rates import NO_RATES, Rate, Rates, parse_rate
from groupqueue.core.snapshot import Snapshot, snapshot_decoder
from groupqueue.core.views import Explanation, explanation
from tests.transport.envelopes import expiring, held, send, send_expired, wide
from tests.transport.operated import STATES, bring_into, check
from tests.transport.shards import Shard
from tests.transport.test_scheduling import counted

MINUTE_MS = 60_000
ONE_A_MINUTE = Rate(60_000_000)
THREE_AT_ONCE = Rate(60_000_000, 3)
EACH_GROUP = Rates(group=ONE_A_MINUTE)
ALL = Rates(queue=ONE_A_MINUTE)


async def turn(
    shard: Shard, *ends: Settlement, want: int = 50, batch: int = 1, rates: Rates = NO_RATES
) -> Turned:
    return await shard.transport.turn(
        "worker", list(ends), want, visibility=3600, batch=batch, rates=rates
    )


async def handle(shard: Shard, rates: Rates, *, want: int = 50) -> list[Lease]:
    """Claim and ack until no more is let go; return the leases."""
    handled: list[Lease] = []
    ends: list[Settlement] = []
    while (turned := await turn(shard, *ends, want=want, rates=rates)).leases:
        handled += turned.leases
        ends = [Settlement.ack(lease) for lease in turned.leases]
    return handled


async def set_rate(shard: Shard, rate: str, group: str = "") -> str:
    argument = rate if rate in ("", "none") else parse_rate(rate).argument
    return (await shard.transport.perform(calls.rate(shard.prefix, group, argument))).former


async def explain(shard: Shard, group: str = "group") -> Explanation:
    return await shard.transport.perform(calls.explain(shard.prefix, group, explanation))


async def snapshot(shard: Shard) -> Snapshot:
    return await shard.transport.perform(calls.inspect(shard.prefix, 20, snapshot_decoder(20)))


def tat(shard: Shard, group: str = "group") -> tuple[int, int]:
    """Return the µs of the next message's theoretical arrival, and from when on one may go."""
    arrival, free = shard.redis.get(shard.named(f"tat:{group}")).split()
    return int(arrival), int(free)


def let_pass(shard: Shard, milliseconds: int, group: str = "group") -> None:
    """Do what time would to a group's rate, and to the group if its rate has put it off."""
    arrival, free = tat(shard, group)
    for tier, score in shard.places(group):
        if round(score * 1000) == free:
            shard.redis.zadd(shard.keys.ready(tier), {group: score - milliseconds})
    arrival, free = arrival - milliseconds * 1000, free - milliseconds * 1000
    shard.redis.set(shard.named(f"tat:{group}"), f"{arrival} {free}", keepttl=True)
    if arrival <= shard.now_ms() * 1000:
        shard.redis.delete(shard.named(f"tat:{group}"))


# One group -------------------------------------------------------------------------------


async def test_messages_of_a_group_go_an_interval_apart_to_the_microsecond(shard: Shard):
    await shard.publish("group", b"1", b"2", b"3")

    [first] = (await turn(shard, rates=EACH_GROUP)).leases
    turned = await turn(shard, Settlement.ack(first), rates=EACH_GROUP)

    # A token is the server's clock in µs at the claim.
    assert tat(shard) == (first.token + 60_000_000,) * 2
    assert turned.leases == []
    assert shard.place("group")[1] == pytest.approx((first.token + 60_000_000) / 1000, abs=0.0005)
    assert shard.place("group")[1] - shard.now_ms() <= turned.wait_ms <= MINUTE_MS
    let_pass(shard, MINUTE_MS)
    [second] = (await turn(shard, rates=EACH_GROUP)).leases
    assert second.payload == b"2"
    assert tat(shard) == (second.token + 60_000_000,) * 2
    check(shard)


async def test_a_group_put_off_is_let_go_in_its_very_microsecond(shard: Shard):
    await shard.publish("group", b"1", b"2")
    [first] = (await turn(shard, rates=EACH_GROUP)).leases
    await turn(shard, Settlement.ack(first), rates=EACH_GROUP)

    let_pass(shard, MINUTE_MS - 1000)
    assert (await turn(shard, rates=EACH_GROUP)).leases == []
    assert not shard.redis.exists(shard.keys.lock("group"))
    let_pass(shard, 1000)

    assert [lease.payload for lease in (await turn(shard, rates=EACH_GROUP)).leases] == [b"2"]


async def test_a_burst_goes_at_once_and_is_spaced_afterwards(shard: Shard):
    rates = Rates(group=THREE_AT_ONCE)
    await shard.publish("group", *[b"%d" % number for number in range(6)])

    handled = await handle(shard, rates)

    assert [lease.payload for lease in handled] == [b"0", b"1", b"2"]
    arrival, free = tat(shard)
    assert (arrival, free) == (handled[0].token + 180_000_000, handled[0].token + 60_000_000)
    let_pass(shard, MINUTE_MS)
    assert [lease.payload for lease in await handle(shard, rates)] == [b"3"]
    let_pass(shard, 2 * MINUTE_MS)
    assert [lease.payload for lease in await handle(shard, rates)] == [b"4", b"5"]


async def test_a_long_pause_saves_no_more_than_a_burst(shard: Shard):
    rates = Rates(group=THREE_AT_ONCE)
    await shard.publish("group", *[b"%d" % number for number in range(9)])
    await handle(shard, rates)

    let_pass(shard, 100 * MINUTE_MS)
    shard.make_due("group", 0)

    assert len(await handle(shard, rates)) == 3


async def test_each_group_has_the_rate_of_its_own(shard: Shard):
    groups = [f"group-{number}" for number in range(5)]
    await shard.publish_many([(group, b"%d" % n, 0) for n in range(3) for group in groups])

    handled = await handle(shard, EACH_GROUP)

    assert [lease.group for lease in handled] == groups
    assert {lease.payload for lease in handled} == {b"0"}


async def test_no_group_is_held_up_by_those_whose_rate_does_not_let_them_go(shard: Shard):
    limited = [f"limited-{number}" for number in range(5)]
    for group in limited:
        await set_rate(shard, "1/m", group)
    await shard.publish_many([(group, b"%d" % n, 4) for n in range(2) for group in limited])
    await turn(shard, *map(Settlement.ack, (await turn(shard)).leases), want=0)
    await shard.publish("live", b"1", b"2", priority=4)
    assert all(shard.place(group)[1] < shard.place("live")[1] for group in limited)

    # In the very turn that puts the others off, and ever after.
    for number in (b"1", b"2"):
        [lease] = (await turn(shard, want=1)).leases
        assert (lease.group, lease.payload) == ("live", number)
        await turn(shard, Settlement.ack(lease), want=0)
    assert all(shard.place(group)[1] > shard.now_ms() for group in limited)
    check(shard)


async def test_any_number_of_groups_that_may_not_go_are_passed_over_in_a_few_turns(shard: Shard):
    groups = [f"group-{number}" for number in range(200)]
    await shard.publish_many([(group, b"%d" % n, 0) for n in range(2) for group in groups])
    ends = [
        Settlement.ack(lease) for lease in (await turn(shard, want=200, rates=EACH_GROUP)).leases
    ]
    await turn(shard, *ends, want=0)
    await shard.publish("live")

    turns = 0
    while not (turned := await turn(shard, want=1, rates=EACH_GROUP)).leases:
        # Whoever is told nothing is due would go to sleep.
        assert turned.wait_ms == 0
        turns += 1

    assert turned.leases[0].group == "live"
    assert turns <= 10


@pytest.mark.parametrize("settled", [Settlement.retry, Settlement.release])
async def test_a_message_that_comes_again_counts_again(shard: Shard, settled):
    await shard.publish("group", b"1")
    [lease] = (await turn(shard, rates=EACH_GROUP)).leases

    assert (await turn(shard, settled(lease, 0), rates=EACH_GROUP)).leases == []

    let_pass(shard, MINUTE_MS)
    [again] = (await turn(shard, rates=EACH_GROUP)).leases
    assert again.id == lease.id


async def test_a_message_dropped_as_too_late_does_not_count(shard: Shard):
    await send_expired(shard, *[expiring("group", b"%d" % number) for number in range(3)])
    await shard.publish("group", b"live", b"next")

    [lease] = (await turn(shard, rates=EACH_GROUP)).leases

    assert lease.payload == b"live"
    assert tat(shard)[0] == lease.token + 60_000_000


async def test_a_drained_groups_rate_holds_for_what_is_published_next(shard: Shard):
    await shard.publish("group", b"1")
    await handle(shard, EACH_GROUP)
    assert shard.places("group") == []

    await shard.publish("group", b"2")

    assert await handle(shard, EACH_GROUP) == []
    assert shard.place("group")[1] * 1000 == pytest.approx(tat(shard)[1], abs=0.5)
    let_pass(shard, MINUTE_MS)
    assert [lease.payload for lease in await handle(shard, EACH_GROUP)] == [b"2"]


async def test_a_rate_is_forgotten_at_the_moment_from_which_it_makes_no_difference(shard: Shard):
    await shard.publish("group", b"1", b"2")
    rates = Rates(queue=ONE_A_MINUTE, group=THREE_AT_ONCE)

    await handle(shard, rates)

    for group in ("group", ""):
        arrival, _ = tat(shard, group)
        expires = shard.expiry(shard.named(f"tat:{group}"))
        # fakeredis reads the clock anew for each command of a script.
        assert expires == pytest.approx(arrival / 1000, abs=shard.same_moment_ms)
        let_pass(shard, 100 * MINUTE_MS, group)
    shard.make_due("group", 0)
    await turn(shard, *[Settlement.ack(x) for x in (await turn(shard)).leases], want=0)
    assert {name.partition(":")[0] for name in shard.names()} == {
        "backlog",
        "fence",
        "publisher",
        "stats",
        "wake",
    }


# All of the queue ------------------------------------------------------------------------


async def test_a_queues_rate_is_shared_by_its_groups(shard: Shard):
    groups = [f"group-{number}" for number in range(5)]
    await shard.publish_many([(group, b"%d" % n, 0) for n in range(2) for group in groups])
    rates = Rates(queue=THREE_AT_ONCE)

    turned = await turn(shard, rates=rates)

    assert [lease.group for lease in turned.leases] == groups[:3]
    # The others have not lost their place in line.
    assert all(shard.place(group)[1] <= shard.now_ms() for group in groups[3:])
    _, free = tat(shard, "")
    assert free == turned.leases[0].token + 60_000_000
    assert free / 1000 - shard.now_ms() <= turned.wait_ms <= MINUTE_MS
    ends = [Settlement.ack(lease) for lease in turned.leases]
    assert (await turn(shard, *ends, rates=rates)).leases == []
    let_pass(shard, MINUTE_MS, "")
    [lease] = (await turn(shard, rates=rates)).leases
    assert lease.group == groups[3]
    check(shard)


async def test_whoever_claims_nothing_is_told_as_well_when_the_queues_rate_lets_go(shard: Shard):
    await shard.publish("group", b"1")
    await shard.publish("other")
    await turn(shard, want=1, rates=ALL)

    for want in (0, 1):
        turned = await turn(shard, want=want, rates=ALL)
        assert tat(shard, "")[1] / 1000 - shard.now_ms() <= turned.wait_ms <= MINUTE_MS


async def test_a_queues_rate_and_a_groups_hold_both(shard: Shard):
    await shard.publish_many([(group, b"%d" % n, 0) for n in range(3) for group in ("a", "b", "c")])
    rates = Rates(queue=Rate(60_000_000, 2), group=ONE_A_MINUTE)

    assert [lease.group for lease in await handle(shard, rates)] == ["a", "b"]
    for group in ("", "a", "b"):
        let_pass(shard, MINUTE_MS, group)
    assert [lease.group for lease in await handle(shard, rates)] == ["c"]


# What an operator says -------------------------------------------------------------------


async def test_an_operators_rate_wins_over_the_settings_and_none_lifts_it(shard: Shard):
    await shard.publish("group", *[b"%d" % number for number in range(20)])

    assert len(await handle(shard, EACH_GROUP)) == 1
    assert await set_rate(shard, "1/m:5", "group") == ""
    assert len(await handle(shard, EACH_GROUP)) == 5
    assert await set_rate(shard, "none", "group") == "1/m:5"
    [lease] = (await turn(shard, rates=EACH_GROUP)).leases
    [lease] = (await turn(shard, Settlement.ack(lease), rates=EACH_GROUP)).leases
    await turn(shard, Settlement.ack(lease), want=0)
    assert await set_rate(shard, "", "group") == "none"
    assert len(await handle(shard, EACH_GROUP)) == 1
    assert await set_rate(shard, "", "group") == ""


async def test_an_operators_rate_of_the_queue_wins_as_well(shard: Shard):
    await shard.publish_many([(f"group-{number}", b"1", 0) for number in range(20)])

    await set_rate(shard, "1/m:3")
    assert len(await handle(shard, ALL)) == 3
    assert (await snapshot(shard)).rate == "1/m:3"
    await set_rate(shard, "none")
    assert len((await turn(shard, want=4, rates=ALL)).leases) == 4
    assert (await snapshot(shard)).rate == "none"
    await set_rate(shard, "")
    assert len(await handle(shard, ALL)) == 1
    assert (await snapshot(shard)).rate == ""


async def test_an_operators_rate_holds_for_whoever_claims_without_settings(shard: Shard):
    await shard.publish("group", b"1", b"2")
    await set_rate(shard, "1/m", "group")
    await shard.transport.ack(await shard.transport.claim("worker", 30))

    assert await shard.transport.claim("worker", 30) is None


@pytest.mark.parametrize("state", STATES)
async def test_a_rate_is_live_for_a_group_in_each_state_and_disturbs_none(shard: Shard, state: str):
    await bring_into(shard, state, messages=3)
    before = shard.dump(without="wake")

    await set_rate(shard, "1/m", "group")

    after = shard.dump(without="wake")
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert changed == {shard.named("rates"), shard.named("paused")}
    if state.startswith("leased"):
        await shard.transport.perform(calls.release(shard.prefix, "group"))
    await shard.transport.perform(calls.resume(shard.prefix, "group"))
    shard.make_due("group", 0)
    assert len(await handle(shard, NO_RATES)) == 1
    check(shard)


@pytest.mark.parametrize("rate", ["none", "5/s", ""])
async def test_what_a_rate_has_put_off_goes_at_once_under_another(shard: Shard, rate: str):
    await set_rate(shard, "1/d", "group")
    await shard.publish("group", b"1", b"2", priority=3)
    assert len(await handle(shard, NO_RATES)) == 1

    await set_rate(shard, rate, "group")

    assert (await explain(shard)).state == "due"
    assert len((await turn(shard)).leases) == 1
    check(shard)


async def test_what_another_reason_holds_back_waits_on_under_another_rate(shard: Shard):
    await set_rate(shard, "1/d", "group")
    await shard.publish("group", b"1", b"2")
    [lease] = (await turn(shard)).leases
    await shard.transport.settle(Settlement.retry(lease, 3600, "boom"))
    parked = shard.place("group")

    await set_rate(shard, "none", "group")

    assert shard.place("group") == parked


async def test_a_held_head_waits_on_under_another_rate(shard: Shard):
    await set_rate(shard, "1/m", "group")
    await shard.publish("group", b"1")
    await handle(shard, NO_RATES)
    await send(shard, held("group", due="+3600000"))
    shard.make_due("group", 0)
    assert (await turn(shard)).leases == []

    await set_rate(shard, "none", "group")

    assert shard.place("group")[1] > shard.now_ms() + MINUTE_MS


async def test_a_paused_group_stays_so_under_another_rate(shard: Shard):
    await set_rate(shard, "1/d", "group")
    await shard.publish("group", b"1", b"2")
    await handle(shard, NO_RATES)
    await shard.transport.perform(calls.pause(shard.prefix, "group", "why"))

    await set_rate(shard, "none", "group")

    assert shard.place("group")[1] == float("inf")


async def test_the_same_rate_again_gives_nothing_away(shard: Shard):
    await set_rate(shard, "1/d", "group")
    await shard.publish("group", b"1", b"2")
    await handle(shard, NO_RATES)

    assert await set_rate(shard, "1/d", "group") == "1/d"

    assert await handle(shard, NO_RATES) == []


async def test_a_rate_taken_back_leaves_nothing_behind(shard: Shard):
    for group in ("", "group", "unknown"):
        await set_rate(shard, "1/m", group)
    assert shard.names() == {"paused", "rates", "wake"}

    for group in ("", "group", "unknown"):
        await set_rate(shard, "", group)

    assert shard.names() == {"wake"}


async def test_another_rate_wakes_an_idle_worker(shard: Shard):
    shard.redis.delete(shard.named("wake"))

    await set_rate(shard, "1/m")

    assert shard.redis.llen(shard.named("wake")) == 1


# Batches ---------------------------------------------------------------------------------


async def test_a_batch_takes_no_more_than_its_groups_rate_lets_go(shard: Shard):
    rates = Rates(group=THREE_AT_ONCE)
    await shard.publish("group", *[b"%d" % number for number in range(9)])

    [lease] = (await turn(shard, batch=10, rates=rates)).leases

    assert [lease.payload, *(one.payload for one in lease.rest)] == [b"0", b"1", b"2"]
    assert tat(shard)[0] == lease.token + 180_000_000
    assert (await turn(shard, Settlement.ack(lease, 3), batch=10, rates=rates)).leases == []


async def test_batches_take_no_more_together_than_the_queues_rate_lets_go(shard: Shard):
    rates = Rates(queue=Rate(60_000_000, 4))
    await shard.publish_many([(group, b"%d" % n, 0) for group in "abc" for n in range(3)])

    first, second = (await turn(shard, batch=10, rates=rates)).leases

    assert [1 + len(lease.rest) for lease in (first, second)] == [3, 1]
    assert tat(shard, "")[0] == first.token + 240_000_000


# What people are shown -------------------------------------------------------------------


async def test_a_group_that_its_rate_holds_back_is_shown_as_such(shard: Shard):
    await set_rate(shard, "1/m", "group")
    await shard.publish("group", b"1", b"2")
    await handle(shard, NO_RATES)

    found = await explain(shard)
    [row] = (await snapshot(shard)).parked

    assert (found.state, row.state) == ("rate-limited", "rate-limited")
    assert found.reason == "its rate does not let it go yet: 1/m"
    assert (found.group.rate, row.rate) == ("1/m", "1/m")


async def test_a_group_held_back_by_the_settings_rate_is_shown_as_such(shard: Shard):
    await shard.publish("group", b"1", b"2")
    await handle(shard, EACH_GROUP)

    assert (await explain(shard)).reason == "its rate does not let it go yet"


async def test_a_group_that_is_parked_is_not_said_to_be_held_back_by_its_rate(shard: Shard):
    await shard.publish("group", b"1", b"2")
    [lease] = (await turn(shard, rates=EACH_GROUP)).leases

    await shard.transport.settle(Settlement.release(lease, 10))

    assert (await explain(shard)).state == "parked"


async def test_a_due_group_is_said_to_wait_for_the_queues_rate(shard: Shard):
    await shard.publish("group", b"1", b"2")
    await handle(shard, ALL)

    found = await explain(shard)

    assert found.state == "due"
    assert "the queue's rate lets no message go for another" in found.reason


# What it costs ---------------------------------------------------------------------------


async def test_a_queue_whose_rates_were_taken_back_pays_nothing_for_them(real_shard: Shard):
    shard = real_shard
    await shard.publish_many([(f"group-{number}", b"1", 0) for number in range(9)])
    await turn(shard, want=1)
    before = await counted(shard, lambda: turn(shard, want=1))

    await set_rate(shard, "1/m:100")
    during = await counted(shard, lambda: turn(shard, want=1))
    await set_rate(shard, "")

    assert await counted(shard, lambda: turn(shard, want=1)) == before
    assert sum(during.values()) > sum(before.values())


async def test_of_a_wide_group_all_that_a_rate_has_put_off_goes_at_once(real_shard: Shard):
    shard = real_shard
    await put_off(shard, 1200)

    calls_made = await take_back(shard)

    assert calls_made > 1, "a call looks at a bounded number"
    assert shard.redis.zcount(shard.keys.ready(0), "-inf", shard.now_ms()) == 1200


async def test_a_repeated_change_of_a_rate_goes_on_as_the_first_would_have(real_shard: Shard):
    shard = real_shard
    await put_off(shard, 1200)
    lost = calls.rate(shard.prefix, "group", "none", operation="once")
    await shard.transport.perform(lost)

    cursor = (await shard.transport.perform(lost)).cursor
    while cursor != "0":
        call = calls.rate(shard.prefix, "group", "none", cursor, operation="once")
        cursor = (await shard.transport.perform(call)).cursor

    assert shard.redis.zcount(shard.keys.ready(0), "-inf", shard.now_ms()) == 1200


async def put_off(shard: Shard, count: int) -> None:
    """Start so many messages of a wide group, and have a rate of an hour put them all off."""
    await send(shard, *(wide("group", width=1000) for _ in range(count)))
    ready, started = shard.keys.ready(0), 0
    while started < count:
        leases = (await turn(shard, want=400)).leases
        started += len(leases)
        await turn(shard, *(Settlement.retry(lease, 3600) for lease in leases), want=0)
    shard.redis.zadd(ready, dict.fromkeys(shard.redis.zrange(ready, 0, -1), shard.now_ms()))
    await set_rate(shard, "1/h", "group")
    [lease] = (await turn(shard, want=400)).leases
    await turn(shard, Settlement.retry(lease, 0), want=0)
    while (await turn(shard, want=400)).wait_ms == 0:
        pass


async def take_back(shard: Shard) -> int:
    """Let any number of messages go; return how many calls that took."""
    flow, made = rate_group(shard.prefix, "group", "none"), 0
    with suppress(StopIteration):
        call = next(flow)
        while True:
            made += 1
            call = flow.send(await shard.transport.perform(call))
    return made


@pytest.mark.parametrize("rate", ["0 1", "1000 0", "99999999999999999999 1", "1 " + "9" * 20, "x"])
@pytest.mark.parametrize("group", ["group", ""])
async def test_what_is_no_rate_stops_nobody_and_the_settings_hold(
    shard: Shard, rate: str, group: str
):
    await set_rate(shard, "1/m", "other")
    await shard.publish("group", b"1", b"2")
    shard.redis.hset(shard.named("rates"), group, rate)

    assert len(await handle(shard, EACH_GROUP)) == 1


async def test_an_arrival_that_no_rate_could_have_made_holds_nothing_back(shard: Shard):
    await set_rate(shard, "1/m", "group")
    await shard.publish("group", b"1")
    for arrival in ("99999999999999999 99999999999999999", "9" * 400 + " 1"):
        shard.redis.set(shard.named("tat:group"), arrival, px=60_000)

        [lease] = (await turn(shard)).leases
        await turn(shard, Settlement.release(lease), want=0)
