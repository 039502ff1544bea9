"""How is the admin's page made: fresh, reachable, and within a strict policy?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from groupqueue.transport.redis import RedisTransport
from tests.admin.conftest import look
from tests.admin.reading import Page

pytestmark = pytest.mark.django_db


def test_the_live_part_is_what_the_page_shows(
    manager: Client, busy_shard: RedisTransport, page_url: str, live_url: str, calls_made: list[str]
) -> None:
    page = look(manager, page_url)
    calls_made.clear()

    live = look(manager, live_url, queue="default")

    assert calls_made == ["inspect"]
    assert live.groups("waiting") == page.groups("waiting") == ["due-1", "due-2"]
    assert [form.fields["group"] for form in live.actions()] == [
        form.fields["group"] for form in page.actions()
    ]
    assert "<html" not in live.html


def test_the_page_names_the_address_of_its_live_part(
    viewer: Client, two_queues: None, page_url: str, live_url: str
) -> None:
    page = look(viewer, page_url, queue="invoices")

    (region,) = [given for _, given in page.tags if given.get("id") == "groupqueue-live"]
    assert region["data-url"] == f"{live_url}?queue=invoices"
    assert region["data-seconds"] == "5"


def test_the_page_needs_no_script_to_be_reloaded(
    viewer: Client, shard: RedisTransport, page_url: str
) -> None:
    page = look(viewer, page_url)

    links = [given.get("href") for tag, given in page.tags if tag == "a"]
    assert f"{page_url}?queue=default" in links
    (toggle,) = [given for _, given in page.tags if given.get("id") == "groupqueue-toggle"]
    assert "hidden" in toggle


def test_nothing_in_the_page_is_inline(
    manager: Client, busy_shard: RedisTransport, page_url: str
) -> None:
    page = look(manager, page_url)

    assert page.inline == []
    for tag, given in page.tags:
        assert "style" not in given, tag
        assert not [name for name in given if name.startswith("on")], tag
        assert not (given.get("href") or "").startswith("javascript:")


def test_the_static_files_are_there_and_use_no_colour_of_their_own(
    viewer: Client, shard: RedisTransport, page_url: str
) -> None:
    page = look(viewer, page_url)

    linked = {given.get("src") or given.get("href") for _, given in page.tags}
    for name in ("groupqueue/admin.css", "groupqueue/refresh.js"):
        assert f"/static/{name}" in linked
        assert finders.find(name)
    css = Path(finders.find("groupqueue/admin.css") or "").read_text()
    colours = re.findall(r"(?:^|\s)(?:color|background|border-color):\s*([^;]+);", css)
    assert colours
    for colour in colours:
        assert colour.startswith("var(--") or colour in ("inherit", "transparent")
    assert not re.search(r"#[0-9a-f]{3,8}\s*[;,)]|rgba?\(|hsla?\(", css)


def test_every_table_has_a_caption_and_scopes(
    manager: Client, busy_shard: RedisTransport, page_url: str
) -> None:
    page = look(manager, page_url)

    assert page.captions.keys() == page.tables.keys()
    assert all(page.captions.values())
    for tag, given in page.tags:
        if tag == "th":
            assert given.get("scope") in ("col", "row")


def test_state_changes_of_the_refresh_are_announced(
    viewer: Client, shard: RedisTransport, page_url: str
) -> None:
    page = look(viewer, page_url)

    (note,) = [given for _, given in page.tags if given.get("id") == "groupqueue-note"]
    assert note["role"] == "status"


def test_the_breadcrumbs_are_the_admins_own(
    viewer: Client, shard: RedisTransport, page_url: str
) -> None:
    assert Page(viewer.get(page_url)).html.count('class="breadcrumbs"') == 1
