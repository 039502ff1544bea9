"""Which functions may be declared as handlers, in the eyes of a type checker?

An ignored error is one that mypy must find; it tells when there is none to ignore.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, assert_type

from groupqueue import Delivery, handler
from groupqueue.handlers import Handler


@handler("one", max_attempts=3, backoff=(1, 60), timeout=5)
def one(delivery: Delivery) -> int:
    return delivery.attempt


@handler("many", batch=100, on_exhausted="dead_letter")
def many(deliveries: list[Delivery]) -> int:
    for delivery in deliveries:
        delivery.acknowledge()
    return len(deliveries)


@handler("many.async", batch=1)
async def many_async(deliveries: list[Delivery]) -> None:
    assert_type(deliveries[0].is_acknowledged, bool)


assert_type(one, Handler[int])
assert_type(many, Handler[int])
assert_type(many_async, Handler[Coroutine[Any, Any, None]])


@handler("mistaken", batch=100)  # type: ignore[arg-type]
def takes_one(delivery: Delivery) -> None: ...


@handler("mistaken.too")  # type: ignore[arg-type]
def takes_many(deliveries: list[Delivery]) -> None: ...


handler("mistaken.as.well", batch="many")  # type: ignore[call-overload]
