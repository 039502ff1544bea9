"""Is a shard in order? Every key of it is read, and held against rules and the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import redis

from groupqueue.core.messages import HEAD_LENGTH, ID_LENGTH
from tests.model.model import Model
from tests.model.parts import HOUR_MS, Group

# A moment that was an hour away at most a minute ago.
FAR_MS = HOUR_MS - 60_000
NEVER = b"0" * 13
HASHES = (
    "prio", "attempts", "failures", "errors", "holders", "paused", "doomed", "wide", "rates",
    "scheduled:data", "scheduled:held", "scheduled:dedup", "backlog", "stats", "meta",
)  # fmt: skip
# What is left of a shard after its messages are gone.
KEPT = {"backlog", "fence", "stats", "wake", "meta"}
EXPIRING = ("publisher:", "turn:", "stats:", "dedup:", "tat:", "batch:")


@dataclass
class Found:
    """Everything that a shard's keys hold, their names without the prefix."""

    now_ms: float
    values: dict[str, Any]
    expiries: dict[str, int]

    def hash(self, name: str) -> dict[str, str]:
        """Return a hash as text, without the field that tells what is special of a queue."""
        fields = {text(key): text(value) for key, value in self.values.get(name, {}).items()}
        fields.pop("", None)
        return fields

    def each(self, kind: str) -> dict[str, Any]:
        """Return the values of all keys of a kind by the rest of their names."""
        return {
            name.removeprefix(kind): value
            for name, value in self.values.items()
            if name.startswith(kind)
        }

    def places(self, key: str) -> list[tuple[int, float]]:
        """Return each tier that a group stands in, with its moment there."""
        standing = [(tier, self.zset(f"ready:{tier}").get(key)) for tier in range(5)]
        return [(tier, score) for tier, score in standing if score is not None]

    def zset(self, name: str) -> dict[str, float]:
        """Return a sorted set."""
        return {text(member): score for member, score in self.values.get(name, ())}

    def letters(self) -> list[dict[str, bytes]]:
        """Return the dead letters, oldest first, with their entries."""
        return [
            {"entry": entry, **{text(name): value for name, value in fields.items()}}
            for entry, fields in self.values.get("dead", ())
        ]


def text(data: bytes) -> str:
    """Return bytes of a name or a value as text."""
    return data.decode(errors="surrogateescape")


def id_of(element: bytes) -> str:
    """Return the id of a message as it lies in a list."""
    return element[:ID_LENGTH].decode()


def element_of(noted: bytes) -> bytes:
    """Return the message in what is noted of a scheduled one."""
    return noted[10 + int(noted[6:10]) :]


def read_all(client: redis.Redis, prefix: str) -> Found:
    """Read every key of a shard."""
    keys = sorted(client.keys("*"))
    kinds = client.pipeline(transaction=False)
    for key in keys:
        kinds.type(key)
    reading = client.pipeline(transaction=False)
    for key, kind in zip(keys, kinds.execute(), strict=True):
        _READERS[kind](reading, key)
        reading.execute_command("PEXPIRETIME", key)
    reading.time()
    *replies, (seconds, microseconds) = reading.execute()
    names = [text(key).removeprefix(prefix + ":") for key in keys]
    return Found(
        seconds * 1000 + microseconds / 1000,
        dict(zip(names, replies[::2], strict=True)),
        dict(zip(names, replies[1::2], strict=True)),
    )


_READERS: Mapping[bytes, Any] = {
    b"string": lambda pipe, key: pipe.get(key),
    b"list": lambda pipe, key: pipe.lrange(key, 0, -1),
    b"hash": lambda pipe, key: pipe.hgetall(key),
    b"zset": lambda pipe, key: pipe.zrange(key, 0, -1, withscores=True),
    b"stream": lambda pipe, key: pipe.xrange(key),
}


# Rules that hold for every shard, whatever happened to it ----------------------------


def check_rules(found: Found) -> None:
    """Hold a shard against the invariants that need no history."""
    lists, locks = found.each("q:"), found.each("lock:")
    _check_names(found)
    backlog = dict.fromkeys(range(5), 0)
    for key, elements in lists.items():
        standing = found.places(key)
        assert len(standing) == 1, f"I6: {key!r} has messages and stands in {standing}"
        [(tier, score)] = standing
        backlog[tier] += len(elements)
        if key in locks:
            deadline = found.expiries[f"lock:{key}"]
            assert score == float("inf") or abs(score - deadline) < 60_000, f"I6: {key!r}"
    for tier in range(5):
        strangers = set(found.zset(f"ready:{tier}")) - set(lists)
        assert not strangers, f"I6: without messages and in tier {tier}: {strangers}"
    assert set(locks) <= set(lists), "a lock without messages"
    counted = {int(tier): int(number) for tier, number in found.hash("backlog").items()}
    assert dict.fromkeys(range(5), 0) | counted == backlog, "backlog"
    ids = _ids(found)
    assert len(ids) == len(set(ids)), "I1: a message is in two places"
    assert len(found.values.get("wake", ())) <= 16
    for name, expiry in found.expiries.items():
        is_expiring = name.startswith((*EXPIRING, "lock:"))
        assert (expiry > 0) == is_expiring, f"{name} expires at {expiry}"


def _ids(found: Found) -> list[str]:
    """Return the id of every message that has not ended, wherever it is."""
    elements = [element for elements in found.each("q:").values() for element in elements]
    elements += [element_of(noted) for noted in found.values.get("scheduled:data", {}).values()]
    elements += [letter["element"] for letter in found.letters()]
    return [id_of(element) for element in elements]


def _check_names(found: Found) -> None:
    known = {*HASHES, *KEPT, "scheduled", "dead", *(f"ready:{tier}" for tier in range(5))}
    kinds = (*EXPIRING, "q:", "lock:", "places:")
    strangers = [name for name in found.values if name not in known and not name.startswith(kinds)]
    assert not strangers, f"unknown keys: {strangers}"


def check_drained(found: Found) -> None:
    """Fail when a shard without messages has keys that are to stay for ever."""
    left = {name for name, value in found.values.items() if value}  # a stream may be empty
    left = {name for name in left if name not in KEPT and not name.startswith(EXPIRING)}
    assert not left, f"left behind: {left}"


# The same, knowing what happened -------------------------------------------------------


def compare(model: Model, found: Found) -> None:
    """Fail unless a shard holds what the model does; learn from it what the server decides."""
    assert set(_ids(found)) == model.all_ids(), "I1"
    groups = model.groups
    lists = {key: [_told(e) for e in elements] for key, elements in found.each("q:").items()}
    assert lists == {key: [_told_of(m) for m in g.messages] for key, g in groups.items()}
    locks = {key: int(token) for key, token in found.each("lock:").items()}
    assert locks == {key: group.lease.token for key, group in groups.items() if group.lease}
    tiers = {group.name: str(group.tier) for group in groups.values()}  # of wide ones, as a whole
    assert found.hash("prio") == tiers | {key: str(group.tier) for key, group in groups.items()}
    _compare_counters(model, found)
    _compare_scheduled(model, found)
    for group in groups.values():
        [(tier, score)] = found.places(group.key)
        assert tier == group.tier, f"{group} is in tier {tier}"
        _check_moment(model, found, group, score)
    _compare_holds(model, found)
    _compare_letters(model, found)
    assert int(found.values.get("fence", 0)) == model.last_token
    rates = {name: "none" if burst is None else f"{HOUR_MS}000 {burst}"
        for name, burst in model.rates.items() if name}  # fmt: skip
    assert found.hash("rates") == rates


def _told(element: bytes) -> tuple[str, bytes, bool]:
    return id_of(element), element[HEAD_LENGTH:], element[45:58] != NEVER


def _told_of(message: Any) -> tuple[str, bytes, bool]:
    return message.id, message.body, bool(message.expires)


def _compare_counters(model: Model, found: Found) -> None:
    groups = model.groups.items()
    deliveries = {key: str(g.deliveries) for key, g in groups if g.deliveries}
    assert found.hash("attempts") == deliveries, "deliveries"
    failures = {key: count.split()[0] for key, count in found.hash("failures").items()}
    assert failures == {key: str(g.failures) for key, g in groups if g.failures}, "failures"
    errors = {key: g.error for key, g in groups if g.error is not None}
    assert found.hash("errors") == errors
    holders = {key: group.lease.worker for key, group in groups if group.lease}
    told = found.hash("holders")
    assert {key: told.get(key) for key in holders} == holders
    assert set(told) <= set(model.groups), "holders of groups without messages"
    notes = {key: int(note.split()[0]) for key, note in found.each("batch:").items()}
    assert notes == model.together, "how many were in flight together"


def _check_moment(model: Model, found: Found, group: Group, score: float) -> None:
    """Hold a group's moment against its state."""
    now, whole_is_held = found.now_ms, group.name in model.holds
    if group.key in model.holds:
        assert score == float("inf"), f"{group} is held, and due at {score}"
    elif group.lease:
        assert score > now, f"{group} is leased, and due"
    elif model.waits_for_its_head(group):
        moment = model.moments[group.head.id]
        is_looked_at = group.name in model.widths and score < moment  # a place has come free
        assert score == moment or is_looked_at, f"{group} waits for its head's moment"
    elif group.name in model.widths:
        # It looks again by itself in a minute at most, or was put off by a rate.
        assert score < float("inf"), f"{group} is not held"
        is_far = score > now + FAR_MS
        assert not is_far or group.is_parked or whole_is_held or model.rates or model.used
        group.is_parked = is_far
    elif group.is_parked:
        assert score > now + FAR_MS, f"{group} is parked, and due at {score - now:+.0f} ms"
    elif score > now:
        assert group.name in model.used, f"{group} is due in {score - now:.0f} ms"
        group.is_parked = group.is_put_off = True


def _compare_holds(model: Model, found: Found) -> None:
    told = {}
    for key, why in found.hash("paused").items():
        first, *rest = why.split("\n")
        kind, _, reason = first.split(" ", 2)
        told[key] = (kind, reason if kind == "halted" else None, bool(rest))
    held = {
        key: ("paused", None, False)
        if hold.halted is None
        else ("halted", hold.halted, hold.is_paused)
        for key, hold in model.holds.items()
    }
    assert told == held
    flags = set(text(found.values.get("paused", {}).get(b"", b"")).split())
    special = {"stopped": model.is_stopped, "rates": bool(model.rates),
        "doomed": bool(model.doomed), "wide": bool(model.widths)}  # fmt: skip
    assert flags == {word for word, is_on in special.items() if is_on}
    assert ("stopped" in found.hash("meta")) == model.is_stopped
    doomed = {name: f"{len(doom.ids)} {doom.behind}" for name, doom in model.doomed.items()}
    assert found.hash("doomed") == doomed
    assert found.hash("wide") == {name: str(width) for name, width in model.widths.items()}
    in_flight = {
        name: {text(member): score == 1 for member, score in members}
        for name, members in found.each("places:").items()
    }
    for group in model.groups.values():
        if group.is_started and not group.lease and group.name in model.holds:
            # Of a paused group, what a silent worker had is put off once somebody looks at it.
            group.has_place &= in_flight[group.name][group.key]
    names = dict.fromkeys(group.name for group in model.groups.values() if group.is_started)
    assert in_flight == {
        name: {started.key: started.has_place for started in model.started(name)} for name in names
    }


def _compare_scheduled(model: Model, found: Found) -> None:
    known = model.scheduled | model.holding
    scheduled = found.zset("scheduled")
    assert set(scheduled) == set(known)
    for identifier, message in known.items():
        is_past = scheduled[identifier] <= found.now_ms
        assert is_past == message.has_come, f"{message} is due at {scheduled[identifier]}"
        model.moments[identifier] = int(scheduled[identifier])
    data = {text(name): noted for name, noted in found.values.get("scheduled:data", {}).items()}
    told = {name: _told(element_of(noted)) for name, noted in data.items()}
    assert told == {name: _told_of(message) for name, message in model.scheduled.items()}
    in_place = {name: message.group for name, message in model.holding.items()}
    assert found.hash("scheduled:held") == in_place
    dedup = {name: message.dedup_key for name, message in known.items() if message.dedup_key}
    assert found.hash("scheduled:dedup") == dedup
    keys = {
        name: (text(noted[:32]), text(noted[32:])) for name, noted in found.each("dedup:").items()
    }
    assert keys == model.dedup


def _compare_letters(model: Model, found: Found) -> None:
    letters = found.letters()
    told = [
        (
            *_told(letter["element"]),
            *(text(letter[name]) for name in ("group", "reason", "error")),
            *(int(letter[name]) for name in ("tier", "deliveries", "failures")),
            int(letter.get("width", 0)) or None,
        )
        for letter in letters
    ]
    assert told == [
        (*_told_of(dead.message), dead.group, dead.reason, dead.error, dead.tier, dead.deliveries,
            dead.failures, dead.width)
        for dead in model.dead
    ]  # fmt: skip
    for dead, letter in zip(model.dead, letters, strict=True):
        dead.entry = letter["entry"].decode()
