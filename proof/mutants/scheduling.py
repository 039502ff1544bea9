"""How can moments to come be broken: of scheduled messages, and of those that hold a group?"""

from __future__ import annotations

from proof.mutants.mutant import mutant

MUTANTS = (
    mutant(
        "promoted-twice",
        "a scheduled message joins its group again and again",
        ("includes/promote.lua", "    forget_scheduled(shard, done)\n", ""),
    ),
    mutant(
        "promoted-never",
        "a scheduled message that is due is taken out and joins no group",
        (
            "includes/promote.lua",
            '    append(shard, plan_append(shard, groups, by_group, "fair"))\n',
            "",
        ),
    ),
    mutant(
        "promoted-out-of-order",
        "scheduled messages join their group in the order of their ids",
        (
            "includes/promote.lua",
            "if #ids > 0 then\n",
            "if #ids > 0 then\n    table.sort(ids, function(a, b) return a > b end)\n",
        ),
    ),
    mutant(
        "promoted-too-early",
        "scheduled messages join their groups two days before they are due",
        (
            "includes/promote.lua",
            'redis.call("ZRANGE", scheduled, "-inf", digits(shard.now_ms), "BYSCORE",',
            'redis.call("ZRANGE", scheduled, "-inf", digits(shard.now_ms + 172800000), "BYSCORE",',
        ),
    ),
    mutant(
        "promoted-narrow",
        "a wide group forgets its width while its message is scheduled",
        ("includes/promote.lua", "if width then entry.width = digits(tonumber(width)) end\n", ""),
    ),
    mutant(
        "reschedule-what-is-due",
        "a message that is due is put off again",
        (
            "reschedule.lua",
            "if group and (depth == 0 or tonumber(former) <= shard.now_ms) then",
            "if group and depth == 0 then",
        ),
    ),
    mutant(
        "reschedule-the-moment-alone",
        "a group whose held head is due sooner waits for the former moment",
        (
            "reschedule.lua",
            'local is_waiting = group and redis.call("EXISTS", prefix .. ":lock:" .. group) == 0',
            "local is_waiting = false",
        ),
    ),
    mutant(
        "cancel-what-is-due",
        "a message that holds its group is taken back when it is due already",
        (
            "cancel.lua",
            'if tonumber(due) <= shard.now_ms then return { "not scheduled" } end',
            "",
        ),
    ),
    mutant(
        "cancel-leaves-the-group",
        "a group waits for the moment of a message that was taken back",
        ("cancel.lua", "if place == 1 then\n", "if place == 0 then\n"),
    ),
    mutant(
        "hold-ends-with-a-settlement",
        "a group does not wait for the moment of the message that becomes its head",
        (
            "includes/hold_due.lua",
            "return moment and tonumber(moment) > tonumber(due) and moment or due",
            "return due",
        ),
    ),
    mutant(
        "promoted-beyond-a-page",
        "of many due messages those beyond a page are forgotten",
        (
            "includes/promote.lua",
            'local nearest = redis.call("ZRANGE", scheduled, 0, 0, "WITHSCORES")[2]',
            'local nearest = redis.call("ZRANGE", scheduled, "(" .. '
            'digits(shard.now_ms), "+inf", "BYSCORE", "LIMIT", 0, 1, '
            '"WITHSCORES")[2]',
        ),
    ),
    mutant(
        "cancel-miscounts-places",
        "a message far behind is taken for the head",
        (
            "cancel.lua",
            "return from + index, element",
            "return index, element",
        ),
    ),
    mutant(
        "cancel-lessens-any-doom",
        "a message that came after the doom counts as doomed when it is cancelled",
        (
            "cancel.lua",
            "lessen_doom(shard, group, 1, place)",
            "lessen_doom(shard, group, 1)",
        ),
    ),
)
