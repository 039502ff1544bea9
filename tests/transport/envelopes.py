"""How does a test send messages with options, let their moments come, and audit the shard?"""

from __future__ import annotations

from collections.abc import Sequence

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.codec import JSONCodec
from groupqueue.core.identifiers import new_id
from groupqueue.core.messages import Envelope, EnvelopeOptions, Lease, split_place
from groupqueue.core.views import Agenda, agenda_decoder
from tests.transport.shards import Shard, until

SOON_MS = 60_000


def scheduled(
    group: str, body: bytes = b"1", *, tier: int = 0, due: str = f"+{SOON_MS}"
) -> Envelope:
    """Return a message that joins its group when it is due."""
    return Envelope(new_id(), group, tier, body, EnvelopeOptions(due=due))


def held(group: str, body: bytes = b"1", *, tier: int = 0, due: str = f"+{SOON_MS}") -> Envelope:
    """Return a message that takes its place now and holds its group until it is due."""
    return Envelope(new_id(), group, tier, body, EnvelopeOptions(due=due, hold=True))


def keyed(
    key: str, group: str = "group", body: bytes = b"1", *, due: str = "", window_ms: int = 300_000
) -> Envelope:
    """Return a message with a dedup key; its body stands for its content."""
    digest = f"{group}/{body.decode()}"
    options = EnvelopeOptions(due=due, dedup_key=key, dedup_ms=window_ms, digest=digest)
    return Envelope(new_id(), group, 0, body, options)


def expiring(group: str, body: bytes = b"1", *, tier: int = 0, expires_ms: int = 1) -> Envelope:
    """Return a message that is too old to be delivered in a moment."""
    return Envelope(new_id(), group, tier, body, EnvelopeOptions(expires_ms=expires_ms))


def wide(group: str, body: bytes = b"1", *, width: int = 3) -> Envelope:
    """Return a message of a wide group."""
    return Envelope(new_id(), group, 0, body, EnvelopeOptions(width=width))


async def send(shard: Shard, *envelopes: Envelope) -> list[str]:
    """Publish by five hundred; return the ids."""
    for chunk in calls.in_chunks(envelopes, calls.MAX_SPECIAL_MESSAGES_PER_CALL):
        await shard.transport.publish_envelopes(chunk)
    return [sent.id for sent in envelopes]


async def send_expired(shard: Shard, *envelopes: Envelope) -> list[str]:
    """Publish messages that expire in a moment; return their ids once that has passed."""
    ids = await send(shard, *envelopes)
    await let_pass(shard, max(sent.options.expires_ms or 0 for sent in envelopes if sent.options))
    return ids


async def let_pass(shard: Shard, milliseconds: int) -> None:
    """Return once so much time has passed on the server."""
    ends = shard.now_ms() + milliseconds + 1

    async def is_over() -> bool:
        return shard.now_ms() > ends

    await until(is_over)


def let_come(shard: Shard, *ids: str, in_ms: int = -10_000) -> None:
    """Move scheduled messages' moments, and those of the groups they hold, so close to now.

    By default they are past; the first given is the earliest.
    """
    groups = shard.redis.hgetall(shard.named("scheduled:held"))
    now = int(shard.now_ms())
    for number, identifier in enumerate(ids):
        due = now + in_ms + number
        shard.redis.zadd(shard.named("scheduled"), {identifier: due})
        group = groups.get(identifier.encode(), b"").decode()
        if group and _waits_at_the_head(shard, group, identifier):
            tier, score = shard.place(group)
            if score != float("inf"):
                shard.redis.zadd(shard.keys.ready(tier), {group: due})


def _waits_at_the_head(shard: Shard, group: str, identifier: str) -> bool:
    head = shard.redis.lindex(shard.keys.fifo(group), 0) or b""
    return head.startswith(identifier.encode()) and not shard.redis.exists(shard.keys.lock(group))


async def cancel(shard: Shard, identifier: str) -> str:
    """Take a scheduled message back; return the script's word."""
    return await shard.transport.perform(calls.cancel(shard.prefix, identifier))


async def reschedule(shard: Shard, identifier: str, due: str) -> bool:
    """Change when a scheduled message is due."""
    return await shard.transport.perform(calls.reschedule(shard.prefix, identifier, due))


async def agenda(shard: Shard, start: int = 0, limit: int = 100) -> Agenda:
    """Read what is scheduled."""
    decode = agenda_decoder(JSONCodec())
    return await shard.transport.perform(calls.agenda(shard.prefix, start, limit, decode))


async def promote(shard: Shard) -> calls.Turned:
    """Take a turn that claims nothing."""
    return await shard.transport.turn("promoter", [], 0, visibility=30)


async def handle_all(shard: Shard, want: int = 50) -> list[Lease]:
    """Claim and ack until nothing is due, however many turns it takes; return the leases."""
    handled: list[Lease] = []
    finished: list[Settlement] = []
    while True:
        turned = await shard.transport.turn("worker", finished, want, visibility=60)
        handled += turned.leases
        finished = [Settlement.ack(lease) for lease in turned.leases]
        if not finished and turned.wait_ms != 0:
            return handled


def bodies(leases: Sequence[Lease]) -> list[bytes]:
    """Return what the leased messages say."""
    return [lease.payload for lease in leases]


def due_of(shard: Shard, identifier: str) -> float | None:
    """Return the moment at which a scheduled message is due."""
    return shard.redis.zscore(shard.named("scheduled"), identifier)


def stat(shard: Shard, name: str) -> int:
    """Return a counter."""
    return int(shard.redis.hget(shard.named("stats"), name) or 0)


def audit(shard: Shard) -> None:
    """Fail unless each group stands in one tier, and all counts and records agree."""
    names = shard.names()
    groups = {name.removeprefix("q:") for name in names if name.startswith("q:")}
    locked = {name.removeprefix("lock:") for name in names if name.startswith("lock:")}
    tiers = {_group(k): int(v) for k, v in shard.redis.hgetall(shard.named("prio")).items()}
    backlog = dict.fromkeys(range(5), 0)
    for group in groups:
        tier, score = shard.place(group)
        assert tiers[group] == tier, f"{group} stands in {tier}, not {tiers[group]}"
        assert group not in locked or score > shard.now_ms(), f"{group} is leased and due"
        backlog[tier] += shard.depth(group)
    widths = {_group(name) for name in shard.redis.hkeys(shard.named("wide"))}
    assert set(tiers) == groups | widths
    assert locked <= groups
    assert sum(shard.redis.zcard(shard.keys.ready(tier)) for tier in range(5)) == len(groups)
    counted = {int(k): int(v) for k, v in shard.redis.hgetall(shard.named("backlog")).items()}
    assert dict.fromkeys(range(5), 0) | counted == backlog
    moments = {identifier for identifier, _ in shard.redis.zscan_iter(shard.named("scheduled"))}
    data = set(shard.redis.hkeys(shard.named("scheduled:data")))
    in_place = set(shard.redis.hkeys(shard.named("scheduled:held")))
    assert moments == data | in_place
    assert not data & in_place
    _audit_wide_groups(shard, groups, locked)


def _audit_wide_groups(shard: Shard, groups: set[str], locked: set[str]) -> None:
    """Fail unless what was started of wide groups has a place, and they all have messages."""
    started = {group for group in groups if split_place(_bytes(group))[1]}
    placed: dict[str, float] = {}
    widths = {_group(name) for name in shard.redis.hkeys(shard.named("wide"))}
    for name in shard.names():
        if name.startswith("places:"):
            assert name.removeprefix("places:") in widths
            members = shard.redis.zrange(shard.named(name), 0, -1, withscores=True)
            placed |= {_group(member): score for member, score in members}
    assert set(placed) == started
    assert all(placed[group] == 1 for group in started & locked), "leased without a place"
    whole = {_group(split_place(_bytes(group))[0]) for group in groups}
    assert widths <= whole
    flags = (shard.redis.hget(shard.named("paused"), "") or b"").split()
    assert (b"wide" in flags) == bool(widths)


def _group(name: bytes) -> str:
    return name.decode(errors="surrogateescape")


def _bytes(group: str) -> bytes:
    return group.encode(errors="surrogateescape")
