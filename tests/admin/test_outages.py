"""What does the admin's page say when a queue cannot be read?"""

from __future__ import annotations

import _socket
import contextlib
import math
import select
import socket
from pathlib import Path

import pytest
import redis
from django.test import Client

from groupqueue.transport.redis import RedisTransport
from tests.admin.conftest import Configure, look
from tests.servers import Server, free_port

pytestmark = pytest.mark.django_db


def test_failure_37_redis_down_is_a_message_without_the_password(
    viewer: Client, configure: Configure, page_url: str, live_url: str
) -> None:
    port = free_port()
    url = f"redis://someone:the-password@127.0.0.1:{port}/3"
    configure({"default": {"CONNECTION": url}})

    page = look(viewer, page_url)

    assert f"redis://127.0.0.1:{port}/3" in page.html
    assert "Redis is not available" in page.html
    assert "the-password" not in page.html
    assert page.tables == {}
    # The script that refreshes the page stops at this status.
    live = viewer.get(live_url)
    assert live.status_code == 503
    assert f"redis://127.0.0.1:{port}/3" in live.content.decode()


def test_failure_37_a_server_that_hangs_is_given_up_on(
    viewer: Client, configure: Configure, own_server: Server, page_url: str
) -> None:
    configure({"default": {"CONNECTION": own_server.url}})
    own_server.pause()
    try:
        page = look(viewer, page_url)
    finally:
        own_server.resume()

    assert own_server.url in page.html
    assert "Redis is not available" in page.html


class BlackHole:
    """An address behind which nobody answers, as behind a firewall that drops everything."""

    def __init__(self, *, connects: bool) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self._waiting: list[socket.socket] = []
        if not connects:
            # Filled up, so that the next one does not even connect.
            while self._has_room():
                pass

    def close(self) -> None:
        """Let go of everybody."""
        for each in (*self._waiting, self._listener):
            each.close()

    def _has_room(self) -> bool:
        self._waiting.append(socket.socket())
        self._waiting[-1].setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self._waiting[-1].connect(self._listener.getsockname())
        return bool(select.select([], [self._waiting[-1]], [], 0.2)[1])


@pytest.mark.parametrize("connects", [True, False])
def test_failure_37_nobody_is_waited_for_longer_than_two_seconds_in_all(
    viewer: Client,
    configure: Configure,
    page_url: str,
    live_url: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    connects: bool,
) -> None:
    hole = BlackHole(connects=connects)
    configure({"default": {"CONNECTION": hole.url}})
    patience: list[float] = []

    def settimeout(each: socket.socket, seconds: float | None) -> None:
        patience.append(math.inf if seconds is None else seconds)
        _socket.socket.settimeout(each, seconds)

    monkeypatch.setattr(socket.socket, "settimeout", settimeout)
    try:
        page = look(viewer, page_url)
        assert 0 < sum(patience) < 2
        patience.clear()
        live = viewer.get(live_url)
        assert 0 < sum(patience) < 2
    finally:
        hole.close()

    assert "Redis is not available" in page.html
    assert live.status_code == 503


def test_an_embedded_server_that_cannot_start_is_a_message(
    viewer: Client, configure: Configure, tmp_path: Path, page_url: str
) -> None:
    (tmp_path / "file").write_text("no directory")
    url = f"embedded://{tmp_path}/file"
    configure({"default": {"CONNECTION": url}})

    assert url in look(viewer, page_url).html


def test_a_foreign_value_at_a_key_is_a_message(
    viewer: Client, shard: RedisTransport, default_client: redis.Redis, page_url: str
) -> None:
    default_client.set(f"{shard.prefix}:ready:2", "not a sorted set")

    page = look(viewer, page_url)

    assert "another type" in page.html
    assert page.tables == {}


def test_a_connection_that_leads_nowhere_is_a_message(
    viewer: Client, configure: Configure, page_url: str
) -> None:
    configure({"default": {"CONNECTION": "no.such.module.client"}})

    assert "cannot be imported" in look(viewer, page_url).html


def test_a_wrong_setting_is_a_message(
    viewer: Client, configure: Configure, page_url: str, live_url: str
) -> None:
    configure({"default": {"CONNECTION": "redis://localhost", "COLOUR": "blue"}})

    assert "COLOUR" in look(viewer, page_url).html
    assert viewer.get(live_url).status_code == 404
