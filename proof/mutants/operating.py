"""How can what operators do be broken?"""

from __future__ import annotations

from proof.mutants.mutant import mutant

MUTANTS = (
    mutant(
        "pause-without-effect",
        "a paused group goes on",
        (
            "pause.lua",
            'redis.call("ZADD", prefix .. ":ready:" .. tier_of(shard, group), "XX", "+inf", group)',
            "",
        ),
    ),
    mutant(
        "resume-what-runs",
        "a leased group is due when it is resumed",
        (
            "resume.lua",
            "due = lease_ms > 0 and digits(shard.now_ms + lease_ms) or hold_due(shard, held, due)",
            "due = hold_due(shard, held, due)",
        ),
    ),
    mutant(
        "resume-with-old-counters",
        "a halted head gets no new attempts when it is resumed",
        (
            "resume.lua",
            'if kind == "halted" then forget_heads(shard, { held }) end',
            "",
        ),
    ),
    mutant(
        "repeated-skip",
        "a skip that is sent again sets the next message aside",
        ("skip.lua", '~= ARGV[2] then return { "moved" } end', '== "" then return {} end'),
        ("skip.lua", 'note_call(shard, ARGV[3], "1")\n', ""),
    ),
    mutant(
        "skip-what-runs",
        "a message that is being handled is set aside",
        (
            "skip.lua",
            'if redis.call("EXISTS", prefix .. ":lock:" .. group) == 1 then return',
            "if false then return",
        ),
    ),
    mutant(
        "set-tier-of-the-name-alone",
        "a group that is moved into another tier stands in two",
        (
            "set_tier.lua",
            'redis.call("ZREM", prefix .. ":ready:" .. former, moved)\n',
            "",
        ),
    ),
    mutant(
        "set-tier-loses-the-place",
        "a group that is moved into another tier is due at once",
        (
            "set_tier.lua",
            "tier, due or digits(shard.now_ms), moved)",
            "tier, digits(shard.now_ms), moved)",
        ),
    ),
    mutant(
        "set-tier-leaves-the-backlog",
        "the backlog of a group that is moved stays in its former tier",
        (
            "set_tier.lua",
            'add_to(prefix .. ":backlog", former, digits(-depth))\n',
            "",
        ),
    ),
    mutant(
        "purge-leaves-leases",
        "the lease of a purged group stays",
        (
            "includes/forget_group.lua",
            'redis.call("DEL", shard.prefix .. ":lock:" .. group, ',
            'redis.call("DEL", ',
        ),
    ),
    mutant(
        "purge-leaves-the-started",
        "of a wide group only what waits is purged",
        (
            "purge.lua",
            "seen, depth = seen + 1, depth + throw_away(started)",
            "seen = seen + 1",
        ),
    ),
    mutant(
        "purge-leaves-moments",
        "what is noted of held messages stays when they are purged",
        ("purge.lua", "if shard.size.held > 0 then forget_held(is_purged) end\n", ""),
    ),
    mutant(
        "redrive-before-a-lease",
        "a dead letter is put before the message that is being handled",
        (
            "redrive.lua",
            'group.is_leased and redis.call("LPOP", list, digits(group.leased)) or {}',
            "{}",
        ),
    ),
    mutant(
        "redrive-into-a-batch",
        "a dead letter is put among the messages that are leased together",
        (
            "redrive.lua",
            'redis.call("LPOP", list, digits(group.leased))',
            'redis.call("LPOP", list, "1")',
        ),
    ),
    mutant(
        "redrive-reversed",
        "dead letters go back in the wrong order",
        (
            "redrive.lua",
            "for index = #group.elements, 1, -1 do",
            "for index = 1, #group.elements do",
        ),
    ),
    mutant(
        "redrive-a-copy",
        "a dead letter stays when it is put back",
        ("redrive.lua", '  redis.call("XDEL", prefix .. ":dead", unpack(entries))\n', ""),
    ),
    mutant(
        "redrive-ends-a-hold",
        "a held group is due when a dead letter is put back",
        (
            "redrive.lua",
            'local due = held and "+inf" or score',
            "local due = score",
        ),
    ),
    mutant(
        "rate-counts-leases",
        "a rate counts leases instead of messages",
        (
            "includes/claim.lua",
            "if rate then use_rate(shard, rate, count) end",
            "if rate then use_rate(shard, rate, 1) end",
        ),
    ),
    mutant(
        "rate-of-the-queue-overlooked",
        "the rate of the whole queue lets any number through",
        (
            "includes/claim.lua",
            "if rate then use_rate(shard, rate, shard.leased) end",
            "",
        ),
    ),
    mutant(
        "rate-per-message",
        "of a wide group each message has a rate of its own",
        (
            "includes/may_go.lua",
            "rate_of(shard, wide or group, request.group_rate)",
            "rate_of(shard, group, request.group_rate)",
        ),
    ),
    mutant(
        "rate-that-is-lifted",
        "what a rate has put off waits although the rate is lifted",
        ("rate.lua", "if free then\n", "if not free then\n"),
    ),
    mutant(
        "trim-the-newest",
        "of dead letters that are too many the first ones stay",
        (
            "trim.lua",
            'trimmed = redis.call("XTRIM", dead, "MAXLEN", "=", '
            "digits(size - math.min(over, MOST_TRIMMED)))",
            'local newest = redis.call("XREVRANGE", dead, "+", "-", "COUNT", digits(over))\n'
            "  for _, letter in ipairs(newest) do\n"
            '    trimmed = trimmed + redis.call("XDEL", dead, letter[1])\n'
            "  end",
        ),
    ),
    mutant(
        "trim-by-age-for-all",
        "dead letters of any age are thrown away as too old",
        (
            "trim.lua",
            "shard.now_ms - tonumber(ARGV[1])",
            "shard.now_ms + tonumber(ARGV[1])",
        ),
    ),
    mutant(
        "pause-again",
        "a late copy of a pause holds the group again",
        (
            "pause.lua",
            'if is_repeated(shard, ARGV[3], "1") then return { "repeated" } end\n',
            "",
        ),
    ),
    mutant(
        "resume-again",
        "a late copy of a resumption ends another pause",
        (
            "resume.lua",
            'if is_repeated(shard, ARGV[2], "1") then return { "repeated" } end\n',
            "",
        ),
    ),
    mutant(
        "release-one-of-a-wide",
        "of a wide group an operator ends no lease",
        (
            "release.lua",
            'for _, started in ipairs(started_of(shard, group, "1")) do look_at(started) end\n',
            "",
        ),
    ),
    mutant(
        "skip-keeps-the-doom",
        "a skipped message of a doomed group counts on",
        (
            "skip.lua",
            "lessen_doom(shard, group, 1)\n",
            "",
        ),
    ),
    mutant(
        "redrive-into-a-doom",
        "what was put back is set aside with a doomed group",
        (
            "redrive.lua",
            "    lessen_doom(shard, group.name) -- what waits behind them need not "
            "follow them any more\n",
            "",
        ),
    ),
    mutant(
        "redrive-with-old-counters",
        "what is known of the former head counts for the one put back",
        (
            "redrive.lua",
            "if not group.is_leased then forget_heads(shard, { group.name }) end",
            "",
        ),
    ),
    mutant(
        "rate-keeps-the-used",
        "what the former rate has let through counts under the new one",
        (
            "rate.lua",
            '  redis.call("DEL", prefix .. ":tat:" .. group)\n',
            "",
        ),
    ),
    mutant(
        "rate-forgotten-soon",
        "what a rate has let through is forgotten after a thousandth of the time",
        (
            "includes/use_rate.lua",
            "(rate.arrival_us - shard.now_us) / 1000)",
            "(rate.arrival_us - shard.now_us) / 1000000)",
        ),
    ),
    mutant(
        "redrive-loses-its-place",
        "a group whose dead letters come back has to queue up again",
        ("redrive.lua", '"XX", "LT", due, group.name)', '"XX", due, group.name)'),
    ),
    mutant(
        "purge-keeps-the-doom",
        "what is published after a purge is set aside with what was purged",
        ("includes/forget_group.lua", "  lessen_doom(shard, group)\n", ""),
    ),
)
