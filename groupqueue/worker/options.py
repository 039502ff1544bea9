"""What a worker was asked to do: the command line, settled once and passed down."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from groupqueue.conf import QueueConfig
from groupqueue.core.calls import Preference
from groupqueue.exceptions import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of `run_group_workers`; None leaves a value to the queue's settings."""

    queues: tuple[str, ...]
    processes: int = 1
    concurrency: int = 1
    batch: int | None = None
    name: str = ""
    visibility: float | None = None
    min_priority: int = 0
    priority_share: float | None = None
    high_ratio: float | None = None
    priority_threshold: int | None = None
    burst: bool = False
    max_messages: int | None = None
    max_seconds: float | None = None
    shutdown_timeout: float = 30.0
    unsafe_server: bool = False
    verbosity: int = 1

    def to_json(self) -> str:
        """Write the options for a child process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerOptions:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        return cls(**values | {"queues": tuple(values["queues"])})

    def visibility_for(self, config: QueueConfig) -> float:
        """Return how many seconds a lease of that queue lasts."""
        return config.visibility_timeout if self.visibility is None else self.visibility


class ClaimShares:
    """Which of a worker's claims go to urgent groups, so that the share comes out exactly.

    What is left over from one turn counts in the next: with a share of 0.8 and one
    claim per turn, four turns in five go by priority. Raises ConfigurationError when
    the options contradict each other.
    """

    def __init__(self, options: WorkerOptions, config: QueueConfig) -> None:
        def chosen(option: float | None, setting: float | None) -> float | None:
            return setting if option is None else option

        ratio = chosen(options.high_ratio, config.high_ratio)
        threshold = chosen(options.priority_threshold, config.priority_threshold)
        share = chosen(options.priority_share, config.priority_share)
        self._min_tier = options.min_priority
        self._threshold = -1
        self._share = share or 0.0
        if (ratio is None) != (threshold is None):
            raise ConfigurationError("--high-ratio and --priority-threshold go together")
        if ratio is not None and threshold is not None:
            self._share, self._threshold = ratio, int(threshold)
        self._credit = 0.0

    def preference(self, want: int) -> Preference:
        """Return where a turn's claims should go."""
        # The margin keeps 0.1 + 0.2 and its like from falling short of a whole claim.
        earned = int(self._credit + want * self._share + 1e-9)
        return Preference(self._min_tier, min(max(earned, 0), want), self._threshold)

    def charge(self, preference: Preference, claimed: int) -> None:
        """Note what the turn claimed."""
        self._credit += claimed * self._share - min(preference.preferred, claimed)
