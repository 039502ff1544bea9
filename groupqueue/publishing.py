"""How messages are published: checked and encoded at once, sent at once or after commit."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from asgiref.sync import AsyncToSync, sync_to_async
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from groupqueue import handlers, signals
from groupqueue.conf import QueueConfig, get_config
from groupqueue.core.identifiers import new_id
from groupqueue.core.messages import Envelope, Outgoing, checked_group, checked_tier
from groupqueue.exceptions import GroupQueueError, InvalidMessage, PayloadTooLarge
from groupqueue.handlers import checked_topic
from groupqueue.transport.connections import get_async_transport, get_transport
