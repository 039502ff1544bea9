"""Does a checkup find what is unwise about a server that works?"""

from __future__ import annotations

import time

import pytest
import redis

from groupqueue.core.calls import SCHEMA_VERSION
from groupqueue.exceptions import ServerUnavailable
from groupqueue.transport.checkup import findings, findings_of
from groupqueue.transport.redis import RedisTransport
from groupqueue.transport.servers import Finding
from tests.servers import Server, free_port


@pytest.fixture
def inside(own_server: Server):
    """A client to configure `own_server` with."""
    client = redis.Redis.from_url(own_server.url, retry=None)
    yield client
    client.close()


def found(inside: redis.Redis, **options) -> list[Finding]:
    """Return what a checkup of the default queue finds."""
    transport = RedisTransport(inside, "gq:{default:0}", patient=False)
    try:
        return findings_of(transport, **options)
    finally:
        transport.close()


def test_a_server_in_order_gives_no_cause(inside: redis.Redis):
    inside.hset("gq:{default:0}:meta", "schema", SCHEMA_VERSION)

    assert found(inside) == []


def test_what_a_worker_must_know_is_part_of_it(inside: redis.Redis):
    inside.config_set("appendonly", "no")
    inside.config_set("maxmemory-policy", "allkeys-lru")

    assert [finding.id for finding in found(inside)] == ["eviction", "no-append-only-file"]


@pytest.mark.parametrize(
    ("ahead_seconds", "text"),
    [(3, ""), (-3, ""), (60, "60 seconds behind"), (-60, "60 seconds ahead of")],
)
def test_clocks_that_differ_are_found(inside: redis.Redis, ahead_seconds: int, text: str):
    told = [one.text for one in found(inside, clock=lambda: time.time() + ahead_seconds)]

    assert bool(told) == bool(text)
    assert all(text in one for one in told)


def test_a_slow_answer_is_no_difference_of_clocks(inside: redis.Redis):
    moments = iter([time.time() - 30, time.time() + 30])

    assert found(inside, clock=lambda: next(moments)) == []


def test_memory_that_runs_out_is_found(inside: redis.Redis):
    used = inside.info("memory")["used_memory"]
    inside.config_set("maxmemory", used * 10)
    assert found(inside) == []
    # Its own clients make it use more or less from one moment to the next.
    inside.set("filler", b"x" * used)
    inside.config_set("maxmemory", int(inside.info("memory")["used_memory"] * 1.1))

    [finding] = found(inside)

    assert (finding.id, finding.level) == ("memory", "warning")
    assert "% of maxmemory" in finding.text


@pytest.mark.parametrize("noted", [str(SCHEMA_VERSION + 1), "new", "-1", "²"])
def test_a_layout_that_is_not_known_is_found(inside: redis.Redis, noted: str):
    inside.hset("gq:{default:0}:meta", "schema", noted)

    [finding] = found(inside)

    assert (finding.id, finding.level) == ("schema", "error")
    assert repr(noted) in finding.text


def test_a_wrong_type_does_not_end_a_checkup(inside: redis.Redis):
    inside.set("gq:{default:0}:meta", 1)

    assert found(inside) == []


def test_a_server_that_does_not_answer_is_unavailable(settings):
    settings.GROUPQUEUE = {"default": {"CONNECTION": f"redis://127.0.0.1:{free_port()}/0"}}

    with pytest.raises(ServerUnavailable):
        findings("default")
