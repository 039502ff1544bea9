"""How messages and publishers are named: UUIDv7 (RFC 9562), 32 hex digits."""

from __future__ import annotations

import sys
from uuid import UUID

if sys.version_info >= (3, 14):
    from uuid import uuid7
else:
    from uuid6 import uuid7


def new_id() -> str:
    """Return a new identifier: unique, and sorting by the time it was made."""
    identifier: UUID = uuid7()
    return identifier.hex
