"""What a message is, on its way in, in the queue, and in a handler's hands."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from groupqueue.exceptions import InvalidMessage

LOWEST_TIER, HIGHEST_TIER = 0, 4
TIERS = range(LOWEST_TIER, HIGHEST_TIER + 1)
MAX_GROUP_BYTES = 512
MAX_TOPIC_LENGTH = 200

LAST_MOMENT_MS = 253_402_214_400_000  # 9999-12-31

# An element of a group's list: id, published ms, expiry ms or zeros, then the body.
ID_LENGTH, MOMENT_LENGTH = 32, 13
HEAD_LENGTH = ID_LENGTH + 2 * MOMENT_LENGTH

PLACE = b"\xff"
"""Between a wide group's name and a message's id in the name of the group that the message is
once it has been started; no byte of UTF-8."""


def split_place(group: bytes) -> tuple[bytes, bytes]:
    """Return a wide group's name and the id of the started message that `group` is.

    Any other group comes back whole, with an empty id.
    """
    if group[-ID_LENGTH - 1 : -ID_LENGTH] == PLACE:
        return group[: -ID_LENGTH - 1], group[-ID_LENGTH:]
    return group, b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message as a handler sees it; immutable."""

    id: str
    group: str
    topic: str
    payload: Any = field(repr=False)
    headers: Mapping[str, Any] = field(repr=False)
    priority: int
    published_at: datetime.datetime
    expires_at: datetime.datetime | None


# Not frozen: making one would take four times as long.
@dataclass(slots=True)
class Outgoing:
    """One message to publish: `Outgoing("orders.paid", {"id": 17}, group="order-17")`."""

    topic: str
    payload: Any = field(repr=False)
    group: str | None = field(kw_only=True)
    priority: int | None = field(kw_only=True, default=None)
    headers: Mapping[str, Any] | None = field(kw_only=True, default=None, repr=False)
    delay: float | datetime.timedelta | None = field(kw_only=True, default=None)
    eta: datetime.datetime | None = field(kw_only=True, default=None)
    hold: bool = field(kw_only=True, default=False)
    dedup_key: str | None = field(kw_only=True, default=None)
    dedup_window: float | datetime.timedelta | None = field(kw_only=True, default=None)
    expires_in: float | datetime.timedelta | None = field(kw_only=True, default=None)
    width: int | None = field(kw_only=True, default=None)

    @property
    def has_options(self) -> bool:
        """Whether it is more than a message of its group, to be delivered when it is its turn."""
        moments = (self.delay, self.eta, self.expires_in)
        others = (self.dedup_key, self.dedup_window, self.width)
        return moments != _NONE or others != _NONE or bool(self.hold)


_NONE = (None, None, None)


class EnvelopeOptions(NamedTuple):
    """What is special about one message; see the script publish_with."""

    expires_ms: int | None = None
    """From now on."""
    due: str = ""
    """"+<ms from now>", "<epoch ms>", or empty for at once."""
    hold: bool = False
    dedup_key: str = ""
    dedup_ms: int | None = None
    digest: str = ""
    """Stands for the content: the same key with another digest is a conflict."""
    width: int | None = None
    """How many messages of the group may be in flight at once; None leaves that alone."""


class Envelope(NamedTuple):
    """One message ready to be sent: its body is encoded, its tier decided."""

    id: str
    group: str
    tier: int
    body: bytes
    options: EnvelopeOptions | None = None


class Leased(bytes):
    """A message behind the head of a lease of several: its element, read when somebody asks."""

    __slots__ = ()

    @property
    def id(self) -> str:
        """The message's id."""
        return split_element(self)[0]

    @property
    def payload(self) -> bytes:
        """The body as published."""
        return body_of(self)


class Lease(NamedTuple):
    """A group's head, held for a worker until the visibility timeout ends.

    With a batch it is the head and some of the messages behind it.
    """

    group: str
    token: int
    """The fencing token: larger than that of every earlier lease of the shard."""
    id: str
    payload: bytes
    """The body as published; what it means is the codec's business."""
    priority: int
    deliveries: int
    """How often this message was handed over, this time included."""
    failures: int
    """How many of those hand-overs a handler reported as failed."""
    published_ms: int
    expires_ms: int
    rest: tuple[Leased, ...] = ()
    """The messages behind the head that the lease holds as well, in order."""
    failing_since_ms: int = 0
    """When a handler first reported the message as failed, on the server's clock; 0 for never."""
    is_alone: bool = False
    """Whether the head goes alone because it was in flight with others when their worker
    was last heard of."""
    place: str = ""
    """Of a wide group's message, the id by which it is a group of its own; else empty."""

    @property
    def key(self) -> bytes:
        """The name of the group that is leased: a started message of a wide group is one."""
        whole = self.group.encode(errors="surrogateescape")
        return whole + PLACE + self.place.encode(errors="surrogateescape") if self.place else whole

    @property
    def crashes(self) -> int:
        """How many earlier deliveries ended without a word from their worker."""
        return self.deliveries - 1 - self.failures

    def of(self, leased: Leased) -> Lease:
        """Return the lease as that of one message behind the head, which was never delivered."""
        identifier, published_ms, expires_ms, body = split_element(leased)
        return Lease(
            self.group,
            self.token,
            identifier,
            body,
            self.priority,
            deliveries=1,
            failures=0,
            published_ms=published_ms,
            expires_ms=expires_ms,
        )


def split_element(element: bytes) -> tuple[str, int, int, bytes]:
    """Return id, published ms, expires ms (0 for never) and body of a list element.

    An element without a valid head, which only editing by hand can leave, comes back
    whole as its own body, so that a worker can set it aside: no codec accepts it.
    """
    identifier = element[:ID_LENGTH].decode("utf-8", "surrogateescape")
    moments = element[ID_LENGTH:HEAD_LENGTH]
    if len(moments) == 2 * MOMENT_LENGTH and moments.isdigit():
        published_ms, expires_ms = int(moments[:MOMENT_LENGTH]), int(moments[MOMENT_LENGTH:])
        return identifier, published_ms, expires_ms, element[HEAD_LENGTH:]
    return identifier, 0, 0, element


def body_of(element: bytes) -> bytes:
    """Return only the body; see `split_element`."""
    moments = element[ID_LENGTH:HEAD_LENGTH]
    is_whole = len(moments) == 2 * MOMENT_LENGTH and moments.isdigit()
    return element[HEAD_LENGTH:] if is_whole else element


def checked_group(group: object) -> str:
    """Return the group id if it is legal: non-empty text of at most 512 UTF-8 bytes."""
    if not isinstance(group, str):
        raise InvalidMessage(f"group must be a str, not {group!r}")
    try:
        size = len(group) if group.isascii() else len(group.encode())
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"group {group!r} cannot be written as UTF-8") from error
    if not 0 < size <= MAX_GROUP_BYTES:
        shown = group if size <= MAX_GROUP_BYTES else f"{group[:40]}…"
        raise InvalidMessage(
            f"group {shown!r} has {size} bytes; a group id has 1 to {MAX_GROUP_BYTES}"
        )
    return group


def checked_topic(topic: object) -> str:
    """Return the topic if it is legal: a str of 1 to 200 characters."""
    if not isinstance(topic, str):
        raise InvalidMessage(f"topic must be a str, not {topic!r}")
    if not 0 < len(topic) <= MAX_TOPIC_LENGTH:
        shown = topic if len(topic) <= MAX_TOPIC_LENGTH else f"{topic[:40]}…"
        raise InvalidMessage(
            f"topic {shown!r} has {len(topic)} characters; a topic has 1 to {MAX_TOPIC_LENGTH}"
        )
    return topic


def checked_tier(priority: object) -> int:
    """Return the tier of a priority: an integer, clamped to 0..4 (4 most urgent)."""
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise InvalidMessage(f"priority must be an integer, 0 to 4, not {priority!r}")
    return min(max(int(priority), LOWEST_TIER), HIGHEST_TIER)  # an IntegerChoices is one too


def moment(milliseconds: float) -> datetime.datetime:
    """Return the aware UTC time of a server clock reading in ms.

    What no calendar knows, as only editing by hand can leave, is its nearest end.
    """
    known = min(max(milliseconds, 0), LAST_MOMENT_MS)
    return datetime.datetime.fromtimestamp(known / 1000, tz=datetime.UTC)
