"""What would have gone to which server? A transport that notes it instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from groupqueue import publishing
from groupqueue.core.codec import JSONCodec
from groupqueue.core.messages import Envelope


class Recorder:
    """Stands for the transports of all queues, and keeps each script call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Envelope]]] = []
        self.awaited = 0
        """How many of the calls were made by an async transport."""
        self.errors: dict[str, Exception] = {}
        """What a queue's transport raises from now on."""
        self.error_at_call: dict[int, Exception] = {}
        """What the call with this index raises."""

    @property
    def payloads(self) -> list[list[Any]]:
        """The payloads of each call."""
        return [payloads_of(envelopes) for _, envelopes in self.calls]

    @property
    def all_payloads(self) -> list[Any]:
        """The payloads of all calls in a row."""
        return [payload for payloads in self.payloads for payload in payloads]

    @property
    def payloads_by_queue(self) -> list[tuple[str, list[Any]]]:
        """The queue and payloads of each call."""
        return [(queue, payloads_of(envelopes)) for queue, envelopes in self.calls]

    def perform(self, queue: str, envelopes: Sequence[Envelope]) -> None:
        """Note a call, or fail as the test asked for."""
        error = self.error_at_call.pop(len(self.calls), None) or self.errors.get(queue)
        if error is not None:
            raise error
        self.calls.append((queue, list(envelopes)))


class Transport:
    """One queue's transport."""

    def __init__(self, recorder: Recorder, queue: str) -> None:
        self._recorder = recorder
        self._queue = queue

    def publish_envelopes(self, envelopes: Sequence[Envelope]) -> dict[int, str]:
        """Note the call; there are no duplicates."""
        self._recorder.perform(self._queue, envelopes)
        return {}


class AsyncTransport(Transport):
    """One queue's transport, for coroutines."""

    async def publish_envelopes(self, envelopes: Sequence[Envelope]) -> dict[int, str]:  # type: ignore[override]
        """Note the call; there are no duplicates."""
        self._recorder.awaited += 1
        self._recorder.perform(self._queue, envelopes)
        return {}


def recording(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Have publishing talk to a recorder."""
    recorder = Recorder()
    monkeypatch.setattr(publishing, "get_transport", lambda queue: Transport(recorder, queue))
    monkeypatch.setattr(
        publishing, "get_async_transport", lambda queue: AsyncTransport(recorder, queue)
    )
    return recorder


def payloads_of(envelopes: Sequence[Envelope]) -> list[Any]:
    """Return what the envelopes' bodies say."""
    return [JSONCodec().decode(envelope.body).payload for envelope in envelopes]
