"""Does `watch` look again and again, through outages, until it is told to stop?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from groupqueue.management.commands import group_queues
from tests.operating.conftest import Bench, operate
from tests.servers import Server, guardian, start_server

ROOT = Path(__file__).parents[2]


def test_watch_looks_as_often_as_it_is_told(bench: Bench) -> None:
    bench.publish("group")

    said = operate("watch", "--count", 3, "--every", 0.01)

    assert said.code == 0
    assert said.out.count("default at ") == 3
    # Not at a terminal: nothing is cleared.
    assert group_queues.CLEAR_SCREEN not in said.out


def test_watch_prints_a_line_of_json_per_look(bench: Bench) -> None:
    lines = operate("watch", "--count", 2, "--every", 0.01, "--json").out.splitlines()

    assert [json.loads(line)["queue"] for line in lines] == ["default", "default"]


def test_watch_sees_changes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_queues.Command, "sleep", lambda *_: bench.publish("group"))

    lines = operate("watch", "--count", 3, "--json").out.splitlines()

    assert [json.loads(line)["totals"]["messages"] for line in lines] == [0, 1, 2]


def test_watch_goes_on_through_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings
) -> None:
    server = start_server("valkey", tmp_path / "valkey")
    settings.GROUPQUEUE = {"default": {"CONNECTION": server.url}}
    actions = iter([server.stop, server.start])
    monkeypatch.setattr(group_queues.Command, "sleep", lambda *_: next(actions)())
    try:
        said = operate("watch", "--count", 3, "--json")
    finally:
        server.stop()

    assert said.code == 0
    assert len(said.out.splitlines()) == 2


def test_watch_tells_by_its_exit_code_that_the_last_look_failed(settings) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": "redis://127.0.0.1:1/0"}}

    assert operate("watch", "--count", 1).code == 3


def test_ctrl_c_ends_watch_without_a_complaint(default_server: Server, bench: Bench) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "django", "group_queues", "watch", "--every", "60", "--json"],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    guardian.watch(process.pid)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["queue"] == "default"
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
        guardian.forget(process.pid)

    assert (process.returncode, complaint) == (0, b"")
