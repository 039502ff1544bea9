"""Can anything that strangers wrote change what the admin's pages are made of?

Each page is opened twice: with harmless strings everywhere, and with hostile ones. Its
tags and attributes must be the same.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import pytest
import redis
from django.contrib.admin.models import LogEntry
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from groupqueue.admin import wording
from groupqueue.admin.actions import ACTIONS, QUEUE_ACTIONS
from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.codec import JSONCodec
from groupqueue.core.identifiers import new_id
from groupqueue.core.messages import Envelope, EnvelopeOptions
from groupqueue.queues import get_queue
from groupqueue.transport.redis import RedisTransport
from tests.admin.conftest import act_url, control_url, publish_and_claim
from tests.admin.reading import Page

pytestmark = pytest.mark.django_db

HOSTILE = [
    "\"><script>alert('x')</script>",
    "'><img src=x onerror=alert(1)>",
    "</title></textarea></style></script><!--",
    "{{ 7|add:7 }}{% debug %}%(group)s",
    "javascript:alert(1)//&lt;b&gt;",
    "a\x07\x1b[31m\x1b]0;x\x9b2J\x7f",
    "\u202e\u2066\u200f\u200b\ufeff\u2028\ue000\U000e0041",
    "\r\n\tSet-Cookie: a=b\r\n\r\n",
]
each = pytest.mark.parametrize("mark", HOSTILE, ids=ascii)
together = pytest.mark.parametrize(
    "mark", ["".join(HOSTILE[:5]), "".join(HOSTILE[5:])], ids=["markup", "invisible"]
)


def harmless(mark: str) -> str:
    """Return a string that fills as much space."""
    return "x" * len(wording.printable(mark))


def publish(shard: RedisTransport, group: str, mark: str, **options: object) -> str:
    """Publish a message that has the mark in all its parts; return its id."""
    identifier = new_id()
    body = JSONCodec().encode(mark, {mark: [mark]}, {mark: mark})
    envelope = Envelope(identifier, group, 1, body, EnvelopeOptions(**options))
    shard.publish_envelopes([envelope])
    return identifier


def fill(shard: RedisTransport, client: redis.Redis, mark: str) -> None:
    """Have strangers' strings wherever the server keeps any, and a group in each state."""
    halted = publish_and_claim(shard, f"halted {mark}", 1, messages=2)
    shard.settle(Settlement.halt(halted, mark, mark))
    parked = publish_and_claim(shard, f"parked {mark}", 1, messages=1)
    shard.nack(parked, delay=300, error=mark)
    dead = publish_and_claim(shard, f"dead {mark}", 1, messages=1)
    shard.settle(Settlement.dead(dead, mark, mark))
    publish(shard, f"leased {mark}", mark)
    assert shard.claim(f"worker {mark}", visibility=300) is not None
    for _ in range(2):
        publish(shard, f"wide {mark}", mark, width=3)
    assert shard.claim(f"worker {mark}", visibility=300) is not None
    publish(shard, f"held {mark}", mark, due="+300000", hold=True)
    publish(shard, f"later {mark}", mark, due="+300000")
    publish(shard, f"due {mark}", mark)
    raw = f"raw {mark}"
    publish(shard, raw, mark)
    client.lset(f"{shard.prefix}:q:{raw}", 0, f"no message {mark}")
    get_queue().pause(raw, mark)
    get_queue().pause(f"paused {mark}", mark)
    names = ("name", "host", "pid", "queues", "concurrency", "state", "processed", "failed")
    fields: dict[str, str | int] = {**dict.fromkeys(names, mark), mark: mark}
    shard.perform(calls.heartbeat(shard.prefix, f"worker {mark}", fields, kept_ms=60_000))
    client.hincrby(f"{shard.prefix}:stats", mark, 5)
    get_queue().stop(mark)


def made_of(response: HttpResponse) -> list[tuple[str, tuple[str, ...]]]:
    """Return the tags of a page with the names of their attributes; nothing is inline."""
    assert response.status_code == 200
    page = Page(response)
    assert page.inline == []
    assert [line for line in page.html.split("\n") if not line.isprintable()] == []
    return [(tag, tuple(sorted(given))) for tag, given in page.tags]


def compare(
    shard: RedisTransport,
    client: redis.Redis,
    mark: str,
    look: Callable[[str], HttpResponse],
) -> str:
    """Hold that a page is made of the same with the mark as without; return its text with it."""
    pages = []
    for written in (harmless(mark), mark):
        client.flushdb()
        fill(shard, client, written)
        pages.append(look(written))
    assert made_of(pages[1]) == made_of(pages[0])
    return pages[1].content.decode()


@each
@pytest.mark.parametrize("name", ["changelist", "live"])
def test_the_page_stays_what_it_is(
    manager: Client, shard: RedisTransport, default_client: redis.Redis, name: str, mark: str
) -> None:
    url = reverse(f"admin:groupqueue_groupqueue_{name}")

    html = compare(shard, default_client, mark, lambda _: manager.get(url))

    tables = Page(HttpResponse(html)).tables
    counted = {table: len(tables[table]) for table in ("waiting", "leased", "held", "parked")}
    assert counted == {"waiting": 2, "leased": 2, "held": 3, "parked": 2}
    for table in counted:
        assert wording.printable(mark) in tables[table][0]["Group"].title


@together
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("state", ["due", "leased", "halted", "raw"])
@pytest.mark.parametrize("then", ["changelist", "index"])
def test_what_is_said_of_an_action_and_what_is_logged_stay_text(
    manager: Client,
    shard: RedisTransport,
    default_client: redis.Redis,
    *,
    action: str,
    state: str,
    then: str,
    mark: str,
) -> None:
    def act(written: str) -> HttpResponse:
        LogEntry.objects.all().delete()
        group = f"{state} {written}"
        head = get_queue().explain(group).group.head_id
        # As the page's own forms have them.
        form = {"queue": "default", "group": quote(group, safe="")}
        form["message"] = quote(head, safe="", errors="surrogateescape")
        response = manager.post(act_url(action), form, follow=then == "changelist")
        return response if then == "changelist" else manager.get(reverse("admin:index"))

    compare(shard, default_client, mark, act)


@together
@pytest.mark.parametrize("action", QUEUE_ACTIONS)
def test_what_is_said_of_an_action_on_the_queue_stays_text(
    manager: Client, shard: RedisTransport, default_client: redis.Redis, action: str, mark: str
) -> None:
    form = {"queue": "default"}

    compare(
        shard,
        default_client,
        mark,
        lambda _: manager.post(control_url(action), form, follow=True),
    )


@together
def test_an_error_that_quotes_a_strangers_string_stays_text(
    manager: Client, shard: RedisTransport, default_client: redis.Redis, mark: str
) -> None:
    def act(written: str) -> HttpResponse:
        group = f"wrong {written}"
        default_client.set(f"{shard.prefix}:q:{group}", "foreign")
        return manager.post(act_url("pause"), {"queue": "default", "group": group}, follow=True)

    html = compare(shard, default_client, mark, act)

    assert "holds a value of another type" in html


@together
def test_a_queue_that_is_not_there_is_no_place_for_strings(viewer: Client, mark: str) -> None:
    page = reverse("admin:groupqueue_groupqueue_changelist")

    response = viewer.get(page, {"queue": mark})

    assert response.status_code == 404
    assert mark not in response.content.decode()
