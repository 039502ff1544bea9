"""What does the admin's page say when a queue cannot be read?"""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from django.test import Client

from groupqueue.transport.redis import RedisTransport
from tests.admin.conftest import Configure, look
from tests.servers import Server, free_port

pytestmark = pytest.mark.django_db


def test_redis_down_is_a_message_without_the_password(
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


def test_a_server_that_hangs_is_given_up_on(
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
