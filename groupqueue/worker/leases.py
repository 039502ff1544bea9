"""How leases stay alive while handlers run: renewal, loss, time limits, heartbeats.

With each heartbeat dead letters are thrown away that DEAD_RETENTION does not keep.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from groupqueue import signals
from groupqueue.conf import Retention
from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.exceptions import GroupQueueError
from groupqueue.handlers import get_handler
from groupqueue.transport.redis import RedisTransport
from groupqueue.worker.executor import Held
from groupqueue.worker.outages import Outage

log = logging.getLogger("groupqueue.worker")

HEARTBEAT_SECONDS = 5.0
# A worker that has been silent for twelve heartbeats is forgotten.
REGISTRY_KEPT_MS = 60_000
SHORTEST_TICK_SECONDS = 0.02
# Of 500 letters or so each: renewals must not wait for long.
MOST_TRIMS_PER_BEAT = 10


class LeaseKeeper(threading.Thread):
    """Renews this process's leases on connections that nothing else uses.

    Handlers may block everything else; a Redis error only costs one round, since a
    lease is renewed at a third of its timeout: two renewals may fail before it ends.
    What there is to tell is told by `tell`, which must not block either.
    """

    def __init__(
        self,
        worker_id: str,
        transports: Mapping[str, RedisTransport],
        visibility_seconds: Mapping[str, float],
        *,
        retentions: Mapping[str, Retention],
        describe: Callable[[], dict[str, str | int]],
        on_overdue: Callable[[Held], None],
        on_unknown_schema: Callable[[int | str], None],
        tell: Callable[..., None],
    ) -> None:
        super().__init__(name="groupqueue-lease-keeper", daemon=True)
        self._worker_id = worker_id
        self._transports = transports
        self._visibility_seconds = visibility_seconds
        self._retentions = retentions
        self._describe = describe
        self._on_overdue = on_overdue
        self._on_unknown_schema = on_unknown_schema
        self._tell = tell
        self._held: dict[int, Held] = {}
        self._last_tokens = dict.fromkeys(transports, 0)
        self._outages = {name: Outage(name, by="the lease keeper") for name in transports}
        self._stopped = threading.Event()
        self._heartbeat_due = 0.0

    def hold(self, held: Held) -> None:
        """Keep a message's lease alive from now on."""
        name, token = held.queue.name, held.lease.token
        self._last_tokens[name] = max(self._last_tokens[name], token)
        self._held[id(held)] = held

    def let_go(self, held: Held) -> None:
        """Stop renewing: the message is settled."""
        self._held.pop(id(held), None)

    def let_run_out(self, is_meant: Callable[[Held], bool]) -> None:
        """Stop renewing leases whose handlers are running, without handing them back."""
        for held in list(self._held.values()):
            if held.started_at is not None and held.settlement is None and is_meant(held):
                self.let_go(held)

    @property
    def is_idle(self) -> bool:
        """Whether no message is held."""
        return not self._held

    def stop(self) -> None:
        """End the thread; leases are not renewed any more."""
        self._stopped.set()

    def run(self) -> None:
        """Renew until stopped."""
        tick = max(min(self._visibility_seconds.values()) / 6, SHORTEST_TICK_SECONDS)
        while not self._stopped.wait(min(tick, 1.0)):
            try:
                self._watch_time_limits()
                self._renew_due()
                self._beat_if_due()
            except Exception:
                # Whatever it was, the other leases still need renewing.
                log.exception(
                    "the lease keeper met an error", extra={"action": "lease_keeper_failed"}
                )

    def beat(self) -> None:
        """Say in every queue's registry that this worker is alive, and throw old dead letters
        away where the settings ask for it."""
        self._heartbeat_due = time.monotonic() + HEARTBEAT_SECONDS
        fields = self._describe()
        for name, transport in self._transports.items():
            heartbeat = calls.heartbeat(
                transport.prefix, self._worker_id, fields, kept_ms=REGISTRY_KEPT_MS
            )
            try:
                schema = transport.perform(heartbeat).schema
            except GroupQueueError as error:
                self._outages[name].failed(error)
            else:
                self._outages[name].answered()
                if isinstance(schema, str) or schema > calls.SCHEMA_VERSION:
                    self._on_unknown_schema(schema)
                elif self._retentions[name] != Retention():
                    self._trim(name, self._retentions[name])

    def depart(self) -> None:
        """Take this worker out of the registries."""
        for name, transport in self._transports.items():
            try:
                transport.perform(calls.depart(transport.prefix, self._worker_id))
            except GroupQueueError as error:
                self._outages[name].failed(error)

    def hand_back(self) -> int:
        """Release all leases of this worker, uncounted; return how many were handed back.

        Those of a turn whose reply has not come are among them, those of overdue
        handlers are not.
        """
        handed_back = 0
        for name, transport in self._transports.items():
            releases = [
                held.settlement or _unfinished(held)
                for held in list(self._held.values())
                if held.queue.name == name and not held.is_lost
            ]
            for chunk in calls.in_chunks(releases, calls.MAX_LEASES_PER_CALL):
                with _lapse_of_hand_back(name, is_known=True):
                    turned = transport.turn(self._worker_id, chunk, 0, visibility=1)
                    handed_back += sum(settled.word == "ok" for settled in turned.settled)
            with _lapse_of_hand_back(name, is_known=bool(releases)):
                # No turn that is still on its way may claim what nobody would handle.
                handed_back += transport.recover(
                    self._worker_id, self._last_tokens[name], calls.EVERY_TURN
                )
        return handed_back

    def _renew_due(self) -> None:
        now = time.monotonic()
        for name, visibility in self._visibility_seconds.items():
            due = [
                held
                for held in list(self._held.values())
                if held.queue.name == name
                and not held.is_lost
                and now - held.renewed_at >= visibility / 3
            ]
            if due:
                self._renew(name, due, visibility)

    def _renew(self, name: str, due: list[Held], visibility: float) -> None:
        asked_at = time.monotonic()
        leases = [held.lease for held in due]
        try:
            lost = {lease.token for lease in self._transports[name].renew(leases, visibility)}
        except GroupQueueError as error:
            self._outages[name].failed(error)
            # The server may be gone, the leases are not until their time is up.
            mark_lost((held for held in due if asked_at >= held.lasts_until), self._tell)
            return
        self._outages[name].answered()
        for held in due:
            if held.lease.token not in lost:
                held.renewed_at = asked_at
                held.lasts_until = asked_at + visibility
        # A message being settled may be gone for good reason: the settlement's answer tells.
        mark_lost((h for h in due if h.lease.token in lost and h.settlement is None), self._tell)

    def _watch_time_limits(self) -> None:
        now = time.monotonic()
        for held in list(self._held.values()):
            # Read in this order: `executor.advance` changes them in the opposite one.
            handler, settlement, started_at = held.handler, held.settlement, held.started_at
            if handler is None or settlement is not None or started_at is None:
                continue
            limit = handler.timeout_for(held.queue)
            if limit is not None and now - started_at > limit:
                self._on_overdue(held)

    def _trim(self, name: str, retention: Retention) -> None:
        """Throw the dead letters of a queue away that it is not to keep, never silently."""
        transport, age, trimmed = self._transports[name], retention.longest_seconds, 0
        call = calls.trim(
            transport.prefix,
            max_age_ms=None if age is None else calls.milliseconds(age, "age"),
            max_count=retention.most_letters,
        )
        fields = {"action": "dead_letters_trimmed", "queue": name}
        try:
            for _ in range(MOST_TRIMS_PER_BEAT):
                if not (gone := transport.perform(call)):
                    break
                trimmed += gone
        except GroupQueueError as error:
            log.warning("dead letters could not be thrown away: %s", error, extra=fields)
        if trimmed:
            log.warning(
                "%s dead letters of queue %r were thrown away, as DEAD_RETENTION says",
                trimmed,
                name,
                extra=fields | {"letters": trimmed},
            )

    def _beat_if_due(self) -> None:
        if time.monotonic() >= self._heartbeat_due:
            self.beat()


def _unfinished(held: Held) -> Settlement:
    """Hand back what a handler has not finished."""
    done = held.acknowledged
    return Settlement.ack(held.lease, done) if done else Settlement.release(held.lease)


def mark_lost(losses: Iterable[Held], tell: Callable[..., None] = signals.send) -> None:
    """Note leases as gone and tell of it, once each."""
    for held in losses:
        if held.is_lost:
            continue
        held.is_lost = True
        for delivery in held.deliveries:
            delivery.mark_lost()
            tell(signals.lease_lost, get_handler(delivery.topic), delivery=delivery)


@contextlib.contextmanager
def _lapse_of_hand_back(queue: str, *, is_known: bool) -> Iterator[None]:
    """Go on with the other leases when some cannot be handed back.

    `is_known`: whether there are any; else there might be, of a turn without an answer.
    """
    try:
        yield
    except GroupQueueError as error:
        log.log(
            logging.WARNING if is_known else logging.INFO,
            "leases of queue %r could not be handed back and run out: %s",
            queue,
            error,
            extra={"action": "hand_back_failed", "queue": queue},
        )
