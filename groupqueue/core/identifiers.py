"""How messages and publishers are named: UUIDv7 (RFC 9562), 32 hex digits."""

from __future__ import annotations

from uuid_utils import uuid7


def new_id() -> str:
    """Return a new identifier: unique, also after a fork, and sorting by the time it was made."""
    return uuid7().hex
