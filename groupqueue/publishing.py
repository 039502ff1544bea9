"""How messages are published: checked and encoded at once, sent at once or after the commit."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from asgiref.sync import AsyncToSync, sync_to_async
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from groupqueue import handlers, signals
from groupqueue.conf import QueueConfig, get_config, is_aware
from groupqueue.core.calls import Duplicates
from groupqueue.core.identifiers import new_id
from groupqueue.core.messages import (
    Envelope,
    EnvelopeOptions,
    Outgoing,
    checked_group,
    checked_tier,
    checked_topic,
)
from groupqueue.core.options import envelope_options
from groupqueue.exceptions import (
    GroupQueueError,
    InvalidMessage,
    PartlyPublished,
    PayloadTooLarge,
)
from groupqueue.transport.connections import get_async_transport, get_transport

MAX_MESSAGES_PER_CALL = 500
MAX_BYTES_PER_CALL = 4 * 1024 * 1024


def publish(
    topic: str,
    payload: Any,
    *,
    group: str | None,
    queue: str = "default",
    priority: int | None = None,
    headers: Mapping[str, Any] | None = None,
    delay: float | datetime.timedelta | None = None,
    eta: datetime.datetime | None = None,
    hold: bool = False,
    dedup_key: str | None = None,
    dedup_window: float | datetime.timedelta | None = None,
    expires_in: float | datetime.timedelta | None = None,
    width: int | None = None,
    on_commit: bool = True,
    using: str | None = None,
) -> str:
    """Publish one message and return its id.

    Messages of one group are handled in the order of their publishing, one at a time;
    `group=None` gives the message a group of its own. `priority`, 0 to 4, counts when
    the group is empty: a group keeps its tier until it has drained.

    `delay` (seconds or a timedelta) or `eta` let the message join its group later, in due
    order; with `hold` it takes its place now and holds the group until then. Messages
    with the same `dedup_key` within `dedup_window` (else DEDUP_WINDOW) are stored once:
    the first one's id is returned, other content is a DedupConflict. `expires_in`: a
    message that has not been delivered by then is dropped.

    `width=n`, 2 to 1,000, makes the group a wide one until it has drained: up to n of its
    messages are in flight at once, started in order; one that is retried or halted does not
    hold up the others. The latest publish with a width decides; 1 makes no group wide.

    The payload is encoded before this returns. Inside `atomic()` of the database
    `using` the message is sent after the commit, and never when the block or its
    savepoint is rolled back; `on_commit=False` sends it at once.

    Raises InvalidMessage, PayloadTooLarge or UnknownQueue before anything is stored,
    and ServerUnavailable or another server's error when sending fails: here, or from
    the end of the atomic block.
    """
    sealed = _sealed(
        get_config(queue),
        Outgoing(
            topic,
            payload,
            group=group,
            priority=priority,
            headers=headers,
            delay=delay,
            eta=eta,
            hold=hold,
            dedup_key=dedup_key,
            dedup_window=dedup_window,
            expires_in=expires_in,
            width=width,
        ),
    )
    duplicates = _dispatch(queue, [sealed], on_commit=on_commit, using=using)
    return duplicates.get(0, sealed.envelope.id)


def publish_many(
    messages: Iterable[Outgoing],
    *,
    queue: str = "default",
    on_commit: bool = True,
    using: str | None = None,
) -> list[str]:
    """Publish messages in order and return their ids; see `publish`.

    When one of them is invalid, none is stored. They are sent by up to 500 messages or
    4 MiB at a time, each time all or none. Raises PartlyPublished when it is not the
    first of these that fails.
    """
    sealed = _all_sealed(get_config(queue), messages)
    duplicates = _dispatch(queue, sealed, on_commit=on_commit, using=using)
    return _ids(sealed, duplicates)


async def apublish(
    topic: str,
    payload: Any,
    *,
    group: str | None,
    queue: str = "default",
    priority: int | None = None,
    headers: Mapping[str, Any] | None = None,
    delay: float | datetime.timedelta | None = None,
    eta: datetime.datetime | None = None,
    hold: bool = False,
    dedup_key: str | None = None,
    dedup_window: float | datetime.timedelta | None = None,
    expires_in: float | datetime.timedelta | None = None,
    width: int | None = None,
    on_commit: bool = True,
    using: str | None = None,
) -> str:
    """Publish one message and return its id; the async twin of `publish`."""
    sealed = _sealed(
        get_config(queue),
        Outgoing(
            topic,
            payload,
            group=group,
            priority=priority,
            headers=headers,
            delay=delay,
            eta=eta,
            hold=hold,
            dedup_key=dedup_key,
            dedup_window=dedup_window,
            expires_in=expires_in,
            width=width,
        ),
    )
    duplicates = await _adispatch(queue, [sealed], on_commit=on_commit, using=using)
    return duplicates.get(0, sealed.envelope.id)


async def apublish_many(
    messages: Iterable[Outgoing],
    *,
    queue: str = "default",
    on_commit: bool = True,
    using: str | None = None,
) -> list[str]:
    """Publish messages in order and return their ids; the async twin of `publish_many`."""
    sealed = _all_sealed(get_config(queue), messages)
    duplicates = await _adispatch(queue, sealed, on_commit=on_commit, using=using)
    return _ids(sealed, duplicates)


# Checking and encoding -----------------------------------------------------------------


class _Sealed(NamedTuple):
    """A message that only has to be sent; nothing its caller does changes it any more."""

    envelope: Envelope
    topic: str


def _sealed(config: QueueConfig, message: Outgoing) -> _Sealed:
    topic, group = checked_topic(message.topic), message.group
    tier = config.default_priority if message.priority is None else checked_tier(message.priority)
    if message.headers is not None:
        _check_headers(topic, message.headers)
    if group is not None:
        checked_group(group)
    body = config.codec.encode(topic, message.payload, message.headers)
    if len(body) > config.max_payload_bytes:
        raise PayloadTooLarge(
            f"the message for topic {topic!r} has {len(body)} bytes when encoded; the limit is"
            f" {config.max_payload_bytes}, GROUPQUEUE[{config.name!r}]['MAX_PAYLOAD_BYTES']"
        )
    options = _options(config, message, body) if message.has_options else None
    identifier = new_id()
    envelope = Envelope(identifier, identifier if group is None else group, tier, body, options)
    return _Sealed(envelope, topic)


def _options(config: QueueConfig, message: Outgoing, body: bytes) -> EnvelopeOptions:
    content = body
    if message.dedup_key is not None and message.headers:
        # A second attempt has trace ids of its own; topic and payload tell a conflict.
        content = config.codec.encode(message.topic, message.payload, None)
    return envelope_options(
        message, content, default_dedup_window=config.dedup_window, aware_only=is_aware()
    )


def _ids(sealed: Sequence[_Sealed], duplicates: Duplicates) -> list[str]:
    return [duplicates.get(place, message.envelope.id) for place, message in enumerate(sealed)]


def _all_sealed(config: QueueConfig, messages: Iterable[Outgoing]) -> list[_Sealed]:
    sealed = []
    for index, message in enumerate(messages):
        if not isinstance(message, Outgoing):
            raise InvalidMessage(
                f"message {index} of publish_many must be an Outgoing, not {type(message).__name__}"
            )
        try:
            sealed.append(_sealed(config, message))
        except InvalidMessage as error:
            kind = PayloadTooLarge if isinstance(error, PayloadTooLarge) else InvalidMessage
            raise kind(f"message {index} of publish_many: {error}") from error
    return sealed


def _check_headers(topic: str, headers: object) -> None:
    # JSON would turn other keys into text, two of them perhaps into the same.
    if not isinstance(headers, Mapping) or not all(isinstance(name, str) for name in headers):
        raise InvalidMessage(
            f"the headers of the message for topic {topic!r} must be a mapping with str keys"
        )


# Sending -------------------------------------------------------------------------------


def _dispatch(
    queue: str, sealed: Sequence[_Sealed], *, on_commit: bool, using: str | None
) -> Duplicates:
    transaction = _transaction(using) if on_commit else None
    if transaction is None:
        return _send(queue, sealed)
    _send_after_commit(transaction, queue, sealed)
    return {}


async def _adispatch(
    queue: str, sealed: Sequence[_Sealed], *, on_commit: bool, using: str | None
) -> Duplicates:
    # Sync code that runs this coroutine by async_to_sync waits in its thread. There is
    # the transaction, if any, and a connection that outlives this event loop.
    if getattr(AsyncToSync.executors, "current", None) is not None:
        return await sync_to_async(_dispatch)(queue, sealed, on_commit=on_commit, using=using)
    transaction = _transaction(using) if on_commit else None
    if transaction is None:
        return await _asend(queue, sealed)
    _send_after_commit(transaction, queue, sealed)
    return {}


def _send(queue: str, sealed: Sequence[_Sealed]) -> Duplicates:
    sent, duplicates = 0, Duplicates()
    for chunk in _chunks(sealed):
        try:
            left_out = get_transport(queue).publish_envelopes([m.envelope for m in chunk])
        except GroupQueueError as error:
            _refuse_the_rest(sealed, sent, duplicates, error)
            raise
        duplicates.update({sent + place: first for place, first in left_out.items()})
        sent += len(chunk)
        for sender, arguments in _announcements(queue, chunk, left_out):
            signals.send(signals.message_published, sender, **arguments)
    return duplicates


async def _asend(queue: str, sealed: Sequence[_Sealed]) -> Duplicates:
    sent, duplicates = 0, Duplicates()
    for chunk in _chunks(sealed):
        try:
            transport = get_async_transport(queue)
            left_out = await transport.publish_envelopes([m.envelope for m in chunk])
        except GroupQueueError as error:
            _refuse_the_rest(sealed, sent, duplicates, error)
            raise
        duplicates.update({sent + place: first for place, first in left_out.items()})
        sent += len(chunk)
        for sender, arguments in _announcements(queue, chunk, left_out):
            await signals.asend(signals.message_published, sender, **arguments)
    return duplicates


def _refuse_the_rest(
    sealed: Sequence[_Sealed], sent: int, duplicates: Duplicates, error: GroupQueueError
) -> None:
    if sent:
        published_ids = _ids(sealed[:sent], duplicates)
        raise PartlyPublished(published_ids, len(sealed), error) from error


def _chunks(sealed: Sequence[_Sealed]) -> Iterator[Sequence[_Sealed]]:
    """Cut messages into what one script call takes; a large message goes alone."""
    start = size = 0
    for index, message in enumerate(sealed):
        length = len(message.envelope.body)
        full = index - start == MAX_MESSAGES_PER_CALL or size + length > MAX_BYTES_PER_CALL
        if full and index > start:
            yield sealed[start:index]
            start, size = index, 0
        size += length
    if start < len(sealed):
        yield sealed[start:]


def _announcements(
    queue: str, sealed: Sequence[_Sealed], left_out: Duplicates
) -> Iterator[tuple[handlers.Handler[Any] | None, dict[str, str]]]:
    """Return what to tell of each message that was stored, if anybody listens."""
    if not signals.message_published.receivers:
        return
    for place, (envelope, topic) in enumerate(sealed):
        if place not in left_out:
            told = {"message_id": envelope.id, "group": envelope.group}
            yield handlers.get_handler(topic), told | {"topic": topic, "queue": queue}


# Waiting for the commit ------------------------------------------------------------------


class _Parcel:
    """What one call has to send after the commit, with a commit hook of its own.

    Parcels whose hooks follow one another in one transaction and savepoint form a run.
    A rolled-back savepoint drops the hooks of a whole run or of none, so the first
    hook to be called sends its parcel and all behind it in one go, and leaves nothing
    to the others. A hook for the run instead would be lost to
    TestCase.captureOnCommitCallbacks() when the run began before its block.
    """

    __slots__ = ("_place", "_queue", "_run", "_sealed")

    def __init__(self, queue: str, sealed: Sequence[_Sealed], behind: _Parcel | None) -> None:
        self._queue = queue
        self._sealed = sealed
        self._run: list[_Parcel] = [] if behind is None else behind._run
        self._place = len(self._run)
        self._run.append(self)

    def send(self) -> None:
        """Send this parcel and those behind it in its run, unless that was done already."""
        parcels = self._run[self._place :]
        del self._run[self._place :]
        by_queue: dict[str, list[_Sealed]] = {}
        for parcel in parcels:
            by_queue.setdefault(parcel._queue, []).extend(parcel._sealed)
        errors = []
        # Commits do not come twice, so one queue's trouble is not to cost another's messages.
        for queue, sealed in by_queue.items():
            try:
                _send(queue, sealed)
            except GroupQueueError as error:
                errors.append(error)
        for later in errors[1:]:
            errors[0].add_note(f"also: {later}")
        if errors:
            raise errors[0]


def _transaction(using: str | None) -> BaseDatabaseWrapper | None:
    """Return the connection with an atomic block open, or None when there is no such block.

    Raises TransactionManagementError in manual transaction management, as on_commit does.
    """
    connection = connections[DEFAULT_DB_ALIAS if using is None else using]
    if connection.in_atomic_block:
        return connection
    # Not get_autocommit(), which would connect to a database that nobody may need.
    if connection.connection is None:
        is_autocommit = connection.settings_dict["AUTOCOMMIT"]
    else:
        is_autocommit = connection.autocommit
    if not is_autocommit:
        raise TransactionManagementError(
            "with autocommit off a message cannot wait for the commit:"
            " publish inside atomic(), or with on_commit=False"
        )
    return None


def _send_after_commit(
    transaction: BaseDatabaseWrapper, queue: str, sealed: Sequence[_Sealed]
) -> None:
    if not sealed:
        return
    get_transport(queue)  # A wrong CONNECTION is to fail before the commit, not after it.
    behind = None
    if transaction.run_on_commit:
        savepoints, hook = transaction.run_on_commit[-1][:2]
        owner = getattr(hook, "__self__", None)
        # None stands for an atomic block without a savepoint: it shares its parent's fate.
        if set(savepoints) - {None} == set(transaction.savepoint_ids) - {None}:
            behind = owner if isinstance(owner, _Parcel) else None
    transaction.on_commit(_Parcel(queue, sealed, behind).send)


class _Publisher:
    """What handlers publish with."""

    publish = staticmethod(publish)
    apublish = staticmethod(apublish)


handlers.set_publisher(_Publisher())
