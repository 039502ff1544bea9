"""Was the server free to do what a turn or a claim did? If so, the model does it too."""

from __future__ import annotations

from dataclasses import dataclass

from groupqueue.core.calls import Gone, Preference, Turned
from groupqueue.core.messages import Lease
from tests.model.model import Model
from tests.model.parts import DAY_MS, Group, Held, Message, key_of

EVEN = Preference()
"""No group is preferred."""


@dataclass(frozen=True)
class Request:
    """What a worker asked for."""

    worker: str
    want: int
    batch: int = 1
    preference: Preference = EVEN
    queue_burst: int | None = None
    group_burst: int | None = None
    visibility_ms: int = DAY_MS


def follow(model: Model, request: Request, turned: Turned) -> None:
    """Do what the server did, or fail when it should have done something else."""
    still_to_join = [m for m in (*model.scheduled.values(), *model.holding.values()) if m.has_come]
    assert turned.wait_ms == 0 or not still_to_join, f"it does not say that {still_to_join} is due"
    left = model.allowed("", request.queue_burst)
    if model.is_stopped or left == 0:
        done = [*turned.leases, *turned.expired, *turned.buried]
        assert not done, "nothing may be claimed"
        return
    assert len(turned.leases) <= request.want
    for gone in turned.buried:
        group = _group_of_head(model, gone)
        assert group, f"{gone} was no head"
        assert is_due(model, request, group), f"{gone} was not to be set aside"
        model.bury(group, gone.id)
    expired = list(turned.expired)
    orderly = not (turned.buried or turned.expired)
    delivered = 0
    for number, lease in enumerate(turned.leases):
        _drop(model, request, expired)
        # A wide group may get full on the way, and what is started of it waits then.
        orderly = orderly and not _has_detours(model, request)
        if orderly:
            _check_order(model, request, lease, is_urgent=number < request.preference.preferred)
        _take(model, request, lease, left - delivered)
        delivered += 1 + len(lease.rest)
    _drop(model, request, expired)
    assert not expired, f"{expired} were not to be dropped"
    assert delivered <= left, "the queue's rate lets fewer go"
    model.use("", request.queue_burst, delivered)
    model.counts["delivered"] += delivered
    if delivered < left:
        _check_nothing_is_left(model, request, turned)


def _group_of_head(model: Model, gone: Gone) -> Group | None:
    heads = [group for group in model.whole(gone.group) if group.head.id == gone.id]
    return heads[0] if heads else None


def _drop(model: Model, request: Request, expired: list[Gone]) -> None:
    """Drop those of the expired messages that are heads by now."""
    for gone in list(expired):
        group = _group_of_head(model, gone)
        if group and is_due(model, request, group):
            model.drop_expired(group, gone.id)
            expired.remove(gone)


def is_due(model: Model, request: Request, group: Group) -> bool:
    """Tell whether a group is next in line, be it to be leased, or to be set aside."""
    return (
        group.tier >= request.preference.min_tier
        and not group.lease
        # A place that comes free, or a rate that is lifted, ends what a wide group waits for.
        and (not group.is_parked or group.key in model.widths)
        and group.key not in model.holds
        and not model.waits_for_its_head(group)
    )


def may_go(model: Model, request: Request, group: Group) -> bool:
    """Tell whether a group's head may be leased now."""
    if not is_due(model, request, group) or model.allowed(group.name, request.group_burst) == 0:
        return False
    if group.key in model.doomed or group.name in model.holds:
        return False
    width = model.widths.get(group.name)
    if width is None or group.has_place:
        return True
    return sum(started.has_place for started in model.started(group.name)) < width


def _take(model: Model, request: Request, lease: Lease, left: int) -> None:
    """Lease a group as the server did."""
    group = model.groups.get(key_of(lease)) or _start(model, request, lease)
    assert may_go(model, request, group), f"{group} was not to be leased"
    assert lease.token > model.last_token, "tokens only grow"
    most = min(request.batch, model.allowed(group.name, request.group_burst), left)
    is_alone = most > 1 and group.key in model.together
    expected = _batch(model, group, 1 if is_alone else most)
    head, *rest = expected
    assert head.expires != "passed", "an expired message was delivered"
    assert [message.id for message in lease.rest] == [message.id for message in rest]
    assert [message.payload for message in lease.rest] == [message.body for message in rest]
    assert (lease.id, lease.payload) == (head.id, head.body)
    assert lease.is_alone == is_alone, f"{group} {model.together.get(group.key)} {most} {lease}"
    group.deliveries += 1
    told = (lease.priority, lease.deliveries, lease.failures)
    # Of what was delivered once, nobody asks how often it failed.
    failures = group.failures if group.deliveries > 1 else 0
    assert told == (group.tier, group.deliveries, failures)
    assert bool(lease.expires_ms) == bool(head.expires)
    model.last_token = lease.token
    model.use(group.name, request.group_burst, len(expected))
    group.lease = Held(lease.token, request.worker, len(expected), request.visibility_ms)
    group.has_place = group.is_started
    if rest:
        model.together[group.key] = len(expected)
    elif is_alone:
        model.together[group.key] = -abs(model.together[group.key])


def _batch(model: Model, group: Group, most: int) -> list[Message]:
    """Return the messages that a lease takes: what was tried before goes alone."""
    expected = group.messages[:1]
    for message in group.messages[1 : most if group.deliveries == 0 else 1]:
        if message.expires == "passed" or model.is_holding(message):
            break
        expected.append(message)
    return expected


def _start(model: Model, request: Request, lease: Lease) -> Group:
    """Make the head of a wide group a group of its own."""
    assert lease.place, f"a group without messages was leased: {lease}"
    whole = model.groups[lease.group]
    assert lease.group in model.widths, "the group is not wide"
    assert whole.head.id == lease.place, "it is not the next one"
    assert may_go(model, request, whole), f"{whole} was not to be started"
    group = Group(key_of(lease), whole.name, whole.tier, [whole.messages.pop(0)], whole.since)
    group.deliveries, group.failures, group.error = whole.deliveries, whole.failures, whole.error
    if whole.deliveries or whole.failures or whole.error is not None:
        # It was tried before the group was wide, perhaps with others that go alone from now on.
        model.together.pop(whole.key, None)
    whole.forget_head()
    model.groups[group.key] = group
    if not whole.messages:
        model.forget(whole)
    return group


def _has_detours(model: Model, request: Request) -> bool:
    """Tell whether the server may come upon groups that it has to put off: it sees only so many."""
    groups = model.groups.values()
    return any(is_due(model, request, one) and not may_go(model, request, one) for one in groups)


def _check_order(model: Model, request: Request, lease: Lease, *, is_urgent: bool) -> None:
    """Fail unless the group is the one whose turn it is; when that of a wide one is, who knows?"""
    if lease.group in model.widths:
        return
    groups = [group for group in model.groups.values() if group.name not in model.widths]
    waiting = [group for group in groups if may_go(model, request, group)]
    threshold = request.preference.threshold
    if is_urgent and threshold < 0:
        highest = max(group.tier for group in waiting)
        waiting = [group for group in waiting if group.tier == highest]
    elif is_urgent:
        waiting = [group for group in waiting if group.tier >= threshold] or waiting
    longest = min(group.since for group in waiting)
    first = {group.key for group in waiting if group.since == longest}
    assert lease.group in first, f"it is the turn of {first}, not of {lease.group}"


def _check_nothing_is_left(model: Model, request: Request, turned: Turned) -> None:
    """Fail when a turn stopped short of what it was asked for, without saying so."""
    if turned.wait_ms == 0 or len(turned.leases) == request.want:
        return
    waiting = [group for group in model.groups.values() if not group.is_parked]
    left = [group for group in waiting if may_go(model, request, group)]
    assert not left, f"due and not claimed: {left}"
    if turned.wait_ms < 0:
        assert not model.scheduled, "it does not say when the next scheduled message is due"
        taken = {key_of(lease) for lease in turned.leases}
        for group in model.groups.values():
            is_low = group.tier < request.preference.min_tier
            is_out_of_sight = is_low or group.key in model.holds or group.key in taken
            assert is_out_of_sight, f"it does not say when {group} is due"
