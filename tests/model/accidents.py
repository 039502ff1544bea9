"""What may somebody break by hand, and is it put right, with nothing lost?

Each accident breaks one thing. Either the next claims put it right, or the doctor names it, and
mends it; then all is as the model says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from groupqueue.core import calls
from groupqueue.core.calls import Preference, Settlement
from groupqueue.core.identifiers import new_id
from groupqueue.core.messages import Lease
from tests.model.audit import LASTS_MS, text
from tests.model.parts import DAY_MS, Group, Hold, Letter, Message
from tests.model.steps import NOBODY, WORKERS, choices, one_of, step
from tests.model.working import Working

HOUR_MS, AGES_MS = 3_600_000, 2_000_000_000_000
LAST_ENTRY = "18446744073709551615-18446744073709551615"
GHOST = "a group without messages"
FLAGS = ("stopped", "rates", "doomed", "wide")


class Accidents(Working):
    """Break something."""

    @step(weight=3, what=choices, which=choices)
    def somebody_edits(self, *, what: int, which: int) -> None:
        """Something is broken by hand, and put right."""
        self.told_tier = NOBODY  # who mends says so whatever it was, and it may be nothing
        possible = [(do, of) for do, of in self._what_can_be_broken() if of is None or of]
        break_it, of_what = self._one_of(possible, what)
        break_it(which if of_what is None else one_of(of_what, which))

    def _what_can_be_broken(self) -> list[tuple[Callable[[Any], None], list[Any] | None]]:
        """Return what can be done, and to what each; None is to nothing that is there."""
        model = self.model
        groups = list(model.groups.values())
        held = [group for group in groups if group.key in model.holds]
        free = [group for group in groups if group.key not in model.holds and not group.lease]
        leased = [group for group in groups if group.lease and group.key not in model.holds]
        waiting = [group for group in free if model.waits_for_its_head(group)]
        started = [group for group in groups if group.is_started]
        normal = [g for g in groups if g.name not in model.widths]
        unrated = [
            g for g in leased if not model.used.get(g.name) and g.head.id not in model.holding
        ]
        behind = [m for m in model.holding.values() if model.groups[m.group].head is not m]
        undoomed = [group for group in free if group.key not in model.doomed]
        due = leased if not model.is_stopped and self._is_any_number_allowed() else []
        return [
            (self._lose_moment, groups),
            (self._put_into_two_tiers, groups),
            (self._lose_tier, groups),
            (self._note_wrong_tier, normal),
            (self._make_lease_endless, leased),
            (self._move_leased, leased),
            (self._lose_lock, unrated),
            (self._hold_without_pause, free),
            (self._let_held_be_due, [g for g in held if not model.waits_for_its_head(g)]),
            (self._let_waiting_be_due, waiting),
            (self._spoil_counters, groups),
            (self._spoil_token, leased),
            (self._lease_for_ages, leased),
            (self._put_off_for_ages, free),
            (self._spoil_pause, held),
            *[(self._spoil_doom, [g for g in groups if g.key in model.doomed])] * 4,
            (self._spoil_rate, [g for g in normal if g.name in model.rates]),
            (self._lose_place, started),
            (self._put_stranger_into_place, started),
            (self._spoil_width, list(model.widths)),
            (self._leave_lock, None),
            (self._leave_notes, None),
            (self._set_wrong_flag, None),
            (self._miscount_backlog, None),
            (self._spoil_fence, None),
            (self._spoil_statistics, None),
            (self._lose_due_moment, list(model.scheduled.values())),
            (self._lose_moment_of_held, behind),
            (self._schedule_twice, list(model.holding.values())),
            (self._schedule_nothing, None),
            (self._note_what_is_no_message, None),
            (self._put_in_twice, groups),
            (self._let_dead_live, model.dead),
            (self._let_letters_refuse, [one for one in self.leases if model.held(one)]),
            (self._keep_for_ever, None),
            (self._let_ghost_be_due, None),
            *[(self._let_leased_be_due, due)] * 3,
            (self._let_counter_be_claimed, undoomed),
            (self._put_a_string_into_place, None),
        ]

    # Groups that have messages -------------------------------------------------------------

    def _lose_moment(self, group: Group) -> None:
        self.redis.zrem(self._ready(group), self._member(group))
        self._mend("group", group.key, "not-ready")
        if not group.lease:
            self.model.place(group)
            group.has_place = False

    def _put_into_two_tiers(self, group: Group) -> None:
        score = self.redis.zscore(self._ready(group), self._member(group))
        self.redis.zadd(self._key(f"ready:{(group.tier + 1) % 5}"), {self._member(group): score})
        self._mend("group", group.key, "several-tiers")
        group.has_place = bool(group.is_started and group.lease)

    def _lose_tier(self, group: Group) -> None:
        self.redis.hdel(self._key("prio"), self._member(group))
        self._mend("group", group.key, "no-tier")
        group.has_place = bool(group.is_started and group.lease)

    def _note_wrong_tier(self, group: Group) -> None:
        group.tier = (group.tier + 1) % 5
        self.redis.hset(self._key("prio"), self._member(group), group.tier)
        self._mend("group", group.key, "wrong-tier")
        self._mend("queue", "", "wrong-backlog", "wrong-backlog")

    def _make_lease_endless(self, group: Group) -> None:
        self.redis.persist(self._key("lock:", group.key))
        self._mend("group", group.key, "lock-without-expiry")

    def _move_leased(self, group: Group) -> None:
        self._move(group, self._now_ms() + 9 * DAY_MS)
        self._mend("group", group.key, "not-the-deadline")

    def _lose_lock(self, group: Group) -> None:
        self.redis.delete(self._key("lock:", group.key))
        self._mend("group", group.key, "lock-gone")
        assert not self.redis.hexists(self._key("holders"), self._member(group))
        self.model.run_out(group)
        group.has_place = False

    def _hold_without_pause(self, group: Group) -> None:
        self._move(group, float("inf"))
        self._mend("group", group.key, "held-without-pause")
        self.model.place(group)
        group.has_place = False

    def _let_held_be_due(self, group: Group) -> None:
        self._move(group, self._now_ms())
        self._mend("group", group.key, "paused-but-due")
        group.has_place = bool(group.is_started and group.lease)

    def _let_waiting_be_due(self, group: Group) -> None:
        self._move(group, self._now_ms())
        self._mend("group", group.key, "too-early")

    def _spoil_counters(self, group: Group) -> None:
        self.redis.hset(self._key("attempts"), self._member(group), "many")
        self._mend("group", group.key, "bad-counters")
        group.deliveries = group.failures = 0
        group.has_place = bool(group.is_started and group.lease)

    def _lose_place(self, group: Group) -> None:
        self.redis.zrem(self._key("places:", group.name), self._member(group))
        self._mend("group", group.key, "no-place")
        group.has_place = group.lease is not None
        if not group.lease and not group.is_parked and group.key not in self.model.holds:
            self._move(group, self._now_ms())  # should it have waited, it looks after a minute

    def _spoil_width(self, name: str) -> None:
        self.redis.hset(self._key("wide"), name, "broad")
        self._mend("group", name, "bad-width")
        self.model.widths[name] = 1

    def _spoil_token(self, group: Group) -> None:
        self.redis.set(self._key("lock:", group.key), "mine", keepttl=True)
        self._mend("group", group.key, "bad-token")
        self.model.together.pop(group.key, None)
        self.model.run_out(group)
        group.has_place = False

    def _lease_for_ages(self, group: Group) -> None:
        self.redis.pexpire(self._key("lock:", group.key), AGES_MS)
        self._mend("group", group.key, "lock-too-long", "not-the-deadline")
        # A holder that is alive renews it: so it does.
        lasts_ms = group.lease.visibility_ms if group.lease else 0
        assert self.redis.pexpire(self._key("lock:", group.key), lasts_ms)
        self._move(group, self._now_ms() + lasts_ms)

    def _put_off_for_ages(self, group: Group) -> None:
        self.redis.hdel(self._key("holders"), self._member(group))  # of a lease that ran out
        self._move(group, 1000 * AGES_MS)
        self._mend("group", group.key, "bad-moment")
        self.model.place(group)
        group.has_place = False

    def _spoil_pause(self, group: Group) -> None:
        self.redis.hset(self._key("paused"), self._member(group), "because")
        self._mend("group", group.key, "bad-pause")
        self.model.holds[group.key] = Hold(is_paused=True)

    def _spoil_doom(self, group: Group) -> None:
        doom = self.model.doomed[group.key]
        is_too_large = self.chance.random() < 0.5
        noted = f"{len(group.messages) + 1} {doom.behind}" if is_too_large else "all"
        self.redis.hset(self._key("doomed"), self._member(group), noted)
        self._mend("group", group.key, "bad-doom")
        if is_too_large:
            doom.ids = [message.id for message in group.messages]
        else:
            del self.model.doomed[group.key]

    def _spoil_rate(self, group: Group) -> None:
        self.redis.hset(self._key("rates"), self._member(group), "fast")
        self._mend("group", group.key, "bad-rate")
        del self.model.rates[group.key]

    def _put_stranger_into_place(self, started: Group) -> None:
        self.redis.zadd(self._key("places:", started.name), {GHOST: 1})
        kind = f"places:{started.name}"
        found = self.transport.perform(calls.repair(self.prefix, kind, [GHOST])).faults
        assert [fault.word for fault in found] == ["stray-place"]

    # Messages that are none, or are in two places --------------------------------------------

    def _put_in_twice(self, group: Group) -> None:
        key, head = self._key("q:", group.key), self.redis.lindex(self._key("q:", group.key), 0)
        for element, word in ((head, "twice-in-group"), (b"no message", "bad-message")):
            self.redis.rpush(key, element)
            self._find("list", group.key, word)
            self.redis.rpop(key)

    def _let_dead_live(self, letter: Letter) -> None:
        [(_, fields)] = self.redis.xrange(self._key("dead"), letter.entry, letter.entry)
        self.redis.rpush(self._key("q:", letter.group), fields[b"element"])
        self._find("letter", letter.entry, "dead-and-alive")
        self.redis.rpop(self._key("q:", letter.group))

    def _let_letters_refuse(self, lease: Lease) -> None:
        """The stream of dead letters has used up its ids: what was to go there stays, halted."""
        dead = self._key("dead")
        if not self.redis.exists(dead):
            self.redis.xdel(dead, self.redis.xadd(dead, {"no": "letter"}))
        last = self.redis.xinfo_stream(dead)["last-generated-id"]
        self.redis.execute_command("XSETID", dead, LAST_ENTRY)
        reason = one_of(("dead", "dead_group"), lease.token)
        end = Settlement(reason, lease, "max_attempts", "boom", 0)
        self.transport.perform(calls.settle(self.prefix, end))
        group = self.model.held(lease)
        assert group
        error = text(self.redis.hget(self._key("errors"), self._member(group)) or b"")
        assert "stream" in error, error
        assert error.endswith("; boom"), error
        # It was the one to be found: what was in flight with it need not go alone any more.
        self.model.together.pop(group.key, None)
        self.model.settle([end._replace(outcome="halt", error=error)])
        self.model.promote()
        self.redis.execute_command("XSETID", dead, last)

    # Groups that have none -----------------------------------------------------------------

    def _leave_lock(self, _: int) -> None:
        self.redis.set(self._key("lock:", GHOST), 1, px=DAY_MS)
        self._mend("group", GHOST, "lock-without-messages")

    def _leave_notes(self, which: int) -> None:
        name = one_of(("prio", "attempts", "failures", "errors", "holders"), which)
        self.redis.hset(self._key(name), GHOST, "1")
        self._mend("group", GHOST, "left-over")

    # The queue itself ----------------------------------------------------------------------

    def _set_wrong_flag(self, which: int) -> None:
        word, key = one_of(FLAGS, which), self._key("paused")
        words = set(text(self.redis.hget(key, "") or b"").split())
        if words == {word}:
            self.redis.hdel(key, "")
        else:
            self.redis.hset(key, "", " ".join(sorted(words ^ {word})))
        self._mend("queue", "", "wrong-flag")
        if word == "stopped":
            self.model.is_stopped = True  # what is noted of a stop, be it one word, is believed

    def _miscount_backlog(self, which: int) -> None:
        self.redis.hincrby(self._key("backlog"), str(which % 5), 1 + which)
        self._mend("queue", "", "wrong-backlog")

    def _spoil_fence(self, _: int) -> None:
        self.redis.set(self._key("fence"), "none")
        self._mend("queue", "", "bad-fence")
        assert not self.redis.exists(self._key("fence"))
        if self.model.last_token:
            self.redis.set(self._key("fence"), self.model.last_token)

    def _spoil_statistics(self, _: int) -> None:
        self.redis.hset(self._key("stats"), "acked", "some")
        self._mend("queue", "", "bad-counter")
        assert not self.redis.hexists(self._key("stats"), "acked")
        if self.model.counts["acked"]:
            self.redis.hset(self._key("stats"), "acked", self.model.counts["acked"])

    # What is scheduled ---------------------------------------------------------------------

    def _lose_due_moment(self, message: Message) -> None:
        self.redis.zrem(self._key("scheduled"), message.id)
        self._mend("message", message.id, "never-due")
        message.has_come = True

    def _lose_moment_of_held(self, message: Message) -> None:
        self.redis.zrem(self._key("scheduled"), message.id)
        self._mend("message", message.id, "held-without-moment")
        self.model.forget_moment(message)

    def _schedule_twice(self, message: Message) -> None:
        self.redis.hset(self._key("scheduled:data"), message.id, "M0 and so on")
        self._mend("message", message.id, "scheduled-twice")

    def _schedule_nothing(self, which: int) -> None:
        word = one_of(("moment-alone", "dedup-alone", "held-but-gone"), which)
        identifier = new_id()
        if word == "dedup-alone":
            self.redis.hset(self._key("scheduled:dedup"), identifier, "k")
        else:
            self.redis.zadd(self._key("scheduled"), {identifier: self._now_ms() + DAY_MS})
        if word == "held-but-gone":
            self.redis.hset(self._key("scheduled:held"), identifier, GHOST)
        self._mend("message", identifier, word)

    def _note_what_is_no_message(self, _: int) -> None:
        identifier, dead = new_id(), self._key("dead")
        self.redis.hset(self._key("scheduled:data"), identifier, "M0 and so on")
        self._mend("message", identifier, "data-alone")
        [(entry, fields)] = self.redis.xrevrange(dead, count=1)
        assert fields[b"element"].endswith(b"and so on"), "it was thrown away"
        self.redis.xdel(dead, entry)

    def _keep_for_ever(self, _: int) -> None:
        name = "publisher:publisher"
        self.redis.persist(self._key(name))
        [fault] = self.transport.perform(calls.repair(self.prefix, "key", [name])).faults
        assert fault.word == "no-expiry"
        assert 0 < self.redis.pttl(self._key(name)) <= HOUR_MS
        self.redis.pexpire(self._key(name), LASTS_MS["publisher"])

    # What claims come upon -----------------------------------------------------------------

    def _let_ghost_be_due(self, which: int) -> None:
        if self.model.is_stopped or not self._is_any_number_allowed():
            return
        for name in ("prio", "attempts", "holders"):
            self.redis.hset(self._key(name), GHOST, which % 5)
        self.redis.zadd(self._key(f"ready:{which % 5}"), {GHOST: 0})
        self._claim_all()

    def _let_leased_be_due(self, group: Group) -> None:
        # Else it is put off before anybody sees that it is leased.
        if self.model.allowed(group.name, self.bursts[1]) and group.name not in self.model.holds:
            self._move(group, 0)
            self._claim_all()

    def _let_counter_be_claimed(self, group: Group) -> None:
        key, member = self._key("attempts"), self._member(group)
        self.redis.hset(key, member, "many")
        group.deliveries = 0
        self._claim_all()
        if self.redis.hget(key, member) == b"many":  # it was not its turn
            self.redis.hdel(key, member)

    def _put_a_string_into_place(self, which: int) -> None:
        if self.model.is_stopped or not self._is_any_number_allowed():
            return
        ready = self._key(f"ready:{which % 5}")
        self.redis.set(self._key("q:", GHOST), "no list")
        self.redis.zadd(ready, {GHOST: 0})
        self._claim_all()
        assert self.redis.zscore(ready, GHOST) > self._now_ms() - DAY_MS, "it was not put off"
        assert b"WRONGKEY" in self.redis.hget(self._key("errors"), GHOST)
        self.redis.delete(self._key("q:", GHOST))
        self.redis.zrem(ready, GHOST)
        self.redis.hdel(self._key("errors"), GHOST)

    def _claim_all(self) -> None:
        asked: dict[str, Any] = {"batch": 1, "preference": Preference(), "visibility_days": 1}
        self.turn(worker=WORKERS[0], chosen=[], want=50, fate="answered", **asked)
        self.told_tier = NOBODY

    def _is_any_number_allowed(self) -> bool:
        return self.model.burst("", self.bursts[0]) is None

    # ---------------------------------------------------------------------------------------

    def _ready(self, group: Group) -> bytes:
        return self._key(f"ready:{group.tier}")

    def _find(self, kind: str, name: str, word: str) -> None:
        """Fail unless the doctor finds that, which it cannot mend."""
        found = self.transport.perform(calls.audit(self.prefix, kind, [name])).faults
        assert word in [fault.word for fault in found], f"{name!r}: {found}"

    def _mend(self, kind: str, name: str, *words: str) -> None:
        """Fail unless the doctor finds that, mends what it finds, and is content then."""
        found = self.transport.perform(calls.audit(self.prefix, kind, [name])).faults
        # Whose moment is wrong is not where its place says that it is.
        told = [fault.word for fault in found if fault.word != "no-place" or "no-place" in words]
        assert told == [*words], f"{name!r}: {found}"
        mended = self.transport.perform(calls.repair(self.prefix, kind, [name])).faults
        words_mended = [fault.word for fault in mended]
        assert words_mended == [fault.word for fault in found], f"of {found} it mended {mended}"
        left = self.transport.perform(calls.audit(self.prefix, kind, [name])).faults
        assert left == [], f"there is still {left}"
