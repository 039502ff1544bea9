"""Are dead letters found, put back in their old place and order, and thrown away?"""

from __future__ import annotations

import datetime
from contextlib import suppress
from typing import Any

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.codec import JSONCodec
from groupqueue.core.letters import Flow, drop_letters, read_letters, redrive_letters
from groupqueue.core.messages import Envelope, EnvelopeOptions, moment
from groupqueue.core.views import EVERY_LETTER, LetterFilter, Letters, explanation
from groupqueue.exceptions import InvalidArgument, ServerRefused, StaleLease
from tests.transport.operated import bring_into, check
from tests.transport.shards import Shard

CODEC = JSONCodec()
INFINITY = float("inf")
LONG_AGO_MS = 1_700_000_000_000


def body(payload: Any, topic: str = "topic") -> bytes:
    return CODEC.encode(topic, payload, None)


async def run(shard: Shard, flow: Flow[Any], *, between: Any = None) -> Any:
    """Perform the calls that a flow asks for, and let others have their turn in between."""
    try:
        call = next(flow)
        while True:
            reply = await shard.transport.perform(call)
            if between is not None:
                await between()
            call = flow.send(reply)
    except StopIteration as end:
        return end.value


async def letters(shard: Shard, wanted: LetterFilter = EVERY_LETTER, limit: int = 100) -> Letters:
    return await run(shard, read_letters(shard.prefix, CODEC, wanted, limit))


async def redrive(
    shard: Shard, wanted: LetterFilter = EVERY_LETTER, *, to_tail: bool = False, between: Any = None
) -> int:
    flow = redrive_letters(shard.prefix, CODEC, wanted, to_tail=to_tail)
    return await run(shard, flow, between=between)


async def drop(shard: Shard, wanted: LetterFilter = EVERY_LETTER) -> int:
    return await run(shard, drop_letters(shard.prefix, CODEC, wanted))


async def bury(shard: Shard, group: str, *payloads: Any, tier: int = 0) -> None:
    """Publish to a group that is alone, and set aside, each payload."""
    await shard.publish(group, *map(body, payloads), priority=tier)
    for _ in payloads:
        lease = await shard.transport.claim("worker", 60)
        assert lease.group == group
        await shard.transport.settle(Settlement.dead(lease, "why", "boom"))


async def bury_many(shard: Shard, groups: list[str], count: int) -> None:
    """Set `count` messages of each group aside, the groups taking turns."""
    await shard.publish_many([(group, body(n), 0) for n in range(count) for group in groups])
    ends: list[Settlement] = []
    for _ in range(count):
        turned = await shard.transport.turn("worker", ends, len(groups), visibility=60)
        ends = [Settlement.dead(lease, "why", "boom") for lease in turned.leases]
    await shard.transport.turn("worker", ends, 0, visibility=60)


def entered(shard: Shard, when_ms: int, group: str, **fields: Any) -> str:
    """Write a letter as if it had been set aside at that moment."""
    element = b"0" * 32 + b"%013d" % LONG_AGO_MS + b"0" * 13 + body(fields.pop("payload", 1))
    letter = {
        "group": group,
        "tier": "0",
        "element": element,
        "reason": "why",
        "error": "",
        "deliveries": "1",
        "failures": "1",
    } | fields
    return shard.redis.xadd(shard.named("dead"), letter, id=f"{when_ms}-0").decode()


def payloads(shard: Shard, group: str = "group") -> list[Any]:
    """Return what waits in a group, from the head on."""
    return [
        CODEC.decode(element[58:]).payload
        for element in shard.redis.lrange(shard.keys.fifo(group), 0, -1)
    ]


async def drained(shard: Shard) -> list[Any]:
    """Ack everything that is due; return the payloads in the order of their claims."""
    return [CODEC.decode(lease.payload).payload async for lease in claimed_and_acked(shard)]


async def claimed_and_acked(shard: Shard) -> Any:
    while lease := await shard.transport.claim("worker", 60):
        await shard.transport.ack(lease)
        yield lease


# Reading ---------------------------------------------------------------------------------


async def test_a_letter_tells_what_was_known_of_its_message(shard: Shard):
    before = shard.now_ms()
    await shard.publish("gruppe ü", body({"n": 1}, "orders.paid"), priority=3)
    await shard.transport.nack(await shard.transport.claim("worker", 60), error="first")
    lease = await shard.transport.claim("worker", 60)
    await shard.transport.settle(Settlement.dead(lease, "max_attempts", "second"))
    after = shard.now_ms()

    [letter] = (await letters(shard)).letters

    assert (letter.group, letter.tier, letter.reason) == ("gruppe ü", 3, "max_attempts")
    assert (letter.error, letter.deliveries, letter.failures) == ("second", 2, 2)
    assert int(before) <= letter.died_at.timestamp() * 1000 <= after
    message = letter.message
    assert (message.id, message.topic, message.payload) == (lease.id, "orders.paid", {"n": 1})
    assert "payload" not in repr(letter)


async def test_letters_come_newest_first_and_as_many_as_asked_for(shard: Shard):
    entries = [entered(shard, LONG_AGO_MS + n, "group") for n in range(250)]

    found = await letters(shard, limit=120)

    assert found.total == 250
    assert [letter.entry for letter in found.letters] == entries[::-1][:120]
    assert [letter.entry for letter in (await letters(shard, limit=1)).letters] == entries[-1:]


async def test_letters_are_filtered_by_what_they_are(shard: Shard):
    entered(shard, LONG_AGO_MS + 1, "a", reason="rejected")
    entered(shard, LONG_AGO_MS + 2, "b", reason="poison")
    entered(shard, LONG_AGO_MS + 3, "b", reason="rejected")

    async def found(**wanted: Any) -> list[str]:
        return [one.entry for one in (await letters(shard, LetterFilter(**wanted))).letters]

    first, second, third = (f"{LONG_AGO_MS + n}-0" for n in (1, 2, 3))
    assert await found() == [third, second, first]
    assert await found(group="b") == [third, second]
    assert await found(reason="rejected") == [third, first]
    assert await found(group="b", reason="rejected") == [third]
    assert await found(topic="topic", group="a") == [first]
    assert await found(topic="other") == []
    assert await found(entries=[first, third, first, "1-0"]) == [third, first]
    assert await found(entries=[first, third], group="b") == [third]


async def test_letters_are_filtered_by_time_to_the_millisecond(shard: Shard):
    entries = [entered(shard, LONG_AGO_MS + n, "group") for n in range(5)]

    async def found(**wanted: datetime.datetime) -> list[str]:
        return [one.entry for one in (await letters(shard, LetterFilter(**wanted))).letters][::-1]

    at = [moment(LONG_AGO_MS + n) for n in range(6)]
    assert await found(since=at[2]) == entries[2:]
    assert await found(until=at[2]) == entries[:2]
    assert await found(since=at[1], until=at[4]) == entries[1:4]
    assert await found(since=at[4], until=at[1]) == []
    just_after = at[2] + datetime.timedelta(microseconds=1)
    assert await found(since=just_after) == entries[3:]
    assert await found(until=just_after) == entries[:3]
    assert await found(since=datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)) == entries


@pytest.mark.parametrize("name", ["since", "until"])
def test_a_naive_moment_is_refused(name: str):
    with pytest.raises(InvalidArgument, match="aware"):
        LetterFilter(**{name: datetime.datetime(2026, 1, 1)})  # noqa: DTZ001 - what is refused


@pytest.mark.parametrize("entry", ["", "x", "1", "1-", "-1", "1-0-0", "\u0661-\u0660", "+", "(1-0"])
async def test_what_is_no_entry_id_is_refused(sync_shard: Shard, entry: str):
    with pytest.raises(InvalidArgument, match="entry id"):
        await letters(sync_shard, LetterFilter(entries=[entry]))


async def test_an_entry_that_is_no_letter_disturbs_nobody(shard: Shard):
    await bury(shard, "group", 1)
    shard.redis.xadd(shard.named("dead"), {"note": "to myself"})
    await bury(shard, "group", 2)

    found = await letters(shard)

    assert [letter.group for letter in found.letters] == ["group", "", "group"]
    assert await redrive(shard) == 2
    assert payloads(shard) == [1, 2]
    check(shard)
    assert await drop(shard) == 1


async def test_reading_letters_writes_nothing(shard: Shard):
    await bury(shard, "group", 1, 2)
    before = shard.dump()

    await letters(shard)

    assert shard.dump() == before


# Putting back, in place --------------------------------------------------------------------


async def test_letters_go_back_before_what_waits_in_their_old_order(shard: Shard):
    await bury(shard, "group", 1, 2, 3)
    await shard.publish("group", body(4), body(5))

    assert await redrive(shard) == 3

    assert payloads(shard) == [1, 2, 3, 4, 5]
    assert (await letters(shard)).total == 0
    check(shard)
    assert await drained(shard) == [1, 2, 3, 4, 5]


async def test_letters_go_back_behind_a_running_lease(shard: Shard):
    await bury(shard, "group", 1, 2)
    await shard.publish("group", body(3), body(4))
    running = await shard.transport.claim("worker", 60)
    place = shard.place("group")

    assert await redrive(shard) == 2

    assert payloads(shard) == [3, 1, 2, 4]
    assert shard.place("group") == place
    assert shard.redis.hget(shard.named("attempts"), "group") == b"1"
    check(shard)
    assert await shard.transport.renew([running], 60) == []
    assert await shard.transport.ack(running) == 3
    assert await drained(shard) == [1, 2, 4]


async def test_a_running_lease_keeps_its_failures(shard: Shard):
    await bury(shard, "group", 1)
    await shard.publish("group", body(2))
    await shard.transport.nack(await shard.transport.claim("worker", 60), error="boom")
    running = await shard.transport.claim("worker", 60)

    await redrive(shard)
    await shard.transport.nack(running, error="bang")

    again = await shard.transport.claim("worker", 60)
    assert (again.id, again.deliveries, again.failures) == (running.id, 3, 2)


async def test_letters_go_to_the_tail_if_asked(shard: Shard):
    await bury(shard, "group", 1, 2)
    await shard.publish("group", body(3))
    place = shard.place("group")

    assert await redrive(shard, to_tail=True) == 2

    assert payloads(shard) == [3, 1, 2]
    assert shard.place("group") == place
    check(shard)


async def test_letters_go_to_the_tail_behind_a_running_lease(shard: Shard):
    await bury(shard, "group", 1)
    await shard.publish("group", body(2))
    running = await shard.transport.claim("worker", 60)

    await redrive(shard, to_tail=True)

    assert payloads(shard) == [2, 1]
    check(shard)
    assert await shard.transport.ack(running) == 1


async def test_letters_of_several_groups_go_back_each_in_its_own(shard: Shard):
    groups = [f"group-{number}" for number in range(7)]
    await bury_many(shard, groups, 5)
    await shard.publish_many([(group, body(5), 0) for group in groups])

    assert await redrive(shard) == 35

    assert [payloads(shard, group) for group in groups] == [[0, 1, 2, 3, 4, 5]] * 7
    check(shard)


@pytest.mark.parametrize("to_tail", [False, True])
async def test_far_more_letters_than_one_call_takes_keep_their_order(sync_shard: Shard, to_tail):
    shard = sync_shard
    await bury_many(shard, ["a", "b", "c"], 130)

    assert await redrive(shard, to_tail=to_tail) == 390

    assert [payloads(shard, group) for group in "abc"] == [list(range(130))] * 3
    assert not shard.redis.exists(shard.named("paused"))
    check(shard)


@pytest.mark.parametrize("leased", [False, True])
@pytest.mark.parametrize("letters_of_group", [60, 210])
async def test_no_worker_gets_between_the_steps_of_a_long_redrive(
    sync_shard: Shard,
    leased,
    letters_of_group: int,
):
    shard = sync_shard
    await bury_many(shard, ["a", "b", "c"], letters_of_group)
    if leased:
        await shard.publish("b", body("running"))
        running = [await shard.transport.claim("worker", 60)]
    handled: dict[str, list[Any]] = {"a": [], "b": [], "c": []}

    async def work() -> None:
        if leased and len(running) == 1 and payloads(shard, "b")[1:]:
            await shard.transport.ack(running.pop())
        async for lease in claimed_and_acked(shard):
            handled[lease.group].append(CODEC.decode(lease.payload).payload)

    assert await redrive(shard, between=work) == 3 * letters_of_group
    await work()

    assert handled == {group: list(range(letters_of_group)) for group in "abc"}
    assert not shard.redis.exists(shard.named("paused"))


@pytest.mark.parametrize("put_back", [50, 150])
async def test_a_long_redrive_that_breaks_off_leaves_its_group_paused_and_can_go_on(
    sync_shard: Shard, put_back: int
):
    shard = sync_shard
    await bury_many(shard, ["group"], 250)

    async def break_off() -> None:
        if shard.depth("group") == put_back:
            raise ConnectionError

    with pytest.raises(ConnectionError):
        await redrive(shard, between=break_off)
    assert await shard.transport.claim("worker", 60) is None
    why = shard.redis.hget(shard.named("paused"), "group").decode()
    assert why.endswith("dead letters are being put back")

    assert await redrive(shard) == 250 - put_back
    await shard.transport.perform(calls.resume(shard.prefix, "group"))

    assert await drained(shard) == list(range(250))


async def test_a_pause_whose_reply_was_lost_is_ended_all_the_same(sync_shard: Shard):
    shard = sync_shard
    await bury_many(shard, ["group"], 101)
    flow = redrive_letters(shard.prefix, CODEC, EVERY_LETTER, to_tail=False)
    call = next(flow)
    while call.script != "pause":
        call = flow.send(await shard.transport.perform(call))
    await shard.transport.perform(call)

    # The repeated call finds the group paused, and is told by whom.
    reply = await shard.transport.perform(call)
    assert reply is True
    with suppress(StopIteration):
        while True:
            reply = await shard.transport.perform(flow.send(reply))

    assert not shard.redis.exists(shard.named("paused"))
    assert await drained(shard) == list(range(101))


@pytest.mark.parametrize("count", [3, 150])
async def test_an_operators_pause_outlasts_a_redrive(shard: Shard, count: int):
    await bury_many(shard, ["group"], count)
    await shard.transport.perform(calls.pause(shard.prefix, "group", "data fix"))

    assert await redrive(shard) == count

    assert shard.place("group") == (0, INFINITY)
    assert shard.redis.hget(shard.named("paused"), "group").endswith(b" data fix")
    check(shard)
    await shard.transport.perform(calls.resume(shard.prefix, "group"))
    assert await drained(shard) == list(range(count))


async def test_a_halted_group_stays_halted(shard: Shard):
    await bury(shard, "group", 1)
    await bring_into(shard, "halted")

    assert await redrive(shard) == 1

    assert shard.place("group") == (0, INFINITY)
    assert shard.redis.hget(shard.named("paused"), "group").startswith(b"halted")
    check(shard)
    await shard.transport.perform(calls.resume(shard.prefix, "group"))
    lease = await shard.transport.claim("worker", 60)
    assert (CODEC.decode(lease.payload).payload, lease.deliveries) == (1, 1)


async def test_a_parked_group_is_due_for_what_came_back_before_its_head(shard: Shard):
    await bury(shard, "group", 1)
    await shard.publish("group", body(2))
    await shard.transport.nack(await shard.transport.claim("worker", 60), 3600, error="boom")

    await redrive(shard)

    assert shard.place("group")[1] <= shard.now_ms()
    lease = await shard.transport.claim("worker", 60)
    assert (CODEC.decode(lease.payload).payload, lease.deliveries, lease.failures) == (1, 1, 0)
    check(shard)


async def test_a_parked_group_waits_on_when_letters_go_to_its_tail(shard: Shard):
    await bury(shard, "group", 1)
    await shard.publish("group", body(2))
    await shard.transport.nack(await shard.transport.claim("worker", 60), 3600, error="boom")
    place = shard.place("group")

    await redrive(shard, to_tail=True)

    assert shard.place("group") == place
    assert shard.redis.hget(shard.named("failures"), "group").startswith(b"1 ")


async def test_a_held_message_waits_on_behind_what_came_back_before_it(shard: Shard):
    await bury(shard, "group", 1)
    held = EnvelopeOptions(due="+3600000", hold=True)
    await shard.transport.publish_envelopes([Envelope("f" * 32, "group", 0, body(2), held)])
    assert await shard.transport.claim("worker", 60) is None

    await redrive(shard)

    assert await drained(shard) == [1]
    assert shard.place("group")[1] > shard.now_ms() + 3_000_000
    check(shard)


async def test_a_due_group_does_not_lose_its_place_in_line(shard: Shard):
    await bury(shard, "group", 1)
    await shard.publish("group", body(2))
    await shard.publish("other", body(3))
    place = shard.place("group")

    await redrive(shard)

    assert shard.place("group") == place
    assert await drained(shard) == [1, 3, 2]


async def test_a_drained_group_comes_back_in_the_tier_that_it_had(shard: Shard):
    await bury(shard, "group", 1, 2, tier=3)
    assert shard.places("group") == []
    shard.redis.delete(shard.named("wake"))

    assert await redrive(shard) == 2

    tier, due = shard.place("group")
    assert (tier, due <= shard.now_ms()) == (3, True)
    check(shard)
    assert await shard.transport.wait_for_hint(0.01) is True
    assert await drained(shard) == [1, 2]


async def test_a_group_that_has_messages_keeps_the_tier_that_it_has_now(shard: Shard):
    await bury(shard, "group", 1, tier=3)
    await shard.publish("group", body(2), priority=1)

    await redrive(shard)

    assert shard.place("group")[0] == 1
    check(shard)


async def test_a_redriven_message_has_fresh_attempts_and_is_otherwise_the_same(shard: Shard):
    await shard.publish("group", body(1))
    first = await shard.transport.claim("worker", 60)
    await shard.transport.nack(first, error="boom")
    await shard.transport.settle(
        Settlement.dead(await shard.transport.claim("worker", 60), "why", "boom")
    )

    await redrive(shard)

    again = await shard.transport.claim("worker", 60)
    assert (again.id, again.payload, again.published_ms) == (
        first.id,
        first.payload,
        first.published_ms,
    )
    assert (again.deliveries, again.failures) == (1, 0)
    assert not shard.redis.exists(shard.named("errors"))


async def test_a_stale_settle_finds_nothing_to_settle_in_a_redriven_message(shard: Shard):
    await shard.publish("group", body(1), body(2))
    stale = await shard.transport.claim("dead", 60)
    shard.let_lease_run_out("group")
    current = await shard.transport.claim("worker", 60)
    await shard.transport.settle(Settlement.dead(current, "why"))
    await redrive(shard)

    for lease in (stale, current):
        with pytest.raises(StaleLease):
            await shard.transport.ack(lease)

    assert await drained(shard) == [1, 2]


async def test_redriving_by_entry_takes_those_alone(shard: Shard):
    await bury(shard, "group", 1, 2, 3, 4)
    entries = [letter.entry for letter in (await letters(shard)).letters]

    assert await redrive(shard, LetterFilter(entries=[entries[0], entries[2], "1-0"])) == 2

    assert payloads(shard) == [2, 4]
    assert (await letters(shard)).total == 2
    check(shard)


async def test_redriving_by_filter_leaves_the_others_alone(shard: Shard):
    await bury_many(shard, ["a", "b"], 3)

    assert await redrive(shard, LetterFilter(group="a")) == 3

    assert (payloads(shard, "a"), payloads(shard, "b")) == ([0, 1, 2], [])
    assert {letter.group for letter in (await letters(shard)).letters} == {"b"}


@pytest.mark.parametrize("to_tail", [False, True])
async def test_a_letter_goes_back_once_however_often_it_is_named(shard: Shard, to_tail):
    await bury(shard, "group", 1, 2)
    first, second = [letter.entry for letter in (await letters(shard)).letters][::-1]
    call = calls.redrive(shard.prefix, [first, first, second, first], to_tail=to_tail)

    assert await shard.transport.perform(call) == 2
    assert await shard.transport.perform(call) == 0

    assert payloads(shard) == [1, 2]
    check(shard)


async def test_redriving_nothing_changes_nothing(shard: Shard):
    await bury(shard, "group", 1)
    before = shard.dump()

    assert await redrive(shard, LetterFilter(group="unknown")) == 0
    assert await redrive(shard, LetterFilter(entries=["1-0"])) == 0
    assert shard.dump() == before


async def test_what_was_redriven_can_die_again(shard: Shard):
    await bury(shard, "group", 1)
    for _ in range(3):
        assert await redrive(shard) == 1
        lease = await shard.transport.claim("worker", 60)
        await shard.transport.settle(Settlement.dead(lease, "again"))
        check(shard)

    assert (await letters(shard)).total == 1
    statistics = shard.redis.hgetall(shard.named("stats"))
    assert (statistics[b"redriven"], statistics[b"dead"]) == (b"3", b"4")


# Throwing away ---------------------------------------------------------------------------


async def test_dropped_letters_are_gone_and_counted(shard: Shard):
    await bury(shard, "group", 1, 2, 3)
    entries = [letter.entry for letter in (await letters(shard)).letters]

    assert await drop(shard, LetterFilter(entries=[entries[1], "1-0"])) == 1

    assert [letter.entry for letter in (await letters(shard)).letters] == [entries[0], entries[2]]
    assert shard.redis.hget(shard.named("stats"), "dropped") == b"1"
    assert await drop(shard) == 2
    assert await drop(shard) == 0
    assert (await letters(shard)).total == 0


async def test_dropping_by_filter_leaves_the_others_alone_however_many_there_are(shard: Shard):
    for number in range(320):
        entered(shard, LONG_AGO_MS + number, f"group-{number % 2}")

    assert await drop(shard, LetterFilter(group="group-1")) == 160

    found = await letters(shard, limit=500)
    assert {letter.group for letter in found.letters} == {"group-0"}
    assert found.total == len(found.letters) == 160


async def test_dropping_touches_no_group(shard: Shard):
    await bury(shard, "group", 1)
    await shard.publish("group", body(2))
    before = shard.dump()

    await drop(shard)

    after = shard.dump()
    changed = {key for key in before if before[key] != after.get(key)}
    assert {key.removeprefix(shard.prefix + ":").split(":")[0] for key in changed} == {
        "dead",
        "stats",
    }


# When no more can be set aside ---------------------------------------------------------------

LAST_ENTRY = f"{2**64 - 1}-{2**64 - 1}"


async def test_a_head_that_cannot_be_set_aside_is_not_skipped(real_shard: Shard):
    shard = real_shard
    [identifier] = await shard.publish("group")
    shard.redis.xadd(shard.named("dead"), {"a": "b"}, LAST_ENTRY)
    before = shard.dump()

    with pytest.raises(ServerRefused):
        await shard.transport.perform(calls.skip(shard.prefix, "group", identifier))

    assert shard.dump() == before


@pytest.mark.parametrize("end", [Settlement.dead, Settlement.dead_group])
async def test_a_message_that_cannot_be_set_aside_halts_its_group(real_shard: Shard, end: Any):
    shard = real_shard
    await shard.publish("group", b"1", b"2")
    await shard.publish("other")
    shard.redis.xadd(shard.named("dead"), {"a": "b"}, LAST_ENTRY)
    first, other = (await shard.transport.turn("worker", [], 2, visibility=60)).leases

    turned = await shard.transport.turn(
        "worker", [end(first, "why", "boom"), Settlement.ack(other)], 5, visibility=60
    )

    assert [(settled.word, settled.left) for settled in turned.settled] == [("ok", 2), ("ok", 0)]
    assert turned.leases == []
    explained = await shard.transport.perform(calls.explain(shard.prefix, "group", explanation))
    assert (explained.state, explained.group.depth, explained.group.failures) == ("halted", 2, 1)
    assert "last possible ID" in explained.group.last_error
    check(shard)
    await shard.transport.perform(calls.resume(shard.prefix, "group"))
    assert (await shard.transport.claim("worker", 60)).id == first.id


async def test_what_cannot_be_set_aside_with_its_group_waits(real_shard: Shard):
    shard = real_shard
    await shard.publish("group", b"1", b"2")
    lease = await shard.transport.claim("worker", 60)
    await shard.transport.settle(Settlement.dead_group(lease, "why"))
    shard.redis.xadd(shard.named("dead"), {"a": "b"}, LAST_ENTRY)

    turned = await shard.transport.turn("worker", [], 5, visibility=60)

    assert (turned.leases, turned.buried) == ([], [])
    assert turned.wait_ms > 0
    assert shard.depth("group") == 1
    check(shard)
