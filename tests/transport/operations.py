"""Which operations does a transport have, and how is each made ready to be performed?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from groupqueue.core import calls
from groupqueue.core.calls import Preference, Settlement
from groupqueue.core.identifiers import new_id
from groupqueue.core.messages import Envelope, EnvelopeOptions, Lease
from groupqueue.core.rates import Rate, Rates
from groupqueue.core.snapshot import held_groups, snapshot_decoder
from groupqueue.core.views import explanation
from tests.transport.envelopes import expiring, held, keyed, scheduled, send
from tests.transport.shards import Shard, envelope

Operation = Callable[[Shard], Awaitable[object]]
Prepare = Callable[[Shard], Awaitable[Operation]]


async def _leased(shard: Shard) -> Lease:
    await shard.publish("group", b"1", b"2")
    return await shard.transport.claim("worker", 30)


async def _ack(shard: Shard) -> Operation:
    lease = await _leased(shard)
    return lambda shard: shard.transport.ack(lease)


async def _nack(shard: Shard) -> Operation:
    lease = await _leased(shard)
    return lambda shard: shard.transport.nack(lease, 5, error="boom")


async def _settle(shard: Shard) -> Operation:
    lease = await _leased(shard)
    return lambda shard: shard.transport.settle(Settlement.dead(lease, "why"))


async def _recount(shard: Shard) -> Operation:
    lease = await _leased(shard)
    return lambda shard: shard.transport.perform(calls.recount(shard.prefix, lease, -1))


async def _renew(shard: Shard) -> Operation:
    lease = await _leased(shard)
    return lambda shard: shard.transport.renew([lease], 60)


async def _turn(shard: Shard) -> Operation:
    await shard.publish_many([(f"group-{number}", b"1", number % 5) for number in range(100)])
    turned = await shard.transport.turn("worker", [], 50, visibility=30)
    finished = [Settlement.ack(lease) for lease in turned.leases]
    return lambda shard: shard.transport.turn("worker", finished, 50, visibility=30)


async def _turn_with_a_batch(shard: Shard) -> Operation:
    await shard.publish("batch", b"1", b"2", priority=4)
    urgent = Preference(min_tier=4)
    return lambda shard: shard.transport.turn(
        "worker", [], 50, visibility=30, preference=urgent, batch=2
    )


async def _turn_that_sets_a_group_aside(shard: Shard) -> Operation:
    await shard.publish("doomed", b"1", b"2", b"3", priority=4)
    urgent = Preference(min_tier=4)
    turned = await shard.transport.turn("worker", [], 50, visibility=30, preference=urgent)
    [lease] = [lease for lease in turned.leases if lease.group == "doomed"]
    ends = [Settlement.dead_group(lease, "why")]
    return lambda shard: shard.transport.turn("worker", ends, 0, visibility=30)


async def _turn_under_a_rate(shard: Shard) -> Operation:
    await shard.publish("rated", priority=4)
    rates = Rates(group=Rate(60_000_000))
    return lambda shard: shard.transport.turn(
        "worker", [], 1, visibility=30, preference=Preference(min_tier=4), rates=rates
    )


async def _cancel(shard: Shard) -> Operation:
    [identifier] = await send(shard, held("held"))
    return lambda shard: shard.transport.perform(calls.cancel(shard.prefix, identifier))


async def _reschedule(shard: Shard) -> Operation:
    [identifier] = await send(shard, held("held"))
    call = calls.reschedule(shard.prefix, identifier, "+5000")
    return lambda shard: shard.transport.perform(call)


async def _recover(shard: Shard) -> Operation:
    await _leased(shard)
    return lambda shard: shard.transport.recover("worker", 0, 5)


async def _release(shard: Shard) -> Operation:
    await _leased(shard)
    return lambda shard: shard.transport.perform(calls.release(shard.prefix, "group"))


async def _dead_letters(shard: Shard) -> list[str]:
    """Set two messages aside; return the entry ids of their letters."""
    for _ in range(2):
        await shard.transport.settle(Settlement.dead(await _leased(shard), "why"))
    return [entry.decode() for entry, _ in shard.redis.xrange(shard.named("dead"))]


async def _letters(shard: Shard) -> Operation:
    await _dead_letters(shard)
    call = calls.letters(shard.prefix, "-", "+", 100, newest_first=False, decode=len)
    return lambda shard: shard.transport.perform(call)


async def _redrive(shard: Shard) -> Operation:
    call = calls.redrive(shard.prefix, await _dead_letters(shard))
    return lambda shard: shard.transport.perform(call)


async def _drop(shard: Shard) -> Operation:
    call = calls.drop(shard.prefix, await _dead_letters(shard))
    return lambda shard: shard.transport.perform(call)


def _simple(operation: Operation) -> Prepare:
    async def prepare(shard: Shard) -> Operation:
        await shard.publish("group")
        return operation

    return prepare


def _performing(build: Callable[[str], calls.Call[object]]) -> Prepare:
    return _simple(lambda shard: shard.transport.perform(build(shard.prefix)))


OPERATIONS: dict[str, Prepare] = {
    "publish one": _simple(lambda shard: shard.transport.publish("group", b"1")),
    "publish a thousand": _simple(
        lambda shard: shard.transport.publish_envelopes([envelope(f"g{n}") for n in range(1000)])
    ),
    "publish with options": _simple(
        lambda shard: shard.transport.publish_envelopes(
            [
                scheduled("group"),
                held("held"),
                keyed("key"),
                keyed("later", due="+60000"),
                expiring("brief"),
            ]
        )
    ),
    "cancel": _cancel,
    "reschedule": _reschedule,
    "agenda": _performing(lambda prefix: calls.agenda(prefix, 0, 20, len)),
    "claim": _simple(lambda shard: shard.transport.claim("worker", 30)),
    "ack": _ack,
    "nack": _nack,
    "settle": _settle,
    "recount": _recount,
    "renew": _renew,
    "turn": _turn,
    "turn with a batch": _turn_with_a_batch,
    "turn that sets a group aside": _turn_that_sets_a_group_aside,
    "turn under a rate": _turn_under_a_rate,
    "publish to a wide group": _simple(
        lambda shard: shard.transport.publish_envelopes(
            [Envelope(new_id(), "wide", 4, b"1", EnvelopeOptions(width=2)) for _ in range(3)]
        )
    ),
    "claim from a wide group": _simple(
        lambda shard: shard.transport.turn(
            "worker", [], 50, visibility=30, preference=Preference(min_tier=4)
        )
    ),
    "recover": _recover,
    "rate": _performing(lambda prefix: calls.rate(prefix, "group", "6000000 1")),
    "stop": _performing(lambda prefix: calls.stop(prefix, "why")),
    "start": _performing(calls.start),
    "trim": _performing(lambda prefix: calls.trim(prefix, max_age_ms=1, max_count=None)),
    "pause": _performing(lambda prefix: calls.pause(prefix, "group", "why")),
    "resume": _performing(lambda prefix: calls.resume(prefix, "group")),
    "skip": _performing(lambda prefix: calls.skip(prefix, "group", "0" * 32)),
    "set_tier": _performing(lambda prefix: calls.set_tier(prefix, "group", 3)),
    "release": _release,
    "purge": _performing(lambda prefix: calls.purge(prefix, ["group", "unknown"])),
    "explain": _performing(lambda prefix: calls.explain(prefix, "group", explanation)),
    "peek": _performing(lambda prefix: calls.peek(prefix, "group", 0, 20, len)),
    "letters": _letters,
    "redrive": _redrive,
    "drop": _drop,
    "heartbeat": _performing(
        lambda prefix: calls.heartbeat(prefix, "worker", {"pid": 1}, kept_ms=9000)
    ),
    "depart": _performing(lambda prefix: calls.depart(prefix, "worker")),
    "held": _performing(lambda prefix: calls.held(prefix, "0", 20, held_groups)),
    "inspect": _performing(lambda prefix: calls.inspect(prefix, 20, snapshot_decoder(20))),
    "survey": _performing(lambda prefix: calls.survey(prefix, "keys")),
    "audit": _performing(lambda prefix: calls.audit(prefix, "list", ["group"])),
    "repair": _performing(lambda prefix: calls.repair(prefix, "group", ["group"])),
}
