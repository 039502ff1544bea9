"""Do the Lua files keep the rules: true contracts, bounded work, one function each?"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

import pytest
import redis

from groupqueue.core import calls
from groupqueue.core.calls import Call, Preference, Settlement
from groupqueue.core.messages import Envelope, EnvelopeOptions, Lease, Leased
from groupqueue.core.rates import Rate, Rates
from groupqueue.core.snapshot import snapshot_decoder
from groupqueue.transport import scripts
from tests.servers import Server
from tests.transport import lua_files
from tests.transport.shards import Shard, envelope

each_script = pytest.mark.parametrize("name", lua_files.script_names())
each_include = pytest.mark.parametrize("name", lua_files.include_names())
each_file = pytest.mark.parametrize("path", lua_files.paths())

# Contracts, held against the builders ---------------------------------------------------

LEASES = [Lease(f"group-{n}", 7000 + n, f"{n:032x}", b"", 0, 1, 0, 0, 0) for n in range(2)]
BEHIND = (Leased(b"a" * 32 + b"0" * 26), Leased(b"b" * 32 + b"0" * 26))
LEASE_OF_THREE = LEASES[1]._replace(rest=BEHIND)
ENVELOPES = [Envelope(f"{n:032x}", f"group-{n}", n, b"body-%d" % n) for n in range(3)]
OPTIONS = EnvelopeOptions(
    7, "+60000", hold=True, dedup_key="key", dedup_ms=8, digest="digest", width=6
)
SPECIAL_ENVELOPES = [Envelope(f"{9:032x}", "group-0", 3, b"body", OPTIONS), ENVELOPES[1]]

# Each builder, called with values that tell what they are; then those values by their name
# in the header, and per item where the arguments repeat.
BUILT: dict[str, tuple[Call[object], dict[str, object], Sequence[dict[str, object]]]] = {
    "publish": (
        calls.publish("prefix", ENVELOPES, publisher="me", sequence=5, arrival="front"),
        {"publisher": "me", "sequence": 5, "arrival": "front", "count": 3},
        [{"group": e.group, "tier": e.tier, "id": e.id, "body": e.body} for e in ENVELOPES],
    ),
    "publish_with": (
        calls.publish(
            "prefix",
            SPECIAL_ENVELOPES,
            publisher="me",
            sequence=5,
            arrival="front",
            max_group_depth=9,
        ),
        {"publisher": "me", "sequence": 5, "arrival": "front", "max_depth": 9, "count": 2},
        [
            {
                "group": "group-0",
                "tier": 3,
                "id": SPECIAL_ENVELOPES[0].id,
                "body": b"body",
                "expires_ms": 7,
                "due": "+60000",
                "hold": 1,
                "dedup_key": "key",
                "dedup_ms": 8,
                "digest": "digest",
                "width": 6,
            },
            {
                "group": "group-1",
                "tier": 1,
                "id": ENVELOPES[1].id,
                "body": b"body-1",
                "expires_ms": "",
                "due": "",
                "hold": 0,
                "dedup_key": "",
                "dedup_ms": "",
                "digest": "",
                "width": "",
            },
        ],
    ),
    "cancel": (
        calls.cancel("prefix", "an id", operation="once"),
        {"id": "an id", "operation": "once"},
        [],
    ),
    "reschedule": (
        calls.reschedule("prefix", "an id", "+60000"),
        {"id": "an id", "due": "+60000"},
        [],
    ),
    "agenda": (calls.agenda("prefix", 40, 20, len), {"from": 40, "limit": 20}, []),
    "turn": (
        calls.turn(
            "prefix",
            "worker-1",
            [
                Settlement.retry(LEASES[0], 1.5, "boom"),
                Settlement.ack(LEASES[1]),
                Settlement.dead(LEASE_OF_THREE, "why", "bang", done=2),
                Settlement.ack(LEASE_OF_THREE, 3),
            ],
            17,
            visibility_ms=30_000,
            preference=Preference(min_tier=1, preferred=9, threshold=3),
            batch=12,
            number=5,
            rates=Rates(queue=Rate(1000), group=Rate(6_000_000, 4)),
        ),
        {
            "worker": "worker-1",
            "number": 5,
            "visibility_ms": 30_000,
            "want": 17,
            "batch": 12,
            "min_tier": 1,
            "preferred": 9,
            "threshold": 3,
            "queue_rate": "1000 1",
            "group_rate": "6000000 4",
            "settlements": 4,
        },
        [
            {
                "outcome": outcome,
                "group": lease.group,
                "token": lease.token,
                "id": lease.id,
            }
            | ending
            for lease, outcome, ending in (
                (LEASES[0], "retry", {"value": "1500", "error": "boom"}),
                (LEASES[1], "ack", {}),
                (LEASE_OF_THREE, "dead 2 3", {"value": "why", "error": "bang"}),
                (LEASE_OF_THREE, "ack 3 3", {}),
            )
        ],
    ),
    "claim": (
        calls.claim("prefix", "worker-1", visibility_ms=30_000, min_tier=2),
        {"worker": "worker-1", "visibility_ms": 30_000, "min_tier": 2},
        [],
    ),
    "ack": (
        calls.ack("prefix", LEASES[1]),
        {"group": "group-1", "token": 7001, "id": LEASES[1].id},
        [],
    ),
    "nack": (
        calls.nack("prefix", LEASES[1], delay_ms=250, error="boom"),
        {
            "group": "group-1",
            "token": 7001,
            "id": LEASES[1].id,
            "delay_ms": 250,
            "error": "boom",
        },
        [],
    ),
    "recount": (
        calls.recount("prefix", LEASES[1], -1),
        {"group": "group-1", "token": 7001, "id": LEASES[1].id, "change": -1},
        [],
    ),
    "renew": (
        calls.renew("prefix", LEASES, visibility_ms=30_000),
        {"visibility_ms": 30_000, "count": 2},
        [{"group": lease.group, "token": lease.token} for lease in LEASES],
    ),
    "recover": (
        calls.recover("prefix", "worker-1", after_token=7000, upto_turn=12, cursor="42"),
        {"worker": "worker-1", "after_token": 7000, "upto_turn": 12, "cursor": "42"},
        [],
    ),
    "stop": (
        calls.stop("prefix", "x", operation="me"),
        {"why": "x", "operation": "me"},
        [],
    ),
    "start": (calls.start("prefix", operation="me"), {"operation": "me"}, []),
    "rate": (
        calls.rate("prefix", "group-1", "6000000 4", "42", operation="once"),
        {"group": "group-1", "rate": "6000000 4", "cursor": "42", "operation": "once"},
        [],
    ),
    "trim": (
        calls.trim("prefix", max_age_ms=None, max_count=7),
        {"max_age_ms": "", "max_count": 7},
        [],
    ),
    "pause": (
        calls.pause("prefix", "group-1", "x", operation="once"),
        {"group": "group-1", "why": "x", "operation": "once"},
        [],
    ),
    "resume": (
        calls.resume("prefix", "group-1", operation="once"),
        {"group": "group-1", "operation": "once"},
        [],
    ),
    "skip": (
        calls.skip("prefix", "group-1", "an id", operation="once"),
        {"group": "group-1", "id": "an id", "operation": "once"},
        [],
    ),
    "set_tier": (
        calls.set_tier("prefix", "group-1", 3, "17"),
        {"group": "group-1", "tier": 3, "cursor": "17"},
        [],
    ),
    "release": (
        calls.release("prefix", "group-1", 7001, operation="once"),
        {"group": "group-1", "token": 7001, "operation": "once"},
        [],
    ),
    "purge": (
        calls.purge("prefix", ["group-1", "group-2"]),
        {"count": 2},
        [{"group": "group-1"}, {"group": "group-2"}],
    ),
    "explain": (calls.explain("prefix", "group-1", len), {"group": "group-1"}, []),
    "peek": (
        calls.peek("prefix", "group-1", 40, 20, len),
        {"group": "group-1", "from": 40, "limit": 20},
        [],
    ),
    "letters": (
        calls.letters("prefix", "+", "7-0", 100, newest_first=True, decode=len),
        {"from": "+", "to": "7-0", "limit": 100, "order": "newest"},
        [],
    ),
    "redrive": (
        calls.redrive("prefix", ["7-0", "8-0", "9-0"], to_tail=True),
        {"place": "tail", "count": 3},
        [{"entry": entry} for entry in ("7-0", "8-0", "9-0")],
    ),
    "drop": (
        calls.drop("prefix", ["7-0", "8-0"]),
        {"count": 2},
        [{"entry": "7-0"}, {"entry": "8-0"}],
    ),
    "heartbeat": (
        calls.heartbeat("prefix", "worker-1", {"pid": 7, "host": "here"}, kept_ms=9000),
        {
            "worker": "worker-1",
            "kept_ms": 9000,
            "schema": calls.SCHEMA_VERSION,
            "fields": 2,
        },
        [{"name": "pid", "value": 7}, {"name": "host", "value": "here"}],
    ),
    "depart": (calls.depart("prefix", "worker-1"), {"worker": "worker-1"}, []),
    "held": (calls.held("prefix", "42", 20, len), {"cursor": "42", "limit": 20}, []),
    "inspect": (calls.inspect("prefix", 20, snapshot_decoder(20)), {"limit": 20}, []),
    "survey": (
        calls.survey("prefix", "prio", "42", 50),
        {"source": "prio", "cursor": "42", "limit": 50},
        [],
    ),
    "audit": (
        calls.audit("prefix", "list", ["group-1", "group-2"]),
        {"kind": "list", "count": 2},
        [{"name": "group-1"}, {"name": "group-2"}],
    ),
    "repair": (
        calls.repair("prefix", "key", ["batch:group-1", "tat:"]),
        {"kind": "key", "count": 2},
        [{"name": "batch:group-1"}, {"name": "tat:"}],
    ),
}


def test_every_script_has_a_builder():
    assert sorted(BUILT) == lua_files.script_names() == scripts.names()


@each_script
def test_a_builders_arguments_are_those_of_the_scripts_header_in_its_order(name: str):
    call, fixed, items = BUILT[name]
    header = lua_files.header(name)

    assert (call.script, call.prefix) == (name, "prefix")
    assert set(header.fixed) == set(fixed)
    assert set(header.repeated) == set(items[0] if items else ())
    expected = [fixed[argument] for argument in header.fixed]
    expected += [item[name] for item in items for name in header.repeated if name in item]
    assert list(call.arguments) == expected


@each_script
def test_a_header_says_what_the_script_is_for_and_keeps(name: str):
    header = lua_files.header(name)

    assert header.title.startswith(f"{name}: ")
    assert re.search(r"^KEYS\[1\] prefix ", header.text, re.MULTILINE)
    assert "KEYS[2]" not in lua_files.read(name)
    assert re.search(r"^Reply \{", header.text, re.MULTILINE)
    assert re.search(r"^Keeps: \w", header.text, re.MULTILINE)


@each_script
def test_a_script_uses_every_argument_of_its_header_and_no_other(name: str):
    numbers = {int(number) for number in re.findall(r"ARGV\[(\d+)\]", lua_files.read(name))}

    assert numbers <= set(range(1, len(lua_files.header(name).fixed) + 1))


def test_only_what_brings_messages_in_is_refused_when_memory_is_out():
    flags = {name: lua_files.header(name).flags for name in lua_files.script_names()}

    assert {name for name, declared in flags.items() if declared == ""} == {
        "publish",
        "publish_with",
        "redrive",
    }
    assert {name for name, declared in flags.items() if declared == "no-writes"} == {
        "agenda",
        "audit",
        "explain",
        "held",
        "inspect",
        "letters",
        "peek",
        "survey",
    }
    assert set(flags.values()) == {"", "no-writes", "allow-oom"}


# Rules for the code ---------------------------------------------------------------------


@each_file
def test_a_file_has_at_most_a_hundred_lines_of_code(path: str):
    lines = lua_files.read_code(path).splitlines()

    assert len([line for line in lines if line.strip()]) <= 100


@each_file
def test_only_bounded_commands_are_sent(path: str):
    text = lua_files.read_code(path)
    sent = set(re.findall(r'(?:redis\.p?call|reads?|read_if_fit)\("(\w+)"', text))

    assert not sent & {"KEYS", "SSCAN", "SMEMBERS", "HKEYS", "HVALS"}
    if sent & {"SCAN", "ZSCAN"}:
        assert path in {"survey", "set_tier", "rate"}
    if "LRANGE" in sent:
        # From one place to another, never to the end.
        assert path in {"cancel", "peek", "includes/lease_more", "includes/window_of"}
        assert not re.search(r'"LRANGE".*, -1', text)
    if "HSCAN" in sent:
        assert path in {"held", "inspect", "purge", "recover", "survey", "includes/count_messages"}
    if "HGETALL" in sent:
        # The last: of counters, of which there are few.
        assert path in {"inspect", "explain", "includes/fields_of"}


def test_failure_03_leases_begin_and_end_in_one_place_each():
    touched = {
        (command, path)
        for path in lua_files.paths()
        for command, locks in re.findall(
            r'"([A-Z]+)", (prefix \.\. ":lock:"|shard\.prefix \.\. ":lock:"|unpack\(locks\))',
            lua_files.read_code(path),
        )
    }

    assert {(command, path) for command, path in touched if command not in READING} == {
        ("SET", "includes/claim"),
        ("PEXPIRE", "renew"),
        # The one way in which a lease ends; and the end of a group, messages and all.
        ("DEL", "includes/end_leases"),
        ("DEL", "includes/forget_group"),
        # What somebody broke by hand: a lock that would never end, or is no token.
        ("PEXPIRE", "includes/mend_group"),
        ("DEL", "includes/mend_group"),
    }


READING = {"EXISTS", "GET", "MGET", "PTTL"}


@each_file
def test_no_number_goes_through_luas_tostring(path: str):
    assert "tostring" not in lua_files.read_code(path)


@each_file
def test_no_other_clock_or_chance_than_the_servers(path: str):
    text = lua_files.read_code(path)

    assert not re.search(r"\bos\.|math\.random", text)
    assert text.count('"TIME"') == (path == "includes/open_shard")


@each_include
def test_an_include_is_one_function_of_its_name_for_others_to_use(name: str):
    own = f"includes/{name}"
    functions = re.findall(r"^local function (\w+)", lua_files.read_code(own), re.MULTILINE)

    assert functions[-1] == name
    assert lua_files.read(own).startswith(f"-- {name}: ")
    for helper in functions[:-1]:
        for other in set(lua_files.paths()) - {own}:
            assert not re.search(rf"\b{helper}\(", lua_files.read_code(other)), other


@each_include
def test_every_include_is_included(name: str):
    assert any(
        re.search(rf"^--@(?:include|lazy) {name}$", lua_files.read(path), re.MULTILINE)
        for path in lua_files.paths()
    )


@each_file
def test_a_file_includes_what_it_calls_and_calls_what_it_includes(path: str):
    included = set(re.findall(r"^--@(?:include|lazy) (\w+)$", lua_files.read(path), re.MULTILINE))
    called = {
        name
        for name in lua_files.include_names()
        if re.search(rf"(?<![\w.]){name}(?:\(|$)", lua_files.read_code(path), re.MULTILINE)
        and path != f"includes/{name}"
    }

    assert called == included


@each_script
def test_no_two_parts_of_a_script_take_the_same_name(name: str):
    locals_ = re.findall(
        r"^local (?:function )?([\w, ]+?)(?:\(| =|$)", scripts.load(name).source, re.MULTILINE
    )
    names = Counter(part.strip() for found in locals_ for part in found.split(","))

    assert [word for word, times in names.items() if times > 1] == []


# Loading ---------------------------------------------------------------------------------


@each_script
def test_a_servers_sha_of_a_script_is_the_one_we_ask_for(
    server: Server, redis_client: redis.Redis, name: str
):
    script = scripts.load(name)

    assert redis_client.script_load(script.source) == script.sha
    assert script.sha == hashlib.sha1(script.source.encode()).hexdigest()


@each_script
def test_the_first_line_declares_the_flags_unless_the_server_does_not_know_it(name: str):
    flags = lua_files.header(name).flags

    assert scripts.load(name).source.splitlines()[0] == f"#!lua flags={flags}".removesuffix(
        " flags="
    )
    assert not scripts.load(name, shebang=False).source.startswith("#!")
    assert scripts.load(name).source.endswith(scripts.load(name, shebang=False).source)


@each_script
def test_an_include_stands_once_before_its_first_use(name: str):
    source = scripts.load(name).source

    assert "--@" not in source
    for function in re.findall(r"^local function (\w+)", source, re.MULTILINE):
        first = re.search(rf"\b{function}\(", source)
        assert source[: first.start()].endswith("local function ")


def given_files(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
    monkeypatch.setattr(scripts, "_read", files.__getitem__)


@pytest.fixture
def _fresh_loader():
    scripts.load.cache_clear()
    yield
    scripts.load.cache_clear()


@pytest.mark.usefixtures("_fresh_loader")
class TestLoader:
    def test_a_circular_include_fails_and_shows_the_circle(self, monkeypatch):
        given_files(
            monkeypatch,
            {
                "x.lua": "-- FLAGS\n--@include a\n",
                "includes/a.lua": "--@include b\n",
                "includes/b.lua": "--@include c\n",
                "includes/c.lua": "--@include a\n",
            },
        )

        with pytest.raises(ValueError, match="a → b → c → a"):
            scripts.load("x")

    def test_an_include_of_itself_is_circular(self, monkeypatch):
        files = {"x.lua": "-- FLAGS\n--@include a\n", "includes/a.lua": "--@include a\n"}
        given_files(monkeypatch, files)

        with pytest.raises(ValueError, match="circular"):
            scripts.load("x")

    def test_what_two_includes_share_is_there_once(self, monkeypatch):
        given_files(
            monkeypatch,
            {
                "x.lua": "-- FLAGS\n--@include a\n--@include b\n",
                "includes/a.lua": "--@include c\nA\n",
                "includes/b.lua": "--@include c\nB\n",
                "includes/c.lua": "C\n",
            },
        )

        assert scripts.load("x").source == "#!lua\nC\nA\nB\n"

    def test_a_lazy_include_has_what_it_includes_for_itself(self, monkeypatch):
        given_files(
            monkeypatch,
            {
                "x.lua": "-- FLAGS\n--@lazy a\n--@include b\nX\n",
                "includes/a.lua": "--@include b\nA\n",
                "includes/b.lua": "B\n",
            },
        )

        assert scripts.load("x").source.splitlines() == [
            "#!lua",
            "local function a(...)",
            "  B",
            "  A",
            "  return a(...)",
            "end",
            "B",
            "X",
        ]

    def test_comments_and_blank_lines_are_not_sent(self, monkeypatch):
        files = {"x.lua": '-- x\n-- FLAGS no-writes\n\n  -- why\nreturn "--@keep -- this"\n'}
        given_files(monkeypatch, files)

        assert scripts.load("x").source == '#!lua flags=no-writes\nreturn "--@keep -- this"\n'

    def test_a_script_without_flags_is_an_error_naming_it(self, monkeypatch):
        given_files(monkeypatch, {"x.lua": "return 1\n"})

        with pytest.raises(ValueError, match=r"x\.lua"):
            scripts.load("x")

    def test_a_script_that_does_not_exist_is_an_error(self):
        with pytest.raises(FileNotFoundError):
            scripts.load("no-such-script")


# Bounds, at the largest calls that the builders let pass ------------------------------------

GUARDED_UNPACK = """
local unbounded = unpack
local function unpack(values, from, to)
  from, to = from or 1, to or #values
  if to - from + 1 > 1000 then error("unpack of " .. (to - from + 1)) end
  return unbounded(values, from, to)
end
"""


@pytest.fixture
def _guarded(monkeypatch: pytest.MonkeyPatch):
    """Have every script fail that unpacks more than a thousand values at once."""
    load = scripts.load

    def guarded(name: str, *, shebang: bool = True) -> scripts.Script:
        first, _, rest = load(name, shebang=True).source.partition("\n")
        source = f"{first}{GUARDED_UNPACK}{rest}"
        return scripts.Script(name, source, hashlib.sha1(source.encode()).hexdigest())

    monkeypatch.setattr(scripts, "load", guarded)


@pytest.mark.usefixtures("_guarded")
async def test_no_script_unpacks_more_than_a_thousand_values(real_shard: Shard):
    shard = real_shard
    perform = shard.transport.perform
    await shard.transport.publish_envelopes([envelope("one") for _ in range(1000)])
    for number in range(3):
        many = [envelope(f"group-{n}", tier=n % 5) for n in range(1000)]
        await shard.transport.publish_envelopes(many)
        assert shard.depth("group-0") == number + 1
    finished: list[Settlement] = []
    for end in (
        Settlement.ack,
        lambda lease: Settlement.retry(lease, 0, "boom"),
        lambda lease: Settlement.dead(lease, "why"),
        Settlement.release,
        lambda lease: Settlement.halt(lease, "why"),
    ):
        turned = await shard.transport.turn("worker", finished, 400, visibility=60)
        assert {settled.word for settled in turned.settled} <= {"ok"}
        assert len(turned.leases) == 400
        assert await shard.transport.renew(turned.leases, 60) == []
        finished = [end(lease) for lease in turned.leases]
    await shard.transport.turn("worker", finished, 0, visibility=60)
    await shard.transport.turn("worker", [], 400, visibility=60)
    assert await shard.transport.recover("worker", 0) == 400
    await perform(calls.inspect(shard.prefix, 200, snapshot_decoder(200)))


@pytest.mark.usefixtures("_guarded")
async def test_the_guard_of_the_test_above_would_notice(real_shard: Shard, monkeypatch):
    call = calls.publish(real_shard.prefix, [envelope("one")] * 1000, publisher="p", sequence=1)
    arguments = [*call.arguments[:3], 1001, *call.arguments[4:], *call.arguments[4:8]]
    too_many = Call("publish", call.prefix, arguments, call.decode, repeatable=False)

    with pytest.raises(Exception, match="unpack of 1001"):
        await real_shard.transport.perform(too_many)
