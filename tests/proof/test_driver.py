"""Does a driven shard keep the promises, and is it noticed when its scripts are broken?"""

from __future__ import annotations

import pytest
import redis

from groupqueue.transport import scripts
from proof.driver import drive
from proof.edits import Edit, in_place
from tests.proof.histories import named


@pytest.mark.parametrize("seed", range(3))
def test_a_driven_shard_keeps_its_promises(redis_client: redis.Redis, queue_prefix: str, seed: int):
    verdict = drive(redis_client, queue_prefix, seed, 250)
    assert verdict.findings == ()
    assert (verdict.lost, verdict.out_of_order, verdict.double_leases) == (0, 0, 0)
    assert min(verdict.delivered, verdict.redelivered, verdict.stale_settles) > 20


def test_the_same_seed_gives_the_same_life(default_client: redis.Redis):
    assert drive(default_client, "gq:{one:0}", 5, 60) == drive(default_client, "gq:{two:0}", 5, 60)


def test_scripts_are_plain_again_after_a_drive(default_client: redis.Redis, queue_prefix: str):
    plain = scripts.load("publish")
    drive(default_client, queue_prefix, 1, 5)
    assert scripts.load("publish") is plain


BROKEN = {
    "the token is not looked at": (
        "includes/settle.lua",
        "if tokens[number] == s.token and",
        "if tokens[number] and",
        "I5",
    ),
    "the head's id is not looked at": (
        "includes/settle.lua",
        "if head and string.sub(head, 1, 32) == s.id then",
        "if head then",
        "I5",
    ),
    "what failed goes to the tail": (
        "includes/end_otherwise.lua",
        "function outcomes.retry(shard, s)\n",
        'function outcomes.retry(shard, s)\n  local list = shard.prefix .. ":q:" .. s.group\n'
        '  redis.call("RPUSH", list, redis.call("LPOP", list))\n',
        "I3",
    ),
    "tokens are counted, and begin anew": (
        "includes/claim.lua",
        "shard.token = math.max(last, shard.now_us - 1)",
        "shard.token = 0",
        "I5",
    ),
    "a lease has no end": (
        "includes/claim.lua",
        '"PX", request.visibility, "NX"',
        '"NX"',
        "I10",
    ),
    "a leased group is leased again": (
        "includes/claim.lua",
        '"PX", request.visibility, "NX"',
        '"PX", request.visibility',
        "I4",
    ),
    "a renewal does not look at the token": (
        "renew.lua",
        'read_if_fit("GET", prefix .. ":lock:" .. group) == token and "ok"',
        'read_if_fit("GET", prefix .. ":lock:" .. group) and "ok"',
        "I5",
    ),
    "a dead letter is not written": (
        "includes/dead_letter.lua",
        'redis.pcall("XADD"',
        '(function() return "0-1" end)("XADD"',
        "I1",
    ),
    "a repeated publish is stored again": (
        "includes/is_repeated.lua",
        "return last and (tonumber(last) or 0) >= tonumber(sequence)",
        "return false",
        "I8",
    ),
    "crashes are not counted": (
        "includes/claim.lua",
        'add_to(prefix .. ":attempts", group, "1")',
        "1",
        "I7",
    ),
    "dead letters return before a leased head": (
        "redrive.lua",
        'for index = #leased, 1, -1 do redis.call("LPUSH", list, leased[index]) end',
        'for index = 1, #leased do redis.call("RPUSH", list, leased[index]) end',
        "I3",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_scripts_are_found_out(default_client: redis.Redis, queue_prefix: str, what: str):
    *change, invariant = BROKEN[what]
    found: set[str] = set()
    with in_place([Edit(*change)]):
        for seed in range(5):
            default_client.flushdb()
            found |= named(drive(default_client, queue_prefix, seed, 250))
            if invariant in found:
                return
    pytest.fail(f"only {found} are said to be broken")
