"""Are a message's options checked, and made into what the scripts read?"""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from groupqueue.core.messages import EnvelopeOptions, Outgoing
from groupqueue.core.options import LONGEST_DELAY_MS, due_text, envelope_options
from groupqueue.exceptions import InvalidMessage

NOON = datetime.datetime(2027, 3, 1, 12, tzinfo=datetime.UTC)
NOON_MS = "1803902400000"
MINUTE = datetime.timedelta(minutes=1)


def made(
    *, group: str | None = "g", content: bytes = b"body", aware_only: bool = True, **given: Any
) -> EnvelopeOptions:
    """Return what options come to, those not given being left out."""
    message = Outgoing("t", None, group=group, **given)
    assert message.has_options
    return envelope_options(message, content, default_dedup_window=300.0, aware_only=aware_only)


def made_with_key(**given: Any) -> EnvelopeOptions:
    """Return what options with a dedup key come to."""
    return made(**{"dedup_key": "key"} | given)


def test_a_message_without_options_has_none():
    for hold in (False, None, 0):
        message = Outgoing("t", None, group="g", priority=3, headers={"a": 1}, hold=hold)
        assert not message.has_options


@pytest.mark.parametrize(
    "option",
    [
        {"delay": 0},
        {"eta": NOON},
        {"hold": True},
        {"dedup_key": ""},
        {"dedup_window": 1},
        {"expires_in": 0},
        {"width": 1},
    ],
)
def test_each_option_is_one(option: dict[str, Any]):
    assert Outgoing("t", None, group="g", **option).has_options


# When it is due --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "due"),
    [
        ({"delay": 0}, "+0"),
        ({"delay": 1.5}, "+1500"),
        ({"delay": MINUTE}, "+60000"),
        ({"delay": datetime.timedelta(days=365)}, "+31536000000"),
        ({"eta": NOON}, NOON_MS),
        ({"eta": NOON.astimezone(datetime.timezone(MINUTE * 330))}, NOON_MS),
        ({"eta": NOON + datetime.timedelta(microseconds=1500)}, "1803902400002"),
        ({"eta": datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC)}, "1"),
    ],
)
def test_a_delay_counts_from_the_server_and_an_eta_is_a_moment(given, due: str):
    assert made(**given) == EnvelopeOptions(due=due)
    assert due_text(given.get("delay"), given.get("eta"), aware_only=True) == due


def test_a_naive_eta_is_local_time_in_a_project_without_time_zones():
    naive = datetime.datetime(2027, 3, 1, 12)  # noqa: DTZ001 - that is the point

    options = made(eta=naive, aware_only=False)

    assert options == EnvelopeOptions(due=str(round(naive.timestamp() * 1000)))


def test_a_hold_goes_with_a_moment():
    assert made(hold=True, delay=5) == EnvelopeOptions(due="+5000", hold=True)
    assert made(hold=True, eta=NOON) == EnvelopeOptions(due=NOON_MS, hold=True)


@pytest.mark.parametrize("width", [1, 2, 1000])
def test_a_width_goes_as_it_is_given(width: int):
    assert made(width=width) == EnvelopeOptions(width=width)


@pytest.mark.parametrize("width", [0, -1, 1001, True, 2.0, "2"])
def test_what_is_no_width_is_refused(width: object):
    with pytest.raises(InvalidMessage, match="width must be an integer from 1 to 1000"):
        made(width=width)


def test_a_message_in_a_group_of_its_own_has_no_width():
    with pytest.raises(InvalidMessage, match="width needs a group"):
        made(width=2, group=None)


# Expiry and dedup ------------------------------------------------------------------------------


@pytest.mark.parametrize(("expires_in", "expires_ms"), [(0.001, 1), (90, 90_000), (MINUTE, 60_000)])
def test_an_expiry_counts_from_the_server(expires_in, expires_ms: int):
    assert made(expires_in=expires_in) == EnvelopeOptions(expires_ms=expires_ms)


def test_a_dedup_key_has_the_queues_window_unless_it_brings_its_own():
    queues = made_with_key()
    own = made_with_key(dedup_window=MINUTE)

    assert (queues.dedup_key, queues.dedup_ms) == ("key", 300_000)
    assert own.dedup_ms == 60_000


def test_equal_content_has_one_digest_whatever_else_is_said():
    first = made_with_key()
    again = made_with_key(dedup_key="other", delay=5, expires_in=9, dedup_window=1)

    assert first.digest == again.digest
    assert len(first.digest) == 32


def test_other_content_and_other_groups_have_other_digests():
    contents = [("g", b"body"), ("g", b"Body"), ("h", b"body"), (None, b"body"), ("gb", b"ody")]
    contents += [("é" * 256, b"body"), ("é" * 255, b"body")]

    digests = {made_with_key(group=group, content=body).digest for group, body in contents}

    assert len(digests) == len(contents)


@pytest.mark.parametrize("key", ["k", "k" * 512, "é" * 256, "a:b {c}\n"])
def test_any_other_text_is_a_dedup_key(key: str):
    assert made_with_key(dedup_key=key).dedup_key == key


# Refusals --------------------------------------------------------------------------------------

TOO_LONG = LONGEST_DELAY_MS / 1000 + 1
REFUSED = [
    ({"delay": -1}, "delay must be from 0 seconds to 100 years, or such a timedelta, not -1"),
    ({"delay": -MINUTE}, "delay must be from 0 seconds"),
    ({"delay": "5"}, "delay must be from 0 seconds to 100 years, or such a timedelta, not '5'"),
    ({"delay": True}, "delay must be from 0 seconds"),
    ({"delay": float("nan")}, "delay must be from 0 seconds"),
    ({"delay": float("inf")}, "delay must be from 0 seconds"),
    ({"delay": TOO_LONG}, "delay must be from 0 seconds to 100 years"),
    ({"delay": 1, "eta": NOON}, "delay and eta exclude each other"),
    ({"eta": NOON.replace(tzinfo=None)}, "eta must be an aware datetime under USE_TZ"),
    ({"eta": NOON.date()}, "eta must be a datetime, not datetime.date"),
    ({"eta": 1803902400}, "eta must be a datetime, not 1803902400"),
    ({"hold": True}, "hold=True needs a delay or an eta"),
    ({"hold": True, "dedup_key": "k"}, "hold=True needs a delay or an eta"),
    ({"expires_in": 0}, "expires_in must be from 0.001 seconds to 100 years"),
    ({"expires_in": -5}, "expires_in must be from 0.001 seconds"),
    ({"expires_in": TOO_LONG}, "expires_in must be from 0.001 seconds"),
    ({"expires_in": NOON}, "expires_in must be from 0.001 seconds"),
    ({"dedup_window": 5}, "dedup_window needs a dedup_key"),
    ({"dedup_key": "k", "dedup_window": 0}, "dedup_window must be from 0.001 seconds"),
    ({"dedup_key": 17}, "dedup_key must be a str, not 17"),
    ({"dedup_key": b"k"}, "dedup_key must be a str, not b'k'"),
    ({"dedup_key": ""}, "a dedup_key has 1 to 512 bytes, not 0"),
    ({"dedup_key": "k" * 513}, "a dedup_key has 1 to 512 bytes, not 513"),
    ({"dedup_key": "é" * 257}, "a dedup_key has 1 to 512 bytes, not 514"),
    ({"dedup_key": "\ud800"}, "cannot be written as UTF-8"),
]


@pytest.mark.parametrize(("given", "complaint"), REFUSED)
def test_what_is_no_option_is_refused_by_name(given, complaint: str):
    with pytest.raises(InvalidMessage) as caught:
        made(**given)

    assert complaint in str(caught.value)


def test_a_moment_beyond_the_calendar_is_refused():
    with pytest.raises(InvalidMessage, match="is not a moment that can be told"):
        made(eta=datetime.datetime(1, 1, 1), aware_only=False)  # noqa: DTZ001 - that is the point


def test_rescheduling_needs_a_moment():
    with pytest.raises(InvalidMessage, match="give a delay or an eta"):
        due_text(None, None, aware_only=True)
