"""How can publishing be broken: once, all or nothing, at the end, in one tier?"""

from __future__ import annotations

from proof.mutants.mutant import mutant

MUTANTS = (
    mutant(
        "publish-again",
        "a call that is sent again publishes again",
        (
            "publish.lua",
            "if is_repeated(shard, ARGV[1], ARGV[2]) then",
            "if false then",
        ),
    ),
    mutant(
        "publish-with-again",
        "a call with options that is sent again publishes again",
        ("publish_with.lua", "note_call(shard, ARGV[1], ARGV[2])\n", ""),
    ),
    mutant(
        "hint-as-only-copy",
        "a group is made ready by whoever takes the hint that it is due",
        (
            "includes/append.lua",
            'in_thousands(members, "ZADD", prefix .. ":ready:" .. tier, "NX")',
            "tell(shard, tier, members)",
        ),
        (
            "includes/append.lua",
            "local function append(shard, plan)\n",
            "local function tell(shard, tier, members)\n"
            "  for index = 1, #members, 2 do\n"
            '    redis.call("LPUSH", shard.prefix .. ":wake",\n'
            '      "due " .. tier .. " " .. members[index] .. " " .. members[index + 1])\n'
            "  end\n"
            "  return #members / 2\n"
            "end\n"
            "local function append(shard, plan)\n",
        ),
        (
            "turn.lua",
            "local want = tonumber(ARGV[4])\n",
            "local want = tonumber(ARGV[4])\n"
            'for _, told in ipairs(redis.call("LRANGE", KEYS[1] .. ":wake", 0, -1)) do\n'
            '  local tier, due, group = string.match(told, "^due (%d) (%S+) (.*)$")\n'
            "  if tier then\n"
            '    redis.call("ZADD", KEYS[1] .. ":ready:" .. tier, "NX", due, group)\n'
            '    redis.call("LREM", KEYS[1] .. ":wake", 0, told)\n'
            "  end\n"
            "end\n",
        ),
    ),
    mutant(
        "publish-disturbs",
        "publishing lets a leased or parked group be due",
        (
            "includes/append.lua",
            '":ready:" .. tier, "NX")',
            '":ready:" .. tier, "CH")',
        ),
    ),
    mutant(
        "publish-into-a-second-tier",
        "the tier of a group is that of its last message",
        (
            "includes/append.lua",
            "local entry, tier = plan.by_group[group], plan.tiers[index]",
            "local entry, tier = plan.by_group[group], plan.by_group[group].first_tier",
        ),
    ),
    mutant(
        "publish-into-a-paused-group",
        "a paused group without messages is due once it has some",
        ("includes/append.lua", "if plan.paused and plan.paused[index] then", "if false then"),
    ),
    mutant(
        "publish-uncounted",
        "the backlog counts groups instead of messages",
        (
            "includes/append.lua",
            "backlog[tier] = (backlog[tier] or 0) + #entry",
            "backlog[tier] = (backlog[tier] or 0) + 1",
        ),
    ),
    mutant(
        "publish-in-part",
        "a call that one group is too full for stores what is for the others",
        (
            "publish_with.lua",
            "if max_depth > 0 and plan.depths[index] + #by_group[group] > max_depth then\n",
            "if max_depth > 0 and plan.depths[index] + #by_group[group] > max_depth then\n"
            "    append(shard, plan_append(shard, { groups[1] }, by_group, ARGV[3]))\n",
        ),
    ),
    mutant(
        "publish-too-deep",
        "of what a call adds to a group only the first message counts for its depth",
        (
            "publish_with.lua",
            "plan.depths[index] + #by_group[group] > max_depth",
            "plan.depths[index] + 1 > max_depth",
        ),
    ),
    mutant(
        "publish-without-a-hint",
        "nobody is told of a group that has become due",
        ("publish.lua", "if claimable > 0 then hint(shard) end\n", ""),
    ),
    mutant(
        "front-for-all",
        "a new group goes before all that wait",
        ("includes/append.lua", 'plan.arrival == "front" and "0"', 'plan.arrival and "0"'),
    ),
    mutant(
        "dedup-within-calls",
        "a call does not see the keys of its own messages",
        ("publish_with.lua", "seen[m.dedup_key] = noted or (m.id .. m.digest)\n", ""),
    ),
    mutant(
        "dedup-of-other-content",
        "other content under a known key is taken for a duplicate",
        (
            "publish_with.lua",
            'if is_other then return { "conflict", number, first } end',
            "",
        ),
    ),
    mutant(
        "dedup-for-ever",
        "a key is remembered for ever",
        (
            "publish_with.lua",
            'm.id .. m.digest, "PX", m.dedup_ms)',
            "m.id .. m.digest)",
        ),
    ),
    mutant(
        "dedup-after-cancelling",
        "the key of a message that was taken back stays taken",
        (
            "cancel.lua",
            "if first and string.sub(first, 1, 32) == id then",
            "if first and string.sub(first, 1, 32) ~= id then",
        ),
    ),
    mutant(
        "hold-without-holding",
        "a group whose first message is to hold it is due at once",
        (
            "includes/append.lua",
            "if entry.held_until and plan.depths[index] == 0 then",
            "if entry.held_until and plan.depths[index] < 0 then",
        ),
    ),
    mutant(
        "expiry-without-a-clock",
        "a message expires so long after 1970 as it was to live",
        (
            "publish_with.lua",
            'digits(shard.now_ms + tonumber(expires_ms)) or "0000000000000"',
            'string.format("%013.0f", tonumber(expires_ms)) or "0000000000000"',
        ),
    ),
    mutant(
        "expiry-too-soon",
        "a message lives a thousandth of what was asked for",
        (
            "publish_with.lua",
            "digits(shard.now_ms + tonumber(expires_ms)) or",
            "digits(shard.now_ms + math.ceil(tonumber(expires_ms) / 1000)) or",
        ),
    ),
    mutant(
        "published-long-ago",
        "a message is said to have been published when it is not",
        (
            "publish.lua",
            "digits(shard.now_ms) .. NEVER",
            "digits(shard.now_ms - 3600000) .. NEVER",
        ),
    ),
    mutant(
        "dedup-slides",
        "a duplicate begins its key's window anew",
        (
            "publish_with.lua",
            "  if first then\n",
            "  if first then\n"
            '    redis.call("PEXPIRE", prefix .. ":dedup:" .. m.dedup_key, '
            "m.dedup_ms)\n",
        ),
    ),
    mutant(
        "calls-forgotten-soon",
        "which call was the last is forgotten at once",
        (
            "includes/note_call.lua",
            '"600000"',
            '"60000"',
        ),
    ),
    mutant(
        "sooner-untold",
        "nobody is told of a moment that comes before all others",
        (
            "publish_with.lua",
            "if claimable > 0 or is_sooner or shard.has_freed then",
            "if claimable > 0 or shard.has_freed then",
        ),
    ),
)
