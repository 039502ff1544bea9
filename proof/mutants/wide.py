"""How can wide groups be broken: how many are in flight, and who is next?"""

from __future__ import annotations

from proof.mutants.mutant import mutant

MUTANTS = (
    mutant(
        "wide-without-end",
        "any number of a wide group's messages is in flight",
        (
            "includes/start_next.lua",
            'or redis.call("ZCOUNT", places, "1", "1") >= width',
            "or width == 0",
        ),
    ),
    mutant(
        "wide-again-without-end",
        "what was started of a wide group is in flight again beyond its width",
        (
            "includes/has_place.lua",
            "if in_flight < (width_of(shard, wide) or 1) then",
            "if true then",
        ),
    ),
    mutant(
        "wide-place-kept",
        "a message that waits to be tried again keeps its place",
        (
            "includes/leave_place.lua",
            'redis.call("ZADD", places, is_halted and "3" or "0", group)',
            'redis.call("ZADD", places, "XX", is_halted and "3" or "1", group)',
        ),
    ),
    mutant(
        "wide-place-never-left",
        "a message that is done keeps its place",
        (
            "includes/leave_place.lua",
            '    redis.call("ZREM", places, group)\n',
            "",
        ),
    ),
    mutant(
        "wide-place-not-given-on",
        "nobody is given a place that comes free",
        (
            "includes/leave_place.lua",
            "  free_place(shard, wide)\n",
            "",
        ),
    ),
    mutant(
        "wide-is-forgotten",
        "a group is wide no more when nothing waits in its list",
        (
            "includes/end_width.lua",
            'if read_if_fit("ZCARD", prefix .. ":places:" .. group) ~= 0 then return true end',
            "",
        ),
    ),
    mutant(
        "wide-pause-of-some",
        "what was started of a paused wide group goes on",
        (
            "includes/has_place.lua",
            "if in_flight and not is_paused then",
            "if in_flight then",
        ),
    ),
    mutant(
        "late-not-noted",
        "nobody knows that a started message waits for a place",
        (
            "includes/has_place.lua",
            'redis.call("ZADD", places, "2", group)',
            'redis.call("ZADD", places, "0", group)',
        ),
    ),
)
