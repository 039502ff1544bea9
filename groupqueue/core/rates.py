"""How often messages may be delivered: "10/m", as settings and operators write it."""

from __future__ import annotations

import re
from typing import NamedTuple

from groupqueue.exceptions import InvalidArgument

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MOST_PERIODS_SHOWN = 100
LONGEST_REFILL_DAYS = 3660
"""Ten years: more is a slip of the pen, and the server's numbers stay exact."""
MAX_DIGITS = 18
"""Of a number that a server's reply may hold; somebody may have written any number of them."""
_RATE = re.compile(
    r"(?P<count>[0-9]{1,9})/(?P<periods>[0-9]{0,6})(?P<unit>[smhd])(?::(?P<burst>[0-9]{1,9}))?"
)


class Rate(NamedTuple):
    """One message each interval, and up to `burst` at once after a pause."""

    interval_us: int
    burst: int = 1

    @property
    def argument(self) -> str:
        """What scripts are told."""
        return f"{self.interval_us} {self.burst}"

    @property
    def text(self) -> str:
        """What people write, in the shortest way: "10/m", "1/7s", "12/h:4"."""
        exact = f"{self.interval_us / 1_000_000:.6f}".rstrip("0").rstrip(".")
        ways = [f"1/{exact}s"]
        for periods in range(_MOST_PERIODS_SHOWN, 0, -1):
            for unit, seconds in _SECONDS.items():
                count = -(periods * seconds * -1_000_000 // self.interval_us)
                if _interval_us(count, periods * seconds) == self.interval_us:
                    ways.append(f"{count}/{periods if periods > 1 else ''}{unit}")
        shortest = min(reversed(ways), key=len)
        return f"{shortest}:{self.burst}" if self.burst > 1 else shortest


class Rates(NamedTuple):
    """How often messages of a queue may be delivered, as its settings say."""

    queue: Rate | None = None
    """In all."""
    group: Rate | None = None
    """Of each group."""


NO_RATES = Rates()


def parse_rate(text: str) -> Rate:
    """Return what "10/m" means: ten messages a minute, one every six seconds.

    The unit is s, m, h or d, perhaps with a number of them: "1/5m". "10/m:4" lets four go
    at once after a pause, as the generic cell rate algorithm does (ITU-T I.371). Raises
    InvalidArgument.
    """
    found = _RATE.fullmatch(text.replace(" ", "")) if isinstance(text, str) else None
    if found is None:
        raise InvalidArgument(f'{text!r} is no rate: write "10/m", "5/s", "1/5m" or "10/m:4"')
    count, periods = int(found["count"]), int(found["periods"] or 1)
    burst = int(found["burst"] or 1)
    if not (count and periods and burst):
        raise InvalidArgument(f"{text!r} is no rate: each of its numbers is 1 or more")
    rate = Rate(_interval_us(count, periods * _SECONDS[found["unit"]]), burst)
    if rate.interval_us * burst > LONGEST_REFILL_DAYS * 86_400_000_000:
        raise InvalidArgument(f"{text!r} is no rate: it would take more than ten years")
    return rate


def _interval_us(count: int, seconds: int) -> int:
    """Return the µs between two messages, rounded up: never more of them than asked for."""
    return -(seconds * -1_000_000 // count)


def rate_text(argument: bytes) -> str:
    """Return a rate that scripts were told as people write it; "none" and nothing stay so."""
    interval, _, burst = argument.partition(b" ")
    if all(part.isdigit() and len(part) <= MAX_DIGITS and int(part) for part in (interval, burst)):
        return Rate(int(interval), int(burst)).text
    return argument.decode(errors="replace")
