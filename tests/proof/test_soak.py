"""Does a soak end with a verdict, notice what is broken, and leave nothing running?

That a minute of it passes, `make soak` shows, which runs beside the tests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proof.plan import VARIABLE
from proof.soak.nemesis import EVERYDAY
from proof.soak.run import COUNTS
from proof.soak.troupe import PUBLISHERS, REPOSITORY, WORKERS
from tests.servers import guardian, wait_until

SHORTEST = ("--seconds=14", "--rate=100", "--failover=no")
# Whoever finishes a message of some groups takes the next one along.
LOSING = (
    "includes/settle.lua",
    'redis.call("LPOP", s.list)\n',
    'redis.call("LPOP", s.list, string.find(s.group, "7$") and 2 or 1)\n',
)
# One worker is told nothing but errors.
DESERTING = (
    "turn.lua",
    "local want = tonumber(ARGV[4])",
    'if string.find(ARGV[1], "^worker%-1:") then error("gone", 0) end\n'
    "local want = tonumber(ARGV[4])",
)


def _command(*options: str) -> list[str]:
    return [sys.executable, "-m", "proof.soak", *options]


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder)}


def soak(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a soak that keeps its records in a folder of the test's."""
    return subprocess.run(
        _command(*options),
        cwd=REPOSITORY,
        env=_environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def result_of(answer: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the one line that a soak ends with."""
    [line] = answer.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.timeout(300)
def test_a_soak_of_sound_scripts_passes_and_removes_its_records(tmp_path: Path) -> None:
    answer = soak(tmp_path, *SHORTEST, "--seed=3")
    assert answer.returncode == 0, answer.stderr
    result = result_of(answer)
    assert result["ok"]
    assert set(COUNTS) <= set(result)
    assert set(EVERYDAY) <= set(result["faults"])
    assert [result[name] for name in COUNTS[-4:]] == [0, 0, 0, 0]
    assert 0 < result["confirmed"] <= result["published"]
    assert result["delivered"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(300)
def test_a_soak_notices_scripts_that_lose_messages(tmp_path: Path) -> None:
    answer = soak(tmp_path, *SHORTEST, "--drain=15", "--break", *LOSING)
    assert answer.returncode == 1, answer.stderr
    assert result_of(answer)["lost"] > 0
    [kept] = tmp_path.iterdir()
    assert str(kept) in answer.stderr
    assert list(kept.glob("everyday/records/publisher-*.jsonl"))


@pytest.mark.timeout(300)
def test_a_soak_notices_a_worker_that_does_not_come_back(tmp_path: Path) -> None:
    answer = soak(tmp_path, *SHORTEST, "--back=20", "--drain=15", "--break", *DESERTING)
    assert answer.returncode == 1, answer.stderr
    assert "1 of 1 processes of worker-1 did not come back" in answer.stderr
    assert not result_of(answer)["ok"]


@pytest.mark.timeout(300)
def test_a_failover_loses_what_only_the_primary_has_confirmed(tmp_path: Path) -> None:
    answer = soak(tmp_path, "--seconds=20", "--failover=only", "--trust-replies")
    assert answer.returncode == 1, answer.stderr
    assert result_of(answer)["lost"] > 0


@pytest.mark.timeout(300)
def test_a_failover_loses_nothing_that_a_replica_has_confirmed(tmp_path: Path) -> None:
    answer = soak(tmp_path, "--seconds=8", "--failover=only")
    assert answer.returncode == 0, answer.stderr
    assert result_of(answer)["lost"] == 0


def test_a_soak_too_short_for_every_fault_is_refused(tmp_path: Path) -> None:
    answer = soak(tmp_path, "--seconds=10")
    assert answer.returncode == 2
    assert "--seconds 10 is too short" in answer.stderr
    assert answer.stdout == ""


@pytest.mark.parametrize(
    ("path", "text", "told"),
    [("includes/settle.lua", "no such text", "0 times"), ("none.lua", "x", "none.lua")],
)
def test_a_break_that_does_not_fit_is_refused(
    tmp_path: Path, path: str, text: str, told: str
) -> None:
    answer = soak(tmp_path, "--break", path, text, "")
    assert answer.returncode == 2
    assert "--break: " in answer.stderr
    assert told in answer.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "option", ["--rate=0", "--rate=nan", "--seconds=inf", "--drain=-1", "--back=0"]
)
def test_a_figure_with_which_nothing_would_happen_is_refused(tmp_path: Path, option: str) -> None:
    answer = soak(tmp_path, option)
    assert answer.returncode == 2
    assert option.partition("=")[0] in answer.stderr


def test_help_says_what_a_soak_does(tmp_path: Path) -> None:
    answer = soak(tmp_path, "--help")
    assert answer.returncode == 0
    assert "while everything around it breaks" in answer.stdout


# Ends ---------------------------------------------------------------------------------------


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A soak whose actors are all there."""
    process = subprocess.Popen(
        _command("--seconds=300"),
        cwd=REPOSITORY,
        env=_environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    guardian.watch(process.pid)
    try:
        # Supervisors, their processes, publishers and the operator.
        everybody = len(WORKERS) * 2 + PUBLISHERS + 1
        wait_until(lambda: len(_actors(tmp_path)) >= everybody, "the actors", seconds=60)
        yield process
    finally:
        process.kill()
        process.wait()
        guardian.forget(process.pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_soak_ends_all_its_processes(
    running: subprocess.Popen[bytes], tmp_path: Path, number: signal.Signals
) -> None:
    running.send_signal(number)
    assert running.wait(60) == 130
    assert _actors(tmp_path) == []
    assert _servers(tmp_path) == []


def test_a_killed_soak_leaves_nothing_running(
    running: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    running.kill()
    wait_until(lambda: not _servers(tmp_path), "the end of the server")
    wait_until(lambda: not _actors(tmp_path), "the end of the actors", seconds=60)


def _actors(folder: Path) -> list[int]:
    """Return the processes that were told of a plan in this folder."""
    mark = f"{VARIABLE}={folder}".encode()
    return [pid for pid, path in _processes() if mark in _read(path / "environ")]


def _servers(folder: Path) -> list[int]:
    mark = f"--dir\0{folder}".encode()
    return [pid for pid, path in _processes() if mark in _read(path / "cmdline")]


def _processes() -> list[tuple[int, Path]]:
    return [(int(path.name), path) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _read(path: Path) -> bytes:
    """Return what a file of a process holds; nothing when the process has ended."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
