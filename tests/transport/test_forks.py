"""Can a forked child work, whatever the parent's threads were doing at the fork?"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import redis.asyncio

from groupqueue import signals
from groupqueue.signals import message_published
from groupqueue.transport import connections
from groupqueue.transport.redis import AsyncRedisTransport, RedisTransport
from tests.servers import Server
from tests.transport.shards import InThreads

DEADLINE_SECONDS = 60

PROGRAM = """
import asyncio, os, sys, threading, time, warnings
import django, redis
from django.conf import settings

warnings.simplefilter("ignore")
url, children = sys.argv[1], int(sys.argv[2])
settings.configure(INSTALLED_APPS=["groupqueue"], GROUPQUEUE={"default": {"CONNECTION": url}})
django.setup()

from groupqueue import apublish, publish, signals
from groupqueue.transport.redis import RedisTransport

signals.message_published.connect(lambda **kwargs: None, weak=False)
own = RedisTransport(redis.Redis.from_url(url), "gq:{own:0}")

def publish_everywhere(group):
    publish("topic", {}, group=group)
    own.publish(group, b"1")

def go_on_publishing(group):
    while True:
        publish_everywhere(group)

publish_everywhere("parent")  # imports what it needs, as imports hold locks of their own
for number in range(6):
    threading.Thread(target=go_on_publishing, args=(f"parent-{number}",), daemon=True).start()

pids = []
for number in range(children):
    pid = os.fork()
    if pid == 0:
        publish_everywhere("child")
        asyncio.run(apublish("topic", {}, group="child"))
        os._exit(0)
    pids.append(pid)

give_up_at = time.monotonic() + float(sys.argv[3])
ended = []
while len(ended) < children and time.monotonic() < give_up_at:
    pid, status = os.waitpid(-1, os.WNOHANG)
    if pid:
        ended.append(status)
    else:
        time.sleep(0.01)
for pid in pids:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        pass
print(ended.count(0), flush=True)
os._exit(0)
"""


def test_failure_19_children_forked_while_threads_publish_can_publish(
    server: Server, redis_client: redis.Redis
):
    children = 40

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.url, str(children), str(DEADLINE_SECONDS)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == (f"{children}\n", "")
    assert redis_client.llen("gq:{default:0}:q:child") == 2 * children
    assert redis_client.llen("gq:{own:0}:q:child") == children


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("executor", ["sync", "async"])
async def test_failure_19_a_forked_child_shares_no_connection_with_its_parent(
    server: Server, redis_client: redis.Redis, queue_prefix: str, executor: str
):
    transport: Any = (
        AsyncRedisTransport(redis.asyncio.Redis.from_url(server.url), queue_prefix)
        if executor == "async"
        else InThreads(RedisTransport(redis.Redis.from_url(server.url), queue_prefix))
    )
    bare = getattr(transport, "bare", transport)

    async def connection_after(body: bytes) -> int:
        await transport.publish("group", body)
        identifier = bare.client.client_id()
        return await identifier if executor == "async" else identifier

    own = await connection_after(b"parent")
    reading, writing = os.pipe()

    def work() -> None:
        # An event loop of a child's own; the parent's belongs to the parent.
        gc.collect()
        asyncio.set_event_loop(None)
        asyncio._set_running_loop(None)
        if executor == "sync":
            bare.publish("group", b"child")
            os.write(writing, b"%d" % bare.client.client_id())
            bare.close()
        else:
            os.write(writing, b"%d" % asyncio.run(connection_after(b"child")))

    assert in_a_child(work) == 0

    assert int(os.read(reading, 100)) != own
    os.close(reading)
    os.close(writing)
    # Nor has the child's end cost the parent its own.
    assert await connection_after(b"parent again") == own
    await transport.close()
    assert redis_client.llen(f"{queue_prefix}:q:group") == 3


def in_a_child(work: Callable[[], object]) -> int:
    """Return the exit status of a forked child that did the work."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    give_up_at = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < give_up_at:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


@contextmanager
def held_by_a_thread(lock: Any) -> Iterator[None]:
    """Have another thread hold a lock."""
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            free.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        yield
    finally:
        free.set()
        thread.join()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_does_not_wait_for_a_pool_that_a_thread_of_its_parent_had_locked(
    server: Server, redis_client: redis.Redis, queue_prefix: str
):
    transport = RedisTransport(redis.Redis.from_url(server.url), queue_prefix)
    transport.publish("group", b"parent")

    with held_by_a_thread(transport.client.connection_pool._lock):
        assert in_a_child(lambda: transport.publish("group", b"child")) == 0

    transport.publish("group", b"parent again")
    transport.close()
    assert redis_client.llen(f"{queue_prefix}:q:group") == 3


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_does_not_wait_for_a_lock_of_ours_that_a_thread_of_its_parent_held():
    connections.forget_transports()

    with held_by_a_thread(connections._lock):
        assert in_a_child(connections.get_transport) == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_does_not_wait_for_a_signal_that_a_thread_of_its_parent_was_sending():
    def receiver(**_arguments: object) -> None:
        """Be there, so that the signal is sent."""

    message_published.connect(receiver)
    try:
        with held_by_a_thread(message_published.lock):
            assert in_a_child(lambda: signals.send(message_published, None)) == 0
    finally:
        message_published.disconnect(receiver)


async def test_a_child_leaves_the_connections_of_its_parents_event_loop_alone(
    server: Server, redis_client: redis.Redis, queue_prefix: str
):
    transport = AsyncRedisTransport(redis.asyncio.Redis.from_url(server.url), queue_prefix)
    await transport.publish("group", b"parent")
    connection = await transport.client.client_id()

    def work() -> None:
        gc.collect()
        asyncio.set_event_loop(None)
        asyncio._set_running_loop(None)
        asyncio.run(transport.publish("group", b"child"))

    assert in_a_child(work) == 0

    await transport.publish("group", b"parent again")
    assert await transport.client.client_id() == connection
    await transport.close()
    assert redis_client.llen(f"{queue_prefix}:q:group") == 3
