"""Message groups for Django on Redis or Valkey: the public names, loaded when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupqueue import exceptions as exceptions
    from groupqueue.core.delivery import Delivery as Delivery
    from groupqueue.core.messages import Message as Message
    from groupqueue.core.messages import Outgoing as Outgoing
    from groupqueue.exceptions import Reject as Reject
    from groupqueue.exceptions import Retry as Retry
    from groupqueue.exceptions import Snooze as Snooze
    from groupqueue.handlers import handler as handler
    from groupqueue.publishing import apublish as apublish
    from groupqueue.publishing import apublish_many as apublish_many
    from groupqueue.publishing import publish as publish
    from groupqueue.publishing import publish_many as publish_many
    from groupqueue.queues import get_queue as get_queue
    from groupqueue.transport.redis import AsyncRedisTransport as AsyncRedisTransport
    from groupqueue.transport.redis import RedisTransport as RedisTransport

__version__ = "0.1.0"

# Where each name lives. Nothing is imported before it is asked for, Django least of all, so
# that this package can be imported anywhere, in a settings module too.
_HOMES = {
    "AsyncRedisTransport": "groupqueue.transport.redis",
    "Delivery": "groupqueue.core.delivery",
    "Message": "groupqueue.core.messages",
    "Outgoing": "groupqueue.core.messages",
    "RedisTransport": "groupqueue.transport.redis",
    "Reject": "groupqueue.exceptions",
    "Retry": "groupqueue.exceptions",
    "Snooze": "groupqueue.exceptions",
    "apublish": "groupqueue.publishing",
    "apublish_many": "groupqueue.publishing",
    "get_queue": "groupqueue.queues",
    "handler": "groupqueue.handlers",
    "publish": "groupqueue.publishing",
    "publish_many": "groupqueue.publishing",
}

__all__ = [
    "AsyncRedisTransport",
    "Delivery",
    "Message",
    "Outgoing",
    "RedisTransport",
    "Reject",
    "Retry",
    "Snooze",
    "__version__",
    "apublish",
    "apublish_many",
    "exceptions",
    "get_queue",
    "handler",
    "publish",
    "publish_many",
]


def __getattr__(name: str) -> Any:
    if name == "exceptions":
        return importlib.import_module("groupqueue.exceptions")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
