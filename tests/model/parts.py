"""What does the model have in its hands? Messages, groups, leases, holds, letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from groupqueue.core.messages import Envelope, EnvelopeOptions, Lease

# What is far away stays so, and what is about to come in a minute may have come: a machine may
# stand still between two steps, for minutes in all, and no step depends on it. See `SLACK_MS`.
DAY_MS = 86_400_000
FAR = f"+{DAY_MS}"
PAST = "1"
SLACK_MS = 3_600_000
"""By how much a moment may differ from what is expected: moments are days apart."""

# Since when groups are due: of earlier steps before later ones, and before all steps those at
# the front and those whose moment was moved into the past.
AT_THE_FRONT, LONG_AGO = -2, -1


@dataclass
class Message:
    """One message, and what was asked for it."""

    id: str
    group: str
    body: bytes
    tier: int = 0
    due: str = ""
    hold: bool = False
    dedup_key: str = ""
    expires: Literal["", "later", "passed"] = ""
    width: int | None = None
    has_come: bool = False
    """Said of a scheduled or held one: its moment has passed."""

    @property
    def is_for_later(self) -> bool:
        """Whether it was published for a moment that is far away."""
        return self.due == FAR

    @property
    def digest(self) -> str:
        """What stands for its content."""
        return f"{self.group}/{self.body.decode()}"

    def envelope(self) -> Envelope:
        """Return it ready to be sent."""
        asked = (self.due, self.dedup_key, self.expires, self.width)
        if asked == ("", "", "", None):
            return Envelope(self.id, self.group, self.tier, self.body)
        expires_ms = {"": None, "later": DAY_MS, "passed": 0}[self.expires]
        options = EnvelopeOptions(expires_ms, self.due, self.hold)
        if self.width:
            options = options._replace(width=self.width)
        if self.dedup_key:
            options = options._replace(
                dedup_key=self.dedup_key, dedup_ms=DAY_MS, digest=self.digest
            )
        return Envelope(self.id, self.group, self.tier, self.body, options)


@dataclass
class Held:
    """A lease that holds."""

    token: int
    worker: str
    together: int
    """How many messages it has."""
    visibility_ms: int
    """How long it lasts from when it was given, or last renewed."""
    is_counted: bool = True
    """Whether its worker has not said that the message is not being handled yet."""


@dataclass
class Group:
    """A group that has messages; a started message of a wide one is a group of its own."""

    key: str
    name: str
    tier: int
    messages: list[Message]
    since: int
    is_parked: bool = False
    is_put_off: bool = False
    """Whether it is a rate that parks it."""
    lease: Held | None = None
    has_place: bool = False
    """Of a started message: whether it is in flight."""
    deliveries: int = 0
    failures: int = 0
    error: str | None = None

    @property
    def head(self) -> Message:
        """The only message that can be handed out."""
        return self.messages[0]

    @property
    def is_started(self) -> bool:
        """Whether it is a started message of a wide group."""
        return self.key != self.name

    def uncount(self) -> None:
        """Take the last delivery of the head back."""
        self.deliveries = max(0, self.deliveries - 1)

    def forget_head(self) -> None:
        """Let the next delivery be the head's first."""
        self.deliveries, self.failures, self.error = 0, 0, None


@dataclass
class Hold:
    """Why a group is held: by an operator, or by the failure of its head, or both."""

    is_paused: bool = False
    halted: str | None = None


@dataclass
class Doom:
    """What is to be set aside with a head that was given up, and which that was."""

    ids: list[str]
    behind: str


@dataclass
class Letter:
    """A message set aside."""

    message: Message
    group: str
    tier: int
    reason: str
    error: str
    deliveries: int
    failures: int
    width: int | None
    entry: str = ""
    """Only the server knows it."""
    days: int = 0
    """How old it is."""


def started_key(name: str, identifier: str) -> str:
    """Return the name of the group that a started message of a wide group is."""
    return f"{name}\udcff{identifier}"


def key_of(lease: Lease) -> str:
    """Return the name of the group that a lease holds."""
    return started_key(lease.group, lease.place) if lease.place else lease.group
