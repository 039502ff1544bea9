"""Which handler cannot be declared beside another?"""

from __future__ import annotations

from groupqueue import Delivery, handler


@handler("note")
def rival(delivery: Delivery) -> None:
    """Never run: the topic has its handler."""
