"""What is published, and what was its outcome? `python -m proof.soak.publisher NAME` does it."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import django
import redis
from django.db import transaction

from groupqueue import Outgoing, apublish, apublish_many, publish, publish_many, publishing
from groupqueue.core.identifiers import new_id
from groupqueue.exceptions import (
    GroupFull,
    GroupQueueError,
    InvalidMessage,
    PartlyPublished,
    ServerOutOfMemory,
)
from groupqueue.transport.connections import get_transport
from groupqueue.transport.errors import NotReached
from proof.plan import Plan, current_plan
from proof.records import Recorder
from proof.soak.ending import Ending
from proof.soak.intent import Call, Intent, calls

# What was refused in so many words, so that nothing is stored.
REFUSED = (GroupFull, InvalidMessage, ServerOutOfMemory)
# A server that is away is asked again after this time.
PAUSE_SECONDS = 0.2
# How long a replica may take to have what was published.
REPLICA_SECONDS = 1.0


class NotKnown(GroupQueueError):
    """Nobody knows whether a replica has what was published."""


class Publisher:
    """Publishes what the seed says, at a bounded rate, and writes down each outcome."""

    def __init__(self, plan: Plan, name: str, ending: Ending) -> None:
        self._plan = plan
        self._ending = ending
        # One that was killed does not begin anew.
        life = len(list(plan.records.glob(f"{name}-*.jsonl")))
        self._name = f"{name}-{life}"
        self._recorder = Recorder(plan.records / f"{self._name}.jsonl")
        self._loop = asyncio.Runner()
        # What is to be treated badly and was refused: without it a run would lack a fate.
        self._owed: deque[Intent] = deque()

    def run(self) -> None:
        """Publish until told to end, after the call that is under way then."""
        started, sent = time.monotonic(), 0
        with self._loop:
            for call in calls(self._plan.seed, self._name):
                if self._owed:
                    self._publish(Call("one", [self._owed.popleft()]))
                self._publish(call)
                sent += len(call.messages)
                ahead = started + sent / self._plan.rate - time.monotonic()
                if ahead < -1:  # what an outage has cost is not made up for
                    started -= ahead
                if self._ending.wait(ahead):
                    return

    def _publish(self, call: Call) -> None:
        repeats = 2 if call.messages[0].options.get("dedup_key") else 1
        for _ in range(repeats):
            identifiers = [new_id() for _ in call.messages]
            self._note("invoke", call.messages, identifiers, way=call.way)
            try:
                stored = self._confirmed(partial(self._send, call, identifiers))
            except GroupQueueError as error:
                self._note_error(call.messages, identifiers, error)
            else:
                for message, identifier, first in zip(
                    call.messages, identifiers, stored, strict=True
                ):
                    # A duplicate is not stored: there is nothing to be found under its own id.
                    phase = "ok" if first == identifier else "fail"
                    self._note(phase, [message], [identifier], stored_as=first)

    def _send(self, call: Call, identifiers: Sequence[str]) -> list[str]:
        """Publish messages under these ids; return the ids that they are stored under."""
        # What is published is written down before, and that takes its id.
        publishing.new_id = iter(identifiers).__next__  # type: ignore[attr-defined]
        queue, outgoing = self._plan.queue, [_outgoing(message) for message in call.messages]
        first = outgoing[0]
        single: dict[str, Any] = {
            "group": first.group,
            "queue": queue,
            **call.messages[0].options,
        }
        # WAIT speaks for one connection alone, and those of the event loop are others.
        way = call.way.removeprefix("async ") if self._plan.is_waiting else call.way
        match way:
            case "one":
                return [publish(first.topic, first.payload, **single)]
            case "many":
                return publish_many(outgoing, queue=queue)
            case "async one":
                return [self._loop.run(apublish(first.topic, first.payload, **single))]
            case "async many":
                return self._loop.run(apublish_many(outgoing, queue=queue))
            case _:
                with transaction.atomic():
                    return [publish_many([each], queue=queue)[0] for each in outgoing]

    def _confirmed(self, send: Callable[[], list[str]]) -> list[str]:
        """Publish; where the plan says so, return only once a replica has it, too."""
        if not self._plan.is_waiting:
            return send()
        # By the transport's own connection, which is the one that publishes.
        ask = get_transport(self._plan.queue)._execute
        try:
            before = _connection_of(ask)
            stored = send()
            replicas = ask("WAIT", "1", str(int(REPLICA_SECONDS * 1000)))
            after = _connection_of(ask)
        except (OSError, redis.RedisError) as error:
            raise NotKnown(str(error)) from error
        if before != after or not replicas:
            raise NotKnown("no replica has said that it has it")
        return stored

    def _note_error(
        self, messages: Sequence[Intent], identifiers: Sequence[str], error: GroupQueueError
    ) -> None:
        told = f"{type(error).__name__}: {error}"[:200]
        if isinstance(error, PartlyPublished):
            done = len(error.published_ids)
            self._note("ok", messages[:done], identifiers[:done])
            messages, identifiers = messages[done:], identifiers[done:]
        is_refused = isinstance(error, REFUSED) or isinstance(error.__cause__, NotReached)
        self._note("fail" if is_refused else "unknown", messages, identifiers, error=told)
        self._owed += [message for message in messages if message.times]
        if not isinstance(error, GroupFull):
            self._ending.wait(PAUSE_SECONDS)

    def _note(
        self, phase: Any, messages: Sequence[Intent], identifiers: Sequence[str], **more: Any
    ) -> None:
        for message, identifier in zip(messages, identifiers, strict=True):
            self._recorder.write(
                "publish",
                phase=phase,
                id=identifier,
                group=message.group or identifier,
                queue=self._plan.queue,
                **more,
            )


def _outgoing(message: Intent) -> Outgoing:
    payload = {"fate": message.fate, "times": message.times}
    return Outgoing(message.topic, payload, group=message.group, **message.options)


def _connection_of(ask: Callable[..., Any]) -> tuple[object, object]:
    """Return which connection to which server is in use: publishers have one at a time."""
    told = ask("INFO", "server")
    return re.search(rb"run_id:(\w+)", told)[1], ask("CLIENT", "ID")


def main(name: str) -> None:
    """Publish until told to stop."""
    django.setup()
    plan = current_plan()
    if plan is None:
        raise SystemExit("a publisher is started by the soak, with a plan")
    Publisher(plan, name, Ending()).run()


if __name__ == "__main__":
    main(sys.argv[1])
