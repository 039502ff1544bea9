"""What happens when an operator presses a button of the admin's page?"""

from __future__ import annotations

import pytest
import redis
from django.contrib.admin.models import CHANGE, LogEntry
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from groupqueue.core.calls import Settlement
from groupqueue.queues import get_queue
from groupqueue.transport.redis import RedisTransport
from tests.admin.conftest import Configure, act_url, control_url, look
from tests.servers import Server, free_port

pytestmark = pytest.mark.django_db

STRANGE = 'a/b "c" <d>&%41\x00\r\n\u202e日本'


def halt(shard: RedisTransport, group: str, *, messages: int) -> str:
    """Halt a group, the only one that is due; return its head's id."""
    for _ in range(messages):
        shard.publish(group, b"")
    lease = shard.claim("worker-1", visibility=300)
    assert lease is not None
    shard.settle(Settlement.halt(lease, "max_attempts", "ValueError"))
    return lease.id


def messages_of(response: HttpResponse) -> list[tuple[str, str]]:
    """Return level and text of the messages on the page that a redirect led to."""
    return [(message.level_tag, str(message)) for message in response.context["messages"]]


def test_pause_holds_the_group_and_says_who_did_it(
    manager: Client, shard: RedisTransport, page_url: str
) -> None:
    shard.publish("order-17", b"")
    form = look(manager, page_url).action("pause", "order-17")

    response = manager.post(form.action, form.fields, follow=True)

    (held,) = get_queue().snapshot().held
    assert (held.group, held.state) == ("order-17", "paused")
    assert held.held_reason == "by operator-0"
    assert messages_of(response) == [("success", "Paused group order-17.")]
    assert shard.claim("worker-1", visibility=30) is None


def test_resume_lets_a_halted_group_try_its_head_again(
    manager: Client, shard: RedisTransport, page_url: str
) -> None:
    head = halt(shard, "order-17", messages=2)
    form = look(manager, page_url).action("resume", "order-17")

    response = manager.post(form.action, form.fields, follow=True)

    assert messages_of(response) == [("success", "Resumed group order-17.")]
    lease = shard.claim("worker-1", visibility=30)
    assert lease is not None
    assert (lease.id, lease.failures, lease.deliveries) == (head, 0, 1)


def test_skip_sets_the_head_aside_and_the_group_goes_on(
    manager: Client, shard: RedisTransport, default_client: redis.Redis, page_url: str
) -> None:
    head = halt(shard, "order-17", messages=2)
    form = look(manager, page_url).action("skip", "order-17")
    assert form.fields["message"] == head

    response = manager.post(form.action, form.fields, follow=True)

    assert messages_of(response) == [
        ("success", f"Skipped message {head}, the head of group order-17.")
    ]
    assert default_client.xlen(f"{shard.prefix}:dead") == 1
    lease = shard.claim("worker-1", visibility=30)
    assert lease is not None
    assert lease.id != head


def test_a_head_that_is_no_message_can_be_skipped_whatever_its_bytes(
    manager: Client, shard: RedisTransport, default_client: redis.Redis, page_url: str
) -> None:
    default_client.rpush(f"{shard.prefix}:q:order-17", b"\xff\n junk")
    halt(shard, "order-17", messages=1)
    form = look(manager, page_url).action("skip", "order-17")

    response = manager.post(form.action, form.fields, follow=True)

    [(level, _)] = messages_of(response)
    assert level == "success"
    [(_, letter)] = default_client.xrange(f"{shard.prefix}:dead")
    assert letter[b"element"] == b"\xff\n junk"


def test_the_same_skip_twice_skips_one_message(
    manager: Client, shard: RedisTransport, default_client: redis.Redis, page_url: str
) -> None:
    halt(shard, "order-17", messages=3)
    form = look(manager, page_url).action("skip", "order-17")

    manager.post(form.action, form.fields)
    response = manager.post(form.action, form.fields, follow=True)

    assert default_client.llen(f"{shard.prefix}:q:order-17") == 2
    (level, text), *_ = messages_of(response)[-1:]
    assert level == "warning"
    assert "is not the head of order-17" in text
    assert LogEntry.objects.count() == 1


def test_the_head_in_a_workers_hands_is_not_skipped(
    manager: Client, shard: RedisTransport, default_client: redis.Redis
) -> None:
    shard.publish("order-17", b"")
    lease = shard.claim("worker-1", visibility=300)
    assert lease is not None

    fields = {"queue": "default", "group": "order-17", "message": lease.id}
    response = manager.post(act_url("skip"), fields, follow=True)

    ((level, text),) = messages_of(response)
    assert level == "warning"
    assert "a worker holds group order-17" in text
    assert default_client.llen(f"{shard.prefix}:q:order-17") == 1


def test_what_is_done_already_is_said_and_not_logged(
    manager: Client, shard: RedisTransport
) -> None:
    shard.publish("order-17", b"")
    fields = {"queue": "default", "group": "order-17"}

    response = manager.post(act_url("resume"), fields, follow=True)
    assert messages_of(response) == [("warning", "Group order-17 is not held any more.")]
    get_queue().pause("order-17")
    response = manager.post(act_url("pause"), fields, follow=True)
    assert messages_of(response) == [("warning", "Group order-17 is held already.")]

    assert not LogEntry.objects.exists()


def test_what_is_done_is_logged_with_group_and_operator(
    manager: Client, shard: RedisTransport, page_url: str
) -> None:
    head = halt(shard, "order-17", messages=2)
    form = look(manager, page_url).action("skip", "order-17")

    manager.post(form.action, form.fields)

    entry = LogEntry.objects.get()
    assert entry.object_repr == "default/order-17"
    assert entry.action_flag == CHANGE
    assert entry.user.get_username() == "operator-0"
    assert entry.get_change_message() == f"Skipped message {head}, the head of group order-17."


def test_a_queue_is_stopped_and_started_and_both_are_logged(
    manager: Client, shard: RedisTransport, page_url: str
) -> None:
    shard.publish("order-17", b"")
    (form,) = look(manager, page_url).controls()
    assert form.name() == "stop"

    response = manager.post(form.action, form.fields, follow=True)

    assert messages_of(response) == [("success", "Stopped queue default.")]
    assert get_queue().snapshot().stopped_reason == "by operator-0"
    assert shard.claim("worker-1", visibility=30) is None
    (form,) = look(manager, page_url).controls()
    assert form.name() == "start"
    response = manager.post(form.action, form.fields, follow=True)
    assert messages_of(response) == [("success", "Started queue default.")]
    assert shard.claim("worker-1", visibility=30) is not None
    entries = LogEntry.objects.order_by("pk")
    assert [entry.object_repr for entry in entries] == ["default", "default"]
    assert [entry.get_change_message() for entry in entries] == [
        "Stopped queue default.",
        "Started queue default.",
    ]
    url = entries[0].get_admin_url()
    assert url is not None
    assert manager.get(url)["Location"] == f"{page_url}?queue=default"


def test_a_queue_that_is_stopped_already_is_said_to_be_and_nothing_is_logged(
    manager: Client, shard: RedisTransport
) -> None:
    response = manager.post(control_url("start"), {"queue": "default"}, follow=True)
    assert messages_of(response) == [("warning", "Queue default is not stopped any more.")]
    get_queue().stop()
    response = manager.post(control_url("stop"), {"queue": "default"}, follow=True)
    assert messages_of(response) == [("warning", "Queue default is stopped already.")]

    assert not LogEntry.objects.exists()


def test_a_log_entry_leads_to_the_page_of_its_queue(
    manager: Client, shard: RedisTransport, page_url: str
) -> None:
    shard.publish("order/17", b"")
    manager.post(act_url("pause"), {"queue": "default", "group": "order/17"})
    url = LogEntry.objects.get().get_admin_url()
    assert url is not None
    assert url in manager.get(reverse("admin:index")).content.decode()

    response = manager.get(url)

    assert response["Location"] == f"{page_url}?queue=default"


def test_a_strange_group_id_survives_the_way_through_a_browser(
    manager: Client, shard: RedisTransport, page_url: str
) -> None:
    shard.publish(STRANGE, b"")
    (form,) = look(manager, page_url).actions()
    # Browsers change line ends and drop NULs: the form's value has neither.
    assert form.fields["group"].isascii()
    assert form.fields["group"].isprintable()

    manager.post(form.action, form.fields)

    assert [group.group for group in get_queue().snapshot().held] == [STRANGE]
    # Databases refuse NULs, so the log has the id as the page shows it.
    entry = LogEntry.objects.get()
    assert "\x00" not in entry.object_id + entry.object_repr + entry.change_message
    assert "\\x00\\r\\n\\u202e日本" in entry.object_repr


def test_the_operator_comes_back_to_the_same_queue(
    manager: Client, configure: Configure, default_server: Server, shard: RedisTransport,
    page_url: str,
) -> None:  # fmt: skip
    configure({name: {"CONNECTION": default_server.url} for name in ("default", "invoices")})

    response = manager.post(act_url("pause"), {"queue": "invoices", "group": "invoice-9"})

    assert response["Location"] == f"{page_url}?queue=invoices"
    assert get_queue("invoices").resume("invoice-9")
    assert not get_queue("default").resume("invoice-9")


def test_a_form_that_makes_no_sense_changes_nothing(manager: Client, shard: RedisTransport) -> None:
    group = {"group": "order-17"}

    assert manager.post(act_url("explode"), {"queue": "default", **group}).status_code == 404
    assert manager.post(act_url("pause"), {"queue": "nope", **group}).status_code == 404
    assert manager.post(act_url("pause"), group).status_code == 404
    assert manager.post(act_url("stop"), {"queue": "default", **group}).status_code == 404
    assert manager.post(control_url("pause"), {"queue": "default", **group}).status_code == 404
    assert manager.post(control_url("stop"), {"queue": "nope"}).status_code == 404
    assert manager.post(control_url("stop")).status_code == 404
    assert manager.post(act_url("pause"), {"queue": "default"}).status_code == 400
    response = manager.post(act_url("pause"), {"queue": "default", "group": "x" * 513}, follow=True)
    ((level, text),) = messages_of(response)
    assert level == "error"
    assert "513 bytes" in text

    assert not LogEntry.objects.exists()
    assert get_queue().snapshot().held == ()


def test_redis_down_is_an_error_message_and_nothing_is_logged(
    manager: Client, configure: Configure
) -> None:
    configure({"default": {"CONNECTION": f"redis://127.0.0.1:{free_port()}/0"}})

    for action in ("pause", "resume", "skip"):
        response = manager.post(
            act_url(action), {"queue": "default", "group": "order-17"}, follow=True
        )

        assert response.status_code == 200
        ((level, text),) = messages_of(response)
        assert level == "error"
        assert "Redis is not available" in text
    assert not LogEntry.objects.exists()


def test_a_server_that_hangs_does_not_hold_the_operator_up(
    manager: Client, configure: Configure, own_server: Server
) -> None:
    configure({"default": {"CONNECTION": own_server.url}})
    own_server.pause()
    try:
        fields = {"queue": "default", "group": "order-17"}
        response = manager.post(act_url("pause"), fields, follow=True)
    finally:
        own_server.resume()

    ((level, text),) = messages_of(response)
    assert level == "error"
    assert "is not known" in text
