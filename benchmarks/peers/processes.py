"""How does the runner start a peer's program, hear from it, and be sure that it ends?"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from typing import IO, Any

from benchmarks.peers.environments import ROOT, Environment
from benchmarks.peers.program import JOB_VARIABLE, Job

STOP_SECONDS = 5.0


class ProgramFailed(Exception):
    """A program ended early or said nothing in time; the text is the end of what it printed."""


class Program:
    """A running program; what it tells comes line by line."""

    def __init__(self, process: subprocess.Popen[str], log: IO[bytes]) -> None:
        self._process = process
        self._log = log
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def hear(self, seconds: float) -> dict[str, Any]:
        """Return what it tells next; raises ProgramFailed when that does not come."""
        try:
            told = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise ProgramFailed(f"nothing for {seconds:.0f} s. {self._end_of_log()}") from None
        if told is None:
            raise ProgramFailed(self._end_of_log())
        return told

    def close(self) -> None:
        """Let go of its pipes once it has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        # Until nobody has the other end any more.
        self._reader.join(STOP_SECONDS)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                # Whatever else a peer prints is none of ours.
                with contextlib.suppress(ValueError):
                    told = json.loads(line)
                    if isinstance(told, dict):
                        self._lines.put(told)
        self._lines.put(None)

    def _end_of_log(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:]) or "it ended without a word"


@contextlib.contextmanager
def running(environment: Environment, job: Job) -> Iterator[Program]:
    """Run a program; on leaving, it and all that it has started are ended."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            environment.command,
            cwd=ROOT,
            env=environment.variables | {JOB_VARIABLE: json.dumps(job._asdict())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            # A group of its own: it has the program's pid, and nobody else is in it.
            start_new_session=True,
        )
        started = Program(process, log)
        try:
            yield started
        finally:
            # Nothing of the queue is needed any more. It has not been waited for, so
            # the pid is still its own.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            started.close()
