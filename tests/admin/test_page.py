"""What does the admin's page say of a queue?"""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest
import redis
from django.test import Client

from groupqueue import publish
from groupqueue.admin.groups import _state
from groupqueue.admin.page import ROWS_PER_LIST
from groupqueue.admin.tables import counters_of, tables_of
from groupqueue.core import calls
from groupqueue.core.calls import Settlement
from groupqueue.core.identifiers import new_id
from groupqueue.core.messages import Envelope, EnvelopeOptions
from groupqueue.core.snapshot import GroupState
from groupqueue.queues import get_queue
from groupqueue.transport import connections
from groupqueue.transport.redis import RedisTransport, raw_envelope
from tests.admin.conftest import look, publish_and_claim
from tests.transport import lua_files

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert('x')</script>\"&\x00\n\u202e"
HOSTILE_SHOWN = "<script>alert('x')</script>\"&\\x00\\n\\u202e"


def test_each_tier_is_counted_most_urgent_first(
    viewer: Client, busy_shard: RedisTransport, page_url: str
) -> None:
    page = look(viewer, page_url)

    counted = [
        [
            int(row[column].text)
            for column in (
                "Tier", "Groups", "Due", "Leased", "Parked", "Paused or halted", "Messages"
            )
        ]
        for row in page.tables["tiers"]
    ]  # fmt: skip
    assert counted == [
        [4, 3, 1, 1, 0, 1, 6],
        [3, 0, 0, 0, 0, 0, 0],
        [2, 1, 0, 0, 1, 0, 2],
        [1, 0, 0, 0, 0, 0, 0],
        [0, 2, 1, 0, 0, 1, 5],
    ]
    total = {column: cell.text for column, cell in page.totals["tiers"].items()}
    assert total["Tier"] == "All"
    assert [total[column] for column in ("Groups", "Due", "Leased", "Parked")] == [
        "6", "2", "1", "1",
    ]  # fmt: skip
    assert (total["Paused or halted"], total["Messages"]) == ("2", "13")


def test_the_longest_wait_is_given_in_words_and_exactly(
    viewer: Client, busy_shard: RedisTransport, default_client: redis.Redis, page_url: str
) -> None:
    default_client.zincrby(f"{busy_shard.prefix}:ready:0", -3_605_000, "due-2")

    page = look(viewer, page_url)

    lowest = page.tables["tiers"][-1]["Longest wait"]
    assert lowest.text == "1 h 0 min"
    assert lowest.title.startswith("3,6")
    assert lowest.title.endswith(" s")
    assert page.totals["tiers"]["Longest wait"].text == "1 h 0 min"
    assert page.groups("waiting") == ["due-2", "due-1"]
    assert page.tables["waiting"][0]["Waiting for"].text == "1 h 0 min"
    assert page.tables["waiting"][0]["Messages"].text == "4"


def test_a_leased_group_names_its_holder_token_and_time_left(
    viewer: Client, busy_shard: RedisTransport, default_client: redis.Redis, page_url: str
) -> None:
    token = default_client.get(f"{busy_shard.prefix}:lock:leased-1")

    (row,) = look(viewer, page_url).tables["leased"]

    assert row["Group"].text == "leased-1"
    assert row["State"].text == "leased"
    assert row["Holder"].text == "worker-1"
    assert row["Token"].text == token.decode()
    assert row["Lease left"].text.startswith("4 min")
    assert row["Deliveries"].text == "1"


def test_a_halted_group_says_why_and_shows_its_error(
    viewer: Client, busy_shard: RedisTransport, page_url: str
) -> None:
    page = look(viewer, page_url)

    rows = {row["Group"].text: row for row in page.tables["held"]}
    assert rows.keys() == {"halted-1", "paused-1"}
    halted = rows["halted-1"]
    assert halted["State"].text == "halted"
    assert halted["Reason"].text == "max_attempts"
    assert halted["Last error"].text == "ValueError: no such day"
    assert halted["Messages"].text == "3"
    assert halted["Deliveries"].text.startswith("1")
    assert halted["Held for"].title.startswith("20")
    assert rows["paused-1"]["State"].text == "paused"
    assert rows["paused-1"]["Reason"].text == "by alice"


def test_a_parked_group_says_when_it_is_due_and_what_failed(
    viewer: Client, busy_shard: RedisTransport, page_url: str
) -> None:
    (row,) = look(viewer, page_url).tables["parked"]

    assert row["Group"].text == "parked-1"
    assert row["State"].text == "parked"
    assert row["Due in"].text.startswith("4 min")
    assert row["Deliveries"].text == "1, 1 failed"
    assert row["Last error"].text == "TimeoutError: the bank did not answer"


def test_a_group_paused_while_leased_says_both(
    manager: Client, shard: RedisTransport, page_url: str
) -> None:
    publish_and_claim(shard, "order-17", 1, messages=2)
    get_queue().pause("order-17")

    page = look(manager, page_url)

    assert page.tables["leased"][0]["State"].text == "leased, then paused"
    # Its head belongs to the lease, so there is nothing to skip.
    assert {form.name() for form in page.actions()} == {"resume"}


def test_a_group_that_waits_for_its_rate_or_its_moment_says_so(
    viewer: Client, shard: RedisTransport, page_url: str
) -> None:
    get_queue().set_rate("1/h", "limited")
    for _ in range(2):
        shard.publish("limited", b"")
    lease = shard.claim("worker-1", visibility=300)
    assert lease is not None
    shard.ack(lease)
    assert shard.claim("worker-1", visibility=300) is None
    publish("note", 1, group="held", delay=7200, hold=True, on_commit=False)

    first, second = look(viewer, page_url).tables["parked"]

    assert (first["Group"].text, first["State"].text) == ("limited", "rate-limited, rate 1/h")
    assert first["Due in"].text.startswith("59 min")
    assert (second["Group"].text, second["State"].text) == ("held", "scheduled")


def test_every_state_has_a_label(shard: RedisTransport) -> None:
    shard.publish("order-17", b"")
    [view] = get_queue().snapshot().waiting

    for state in get_args(GroupState):
        cell = _state(dataclasses.replace(view, state=state))
        assert (cell.text, cell.badge) == (state, f"badge {state}")


def test_a_stopped_queue_says_since_when_and_why(
    viewer: Client, shard: RedisTransport, page_url: str, live_url: str
) -> None:
    shard.publish("order-17", b"")
    assert "has been stopped" not in look(viewer, page_url).html
    get_queue().stop(f"moving {HOSTILE}")

    for url in (page_url, live_url):
        page = look(viewer, url)

        assert "Queue “default” has been stopped since 20" in page.html
        assert "moving &lt;script&gt;" in page.html
        assert "<script>alert" not in page.html
        # What waits is shown as ever.
        assert page.groups("waiting") == ["order-17"]
        assert ("div", "status") in [(tag, given.get("role")) for tag, given in page.tags]


def test_the_queues_own_rate_is_shown(viewer: Client, shard: RedisTransport, page_url: str) -> None:
    assert "Rate of the whole queue" not in look(viewer, page_url).html

    get_queue().set_rate("100/s")

    assert "Rate of the whole queue: 100/s" in look(viewer, page_url).html


def test_workers_are_listed_and_a_silent_one_is_marked(
    viewer: Client, shard: RedisTransport, default_client: redis.Redis, page_url: str
) -> None:
    fields: dict[str, str | int] = {
        "host": "web-1",
        "pid": 4711,
        "name": "mail",
        "queues": "default,invoices",
        "concurrency": 16,
        "state": "working",
        "processed": 12_345,
        "failed": 3,
    }
    for worker in ("web-1:a", "web-1:b"):
        shard.perform(calls.heartbeat(shard.prefix, worker, fields, kept_ms=600_000))
    default_client.zincrby(f"{shard.prefix}:workers", -60_000, "web-1:b")

    rows = {row["Worker"].text: row for row in look(viewer, page_url).tables["workers"]}

    alive = {column: cell.text for column, cell in rows["web-1:a"].items()}
    assert alive["Name"] == "mail"
    assert alive["Host"] == "web-1"
    assert alive["Process"] == "4711"
    assert alive["Queues"] == "default,invoices"
    assert alive["Concurrency"] == "16"
    assert alive["State"] == "working"
    assert alive["Processed"] == "12,345"
    assert alive["Failed"] == "3"
    assert alive["Last heartbeat"].endswith("ago")
    assert rows["web-1:b"]["Last heartbeat"].text.startswith("silent for 1 min")


def test_a_worker_that_says_little_is_listed_all_the_same(
    viewer: Client, shard: RedisTransport, page_url: str
) -> None:
    shard.perform(calls.heartbeat(shard.prefix, "w", {"processed": "many"}, kept_ms=60_000))

    (row,) = look(viewer, page_url).tables["workers"]

    assert row["Processed"].text == "many"
    assert row["Host"].text == row["Failed"].text == "—"


def test_every_counter_has_a_label_of_its_own() -> None:
    names = lua_files.counters()
    snapshot = dataclasses.replace(get_queue().snapshot(), counters=dict.fromkeys(sorted(names), 1))

    labels = [label for label, _ in counters_of(snapshot)]

    assert len(names) > 10
    assert len(set(labels)) == len(labels) == len(names)
    assert not names & set(labels)
    # One that this page does not know, of a newer worker's, is shown as it is called.
    unknown = dataclasses.replace(snapshot, counters={"juggled": 1})
    assert [label for label, _ in counters_of(unknown)] == ["juggled"]


def test_counters_are_shown(viewer: Client, busy_shard: RedisTransport, page_url: str) -> None:
    counters = look(viewer, page_url).counters

    assert counters == {"Published": "13", "Delivered": "3", "Retried": "1", "Halted": "1"}


def test_an_empty_queue_says_so_in_sentences(
    viewer: Client, shard: RedisTransport, page_url: str
) -> None:
    page = look(viewer, page_url)

    assert page.tables.keys() == {"tiers"}
    assert "No group is waiting." in page.texts["waiting"]
    assert "No group is leased" in page.texts["leased"]
    assert "No group is halted or paused." in page.texts["held"]
    assert "No group is parked." in page.texts["parked"]
    assert "run_group_workers" in page.texts["workers"]
    assert "Nothing has been published yet." in page.texts["counters"]
    assert page.totals["tiers"]["Longest wait"].text == "—"


def test_strangers_strings_are_escaped_and_made_visible(
    manager: Client, shard: RedisTransport, page_url: str
) -> None:
    lease = publish_and_claim(shard, HOSTILE, 1, messages=2)
    shard.settle(Settlement.halt(lease, "<i>reason</i>", f"<b>{HOSTILE}</b>"))

    page = look(manager, page_url)

    (row,) = page.tables["held"]
    assert row["Group"].text == row["Group"].title == HOSTILE_SHOWN
    assert row["Reason"].text == "<i>reason</i>"
    assert "<script>alert('x')</script>" in row["Last error"].text
    assert page.inline == []
    for raw in ("<script>alert", "<i>", "<b>", "\x00", "\u202e"):
        assert raw not in page.html


def test_a_worker_cannot_write_into_the_page(
    viewer: Client, shard: RedisTransport, page_url: str
) -> None:
    fields: dict[str, str | int] = {"host": HOSTILE, "state": "<b>", "processed": "<i>"}
    shard.perform(calls.heartbeat(shard.prefix, HOSTILE, fields, kept_ms=60_000))

    page = look(viewer, page_url)

    assert page.tables["workers"][0]["Worker"].title == HOSTILE_SHOWN
    assert "<script>alert" not in page.html
    assert "<b>" not in page.html


def test_long_strings_are_cut_and_whole_on_hover(
    viewer: Client, shard: RedisTransport, page_url: str
) -> None:
    lease = publish_and_claim(shard, "g" * 512, 0, messages=1)
    shard.settle(Settlement.halt(lease, "max_attempts", "e" * 900))

    (row,) = look(viewer, page_url).tables["held"]

    assert row["Group"].text.endswith("…")
    assert len(row["Group"].text) < 60
    assert row["Group"].title == "g" * 512
    assert row["Last error"].text.endswith("…")
    assert row["Last error"].title == "e" * 900


def test_a_list_says_how_many_it_leaves_out(
    viewer: Client, shard: RedisTransport, page_url: str
) -> None:
    shard.publish_envelopes(
        [raw_envelope(f"order-{number}", b"", 0) for number in range(ROWS_PER_LIST + 5)]
    )

    page = look(viewer, page_url)

    assert len(page.tables["waiting"]) == ROWS_PER_LIST
    assert f"{ROWS_PER_LIST} of {ROWS_PER_LIST + 5} groups are shown." in page.texts["waiting"]


def test_more_leases_than_one_look_takes_in_are_said_to_be_more(shard: RedisTransport) -> None:
    whole = get_queue().snapshot()
    partial = dataclasses.replace(whole, leases_counted_fully=False)

    assert tables_of(whole, may_manage=False)[0].note == ""
    assert "more leases" in tables_of(partial, may_manage=False)[0].note


def test_failure_30_a_hundred_thousand_groups_take_one_call(
    viewer: Client, shard: RedisTransport, page_url: str, calls_made: list[str]
) -> None:
    for thousand in range(100):
        shard.publish_envelopes(
            [raw_envelope(f"g-{thousand}-{number}", b"", thousand % 5) for number in range(1000)]
        )
    calls_made.clear()

    page = look(viewer, page_url)

    assert calls_made == ["inspect"]
    assert page.totals["tiers"]["Groups"].text == "100,000"
    assert page.totals["tiers"]["Due"].text == "100,000"
    assert len(page.tables["waiting"]) == ROWS_PER_LIST


# Several queues -----------------------------------------------------------------------


def test_several_queues_have_a_link_each_and_one_call_is_made(
    viewer: Client, two_queues: None, page_url: str, calls_made: list[str]
) -> None:
    connections.get_transport("invoices").publish("invoice-9", b"")
    calls_made.clear()

    page = look(viewer, page_url, queue="invoices")

    assert calls_made == ["inspect"]
    assert page.groups("waiting") == ["invoice-9"]
    tabs = [
        (given["href"], given.get("aria-current"))
        for tag, given in page.tags
        if tag == "a" and "?queue=" in (given.get("href") or "")
    ]
    # The last one reloads the page.
    assert tabs == [
        (f"{page_url}?queue=default", None),
        (f"{page_url}?queue=invoices", "page"),
        (f"{page_url}?queue=invoices", None),
    ]


def test_a_wide_group_and_its_started_messages_are_told_apart(
    manager: Client, shard: RedisTransport, page_url: str
) -> None:
    options = EnvelopeOptions(width=3)
    ids = [new_id() for _ in range(3)]
    shard.publish_envelopes([Envelope(identifier, "wide", 0, b"", options) for identifier in ids])
    for number in range(2):
        lease = shard.claim("worker-1", visibility=300)
        assert lease is not None
        if number == 0:
            shard.settle(Settlement.halt(lease, "max_attempts", "boom"))

    page = look(manager, page_url)

    assert [row["Group"].text for row in page.tables["waiting"]] == ["wide (1 of 3 in flight)"]
    assert [row["Group"].text for row in page.tables["leased"]] == [f"wide {ids[1]}"]
    assert [row["Group"].text for row in page.tables["held"]] == [f"wide {ids[0]}"]
    assert page.groups("held") == page.groups("leased") == ["wide"]
    skip = page.action("skip", "wide")
    manager.post(skip.action, skip.fields)
    assert look(manager, page_url).groups("held") == []
    assert get_queue().dead_letters().letters[0].message.id == ids[0]


def test_without_a_name_the_first_queue_is_shown(
    viewer: Client, two_queues: None, page_url: str
) -> None:
    connections.get_transport("default").publish("order-17", b"")

    assert look(viewer, page_url).groups("waiting") == ["order-17"]


def test_an_unknown_queue_is_not_found(
    viewer: Client, shard: RedisTransport, page_url: str, live_url: str
) -> None:
    assert viewer.get(page_url, {"queue": "<nope>"}).status_code == 404
    assert viewer.get(live_url, {"queue": "<nope>"}).status_code == 404
