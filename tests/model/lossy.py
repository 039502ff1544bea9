"""What is between the rules and the server, and loses what the server has answered?"""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeVar

import redis
from hypothesis import note

from groupqueue.core.calls import Call
from groupqueue.exceptions import ServerUnavailable
from groupqueue.transport.redis import RedisTransport
from groupqueue.transport.scripts import Script
from tests.model.narrow import narrowed

T = TypeVar("T")


class LossyTransport(RedisTransport):
    """A transport whose next replies get lost after the server has acted, when it is told so."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        super().__init__(client, prefix)
        self.performed: Counter[str] = Counter()
        """How often each script was called."""
        self.is_narrow = False
        """Whether scripts do in short pages what they do in long ones."""
        self._is_losing = False
        self._lost: list[Any] = []

    def perform(self, call: Call[T]) -> T:
        """See RedisTransport."""
        self.performed[call.script] += 1
        note(f"    {call.script} {list(call.arguments)}")  # printed with a life that fails
        return super().perform(call)

    def perform_unheard(self, call: Call[T]) -> T:
        """Send a call whose reply is lost: it is sent again, and that one's answer returned."""
        self._is_losing = True
        return self.perform(call)

    def send_unheard(self, call: Call[T]) -> T:
        """Send a call that is not repeated, and whose reply is lost; return what that was."""
        try:
            self.perform_unheard(call)
        except ServerUnavailable:
            return call.decode(self._lost.pop())
        raise AssertionError(f"{call.script} was sent again")

    def _script(self, call: Call[Any]) -> Script:
        plain = super()._script(call)
        return narrowed(plain) if self.is_narrow else plain

    def _execute(self, *command: Any) -> Any:
        reply = super()._execute(*command)
        if self._is_losing:
            self._is_losing, self._lost = False, [reply]
            raise redis.ConnectionError("the reply is lost")
        return reply
