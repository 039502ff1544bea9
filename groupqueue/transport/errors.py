"""How a driver's or a server's error becomes one of ours: translated once, at the edge."""

from __future__ import annotations

import socket
import ssl

from redis import exceptions as driver

from groupqueue.exceptions import (
    GroupQueueError,
    ServerOutOfMemory,
    ServerRefused,
    ServerUnavailable,
    ServerUnsupported,
    WrongKeyType,
)

ANY = (driver.RedisError, driver.RedisClusterException, OSError)
NO_PERMISSION = driver.NoPermissionError
NO_SCRIPT = driver.NoScriptError
READ_ONLY = driver.ReadOnlyError

# What the server answers instead of doing anything.
_NOT_DONE = (
    driver.BusyLoadingError,
    driver.ReadOnlyError,
    driver.TryAgainError,
    driver.ClusterDownError,
    driver.MasterDownError,
)
# With a lost connection nobody knows whether the command was carried out.
_UNAVAILABLE = (driver.ConnectionError, driver.TimeoutError, OSError, *_NOT_DONE)
_UNAVAILABLE_WORDS = ("BUSY ", "MISCONF ", "NOREPLICAS ", "UNBLOCKED ", "READONLY ", "LOADING ")


# The address led to nobody, or to somebody who is not trusted: no command can have been sent.
_NOBODY_THERE = (
    ConnectionRefusedError,
    FileNotFoundError,
    socket.gaierror,
    ssl.SSLCertVerificationError,
)


# What the server says before a script has begun.
REFUSED = (ServerOutOfMemory, ServerRefused, ServerUnsupported, WrongKeyType)


class NotReached(ServerUnavailable):
    """Redis cannot be reached, or is not ready, so that nothing was done."""


def translated(error: Exception) -> GroupQueueError:
    """Return our error for the driver's; use it as `raise translated(e) from e`."""
    text = str(error)
    if "WRONGKEY " in text or "WRONGTYPE " in text:
        return WrongKeyType(
            f"a key holds a value of another type; nothing was written: {text}. "
            "Find out who writes under the queue's prefix, then delete or rename the key"
        )
    if isinstance(error, driver.OutOfMemoryError) or "OOM " in text or " OOM" in text:
        return ServerOutOfMemory(f"Redis has reached maxmemory: {text}")
    if "unexpected symbol near '#'" in text:
        return ServerUnsupported(
            "the server is too old to know a script's flags: groupqueue needs Redis 7.0 or"
            " Valkey 7.2, or newer"
        )
    # Wrong credentials are a connection's error to the driver, but waiting does not help.
    is_refused = isinstance(error, driver.AuthenticationError | driver.AuthorizationError)
    is_away = isinstance(error, _UNAVAILABLE) or text.startswith(_UNAVAILABLE_WORDS)
    if is_away and not is_refused:
        is_undone = isinstance(error, _NOT_DONE) or text.startswith(_UNAVAILABLE_WORDS)
        is_never_sent = isinstance(error.__context__, _NOBODY_THERE)
        unavailable = NotReached if is_undone or is_never_sent else ServerUnavailable
        return unavailable(f"Redis is not available: {text}")
    return ServerRefused(f"{_refusal(error)}: {text}")


def after_both(earlier: ServerUnavailable, later: ServerUnavailable) -> ServerUnavailable:
    """Return what is known after two attempts: the later one's error, if need be less sure."""
    if isinstance(later, NotReached) and not isinstance(earlier, NotReached):
        unsure = ServerUnavailable(*later.args)
        unsure.__cause__ = later.__cause__
        return unsure
    return later


def of_repetition(earlier: ServerUnavailable, refusal: GroupQueueError) -> GroupQueueError:
    """Return what is known when a call is repeated and refused: that the repetition did nothing.

    What was sent before without an answer may have been carried out all the same.
    """
    if isinstance(earlier, NotReached):
        return refusal
    unsure = ServerUnavailable(f"{refusal}; the same call before it was not answered")
    unsure.__cause__ = refusal
    return unsure


def of_publishing(error: ServerUnavailable) -> ServerUnavailable:
    """Return the error of a publish, which says what became of the messages."""
    if isinstance(error, NotReached):
        return ServerUnavailable(f"{error}; nothing was stored")
    return ServerUnavailable(f"{error}; it is not known whether the messages were stored")


def _refusal(error: Exception) -> str:
    if isinstance(error, driver.AuthenticationError | driver.AuthorizationError):
        return "Redis refuses the credentials in CONNECTION, or wants some"
    if isinstance(error, driver.NoPermissionError):
        return "the Redis user may not do this; see its ACL rules"
    return "Redis refused the command"
