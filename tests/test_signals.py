"""Are receivers called, and are their errors kept from whoever sends?"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from django.dispatch import Signal

from groupqueue import signals


@pytest.fixture
def signal() -> Signal:
    """A signal of the test's own."""
    return Signal()


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Iterator[list[logging.LogRecord]]:
    """What is logged under "groupqueue"."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[assignment]
    signals.log.addHandler(handler)
    yield records
    signals.log.removeHandler(handler)


def fail(**kwargs: object) -> None:
    raise ZeroDivisionError("in a receiver")


def test_every_signal_of_the_design_is_there() -> None:
    assert {name for name, value in vars(signals).items() if isinstance(value, Signal)} == {
        "message_published",
        "message_started",
        "message_succeeded",
        "message_failed",
        "message_expired",
        "message_dead",
        "group_halted",
        "lease_lost",
        "worker_started",
        "worker_stopping",
        "worker_stopped",
    }


def test_receivers_get_the_sender_and_the_arguments(signal: Signal) -> None:
    received: list[dict[str, object]] = []

    def receive(**kwargs: object) -> None:
        received.append(kwargs)

    signal.connect(receive)
    signals.send(signal, fail, delivery=17)

    assert received == [{"signal": signal, "sender": fail, "delivery": 17}]


async def test_a_coroutine_reaches_sync_and_async_receivers(signal: Signal) -> None:
    received: list[str] = []

    def receive(**kwargs: object) -> None:
        received.append("sync")

    async def receive_in_loop(**kwargs: object) -> None:
        received.append("async")

    signal.connect(receive)
    signal.connect(receive_in_loop)
    await signals.asend(signal, None)

    assert sorted(received) == ["async", "sync"]


async def test_without_receivers_nothing_happens(signal: Signal) -> None:
    signals.send(signal, None)
    await signals.asend(signal, None)


def test_a_receivers_error_is_logged_once_with_its_traceback(
    signal: Signal, errors: list[logging.LogRecord]
) -> None:
    signal.connect(fail)

    signals.send(signal, None)

    (record,) = errors
    assert record.getMessage() == "a receiver of a signal raised an error"
    assert record.receiver == "fail"  # type: ignore[attr-defined]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)


async def test_a_receivers_error_in_a_coroutine_is_logged(
    signal: Signal, errors: list[logging.LogRecord]
) -> None:
    async def fail_in_loop(**kwargs: object) -> None:
        raise ZeroDivisionError

    signal.connect(fail_in_loop)

    await signals.asend(signal, None)

    assert len(errors) == 1


async def test_async_receivers_of_a_sync_send_in_a_loop_are_an_error_in_the_log(
    signal: Signal, errors: list[logging.LogRecord]
) -> None:
    async def receive(**kwargs: object) -> None: ...

    signal.connect(receive)

    signals.send(signal, None)

    assert len(errors) == 1
