"""What an operator and an inspector may ask of one queue."""

from __future__ import annotations

import asyncio
import datetime
from typing import TypeVar, cast

from groupqueue import conf
from groupqueue.core import calls
from groupqueue.core.audits import Audit, audit_queue, repair_queue
from groupqueue.core.codec import Codec
from groupqueue.core.groups import move_group, purge_group, rate_group
from groupqueue.core.keys import shard_prefix
from groupqueue.core.letters import (
    Flow,
    drop_letters,
    read_letters,
    redrive_letters,
)
from groupqueue.core.messages import checked_group, checked_tier
from groupqueue.core.options import due_text
from groupqueue.core.rates import parse_rate
from groupqueue.core.snapshot import HeldGroups, Snapshot, held_groups, snapshot_decoder
from groupqueue.core.views import (
    EVERY_LETTER,
    Agenda,
    Explanation,
    LetterFilter,
    Letters,
    Peeked,
    agenda_decoder,
    explanation,
    peeked_decoder,
)
from groupqueue.exceptions import InvalidArgument, ServerUnavailable
from groupqueue.transport import connections

T = TypeVar("T")

LONGEST_LIST = calls.MAX_GROUPS_LISTED_PER_CALL
IMPATIENT_SECONDS = 2.0


def get_queue(name: str = "default", *, patient: bool = True) -> Queue:
    """Return the queue of that name; raises UnknownQueue when it is not configured.

    With `patient=False` its methods give up within two seconds when Redis does not
    answer, for those who wait in front of a page.
    """
    return Queue(conf.get_config(name).name, patient=patient)


class Queue:
    """One queue of the setting GROUPQUEUE. Made by `get_queue`; cheap, keeps no connection.

    Every method raises ServerUnavailable when Redis does not answer. Each has an async
    twin with the prefix `a`.
    """

    def __init__(self, name: str, *, patient: bool = True) -> None:
        """Use `get_queue`, which checks the name."""
        self.name = name
        self._patient = patient
        self.prefix = shard_prefix(name)

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    def snapshot(self, *, limit: int = 20) -> Snapshot:
        """Return tiers, the groups worth a look (`limit` per list, up to 200) and workers.

        One round trip, whose cost does not grow with the number of groups. `held` reads
        all groups that are paused or halted.
        """
        return self._perform(self._snapshot_call(limit))

    async def asnapshot(self, *, limit: int = 20) -> Snapshot:
        """See `snapshot`."""
        return await self._aperform(self._snapshot_call(limit))

    def held(self, *, cursor: str = "", limit: int = 100) -> HeldGroups:
        """Return a page of the groups that are paused or halted, in no order.

        A page has about `limit` groups (1 to 200), perhaps none; go on with its cursor
        until that is empty. A group that is held all the while is on at least one page.
        """
        return self._perform(self._held_call(cursor, limit))

    async def aheld(self, *, cursor: str = "", limit: int = 100) -> HeldGroups:
        """See `held`."""
        return await self._aperform(self._held_call(cursor, limit))

    def pause(self, group: str, why: str = "") -> bool:
        """Hold a group until it is resumed; False when it is held already.

        A running delivery may finish. A group without messages can be paused as well:
        what is published to it waits.
        """
        return self._perform(self._pause_call(group, why))

    async def apause(self, group: str, why: str = "") -> bool:
        """See `pause`."""
        return await self._aperform(self._pause_call(group, why))

    def resume(self, group: str) -> bool:
        """Let a paused or halted group go on; False when it is neither.

        The head of a halted group is tried again, with a new set of attempts.
        """
        return self._perform(self._resume_call(group))

    async def aresume(self, group: str) -> bool:
        """See `resume`."""
        return await self._aperform(self._resume_call(group))

    def stop(self, why: str = "") -> bool:
        """Pause all of the queue; False when it is stopped already.

        What is running may finish, and publishing goes on. Groups keep their own state.
        """
        return self._perform(calls.stop(self.prefix, why))

    async def astop(self, why: str = "") -> bool:
        """See `stop`."""
        return await self._aperform(calls.stop(self.prefix, why))

    def start(self) -> bool:
        """Let a stopped queue go on; False when it was not stopped."""
        return self._perform(calls.start(self.prefix))

    async def astart(self) -> bool:
        """See `start`."""
        return await self._aperform(calls.start(self.prefix))

    def set_rate(self, rate: str | None, group: str | None = None) -> str:
        """Say how often messages of a group, or of all the queue, may be delivered.

        "10/m" and its like, see `parse_rate`; "none" for any number whatever the setting RATE
        says; None for what the setting says. It holds from the next claim on. Returns the
        former rate, empty when none had been given here.
        """
        return self._run(self._rate_flow(rate, group))

    async def aset_rate(self, rate: str | None, group: str | None = None) -> str:
        """See `set_rate`."""
        return await self._arun(self._rate_flow(rate, group))

    def skip(self, group: str, message_id: str) -> str:
        """Set the head of a group aside as a dead letter, if it is that message.

        Returns "ok", "leased" (a worker has it) or "moved" (it is not the head).
        """
        return self._perform(self._skip_call(group, message_id))

    async def askip(self, group: str, message_id: str) -> str:
        """See `skip`."""
        return await self._aperform(self._skip_call(group, message_id))

    def scheduled(self, *, start: int = 0, limit: int = 20) -> Agenda:
        """Return messages that are not due yet, soonest first, and how many there are.

        From place `start` on, `limit` of them (1 to 200).
        """
        return self._perform(self._agenda_call(start, limit))

    async def ascheduled(self, *, start: int = 0, limit: int = 20) -> Agenda:
        """See `scheduled`."""
        return await self._aperform(self._agenda_call(start, limit))

    def cancel(self, message_id: str) -> bool:
        """Take a scheduled message back; False when it is due, done or unknown.

        Raises InvalidArgument for a held one more than 1,000 messages deep in its group.
        """
        return _cancelled(self._perform(calls.cancel(self.prefix, message_id)), message_id)

    async def acancel(self, message_id: str) -> bool:
        """See `cancel`."""
        return _cancelled(await self._aperform(calls.cancel(self.prefix, message_id)), message_id)

    def reschedule(
        self,
        message_id: str,
        *,
        delay: float | datetime.timedelta | None = None,
        eta: datetime.datetime | None = None,
    ) -> bool:
        """Change when a scheduled message is due; False when it is not scheduled."""
        return self._perform(self._reschedule_call(message_id, delay, eta))

    async def areschedule(
        self,
        message_id: str,
        *,
        delay: float | datetime.timedelta | None = None,
        eta: datetime.datetime | None = None,
    ) -> bool:
        """See `reschedule`."""
        return await self._aperform(self._reschedule_call(message_id, delay, eta))

    def set_tier(self, group: str, tier: int) -> bool:
        """Move a group into a tier (0 to 4, clamped), its backlog included, at once.

        It holds until the group has drained. False when the group has no messages.
        """
        return self._run(self._set_tier_flow(group, tier))

    async def aset_tier(self, group: str, tier: int) -> bool:
        """See `set_tier`."""
        return await self._arun(self._set_tier_flow(group, tier))

    def release(self, group: str, token: int | None = None) -> bool:
        """End the lease of a group, uncounted; False when nobody holds it.

        With a fencing token, as `explain` shows it, only that lease and no later one.
        The handler goes on in its process, but its result will be refused.
        """
        return self._perform(calls.release(self.prefix, checked_group(group), token))

    async def arelease(self, group: str, token: int | None = None) -> bool:
        """See `release`."""
        return await self._aperform(calls.release(self.prefix, checked_group(group), token))

    def purge(self, group: str) -> int:
        """Throw the messages of a group away, leased ones too; return how many."""
        return self._run(purge_group(self.prefix, checked_group(group)))

    async def apurge(self, group: str) -> int:
        """See `purge`."""
        return await self._arun(purge_group(self.prefix, checked_group(group)))

    def explain(self, group: str) -> Explanation:
        """Return a group's state and the reason for it; costs the same however full the queue."""
        return self._perform(calls.explain(self.prefix, checked_group(group), explanation))

    async def aexplain(self, group: str) -> Explanation:
        """See `explain`."""
        return await self._aperform(calls.explain(self.prefix, checked_group(group), explanation))

    def peek(self, group: str, *, start: int = 0, limit: int = 20) -> Peeked:
        """Return messages of a group from index `start` (0 is the head) on, untouched.

        `limit` of them (1 to 200).
        """
        return self._perform(self._peek_call(group, start, limit))

    async def apeek(self, group: str, *, start: int = 0, limit: int = 20) -> Peeked:
        """See `peek`."""
        return await self._aperform(self._peek_call(group, start, limit))

    def dead_letters(self, wanted: LetterFilter = EVERY_LETTER, *, limit: int = 100) -> Letters:
        """Return the newest dead letters that a filter lets through, and the total of all."""
        return self._run(self._dead_letters_flow(wanted, limit))

    async def adead_letters(
        self, wanted: LetterFilter = EVERY_LETTER, *, limit: int = 100
    ) -> Letters:
        """See `dead_letters`."""
        return await self._arun(self._dead_letters_flow(wanted, limit))

    def redrive(self, wanted: LetterFilter = EVERY_LETTER, *, to_tail: bool = False) -> int:
        """Put dead letters back in front of their groups, in their old order; return how many.

        Behind a running lease; with fresh attempts. `to_tail` puts them behind what waits.
        The letters of a group go back at once. More than 100 of one group take several
        steps, during which it is paused, unless it is held already; should they break off,
        it stays paused. What dies meanwhile is left alone.
        """
        return self._run(self._redrive_flow(wanted, to_tail=to_tail))

    async def aredrive(self, wanted: LetterFilter = EVERY_LETTER, *, to_tail: bool = False) -> int:
        """See `redrive`."""
        return await self._arun(self._redrive_flow(wanted, to_tail=to_tail))

    def drop(self, wanted: LetterFilter) -> int:
        """Throw dead letters away for good; return how many."""
        return self._run(self._drop_flow(wanted))

    async def adrop(self, wanted: LetterFilter) -> int:
        """See `drop`."""
        return await self._arun(self._drop_flow(wanted))

    def audit(self, *, limit: int = 1000) -> Audit:
        """Return what the rules of the queue exclude and is so all the same; changes nothing.

        It goes through everything in small steps, each of which judges what it sees at one
        moment, so that workers and publishers may go on. It lists `limit` faults, errors
        first, and ends once it has found so many errors.
        """
        return self._run(self._audit_flow(limit))

    async def aaudit(self, *, limit: int = 1000) -> Audit:
        """See `audit`."""
        return await self._arun(self._audit_flow(limit))

    def repair(self, *, limit: int = 1000) -> Audit:
        """Mend what an audit would find and can be mended; return what was mended.

        No message is thrown away, and groups keep their order. All of it is mended, and
        the first `limit` faults are listed.
        """
        return self._run(self._repair_flow(limit))

    async def arepair(self, *, limit: int = 1000) -> Audit:
        """See `repair`."""
        return await self._arun(self._repair_flow(limit))

    def _run(self, flow: Flow[T]) -> T:
        """Perform the calls that a flow asks for, one after the other."""
        try:
            call = next(flow)
            while True:
                call = flow.send(self._perform(call))
        except StopIteration as end:
            return cast(T, end.value)

    async def _arun(self, flow: Flow[T]) -> T:
        try:
            call = next(flow)
            while True:
                call = flow.send(await self._aperform(call))
        except StopIteration as end:
            return cast(T, end.value)

    def _perform(self, call: calls.Call[T]) -> T:
        if self._patient:
            return connections.get_transport(self.name).perform(call)
        transport = connections.new_transport(self.name, patient=False)
        try:
            return transport.perform(call)
        finally:
            transport.close()

    async def _aperform(self, call: calls.Call[T]) -> T:
        transport = connections.get_async_transport(self.name)
        try:
            async with asyncio.timeout(None if self._patient else IMPATIENT_SECONDS):
                return await transport.perform(call)
        except TimeoutError as error:
            raise ServerUnavailable(
                f"Redis did not answer within {IMPATIENT_SECONDS:g} seconds"
            ) from error

    def _snapshot_call(self, limit: int) -> calls.Call[Snapshot]:
        return calls.inspect(self.prefix, limit, snapshot_decoder(limit))

    def _held_call(self, cursor: str, limit: int) -> calls.Call[HeldGroups]:
        if cursor and not (cursor.isascii() and cursor.isdecimal()):
            raise InvalidArgument(f"{cursor!r} is no cursor of an earlier page")
        return calls.held(self.prefix, cursor or "0", limit, held_groups)

    def _pause_call(self, group: str, why: str) -> calls.Call[bool]:
        return calls.pause(self.prefix, checked_group(group), why)

    def _resume_call(self, group: str) -> calls.Call[bool]:
        return calls.resume(self.prefix, checked_group(group))

    def _rate_flow(self, rate: str | None, group: str | None) -> Flow[str]:
        argument = ""
        if rate is not None:
            argument = "none" if rate == "none" else parse_rate(rate).argument
        return rate_group(self.prefix, "" if group is None else checked_group(group), argument)

    def _skip_call(self, group: str, message_id: str) -> calls.Call[str]:
        return calls.skip(self.prefix, checked_group(group), message_id)

    def _set_tier_flow(self, group: str, tier: int) -> Flow[bool]:
        return move_group(self.prefix, checked_group(group), checked_tier(tier))

    def _peek_call(self, group: str, start: int, limit: int) -> calls.Call[Peeked]:
        limit = calls.checked_limit(limit, LONGEST_LIST)
        decode = peeked_decoder(self._codec)
        return calls.peek(self.prefix, checked_group(group), start, limit, decode)

    def _agenda_call(self, start: int, limit: int) -> calls.Call[Agenda]:
        limit = calls.checked_limit(limit, LONGEST_LIST)
        return calls.agenda(self.prefix, start, limit, agenda_decoder(self._codec))

    def _reschedule_call(
        self,
        message_id: str,
        delay: float | datetime.timedelta | None,
        eta: datetime.datetime | None,
    ) -> calls.Call[bool]:
        due = due_text(delay, eta, aware_only=conf.is_aware())
        return calls.reschedule(self.prefix, message_id, due)

    def _dead_letters_flow(self, wanted: LetterFilter, limit: int) -> Flow[Letters]:
        # Read call by call, however many.
        limit = calls.checked_limit(limit, 10**9)
        return read_letters(self.prefix, self._codec, wanted, limit)

    def _redrive_flow(self, wanted: LetterFilter, *, to_tail: bool) -> Flow[int]:
        return redrive_letters(self.prefix, self._codec, wanted, to_tail=to_tail)

    def _drop_flow(self, wanted: LetterFilter) -> Flow[int]:
        return drop_letters(self.prefix, self._codec, wanted)

    def _audit_flow(self, limit: int) -> Flow[Audit]:
        return audit_queue(self.prefix, limit=calls.checked_limit(limit, 10**9))

    def _repair_flow(self, limit: int) -> Flow[Audit]:
        return repair_queue(self.prefix, limit=calls.checked_limit(limit, 10**9))

    @property
    def _codec(self) -> Codec:
        return conf.get_config(self.name).codec


def _cancelled(word: str, message_id: str) -> bool:
    if word == "too deep":
        raise InvalidArgument(f"message {message_id} is held too deep in its group to be found")
    return word == "ok"
