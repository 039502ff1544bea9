"""Does the setting GROUPQUEUE become a frozen configuration, and is every slip named?"""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Any

import pytest
from django.core.signals import setting_changed

from groupqueue import conf
from groupqueue.conf import get_config
from groupqueue.core.codec import Content, JSONCodec
from groupqueue.core.rates import Rate, Rates
from groupqueue.core.retries import RetryPolicy
from groupqueue.exceptions import ConfigurationError, UnknownQueue

if TYPE_CHECKING:
    from pytest_django import Settings

URL = "redis://localhost:1/0"


class OwnCodec(JSONCodec):
    """A codec of the project's own."""


class DemandingCodec(JSONCodec):
    """A codec that cannot be made without a key."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key


own_codec = OwnCodec()


def configure(settings: Settings, **keys: Any) -> conf.QueueConfig:
    settings.GROUPQUEUE = {"default": {"CONNECTION": URL, **keys}}
    return get_config()


def error_of(settings: Settings, **keys: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        configure(settings, **keys)
    return str(caught.value)


def test_a_connection_is_all_a_queue_needs(settings: Settings) -> None:
    config = configure(settings)

    assert config.name == "default"
    assert config.connection == URL
    assert config.visibility_timeout == 30
    assert (config.default_priority, config.priority_share) == (0, 0.8)
    assert (config.high_ratio, config.priority_threshold) == (None, None)
    assert config.policy == RetryPolicy()
    assert config.arrival == "fair"
    assert config.max_payload_bytes == 2**20
    assert isinstance(config.codec, JSONCodec)
    assert config.max_group_depth is None
    assert config.dedup_window == 300
    assert config.handler_timeout is None


def test_every_key_arrives_in_its_field(settings: Settings) -> None:
    config = configure(
        settings,
        VISIBILITY_TIMEOUT=datetime.timedelta(minutes=1),
        DEFAULT_PRIORITY=2,
        PRIORITY_SHARE=1,
        HIGH_RATIO=0.5,
        PRIORITY_THRESHOLD=3,
        MAX_ATTEMPTS=7,
        MAX_CRASHES=1,
        BACKOFF=(2, 60.5),
        ON_EXHAUSTED="dead_letter",
        MAX_BLOCK=3600,
        RATE={"queue": "100/s", "group": "10/m:4"},
        DEAD_RETENTION={"age": datetime.timedelta(days=30), "count": 10_000},
        ARRIVAL="front",
        MAX_GROUP_DEPTH=1000,
        DEDUP_WINDOW=60,
        MAX_PAYLOAD_BYTES=100,
        CODEC=f"{__name__}.OwnCodec",
        HANDLER_TIMEOUT=0.5,
    )

    assert config.visibility_timeout == 60.0
    assert (config.default_priority, config.priority_share) == (2, 1.0)
    assert (config.high_ratio, config.priority_threshold) == (0.5, 3)
    assert config.policy == RetryPolicy(
        max_attempts=7,
        max_crashes=1,
        backoff_base_seconds=2.0,
        backoff_cap_seconds=60.5,
        max_block_seconds=3600.0,
        on_exhausted="dead_letter",
    )
    assert config.rates == Rates(queue=Rate(10_000), group=Rate(6_000_000, 4))
    assert config.dead_retention == conf.Retention(30 * 24 * 3600.0, 10_000)
    assert config.arrival == "front"
    assert config.max_payload_bytes == 100
    assert isinstance(config.codec, OwnCodec)
    assert config.max_group_depth == 1000
    assert config.dedup_window == 60
    assert config.handler_timeout == 0.5


def test_the_test_of_every_key_knows_every_key() -> None:
    assert set(conf.KEYS) == {
        "CONNECTION",
        "VISIBILITY_TIMEOUT",
        "DEFAULT_PRIORITY",
        "PRIORITY_SHARE",
        "HIGH_RATIO",
        "PRIORITY_THRESHOLD",
        "MAX_ATTEMPTS",
        "MAX_CRASHES",
        "BACKOFF",
        "ON_EXHAUSTED",
        "MAX_BLOCK",
        "RATE",
        "DEAD_RETENTION",
        "ARRIVAL",
        "MAX_GROUP_DEPTH",
        "DEDUP_WINDOW",
        "MAX_PAYLOAD_BYTES",
        "CODEC",
        "HANDLER_TIMEOUT",
    }


def test_a_configuration_cannot_be_changed(settings: Settings) -> None:
    config = configure(settings)

    with pytest.raises(dataclasses.FrozenInstanceError):
        config.arrival = "front"  # type: ignore[misc]


def test_a_configuration_does_not_show_the_password(settings: Settings) -> None:
    config = configure(settings, CONNECTION="redis://:hunter2@localhost/0")

    assert "hunter2" not in repr(config)


SECONDS = "must be a positive number of seconds, not"


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("VISIBILITY_TIMEOUT", "30s", f"{SECONDS} '30s'"),
        ("VISIBILITY_TIMEOUT", True, f"{SECONDS} True"),
        ("VISIBILITY_TIMEOUT", None, f"{SECONDS} None"),
        ("VISIBILITY_TIMEOUT", 0, f"{SECONDS} 0"),
        ("VISIBILITY_TIMEOUT", -1.5, f"{SECONDS} -1.5"),
        ("VISIBILITY_TIMEOUT", float("nan"), f"{SECONDS} nan"),
        ("VISIBILITY_TIMEOUT", float("inf"), "must be from 0.001 to 604800 seconds, not inf"),
        ("VISIBILITY_TIMEOUT", 0.0001, "must be from 0.001 to 604800 seconds, not 0.0001"),
        ("VISIBILITY_TIMEOUT", datetime.timedelta(0), f"{SECONDS} 0.0"),
        ("DEFAULT_PRIORITY", 5, "must be an integer from 0 to 4, not 5"),
        ("DEFAULT_PRIORITY", 1.0, "must be an integer from 0 to 4, not 1.0"),
        ("DEFAULT_PRIORITY", True, "must be an integer from 0 to 4, not True"),
        ("PRIORITY_SHARE", 80, "must be a number from 0 to 1, not 80"),
        ("PRIORITY_SHARE", "0.8", "must be a number from 0 to 1, not '0.8'"),
        ("PRIORITY_SHARE", False, "must be a number from 0 to 1, not False"),
        ("PRIORITY_SHARE", float("nan"), "must be a number from 0 to 1, not nan"),
        ("HIGH_RATIO", 1.1, "must be a number from 0 to 1, not 1.1"),
        ("PRIORITY_THRESHOLD", "high", "must be an integer from 0 to 4, not 'high'"),
        ("MAX_ATTEMPTS", 0, "must be an integer of at least 1, not 0"),
        ("MAX_ATTEMPTS", None, "must be an integer of at least 1, not None"),
        ("MAX_CRASHES", 2.0, "must be an integer of at least 1, not 2.0"),
        ("MAX_CRASHES", True, "must be an integer of at least 1, not True"),
        (
            "ON_EXHAUSTED",
            "drop",
            "must be 'halt' or 'dead_letter' or 'dead_letter_group', not 'drop'",
        ),
        (
            "ON_EXHAUSTED",
            ["halt"],
            "must be 'halt' or 'dead_letter' or 'dead_letter_group', not ['halt']",
        ),
        ("ARRIVAL", "back", "must be 'fair' or 'front', not 'back'"),
        ("MAX_GROUP_DEPTH", 0, "must be an integer of at least 1, not 0"),
        ("DEDUP_WINDOW", 0, f"{SECONDS} 0"),
        ("MAX_PAYLOAD_BYTES", 0, "must be an integer from 1 to 268435456, not 0"),
        ("MAX_PAYLOAD_BYTES", 2**40, "must be an integer from 1 to 268435456, not 1099511627776"),
        ("HANDLER_TIMEOUT", 0, f"{SECONDS} 0"),
        ("MAX_BLOCK", 0, f"{SECONDS} 0"),
        ("RATE", 10, "must be a rate such as '10/m', or {'queue': …, 'group': …}, not 10"),
        ("RATE", {}, "must be a rate such as '10/m', or {'queue': …, 'group': …}, not {}"),
        ("RATE", {"group": 10}, "['group'] must be a rate such as '10/m', not 10"),
        ("RATE", {"tenant": "1/s"}, "['tenant'] is unknown; the keys are queue, group"),
        ("DEAD_RETENTION", 30, "must be {'age': seconds, 'count': …} or one of them, not 30"),
        ("DEAD_RETENTION", {}, "must be {'age': seconds, 'count': …} or one of them, not {}"),
        ("DEAD_RETENTION", {"age": 0}, f"['age'] {SECONDS} 0"),
        ("DEAD_RETENTION", {"age": 1e10}, "['age'] must be from 0.001 to 316224000 seconds, not"),
        ("DEAD_RETENTION", {"count": 0}, "['count'] must be an integer of at least 1, not 0"),
        ("DEAD_RETENTION", {"days": 1}, "['days'] is unknown; the keys are age, count"),
        ("BACKOFF", 1, "must be (base, cap) or {'base': …, 'cap': …} in seconds, not 1"),
        ("BACKOFF", "10", "must be (base, cap) or {'base': …, 'cap': …} in seconds, not '10'"),
        ("BACKOFF", (1, 2, 3), "must be (base, cap) or {'base': …, 'cap': …} in seconds, not (1"),
        ("BACKOFF", {}, "must be (base, cap) or {'base': …, 'cap': …} in seconds, not {}"),
        ("BACKOFF", (10, 1), "must be a base no longer than its cap, not (10, 1)"),
    ],
)
def test_a_wrong_value_is_named_with_its_path(
    settings: Settings, key: str, value: object, complaint: str
) -> None:
    # Of a part its name follows at once.
    gap = "" if complaint.startswith("[") else " "
    assert error_of(settings, **{key: value}).startswith(
        f"GROUPQUEUE['default']['{key}']{gap}{complaint}"
    )


def test_what_is_no_rate_is_named_with_its_path_and_an_example(settings: Settings) -> None:
    assert error_of(settings, RATE="often").startswith(
        "GROUPQUEUE['default']['RATE']: 'often' is no rate: write \"10/m\""
    )
    assert error_of(settings, RATE={"group": "0/m"}).startswith(
        "GROUPQUEUE['default']['RATE']['group']: '0/m' is no rate"
    )


@pytest.mark.parametrize(
    ("given", "rates"),
    [
        (None, Rates()),
        ("10/m", Rates(queue=Rate(6_000_000))),
        ({"group": "10/m"}, Rates(group=Rate(6_000_000))),
    ],
)
def test_a_rate_alone_is_that_of_the_whole_queue(
    settings: Settings, given: object, rates: Rates
) -> None:
    assert configure(settings, RATE=given).rates == rates


@pytest.mark.parametrize(
    ("given", "retention"),
    [
        (None, conf.Retention()),
        ({"age": 60}, conf.Retention(longest_seconds=60.0)),
        ({"count": 5}, conf.Retention(most_letters=5)),
    ],
)
def test_a_retention_may_have_one_limit_alone(
    settings: Settings, given: object, retention: conf.Retention
) -> None:
    assert configure(settings, DEAD_RETENTION=given).dead_retention == retention


def test_a_wrong_part_of_the_backoff_is_named_with_its_path(settings: Settings) -> None:
    assert error_of(settings, BACKOFF={"base": "1s"}) == (
        "GROUPQUEUE['default']['BACKOFF']['base'] must be a positive number of seconds, not '1s'"
    )
    assert error_of(settings, BACKOFF={"bass": 1}) == (
        "GROUPQUEUE['default']['BACKOFF']['bass'] is unknown; did you mean 'base'?"
    )


def test_a_backoff_may_name_one_part_and_leave_the_other(settings: Settings) -> None:
    policy = configure(settings, BACKOFF={"cap": 20}).policy

    assert (policy.backoff_base_seconds, policy.backoff_cap_seconds) == (1.0, 20.0)


@pytest.mark.parametrize(
    ("key", "meant"),
    [("VISIBILTY_TIMEOUT", "VISIBILITY_TIMEOUT"), ("connection", "CONNECTION")],
)
def test_an_unknown_key_is_refused_with_the_one_that_was_meant(
    settings: Settings, key: str, meant: str
) -> None:
    assert error_of(settings, **{key: 1}) == (
        f"GROUPQUEUE['default']['{key}'] is unknown; did you mean '{meant}'?"
    )


def test_an_unknown_key_like_no_other_is_refused_with_all_there_are(
    settings: Settings,
) -> None:
    error = error_of(settings, COLOUR="blue")

    assert error.startswith("GROUPQUEUE['default']['COLOUR'] is unknown; the keys are CONNECTION,")


def test_a_high_ratio_without_a_threshold_is_refused(settings: Settings) -> None:
    expected = "GROUPQUEUE['default'] needs both 'HIGH_RATIO' and 'PRIORITY_THRESHOLD', or neither"

    assert error_of(settings, HIGH_RATIO=0.7) == expected
    assert error_of(settings, PRIORITY_THRESHOLD=2) == expected


@pytest.mark.parametrize(
    "connection",
    [
        "default",
        "redis://localhost/0",
        "rediss://localhost/0",
        "unix:///run/redis.sock",
        "embedded:///srv/queue",
        "project.redis.client",
        lambda: None,
    ],
)
def test_a_connection_of_the_right_shape_is_taken_as_it_is(
    settings: Settings, connection: object
) -> None:
    assert configure(settings, CONNECTION=connection).connection is connection


@pytest.mark.parametrize(
    ("connection", "complaint"),
    [
        (None, "must be a cache alias, a redis:// or embedded:// URL, a dotted path or a callable"),
        ("", "must be a cache alias"),
        ({"host": "localhost"}, "must be a cache alias"),
        ("valkey://localhost", "must be a URL of redis://, rediss://, unix://, embedded://"),
        ("embedded://", "must say what follows 'embedded://'"),
        ("localhost:6379", "must be a cache alias, a URL or a dotted path"),
    ],
)
def test_a_connection_of_another_shape_is_refused(
    settings: Settings, connection: object, complaint: str
) -> None:
    error = error_of(settings, CONNECTION=connection)

    assert error.startswith(f"GROUPQUEUE['default']['CONNECTION'] {complaint}")


@pytest.mark.parametrize("connection", ["http://:hunter2@host", ":hunter2@host", ["hunter2"]])
def test_an_error_about_a_connection_does_not_show_it(
    settings: Settings, connection: object
) -> None:
    assert "hunter2" not in error_of(settings, CONNECTION=connection)


def test_a_missing_connection_is_asked_for(settings: Settings) -> None:
    settings.GROUPQUEUE = {"default": {}}

    with pytest.raises(ConfigurationError, match=r"^GROUPQUEUE\['default'\] needs the key 'CONN"):
        get_config()


@pytest.mark.parametrize("codec", [own_codec, f"{__name__}.own_codec"])
def test_a_codec_may_be_an_instance_or_its_path(settings: Settings, codec: object) -> None:
    assert configure(settings, CODEC=codec).codec is own_codec


def test_a_codec_may_be_a_class(settings: Settings) -> None:
    codec = configure(settings, CODEC=OwnCodec).codec

    assert codec.decode(codec.encode("a", 1, None)) == Content("a", 1, {})


@pytest.mark.parametrize(
    ("codec", "complaint"),
    [
        ("nowhere.Codec", "cannot be imported: No module named 'nowhere'"),
        (f"{__name__}.Nothing", "cannot be imported: Module"),
        (f"{__name__}.DemandingCodec", "names a class that needs arguments"),
        ("json.dumps", "must be a codec with encode and decode"),
        (17, "must be a codec with encode and decode, or the dotted path of one, not 17"),
    ],
)
def test_what_is_no_codec_is_refused(settings: Settings, codec: object, complaint: str) -> None:
    assert error_of(settings, CODEC=codec).startswith(f"GROUPQUEUE['default']['CODEC'] {complaint}")


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        (None, "the setting GROUPQUEUE is missing; add GROUPQUEUE = "),
        ({}, "GROUPQUEUE must have at least one queue"),
        ([], "GROUPQUEUE must be a dict of queues, not list"),
        ({"CONNECTION": URL}, "GROUPQUEUE must be a dict of queues, each with its own dict"),
        ({"default": URL}, "GROUPQUEUE['default'] must be a str with a dict of keys, not str"),
        ({1: {"CONNECTION": URL}}, "GROUPQUEUE[1] must be a str with a dict of keys"),
        ({"my queue": {"CONNECTION": URL}}, "GROUPQUEUE['my queue']: 'my queue' is no queue name"),
    ],
)
def test_a_setting_of_another_shape_is_refused(
    settings: Settings, setting: object, complaint: str
) -> None:
    settings.GROUPQUEUE = setting

    with pytest.raises(ConfigurationError) as caught:
        conf.configured_queues()
    assert str(caught.value).startswith(complaint)


def test_a_setting_that_is_not_there_says_what_to_add(settings: Settings) -> None:
    del settings.GROUPQUEUE
    setting_changed.send(None, setting="GROUPQUEUE", value=None, enter=True)

    with pytest.raises(ConfigurationError, match="add GROUPQUEUE = "):
        get_config()


def test_an_unknown_queue_is_refused_with_those_that_exist(settings: Settings) -> None:
    settings.GROUPQUEUE = {"default": {"CONNECTION": URL}, "billing": {"CONNECTION": URL}}

    assert conf.configured_queues() == ("default", "billing")
    with pytest.raises(UnknownQueue) as caught:
        get_config("biling")
    assert str(caught.value) == (
        "'biling' is not a queue of the setting GROUPQUEUE, which has 'default', 'billing'"
    )


@pytest.mark.parametrize("queue", [["default"], None, 1, b"default"])
def test_what_is_no_name_is_an_unknown_queue(queue: Any) -> None:
    with pytest.raises(UnknownQueue):
        get_config(queue)


def test_every_fault_is_found_each_with_a_hint(settings: Settings) -> None:
    settings.GROUPQUEUE = {
        "default": {"CONNECTION": URL, "ARRIVAL": 1, "MAX_ATTEMPTS": 0, "COLOUR": 1, "SIZE": 2},
        "a b": {},
    }

    found = conf.faults()

    assert [fault.text.partition(" ")[0] for fault in found] == [
        "GROUPQUEUE['default']['COLOUR']",
        "GROUPQUEUE['default']['SIZE']",
        "GROUPQUEUE['default']['MAX_ATTEMPTS']",
        "GROUPQUEUE['default']['ARRIVAL']",
        "GROUPQUEUE['a",
        "GROUPQUEUE['a",
    ]
    assert all(fault.hint for fault in found)
    assert "MAX_ATTEMPTS is how often a handler may fail before ON_EXHAUSTED." in [
        fault.hint for fault in found
    ]


def test_a_right_setting_has_no_faults() -> None:
    assert conf.faults() == []


def test_the_setting_is_read_once(settings: Settings) -> None:
    assert configure(settings) is get_config()


@pytest.mark.parametrize("setting", ["GROUPQUEUE", "CACHES"])
def test_a_changed_setting_runs_the_callbacks_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    calls: list[str] = []

    def forget() -> None:
        calls.append("forgotten")

    monkeypatch.setattr(conf, "_reset_callbacks", [])
    assert conf.on_reset(forget) is forget
    conf.on_reset(forget)
    settings.TIME_ZONE = "UTC"
    assert calls == []

    setattr(settings, setting, getattr(settings, setting))

    assert calls == ["forgotten"]


@pytest.mark.parametrize(
    ("connection", "kind"),
    [
        (lambda: None, "callable"),
        ("embedded:///srv/queue", "embedded"),
        ("redis://localhost", "url"),
        ("default", "alias"),
        ("project.redis.client", "dotted path"),
    ],
)
def test_a_connection_is_of_one_kind(connection: conf.Connection, kind: str) -> None:
    assert conf.connection_kind(connection) == kind
