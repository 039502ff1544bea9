"""Does a shard hold what the model does? Every key of it is compared."""

from __future__ import annotations

import math
from typing import Any

from groupqueue.core.messages import HEAD_LENGTH
from tests.model.audit import Found, element_of, id_of, text
from tests.model.model import Model
from tests.model.parts import DAY_MS, SLACK_MS, Group

NOTED_TIMES = 10
"""For so many times a lease's length it is noted how many messages it holds, at least."""
NEVER, BY_HAND = b"0" * 13, b"0" * 12 + b"1"


def compare(model: Model, found: Found) -> None:
    """Fail unless a shard holds what the model does; learn from it what the server decides."""
    assert set(found.ids()) == model.all_ids(), "I1"
    groups = model.groups
    _compare_elements(model, found)
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
    _compare_rates(model, found)
    _compare_workers(model, found)


def _compare_elements(model: Model, found: Found) -> None:
    """Hold the moments that messages carry along against what was asked for."""
    model.began_ms = model.began_ms or found.now_ms - SLACK_MS / 2
    for element in found.elements():
        published, expires = int(element[32:45]), element[45:HEAD_LENGTH]
        name = id_of(element)
        assert model.published.setdefault(name, published) == published, (
            f"{name} is of another time"
        )
        assert model.began_ms < published <= found.now_ms, f"{name} was published at {published}"
        lasts_ms = int(expires) - published
        is_right = expires in (NEVER, BY_HAND) or lasts_ms in (0, DAY_MS)
        assert is_right, f"{name} is to live for {lasts_ms} ms"


def _told(element: bytes) -> tuple[str, bytes, bool]:
    return id_of(element), element[HEAD_LENGTH:], element[45:58] != NEVER


def _told_of(message: Any) -> tuple[str, bytes, bool]:
    return message.id, message.body, bool(message.expires)


def _is_about(moment: float, expected: float) -> bool:
    return abs(moment - expected) < SLACK_MS


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
    for key in model.together:
        lease = model.groups[key].lease if key in model.groups else None
        # Of what silent workers had it is known for as long as their leases made it.
        lasts_ms = lease.visibility_ms if lease and lease.together > 1 else DAY_MS
        left_ms = found.expiries.get(f"batch:{key}", math.inf) - found.now_ms
        assert left_ms > NOTED_TIMES * lasts_ms - SLACK_MS, (
            f"the batch of {key!r} is soon forgotten"
        )
    notes = {key: int(note.split()[0]) for key, note in found.each("batch:").items()}
    assert notes == model.together, "how many were in flight together"
    counts = {name: str(count) for name, count in model.counts.items() if count}
    assert found.hash("stats") == counts, "statistics"


def _check_moment(model: Model, found: Found, group: Group, score: float) -> None:
    """Hold a group's moment against its state."""
    now, whole_is_held = found.now_ms, group.name in model.holds
    until = now + group.lease.visibility_ms if group.lease else 0
    if group.lease:
        ends = found.expiries[f"lock:{group.key}"]
        assert _is_about(ends, until), f"the lease of {group} ends in {ends - now:.0f} ms"
    if group.key in model.holds:
        assert score == float("inf"), f"{group} is held, and due at {score}"
    elif group.lease:
        assert _is_about(score, until), f"{group} is leased, and due in {score - now:.0f} ms"
    elif model.waits_for_its_head(group):
        moment = model.moments[group.head.id]
        is_looked_at = group.name in model.widths and score < moment  # a place has come free
        assert score == moment or is_looked_at, f"{group} waits for its head's moment"
    elif group.name in model.widths:
        # It looks again by itself in a minute at most, or was put off by a rate.
        assert score < float("inf"), f"{group} is not held"
        is_far, has_rate = score > now + DAY_MS - SLACK_MS, bool(model.rates or model.used)
        assert not is_far or group.is_parked or whole_is_held or has_rate
        assert has_rate or score < now + DAY_MS + SLACK_MS, (
            f"{group} is due in {score - now:.0f} ms"
        )
        group.is_parked = is_far
    elif group.is_put_off:
        assert score > now + DAY_MS - SLACK_MS, f"{group} is put off, and due at {score - now:+.0f}"
    elif group.is_parked:
        assert _is_about(score, now + DAY_MS), f"{group} is parked, and due in {score - now:.0f} ms"
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
        model.moments[identifier] = due_ms = int(scheduled[identifier])
        left_ms = due_ms - found.now_ms
        is_right = left_ms <= 0 if message.has_come else _is_about(left_ms, DAY_MS)
        assert is_right, f"{message} is due in {left_ms:.0f} ms"
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
    for name in keys:
        left_ms = found.expiries[f"dedup:{name}"] - found.now_ms
        assert _is_about(left_ms, DAY_MS), f"{name!r} is remembered for {left_ms:.0f} ms"


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


def _compare_rates(model: Model, found: Found) -> None:
    told = {text(name): text(rate) for name, rate in found.values.get("rates", {}).items()}
    assert told == {
        name: "none" if burst is None else f"{DAY_MS}000 {burst}"
        for name, burst in model.rates.items()
    }
    # A day from now for each message that went through.
    used = {
        name: math.ceil((int(noted.split()[0]) / 1000 - found.now_ms) / DAY_MS)
        for name, noted in found.each("tat:").items()
    }
    for name, noted in found.each("tat:").items():
        arrival_ms, expiry = int(noted.split()[0]) / 1000, found.expiries[f"tat:{name}"]
        assert _is_about(expiry, arrival_ms), f"what used the rate of {name!r} is soon forgotten"
    assert used == {name: count for name, count in model.used.items() if count}


def _compare_workers(model: Model, found: Found) -> None:
    assert set(found.zset("workers")) == set(model.workers)
    told = {
        name: {text(field): text(value) for field, value in fields.items()}
        for name, fields in found.each("worker:").items()
    }
    assert told == {name: fields for name, fields in model.workers.items() if fields}
    schema = found.hash("meta").get("schema")
    assert schema == (str(model.version) if model.version else None)
