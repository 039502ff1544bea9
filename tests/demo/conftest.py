"""How do the demo's tests run its commands, and see that nothing is left of them?"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from groupqueue.transport.embedded import socket_path
from tests.servers import wait_until

MANAGE = Path(__file__).resolve().parent.parent.parent / "manage.py"


class Demo:
    """The demo in a directory of its own; whatever a test started ends with it."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self._stack = stack

    def start(
        self, *arguments: str, program: str | None = None, **environment: str
    ) -> subprocess.Popen[str]:
        """Start a command of manage.py, or a program given as text."""
        what = [str(MANAGE)] if program is None else ["-c", program]
        process = subprocess.Popen(
            [sys.executable, *what, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment(program, environment),
            # From anywhere: nothing depends on the directory one is in.
            cwd=self.directory.parent,
        )
        self._stack.callback(self._end, process)
        return process

    def run(
        self, *arguments: str, program: str | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        process = self.start(*arguments, program=program, **environment)
        stdout, stderr = process.communicate(timeout=90)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def is_in_use(self) -> bool:
        """Whether any process of a demo holds the directory's lock."""
        with (self.directory / "demo.lock").open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _environment(self, program: str | None, more: dict[str, str]) -> dict[str, str]:
        environment = {**os.environ, "DEMO_DIRECTORY": str(self.directory), **more}
        environment.pop("DJANGO_SETTINGS_MODULE", None)
        if program is not None:
            environment["DJANGO_SETTINGS_MODULE"] = "demo.settings"
            environment["PYTHONPATH"] = str(MANAGE.parent)
        return environment

    def _end(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=60)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    """The demo, in a directory whose path is too long for a socket."""
    directory = tmp_path / ("long-" * 25) / "demo"
    directory.parent.mkdir()
    with ExitStack() as stack:
        yield Demo(directory, stack)
    keeper_lock = directory / "server" / "keeper.lock"
    if keeper_lock.exists():
        wait_until(lambda: _is_free(keeper_lock), "the demo's server has ended")
        shutil.rmtree(socket_path(directory / "server").parent, ignore_errors=True)


def result_of(stdout: str) -> dict[str, Any]:
    """Return the one line of JSON that a run ends with."""
    lines = stdout.splitlines()
    assert len(lines) == 1
    result: dict[str, Any] = json.loads(lines[0])
    return result


def _is_free(path: Path) -> bool:
    with path.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
