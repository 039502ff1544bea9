"""Does everything work through TLS, and is a server that cannot prove itself refused?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import redis.asyncio
from django.core.management import call_command

from groupqueue import apublish, get_queue
from groupqueue.exceptions import ServerUnavailable
from groupqueue.transport.connections import forget_transports, get_async_transport, location
from groupqueue.transport.redis import AsyncRedisTransport, RedisTransport
from tests.operating.conftest import operate
from tests.tls import PASSWORD, Certificates, Endpoint, endpoint, endpoint_kinds
from tests.worker.stage import Stage

QUEUE = "safe"
NOT_ITS_HOST = r"certificate is not valid for '127\.0\.0\.1'"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    forget_transports()


@pytest.fixture(scope="session")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority that has nothing to do with the servers."""
    return Certificates(tmp_path_factory.mktemp("certificates") / "strangers")


def test_messages_get_through_published_handled_and_looked_at(stage: Stage, tls: Endpoint) -> None:
    stage.add_queue(QUEUE, CONNECTION=tls.url())
    stage.publish("note", "sync", queue=QUEUE)
    assert operate("stats", "--queue", QUEUE, "--json").document["totals"]["messages"] == 1

    worker = stage.work("--burst", queues=[QUEUE])

    assert worker.wait() == 0
    assert [trace.group for trace in stage.traces.all("ended")] == ["sync"]
    assert operate("doctor", QUEUE).out == f"queue {QUEUE}\ngroups with messages looked at: 0" + (
        "\nall is well\n"
    )
    assert PASSWORD not in worker.printed + worker.log


async def test_coroutines_get_through_as_well(stage: Stage, tls: Endpoint) -> None:
    stage.add_queue(QUEUE, CONNECTION=tls.url())

    await apublish("note", {}, group="async", queue=QUEUE, on_commit=False)
    lease = await get_async_transport(QUEUE).claim("worker", 60)

    assert lease is not None
    assert (await get_queue(QUEUE).aexplain("async")).state == "leased"
    await get_async_transport(QUEUE).ack(lease)
    await get_async_transport(QUEUE).close()


async def test_transports_take_clients_that_speak_tls(tls: Endpoint, queue_prefix: str) -> None:
    transport = RedisTransport(redis.Redis.from_url(tls.url()), queue_prefix)
    twin = AsyncRedisTransport(redis.asyncio.Redis.from_url(tls.url()), queue_prefix)
    try:
        transport.publish("group", b"1")
        assert transport.wait_for_hint(10)
        lease = await twin.claim("worker", 60)
        assert lease is not None
        assert transport.ack(lease) == 0
    finally:
        transport.close()
        await twin.close()


# Servers that cannot prove who they are -------------------------------------------------------


def test_a_server_of_another_authority_is_refused_everywhere(
    stage: Stage, tls: Endpoint, strangers: Certificates, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.add_queue(QUEUE, CONNECTION=tls.url(authority=strangers.authority))

    said = [
        operate("stats", "--queue", QUEUE),
        operate("doctor", QUEUE),
        operate("watch", "--count", 1, "--queue", QUEUE),
    ]
    call_command("check", "--deploy", "--fail-level", "CRITICAL")
    checked = capsys.readouterr()
    with pytest.raises(ServerUnavailable) as refusal:
        stage.publish("note", queue=QUEUE)

    assert [each.code for each in said] == [3, 3, 3]
    told = [said[0].trouble, said[1].out, said[2].trouble, checked.err, str(refusal.value)]
    for text in told:
        assert "certificate verify failed" in text
        assert_no_password(text)
    assert str(refusal.value).endswith("nothing was stored")


def test_a_worker_waits_for_a_server_that_it_does_not_trust(
    stage: Stage, tls: Endpoint, strangers: Certificates
) -> None:
    stage.add_queue(QUEUE, CONNECTION=tls.url(authority=strangers.authority))
    worker = stage.work("--verbosity", 3, queues=[QUEUE])

    worker.wait_for_logged("trying again")
    worker.signal()

    assert worker.wait() == 0
    assert "certificate verify failed" in worker.log
    assert_no_password(worker.printed + worker.log)


async def test_coroutines_do_not_trust_it_either(
    stage: Stage, tls: Endpoint, strangers: Certificates
) -> None:
    stage.add_queue(QUEUE, CONNECTION=tls.url(authority=strangers.authority))

    with pytest.raises(ServerUnavailable, match="certificate verify failed") as refusal:
        await apublish("note", {}, group="async", queue=QUEUE, on_commit=False)

    assert str(refusal.value).endswith("nothing was stored")
    assert_no_password(str(refusal.value))
    await get_async_transport(QUEUE).close()


@pytest.mark.parametrize("kind", endpoint_kinds())
async def test_a_certificate_for_another_host_is_refused(
    stage: Stage, tmp_path: Path, kind: str
) -> None:
    elsewhere = Certificates(tmp_path / "elsewhere", "elsewhere.invalid")
    with endpoint(kind, tmp_path / "tls", elsewhere) as found:
        stage.add_queue(QUEUE, CONNECTION=found.url())

        with pytest.raises(ServerUnavailable, match=NOT_ITS_HOST):
            stage.publish("note", queue=QUEUE)
        with pytest.raises(ServerUnavailable, match=NOT_ITS_HOST):
            await apublish("note", {}, group="async", queue=QUEUE, on_commit=False)
        await get_async_transport(QUEUE).close()


def test_a_connection_without_tls_is_an_error_and_the_password_stays_out_of_it(
    stage: Stage, tls: Endpoint
) -> None:
    stage.add_queue(QUEUE, CONNECTION=tls.url().replace("rediss://", "redis://").split("?")[0])

    said = operate("stats", "--queue", QUEUE)

    assert said.code == 3
    assert "Redis is not available" in said.trouble
    assert_no_password(said.trouble)


def test_a_file_of_authorities_that_is_not_there_is_an_error(stage: Stage, tls: Endpoint) -> None:
    stage.add_queue(QUEUE, CONNECTION=tls.url(authority=Path("/nowhere/authority.pem")))

    said = operate("stats", "--queue", QUEUE)

    assert said.code == 3
    assert "No such file or directory" in said.trouble
    assert_no_password(said.trouble)


def test_where_the_queue_lives_says_that_it_is_reached_through_tls(
    stage: Stage, tls: Endpoint
) -> None:
    stage.add_queue(QUEUE, CONNECTION=tls.url())

    assert location(QUEUE) == f"rediss://127.0.0.1:{tls.port}/0"


def assert_no_password(text: str) -> None:
    """Hold that neither the password nor its form in the URL is in a text."""
    assert "sesame" not in text
