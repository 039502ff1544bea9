"""Is a message with a dedup key stored once within its window, or its whole call refused?"""

from __future__ import annotations

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.exceptions import DedupConflict, WrongKeyType
from tests.transport.envelopes import (
    SOON_MS,
    agenda,
    audit,
    bodies,
    cancel,
    handle_all,
    keyed,
    let_come,
    promote,
    send,
    stat,
)
from tests.transport.proxy import Proxy
from tests.transport.shards import Shard, envelope
from tests.transport.test_cleanliness import left_behind


def forget_key(shard: Shard, key: str) -> None:
    """Do what the end of the window does."""
    assert shard.redis.delete(shard.named(f"dedup:{key}"))


# Duplicates ------------------------------------------------------------------------------------


async def test_a_duplicate_is_not_stored_and_returns_the_first_id(shard: Shard):
    first = keyed("key")
    assert await shard.transport.publish_envelopes([first]) == {}

    assert await shard.transport.publish_envelopes([keyed("key")]) == {0: first.id}

    assert shard.depth("group") == 1
    assert (stat(shard, "published"), stat(shard, "duplicates")) == (1, 1)
    audit(shard)


async def test_a_duplicate_leaves_the_rest_of_its_call_in_place(shard: Shard):
    first = keyed("key", body=b"first")
    await send(shard, first)

    left_out = await shard.transport.publish_envelopes(
        [
            envelope("group", b"a"),
            keyed("key", body=b"first"),
            envelope("other", b"b"),
            keyed("new", body=b"c"),
        ]
    )

    assert left_out == {1: first.id}
    assert bodies(await handle_all(shard, want=1)) == [b"first", b"b", b"a", b"c"]
    assert stat(shard, "published") == 4


async def test_a_key_named_twice_in_one_call_is_stored_once(shard: Shard):
    first, again, third = keyed("key"), keyed("key"), keyed("key")

    assert await shard.transport.publish_envelopes([first, again, third]) == {
        1: first.id,
        2: first.id,
    }
    assert shard.depth("group") == 1


async def test_a_call_of_duplicates_alone_changes_no_group(shard: Shard):
    first = keyed("key")
    await send(shard, first)
    lease = await shard.transport.claim("worker", 30)
    place = shard.place("group")

    assert await shard.transport.publish_envelopes([keyed("key")] * 3) == dict.fromkeys(
        range(3), first.id
    )

    assert (shard.place("group"), shard.depth("group")) == (place, 1)
    assert await shard.transport.ack(lease) == 0


async def test_a_message_is_a_duplicate_even_after_the_first_was_handled(shard: Shard):
    first = keyed("key")
    await send(shard, first)
    await handle_all(shard)

    assert await shard.transport.publish_envelopes([keyed("key")]) == {0: first.id}
    assert await handle_all(shard) == []


async def test_a_key_is_remembered_for_its_window_and_no_longer(shard: Shard):
    await send(shard, keyed("key", window_ms=5_000))
    ends = shard.expiry(shard.named("dedup:key"))
    assert 4_000 < ends - shard.now_ms() <= 5_000

    await send(shard, keyed("key", window_ms=500_000))

    # A duplicate does not prolong it.
    assert shard.expiry(shard.named("dedup:key")) == ends
    forget_key(shard, "key")
    assert await shard.transport.publish_envelopes([keyed("key", body=b"other")]) == {}
    assert shard.depth("group") == 2


async def test_any_text_can_be_a_key(shard: Shard):
    keys = ["a:b", "*", "{x}", "ключ", "k" * 512, "a b\n\0"]
    firsts = [keyed(key) for key in keys]
    await send(shard, *firsts)

    left_out = await shard.transport.publish_envelopes([keyed(key) for key in keys])

    assert left_out == {place: first.id for place, first in enumerate(firsts)}
    assert shard.depth("group") == len(keys)


async def test_a_scheduled_messages_key_counts_from_its_publishing(shard: Shard):
    first = keyed("key", due=f"+{SOON_MS}")
    await send(shard, first)

    assert await shard.transport.publish_envelopes([keyed("key")]) == {0: first.id}

    assert (await agenda(shard)).total == 1
    let_come(shard, first.id)
    await promote(shard)
    assert shard.depth("group") == 1


@pytest.mark.parametrize("hold", [False, True])
async def test_a_cancelled_messages_key_is_free_again(shard: Shard, hold):
    first = keyed("key", due=f"+{SOON_MS}")
    first = first._replace(options=first.options._replace(hold=hold))
    await send(shard, first)
    assert await cancel(shard, first.id) == "ok"
    assert left_behind(shard) == set()

    assert await shard.transport.publish_envelopes([keyed("key", body=b"other")]) == {}
    assert bodies(await handle_all(shard)) == [b"other"]


async def test_cancelling_leaves_a_key_alone_that_is_anothers_by_now(shard: Shard):
    first, second = keyed("key", due=f"+{SOON_MS}"), keyed("key", body=b"other")
    await send(shard, first)
    forget_key(shard, "key")
    await send(shard, second)

    assert await cancel(shard, first.id) == "ok"

    assert await shard.transport.publish_envelopes([keyed("key", body=b"other")]) == {0: second.id}


async def test_a_scheduled_message_that_has_joined_keeps_its_key_and_nothing_else(shard: Shard):
    first = keyed("key", due=f"+{SOON_MS}")
    await send(shard, first)
    let_come(shard, first.id)

    assert len(await handle_all(shard)) == 1

    assert await shard.transport.publish_envelopes([keyed("key")]) == {0: first.id}
    forget_key(shard, "key")
    assert left_behind(shard) == set()


async def test_a_wrong_type_where_keys_are_noted_stops_no_message_that_is_due(shard: Shard):
    first = keyed("key", due=f"+{SOON_MS}")
    await send(shard, first)
    let_come(shard, first.id)
    shard.redis.set(shard.named("scheduled:dedup"), "foreign")

    assert len(await handle_all(shard)) == 1


async def test_a_redriven_message_is_no_duplicate_of_itself(shard: Shard):
    first = keyed("key")
    await send(shard, first)
    lease = await shard.transport.claim("worker", 30)
    await shard.transport.settle(Settlement.dead(lease, "why"))
    [(entry, _)] = shard.redis.xrange(shard.named("dead"))

    assert await shard.transport.perform(calls.redrive(shard.prefix, [entry.decode()])) == 1

    assert (await shard.transport.claim("worker", 30)).id == first.id
    assert await shard.transport.publish_envelopes([keyed("key")]) == {0: first.id}


async def test_keys_are_all_that_stays_of_a_drained_queue_and_they_expire(shard: Shard):
    await send(shard, *(keyed(f"key-{number}") for number in range(10)))
    await handle_all(shard)

    names = {name for name in shard.names() if name.startswith("dedup:")}
    assert len(names) == 10
    assert all(shard.redis.pttl(shard.named(name)) > 0 for name in names)
    assert {name for name in left_behind(shard) if not name.startswith("dedup:")} == set()


async def test_five_hundred_keyed_messages_go_in_one_call(shard: Shard):
    messages = [keyed(f"key-{n}", f"g{n % 250}") for n in range(500)]
    assert await shard.transport.publish_envelopes(messages) == {}

    left_out = await shard.transport.publish_envelopes(
        [keyed(f"key-{n}", f"g{n % 250}") for n in range(500)]
    )

    assert left_out == {place: sent.id for place, sent in enumerate(messages)}
    audit(shard)


# Conflicts -------------------------------------------------------------------------------------

CONFLICTS = {
    "another body": keyed("key", body=b"other"),
    "another group": keyed("key", "elsewhere"),
}


@pytest.mark.parametrize("conflicting", CONFLICTS.values(), ids=CONFLICTS)
async def test_a_key_used_for_other_content_refuses_the_whole_call(shard: Shard, conflicting):
    first = keyed("key")
    await send(shard, first)
    before = shard.dump()

    with pytest.raises(DedupConflict) as refusal:
        await shard.transport.publish_envelopes(
            [envelope("group"), keyed("new"), conflicting, envelope("other")]
        )

    assert (refusal.value.dedup_key, refusal.value.first_id) == ("key", first.id)
    assert shard.dump() == before


async def test_a_key_used_for_two_contents_in_one_call_refuses_it(shard: Shard):
    first = keyed("key", body=b"1")

    with pytest.raises(DedupConflict) as refusal:
        await shard.transport.publish_envelopes([first, keyed("key", body=b"2")])

    assert refusal.value.first_id == first.id
    assert shard.names() == set()


async def test_refused_calls_do_not_use_up_publishers_names(shard: Shard):
    await send(shard, keyed("key"))
    for number in range(20):
        with pytest.raises(DedupConflict):
            await send(shard, keyed("key", body=b"other"))
        await send(shard, keyed(f"key-{number}"))

    publishers = [name for name in shard.names() if name.startswith("publisher:")]
    assert len(publishers) == 1
    assert shard.depth("group") == 21


@pytest.mark.parametrize("name", ["dedup:key", "publisher:me", "q:group", "scheduled"])
async def test_a_key_of_a_wrong_type_is_an_error_and_nothing_is_written(
    sync_shard: Shard, name: str
):
    shard = sync_shard
    await shard.publish("other")
    shard.redis.delete(shard.named(name))
    shard.redis.sadd(shard.named(name), "foreign")
    before = shard.dump()
    call = calls.publish(
        shard.prefix, [envelope("other"), keyed("new"), keyed("key")], publisher="me", sequence=1
    )

    with pytest.raises(WrongKeyType) as refusal:
        await shard.transport.perform(call)

    assert shard.dump() == before
    assert shard.named(name) in str(refusal.value)


# Lost replies ----------------------------------------------------------------------------------


async def test_a_first_publish_whose_reply_was_lost_is_no_duplicate_of_itself(
    proxied_shard: Shard, proxy: Proxy
):
    proxy.lose_reply()

    assert await proxied_shard.transport.publish_envelopes([keyed("key"), keyed("next")]) == {}

    assert proxied_shard.depth("group") == 2
    assert stat(proxied_shard, "published") == 2


async def test_a_repeated_call_names_the_same_first_ids(proxied_shard: Shard, proxy: Proxy):
    first = keyed("key")
    await send(proxied_shard, first)
    new, again = keyed("new"), keyed("new")
    proxy.lose_reply(times=2)

    left_out = await proxied_shard.transport.publish_envelopes([keyed("key"), new, again])

    assert left_out == {0: first.id, 2: new.id}
    assert proxied_shard.depth("group") == 2
    assert stat(proxied_shard, "duplicates") == 2


async def test_a_conflict_whose_reply_was_lost_is_a_conflict_when_repeated(
    proxied_shard: Shard, proxy: Proxy
):
    await send(proxied_shard, keyed("key"))
    before = proxied_shard.dump()
    proxy.lose_reply()

    with pytest.raises(DedupConflict):
        await send(proxied_shard, envelope("group"), keyed("key", body=b"other"))

    assert proxied_shard.dump() == before


async def test_a_repeated_call_is_no_conflict_though_its_key_is_anothers_by_now(shard: Shard):
    call = calls.publish(shard.prefix, [keyed("key")], publisher="me", sequence=1)
    await shard.transport.perform(call)
    forget_key(shard, "key")
    await send(shard, keyed("key", body=b"other"))
    before = shard.dump()

    assert await shard.transport.perform(call) == {}
    assert shard.dump() == before


async def test_an_original_that_arrives_after_its_repetition_has_no_second_effect(
    proxied_shard: Shard, proxy: Proxy
):
    proxy.hold_request()
    await send(proxied_shard, keyed("key", due="+5000"), keyed("other", "elsewhere"))
    before = proxied_shard.dump()

    assert b"repeated" in proxy.deliver_held()

    assert proxied_shard.dump() == before


@pytest.mark.parametrize("noted", [b"\xff", b""])
async def test_a_key_that_holds_what_is_none_of_ours_is_refused_as_a_conflict(
    shard: Shard, noted: bytes
):
    shard.redis.set(shard.named("dedup:key"), noted, px=60_000)

    with pytest.raises(DedupConflict):
        await shard.transport.publish_envelopes([keyed("key")])
