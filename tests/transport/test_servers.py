"""Is a server that could lose messages found out before it does?"""

from __future__ import annotations

import re
from pathlib import Path

import fakeredis
import pytest
import redis

from groupqueue.exceptions import ServerRefused, ServerUnavailable
from groupqueue.transport.permissions import COMMANDS, EXAMPLES, refused_commands
from groupqueue.transport.redis import RedisTransport
from groupqueue.transport.servers import Finding, findings, findings_of
from tests.servers import Kind, Server, available_kinds, free_port, start_server
from tests.transport import lua_files


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


def test_failure_26_an_eviction_policy_is_found(own_server: Server, inside: redis.Redis):
    for policy in ("allkeys-lru", "volatile-ttl", "allkeys-random"):
        inside.config_set("maxmemory-policy", policy)
        assert found(own_server) == ["eviction"]


def test_failure_27_missing_persistence_is_found(own_server: Server, inside: redis.Redis):
    inside.config_set("appendonly", "no")

    [finding] = findings_of(RedisTransport(inside, "gq:{default:0}"))

    assert (finding.id, finding.level) == ("no-append-only-file", "warning")
    assert "loses what was published and settled since the last snapshot" in finding.text
    assert "or everything where it makes none" in finding.text


def test_a_replica_is_found(own_server: Server, inside: redis.Redis):
    inside.replicaof("127.0.0.1", str(free_port()))

    assert found(own_server) == ["replica"]


# Permissions ----------------------------------------------------------------------------------


def found_for(
    server: Server, inside: redis.Redis, rules: str, *, database: int = 0
) -> list[Finding]:
    """Return what is found by a user with these ACL rules."""
    inside.execute_command("ACL", "SETUSER", "app", "reset", "on", ">pass", *rules.split())
    url = f"redis://app:pass@127.0.0.1:{server.port}/{database}"
    client = redis.Redis.from_url(url)
    transport = RedisTransport(client, "gq:{default:0}", patient=False)
    try:
        return findings_of(transport)
    finally:
        transport.close()


def test_failure_24_each_missing_permission_is_found_by_name_and_its_hint_is_the_remedy(
    own_server: Server, inside: redis.Redis
):
    askable = set(COMMANDS) - {"eval"}
    for command in askable:
        rules = f"~gq:* +@all -{command}"

        [finding] = found_for(own_server, inside, rules)

        assert (finding.id, finding.level) == ("permissions", "error")
        assert f"may not send {command} for the keys gq:{{default:0}}:*" in finding.text
        assert found_for(own_server, inside, f"{rules} {permitting(finding)}") == []


@pytest.mark.parametrize(
    "rules",
    ["~gq:* +@all -eval", "~gq:* +@all -select", "~other:* +@all", "%R~gq:* +@all"],
)
def test_a_user_who_may_not_even_ask_is_told_everything_that_it_takes(
    own_server: Server, inside: redis.Redis, rules: str
):
    [finding] = found_for(own_server, inside, rules, database=3)

    assert finding.id == "permissions"
    assert re.search("eval|select|key", finding.text)
    assert found_for(own_server, inside, f"-@all {permitting(finding)}", database=3) == []


def permitting(finding: Finding) -> str:
    """Return the rules that the hint proposes."""
    rules = re.match(r"Let it: ACL SETUSER app (.*?)\. ", finding.hint)
    assert rules is not None
    return rules[1]


def test_keys_that_the_user_may_not_touch_are_found(own_server: Server, inside: redis.Redis):
    [finding] = found_for(own_server, inside, "~gq:{default:0} ~gq:{other:0}:* +@all")

    assert finding.id == "permissions"
    assert "xadd" in finding.text


def test_asking_for_permissions_writes_nothing_and_is_no_breach(
    own_server: Server, inside: redis.Redis
):
    assert found_for(own_server, inside, "~gq:* +@all -zadd")

    assert inside.dbsize() == 0
    assert inside.acl_log() == []


@pytest.mark.parametrize("kind", available_kinds())
def test_a_command_that_the_server_has_under_another_name_is_found(kind: Kind, tmp_path: Path):
    renamed = ("--rename-command", "ZADD", "zadd-of-our-own")
    server = start_server(kind, tmp_path / "renaming", extra_args=renamed)
    try:
        transport = RedisTransport(redis.Redis.from_url(server.url), "gq:{default:0}")
        [finding] = findings_of(transport)
        transport.close()
    finally:
        server.stop()

    assert "may not send zadd for" in finding.text


def test_fakeredis_cannot_be_asked_and_has_no_users():
    transport = RedisTransport(fakeredis.FakeRedis(), "gq:{default:0}")

    assert refused_commands(transport) == []


def test_permission_is_asked_for_every_command_of_the_scripts_and_no_other(
    redis_client: redis.Redis,
):
    code = "\n".join(map(lua_files.read_code, lua_files.paths()))
    sent = {word.lower() for word in re.findall(r'"([A-Z]+)"', code)} & set(redis_client.command())

    assert set(COMMANDS) == sent | {"blpop", "eval", "evalsha", "info"}
    assert len(COMMANDS) == len(set(COMMANDS))


def test_every_command_that_permission_is_asked_for_is_a_complete_one(redis_client: redis.Redis):
    known = redis_client.command()
    for example in EXAMPLES:
        name, *arguments = example.split()
        facts = known[name.lower()]
        arity, words = facts["arity"], 1 + len(arguments)
        has_key = facts["first_key_pos"] > 0 or "movablekeys" in facts["flags"]

        assert words == arity if arity > 0 else words >= -arity, example
        assert has_key == ("KEY" in arguments), example


# Versions -------------------------------------------------------------------------------------


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
        def eval(self, *_arguments: object) -> list[bytes]:
            return []

        def info(self) -> dict[str, object]:
            return {"aof_enabled": 1, "role": "master", "maxmemory_policy": "noeviction", **version}

    class Transport:
        client = Answering()
        prefix = "gq:{default:0}"

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
