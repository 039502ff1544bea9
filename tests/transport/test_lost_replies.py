"""Does a call whose reply, or request, was lost have one effect, however it is repeated?"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.identifiers import new_id
from groupqueue.exceptions import OutcomeUnknown, ServerUnavailable, StaleLease
from groupqueue.transport.redis import (
    REPEAT_PAUSES_SECONDS,
    AsyncRedisTransport,
    RedisTransport,
)
from tests.servers import Server
from tests.transport.envelopes import scheduled, send
from tests.transport.proxy import Proxy
from tests.transport.shards import InThreads, Shard, envelope

TRIES = len(REPEAT_PAUSES_SECONDS) + 1


# Publish ---------------------------------------------------------------------------------


async def test_failure_16_a_publish_whose_reply_was_lost_has_one_effect(
    proxied_shard: Shard, proxy: Proxy
):
    proxy.lose_reply()

    [identifier] = await proxied_shard.publish("group", b"once")

    assert proxy.commands.count("EVALSHA") == 2
    [element] = proxied_shard.redis.lrange(proxied_shard.keys.fifo("group"), 0, -1)
    assert element[:32].decode() == identifier
    assert proxied_shard.redis.hgetall(proxied_shard.named("backlog")) == {b"0": b"1"}


async def test_a_publish_that_nobody_answers_says_that_it_may_have_been_stored(
    proxied_shard: Shard, proxy: Proxy
):
    proxy.lose_reply(times=TRIES)

    with pytest.raises(ServerUnavailable, match="not known whether the messages were stored"):
        await proxied_shard.publish("group", b"once")

    assert proxied_shard.depth("group") == 1


async def test_a_publish_whose_request_was_lost_is_sent_again(proxied_shard: Shard, proxy: Proxy):
    proxy.lose_request()

    await proxied_shard.publish("group", b"once")

    assert proxied_shard.depth("group") == 1


async def test_a_publish_is_repeated_through_several_losses(proxied_shard: Shard, proxy: Proxy):
    proxy.lose_reply()
    proxy.lose_request()
    proxy.lose_reply()

    await proxied_shard.transport.publish_envelopes([envelope("a"), envelope("b"), envelope("a")])

    assert (proxied_shard.depth("a"), proxied_shard.depth("b")) == (2, 1)


async def test_an_original_that_arrives_after_its_repetition_has_no_second_effect(
    proxied_shard: Shard, proxy: Proxy
):
    proxy.hold_request()
    await proxied_shard.publish("group", b"once")
    before = proxied_shard.dump()

    assert b"repeated" in proxy.deliver_held()

    assert proxied_shard.dump() == before
    assert proxied_shard.depth("group") == 1


async def test_an_original_that_arrives_after_later_publishes_has_no_second_effect(
    proxied_shard: Shard, proxy: Proxy
):
    proxy.hold_request()
    for number in range(5):
        await proxied_shard.publish("group", b"%d" % number)

    assert b"repeated" in proxy.deliver_held()

    assert proxied_shard.depth("group") == 5


async def test_an_original_of_a_drained_group_does_not_bring_it_back(
    proxied_shard: Shard, proxy: Proxy
):
    proxy.hold_request()
    await proxied_shard.publish("group")
    await proxied_shard.transport.ack(await proxied_shard.transport.claim("worker", 30))

    assert b"repeated" in proxy.deliver_held()

    assert proxied_shard.places("group") == []


async def test_a_publish_that_stays_without_an_answer_says_so(proxied_shard: Shard, proxy: Proxy):
    proxy.lose_reply(times=TRIES)

    with pytest.raises(ServerUnavailable):
        await proxied_shard.publish("group")

    assert proxy.commands.count("EVALSHA") == TRIES
    assert proxied_shard.depth("group") == 1


async def test_what_follows_an_unanswered_publish_is_not_taken_for_its_repetition(
    proxied_shard: Shard, proxy: Proxy
):
    await proxied_shard.publish("group", b"before")
    proxy.hold_request()
    proxy.lose_request(times=TRIES - 1)
    with pytest.raises(ServerUnavailable):
        await proxied_shard.publish("group", b"unanswered")

    await proxied_shard.publish("group", b"after")
    proxy.deliver_held()

    # The unanswered one may still arrive; neither hides the other.
    bodies = proxied_shard.redis.lrange(proxied_shard.keys.fifo("group"), 0, -1)
    assert [body[58:] for body in bodies] == [b"before", b"after", b"unanswered"]


async def test_the_number_of_publishers_does_not_grow_with_the_calls(proxied_shard: Shard):
    for number in range(50):
        await proxied_shard.publish(f"group-{number}")

    publishers = [name for name in proxied_shard.names() if name.startswith("publisher:")]
    assert len(publishers) == 1
    assert 0 < proxied_shard.redis.pttl(proxied_shard.named(publishers[0])) <= 600_000


FORKING_PUBLISHER = """
    import os, sys, warnings
    import redis
    from groupqueue.transport.redis import RedisTransport

    transport = RedisTransport(redis.Redis.from_url(sys.argv[1]), sys.argv[2])
    transport.publish("group", b"parent before")
    child = os.fork()
    for number in range(3):
        transport.publish("group", b"child" if child == 0 else b"parent")
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    transport.publish("group", b"parent after")
    transport.close()
"""


def test_two_processes_never_share_a_publishers_name(
    server: Server, redis_client: redis.Redis, queue_prefix: str
):
    program = textwrap.dedent(FORKING_PUBLISHER)

    subprocess.run(
        [sys.executable, "-c", program, server.url, queue_prefix],
        check=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )

    # Under one name the child's calls would pass for repetitions of its parent's.
    assert redis_client.llen(f"{queue_prefix}:q:group") == 8
    assert len(redis_client.keys(f"{queue_prefix}:publisher:*")) == 2


# Ack, nack and the rest --------------------------------------------------------------------


async def test_failure_09_an_ack_whose_reply_was_lost_pops_one_message(
    proxied_shard: Shard, proxy: Proxy
):
    await proxied_shard.publish("group", b"1", b"2")
    lease = await proxied_shard.transport.claim("worker", 30)
    proxy.lose_reply()

    # The repetition cannot tell its first try's success from a lost lease, and says so.
    with pytest.raises(OutcomeUnknown):
        await proxied_shard.transport.ack(lease)

    assert proxied_shard.depth("group") == 1
    assert (await proxied_shard.transport.claim("worker", 30)).payload == b"2"


async def test_failure_09_an_ack_whose_request_was_lost_is_sent_again(
    proxied_shard: Shard, proxy: Proxy
):
    await proxied_shard.publish("group", b"1", b"2")
    lease = await proxied_shard.transport.claim("worker", 30)
    proxy.lose_request()

    assert await proxied_shard.transport.ack(lease) == 1


async def test_a_lease_that_was_lost_before_the_first_try_is_known_to_be(
    proxied_shard: Shard, proxy: Proxy
):
    await proxied_shard.publish("group", b"1", b"2")
    lease = await proxied_shard.transport.claim("worker", 30)
    proxied_shard.let_lease_run_out("group")

    with pytest.raises(StaleLease) as refusal:
        await proxied_shard.transport.ack(lease)

    assert not isinstance(refusal.value, OutcomeUnknown)


@pytest.mark.parametrize(
    "settlement",
    [
        Settlement.ack,
        lambda lease: Settlement.retry(lease, 0, "boom"),
        Settlement.release,
        lambda lease: Settlement.dead(lease, "why"),
        lambda lease: Settlement.halt(lease, "why"),
    ],
)
async def test_failure_16_a_settlement_whose_reply_was_lost_has_one_effect(
    proxied_shard: Shard, proxy: Proxy, settlement
):
    await proxied_shard.publish("group", b"1", b"2", b"3")
    lease = await proxied_shard.transport.claim("worker", 30)
    proxy.lose_reply(times=2)

    with pytest.raises(OutcomeUnknown):
        await proxied_shard.transport.settle(settlement(lease))

    stats = proxied_shard.redis.hgetall(proxied_shard.named("stats"))
    ended = [
        int(stats.get(word, 0)) for word in (b"acked", b"retried", b"released", b"dead", b"halted")
    ]
    assert sum(ended) == 1
    assert proxied_shard.depth("group") >= 2


async def test_an_ack_that_arrives_late_leaves_the_next_lease_alone(
    proxied_shard: Shard, proxy: Proxy
):
    await proxied_shard.publish("group", b"1", b"2")
    lease = await proxied_shard.transport.claim("worker", 30)
    proxy.hold_request()
    await proxied_shard.transport.ack(lease)
    following = await proxied_shard.transport.claim("worker", 30)

    assert b"stale" in proxy.deliver_held()

    assert await proxied_shard.transport.ack(following) == 0


async def test_a_nack_whose_reply_was_lost_counts_one_failure(proxied_shard: Shard, proxy: Proxy):
    await proxied_shard.publish("group", b"1", b"2")
    lease = await proxied_shard.transport.claim("worker", 30)
    proxy.lose_reply()

    with pytest.raises(OutcomeUnknown):
        await proxied_shard.transport.nack(lease)

    again = await proxied_shard.transport.claim("worker", 30)
    assert (again.payload, again.deliveries, again.failures) == (b"1", 2, 1)


async def test_a_renewal_whose_reply_was_lost_still_knows_what_holds(
    proxied_shard: Shard, proxy: Proxy
):
    await proxied_shard.publish_many([("a", b"1", 0), ("b", b"1", 0)])
    a, b = await proxied_shard.claim_all()
    proxied_shard.let_lease_run_out("b")
    proxy.lose_reply()

    assert await proxied_shard.transport.renew([a, b], 60) == [b]


async def test_failure_10_a_turn_whose_reply_was_lost_is_not_repeated_and_can_be_recovered(
    proxied_shard: Shard, proxy: Proxy
):
    await proxied_shard.publish_many([("a", b"1", 0), ("a", b"2", 0), ("b", b"1", 0)])
    known = await proxied_shard.transport.claim("worker", 30)
    proxy.commands.clear()
    proxy.lose_reply()

    with pytest.raises(ServerUnavailable):
        await proxied_shard.transport.turn("worker", [Settlement.ack(known)], 5, visibility=30)
    assert proxy.commands.count("EVALSHA") == 1

    assert await proxied_shard.transport.recover("worker", known.token) == 2
    leases = await proxied_shard.claim_all()
    assert {(lease.group, lease.payload, lease.deliveries) for lease in leases} == {
        ("b", b"1", 1),
        ("a", b"2", 1),
    }


async def test_a_claim_whose_reply_was_lost_is_not_repeated(proxied_shard: Shard, proxy: Proxy):
    await proxied_shard.publish("group")
    proxy.commands.clear()
    proxy.lose_reply()

    with pytest.raises(ServerUnavailable):
        await proxied_shard.transport.claim("worker", 30)

    assert proxy.commands.count("EVALSHA") == 1


async def test_a_recovery_whose_reply_was_lost_ends_all_the_same(
    proxied_shard: Shard, proxy: Proxy
):
    await proxied_shard.publish("group")
    await proxied_shard.transport.claim("worker", 30)
    proxy.lose_reply()

    await proxied_shard.transport.recover("worker", 0)

    assert (await proxied_shard.transport.claim("other", 30)).deliveries == 1


# What an operator asks for -------------------------------------------------------------------


async def _to_pause(shard: Shard) -> calls.Call[Any]:
    await shard.publish("group")
    return calls.pause(shard.prefix, "group", "why")


async def _to_resume(shard: Shard) -> calls.Call[Any]:
    await shard.publish("group")
    await shard.transport.perform(calls.pause(shard.prefix, "group", "why"))
    return calls.resume(shard.prefix, "group")


async def _to_skip(shard: Shard) -> calls.Call[Any]:
    first, _ = await shard.publish("group", b"1", b"2")
    return calls.skip(shard.prefix, "group", first)


async def _to_release(shard: Shard) -> calls.Call[Any]:
    await shard.publish("group")
    await shard.transport.claim("worker", 30)
    return calls.release(shard.prefix, "group")


async def _to_cancel(shard: Shard) -> calls.Call[Any]:
    [identifier] = await send(shard, scheduled("group"))
    return calls.cancel(shard.prefix, identifier)


each_operation = pytest.mark.parametrize(
    "prepare", [_to_pause, _to_resume, _to_skip, _to_release, _to_cancel]
)


@each_operation
@pytest.mark.parametrize("lost", [1, 3])
async def test_an_operators_call_whose_reply_was_lost_says_what_it_did(
    proxied_shard: Shard, proxy: Proxy, prepare: Any, lost: int
):
    call = await prepare(proxied_shard)
    proxy.lose_reply(times=lost)

    assert await proxied_shard.transport.perform(call) in (True, "ok")

    # Another call is another operation: there is nothing left to do.
    assert await proxied_shard.transport.perform(
        replace(call, arguments=[*call.arguments[:-1], new_id()])
    ) in (False, "moved", "not scheduled")


@each_operation
async def test_an_operators_call_that_arrives_late_as_well_has_no_second_effect(
    proxied_shard: Shard, proxy: Proxy, prepare: Any
):
    call = await prepare(proxied_shard)
    proxy.hold_request()
    assert await proxied_shard.transport.perform(call) in (True, "ok")
    before = proxied_shard.dump()

    assert b"repeated" in proxy.deliver_held()

    assert proxied_shard.dump() == before


async def test_a_repeated_release_does_not_end_the_lease_that_was_given_in_between(
    proxied_shard: Shard, proxy: Proxy
):
    await proxied_shard.publish("group")
    await proxied_shard.transport.claim("hanging", 30)
    proxy.hold_request()
    assert await proxied_shard.transport.perform(calls.release(proxied_shard.prefix, "group"))
    lease = await proxied_shard.transport.claim("worker", 30)

    proxy.deliver_held()

    assert await proxied_shard.transport.ack(lease) == 0


async def test_an_operators_name_of_an_operation_is_soon_forgotten(proxied_shard: Shard):
    await proxied_shard.transport.perform(calls.pause(proxied_shard.prefix, "group", "why"))

    [name] = [name for name in proxied_shard.names() if name.startswith("publisher:")]
    assert 0 < proxied_shard.redis.pttl(proxied_shard.named(name)) <= 600_000


async def test_a_wait_whose_reply_was_lost_is_an_error_and_the_next_one_works(
    proxied_shard: Shard, proxy: Proxy
):
    proxy.lose_reply(command="BLPOP")

    with pytest.raises(ServerUnavailable):
        await proxied_shard.transport.wait_for_hint(0.01)

    assert await proxied_shard.transport.wait_for_hint(0.01) is False


# Clients that repeat by themselves -----------------------------------------------------------


@pytest.mark.parametrize("executor", ["sync", "async"])
async def test_failure_16_a_client_that_was_told_to_retry_does_not_repeat_a_turn(
    server: Server, redis_client: redis.Redis, proxy: Proxy, queue_prefix: str, executor: str
):
    errors = [redis.ConnectionError, redis.TimeoutError]
    if executor == "sync":
        handed_in = redis.Redis.from_url(
            proxy.url, retry=Retry(ConstantBackoff(0.01), 5), retry_on_error=errors
        )
        transport = InThreads(RedisTransport(handed_in, queue_prefix))
    else:
        retrying = AsyncRetry(ConstantBackoff(0.01), 5)
        transport = AsyncRedisTransport(
            redis.asyncio.Redis.from_url(proxy.url, retry=retrying, retry_on_error=errors),
            queue_prefix,
        )
    try:
        await transport.publish("group", b"1")
        await transport.turn("warm", [], 0, visibility=30)
        proxy.commands.clear()
        proxy.lose_reply()

        with pytest.raises(ServerUnavailable):
            await transport.turn("worker", [], 1, visibility=30)
    finally:
        await transport.close()

    assert proxy.commands.count("EVALSHA") == 1
    assert redis_client.hget(f"{queue_prefix}:attempts", "group") == b"1"
