"""Which processes take part in a soak, and how is it sure that none of them is left?"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from proof import plan as plans
from proof.plan import Plan
from tests.servers import guardian

Part = Literal["worker", "publisher", "operator"]

REPOSITORY = Path(__file__).parents[2]
WATCH_SECONDS = 0.2
END_SECONDS = 25.0
LAST_WORDS_SECONDS = 0.5

WORKER = ("manage.py", "run_group_workers")
WORKERS = (
    ("--processes=2", "--concurrency=4"),
    ("--processes=1", "--concurrency=1", "--visibility=3"),
    ("--processes=1", "--concurrency=8", "--batch=20"),
)
FOR_ALL_WORKERS = ("--shutdown-timeout=3",)
PUBLISHERS = 2


def environment(plan: Plan) -> dict[str, str]:
    """Return what tells a process which run it takes part in."""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "proof.settings",
        "PYTHONPATH": os.pathsep.join(path for path in (str(REPOSITORY), *sys.path) if path),
        plans.VARIABLE: str(plan.path),
    }


class Actor:
    """One program of a soak, started again when it ends before it is to."""

    def __init__(
        self, part: Part, name: str, command: Sequence[str], plan: Plan, *, processes: int = 1
    ) -> None:
        self.part = part
        self.name = name
        self.processes = processes
        """How many are at work for it."""
        self.starts = 0
        self.is_wanted = True
        self._command = [sys.executable, *command]
        self._environment = environment(plan)
        self._log = Path(plan.folder) / f"{name}.log"
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The pid, unless it has ended."""
        with self._lock:
            process = self._process
            return process.pid if process is not None and process.poll() is None else None

    def look_after(self) -> None:
        """Start it, if it does not run and is wanted."""
        with self._lock:
            if self._process is not None and self._process.poll() is not None:
                guardian.forget(self._process.pid)
                self._process = None
            if self._process is None and self.is_wanted:
                with self._log.open("ab") as log:
                    self._process = subprocess.Popen(
                        self._command,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        cwd=REPOSITORY,
                        env=self._environment,
                        # Ctrl-C is for the soak, which ends its actors by itself.
                        start_new_session=True,
                    )
                guardian.watch(self._process.pid)
                self.starts += 1

    def signal(self, number: int) -> bool:
        """Send a signal; False when it has ended."""
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None:
                return False
            process.send_signal(number)  # not waited for yet, so its pid is its own
            return True

    def end(self, deadline: float) -> bool:
        """Wait for its end until then, and kill it if need be; False when that was needed."""
        self.is_wanted = False
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return True
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
            return True
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGUSR1)  # its log will show where it was
            time.sleep(LAST_WORDS_SECONDS)
            process.kill()
            process.wait()
            return False
        finally:
            guardian.forget(process.pid)


class Child:
    """A worker process of a supervisor, held so that its pid cannot come to be another's."""

    def __init__(self, pid: int, parent: int) -> None:
        """Raise ProcessLookupError unless it is that parent's child."""
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)
        if pid not in children_of(parent):
            os.close(self._descriptor)
            raise ProcessLookupError(f"{pid} is no child of {parent}")

    def signal(self, number: int) -> bool:
        """Send a signal; False when it has ended."""
        try:
            signal.pidfd_send_signal(self._descriptor, number)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)


class Troupe:
    """The actors of a run."""

    def __init__(self, plan: Plan) -> None:
        self._actors = [
            *(_worker(plan, number, options) for number, options in enumerate(WORKERS)),
            *(_other("publisher", number, plan) for number in range(PUBLISHERS)),
            _other("operator", 0, plan),
        ]
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="troupe", daemon=True)
        self._orphans: list[Child] = []

    def start(self) -> None:
        """Start all actors, and those again that end."""
        self._watcher.start()

    def of(self, *parts: Part) -> list[Actor]:
        """Return the actors with these parts."""
        return [actor for actor in self._actors if actor.part in parts]

    @property
    def restarts(self) -> int:
        """How often an actor had to be started again."""
        return sum(max(0, actor.starts - 1) for actor in self._actors)

    @contextlib.contextmanager
    def worker_processes(self) -> Iterator[list[Child]]:
        """Have all worker processes at hand meanwhile."""
        found = self._hold_children(self.of("worker"))
        try:
            yield found
        finally:
            for child in found:
                child.close()

    def kill_supervisor(self, actor: Actor) -> bool:
        """Kill a supervisor; its processes notice by themselves, and leave."""
        # Until they have, they are known here alone.
        self._orphans += self._hold_children([actor])
        return actor.signal(signal.SIGKILL)

    def dismiss(self, *parts: Part) -> list[str]:
        """End these actors as an operator would; return the names of those that did not."""
        actors = self.of(*parts)
        for actor in actors:
            actor.is_wanted = False
            actor.signal(signal.SIGTERM)
        deadline = time.monotonic() + END_SECONDS
        return [actor.name for actor in actors if not actor.end(deadline)]

    def end(self) -> None:
        """Leave nothing of it behind, whatever state it is in."""
        self._is_over.set()
        if self._watcher.is_alive():
            self._watcher.join()
        children = self._hold_children(self.of("worker")) + self._orphans
        self._orphans = []
        for actor in self._actors:
            actor.is_wanted = False
            actor.signal(signal.SIGKILL)
        for actor in self._actors:
            actor.end(time.monotonic() + END_SECONDS)
        for child in children:
            child.signal(signal.SIGKILL)
            child.close()

    def _watch(self) -> None:
        while True:
            for actor in self._actors:
                actor.look_after()
            if self._is_over.wait(WATCH_SECONDS):
                return

    def _hold_children(self, supervisors: Iterable[Actor]) -> list[Child]:
        found = []
        for actor in supervisors:
            parent = actor.pid
            for pid in children_of(parent) if parent else ():
                with contextlib.suppress(ProcessLookupError):
                    found.append(Child(pid, parent or 0))
        return found


def children_of(pid: int) -> list[int]:
    """Return the pids of a process's children; none when it has ended."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return found


def _worker(plan: Plan, number: int, options: Sequence[str]) -> Actor:
    name = f"worker-{number}"
    command = [*WORKER, plan.queue, f"--name={name}", *FOR_ALL_WORKERS, *options]
    [processes] = [int(one.partition("=")[2]) for one in options if one.startswith("--processes=")]
    return Actor("worker", name, command, plan, processes=processes)


def _other(part: Part, number: int, plan: Plan) -> Actor:
    name = f"{part}-{number}"
    return Actor(part, name, ("-m", f"proof.soak.{part}", name), plan)
