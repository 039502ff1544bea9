"""How is a queue's life lived, many times over, and what is told of it?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import redis
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from tests.model.lossy import LossyTransport
from tests.model.machine import QueueMachine

STEPS_PER_LIFE = 60
"""At most; most lives have about 55."""
LIVES_PER_RUN = 9
"""In a run of more, Hypothesis begins with short lives, and most of the others are made of former
ones: of two hundred lives, thirty have a beginning of their own."""
PATIENCE_SECONDS = 600.0
"""How long a server may stand still, and with it the machine."""


@dataclass
class Told:
    """What was done in some lives."""

    lives: int = 0
    steps: int = 0
    performed: Counter[str] = field(default_factory=Counter)
    """How often each script was called."""


def live(
    url: str, prefix: str, lives: int, *, told: Told, is_random: bool = False, is_short: bool = True
) -> None:
    """Let a shard of the server live so often; raise what the first failing life raises.

    Without `is_random` it is the same lives each time. `is_short`: a life that fails is made
    as short as it can be, which takes minutes.
    """

    class Life(QueueMachine):
        def __init__(self) -> None:
            super().__init__(client, transport)
            told.lives += 1

        @invariant()
        def audit(self) -> None:
            super().audit()
            told.steps += 1

    if not lives:
        return
    client = redis.Redis.from_url(
        url, retry=None, socket_timeout=PATIENCE_SECONDS, socket_connect_timeout=PATIENCE_SECONDS
    )
    transport = LossyTransport(client, prefix)
    phases = [Phase.generate, Phase.shrink] if is_short else [Phase.generate]
    how = settings(
        stateful_step_count=STEPS_PER_LIFE,
        derandomize=not is_random,
        phases=phases,
        deadline=None,
        database=None,
        print_blob=is_random,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    try:
        for number, lived in enumerate(range(0, lives, LIVES_PER_RUN)):
            if not is_random:
                seed(number)(Life)
            count = min(lives - lived, LIVES_PER_RUN)
            run_state_machine_as_test(Life, settings=settings(how, max_examples=count))
    finally:
        told.performed += transport.performed
        transport.close()
        client.close()
