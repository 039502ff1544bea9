"""At a terminal: are questions asked, strangers' strings harmless, columns straight?"""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from groupqueue import publish
from groupqueue.core import calls
from groupqueue.management.commands.group_queues import Command
from groupqueue.management.tables import humanised, printable, table
from tests.operating.conftest import Bench, operate
from tests.settings import PART

ROOT = Path(__file__).parents[2]
HOSTILE = "evil\x1b[2J\x1b]0;title\x07\x9b31m\r\nall  0\u202e\u2066\u200b\u2028\x00\x08\x7f"


class Terminal(io.StringIO):
    """Standard input with somebody before it."""

    def isatty(self) -> bool:
        return True


def answering(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(text))


def run(
    *arguments: str, url: str = "", stdin: int = subprocess.DEVNULL
) -> subprocess.CompletedProcess:
    """Run a verb in a process of its own."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    if url:
        environment[f"GROUPQUEUE_TEST_URL{PART}"] = url
    return subprocess.run(
        [sys.executable, "-m", "django", "group_queues", *arguments],
        cwd=ROOT,
        env=environment,
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# Questions -------------------------------------------------------------------------------


def destructive(bench: Bench) -> dict[str, list[str]]:
    """Return a command line per verb that loses something, ready to do so."""
    [head] = bench.publish("skipped")
    bench.publish("purged", 1, 2)
    bench.queue.pause("skipped")
    bench.queue.pause("purged")
    bench.bury("dropped")
    bench.publish("released")
    bench.claim()
    return {
        "skip": ["skip", "skipped", head],
        "purge": ["purge", "purged"],
        "drop": ["drop", "--all"],
        "release": ["release", "released"],
        "cancel": ["cancel", publish("note", 1, group="later", delay=3600)],
        "stop": ["stop"],
    }


VERBS = pytest.mark.parametrize("verb", ["skip", "purge", "drop", "release", "cancel", "stop"])


def everything(bench: Bench) -> dict[bytes, bytes]:
    return {key: bench.client.dump(key) for key in bench.client.keys("*")}


@VERBS
@pytest.mark.parametrize("answer", ["n\n", "\n", "", "yes please\n", "j\n"])
def test_whatever_is_not_yes_changes_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, verb: str, answer: str
) -> None:
    arguments = destructive(bench)[verb]
    before = everything(bench)
    answering(monkeypatch, answer)

    said = operate(*arguments)

    assert (said.code, said.trouble) == (1, "nothing was changed")
    assert everything(bench) == before


@VERBS
@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_a_yes_does_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, verb: str, answer: str
) -> None:
    arguments = destructive(bench)[verb]
    answering(monkeypatch, answer)

    said = operate(*arguments, "--json")

    assert (said.code, said.document["outcome"]) == (0, "ok")


@VERBS
def test_without_a_terminal_nobody_is_asked_and_nothing_is_done(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    arguments = destructive(bench)[verb]
    before = everything(bench)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))

    said = operate(*arguments)

    assert said.code == 2
    assert "--yes" in said.trouble
    assert everything(bench) == before


def test_without_standard_input_nobody_is_asked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.publish("group")
    monkeypatch.setattr(sys, "stdin", None)

    assert operate("purge", "group").code == 2


def test_the_question_says_how_much_is_lost_and_stays_out_of_the_answer(bench: Bench) -> None:
    bench.publish("group", *range(17))
    ours, its = pty.openpty()
    try:
        os.write(ours, b"y\n")
        done = run("purge", "group", "--json", stdin=its)
    finally:
        os.close(ours)
        os.close(its)

    assert done.returncode == 0
    assert json.loads(done.stdout)["messages"] == 17
    assert "Throw the 17 messages of group group away for good? [y/N]" in done.stderr


# Exit codes ------------------------------------------------------------------------------


def test_the_exit_codes_of_the_process(bench: Bench) -> None:
    bench.publish("group")

    assert run("stats").returncode == 0
    assert run("resume", "group").returncode == 1
    assert run("purge", "group").returncode == 2
    assert run("no-such-verb").returncode == 2
    assert run("set-tier", "group", "5").returncode == 2
    assert run("stats", "--max-dead", "-1").returncode == 2
    bench.bury("other")
    assert run("stats", "--max-dead", "0").returncode == 4


def test_redis_that_does_not_answer_is_exit_code_3() -> None:
    done = run("stats", "--json", url="redis://127.0.0.1:1/0")

    assert (done.returncode, done.stdout) == (3, "")
    assert "Redis is not available" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_nobody_foresaw_is_exit_code_5_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise ZeroDivisionError("unforeseen")

    monkeypatch.setattr(Command, "_perform", fail)

    with pytest.raises(SystemExit) as end:
        Command().run_from_argv(["manage.py", "group_queues", "stats"])

    assert end.value.code == 5
    assert "ZeroDivisionError: unforeseen" in capsys.readouterr().err


def test_with_traceback_the_exit_codes_are_the_same() -> None:
    done = run("stats", "--traceback", url="redis://127.0.0.1:1/0")

    assert done.returncode == 3
    assert "Traceback" in done.stderr


def test_a_key_of_the_wrong_type_is_exit_code_3_and_harmless(bench: Bench) -> None:
    bench.client.set(f"{bench.queue.prefix}:q:{HOSTILE}", "foreign")

    said = operate("peek", HOSTILE)

    assert said.code == 3
    assert said.trouble.isprintable()


def test_djangos_own_options_may_stand_behind_the_verb(bench: Bench) -> None:
    done = run("stats", "--settings", "tests.settings", "--no-color", "-v", "0", "--traceback")

    assert done.returncode == 0


def test_a_group_whose_name_looks_like_an_option_stands_behind_two_dashes(bench: Bench) -> None:
    bench.publish("--queue")

    done = run("pause", "--", "--queue")

    assert done.returncode == 0
    assert bench.queue.explain("--queue").state == "paused"


# What is written ---------------------------------------------------------------------------


def hostile_things(bench: Bench) -> None:
    """Have strings that could steer a terminal wherever strangers' strings are shown."""
    bench.bury(HOSTILE, HOSTILE, topic=HOSTILE, reason=HOSTILE)
    bench.publish(HOSTILE, HOSTILE, topic=HOSTILE)
    bench.transport.nack(bench.claim(HOSTILE), 3600, error=HOSTILE)
    bench.publish("leased" + HOSTILE)
    bench.claim(HOSTILE)
    bench.queue.pause("paused" + HOSTILE, HOSTILE)
    publish(HOSTILE, HOSTILE, group="later" + HOSTILE, delay=3600)
    for _ in range(2):
        publish(HOSTILE, HOSTILE, group="wide" + HOSTILE, width=3)
    bench.claim(HOSTILE)
    names = ("name", "host", "pid", "state", "processed", "failed", HOSTILE)
    fields: dict[str, str | int] = dict.fromkeys(names, HOSTILE)
    beat = calls.heartbeat(bench.queue.prefix, HOSTILE, fields, kept_ms=60_000)
    bench.transport.perform(beat)
    bench.client.hincrby(f"{bench.queue.prefix}:stats", HOSTILE, 5)
    bench.client.set(f"{bench.queue.prefix}:lock:astray{HOSTILE}", 1)
    bench.queue.stop(HOSTILE)


@pytest.mark.parametrize(
    "verb",
    [
        ["stats"],
        ["groups"],
        ["explain", HOSTILE],
        ["explain", "leased" + HOSTILE],
        ["explain", "paused" + HOSTILE],
        ["explain", "wide" + HOSTILE],
        ["groups", "--state", "held", "--all"],
        ["scheduled"],
        ["doctor"],
        ["watch", "--count", "1"],
        ["start"],
        ["rate", "10/m", "--group", HOSTILE],
        ["set-tier", HOSTILE, "3"],
        ["redrive", "--topic", HOSTILE],
        ["redrive", HOSTILE],
        ["drop", "--reason", HOSTILE, "--yes"],
        ["cancel", HOSTILE, "--yes"],
        ["reschedule", HOSTILE, "--delay", "5"],
        ["peek", HOSTILE, "--payloads"],
        ["dead"],
        ["pause", HOSTILE],
        ["resume", HOSTILE],
        ["release", HOSTILE, "--yes"],
        ["purge", HOSTILE, "--yes"],
        ["skip", HOSTILE, HOSTILE, "--yes"],
    ],
    ids=lambda verb: ascii(" ".join(verb).replace(HOSTILE, "…")),
)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_strangers_strings_cannot_steer_a_terminal(
    bench: Bench, verb: list[str], form: list[str]
) -> None:
    hostile_things(bench)

    said = operate(*verb, *form)

    assert all(line.isprintable() for line in said.out.split("\n"))
    assert said.trouble.isprintable()


@pytest.mark.parametrize(
    "verb",
    [
        ["purge", HOSTILE],
        ["skip", HOSTILE, HOSTILE],
        ["release", "leased" + HOSTILE],
        ["cancel", HOSTILE],
        *(["drop", f"--{name}", HOSTILE] for name in ("group", "topic", "reason")),
        ["doctor", "--repair"],
        ["no such verb" + HOSTILE],
        ["explain", HOSTILE, "--queue", HOSTILE],
        ["set-tier", HOSTILE, HOSTILE],
        ["reschedule", HOSTILE, "--eta", HOSTILE],
        ["rate", HOSTILE],
        ["dead", "--since", HOSTILE],
    ],
    ids=lambda verb: ascii(" ".join(verb).replace(HOSTILE, "…")),
)
def test_neither_can_questions_and_complaints(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    hostile_things(bench)
    answering(monkeypatch, "n\n")
    asked = io.StringIO()

    with pytest.raises(CommandError) as refusal:
        call_command("group_queues", *verb, stdout=asked, stderr=asked)

    said = f"{asked.getvalue()}{refusal.value}"
    assert all(line.isprintable() for line in said.split("\n"))


def test_json_keeps_strangers_strings_as_they_are(bench: Bench) -> None:
    bench.publish(HOSTILE)

    [view] = operate("groups", "--json").document["groups"]

    assert view["group"] == HOSTILE


@pytest.mark.parametrize("payload", [HOSTILE, "ünïcode 日本語 🚌", {"a": [1, None]}], ids=ascii)
def test_output_survives_a_terminal_that_knows_ascii_alone(bench: Bench, payload: object) -> None:
    bench.publish("grüppe 日本語", payload)
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    environment["DJANGO_SETTINGS_MODULE"] = "tests.settings"

    done = subprocess.run(
        [sys.executable, "-m", "django", "group_queues", "peek", "grüppe 日本語", "--payloads"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()


def test_columns_stand_straight_whatever_is_in_them() -> None:
    text = table(
        ("name", "count", "note"), [("a", 1, "x"), ("日本語", 12345, "y"), ("e\u0301", 7, "z")]
    )

    assert text.splitlines() == [
        "NAME     COUNT  NOTE",
        "a            1  x",
        "日本語  12,345  y",
        "e\u0301            7  z",
    ]


def test_a_table_without_rows_says_so() -> None:
    assert table(("a",), [], empty="nothing") == "nothing"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-1, "0.0 s"),
        (0.46, "0.4 s"),
        (59.9, "59 s"),
        (200, "3 min 20 s"),
        (3600, "1 h 0 min"),
        (90_061, "1 d 1 h"),
        (10**9, "11,574 d 1 h"),
    ],
)
def test_lengths_of_time_are_humanised(seconds: float, expected: str) -> None:
    assert humanised(seconds) == expected


def test_what_cannot_be_seen_is_escaped_and_the_rest_is_left_alone() -> None:
    assert printable("grün 日本") == "grün 日本"
    assert printable("a\x1b\u202e\n\udc80") == "a\\x1b\\u202e\\n\\udc80"
