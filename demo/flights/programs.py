"""How does a command of the demo start other programs, and end them however it ends itself?"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from demo.place import BASE_DIR, DIRECTORY

# run_group_workers gives its handlers 30 seconds, and hands back what they have not finished.
STOP_SECONDS = 45.0
LAST_WORDS_BYTES = 2000


class Program:
    """One command of manage.py as a process of its own, which ends with the `with` block."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        lock: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Name it; `lock` is the lock on the directory, which it keeps while it lives."""
        self.name = name
        self.log_path = DIRECTORY / f"{name}.log"
        self._command = [sys.executable, str(BASE_DIR / "manage.py"), *arguments]
        self._lock = lock
        self._environment = {**os.environ, **(environment or {})}

    def __enter__(self) -> Self:
        """Start it."""
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                pass_fds=(self._lock,),
                # Ctrl-C is for the command, which then ends this in good order.
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it, if it runs."""
        self.stop()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def stop(self) -> int:
        """Ask it to finish, wait for that, and return its exit code."""
        try:
            self._process.terminate()
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return self._kill()
        except BaseException:  # the user is in a hurry
            self._kill()
            raise

    def last_words(self) -> str:
        """Return the end of what it wrote."""
        with self.log_path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - LAST_WORDS_BYTES))
            return log.read().decode(errors="replace").strip()

    def _kill(self) -> int:
        # It leads its own process group, and its children are in it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Have SIGTERM and a closed terminal raise KeyboardInterrupt, as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = {
        number: signal.signal(number, interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP)
        # Under nohup, SIGHUP is to be ignored.
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
