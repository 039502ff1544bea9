"""Does a worker wait for Redis for ever, and a supervisor replace processes for ever?"""

from __future__ import annotations

import time
from typing import Any, cast

from groupqueue import conf
from groupqueue.exceptions import ServerUnavailable
from groupqueue.worker.options import ClaimShares, WorkerOptions
from groupqueue.worker.sources import LONGEST_PAUSE_SECONDS, Source
from groupqueue.worker.supervisor import LONGEST_RESTART_SECONDS, Supervisor

OPTIONS = WorkerOptions(queues=("default",))
TIMES = 2000  # 2.0 to that power is no float any more


class AwayTransport:
    """A transport whose server never answers."""

    prefix = "gq:{away:0}"

    def begin(self, _: Any) -> Any:
        return self.recover

    def recover(self, *_: Any) -> int:
        raise ServerUnavailable


def test_failure_28_a_source_goes_on_asking_however_long_redis_is_away() -> None:
    config = conf.get_config()
    source = Source(
        config,
        cast(Any, AwayTransport()),
        cast(Any, None),
        worker_id="worker",
        shares=ClaimShares(OPTIONS, config),
        visibility_seconds=30,
    )

    for _ in range(TIMES):
        assert source.begin_turn(1)() == []

    assert source.paused_until <= time.monotonic() + LONGEST_PAUSE_SECONDS


def test_a_process_is_replaced_however_often_it_dies() -> None:
    supervisor = Supervisor(OPTIONS)
    place = supervisor._places[0]

    for _ in range(TIMES):
        place.failed_starts_in_a_row = 0
        place.started_at = time.monotonic()
        supervisor._replace(place, 1)

    assert place.restart_at is not None
    assert place.restart_at <= time.monotonic() + LONGEST_RESTART_SECONDS
