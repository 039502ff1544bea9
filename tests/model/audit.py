"""Is a shard in order? Every key of it is read, and held against the rules that always hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import redis

from groupqueue.core.messages import ID_LENGTH
from tests.model.parts import DAY_MS, SLACK_MS

HASHES = (
    "prio", "attempts", "failures", "errors", "holders", "paused", "doomed", "wide", "rates",
    "scheduled:data", "scheduled:held", "scheduled:dedup", "backlog", "stats", "meta",
)  # fmt: skip
# What is left of a shard after its messages are gone.
KEPT = {"backlog", "fence", "stats", "wake", "meta"}
EXPIRING = ("publisher:", "turn:", "stats:", "dedup:", "tat:", "batch:", "worker:")
MOST_HINTS = 16
# How long is kept what was written.
LASTS_MS = {
    "publisher": 600_000,
    "turn": 600_000,
    "stats": 172_800_000,
    "dedup": DAY_MS,
    "worker": DAY_MS,
}
LAST_ONCE = ("dedup", "stats")
"""Of these nothing but another value begins anew."""


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

    def ids(self) -> list[str]:
        """Return the id of every message that has not ended, wherever it is."""
        return [id_of(element) for element in self.elements()]

    def elements(self) -> list[bytes]:
        """Return every message that has not ended, wherever it is."""
        elements = [element for elements in self.each("q:").values() for element in elements]
        elements += [element_of(noted) for noted in self.values.get("scheduled:data", {}).values()]
        return elements + [letter["element"] for letter in self.letters()]

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


# One script, so that all is of one moment, and a step costs one round trip.
_READ_ALL = """
local READ = {
  string = function(key) return redis.call("GET", key) end,
  list = function(key) return redis.call("LRANGE", key, 0, -1) end,
  hash = function(key) return redis.call("HGETALL", key) end,
  zset = function(key) return redis.call("ZRANGE", key, 0, -1, "WITHSCORES") end,
  stream = function(key) return redis.call("XRANGE", key, "-", "+") end,
}
local found = {}
for number, key in ipairs(redis.call("KEYS", "*")) do
  local kind = redis.call("TYPE", key).ok
  found[number] = { key, kind, READ[kind](key), redis.call("PEXPIRETIME", key) }
end
return { redis.call("TIME"), found }
"""


def read_all(client: redis.Redis, prefix: str) -> Found:
    """Read every key of the server, which are all of one shard."""
    (seconds, microseconds), keys = client.eval(_READ_ALL, 0)
    values, expiries = {}, {}
    for key, kind, value, expiry in sorted(keys):
        name = text(key).removeprefix(prefix + ":")
        values[name], expiries[name] = _READ_AS[kind](value), expiry
    return Found(int(seconds) * 1000 + int(microseconds) / 1000, values, expiries)


def _pairs(flat: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


_READ_AS: Mapping[bytes, Callable[[Any], Any]] = {
    b"string": lambda value: value,
    b"list": lambda value: value,
    b"hash": lambda value: dict(_pairs(value)),
    b"zset": lambda value: [(member, float(score)) for member, score in _pairs(value)],
    b"stream": lambda value: [(entry, dict(_pairs(fields))) for entry, fields in value],
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
            assert score == float("inf") or abs(score - deadline) < SLACK_MS, f"I6: {key!r}"
    for tier in range(5):
        strangers = set(found.zset(f"ready:{tier}")) - set(lists)
        assert not strangers, f"I6: without messages and in tier {tier}: {strangers}"
    assert set(locks) <= set(lists), "a lock without messages"
    counted = {int(tier): int(number) for tier, number in found.hash("backlog").items()}
    assert dict.fromkeys(range(5), 0) | counted == backlog, "backlog"
    _check_counts(found)
    ids = found.ids()
    assert len(ids) == len(set(ids)), "I1: a message is in two places"
    assert len(found.values.get("wake", ())) <= MOST_HINTS
    for name, expiry in found.expiries.items():
        is_expiring = name.startswith((*EXPIRING, "lock:"))
        assert (expiry > 0) == is_expiring, f"{name} expires at {expiry}"


def check_expiries(before: Found, found: Found) -> None:
    """Fail unless what was written since another look lasts as long as it is to last."""
    for name, expiry in found.expiries.items():
        kind = name.partition(":")[0]
        lasts_ms = LASTS_MS.get(kind)
        if lasts_ms is None or expiry == before.expiries.get(name):
            continue
        # To the ms, since a machine may stand still for longer than some of them last.
        earliest, latest = before.now_ms + lasts_ms - 1, found.now_ms + lasts_ms + 1
        assert earliest < expiry < latest, f"{name} lasts {expiry - found.now_ms:.0f} ms"
        is_new = found.values[name] != before.values.get(name)
        assert is_new or kind not in LAST_ONCE, f"{name} was to end before"


def _check_counts(found: Found) -> None:
    """Hold the counters of the running minutes against those of all time."""
    sums: Counter[str] = Counter()
    for counters in found.each("stats:").values():
        sums.update({text(name): int(number) for name, number in counters.items()})
    total = {name: int(number) for name, number in found.hash("stats").items()}
    assert dict(sums) == total, "the counters per minute do not add up"
    assert min(total.values(), default=1) > 0


def _check_names(found: Found) -> None:
    known = {
        *HASHES,
        *KEPT,
        "scheduled",
        "dead",
        "workers",
        *(f"ready:{tier}" for tier in range(5)),
    }
    kinds = (*EXPIRING, "q:", "lock:", "places:")
    strangers = [name for name in found.values if name not in known and not name.startswith(kinds)]
    assert not strangers, f"unknown keys: {strangers}"


def check_drained(found: Found) -> None:
    """Fail when a shard without messages has keys that are to stay for ever."""
    left = {name for name, value in found.values.items() if value}  # a stream may be empty
    left = {name for name in left if name not in KEPT and not name.startswith(EXPIRING)}
    assert not left, f"left behind: {left}"
