"""How operations are performed on a Redis or Valkey server: one way to describe each,
two executors that differ only by `await`."""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import redis
import redis.asyncio

from groupqueue.core import calls
from groupqueue.core.calls import Call, Preference, Settlement, Turned
from groupqueue.core.identifiers import new_id
from groupqueue.core.messages import Envelope, Lease, checked_group, checked_tier
from groupqueue.core.rates import NO_RATES, Rates
from groupqueue.exceptions import (
    DedupConflict,
    GroupFull,
    InvalidMessage,
    OutcomeUnknown,
    ServerUnavailable,
    StaleLease,
)
from groupqueue.transport import scripts
from groupqueue.transport.clients import (
    LONGEST_WAIT_SECONDS,
    SOCKET_TIMEOUT_SECONDS,
    connection_limit,
    is_fake,
    own_async_client,
    own_client,
)
from groupqueue.transport.errors import (
    ANY,
    NO_SCRIPT,
    READ_ONLY,
    REFUSED,
    after_both,
    of_publishing,
    of_repetition,
    translated,
)
from groupqueue.transport.interrupts import without_numbers
from groupqueue.transport.lines import lines_of

T = TypeVar("T")

# A call whose reply was lost is repeated after these pauses, if repeating is harmless.
REPEAT_PAUSES_SECONDS = (0.0, 0.05, 0.2, 0.5)
# A server that only falls silent is not asked again after this time.
REPEAT_WITHIN_SECONDS = 3.0

# A publish that was refused in so many words was answered.
REFUSALS = (DedupConflict, GroupFull)


class Publishers:
    """The names under which calls are numbered, so that a repetition is recognised.

    A name has one call under way at a time. A call that ended without an answer keeps
    its name out of use: its command may still arrive. So does a fork: parent and
    child must not count under one name.
    """

    def __init__(self) -> None:
        self._free: deque[tuple[str, int]] = deque()
        self._process = os.getpid()

    def next_call(self) -> tuple[str, int]:
        """Return a publisher's name and the number of its next call."""
        if os.getpid() != self._process:
            self._free, self._process = deque(), os.getpid()
        try:
            name, sequence = self._free.pop()
        except IndexError:
            return new_id(), 1
        return name, sequence + 1

    def answered(self, name: str, sequence: int) -> None:
        """Put the name back into use."""
        self._free.append((name, sequence))


# Every transport of this process, whoever made it.
_transports: weakref.WeakSet[RedisTransport | AsyncRedisTransport] = weakref.WeakSet()
# Kept after a fork: collected, they would close themselves by way of the parent's event loop.
_of_the_parents: list[redis.asyncio.Redis] = []


class _Transport:
    """What both executors share: the shard, the scripts, the publishers' names."""

    def __init__(
        self, prefix: str, *, arrival: str, max_group_depth: int, shebang: bool, patient: bool
    ) -> None:
        self.prefix = prefix
        self._arrival = arrival
        self._max_group_depth = max_group_depth
        self._shebang = shebang
        self._patient = patient
        self._publishers = Publishers()

    def _script(self, call: Call[Any]) -> scripts.Script:
        return scripts.load(call.script, shebang=self._shebang)

    def _pauses(self, call: Call[Any]) -> tuple[float, ...]:
        return REPEAT_PAUSES_SECONDS if call.repeatable and self._patient else ()

    def _renew_calls(self, leases: Sequence[Lease], visibility: float) -> list[Call[list[Lease]]]:
        visibility_ms = calls.milliseconds(visibility, "visibility", positive=True)
        return [
            calls.renew(self.prefix, chunk, visibility_ms=visibility_ms)
            for chunk in calls.in_chunks(leases, calls.MAX_LEASES_PER_CALL)
        ]

    def _wait_command(self, timeout_seconds: float) -> tuple[str, str, str]:
        # The wait ends well before the socket's own timeout, and 0 would mean for ever.
        bounded = min(max(timeout_seconds, 0.001), LONGEST_WAIT_SECONDS)
        return "BLPOP", f"{self.prefix}:wake", f"{bounded:.3f}"

    def _publish_call(
        self, envelopes: Sequence[Envelope], name: str, sequence: int
    ) -> Call[calls.Duplicates]:
        return calls.publish(
            self.prefix,
            envelopes,
            publisher=name,
            sequence=sequence,
            arrival=self._arrival,
            max_group_depth=self._max_group_depth,
        )

    def _claim_call(
        self, worker_id: str, visibility: float, min_priority: int
    ) -> Call[Lease | None]:
        return calls.claim(
            self.prefix,
            worker_id,
            visibility_ms=calls.milliseconds(visibility, "visibility", positive=True),
            min_tier=calls.checked_min_tier(min_priority),
        )

    def _nack_call(self, lease: Lease, delay: float, error: str) -> Call[int]:
        delay_ms = calls.milliseconds(delay, "delay")
        return calls.nack(self.prefix, lease, delay_ms=delay_ms, error=error)

    def _turn_call(
        self,
        worker_id: str,
        settlements: Sequence[Settlement],
        want: int,
        *,
        visibility: float,
        preference: Preference,
        batch: int,
        number: int,
        rates: Rates,
    ) -> Call[Turned]:
        return calls.turn(
            self.prefix,
            worker_id,
            settlements,
            want,
            visibility_ms=calls.milliseconds(visibility, "visibility", positive=True),
            preference=preference,
            batch=batch,
            number=number,
            rates=rates,
        )


class RedisTransport(_Transport):
    """One shard of a queue on a server: `RedisTransport(redis.Redis(), "gq:{default:0}")`.

    The client tells where the server is; connections are the transport's own. Safe to
    share between threads. Times are seconds, payloads bytes.
    """

    def __init__(
        self,
        client: redis.Redis,
        prefix: str,
        *,
        arrival: str = "fair",
        max_group_depth: int = 0,
        patient: bool = True,
    ) -> None:
        """`arrival`: where a new group queues up, "fair" (last) or "front".

        `max_group_depth` bounds what may wait in one group; 0 does not.

        `patient=False` gives up within two seconds when the server does not answer.
        """
        self.client = own_client(client, patient=patient)
        super().__init__(
            prefix,
            arrival=arrival,
            max_group_depth=max_group_depth,
            shebang=not is_fake(self.client),
            patient=patient,
        )
        self._lines = lines_of(self.client)
        _transports.add(self)

    def publish(self, group: str, payload: bytes, priority: int = 0) -> str:
        """Append one message to a group; return its id.

        The tier 0..4 holds when the group is new; other integers are clamped. Raises
        InvalidMessage, ServerOutOfMemory or ServerUnavailable.
        """
        envelope = raw_envelope(group, payload, priority)
        self.publish_envelopes([envelope])
        return envelope.id

    def publish_envelopes(self, envelopes: Sequence[Envelope]) -> calls.Duplicates:
        """Store messages, all of them or none: up to 1,000, or 500 if any has options.

        Returns the first ids of those that were duplicates and left out, by their place
        in the sequence. Raises DedupConflict and GroupFull.
        """
        name, sequence = self._publishers.next_call()
        try:
            duplicates = self.perform(self._publish_call(envelopes, name, sequence))
        except REFUSALS:
            self._publishers.answered(name, sequence)
            raise
        except ServerUnavailable as error:
            raise of_publishing(error) from error
        self._publishers.answered(name, sequence)
        return duplicates

    def claim(self, worker_id: str, visibility: float, min_priority: int = 0) -> Lease | None:
        """Lease the head of the group that has waited longest, or return None.

        Only tiers from min_priority up are looked at. The lease ends by itself after
        `visibility` seconds.
        """
        return self.perform(self._claim_call(worker_id, visibility, min_priority))

    def ack(self, lease: Lease) -> int:
        """Finish the message; return how many are left in its group. Raises StaleLease."""
        return self.perform(calls.ack(self.prefix, lease))

    def nack(self, lease: Lease, delay: float = 0, *, error: str = "") -> int:
        """Give the message back after a failure, to be tried again after `delay` seconds.

        Raises StaleLease.
        """
        return self.perform(self._nack_call(lease, delay, error))

    def settle(self, settlement: Settlement) -> int:
        """End one delivery in any way; return the messages left. Raises StaleLease."""
        return self.perform(calls.settle(self.prefix, settlement))

    def turn(
        self,
        worker_id: str,
        settlements: Sequence[Settlement],
        want: int,
        *,
        visibility: float,
        preference: Preference = Preference(),  # noqa: B008 - an immutable tuple
        batch: int = 1,
        number: int = 0,
        rates: Rates = NO_RATES,
    ) -> Turned:
        """Settle what is finished and claim up to `want` groups, in one round trip.

        Each lease takes up to `batch` messages of its group, 1 to 1,000. After
        ServerUnavailable the turn may have happened, or may still: `recover` hands back
        what it claimed, and given the turn's `number` keeps it from claiming later. A
        worker numbers its turns from 1; 0 leaves the number out. `rates` hold where
        operators have not said otherwise.
        """
        return self.perform(
            self._turn_call(
                worker_id,
                settlements,
                want,
                visibility=visibility,
                preference=preference,
                batch=batch,
                number=number,
                rates=rates,
            )
        )

    def renew(self, leases: Sequence[Lease], visibility: float) -> list[Lease]:
        """Let leases last `visibility` seconds from now; return those that are lost."""
        return [
            lost for call in self._renew_calls(leases, visibility) for lost in self.perform(call)
        ]

    def recover(self, worker_id: str, after_token: int, upto_turn: int = 0) -> int:
        """Hand back the worker's leases with later tokens than the last one it knows.

        Its turns with numbers up to `upto_turn` claim nothing when they come after this.
        """
        released, cursor = 0, "0"
        while True:
            call = calls.recover(
                self.prefix,
                worker_id,
                after_token=after_token,
                upto_turn=upto_turn,
                cursor=cursor,
            )
            step = self.perform(call)
            released += step.released
            cursor = step.cursor
            if cursor == "0":
                return released

    def wait_for_hint(
        self, timeout_seconds: float, *, goes_on: Callable[[], bool] | None = None
    ) -> bool:
        """Wait until a publish or another worker hints at work; False after the timeout.

        Where `breaks_off`, the wait also ends soon after `goes_on` has begun to say no.
        """
        command = self._wait_command(timeout_seconds)
        try:
            if goes_on is None or self._lines is None:
                return self._execute(*command) is not None
            longest = float(command[-1]) + SOCKET_TIMEOUT_SECONDS
            return self._receive(self._lines.wait, command, longest, goes_on) is not None
        except ANY as error:
            raise translated(error) from error

    @property
    def breaks_off(self) -> bool:
        """Whether a wait for hints can be broken off."""
        return self._lines is not None

    def perform(self, call: Call[T]) -> T:
        """Send a call and decode its reply; repeat it when a reply was lost, if harmless.

        Raises OutcomeUnknown when a repeated settlement finds the lease gone.
        """
        try:
            return call.decode(self._evaluate(call))
        except ServerUnavailable as error:
            return self._repeat(call, error)

    def begin(self, call: Call[T]) -> Callable[[], T]:
        """Send a call; what is returned waits for its reply, decodes it, and raises any error.

        So the caller can do something else while the server is at it. Nothing is repeated.
        """
        try:
            reply = self._begin("EVALSHA", self._script(call).sha, *_rest(call))
        except ANY as error:
            reply = partial(_fail, error)
        return lambda: call.decode(self._evaluate(call, reply))

    def _repeat(self, call: Call[T], error: ServerUnavailable) -> T:
        give_up_at = time.monotonic() + REPEAT_WITHIN_SECONDS
        for pause_seconds in self._pauses(call):
            time.sleep(pause_seconds)
            try:
                return call.decode(self._evaluate(call))
            except ServerUnavailable as again:
                error = after_both(error, again)
                if time.monotonic() >= give_up_at:
                    break
            except StaleLease as stale:
                raise OutcomeUnknown(stale.lease) from stale
            except REFUSED as refusal:
                raise of_repetition(error, refusal) from refusal
        raise error

    def close(self) -> None:
        """Close the connections; the transport opens new ones if it is used again."""
        self.client.connection_pool.disconnect()

    def _evaluate(self, call: Call[Any], reply: Callable[[], Any] | None = None) -> Any:
        """Return the server's reply to a script; `reply` gives that to what was sent before."""
        script = self._script(call)
        try:
            try:
                return reply() if reply else self._execute("EVALSHA", script.sha, *_rest(call))
            except NO_SCRIPT:
                return self._execute("EVAL", script.source, *_rest(call))
        except ANY as error:
            raise translated(error) from error

    def _execute(self, *command: str | bytes) -> Any:
        if self._lines:
            return self._receive(self._lines.ask, command)
        return self._receive(self.client.execute_command, *command)

    def _begin(self, *command: str | bytes) -> Callable[[], Any]:
        """Send a command where that can be done by itself; what is returned gives the reply."""
        if not self._lines:
            return partial(self._execute, *command)
        return partial(self._receive, self._lines.begin(command))

    def _receive(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        """Return a reply; leave a primary that has been demoted."""
        try:
            return ask(*arguments)
        except READ_ONLY:
            # The next connection may lead to the new one.
            self.client.connection_pool.disconnect(inuse_connections=False)
            if self._lines:
                self._lines.disconnect()
            raise

    def _begin_anew_after_fork(self) -> None:
        """Leave the parent's connections to it, and a lock that one of its threads held."""
        self.client = own_client(self.client, patient=self._patient)
        self._lines = lines_of(self.client)


class AsyncRedisTransport(_Transport):
    """The same as RedisTransport, for `async` code and a `redis.asyncio.Redis` client."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        prefix: str,
        *,
        arrival: str = "fair",
        max_group_depth: int = 0,
        patient: bool = True,
    ) -> None:
        """See RedisTransport."""
        self.client = own_async_client(client, patient=patient)
        super().__init__(
            prefix,
            arrival=arrival,
            max_group_depth=max_group_depth,
            shebang=not is_fake(self.client),
            patient=patient,
        )
        # Whoever finds no connection free waits for one, however long; the time that the
        # server may take begins after that.
        self._connection_limit = connection_limit(client)
        self._free_connections = asyncio.Semaphore(self._connection_limit)
        _transports.add(self)

    async def publish(self, group: str, payload: bytes, priority: int = 0) -> str:
        """See RedisTransport.publish."""
        envelope = raw_envelope(group, payload, priority)
        await self.publish_envelopes([envelope])
        return envelope.id

    async def publish_envelopes(self, envelopes: Sequence[Envelope]) -> calls.Duplicates:
        """See RedisTransport.publish_envelopes."""
        name, sequence = self._publishers.next_call()
        try:
            duplicates = await self.perform(self._publish_call(envelopes, name, sequence))
        except REFUSALS:
            self._publishers.answered(name, sequence)
            raise
        except ServerUnavailable as error:
            raise of_publishing(error) from error
        self._publishers.answered(name, sequence)
        return duplicates

    async def claim(self, worker_id: str, visibility: float, min_priority: int = 0) -> Lease | None:
        """See RedisTransport.claim."""
        return await self.perform(self._claim_call(worker_id, visibility, min_priority))

    async def ack(self, lease: Lease) -> int:
        """See RedisTransport.ack."""
        return await self.perform(calls.ack(self.prefix, lease))

    async def nack(self, lease: Lease, delay: float = 0, *, error: str = "") -> int:
        """See RedisTransport.nack."""
        return await self.perform(self._nack_call(lease, delay, error))

    async def settle(self, settlement: Settlement) -> int:
        """See RedisTransport.settle."""
        return await self.perform(calls.settle(self.prefix, settlement))

    async def turn(
        self,
        worker_id: str,
        settlements: Sequence[Settlement],
        want: int,
        *,
        visibility: float,
        preference: Preference = Preference(),  # noqa: B008 - an immutable tuple
        batch: int = 1,
        number: int = 0,
        rates: Rates = NO_RATES,
    ) -> Turned:
        """See RedisTransport.turn."""
        return await self.perform(
            self._turn_call(
                worker_id,
                settlements,
                want,
                visibility=visibility,
                preference=preference,
                batch=batch,
                number=number,
                rates=rates,
            )
        )

    async def renew(self, leases: Sequence[Lease], visibility: float) -> list[Lease]:
        """See RedisTransport.renew."""
        return [
            lost
            for call in self._renew_calls(leases, visibility)
            for lost in await self.perform(call)
        ]

    async def recover(self, worker_id: str, after_token: int, upto_turn: int = 0) -> int:
        """See RedisTransport.recover."""
        released, cursor = 0, "0"
        while True:
            call = calls.recover(
                self.prefix,
                worker_id,
                after_token=after_token,
                upto_turn=upto_turn,
                cursor=cursor,
            )
            step = await self.perform(call)
            released += step.released
            cursor = step.cursor
            if cursor == "0":
                return released

    async def wait_for_hint(self, timeout_seconds: float) -> bool:
        """See RedisTransport.wait_for_hint."""
        try:
            return await self._execute(*self._wait_command(timeout_seconds)) is not None
        except ANY as error:
            raise translated(error) from error

    async def perform(self, call: Call[T]) -> T:
        """See RedisTransport.perform."""
        try:
            return call.decode(await self._evaluate(call))
        except ServerUnavailable as error:
            return await self._repeat(call, error)

    async def _repeat(self, call: Call[T], error: ServerUnavailable) -> T:
        give_up_at = time.monotonic() + REPEAT_WITHIN_SECONDS
        for pause_seconds in self._pauses(call):
            await asyncio.sleep(pause_seconds)
            try:
                return call.decode(await self._evaluate(call))
            except ServerUnavailable as again:
                error = after_both(error, again)
                if time.monotonic() >= give_up_at:
                    break
            except StaleLease as stale:
                raise OutcomeUnknown(stale.lease) from stale
            except REFUSED as refusal:
                raise of_repetition(error, refusal) from refusal
        raise error

    async def close(self) -> None:
        """See RedisTransport.close."""
        await self.client.connection_pool.disconnect()

    async def _evaluate(self, call: Call[Any]) -> Any:
        script = self._script(call)
        rest = (1, call.prefix, *call.arguments)
        try:
            try:
                return await self._execute("EVALSHA", script.sha, *rest)
            except NO_SCRIPT:
                return await self._execute("EVAL", script.source, *rest)
        except ANY as error:
            raise translated(error) from error

    async def _execute(self, *command: calls.Argument) -> Any:
        async with self._free_connections:
            try:
                return await self.client.execute_command(*command)
            except READ_ONLY:
                await self.client.connection_pool.disconnect(inuse_connections=False)
                raise

    def _begin_anew_after_fork(self) -> None:
        """See RedisTransport._begin_anew_after_fork."""
        _of_the_parents.append(self.client)
        self.client = own_async_client(self.client, patient=self._patient)
        self._free_connections = asyncio.Semaphore(self._connection_limit)


def _rest(call: Call[Any]) -> list[str | bytes]:
    """Return what follows a script's name in the command that calls it."""
    return ["1", call.prefix, *without_numbers(call.arguments)]


def _fail(error: Exception) -> Any:
    raise error


def raw_envelope(group: str, payload: bytes, priority: int) -> Envelope:
    """Return bytes of the caller's own making, checked and ready to be sent."""
    if not isinstance(payload, bytes):
        raise InvalidMessage(f"a transport's payload is bytes, not {type(payload).__name__}")
    return Envelope(new_id(), checked_group(group), checked_tier(priority), payload)


def _begin_anew_after_fork() -> None:
    for transport in list(_transports):
        transport._begin_anew_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew_after_fork)
