"""Is the page about the scripts true to the scripts?"""

from __future__ import annotations

import re

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from tests.transport import lua_files
from tests.transport.operations import OPERATIONS
from tests.transport.shards import Shard

KEY_ROWS = {row[0].strip("`"): row[1] for row in lua_files.table("Keys")}


def test_every_key_that_the_scripts_touch_is_in_the_table_and_no_other():
    listed = {re.sub(r"<.*", "", name) for name in KEY_ROWS}

    assert listed == lua_files.keys_in_code()


def test_every_script_is_in_the_table_with_its_flags_and_no_other():
    rows = {row[0].strip("`"): row[1] for row in lua_files.table("Scripts")}

    assert rows == {name: lua_files.header(name).flags for name in lua_files.script_names()}


def test_every_command_that_is_sent_is_among_the_permissions_and_no_other():
    sent = {f"+{command.lower()}" for command in lua_files.commands()}

    assert set(lua_files.permissions()) == sent | {"+eval", "+evalsha", "+blpop", "+info"}


def row_of(name: str) -> str:
    """Return the table's name for a key that a server holds."""
    for listed in KEY_ROWS:
        pattern = re.escape(listed).replace("<tier>", "[0-4]").replace("<minute>", r"\d+")
        if re.fullmatch(re.sub(r"<\w+>", ".+", pattern), name, re.DOTALL):
            return listed
    raise AssertionError(f"{name} is not in the table")


def test_the_table_of_keys_names_every_counter():
    [row] = [row for row in lua_files.table("Keys") if row[0] == "`stats`"]

    assert set(re.findall(r"\w+", row[2].partition(":")[2])) == lua_files.counters()


async def test_a_server_holds_each_key_of_the_table_in_its_type_and_no_other(sync_shard: Shard):
    shard = sync_shard
    found: dict[str, str] = {}

    def look() -> None:
        for key in shard.redis.keys("*"):
            name = key.decode(errors="surrogateescape").removeprefix(f"{shard.prefix}:")
            found[row_of(name)] = shard.redis.type(key).decode()

    for prepare in OPERATIONS.values():
        operation = await prepare(shard)
        look()
        await operation(shard)
        look()
    await shard.publish("group")
    [lease] = (await shard.transport.turn("w", [], 1, visibility=30)).leases
    await shard.transport.settle(Settlement.halt(lease, "why"))
    call = calls.heartbeat(shard.prefix, "w", {"pid": 1}, kept_ms=60_000)
    await shard.transport.perform(call)
    look()

    assert found == KEY_ROWS
