"""When a failed message is tried again, and when it is exhausted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OnExhausted = Literal["halt", "dead_letter", "dead_letter_group"]
EXHAUSTED_POLICIES: tuple[OnExhausted, ...] = ("halt", "dead_letter", "dead_letter_group")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """A queue's or a handler's answer to failures and crashes."""

    max_attempts: int = 5
    max_crashes: int = 3
    backoff_base_seconds: float = 1.0
    backoff_cap_seconds: float = 300.0
    max_block_seconds: float | None = None
    """How long retries of one message may hold its group, from its first failure on."""
    on_exhausted: OnExhausted = "halt"

    def backoff_seconds(self, failures: int, jitter: float) -> float:
        """Return the wait after the given number of failures (1 after the first).

        Exponential with "equal jitter": half of min(cap, base * 2^(failures-1)) is
        sure, the other half is scaled by `jitter` from 0 to 1 (Marc Brooker,
        "Exponential backoff and jitter", AWS Architecture Blog, 2015).
        """
        # 2^60 seconds is past any cap; the bound keeps the power from overflowing.
        exponential = self.backoff_base_seconds * 2.0 ** min(failures - 1, 60)
        ceiling = min(self.backoff_cap_seconds, exponential)
        return ceiling / 2 * (1 + jitter)

    def block_left_seconds(self, blocked_seconds: float) -> float:
        """Return how long a message may go on holding its group after so long."""
        if self.max_block_seconds is None:
            return float("inf")
        return self.max_block_seconds - blocked_seconds

    def exhausts(self, failures: int) -> bool:
        """Say whether that many failures are all that a message may have."""
        return failures >= self.max_attempts

    def is_poison(self, crashes: int) -> bool:
        """Say whether that many crashes are all that a message may cause."""
        return crashes >= self.max_crashes
