"""How does a test have a queue worked off by a worker's own pump, in this process?"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

from groupqueue.conf import get_config
from groupqueue.transport.connections import new_transport
from groupqueue.worker.leases import LeaseKeeper
from groupqueue.worker.options import ClaimShares, WorkerOptions
from groupqueue.worker.pump import Pump
from groupqueue.worker.sources import Source

LEASE_SECONDS = 60.0
# Only a pump that spins goes on for so long.
LONGEST_SECONDS = 60.0


def work_off(queue: str = "default", *, batch: int | None = None) -> Pump:
    """Handle all that is due as `run_group_workers --burst` does; return the pump, which must
    have come to its end."""
    config = get_config(queue)
    options = WorkerOptions(queues=(queue,), batch=batch, burst=True, max_seconds=LONGEST_SECONDS)
    transport = new_transport(queue)
    # It is asked to hold the leases and never started: they outlast the test.
    keeper = LeaseKeeper(
        "worker",
        {queue: transport},
        {queue: LEASE_SECONDS},
        retentions={},
        describe=dict,
        on_overdue=_not_here,
        on_unknown_schema=_not_here,
        tell=_not_here,
    )
    source = Source(
        config,
        transport,
        keeper,
        worker_id="worker",
        shares=ClaimShares(options, config),
        visibility_seconds=LEASE_SECONDS,
        batch=batch,
    )
    pump = Pump(
        [source],
        keeper,
        options,
        on_stopping=lambda _: None,
        on_claimed=lambda _: None,
        on_loop_ended=_not_here,
    )
    try:
        # A thread has database connections of its own, and no test's are looked after.
        with ThreadPoolExecutor(2) as threads:
            handling = threads.submit(pump.handle)
            threads.submit(pump.run).result()
            handling.result()
    finally:
        transport.close()
    assert pump.stop_reason == "burst"
    assert keeper.is_idle
    return pump


def _not_here(*_: object, **__: object) -> NoReturn:
    pytest.fail("the pump was not to need this")
