"""Does a call that a signal handler breaks off leave nothing behind for the next one?"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import available_kinds, start_server
from tests.transport.shards import look_inside

# Each call has an answer of its own length, so that another call's would show.
PROGRAM = """
import json, random, signal, sys
if sys.argv[3] == "without hiredis":
    sys.modules["hiredis"] = None
import redis
from redis.utils import HIREDIS_AVAILABLE
from groupqueue.core.messages import Lease
from groupqueue.transport.redis import RedisTransport

assert HIREDIS_AVAILABLE == (sys.argv[3] == "with hiredis")
url, prefix = sys.argv[1:3]
transport = RedisTransport(redis.Redis.from_url(url + "&health_check_interval=1"), prefix)
leases = [Lease(f"nobody-{n}", 10**15 + n, "0" * 32, b"", 0, 1, 0, 0, 0) for n in range(9)]

class Interrupted(BaseException):
    pass

armed = False

def interrupt(number, frame):
    if armed:
        raise Interrupted

transport.publish("group", b"1")  # on a slow machine no later one may get through
transport.close()
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
interrupted = wrong = 0
while interrupted < 2000:
    asked = leases[: random.randint(1, 9)]
    try:
        try:
            armed = True
            lost = transport.renew(asked, 30)
            transport.publish("group", b"1")
        finally:
            armed = False
    except Interrupted:
        armed = False
        interrupted += 1
        if interrupted % 50 == 0:
            transport.close()
    else:
        wrong += lost != asked
signal.setitimer(signal.ITIMER_REAL, 0)
print(json.dumps({"interrupted": interrupted, "wrong": wrong}))
"""


@pytest.fixture(params=available_kinds())
def socket_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of database 3 of a server of the test's own.

    By a unix socket: each interruption costs a connection, and the ports of so many would
    stay in use for a minute.
    """
    path = tmp_path / "socket"
    arguments = ("--unixsocket", str(path))
    server = start_server(request.param, tmp_path / "server", extra_args=arguments)
    try:
        yield f"unix://{path}?db=3"
    finally:
        server.stop()


@pytest.mark.parametrize("hiredis", ["with hiredis", "without hiredis"])
def test_failure_20_every_call_gets_its_own_reply_wherever_signal_handlers_raised(
    socket_url: str, queue_prefix: str, hiredis: str
):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, socket_url, queue_prefix, hiredis],
        capture_output=True,
        text=True,
        check=False,
    )

    # What is raised in a destructor ends on stderr.
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"interrupted": 2000, "wrong": 0}
    with look_inside(socket_url, emptied=False) as inside:
        # Without its whole handshake a connection would have led to database 0.
        assert list(inside.info("keyspace")) == ["db3"]
        assert inside.llen(f"{queue_prefix}:q:group") > 0
