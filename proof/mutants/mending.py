"""How can the mending be broken of what was broken by hand?"""

from __future__ import annotations

from proof.mutants.mutant import mutant

MUTANTS = (
    mutant(
        "ghosts-stay-ready",
        "a due group without messages is looked at for ever",
        (
            "includes/mend.lua",
            'redis.call("ZREM", prefix .. ":ready:" .. tier, group)\n    if not end_width',
            "if not end_width",
        ),
    ),
    mutant(
        "ghosts-stay-known",
        "what is known of a group without messages stays",
        (
            "includes/mend.lua",
            'redis.call("HDEL", prefix .. ":holders", group)\n    forget_heads',
            "forget_heads",
        ),
    ),
    mutant(
        "locked-and-due",
        "a locked group whose moment has come is looked at for ever",
        (
            "includes/mend.lua",
            "digits(shard.now_ms + 1 + (left_ms >= 0 and left_ms or 1000))",
            "digits(shard.now_ms - 1)",
        ),
    ),
    mutant(
        "repair-ends-leases",
        "a repair lets a leased group be due",
        (
            "includes/mend_group.lua",
            "local deadline = lease_end(shard, seen, has_fault)\n",
            "local deadline = nil\n",
        ),
    ),
    mutant(
        "repair-lets-wait",
        "a repaired group that nobody holds any more waits for its holder",
        (
            "includes/mend_group.lua",
            'if not due or is_late or has_fault["bad-token"] or has_fault["lock-gone"] then',
            "if not due or is_late then",
        ),
    ),
    mutant(
        "repair-loses-the-tier",
        "a group in two tiers stays in the one that is not its own",
        (
            "includes/mend_group.lua",
            "if stand.tier ~= tier then redis.call",
            "if stand.tier == tier then redis.call",
        ),
    ),
    mutant(
        "doctor-overlooks",
        "the doctor does not see that a group stands nowhere",
        (
            "includes/group_faults.lua",
            'return #seen.stands == 0 and "" or nil',
            'return #seen.stands == 9 and "" or nil',
        ),
    ),
    mutant(
        "doctor-imagines",
        "the doctor takes a parked group for one whose lease was lost",
        (
            "includes/group_faults.lua",
            "return is_waiting and seen.holder and not seen.is_leased and not seen.is_rated\n"
            "      and not seen.held_until and seen.holder or nil",
            "return is_waiting and not seen.is_leased and not seen.is_rated\n"
            '      and not seen.held_until and "" or nil',
        ),
    ),
    mutant(
        "repair-throws-away",
        "a repair throws a message away that it does not understand",
        (
            "includes/mend_message.lua",
            "    if not set_aside(shard, seen) then return false end\n",
            "",
        ),
    ),
    mutant(
        "repair-keeps-bad-tokens",
        "a lease under what is no token stays",
        (
            "includes/mend_group.lua",
            '    redis.call("DEL", prefix .. ":lock:" .. group, prefix .. ":batch:" .. group)\n',
            "",
        ),
    ),
    mutant(
        "bad-pause-ends",
        "a repair lets a group go on whose pause nobody understands",
        (
            "includes/mend_group.lua",
            '    redis.call("HSET", prefix .. ":paused", group, seen.paused)\n',
            '    redis.call("HDEL", prefix .. ":paused", group)\n    seen.paused = nil\n',
        ),
    ),
    mutant(
        "doctor-overlooks-twins",
        "the doctor does not see that a message is in its group twice",
        (
            "audit.lua",
            "    elseif places[id] then",
            "    elseif places[id] and places[id] == place then",
        ),
    ),
    mutant(
        "doctor-overlooks-the-living",
        "the doctor does not see that a dead message is in its group",
        (
            "audit.lua",
            "if is_started or is_in_window(shard, letter.group, id) then",
            "if is_started then",
        ),
    ),
    mutant(
        "repair-dooms-more",
        "a repair has what is to come set aside, too",
        ("includes/mend_group.lua", "digits(seen.depth) .. ", "digits(seen.depth + 1) .. "),
    ),
)
