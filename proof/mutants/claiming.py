"""How can claiming be broken: who is next, for how long, under which token, and how many?"""

from __future__ import annotations

from proof.mutants.mutant import mutant

MUTANTS = (
    mutant(
        "claim-over-a-lock",
        "a group is leased although it is locked",
        (
            "includes/claim.lua",
            '"PX", request.visibility, "NX") then',
            '"PX", request.visibility) then',
        ),
    ),
    mutant(
        "lock-without-expiry",
        "the lease of a worker that is dead never ends",
        (
            "includes/claim.lua",
            '"PX", request.visibility, "NX") then',
            '"NX") then',
        ),
    ),
    mutant(
        "score-stays-behind",
        "a leased group stays due",
        (
            "includes/claim.lua",
            'redis.call("ZADD", prefix .. ":ready:" .. tier, unpack(members))',
            "",
        ),
    ),
    mutant(
        "token-per-group",
        "tokens count the deliveries of a head, and begin anew with the next",
        (
            "includes/claim.lua",
            "digits(shard.token + 1)\n",
            'digits(1 + (redis.call("HGET", prefix .. ":attempts", group) or 0))\n',
        ),
    ),
    mutant(
        "token-from-the-clock",
        "tokens go back with the server's clock",
        (
            "includes/claim.lua",
            "shard.token = math.max(last, shard.now_us - 1)",
            "shard.token = shard.now_us - 1",
        ),
    ),
    mutant(
        "token-reset",
        "the last token is forgotten when a group drains",
        (
            "includes/place_groups.lua",
            "drained[tier] = drained[tier] or {}",
            'redis.call("DEL", prefix .. ":fence")\n      drained[tier] = drained[tier] or {}',
        ),
    ),
    mutant(
        "claim-the-newest",
        "the last message of a group is handed out first",
        (
            "includes/claim.lua",
            'redis.pcall("LINDEX", prefix .. ":q:" .. group, "0")',
            'redis.pcall("LINDEX", prefix .. ":q:" .. group, "-1")',
        ),
    ),
    mutant(
        "claim-removes",
        "a message leaves the queue when it is handed out",
        (
            "includes/claim.lua",
            "local deliveries = add_to(",
            'redis.call("LPOP", prefix .. ":q:" .. group)\n  local deliveries = add_to(',
        ),
    ),
    mutant(
        "claim-uncounted",
        "deliveries that end in a crash do not count",
        (
            "includes/claim.lua",
            'add_to(prefix .. ":attempts", group, "1")',
            'add_to(prefix .. ":attempts", group, "0") + 1',
        ),
    ),
    mutant(
        "claim-below-min-tier",
        "a worker is given groups of tiers that it leaves alone",
        (
            "includes/picker.lua",
            "for tier = request.min_tier, 4 do",
            "for tier = 0, 4 do",
        ),
        (
            "includes/picker.lua",
            "tier = tier or due_tier(request.min_tier)",
            "tier = tier or due_tier(0)",
        ),
    ),
    mutant(
        "claim-urgent-only",
        "the most urgent tier goes first, whoever waits",
        (
            "includes/picker.lua",
            "if is_preferred then\n",
            "if true then\n",
        ),
    ),
    mutant(
        "claim-while-stopped",
        "a queue that was stopped goes on",
        (
            "includes/claim.lua",
            'if has_flag(shard, "stopped") then return leases, wait_ms end',
            "",
        ),
    ),
    mutant(
        "late-turn-claims",
        "a turn that was given up claims when it comes late",
        (
            "turn.lua",
            "if want > 0 and is_given_up(shard, ARGV[1], ARGV[2]) then want = 0 end\n",
            "",
        ),
    ),
    mutant(
        "waits-too-long",
        "a worker is told that nothing is due while something is",
        (
            "turn.lua",
            "wait_ms = sooner(wait_ms, scheduled_ms)\nif wait_ms == 0 then hint(shard) end",
            "if wait_ms == 0 then wait_ms = -1 end",
        ),
    ),
    mutant(
        "batch-with-a-failed-head",
        "what has failed before goes with others",
        ("includes/lease_more.lua", "if row[3] > 1 then return end\n", ""),
    ),
    mutant(
        "batch-past-its-end",
        "a batch goes on behind an expired or held message",
        (
            "includes/lease_more.lua",
            "if is_expired(shard, element) or is_held(shard, element) then",
            "if false then",
        ),
    ),
    mutant(
        "batch-forgotten",
        "after a crash nobody knows what was in flight together",
        (
            "includes/lease_more.lua",
            "if taken > 1 then\n",
            "if taken > most then\n",
        ),
    ),
    mutant(
        "expired-are-delivered",
        "a message that is too old is delivered",
        (
            "includes/is_expired.lua",
            "return tonumber(expires) <= shard.now_ms and not is_held(shard, element)",
            "return false",
        ),
    ),
    mutant(
        "expired-with-the-next",
        "with an expired message the one behind it is dropped",
        (
            "includes/drop_expired.lua",
            'redis.call("LPOP", list)\n    table.insert(shard.expired, wide_of',
            'redis.call("LPOP", list, 2)\n    table.insert(shard.expired, wide_of',
        ),
    ),
    mutant(
        "expired-with-counters",
        "what is known of an expired head is taken for the next one's",
        ("includes/drop_expired.lua", "forget_heads(shard, { group })\n", ""),
    ),
    mutant(
        "expired-keep-the-lock",
        "a group whose head has expired stays locked",
        (
            "includes/drop_expired.lua",
            'end_leases(shard, { { group, tier, score(shard.now), redis.call("LLEN", list) } })',
            'place_groups(shard, { { group, tier, score(shard.now), redis.call("LLEN", list) } })',
        ),
    ),
    mutant(
        "batch-with-a-gap",
        "a long batch leaves a message out",
        (
            "includes/lease_more.lua",
            "digits(taken), digits(upto - 1))",
            "digits(taken > 1 and taken + 1 or 1), digits(taken > 1 and upto or upto - 1))",
        ),
    ),
)
