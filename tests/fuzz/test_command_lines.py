"""Does every command line end with one of the documented exit codes, and never in a traceback?"""

from __future__ import annotations

import datetime
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupqueue import publish
from groupqueue.management.commands import group_queues, run_group_workers
from groupqueue.management.verbs import (
    EXIT_EXCEEDED,
    EXIT_NOT_DONE,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
)
from groupqueue.queues import get_queue
from tests.fuzz.fuzzing import WORDS, fuzzed
from tests.operating.conftest import Bench

VERBS = (*group_queues.VERBS, group_queues.DOCTOR, group_queues.WATCH)
# Those that open Django's own doors: a module to import, a folder to import from, a traceback.
NOT_OURS = ("--settings", "--pythonpath", "--traceback")
# Those of which a line says little that is about queues.
SIDE_ISSUES = ("-h", "--help", "-v", "--verbosity", "--no-color", "--force-color", "--version")
NUMBERS = st.one_of(
    st.integers(-2, 10).map(str),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(["1e9", "1e999", "-0", "0x10", "1_000", "١٢", "९", " 7 ", "+5", "2.", "NaN"]),
)
MOMENTS = st.one_of(
    st.datetimes(timezones=st.none() | st.timezones()).map(str),
    st.datetimes(timezones=st.timezones()).map(lambda moment: moment.isoformat()),
    st.dates().map(str),
    st.dates(max_value=datetime.date(1970, 1, 2)).map(str),
    st.from_regex(r"\A\d{1,12}(\.\d{1,3})?[smhdw]\Z"),
    st.sampled_from(
        ["0001-01-01", "0001-01-01T00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-02-30", "24:00"]
    ),
)
RATES = st.one_of(
    st.sampled_from(["none", "default"]),
    st.from_regex(r"\A\d{0,12}/\d{0,12}[smhd]?(:\d{1,12})?\Z"),
)
VALUES = st.one_of(WORDS, NUMBERS, MOMENTS, RATES, st.sampled_from(["g", "held", "error", "-"]))
# What comes behind an option is now and then what it asks for.
FITTING = {
    "--queue": st.just("default"),
    **dict.fromkeys(["--since", "--until", "--eta"], MOMENTS),
    **dict.fromkeys(["--start", "--limit", "--token", "--max-dead", "--max-halted"], NUMBERS),
    **dict.fromkeys(["--max-lag", "--every", "--count", "--max-messages"], NUMBERS),
    **dict.fromkeys(["--delay", "--visibility", "--max-seconds", "--shutdown-timeout"], NUMBERS),
    **dict.fromkeys(["--priority-share", "--high-ratio", "--priority-threshold"], NUMBERS),
    **dict.fromkeys(["--min-priority", "--processes", "--concurrency", "--batch"], NUMBERS),
}
# The words that a verb cannot do without, so that not all lines end at their lack.
NEEDED = {
    "cancel": ["0" * 32, "--yes"],
    "drop": ["--yes"],
    "explain": ["g"],
    "pause": ["g"],
    "peek": ["g"],
    "purge": ["g", "--yes"],
    "rate": ["10/m"],
    "release": ["g", "--yes"],
    "reschedule": ["0" * 32],
    "resume": ["halted"],
    "set-tier": ["g", "3"],
    "skip": ["g", "0" * 32, "--yes"],
    "stop": ["--yes"],
}


class Ended(NamedTuple):
    """How a command ended, and all that it wrote."""

    code: int
    out: str
    err: str


def run(command: Any, name: str, words: list[str]) -> Ended:
    """Run a command in this process as `manage.py` does, with nobody at a terminal."""
    with written() as (out, err):
        try:
            command().run_from_argv(["manage.py", name, *words])
        except SystemExit as end:
            code = end.code
        else:
            code = 0
    return Ended(0 if code is None else int(code), out.getvalue(), err.getvalue())


@contextmanager
def written() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Catch what is written, and put back what a command line may have changed."""
    kept = sys.stdin, sys.stdout, sys.stderr, os.environ.copy(), sys.path.copy()
    sys.stdin, sys.stdout, sys.stderr = io.StringIO("n\n"), io.StringIO(), io.StringIO()
    try:
        yield sys.stdout, sys.stderr
    finally:
        sys.stdin, sys.stdout, sys.stderr, environment, sys.path[:] = kept
        os.environ.clear()
        os.environ.update(environment)


def options_of(command: Any, name: str, verb: str = "") -> dict[str, bool]:
    """Return the options of a command, or of one of its verbs, and whether they take a value."""
    parser = command().create_parser("manage.py", name)
    if verb:
        [verbs] = [action for action in parser._actions if action.dest == "verb"]
        parser = verbs.choices[verb]
    return {
        option: action.nargs != 0
        for action in parser._actions
        for option in action.option_strings
        if option not in NOT_OURS
    }


def command_lines(
    options: dict[str, bool], needed: Sequence[str] = ()
) -> st.SearchStrategy[list[str]]:
    """Return command lines: half of them are orderly, the others may be anything."""
    names = st.sampled_from(sorted(options))
    orderly = st.sampled_from(sorted(options.keys() - SIDE_ISSUES)).flatmap(
        lambda name: st.tuples(st.just(name), *([FITTING.get(name, WORDS)] * options[name]))
    )
    with_value = st.tuples(names, VALUES)
    anything = st.one_of(
        VALUES.map(lambda word: [word]),
        names.map(lambda name: [name]),
        with_value.map(list),
        with_value.map("=".join).map(lambda word: [word]),
        st.just(["--"]),
    )
    lines = st.lists(orderly, max_size=3).map(lambda parts: [list(needed), *map(list, parts)])
    return (lines | st.lists(anything, max_size=5)).map(
        lambda parts: [word for part in parts for word in part]
    )


@pytest.fixture
def filled(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A queue in which there is something to find, and a `watch` that does not wait."""
    monkeypatch.setattr(group_queues.Command, "sleep", staticmethod(lambda _: None))
    bench.halt("halted")
    bench.bury("dead")
    bench.publish("g", 1, 2, 3)
    publish("note", 1, group="later", delay=3600)
    return bench


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_ends_with_one_of_its_exit_codes(filled: Bench, verb: str) -> None:
    codes = set()

    options = options_of(group_queues.Command, "group_queues", verb)

    @given(command_lines(options, NEEDED.get(verb, ())))
    @fuzzed(30)
    def try_it(words: list[str]) -> None:
        if verb == "watch":
            # The last one counts: without it, it goes on for ever.
            words = [*(word for word in words if word != "--"), "--count=1"]
        ended = run(group_queues.Command, "group_queues", [verb, *words])
        codes.add(ended.code)
        assert ended.code in (0, EXIT_NOT_DONE, EXIT_USAGE, EXIT_UNAVAILABLE, EXIT_EXCEEDED)
        assert ended.code != EXIT_UNAVAILABLE, ended.err
        assert "Traceback" not in ended.err
        # What can steer a terminal would have had to come from the command line's parser.
        assert all(line.isprintable() for line in ended.out.split("\n"))

    try_it()

    # It was not by nonsense alone that it was tried.
    assert EXIT_USAGE in codes
    assert get_queue().audit().faults == ()


@given(
    command_lines(
        dict.fromkeys(["--queue", "--json", "stats", "doctor", "no-such-verb", "-h"], True)
    )
)
@fuzzed(50)
def test_without_a_verb_it_ends_with_one_of_them_too(words: list[str]) -> None:
    ended = run(group_queues.Command, "group_queues", words)

    assert ended.code in (0, EXIT_NOT_DONE, EXIT_USAGE, EXIT_UNAVAILABLE, EXIT_EXCEEDED)
    assert "Traceback" not in ended.err


def test_the_worker_starts_or_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    def note(_: Any, options: Any, **__: Any) -> None:
        started.append(options)

    monkeypatch.setattr(run_group_workers.Command, "_run", note)
    monkeypatch.setattr(run_group_workers.Command, "requires_system_checks", [])

    options = options_of(run_group_workers.Command, "run_group_workers")

    @given(command_lines(options, ["default"]))
    @fuzzed(100)
    def try_it(words: list[str]) -> None:
        ended = run(run_group_workers.Command, "run_group_workers", words)
        assert ended.code in (0, 1, 2)
        assert "Traceback" not in ended.err
        if started:
            # A process of the worker gets them as JSON.
            options = started.pop()
            assert type(options).from_json(options.to_json()) == options

    try_it()
