"""What an operator and an inspector may ask of one queue."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from groupqueue import conf
from groupqueue.core import calls
from groupqueue.core.keys import shard_prefix
from groupqueue.core.messages import checked_group
from groupqueue.core.snapshot import Snapshot, snapshot_decoder
from groupqueue.exceptions import ServerUnavailable
from groupqueue.transport import connections

T = TypeVar("T")

LONGEST_LIST = 200
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
        """Return tiers, the groups worth a look (`limit` per list) and workers.

        One round trip, whose cost does not grow with the number of groups.
        """
        return self._perform(self._snapshot_call(limit))

    async def asnapshot(self, *, limit: int = 20) -> Snapshot:
        """See `snapshot`."""
        return await self._aperform(self._snapshot_call(limit))

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

    def skip(self, group: str, message_id: str) -> str:
        """Set the head of a group aside as a dead letter, if it is that message.

        Returns "ok", "leased" (a worker has it) or "moved" (it is not the head).
        """
        return self._perform(self._skip_call(group, message_id))

    async def askip(self, group: str, message_id: str) -> str:
        """See `skip`."""
        return await self._aperform(self._skip_call(group, message_id))

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
        bounded = min(max(limit, 1), LONGEST_LIST)
        return calls.inspect(self.prefix, bounded, snapshot_decoder(bounded))

    def _pause_call(self, group: str, why: str) -> calls.Call[bool]:
        return calls.pause(self.prefix, checked_group(group), why)

    def _resume_call(self, group: str) -> calls.Call[bool]:
        return calls.resume(self.prefix, checked_group(group))

    def _skip_call(self, group: str, message_id: str) -> calls.Call[str]:
        return calls.skip(self.prefix, checked_group(group), message_id)
