"""Does each of the driver's errors become the one of ours that says what to do?"""

from __future__ import annotations

import pytest
from redis import exceptions as driver

from groupqueue.exceptions import (
    ServerOutOfMemory,
    ServerRefused,
    ServerUnavailable,
    WrongKeyType,
)
from groupqueue.transport.errors import (
    ANY,
    NotReached,
    after_both,
    of_publishing,
    of_repetition,
    translated,
)

UNAVAILABLE = [
    driver.ConnectionError("Connection refused"),
    driver.TimeoutError("Timeout reading from socket"),
    driver.MaxConnectionsError("Too many connections"),
    ConnectionResetError("reset by peer"),
    TimeoutError("timed out"),
    OSError("no route to host"),
]
# The server's answer says that it has done nothing.
NOT_READY = [
    driver.BusyLoadingError("Redis is loading the dataset in memory"),
    driver.ReadOnlyError("You can't write against a read only replica."),
    driver.ClusterDownError("CLUSTERDOWN The cluster is down"),
    driver.MasterDownError("Link with MASTER is down"),
    driver.TryAgainError("TRYAGAIN Multiple keys request during rehashing of slot"),
    driver.ResponseError("BUSY Redis is busy running a script."),
    driver.ResponseError("MISCONF Redis is configured to save RDB snapshots"),
    driver.ResponseError("NOREPLICAS Not enough good replicas to write."),
    driver.ResponseError("UNBLOCKED force unblock from blocking operation"),
]
REFUSED = [
    driver.AuthenticationError("invalid username-password pair"),
    driver.AuthorizationError("no"),
    driver.NoPermissionError("this user has no permissions to run the 'evalsha' command"),
    driver.ResponseError("unknown command 'EVALSHA'"),
    driver.DataError("Invalid input"),
]
OUT_OF_MEMORY = [
    driver.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
    driver.ResponseError("OOM command not allowed when used memory > 'maxmemory'."),
]
WRONG_TYPE = [
    driver.ResponseError("WRONGKEY gq:{default:0}:prio is a string"),
    driver.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"),
]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (error, expected)
        for errors, expected in (
            (UNAVAILABLE, ServerUnavailable),
            (NOT_READY, NotReached),
            (REFUSED, ServerRefused),
            (OUT_OF_MEMORY, ServerOutOfMemory),
            (WRONG_TYPE, WrongKeyType),
        )
        for error in errors
    ],
    ids=lambda value: str(value)[:50] if isinstance(value, Exception) else None,
)
def test_an_error_of_the_driver_becomes_ours_and_keeps_its_text(error, expected):
    assert isinstance(error, ANY)

    ours = translated(error)

    assert type(ours) is expected
    assert str(error) in str(ours)


def test_a_key_that_looks_like_another_error_does_not_mislead():
    error = driver.ResponseError("WRONGKEY gq:{OOM :0}:prio is a string")

    assert isinstance(translated(error), WrongKeyType)


def test_a_publish_is_only_undone_for_sure_when_no_attempt_can_have_arrived():
    lost, nobody = ServerUnavailable("the reply was lost"), NotReached("nobody listens")

    undone = of_publishing(after_both(nobody, nobody))
    unknown = [after_both(lost, nobody), after_both(nobody, lost), after_both(lost, lost)]

    assert str(undone) == "nobody listens; nothing was stored"
    for error in map(of_publishing, unknown):
        assert str(error).endswith("; it is not known whether the messages were stored")
    assert str(unknown[0]) == "nobody listens"


def test_a_refused_repetition_says_nothing_of_a_call_that_was_not_answered():
    lost, nobody = ServerUnavailable("the reply was lost"), NotReached("nobody listens")
    refusal = ServerOutOfMemory("maxmemory")

    assert of_repetition(nobody, refusal) is refusal
    unknown = of_repetition(lost, refusal)
    assert type(unknown) is ServerUnavailable
    assert str(unknown) == "maxmemory; the same call before it was not answered"
    assert unknown.__cause__ is refusal
