"""Which topics does this app handle?"""

from __future__ import annotations

from groupqueue import Delivery, handler


@handler("handlers_app.sync")
def handle(delivery: Delivery) -> None:
    """Handle a message in a thread."""


@handler("handlers_app.async")
async def handle_in_loop(delivery: Delivery) -> None:
    """Handle a message on the event loop."""
