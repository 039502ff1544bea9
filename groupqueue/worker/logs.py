"""How a worker's events become log records: receivers of the signals, nothing else."""

from __future__ import annotations

import logging
from typing import Any

from django.dispatch import Signal

from groupqueue import signals
from groupqueue.core.delivery import Delivery

log = logging.getLogger("groupqueue.worker")

_LEVELS = {0: logging.WARNING, 1: logging.INFO, 2: logging.DEBUG, 3: logging.DEBUG}


def configure_logging(verbosity: int) -> None:
    """Log events, and give the records somewhere to go if the project has not."""
    root = logging.getLogger("groupqueue")
    if not root.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(message)s"))
        root.addHandler(handler)
    if root.level == logging.NOTSET:
        root.setLevel(_LEVELS.get(verbosity, logging.INFO))
    _connect(signals.message_failed, _failed, logging.WARNING)
    _connect(signals.message_dead, _dead, logging.ERROR)
    _connect(signals.message_expired, _expired, logging.INFO)
    _connect(signals.group_halted, _halted, logging.ERROR)
    _connect(signals.lease_lost, _lost, logging.WARNING)
    _connect(signals.worker_started, _worker_started, logging.INFO)
    _connect(signals.worker_stopping, _worker_stopping, logging.INFO)
    # Every message pays for these two: only for whoever reads them.
    _connect(signals.message_started, _started, logging.DEBUG)
    _connect(signals.message_succeeded, _succeeded, logging.DEBUG)


def _connect(signal: Signal, receiver: Any, level: int) -> None:
    if log.isEnabledFor(level):
        signal.connect(receiver, dispatch_uid=f"groupqueue.logs.{receiver.__name__}")


def _fields(action: str, delivery: Delivery | None, **more: object) -> dict[str, object]:
    fields: dict[str, object] = {"action": action, **more}
    if delivery is not None:
        fields |= {
            "message_id": delivery.id,
            "group": delivery.group,
            "topic": delivery.topic,
            "queue": delivery.queue,
            "attempt": delivery.attempt,
        }
    return fields


def _started(delivery: Delivery, **_: Any) -> None:
    log.debug("message started: %s", delivery, extra=_fields("message_started", delivery))


def _succeeded(delivery: Delivery, duration_seconds: float, **_: Any) -> None:
    log.debug(
        "message succeeded: %s",
        delivery,
        extra=_fields("message_succeeded", delivery, duration_seconds=duration_seconds),
    )


def _failed(
    delivery: Delivery, error: BaseException, retry_seconds: float | None, **_: Any
) -> None:
    next_step = "given up" if retry_seconds is None else f"next attempt in {retry_seconds:.1f} s"
    log.warning(
        "message failed: %s of queue %r; %s",
        delivery,
        delivery.queue,
        next_step,
        exc_info=error,
        extra=_fields("message_failed", delivery, retry_seconds=retry_seconds),
    )


def _expired(message_id: str, group: str, queue: str, **_: Any) -> None:
    log.info(
        "message %s of group %r in queue %r was dropped: it had expired",
        message_id,
        group,
        queue,
        extra=_fields("message_expired", None, message_id=message_id, group=group, queue=queue),
    )


def _dead(delivery: Delivery | None, group: str, reason: str, error: str, **_: Any) -> None:
    log.error(
        "message set aside as a dead letter: group %r, %s: %s",
        group,
        reason,
        error,
        extra=_fields("message_dead", delivery, reason=reason),
    )


def _halted(delivery: Delivery | None, group: str, reason: str, error: str, **_: Any) -> None:
    log.error(
        "group %r is halted until an operator resumes it, %s: %s",
        group,
        reason,
        error,
        extra=_fields("group_halted", delivery, reason=reason),
    )


def _lost(delivery: Delivery, **_: Any) -> None:
    log.warning("lease lost: %s", delivery, extra=_fields("lease_lost", delivery))


def _worker_started(worker_id: str, queues: tuple[str, ...], **_: Any) -> None:
    log.info("worker %s started", worker_id, extra=_fields("worker_started", None, queues=queues))


def _worker_stopping(worker_id: str, reason: str, **_: Any) -> None:
    log.info(
        "worker %s takes no new messages: %s",
        worker_id,
        reason,
        extra=_fields("worker_stopping", None, reason=reason),
    )
