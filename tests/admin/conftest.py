"""Who looks at the admin's page in the tests, and what is there to be seen?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.messages import Lease
from groupqueue.queues import get_queue
from groupqueue.transport import connections
from groupqueue.transport.redis import RedisTransport
from tests.admin.reading import Page
from tests.servers import Server

SignIn = Callable[..., Client]
Configure = Callable[[object], None]


@pytest.fixture
def sign_in(db: None) -> SignIn:
    """Return a client whose user is staff with these permissions and no others."""

    def sign_in(*permissions: str, **options: object) -> Client:
        number = User.objects.count()
        user = User.objects.create_user(f"operator-{number}", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client = Client(**options)
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def viewer(sign_in: SignIn) -> Client:
    """Somebody who may look and nothing else."""
    return sign_in("view_groupqueue")


@pytest.fixture
def manager(sign_in: SignIn) -> Client:
    """Somebody who may look, pause, resume and skip."""
    return sign_in("view_groupqueue", "manage_groupqueue")


@pytest.fixture
def shard(default_client: redis.Redis) -> RedisTransport:
    """The queue "default", empty."""
    return connections.get_transport("default")


@pytest.fixture
def configure(settings: Any) -> Configure:
    """Set GROUPQUEUE for one test."""

    def configure(setting: object) -> None:
        settings.GROUPQUEUE = setting

    return configure


@pytest.fixture
def busy_shard(shard: RedisTransport) -> RedisTransport:
    """One group in each state, two due ones; thirteen messages."""
    parked = publish_and_claim(shard, "parked-1", 2, messages=2)
    shard.nack(parked, delay=300, error="TimeoutError: the bank did not answer")
    halted = publish_and_claim(shard, "halted-1", 4, messages=3)
    shard.settle(Settlement.halt(halted, "max_attempts", "ValueError: no such day"))
    shard.publish("paused-1", b"", 0)
    get_queue().pause("paused-1", "by alice")
    publish_and_claim(shard, "leased-1", 4, messages=2)
    shard.publish("due-1", b"", 4)
    for _ in range(4):
        shard.publish("due-2", b"", 0)
    return shard


@pytest.fixture
def two_queues(configure: Configure, default_server: Server, shard: RedisTransport) -> None:
    """The queues "default" and "invoices", both empty."""
    configure(
        {
            "default": {"CONNECTION": default_server.url},
            "invoices": {"CONNECTION": default_server.url},
        }
    )


@pytest.fixture
def calls_made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The scripts that any sync transport has sent so far."""
    made: list[str] = []
    evaluate = RedisTransport._evaluate

    def counting(transport: RedisTransport, call: calls.Call[object]) -> object:
        made.append(call.script)
        return evaluate(transport, call)

    monkeypatch.setattr(RedisTransport, "_evaluate", counting)
    return made


@pytest.fixture
def page_url() -> str:
    """Where the page is."""
    return reverse("admin:groupqueue_groupqueue_changelist")


@pytest.fixture
def live_url() -> str:
    """Where the part of the page that changes is."""
    return reverse("admin:groupqueue_groupqueue_live")


def publish_and_claim(shard: RedisTransport, group: str, tier: int, *, messages: int) -> Lease:
    """Lease a group; it is the only one that is due."""
    for _ in range(messages):
        shard.publish(group, b"", tier)
    lease = shard.claim("worker-1", visibility=300)
    assert lease is not None
    assert lease.group == group
    return lease


def look(client: Client, url: str, **query: str) -> Page:
    """Open a page that is expected to be there, and read it."""
    response = client.get(url, query)
    assert response.status_code == 200
    return Page(response)


def act_url(action: str) -> str:
    """Return where an action is sent to."""
    return reverse("admin:groupqueue_groupqueue_act", args=[action])


def control_url(action: str) -> str:
    """Return where an action on the whole queue is sent to."""
    return reverse("admin:groupqueue_groupqueue_control", args=[action])
