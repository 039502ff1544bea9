"""Is a password kept out of everything that is shown, wherever it stood?"""

from __future__ import annotations

import io
import logging
import re
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
import redis.asyncio
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from groupqueue import conf, get_queue, publish
from groupqueue.exceptions import ConfigurationError, GroupQueueError, InvalidArgument
from groupqueue.transport.connections import forget_transports, get_transport, location
from groupqueue.transport.redis import AsyncRedisTransport, RedisTransport
from tests.operating.conftest import operate
from tests.servers import Server, free_port, start_server
from tests.worker.stage import Stage

PASSWORD = "moonlit harbour/quay:seventeen"
WRONG = f"{PASSWORD}!"
FORMS = ("user", "query", "unix", "alias", "location", "callable")
URL_FORMS = ("user", "query", "unix")


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    forget_transports()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Server]:
    """A server with a password, which has a socket as well."""
    words = ("--requirepass", PASSWORD, "--unixsocket", str(tmp_path / "socket"))
    server = start_server("valkey", tmp_path / "guarded", extra_args=words)
    try:
        yield server
    finally:
        server.stop()


def connection(
    settings: Settings, form: str, port: int, socket: Path, password: str
) -> str | Callable[[], redis.Redis]:
    """Return a CONNECTION that has the password where the form says."""
    escaped = quote(password, safe="")
    options = {"CLIENT_CLASS": "django_redis.client.DefaultClient"}
    cache = {"BACKEND": "django_redis.cache.RedisCache", "OPTIONS": options}
    match form:
        case "user":
            return f"redis://default:{escaped}@127.0.0.1:{port}/0"
        case "query":
            return f"redis://127.0.0.1:{port}/0?username=default&password={escaped}"
        case "unix":
            return f"unix://default:{escaped}@{socket}?db=0"
        case "alias":
            cache["OPTIONS"] = options | {"PASSWORD": password}
            cache["LOCATION"] = f"redis://127.0.0.1:{port}/0"
        case "location":
            cache["LOCATION"] = f"redis://:{escaped}@127.0.0.1:{port}/0"
        case "callable":
            return lambda: redis.Redis("127.0.0.1", port, password=password)
    settings.CACHES = {"default": settings.CACHES["default"], "queue": cache}
    return "queue"


def everything_said(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> str:
    """Use the queue in every way that says something, and return all that is said."""
    caplog.set_level(logging.DEBUG)
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    page = reverse("admin:groupqueue_groupqueue_changelist")
    act = reverse("admin:groupqueue_groupqueue_act", args=["pause"])
    said: list[object] = [
        *(operate(*verb) for verb in (["stats"], ["explain", "g"], ["doctor", "--json"])),
        *(
            operate(*verb)
            for verb in (["doctor"], ["watch", "--count", 1], ["purge", "g", "--yes"])
        ),
        client.get(page).content.decode(),
        client.post(act, {"queue": "default", "group": "g"}, follow=True).content.decode(),
        shown(lambda: publish("t", 1, group="g", on_commit=False)),
        *(shown(partial(use, "default")) for use in (get_transport, get_queue, conf.get_config)),
        shown(partial(location, "default")),
    ]
    out = io.StringIO()
    call_command("check", "--deploy", "--fail-level", "CRITICAL", stdout=out, stderr=out)
    return "\n".join([*map(str, said), out.getvalue(), caplog.text, *capsys.readouterr()])


def shown(use: Callable[[], object]) -> str:
    """Return what comes of a use, be it an error with all its causes."""
    try:
        return repr(use())
    except GroupQueueError:
        return traceback.format_exc()


def assert_hidden(text: str) -> None:
    """Hold that no word of the password is in a text."""
    for word in re.findall(r"\w+", PASSWORD):
        assert word not in text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("trouble", "form"),
    [
        *(("none", form) for form in FORMS),
        *(("wrong password", form) for form in FORMS),
        *(("nobody there", form) for form in ("user", "alias")),
    ],
)
def test_nothing_that_is_said_has_the_password_in_it(
    settings: Settings,
    tmp_path: Path,
    guarded: Server,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    *,
    trouble: str,
    form: str,
) -> None:
    password = PASSWORD if trouble == "none" else WRONG
    port = free_port() if trouble == "nobody there" else guarded.port
    socket = tmp_path / ("nowhere" if trouble == "nobody there" else "socket")
    given = connection(settings, form, port, socket, password)
    settings.GROUPQUEUE = {"default": {"CONNECTION": given}}

    said = everything_said(caplog, capsys)

    expected = {"none": "all is well", "wrong password": "refuses the credentials"}
    assert expected.get(trouble, "Redis is not available") in said
    assert_hidden(said)


@pytest.mark.parametrize("form", URL_FORMS)
@pytest.mark.parametrize("password", [PASSWORD, WRONG])
def test_a_worker_says_nothing_of_it(
    stage: Stage, settings: Settings, tmp_path: Path, guarded: Server, *, form: str, password: str
) -> None:
    given = connection(settings, form, guarded.port, tmp_path / "socket", password)
    stage.add_queue("guarded", CONNECTION=given)
    worker = stage.work("--verbosity", 3, queues=["guarded"])
    stage.wait_for_processes()
    if password == WRONG:
        worker.wait_for_logged("refuses the credentials")
    else:
        stage.publish("fail", queue="guarded")
        worker.wait_for_logged("message failed")
        told = [view.fields for view in get_queue("guarded").snapshot().workers]
        assert told
        assert_hidden(str(told))

    worker.signal()

    assert worker.wait() == 0
    assert_hidden(worker.printed + worker.log)


# Settings that are wrong ---------------------------------------------------------------------


UNESCAPED = [
    "redis://:mid#night@host:1/0",
    "redis://:12#night@host:1/0",
    "redis://user:12#night@host:1/0",
    "redis://user:12?night@host:1/0",
    "redis://user:12?a=b&night@host:1/0",
    "redis://user:12/night@host:1/0",
    "redis://:mid/night@host:1/0",
    "redis://:mid[night]@host:1/0",
    "redis://:[night@host:1/0",
    "redis://:night\u2100@host:1/0",
    "redis://night@host:mid/0",
    "redis://:night@host:99999/0",
    "redis://:night@host:1/0?no_such_option=1",
    "redis://host:1/0?password=night&no_such_option=1",
    "redis://host:1/0?password=night&socket_timeout=soon",
    "unix://:night@/socket?db=zero",
    "unix://:mid#night@/socket",
]


@pytest.mark.parametrize("url", UNESCAPED)
@pytest.mark.parametrize("place", ["GROUPQUEUE", "CACHES"])
def test_a_url_that_falls_apart_is_refused_without_showing_a_part_of_the_password(
    settings: Settings, url: str, place: str
) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": url if place == "GROUPQUEUE" else "queue"}}
    options = {"CLIENT_CLASS": "django_redis.client.DefaultClient"}
    backend = "django_redis.cache.RedisCache"
    settings.CACHES = {"queue": {"BACKEND": backend, "LOCATION": url, "OPTIONS": options}}

    with pytest.raises(ConfigurationError) as refusal:
        location("default")
    said = operate("stats")

    assert said.code == 2
    assert str(refusal.value).startswith(place)
    told = "".join(traceback.format_exception(refusal.value)) + said.trouble
    for part in ("night", "user:12", ":12 ", " 12"):
        assert part not in told


@pytest.mark.parametrize(
    "connection", [":night://x@host", "user:night://host", ":night", "night night", "://night", 7]
)
def test_what_is_no_connection_at_all_is_not_shown(settings: Settings, connection: object) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": connection}}

    said = operate("stats")

    assert said.code == 2
    assert "night" not in said.trouble
    assert "night" not in str(conf.faults())


@pytest.mark.parametrize(
    "handed",
    [
        "redis://:night@host:1/0",
        redis.asyncio.Redis(host="host", password="night"),
        {"password": "night"},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_callable_returns_instead_of_a_client_is_not_shown(
    settings: Settings, handed: object
) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": lambda: handed}}

    with pytest.raises(ConfigurationError, match=r"must lead to a redis\.Redis client") as refusal:
        location("default")

    assert "night" not in str(refusal.value)


def test_a_client_of_the_wrong_kind_is_not_shown() -> None:
    class Telling:
        """Shows its password, as some drivers' clients do."""

        def __repr__(self) -> str:
            return "<password=night>"

    wrong: Any = Telling()
    for transport in (RedisTransport, AsyncRedisTransport):
        with pytest.raises(InvalidArgument) as refusal:
            transport(wrong, "gq:{default:0}")
        assert "night" not in str(refusal.value)
