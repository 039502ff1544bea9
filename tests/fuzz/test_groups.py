"""Does a group of any name go all the way: published, claimed, explained, shown, purged?"""

from __future__ import annotations

from typing import Any

import pytest
import redis
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from hypothesis import example, given
from hypothesis import strategies as st
from pytest_django import Settings

from groupqueue import publish
from groupqueue.admin import wording
from groupqueue.core.calls import Settlement
from groupqueue.exceptions import InvalidMessage
from groupqueue.queues import get_queue
from groupqueue.transport.connections import get_transport
from tests.admin.conftest import look
from tests.fuzz.fuzzing import GROUPS, fuzzed
from tests.operating.conftest import operate
from tests.servers import Server

# What a shard keeps for good, and what goes by itself.
KEPT = {"backlog", "dead", "fence", "meta", "stats", "wake"}
EXPIRING = ("dedup:", "publisher:", "stats:")
STRANGE = (
    "\0", "\ud7ff", "\U0010ffff", "{a}:{b}", "..", "%00%2F", " ", "\r\n", "-", "é" * 256, "g" * 512,
)  # fmt: skip


@pytest.fixture
def queue_url(server: Server, settings: Settings) -> str:
    """Have the default queue on each kind of server."""
    settings.GROUPQUEUE = {"default": {"CONNECTION": server.url}}
    return server.url


@pytest.fixture
def manager(db: None) -> Client:
    """Somebody who may do everything in the admin."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def assert_nothing_left(client: redis.Redis) -> None:
    """Hold that no key is left but the fixed few, and those that are about to go."""
    prefix = get_queue().prefix + ":"
    left = {key.decode("utf-8", "replace").removeprefix(prefix) for key in client.keys("*")}
    assert {name for name in left - KEPT if not name.startswith(EXPIRING)} == set()


def strange(test: Any) -> Any:
    """Try groups of which one could expect trouble, beside the random ones."""
    for group in STRANGE:
        test = example(group)(test)
    return test


def test_a_group_goes_all_the_way_through_whatever_its_name(
    queue_url: str, redis_client: redis.Redis, manager: Client
) -> None:
    page_url = reverse("admin:groupqueue_groupqueue_changelist")

    @given(GROUPS)
    @fuzzed(20)
    @strange
    def try_it(group: str) -> None:
        redis_client.flushdb()
        for number in range(2):
            publish("note", {"n": number}, group=group, on_commit=False)
        lease = get_transport().claim("worker", 60)
        assert lease is not None
        assert lease.group == group
        assert get_queue().explain(group).state == "leased"
        get_transport().settle(Settlement.halt(lease, group, group))

        said = operate("explain", "--json", "--", group)
        assert (said.code, said.document["group"], said.document["state"]) == (0, group, "halted")
        assert operate("explain", "--", group).out.replace("\n", "").isprintable()

        page = look(manager, page_url)
        [row] = page.tables["held"]
        # The page's reader folds white space, as browsers do.
        assert row["Group"].title == wording.printable(group)
        resume = page.action("resume", page.actions()[0].fields["group"])
        assert manager.post(resume.action, resume.fields).status_code == 302
        assert get_queue().explain(group).state == "due"
        entry = LogEntry.objects.latest("id").get_admin_url()
        assert manager.get(entry or "")["Location"] == f"{page_url}?queue=default"

        assert get_queue().purge(group) == 2
        assert get_queue().explain(group).state == "empty"
        assert_nothing_left(redis_client)

    try_it()


def test_everything_that_a_group_can_have_goes_with_it(
    queue_url: str, redis_client: redis.Redis
) -> None:
    @given(GROUPS)
    @fuzzed(40)
    @strange
    def try_it(group: str) -> None:
        redis_client.flushdb()
        queue, transport = get_queue(), get_transport()
        ids = [publish("note", n, group=group, width=2, on_commit=False) for n in range(3)]
        leases = [transport.claim("worker", 60) for _ in range(2)]
        assert [lease and lease.group for lease in leases] == [group, group]
        assert [lease and lease.id for lease in leases] == ids[:2]
        later = publish("note", 3, group=group, delay=60, dedup_key=group[:50], on_commit=False)
        [scheduled] = queue.scheduled().messages
        assert (scheduled.id, scheduled.group) == (later, group)
        assert queue.cancel(later)
        queue.set_rate("10/m", group)
        queue.set_rate(None, group)
        assert queue.set_tier(group, 3)
        assert leases[0] is not None
        transport.settle(Settlement.dead(leases[0], group, group))
        [letter] = queue.dead_letters().letters
        assert letter.group == group
        assert queue.redrive() == 1
        queue.release(group)
        assert queue.purge(group) == 3
        assert_nothing_left(redis_client)

    try_it()


@given(st.text().map(lambda text: text + "\ud800") | st.text(min_size=1).map(lambda t: t * 513))
@fuzzed(50)
def test_what_is_no_name_of_a_group_is_refused(group: str) -> None:
    with pytest.raises(InvalidMessage):
        publish("note", 1, group=group, on_commit=False)
    assert operate("explain", "--", group).code == 2
