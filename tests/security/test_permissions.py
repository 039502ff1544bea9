"""Is the documented user, who may do nothing else, enough for workers, commands and coroutines?"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import redis

from groupqueue import apublish, get_queue
from groupqueue.transport.connections import forget_transports, get_async_transport, get_transport
from tests.documents import DOCS, blocks
from tests.operating.conftest import operate
from tests.servers import Server
from tests.worker.stage import Stage

QUEUE = "minimal"


@pytest.fixture
def minimal(stage: Stage, server: Server, redis_client: redis.Redis) -> Iterator[redis.Redis]:
    """The queue "minimal", reached as the user of the documentation's recipe; gives a client of
    somebody who may do everything."""
    [recipe] = blocks((DOCS / "operating.md").read_text(), "text")
    user = f"user-{uuid.uuid4().hex}"
    redis_client.execute_command(
        *recipe.text.replace("SETUSER groupqueue", f"SETUSER {user}").split()
    )
    redis_client.acl_log_reset()
    url = server.url.replace("redis://", f"redis://{user}:password@")
    stage.add_queue(QUEUE, CONNECTION=url)
    yield redis_client
    stage.end()
    forget_transports()
    redis_client.acl_deluser(user)


def test_workers_have_all_that_they_need(stage: Stage, minimal: redis.Redis) -> None:
    stage.add_queue(
        QUEUE,
        **stage.plan.queues[QUEUE],
        RATE="1000/s",
        DEAD_RETENTION={"age": 3600, "count": 10},
        ON_EXHAUSTED="dead_letter",
        MAX_ATTEMPTS=1,
    )
    for topic in ("note", "note.async", "fail", "snooze", "steer"):
        stage.publish(topic, topic, queue=QUEUE, error="reject", until="seconds")
    worker = stage.work("--concurrency", 4, queues=[QUEUE])
    stage.wait_for_ended(2)
    stage.open_gate()
    stage.wait_for_ended(3)
    stage.traces.wait_for("message_dead", 2)

    worker.signal()

    assert worker.wait() == 0
    reasons = {letter.reason for letter in get_queue(QUEUE).dead_letters().letters}
    assert reasons == {"max_attempts", "no such order"}
    assert refusals(minimal) == []


@pytest.mark.parametrize(
    "verb",
    [
        ["stats"],
        ["groups"],
        ["groups", "--state", "held", "--all"],
        ["explain", "g"],
        ["peek", "g", "--payloads"],
        ["scheduled"],
        ["dead"],
        ["pause", "g"],
        ["resume", "g"],
        ["stop", "--yes"],
        ["start"],
        ["rate", "10/m", "--group", "g"],
        ["rate", "none"],
        ["set-tier", "g", "3"],
        ["skip", "g", "0", "--yes"],
        ["release", "g", "--yes"],
        ["redrive", "--all"],
        ["drop", "--all", "--yes"],
        ["cancel", "0", "--yes"],
        ["reschedule", "0", "--delay", "5"],
        ["purge", "g", "--yes"],
        ["doctor", "--repair", "--yes"],
        ["watch", "--count", "1"],
    ],
    ids=" ".join,
)
def test_operators_have_all_that_they_need(
    stage: Stage, minimal: redis.Redis, verb: list[str]
) -> None:
    stage.publish("note", "g", queue=QUEUE)

    said = operate(*verb, "--queue", QUEUE)

    assert said.code in (0, 1), said
    assert refusals(minimal) == []


async def test_coroutines_have_all_that_they_need(stage: Stage, minimal: redis.Redis) -> None:
    await apublish("note", {}, group="g", queue=QUEUE, on_commit=False)
    transport = get_async_transport(QUEUE)
    lease = await transport.claim("worker", 60)
    assert lease is not None
    assert await transport.wait_for_hint(10)
    await transport.ack(lease)
    assert (await get_queue(QUEUE).aexplain("g")).state == "empty"
    await transport.close()

    assert refusals(minimal) == []


def test_the_user_may_do_nothing_else(stage: Stage, minimal: redis.Redis) -> None:
    client = get_transport(QUEUE).client
    others = (
        ["FLUSHALL"],
        ["CONFIG", "GET", "*"],
        ["KEYS", "*"],
        ["ACL", "LIST"],
        ["SHUTDOWN"],
        ["SCRIPT", "FLUSH"],
        ["GET", "session:1"],
        ["PUBLISH", "channel", "1"],
        ["MONITOR"],
        ["EVAL", "return redis.call('GET', 'session:1')", "0"],
    )

    for command in others:
        with pytest.raises(redis.ResponseError, match=r"permission|can't access"):
            client.execute_command(*command)


def refusals(client: redis.Redis) -> list[object]:
    """Return what the server has refused to anybody."""
    return list(client.acl_log())
