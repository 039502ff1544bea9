"""How can the end of a delivery be broken: whose word counts, and what becomes of the group?"""

from __future__ import annotations

from proof.mutants.mutant import mutant

MUTANTS = (
    mutant(
        "no-token-check",
        "a worker whose lease was given to another settles it",
        (
            "includes/settle.lua",
            "if tokens[number] == s.token and",
            "if tokens[number] and",
        ),
    ),
    mutant(
        "no-lock-check",
        "a worker settles a lease that has ended",
        (
            "includes/settle.lua",
            "if tokens[number] == s.token and",
            "if (tokens[number] or s.token) == s.token and",
        ),
    ),
    mutant(
        "no-head-id-check",
        "a settlement removes whatever message is the head",
        (
            "includes/settle.lua",
            "if head and string.sub(head, 1, 32) == s.id then",
            "if head then",
        ),
    ),
    mutant(
        "settled-twice-in-a-call",
        "two settlements of one lease in a call both count",
        ("includes/settle.lua", "      seen[group] = true\n", ""),
    ),
    mutant(
        "retry-to-the-tail",
        "a message that failed goes behind those published after it",
        (
            "includes/end_otherwise.lua",
            "note_error(shard, s.group, s.error)\n  return 0, s.now + tonumber(s.value)\nend\n"
            "\nfunction outcomes.release",
            "note_error(shard, s.group, s.error)\n"
            '  local list = shard.prefix .. ":q:" .. s.group\n'
            '  redis.call("RPUSH", list, redis.call("LPOP", list))\n'
            "  return 0, s.now + tonumber(s.value)\nend\n\nfunction outcomes.release",
        ),
    ),
    mutant(
        "retry-at-once",
        "a message that failed is tried again without its pause",
        (
            "includes/settle.lua",
            "places[index] = { s.group, s.tier, score(due), left }",
            "places[index] = { s.group, s.tier, score(s.now), left }",
        ),
    ),
    mutant(
        "release-counts",
        "a message that was handed back counts as delivered",
        (
            "includes/end_otherwise.lua",
            "  uncount(shard, s.group)\n  if s.error",
            "  if s.error",
        ),
    ),
    mutant(
        "counters-of-the-next",
        "what is known of a head that was settled is taken for the next one's",
        ("includes/settle.lua", "  forget_heads(shard, heads)\n", ""),
    ),
    mutant(
        "lock-stays",
        "a settled group stays locked",
        ("includes/end_leases.lua", '  redis.call("DEL", unpack(locks))\n', ""),
    ),
    mutant(
        "holders-stay",
        "a settled group keeps its holder",
        (
            "includes/end_leases.lua",
            '  redis.call("HDEL", shard.prefix .. ":holders", unpack(groups))\n',
            "",
        ),
    ),
    mutant(
        "tier-stays",
        "a drained group keeps its tier",
        (
            "includes/place_groups.lua",
            'if #forgotten > 0 then redis.call("HDEL", prefix .. ":prio"',
            'if #forgotten > 999 then redis.call("HDEL", prefix .. ":prio"',
        ),
    ),
    mutant(
        "ready-stays",
        "a drained group keeps its place in line",
        (
            "includes/place_groups.lua",
            '    redis.call("ZREM", prefix .. ":ready:" .. tier, unpack(groups))\n',
            "",
        ),
    ),
    mutant(
        "backlog-stays",
        "what was settled stays in the backlog",
        (
            "includes/settle.lua",
            'add_to(shard.prefix .. ":backlog", tier, digits(-gone))',
            "",
        ),
    ),
    mutant(
        "one-of-a-batch",
        "of a batch that was acknowledged one message leaves",
        (
            "includes/settle.lua",
            'redis.call("LPOP", s.list, s.done)',
            'redis.call("LPOP", s.list)',
        ),
    ),
    mutant(
        "all-of-a-batch",
        "a failure in a batch takes along what was not handled yet",
        (
            "includes/finish_first.lua",
            'redis.call("LPOP", shard.prefix .. ":q:" .. s.group, s.done)',
            'redis.call("LPOP", shard.prefix .. ":q:" .. s.group, digits(gone + 1))',
        ),
    ),
    mutant(
        "suspects-together",
        "after a crash only the first message goes alone",
        ("includes/finish_first.lua", "if left > 0 and s.outcome", "if left > 99 and s.outcome"),
    ),
    mutant(
        "dead-and-lost",
        "a message that is set aside is not kept",
        (
            "includes/dead_letter.lua",
            'redis.pcall("XADD", prefix .. ":dead", "*",',
            'redis.pcall("XADD", prefix .. ":dead", "MAXLEN", "0", "*",',
        ),
    ),
    mutant(
        "dead-and-alive",
        "a message that is set aside stays in its group",
        (
            "includes/dead_letter.lua",
            'redis.call("LPOP", list)',
            'redis.call("LINDEX", list, 0)',
        ),
    ),
    mutant(
        "dead-group-takes-all",
        "what is published after a group was given up is set aside as well",
        (
            "includes/lessen_doom.lua",
            "if gone and gone < count then\n",
            "if gone and gone <= count then\n    count = count + gone\n",
        ),
    ),
    mutant(
        "dead-group-leaves-all",
        "what waits behind a head that was given up goes on",
        ("includes/end_otherwise.lua", "  if left > 0 then\n", "  if left < 0 then\n"),
    ),
    mutant(
        "halt-goes-on",
        "a halted group goes on by itself",
        (
            "includes/place_groups.lua",
            'shard.size.paused > 0 and redis.call("HEXISTS", prefix .. ":paused", group) == 1',
            "false",
        ),
    ),
    mutant(
        "halt-outlives-its-head",
        "a group stays halted when its halted head is gone",
        ("skip.lua", "end_halt(shard, group)\n", ""),
    ),
    mutant(
        "halt-ends-a-pause",
        "with a halted head the operator's pause goes as well",
        (
            "includes/end_halt.lua",
            "  if paused then\n",
            "  if paused == 0 then\n",
        ),
    ),
    mutant(
        "retry-too-late",
        "a failed message waits ten times as long as asked",
        (
            "includes/end_otherwise.lua",
            "note_error(shard, s.group, s.error)\n"
            "  return 0, s.now + tonumber(s.value)\n"
            "end\n"
            "\n"
            "function outcomes.release",
            "note_error(shard, s.group, s.error)\n"
            "  return 0, s.now + tonumber(s.value) * 10\n"
            "end\n"
            "\n"
            "function outcomes.release",
        ),
    ),
    mutant(
        "refused-and-lost",
        "a message that the dead letters do not take is lost",
        (
            "includes/dead_letter.lua",
            '  if type(added) == "table" and added.err then return false, added.err end\n',
            "",
        ),
    ),
    mutant(
        "doom-of-a-page",
        "of a doomed group a page is set aside, and the rest goes on",
        (
            "includes/bury.lua",
            "lessen_doom(shard, group, done < left and done or nil)",
            "lessen_doom(shard, group)",
        ),
    ),
    mutant(
        "halt-forgets-the-pause",
        "a group that was paused while its head ran goes on when its halt ends",
        ("includes/end_otherwise.lua", '(paused and "\\n" .. paused or "")', '""'),
    ),
)
