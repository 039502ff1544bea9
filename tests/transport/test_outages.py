"""Is a server that is away, refuses or comes back told apart, and used again when it can be?"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from groupqueue.exceptions import ServerRefused, ServerUnavailable
from tests.servers import Kind, Server, available_kinds, free_port, start_server, wait_until
from tests.transport.conftest import EXECUTORS
from tests.transport.lua_files import permissions
from tests.transport.operations import OPERATIONS
from tests.transport.proxy import Proxy
from tests.transport.shards import Shard, look_inside, reach, until


def run_for_ever(url: str) -> str:
    """Keep the server busy with a script until somebody ends it; return its error."""
    client = redis.Redis.from_url(url, retry=None, socket_timeout=60)
    try:
        client.eval("while true do end", 0)
    except redis.ResponseError as error:
        return str(error)
    finally:
        client.close()
    return ""


executors = pytest.mark.parametrize("executor", EXECUTORS)


@executors
async def test_a_server_that_does_not_listen_is_unavailable(executor: str, queue_prefix: str):
    nobody = f"redis://127.0.0.1:{free_port()}/0"
    async with reach(executor, nobody, queue_prefix) as transport:
        for call in (
            transport.publish("group", b"1"),
            transport.claim("worker", 30),
            transport.turn("worker", [], 1, visibility=30),
            transport.wait_for_hint(1),
        ):
            with pytest.raises(ServerUnavailable):
                await call


@executors
@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:{port}", "redis://no-such-host.invalid", "unix:///no.sock"]
)
async def test_a_publish_to_a_server_that_is_not_there_says_that_nothing_was_stored(
    executor: str, url: str, queue_prefix: str
):
    async with reach(executor, url.format(port=free_port()), queue_prefix) as transport:
        with pytest.raises(ServerUnavailable, match=r"; nothing was stored$"):
            await transport.publish("group", b"1")


@executors
async def test_a_name_that_is_no_host_is_unavailable(executor: str, queue_prefix: str):
    async with reach(executor, "redis://no-such-host.invalid:1/0", queue_prefix) as transport:
        with pytest.raises(ServerUnavailable):
            await transport.claim("worker", 30)


@executors
async def test_who_is_not_patient_gives_up_on_a_server_that_hangs(
    executor: str, own_server: Server, queue_prefix: str
):
    async with reach(executor, own_server.url, queue_prefix, patient=False) as transport:
        await transport.claim("worker", 30)
        own_server.pause()
        try:
            with pytest.raises(ServerUnavailable):
                # A patient transport would wait for ten seconds, five times over.
                async with asyncio.timeout(8):
                    await transport.claim("worker", 30)
        finally:
            own_server.resume()
        await transport.publish("group", b"1")
        assert (await transport.claim("worker", 30)).group == "group"


async def test_failure_22_a_server_that_was_killed_and_came_back_is_used_again(
    own_shard: Shard, own_server: Server
):
    await own_shard.publish("group", b"1", b"2")
    lease = await own_shard.transport.claim("worker", 60)
    own_server.kill()
    with pytest.raises(ServerUnavailable):
        await own_shard.transport.claim("worker", 30)

    own_server.start()

    # What was answered is kept, the lease too; the scripts are not.
    assert await own_shard.transport.ack(lease) == 1
    await own_shard.publish("group", b"3")
    following = await own_shard.transport.claim("worker", 60)
    assert (following.payload, following.token > lease.token) == (b"2", True)


async def test_failure_17_a_wait_that_a_restart_cuts_is_an_error_and_the_next_one_works(
    own_shard: Shard, own_server: Server
):
    waiting = asyncio.create_task(own_shard.transport.wait_for_hint(5))
    await asyncio.to_thread(
        wait_until,
        lambda: own_shard.redis.info("clients")["blocked_clients"] == 1,
        "somebody to wait",
    )
    own_server.restart()

    with pytest.raises(ServerUnavailable):
        await waiting

    await own_shard.publish("group")
    assert await own_shard.transport.wait_for_hint(5) is True


async def test_a_publish_during_a_short_outage_succeeds_without_the_callers_doing(
    own_shard: Shard, own_server: Server
):
    await own_shard.publish("group", b"1")
    own_shard.redis.client_kill_filter(_type="normal", skipme=True)

    await own_shard.publish("group", b"2")

    assert own_shard.depth("group") == 2


async def test_connections_that_were_killed_are_opened_again(own_shard: Shard):
    await own_shard.publish("group", b"1", b"2")
    lease = await own_shard.transport.claim("worker", 60)
    own_shard.redis.client_kill_filter(_type="normal", skipme=True)

    assert await own_shard.transport.renew([lease], 60) == []
    own_shard.redis.client_kill_filter(_type="normal", skipme=True)
    assert await own_shard.transport.ack(lease) == 1


@pytest.fixture
def replica(own_server: Server, tmp_path: Path) -> AsyncIterator[Server]:
    """A replica of `own_server`."""
    with look_inside(own_server.url) as inside:
        inside.config_set("repl-diskless-sync-delay", 0)
    server = start_server(
        own_server.kind,
        tmp_path / "replica",
        extra_args=["--replicaof", f"127.0.0.1 {own_server.port}"],
    )
    try:
        yield server
    finally:
        server.stop()


@executors
async def test_a_replica_is_unavailable_until_it_is_promoted(
    executor: str, replica: Server, queue_prefix: str
):
    async with reach(executor, replica.url, queue_prefix) as transport:
        with pytest.raises(ServerUnavailable):
            await transport.publish("group", b"1")
        with pytest.raises(ServerUnavailable):
            await transport.turn("worker", [], 1, visibility=30)

        with look_inside(replica.url, emptied=False) as inside:
            inside.replicaof("NO", "ONE")
            await transport.publish("group", b"1")
            assert (await transport.claim("worker", 30)).payload == b"1"
            assert len(inside.keys("*:q:*")) == 1


Attempt = Callable[[Any], Awaitable[object]]

ATTEMPTS: dict[str, Attempt] = {
    "a publish": lambda transport: transport.publish("group", b"2"),
    "a claim": lambda transport: transport.claim("worker", 30),
    "a wait": lambda transport: transport.wait_for_hint(0.01),
}


@executors
@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS)
async def test_failure_29_all_connections_to_a_demoted_primary_are_dropped_at_once(
    executor: str, attempt: Attempt, own_server: Server, replica: Server, queue_prefix: str
):
    with (
        Proxy(own_server.port) as proxy,
        look_inside(own_server.url) as old,
        look_inside(replica.url, emptied=False) as new,
    ):
        async with reach(executor, proxy.url, queue_prefix) as transport:
            waits = [asyncio.create_task(transport.wait_for_hint(2)) for _ in range(5)]
            await asyncio.to_thread(
                wait_until, lambda: old.info("clients")["blocked_clients"] == 5, "five to wait"
            )
            await asyncio.gather(*waits)
            await transport.publish("group", b"1")
            old.set("the last word", 1)
            assert await asyncio.to_thread(old.wait, 1, 10_000) == 1

            # The address leads to another server; connections stay where they are.
            new.replicaof("NO", "ONE")
            old.replicaof("127.0.0.1", str(replica.port))
            proxy.lead_to(replica.port)
            with contextlib.suppress(ServerUnavailable):
                await attempt(transport)

            await asyncio.to_thread(
                wait_until,
                lambda: len(old.client_list(_type="normal")) == 1,
                "nobody but the test at the old primary",
            )
            await transport.publish("group", b"3")
            assert new.lindex(f"{queue_prefix}:q:group", -1).endswith(b"3")


@executors
async def test_a_server_busy_with_a_script_is_unavailable(
    executor: str, own_server: Server, queue_prefix: str
):
    with look_inside(own_server.url) as inside:
        inside.config_set("busy-reply-threshold", 1)
        endless = asyncio.create_task(asyncio.to_thread(run_for_ever, own_server.url))
        async with reach(executor, own_server.url, queue_prefix, patient=False) as transport:

            async def is_busy() -> bool:
                try:
                    await transport.claim("worker", 30)
                except ServerUnavailable as error:
                    return "BUSY" in str(error)
                return False

            assert await until(is_busy)
            inside.script_kill()
            assert "killed" in await endless
            assert await transport.claim("worker", 30) is None


async def test_a_password_that_is_missing_is_a_refusal_that_says_so(
    own_server: Server, queue_prefix: str
):
    with look_inside(own_server.url) as inside:
        inside.config_set("requirepass", "secret")
        for executor in EXECUTORS:
            async with reach(executor, own_server.url, queue_prefix) as transport:
                with pytest.raises(ServerRefused, match="credentials"):
                    await transport.publish("group", b"1")


@executors
async def test_a_wrong_password_is_a_refusal_that_does_not_show_it(
    executor: str, own_server: Server, queue_prefix: str
):
    with look_inside(own_server.url) as inside:
        inside.execute_command("ACL", "SETUSER", "app", "on", ">right", "~*", "+@all")
        url = own_server.url.replace("redis://", "redis://app:wrong@")
        async with reach(executor, url, queue_prefix) as transport:
            with pytest.raises(ServerRefused) as refusal:
                await transport.claim("worker", 30)
            assert "wrong@" not in str(refusal.value)


@executors
@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ("~* +@all -evalsha", "evalsha"),
        ("~other:* +@all", "key"),
        ("~* +@all -zadd", "zadd|command"),
    ],
)
async def test_a_missing_permission_is_a_refusal_that_names_it(
    executor: str, own_server: Server, queue_prefix: str, rules: str, named: str
):
    with look_inside(own_server.url) as inside:
        inside.execute_command("ACL", "SETUSER", "app", "on", ">pass", *rules.split())
        url = own_server.url.replace("redis://", "redis://app:pass@")
        async with reach(executor, url, queue_prefix) as transport:
            with pytest.raises(ServerRefused, match=f"(?i){named}"):
                await transport.publish("group", b"1")


@executors
async def test_a_user_with_the_documented_permissions_can_do_everything(
    executor: str, own_server: Server, queue_prefix: str
):
    with look_inside(own_server.url) as inside:
        inside.execute_command(
            "ACL", "SETUSER", "app", "on", ">pass", "~gq:*", "-@all", *permissions()
        )
        url = own_server.url.replace("redis://", "redis://app:pass@")
        async with reach(executor, url, queue_prefix) as transport:
            shard = Shard(transport, inside, queue_prefix)
            for prepare in OPERATIONS.values():
                operation = await prepare(shard)
                await operation(shard)
            await transport.wait_for_hint(0.01)


@executors
@pytest.mark.parametrize("kind", available_kinds())
async def test_a_single_node_of_a_cluster_serves_a_shard(executor: str, kind: Kind, tmp_path: Path):
    # Its bus would listen 10,000 ports higher, where somebody may be.
    bus = ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
    server = start_server(kind, tmp_path / "cluster", extra_args=bus)
    try:
        with look_inside(server.url) as inside:
            inside.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            await asyncio.to_thread(
                wait_until,
                lambda: "cluster_state:ok" in str(inside.execute_command("CLUSTER", "INFO")),
                "the cluster to be of one mind",
            )
            prefix = "gq:{cluster:0}"
            async with reach(executor, server.url, prefix) as transport:
                shard = Shard(transport, inside, prefix)
                for prepare in OPERATIONS.values():
                    operation = await prepare(shard)
                    await operation(shard)
            slots = {inside.execute_command("CLUSTER", "KEYSLOT", key) for key in inside.keys("*")}
            assert len(slots) == 1
    finally:
        server.stop()
