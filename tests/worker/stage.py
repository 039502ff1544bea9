"""How does a test run a worker, and be sure that nothing of it is left?"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

import redis

from groupqueue import Outgoing, publish, publish_many
from groupqueue.core.keys import ShardKeys, shard_prefix
from groupqueue.core.snapshot import GroupView, Snapshot
from groupqueue.queues import get_queue
from groupqueue.transport.connections import get_transport
from tests.servers import guardian, wait_until
from tests.worker.plan import VARIABLE, Plan
from tests.worker.traces import Trace, Traces

EVERY_GATE = "every"
REPOSITORY = Path(__file__).parents[2]


class Worker:
    """One `run_group_workers` in processes of its own."""

    def __init__(
        self,
        options: Iterable[object],
        environment: dict[str, str],
        *,
        started_by: Iterable[str] = (),
    ) -> None:
        command = [sys.executable, "-m", "django", "run_group_workers", *map(str, options)]
        self._process = subprocess.Popen(
            [*started_by, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=REPOSITORY,
            env={**os.environ, **environment},
            # A process group of its own: signals for it are not for the suite.
            start_new_session=True,
        )
        guardian.watch(self.pid)
        self._printed: list[bytes] = []
        self._logged: list[bytes] = []
        self._readers = [
            self._read(self._process.stdout, self._printed),
            self._read(self._process.stderr, self._logged),
        ]

    @property
    def pid(self) -> int:
        """The pid of the supervisor, or of the program that has started it."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the supervisor has not ended."""
        return self._process.poll() is None

    @property
    def printed(self) -> str:
        """What it wrote to stdout so far."""
        return b"".join(self._printed).decode()

    @property
    def log(self) -> str:
        """What it wrote to stderr so far."""
        return b"".join(self._logged).decode()

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to the supervisor alone, as `kill` and service managers do."""
        self._process.send_signal(number)

    def signal_all(self, number: int) -> None:
        """Send a signal to all its processes at once, as a terminal does at Ctrl-C."""
        os.killpg(self.pid, number)

    def kill_supervisor(self) -> None:
        """End the supervisor alone, without a chance to tell its children."""
        self._process.kill()
        self._process.wait()

    def wait_for_printed(self, text: str) -> None:
        """Return once it has written the text to stdout."""
        wait_until(lambda: text in self.printed, f"{text!r} on stdout")

    def wait_for_logged(self, text: str) -> None:
        """Return once it has written the text to stderr."""
        wait_until(lambda: text in self.log, f"{text!r} in the log")

    def wait(self, seconds: float = 20.0) -> int:
        """Return the exit code once the supervisor and all its processes have ended."""
        wait_until(lambda: not self.is_running, "the worker's end", seconds=seconds)
        self.wait_until_gone(seconds)
        return self._process.returncode

    def wait_until_gone(self, seconds: float = 20.0) -> None:
        """Return once none of its processes is left: nobody holds its output open."""
        wait_until(
            lambda: not any(reader.is_alive() for reader in self._readers),
            "the end of all the worker's processes",
            seconds=seconds,
        )

    def ask_to_end(self) -> None:
        """Let it drain, if it still can."""
        if self.is_running:
            self.signal()

    def end(self) -> None:
        """Leave nothing of it behind, whatever state it is in."""
        with contextlib.suppress(TimeoutError):
            self.wait_until_gone(seconds=3)
        # The group keeps its id while any of its processes lives, and the supervisor is
        # not waited for before, so that the id cannot be somebody else's.
        if any(reader.is_alive() for reader in self._readers) or self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        for reader in self._readers:
            reader.join(5)
        guardian.forget(self.pid)

    def _read(self, pipe: IO[bytes] | None, into: list[bytes]) -> threading.Thread:
        def read() -> None:
            if pipe is not None:
                with pipe:
                    while chunk := pipe.read1(65536):  # type: ignore[attr-defined]
                        into.append(chunk)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        return reader


class Stage:
    """A queue of the test's own, its traces, and the workers on it."""

    def __init__(self, url: str, directory: Path, settings: Any) -> None:
        self.queue = f"stage-{uuid.uuid4().hex[:12]}"
        self.traces = Traces(directory)
        self.directory = directory
        self.plan = Plan(directory=str(directory))
        self.workers: list[Worker] = []
        self.client = redis.Redis.from_url(url, retry=None)
        self._url = url
        self._settings = settings
        self.add_queue(self.queue)

    # Before the worker starts ------------------------------------------------------------

    def add_queue(self, name: str, **keys: Any) -> None:
        """Add a queue to the settings, on this stage's server unless keys say otherwise."""
        defaults = {
            "CONNECTION": self._url,
            # Short, so that tests see leases end; long enough for two busy cores.
            "VISIBILITY_TIMEOUT": 2,
            "BACKOFF": (0.05, 0.2),
        }
        self.plan.queues[name] = defaults | keys
        self._settings.GROUPQUEUE = dict(self.plan.queues)

    def configure(self, **keys: Any) -> None:
        """Change keys of the stage's queue."""
        self.add_queue(self.queue, **self.plan.queues[self.queue] | keys)

    def work_through(self, url: str) -> None:
        """Let workers reach the stage's queue at another address than the test does."""
        self.plan.queues[self.queue] = self.plan.queues[self.queue] | {"CONNECTION": url}

    def add_app(self, name: str, handlers: str) -> Path:
        """Write an app with these handlers; workers started from now on have it installed."""
        app = self.directory / "apps" / name
        app.mkdir(parents=True)
        (app / "__init__.py").write_text('"""An app of one test."""\n')
        (app / "handlers.py").write_text(handlers)
        self.plan.apps.append(name)
        return app / "handlers.py"

    def work(
        self,
        *options: object,
        queues: Iterable[str] | None = None,
        started_by: Iterable[str] = (),
    ) -> Worker:
        """Start a worker on the stage's queue, or on those given, by another program if named."""
        names = [self.queue] if queues is None else list(queues)
        worker = Worker([*names, *options], self.environment(), started_by=started_by)
        self.workers.append(worker)
        return worker

    def environment(self) -> dict[str, str]:
        """Return what hands the plan down, as it is now."""
        return {
            "DJANGO_SETTINGS_MODULE": "tests.worker.settings",
            VARIABLE: str(self.plan.write()),
            "PYTHONPATH": str(self.directory / "apps"),
        }

    # While it works -----------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        group: str = "g",
        *,
        priority: int | None = None,
        width: int | None = None,
        queue: str = "",
        **payload: Any,
    ) -> str:
        """Publish one message; return its id."""
        return publish(
            topic,
            payload,
            group=group,
            queue=queue or self.queue,
            priority=priority,
            width=width,
            on_commit=False,
        )

    def publish_suspect(self, topic: str, group: str, **payload: Any) -> str:
        """Publish a message that has taken a worker down; nobody gets it before `let_go`."""
        identifier = self.publish(topic, group, **payload)
        assert get_transport(self.queue).claim("died long ago", 3600) is not None
        return identifier

    def let_go(self, group: str) -> None:
        """Let the lease of a group run out."""
        with self.client.pipeline(transaction=True) as at_once:
            at_once.zadd(self.keys.ready(0), {group: 0})
            at_once.delete(self.keys.lock(group))
            at_once.execute()

    def publish_numbered(
        self, topic: str, groups: Iterable[str], count: int, *, width: int | None = None
    ) -> None:
        """Publish `count` messages with rising n to each group, the groups taking turns."""
        names = list(groups)
        messages = [
            Outgoing(topic, {"n": n}, group=group, width=width)
            for n in range(count)
            for group in names
        ]
        publish_many(messages, queue=self.queue, on_commit=False)

    def open_gate(self, name: str = "gate") -> None:
        """Let the handlers that wait at a gate go on, now and later."""
        (self.directory / f"gate-{name}").touch()

    def wait_for_started(self, count: int = 1, **details: Any) -> list[Trace]:
        """Return the traces of handlers' starts once there are `count`."""
        return self.traces.wait_for("started", count, **details)

    def wait_for_ended(self, count: int = 1, *, seconds: float = 20.0, **details: Any) -> list[Any]:
        """Return the traces of handlers' ends once there are `count`."""
        return self.traces.wait_for("ended", count, seconds=seconds, **details)

    def wait_for_processes(self, count: int = 1) -> list[int]:
        """Return the pids of the worker processes started so far once there are `count`."""
        return [trace.pid for trace in self.traces.wait_for("worker_started", count)]

    def wait_until(self, condition: Callable[[Snapshot], object], what: str) -> Snapshot:
        """Return the first snapshot of the queue for which the condition holds."""
        seen: list[Snapshot] = []

        def holds() -> bool:
            seen[:] = [self.snapshot()]
            return bool(condition(seen[0]))

        wait_until(holds, what)
        return seen[0]

    def wait_until_drained(self, seconds: float = 20.0) -> None:
        """Return once no message is left in the queue."""
        wait_until(lambda: self.backlog() == 0, "an empty queue", seconds=seconds)

    # What the server holds ------------------------------------------------------------------

    @property
    def keys(self) -> ShardKeys:
        """The keys of the stage's queue."""
        return ShardKeys(shard_prefix(self.queue))

    def snapshot(self, queue: str = "") -> Snapshot:
        """Return the state of the queue."""
        return get_queue(queue or self.queue).snapshot(limit=200)

    def backlog(self, queue: str = "") -> int:
        """Return how many messages the queue holds."""
        return sum(tier.messages for tier in self.snapshot(queue).tiers)

    def group(self, name: str = "g") -> GroupView:
        """Return the state of a group that has messages."""
        snapshot = self.snapshot()
        views = (*snapshot.waiting, *snapshot.leased, *snapshot.parked, *snapshot.held)
        return next(view for view in views if view.group == name)

    def dead_letters(self) -> list[dict[str, str]]:
        """Return what was set aside, oldest first."""
        entries: Any = self.client.xrange(self.keys.named("dead"))
        return [
            {name.decode(): value.decode(errors="replace") for name, value in fields.items()}
            for _, fields in entries
        ]

    # Afterwards -----------------------------------------------------------------------------

    def end(self) -> None:
        """End the workers, and show what they said should the test have failed."""
        self.open_gate(EVERY_GATE)
        for worker in self.workers:
            worker.ask_to_end()
        for number, worker in enumerate(self.workers, 1):
            worker.end()
            sys.stdout.write(f"--- worker {number} printed\n{worker.printed}")
            sys.stdout.write(f"--- worker {number} logged\n{worker.log}")
        self.client.close()
