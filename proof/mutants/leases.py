"""How can the keeping of leases be broken, and who is told to be there?"""

from __future__ import annotations

from proof.mutants.mutant import mutant

MUTANTS = (
    mutant(
        "renew-without-token",
        "a worker renews the lease of another",
        (
            "renew.lua",
            '":lock:" .. group) == token and "ok" or "stale"',
            '":lock:" .. group) and "ok" or "stale"',
        ),
    ),
    mutant(
        "renew-the-lock-alone",
        "a renewed group is due when its lease had ended",
        (
            "renew.lua",
            'redis.call("ZADD", prefix .. ":ready:" .. tier_of(shard, group), deadline, group)',
            "",
        ),
    ),
    mutant(
        "renew-the-score-alone",
        "a renewed lease ends all the same",
        ("renew.lua", 'redis.call("PEXPIRE", prefix .. ":lock:" .. group, ARGV[1])\n', ""),
    ),
    mutant(
        "renew-ends-a-pause",
        "a paused group is due again when its lease is renewed",
        (
            "renew.lua",
            'shard.size.paused == 0 or redis.call("HEXISTS", prefix .. ":paused", group) == 0',
            "true",
        ),
    ),
    mutant(
        "recover-from-others",
        "a worker that asks for its leases ends those of others",
        (
            "recover.lua",
            "local token = worker == ARGV[1] and read_if_fit",
            "local token = worker and read_if_fit",
        ),
    ),
    mutant(
        "recover-what-is-known",
        "a worker that asks for its leases ends those that it knows",
        (
            "recover.lua",
            "if token and (tonumber(token) or 0) > tonumber(ARGV[2]) then",
            "if token then",
        ),
    ),
    mutant(
        "recover-counts",
        "a delivery that nobody heard of counts",
        ("recover.lua", "  uncount(shard, place[1])\n", ""),
    ),
    mutant(
        "recount-without-token",
        "a worker counts on the lease of another",
        (
            "recount.lua",
            'if read("GET", prefix .. ":lock:" .. group) ~= ARGV[2] then',
            'if not read("GET", prefix .. ":lock:" .. group) then',
        ),
    ),
    mutant(
        "release-any-lease",
        "an operator ends another lease than the one that is named",
        (
            "release.lua",
            'if not token or (ARGV[2] ~= "" and ARGV[2] ~= token) then return end',
            "if not token then return end",
        ),
    ),
    mutant(
        "registry-of-the-dead",
        "workers that have fallen silent stay in the registry",
        (
            "heartbeat.lua",
            'redis.call("ZREMRANGEBYSCORE", prefix .. ":workers", "-inf",',
            'redis.call("ZREMRANGEBYSCORE", prefix .. ":workers", "-inf", 0 *',
        ),
    ),
    mutant(
        "given-up-but-one",
        "the very turn that was given up claims",
        (
            "includes/is_given_up.lua",
            "tonumber(number) <=",
            "tonumber(number) <",
        ),
    ),
    mutant(
        "given-up-forgotten-soon",
        "that a turn was given up is soon forgotten",
        (
            "recover.lua",
            'GIVEN_UP_KEPT_MS = "600000"',
            'GIVEN_UP_KEPT_MS = "60000"',
        ),
    ),
    mutant(
        "batch-note-with-the-lease",
        "how many were in flight together is forgotten when their lease ends",
        (
            "includes/note_ms.lua",
            "math.max(SHORTEST_NOTE_MS, visibility_ms * 10)",
            "visibility_ms",
        ),
    ),
    mutant(
        "batch-note-not-renewed",
        "a renewed lease outlives what is noted of its batch",
        (
            "renew.lua",
            'redis.call("PEXPIRE", prefix .. ":batch:" .. group, '
            'note_ms(tonumber(ARGV[1])), "GT")\n',
            "",
        ),
    ),
    mutant(
        "schema-of-the-last",
        "the version of the layout is that of the last worker",
        (
            "heartbeat.lua",
            'redis.call("HSETNX"',
            'redis.call("HSET"',
        ),
    ),
    mutant(
        "together-of-a-former-lease",
        "a lease of one message is taken for as many as the one before it",
        (
            "includes/leased_together.lua",
            'read_if_fit("GET", shard.prefix .. ":lock:" .. group) ~= token then',
            "false then",
        ),
    ),
)
