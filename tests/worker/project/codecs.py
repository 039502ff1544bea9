"""Which codec fails in a way of its own?"""

from __future__ import annotations

from groupqueue.core.codec import Content, JSONCodec


class BrokenCodec(JSONCodec):
    """Cannot read what it wrote, and says so with an error that nobody expects."""

    def decode(self, body: bytes) -> Content:
        raise ZeroDivisionError("division by zero")
