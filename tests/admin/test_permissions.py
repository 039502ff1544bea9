"""Who may see the admin's page of group queues, and who may act on it?"""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import NoReverseMatch, reverse

from groupqueue.admin.actions import ACTIONS, QUEUE_ACTIONS
from groupqueue.queues import get_queue
from groupqueue.transport.redis import RedisTransport
from tests.admin.conftest import SignIn, act_url, control_url, look

pytestmark = pytest.mark.django_db


def test_a_visitor_is_sent_to_the_login(client: Client, page_url: str, live_url: str) -> None:
    for url in (page_url, live_url):
        response = client.get(url)

        assert response.status_code == 302
        assert response["Location"].startswith(reverse("admin:login"))


def test_a_visitor_cannot_act(client: Client, shard: RedisTransport) -> None:
    shard.publish("order-17", b"")

    for action in ACTIONS:
        response = client.post(act_url(action), {"queue": "default", "group": "order-17"})

        assert response["Location"].startswith(reverse("admin:login"))
    assert get_queue().snapshot().held == ()


def test_staff_without_a_permission_are_refused_everywhere(
    sign_in: SignIn, shard: RedisTransport, page_url: str, live_url: str
) -> None:
    shard.publish("order-17", b"")
    client = sign_in("view_user")

    assert client.get(page_url).status_code == 403
    assert client.get(live_url).status_code == 403
    assert client.get(_entry_url("default/order-17")).status_code == 403
    for action in ACTIONS:
        response = client.post(act_url(action), {"queue": "default", "group": "order-17"})
        assert response.status_code == 403
    assert get_queue().snapshot().held == ()


def test_staff_without_a_permission_find_no_entry_in_the_sidebar(
    sign_in: SignIn, page_url: str
) -> None:
    assert page_url not in sign_in("view_user").get(reverse("admin:index")).content.decode()


def test_a_viewer_finds_the_page_in_the_sidebar(viewer: Client, page_url: str) -> None:
    index = viewer.get(reverse("admin:index")).content.decode()

    assert f'href="{page_url}"' in index
    assert "Group queues" in index


def test_a_viewer_sees_groups_but_no_buttons(
    viewer: Client, shard: RedisTransport, page_url: str
) -> None:
    shard.publish("order-17", b"")

    page = look(viewer, page_url)

    assert page.groups("waiting") == ["order-17"]
    assert page.actions() == []
    assert "Actions" not in page.tables["waiting"][0]


def test_a_viewer_who_acts_is_refused(viewer: Client, shard: RedisTransport) -> None:
    shard.publish("order-17", b"")

    for action in ACTIONS:
        response = viewer.post(act_url(action), {"queue": "default", "group": "order-17"})
        assert response.status_code == 403

    assert get_queue().snapshot().held == ()
    assert not LogEntry.objects.exists()


def test_a_manager_has_buttons(manager: Client, shard: RedisTransport, page_url: str) -> None:
    shard.publish("order-17", b"")

    page = look(manager, page_url)

    assert [form.name() for form in page.actions()] == ["pause"]
    assert page.action("pause", "order-17").method == "post"


def test_whoever_may_manage_may_look(sign_in: SignIn, shard: RedisTransport, page_url: str) -> None:
    assert sign_in("manage_groupqueue").get(page_url).status_code == 200


def test_actions_are_taken_by_post_alone(manager: Client, shard: RedisTransport) -> None:
    shard.publish("order-17", b"")

    for action in ACTIONS:
        response = manager.get(act_url(action), {"queue": "default", "group": "order-17"})
        assert response.status_code == 405

    assert get_queue().snapshot().held == ()


def test_an_action_without_the_csrf_token_is_refused(
    sign_in: SignIn, shard: RedisTransport, page_url: str
) -> None:
    shard.publish("order-17", b"")
    client = sign_in("manage_groupqueue", enforce_csrf_checks=True)
    form = look(client, page_url).action("pause", "order-17")

    without = {name: value for name, value in form.fields.items() if "csrf" not in name}
    assert client.post(form.action, without).status_code == 403
    assert get_queue().snapshot().held == ()

    assert client.post(form.action, form.fields).status_code == 302
    assert [group.group for group in get_queue().snapshot().held] == ["order-17"]


def test_there_is_nothing_to_add_change_or_delete(admin_client: Client, page_url: str) -> None:
    for name in ("add", "delete", "history"):
        with pytest.raises(NoReverseMatch):
            reverse(f"admin:groupqueue_groupqueue_{name}")

    index = admin_client.get(reverse("admin:index")).content.decode()
    assert f"{page_url}add/" not in index


def test_the_page_asks_the_database_for_no_queue(
    viewer: Client, shard: RedisTransport, page_url: str
) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert viewer.get(page_url).status_code == 200

    assert not [query for query in queries if 'FROM "groupqueue' in query["sql"]]


@pytest.mark.parametrize("action", QUEUE_ACTIONS)
def test_nobody_but_a_manager_stops_or_starts_a_queue(
    client: Client, sign_in: SignIn, shard: RedisTransport, page_url: str, action: str
) -> None:
    if action == "start":
        get_queue().stop("by alice")
    before = get_queue().snapshot().stopped_reason

    response = client.post(control_url(action), {"queue": "default"})
    assert response["Location"].startswith(reverse("admin:login"))
    for permission in ("view_user", "view_groupqueue"):
        response = sign_in(permission).post(control_url(action), {"queue": "default"})
        assert response.status_code == 403
    assert look(sign_in("view_groupqueue"), page_url).controls() == []
    manager = sign_in("manage_groupqueue", enforce_csrf_checks=True)
    assert manager.get(control_url(action), {"queue": "default"}).status_code == 405
    assert manager.post(control_url(action), {"queue": "default"}).status_code == 403

    assert get_queue().snapshot().stopped_reason == before
    assert not LogEntry.objects.exists()


def _entry_url(object_id: str) -> str:
    return reverse("admin:groupqueue_groupqueue_change", args=[object_id])
