"""Which server do the benchmarks run against, and what do commands cost there?"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, Self

import django
import redis

from groupqueue.transport.embedded import server_binary

Kind = Literal["valkey", "redis"]
Reach = Literal["tcp", "unix"]

START_SECONDS = 20.0
STOP_SECONDS = 10.0
# What clients send. Whatever else a server counts while one of these runs, scripts have called.
SENT_BY_CLIENTS = ("evalsha", "eval", "blpop")
# Connecting and measuring are not part of any figure.
NOT_COUNTED = ("client", "config", "flushdb", "hello", "info", "ping", "script", "select")


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Let the command line choose the server."""
    parser.add_argument("--server", choices=("valkey", "redis"), default="valkey")
    parser.add_argument("--connect", choices=("tcp", "unix"), default="tcp")


@contextlib.contextmanager
def own_server(kind: Kind, reach: Reach) -> Iterator[Server]:
    """Run a server that leaves nothing behind, with Django set up to use it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        tempfile.TemporaryDirectory(prefix="groupqueue-benchmark-") as folder,
        Server(kind, reach, Path(folder)) as server,
    ):
        os.environ["GROUPQUEUE_BENCHMARK_URL"] = server.url()
        os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
        django.setup()
        yield server


class ServerCost(NamedTuple):
    """What a server did since its statistics were reset."""

    sent: int
    """Commands that clients sent."""
    called: int
    """Commands that scripts called."""
    script_microseconds: float
    """Time spent in scripts."""

    def per(self, count: int) -> dict[str, float]:
        """Return the cost of each of `count` messages, for the report."""
        share = 1 / max(count, 1)
        return {
            "commands_sent": round(self.sent * share, 3),
            "commands_called_by_scripts": round(self.called * share, 3),
            "server_microseconds": round(self.script_microseconds * share, 2),
        }


class Server:
    """A server process of the benchmark's own, without persistence."""

    def __init__(self, kind: Kind, reach: Reach, directory: Path) -> None:
        self.reach = reach
        self._port = _free_port() if reach == "tcp" else 0
        self._socket = directory / "server.sock"
        self._log = directory / "server.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [_binary(kind), *self._options(directory)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C ends the benchmark, which then ends its server.
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        try:
            self._wait_until_up()
        except BaseException:
            self.stop()
            raise

    def url(self, database: int = 0) -> str:
        """Return where it is."""
        if self.reach == "unix":
            return f"unix://{self._socket}?db={database}"
        return f"redis://127.0.0.1:{self._port}/{database}"

    def describe(self) -> dict[str, str]:
        """Return its name and version, and how it is set up."""
        with self.client() as client:
            info = client.info("server")
        is_valkey = "valkey_version" in info
        return {
            "name": "Valkey" if is_valkey else "Redis",
            "version": str(info["valkey_version" if is_valkey else "redis_version"]),
            "reach": "unix socket" if self.reach == "unix" else "loopback TCP",
            "persistence": "none",
        }

    def client(self, database: int = 0) -> redis.Redis:
        """Return a plain client."""
        return redis.Redis.from_url(self.url(database))

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _options(self, directory: Path) -> list[str]:
        options = {
            "port": str(self._port),
            "bind": "127.0.0.1",
            "dir": str(directory),
            "save": "",
            "appendonly": "no",
        }
        if self.reach == "unix":
            options |= {"unixsocket": str(self._socket), "unixsocketperm": "600"}
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        with self.client() as client:
            while True:
                with contextlib.suppress(redis.RedisError):
                    client.ping()
                    return
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"the benchmark's server did not start:\n{self._log.read_text()}"
                    )
                time.sleep(0.02)


class Meter:
    """Reads what the server did between `reset` and `read`."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def reset(self) -> None:
        """Begin to count."""
        self._client.config_resetstat()

    def read(self) -> ServerCost:
        """Return the cost so far."""
        sent = called = 0
        microseconds = 0.0
        for name, figures in self._counted():
            if name in SENT_BY_CLIENTS:
                sent += figures["calls"]
            else:
                called += figures["calls"]
            if name in ("evalsha", "eval"):
                microseconds += figures["usec"]
        return ServerCost(sent, called, microseconds)

    def _counted(self) -> Iterator[tuple[str, dict[str, int]]]:
        for key, figures in self._client.info("commandstats").items():
            name = key.removeprefix("cmdstat_")
            if name.partition("|")[0] not in NOT_COUNTED:
                yield name, figures


def _binary(kind: Kind) -> str:
    if kind == "valkey":
        return str(server_binary())
    found = shutil.which("redis-server")
    if found is None:
        raise FileNotFoundError("--server redis needs redis-server on the PATH; it is not there")
    return found


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
