"""How does a test bring a group into a state, and see that a shard is in order?"""

from __future__ import annotations

import pytest

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from tests.transport.shards import Shard

STATES = ("due", "parked", "leased", "leased, then paused", "paused", "halted")


async def bring_into(shard: Shard, state: str, *, messages: int = 1, tier: int = 0) -> list[str]:
    """Publish messages to `group` and bring it into a state; return the messages' ids."""
    bodies = [b"%d" % number for number in range(messages)]
    ids = await shard.publish("group", *bodies, priority=tier)
    if state in ("parked", "leased", "leased, then paused", "halted"):
        # Of all groups that are due this must be the next.
        shard.redis.zadd(shard.keys.ready(tier), {"group": 1})
        lease = await shard.transport.claim("worker", 60)
        assert lease.group == "group"
        if state == "parked":
            await shard.transport.nack(lease, 3600, error="boom")
        if state == "halted":
            await shard.transport.settle(Settlement.halt(lease, "max_attempts", "boom"))
    if state in ("paused", "leased, then paused"):
        await shard.transport.perform(calls.pause(shard.prefix, "group", "why"))
    return ids


def check(shard: Shard) -> None:
    """Hold a shard against the invariants that every script keeps."""
    depths = {name: shard.depth(name) for name in _named(shard, "q:")}
    locks = _named(shard, "lock:")
    held = {group.decode() for group in shard.redis.hkeys(shard.named("paused"))}
    tiers: dict[str, int] = {}
    for group in depths:
        tier, score = shard.place(group)
        tiers[group] = tier
        assert shard.redis.hget(shard.named("prio"), group) == b"%d" % tier
        assert (score == float("inf")) == (group in held), f"{group!r} is held, or is not"
        if group in locks and group not in held:
            # fakeredis reads the clock anew for each command of a script.
            assert score == pytest.approx(shard.expiry(shard.keys.lock(group)), abs=500)
    assert locks <= set(depths), "a lock without messages"
    for name in ("prio", "attempts", "failures", "errors", "holders"):
        groups = {group.decode() for group in shard.redis.hkeys(shard.named(name))}
        assert groups <= set(depths), f"{name} knows groups without messages"
    counted = {int(t): int(n) for t, n in shard.redis.hgetall(shard.named("backlog")).items()}
    for tier in range(5):
        members = {name.decode() for name in shard.redis.zrange(shard.keys.ready(tier), 0, -1)}
        assert members == {group for group in depths if tiers[group] == tier}
        assert counted.get(tier, 0) == sum(depths[group] for group in members)


def _named(shard: Shard, kind: str) -> set[str]:
    return {name.removeprefix(kind) for name in shard.names() if name.startswith(kind)}
