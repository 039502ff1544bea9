"""Is a server that could lose messages found out before it does?"""

from __future__ import annotations

import pytest
import redis

from groupqueue.exceptions import ServerRefused, ServerUnavailable
from groupqueue.transport.redis import RedisTransport
from groupqueue.transport.servers import findings, findings_of
from tests.servers import Server, free_port


def found(server: Server) -> list[str]:
    """Return what is found of a server, by id."""
    transport = RedisTransport(redis.Redis.from_url(server.url), "gq:{default:0}", patient=False)
    try:
        return [finding.id for finding in findings_of(transport)]
    finally:
        transport.close()


@pytest.fixture
def inside(own_server: Server):
    """A client to configure `own_server` with."""
    client = redis.Redis.from_url(own_server.url, retry=None)
    yield client
    client.close()


def test_a_server_set_up_well_gives_no_cause(own_server: Server):
    assert found(own_server) == []


def test_an_eviction_policy_is_found(own_server: Server, inside: redis.Redis):
    for policy in ("allkeys-lru", "volatile-ttl", "allkeys-random"):
        inside.config_set("maxmemory-policy", policy)
        assert found(own_server) == ["eviction"]


def test_missing_persistence_is_found(own_server: Server, inside: redis.Redis):
    inside.config_set("appendonly", "no")

    assert found(own_server) == ["no-append-only-file"]


def test_a_replica_is_found(own_server: Server, inside: redis.Redis):
    inside.replicaof("127.0.0.1", str(free_port()))

    assert found(own_server) == ["replica"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ({"redis_version": "6.2.14"}, ["old-server"]),
        ({"redis_version": "7.0.0"}, []),
        ({"redis_version": "10.1"}, []),
        ({"redis_version": "7.2.4", "valkey_version": "7.2.5"}, []),
        ({"redis_version": "7.2.4", "valkey_version": "7.1.0"}, ["old-server"]),
        ({}, ["old-server"]),
    ],
)
def test_an_old_server_is_found_by_its_version(version: dict[str, str], expected: list[str]):
    class Answering:
        def info(self) -> dict[str, object]:
            return {"aof_enabled": 1, "role": "master", "maxmemory_policy": "noeviction", **version}

    class Transport:
        client = Answering()

    assert [finding.id for finding in findings_of(Transport())] == expected


def test_every_finding_says_what_is_wrong_and_what_to_do(own_server: Server, inside: redis.Redis):
    inside.config_set("maxmemory-policy", "allkeys-lru")
    inside.config_set("appendonly", "no")
    transport = RedisTransport(redis.Redis.from_url(own_server.url), "gq:{default:0}")
    everything = findings_of(transport)
    transport.close()

    assert {finding.level for finding in everything} == {"error", "warning"}
    assert "allkeys-lru" in everything[0].text
    assert all(finding.hint.endswith(".") for finding in everything)


def test_a_server_that_does_not_answer_is_unavailable(settings):
    settings.GROUPQUEUE = {"default": {"CONNECTION": f"redis://127.0.0.1:{free_port()}/0"}}

    with pytest.raises(ServerUnavailable):
        findings("default")


def test_a_server_that_wants_a_password_refuses(settings, own_server: Server, inside: redis.Redis):
    inside.config_set("requirepass", "secret")
    settings.GROUPQUEUE = {"default": {"CONNECTION": own_server.url}}

    with pytest.raises(ServerRefused):
        findings("default")
