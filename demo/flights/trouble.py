"""What goes wrong in the demo on purpose, so that there is something to look at in the admin.

Nothing, unless the environment says so: DEMO_HANDLER_MS is how long each flight takes,
and with DEMO_TROUBLE=1 some fail.
"""

from __future__ import annotations

import os
import time
import zlib

from groupqueue import Delivery, Reject, Retry

HANDLER_MS = float(os.environ.get("DEMO_HANDLER_MS") or 0)
IS_TROUBLED = os.environ.get("DEMO_TROUBLE") == "1"
MISSING_PAPERS_SECONDS = 20


class NoPositionReport(Exception):
    """An aircraft that does not answer, however often it is asked."""


def befall(delivery: Delivery) -> None:
    """Take some time, and raise what is in store for this flight."""
    if HANDLER_MS:
        time.sleep(HANDLER_MS / 1000)
    if IS_TROUBLED:
        _strike(delivery)


def _strike(delivery: Delivery) -> None:
    # By checksum: the same aircraft whenever the demo runs, and no list to keep.
    match zlib.crc32(delivery.group.encode()) % 150:
        case 0:
            raise Reject("grounded: a mechanic has to release it")
        case 1:
            raise NoPositionReport(f"{delivery.group} does not report its position")
    if delivery.attempt == 1 and zlib.crc32(delivery.id.encode()) % 15 == 0:
        raise Retry(MISSING_PAPERS_SECONDS)
