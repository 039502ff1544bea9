"""What the setting GROUPQUEUE says: each queue's configuration, checked once and frozen.

This module alone reads Django's settings. It looks at type and shape, imports
the codec, and never connects to anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

from django.conf import settings
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from groupqueue.core import values
from groupqueue.core.codec import Codec
from groupqueue.core.keys import shard_prefix
from groupqueue.core.messages import HIGHEST_TIER, LOWEST_TIER
from groupqueue.core.rates import Rate, Rates, parse_rate
from groupqueue.core.retries import EXHAUSTED_POLICIES, RetryPolicy
from groupqueue.exceptions import ConfigurationError, InvalidArgument, UnknownQueue

Arrival = Literal["fair", "front"]
Connection = str | Callable[..., Any]
ResetCallback = Callable[[], object]
ConnectionKind = Literal["callable", "embedded", "url", "alias", "dotted path"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """The configuration of one queue."""

    name: str
    # Not shown: a URL may hold a password.
    connection: Connection = field(repr=False)
    visibility_timeout: float
    default_priority: int
    priority_share: float
    high_ratio: float | None
    priority_threshold: int | None
    policy: RetryPolicy
    arrival: Arrival
    max_group_depth: int | None
    rates: Rates
    dead_retention: Retention
    dedup_window: float
    max_payload_bytes: int
    codec: Codec = field(repr=False)
    handler_timeout: float | None


class Retention(NamedTuple):
    """Which dead letters are thrown away by themselves; None for none."""

    longest_seconds: float | None = None
    most_letters: int | None = None


class Fault(NamedTuple):
    """One thing that is wrong with the setting, and how to put it right."""

    text: str
    hint: str


def get_config(queue: str = "default") -> QueueConfig:
    """Return the configuration of a queue.

    Raises UnknownQueue when the setting does not name it, and ConfigurationError
    when anything in GROUPQUEUE is wrong, be it in another queue.
    """
    try:
        return _configs[queue]
    except (KeyError, TypeError):  # not read yet, not there, or no str at all
        configs = _loaded()
    if queue in list(configs):  # a list, as not everything can be looked up in a dict
        return configs[queue]
    names = ", ".join(repr(name) for name in configs)
    raise UnknownQueue(f"{queue!r} is not a queue of the setting GROUPQUEUE, which has {names}")


def configured_queues() -> tuple[str, ...]:
    """Return the names of all queues, in the setting's order."""
    return tuple(_loaded())


def faults() -> list[Fault]:
    """Return everything that is wrong with the setting; an empty list when it is right."""
    return _read()[1]


def on_reset(callback: ResetCallback) -> ResetCallback:
    """Have a callback run whenever the setting changes, as it does in tests; a decorator."""
    if callback not in _reset_callbacks:
        _reset_callbacks.append(callback)
    return callback


def checked(key: str, path: str, value: object) -> Any:
    """Return what a queue's key makes of a value given elsewhere, such as to a handler.

    Raises ConfigurationError naming the path and the value.
    """
    return KEYS[key].check(path, value)


def connection_kind(connection: Connection) -> ConnectionKind:
    """Say what a CONNECTION is; a name without a dot is a cache alias."""
    if not isinstance(connection, str):
        return "callable"
    if "://" in connection:
        return "embedded" if connection.startswith("embedded://") else "url"
    return "dotted path" if "." in connection else "alias"


def cache_backends() -> dict[str, str]:
    """Return the dotted path of each cache alias's backend."""
    caches: Mapping[str, Mapping[str, Any]] = settings.CACHES
    return {alias: str(cache.get("BACKEND", "")) for alias, cache in caches.items()}


def cache_locations(alias: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return each LOCATION of a cache with the cache's OPTIONS; none if there is no such cache."""
    cache: Mapping[str, Any] = settings.CACHES.get(alias, {})
    location = cache.get("LOCATION") or ()
    # Django's own backend and django-redis take several in one str.
    urls = re.split("[;,]", location) if isinstance(location, str) else location
    return [(str(url), cache.get("OPTIONS") or {}) for url in urls]


def is_aware() -> bool:
    """Say whether the project's datetimes are aware ones, by USE_TZ."""
    return bool(settings.USE_TZ)


def is_debug() -> bool:
    """Say whether the project runs with DEBUG."""
    return bool(settings.DEBUG)


# The keys of a queue ----------------------------------------------------------------

LARGEST_PAYLOAD_BYTES = 256 * 1024 * 1024
_URL_SCHEMES = ("redis", "rediss", "unix", "embedded")
_REQUIRED = object()


def _connection(path: str, value: object) -> Connection:
    if callable(value):
        return value
    # The value itself is never shown: it may hold a password.
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(
            f"{path} must be a cache alias, a redis:// or embedded:// URL, a dotted path or a"
            f" callable, not {type(value).__name__ if value != '' else 'an empty str'}"
        )
    scheme, separator, rest = value.partition("://")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.\-]*" if separator else r"[\w.\-]+", scheme):
        raise ConfigurationError(
            f"{path} must be a cache alias, a URL or a dotted path; the str of"
            f" {len(value)} characters is neither"
        )
    if separator and scheme not in _URL_SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in _URL_SCHEMES)
        raise ConfigurationError(f"{path} must be a URL of {known}, not of {scheme}://")
    if separator and not rest:
        raise ConfigurationError(f"{path} must say what follows {value!r}: a host or a directory")
    return value


def _codec(path: str, value: object) -> Codec:
    if isinstance(value, str):
        try:
            value = import_string(value)
        except ImportError as error:
            raise ConfigurationError(f"{path} cannot be imported: {error}") from error
    if isinstance(value, type):
        try:
            value = value()
        except TypeError as error:
            raise ConfigurationError(
                f"{path} names a class that needs arguments ({error}); name an instance"
            ) from error
    if callable(getattr(value, "encode", None)) and callable(getattr(value, "decode", None)):
        return cast(Codec, value)
    raise values.refusal(path, "a codec with encode and decode, or the dotted path of one", value)


def _rate(path: str, value: object) -> Rates:
    if value is None:
        return Rates()
    if isinstance(value, str):
        return Rates(_parsed(path, value))
    if not isinstance(value, Mapping) or not value:
        raise values.refusal(path, "a rate such as '10/m', or {'queue': …, 'group': …}", value)
    values.refuse_unknown(path, value, Rates._fields)
    return Rates(**{name: _parsed(f"{path}[{name!r}]", rate) for name, rate in value.items()})


def _parsed(path: str, value: object) -> Rate:
    if not isinstance(value, str):
        raise values.refusal(path, "a rate such as '10/m'", value)
    try:
        return parse_rate(value)
    except InvalidArgument as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _retention(path: str, value: object) -> Retention:
    if value is None:
        return Retention()
    if not isinstance(value, Mapping) or not value:
        raise values.refusal(path, "{'age': seconds, 'count': …} or one of them", value)
    values.refuse_unknown(path, value, ("age", "count"))
    age, count = value.get("age"), value.get("count")
    return Retention(
        None if age is None else values.long_seconds(f"{path}['age']", age),
        None if count is None else _at_least_one(f"{path}['count']", count),
    )


class Key(NamedTuple):
    """One key of a queue's settings."""

    default: object
    check: values.Check
    meaning: str


_tier = values.integer(
    f"an integer from {LOWEST_TIER} to {HIGHEST_TIER}", low=LOWEST_TIER, high=HIGHEST_TIER
)
_share = values.number("a number from 0 to 1", low=0, high=1)
_at_least_one = values.integer("an integer of at least 1", low=1)

KEYS: Mapping[str, Key] = {
    "CONNECTION": Key(
        _REQUIRED,
        _connection,
        "where Redis is: a django-redis cache alias, a redis://, rediss:// or unix:// URL,"
        " embedded://<directory>, or a callable (or its dotted path) that returns a client",
    ),
    "VISIBILITY_TIMEOUT": Key(
        30, values.seconds, "seconds for which a worker holds a group before it must renew"
    ),
    "DEFAULT_PRIORITY": Key(
        LOWEST_TIER, _tier, "the tier of groups published without a priority, 4 the most urgent"
    ),
    "PRIORITY_SHARE": Key(
        0.8, _share, "the share of claims that go by priority; the rest go by waiting time"
    ),
    "HIGH_RATIO": Key(
        None,
        values.optional(_share),
        "the share of claims restricted to tiers from PRIORITY_THRESHOLD up; None for none",
    ),
    "PRIORITY_THRESHOLD": Key(
        None, values.optional(_tier), "the lowest tier that HIGH_RATIO's claims may take"
    ),
    "MAX_ATTEMPTS": Key(5, _at_least_one, "how often a handler may fail before ON_EXHAUSTED"),
    "MAX_CRASHES": Key(3, _at_least_one, "how many workers a message may take down"),
    "BACKOFF": Key(
        (1, 300), values.backoff, "seconds of the first wait after a failure, and the longest"
    ),
    "ON_EXHAUSTED": Key(
        "halt",
        values.one_of(EXHAUSTED_POLICIES),
        "what becomes of an exhausted message: halt stops its group, dead_letter sets it aside,"
        " dead_letter_group all that waits behind it as well",
    ),
    "MAX_BLOCK": Key(
        None,
        values.optional(values.seconds),
        "seconds for which retries of a message may hold its group before ON_EXHAUSTED;"
        " None for as long as MAX_ATTEMPTS takes",
    ),
    "RATE": Key(
        None,
        _rate,
        "how often messages may be delivered: '10/m' in all, or {'queue': '100/s', 'group':"
        " '10/m'}; None for any number",
    ),
    "DEAD_RETENTION": Key(
        None,
        _retention,
        "which dead letters workers throw away: {'age': seconds, 'count': how many to keep};"
        " None for none",
    ),
    "ARRIVAL": Key(
        "fair",
        values.one_of(("fair", "front")),
        "where a new group queues up: behind those that wait, or in front of them",
    ),
    "MAX_GROUP_DEPTH": Key(
        None,
        values.optional(_at_least_one),
        "how many messages may wait in one group; None for any number",
    ),
    "DEDUP_WINDOW": Key(
        300, values.seconds, "seconds for which a dedup_key is remembered, as in SQS FIFO"
    ),
    "MAX_PAYLOAD_BYTES": Key(
        1024 * 1024,
        values.integer(
            f"an integer from 1 to {LARGEST_PAYLOAD_BYTES}", low=1, high=LARGEST_PAYLOAD_BYTES
        ),
        "the largest encoded message",
    ),
    "CODEC": Key(
        "groupqueue.core.codec.JSONCodec", _codec, "a codec, its class, or the dotted path of one"
    ),
    "HANDLER_TIMEOUT": Key(
        None, values.optional(values.seconds), "seconds a handler may take; None for no limit"
    ),
}


# Reading ------------------------------------------------------------------------------

_EXAMPLE = 'GROUPQUEUE = {"default": {"CONNECTION": "default"}}'
_configs: dict[str, QueueConfig] = {}
_reset_callbacks: list[ResetCallback] = []


def _loaded() -> dict[str, QueueConfig]:
    if not _configs:
        configs, found = _read()
        if found:
            raise ConfigurationError(found[0].text)
        _configs.update(configs)
    return _configs


def _read() -> tuple[dict[str, QueueConfig], list[Fault]]:
    setting: object = getattr(settings, "GROUPQUEUE", None)
    if setting is None:
        text = f"the setting GROUPQUEUE is missing; add {_EXAMPLE}"
        return {}, [Fault(text, "CONNECTION is " + KEYS["CONNECTION"].meaning)]
    if not isinstance(setting, Mapping) or not setting:
        text = f"GROUPQUEUE must be a dict of queues, not {type(setting).__name__}"
        if setting == {}:
            text = "GROUPQUEUE must have at least one queue"
        return {}, [Fault(text, f"For example {_EXAMPLE}")]
    if setting.keys() <= KEYS.keys():
        text = "GROUPQUEUE must be a dict of queues, each with its own dict of keys"
        return {}, [Fault(text, f"Put the keys under a queue's name, as in {_EXAMPLE}")]
    configs, found = {}, []
    for name, given in setting.items():
        config, wrong = _read_queue(name, given)
        found += wrong
        if config is not None:
            configs[config.name] = config
    return configs, found


def _read_queue(name: object, given: object) -> tuple[QueueConfig | None, list[Fault]]:
    path = f"GROUPQUEUE[{name!r}]"
    if not isinstance(name, str) or not isinstance(given, Mapping):
        text = f"{path} must be a str with a dict of keys, not {type(given).__name__}"
        return None, [Fault(text, f"For example {_EXAMPLE}")]
    found: list[Fault] = []
    try:
        shard_prefix(name)
    except ConfigurationError as error:
        found.append(Fault(f"{path}: {error}", "Rename the queue."))
    for key in given:
        try:
            values.refuse_unknown(path, [key], KEYS)
        except ConfigurationError as error:
            found.append(Fault(str(error), f"The keys are {', '.join(KEYS)}."))
    checked_values: dict[str, Any] = {}
    for key, row in KEYS.items():
        value = given.get(key, row.default)
        try:
            if value is _REQUIRED:
                raise ConfigurationError(f"{path} needs the key {key!r}")
            checked_values[key] = row.check(f"{path}[{key!r}]", value)
        except ConfigurationError as error:
            found.append(Fault(str(error), f"{key} is {row.meaning}."))
    if not found:
        found += _contradictions(path, checked_values)
    return (None if found else _config(name, checked_values)), found


def _contradictions(path: str, given: Mapping[str, Any]) -> Iterable[Fault]:
    """Find keys that are right by themselves but not together."""
    if (given["HIGH_RATIO"] is None) != (given["PRIORITY_THRESHOLD"] is None):
        text = f"{path} needs both 'HIGH_RATIO' and 'PRIORITY_THRESHOLD', or neither"
        yield Fault(text, f"HIGH_RATIO is {KEYS['HIGH_RATIO'].meaning}.")


def _config(name: str, given: Mapping[str, Any]) -> QueueConfig:
    return QueueConfig(
        name=name,
        connection=given["CONNECTION"],
        visibility_timeout=given["VISIBILITY_TIMEOUT"],
        default_priority=given["DEFAULT_PRIORITY"],
        priority_share=given["PRIORITY_SHARE"],
        high_ratio=given["HIGH_RATIO"],
        priority_threshold=given["PRIORITY_THRESHOLD"],
        policy=RetryPolicy(
            max_attempts=given["MAX_ATTEMPTS"],
            max_crashes=given["MAX_CRASHES"],
            max_block_seconds=given["MAX_BLOCK"],
            on_exhausted=given["ON_EXHAUSTED"],
            **given["BACKOFF"],
        ),
        arrival=given["ARRIVAL"],
        max_group_depth=given["MAX_GROUP_DEPTH"],
        rates=given["RATE"],
        dead_retention=given["DEAD_RETENTION"],
        dedup_window=given["DEDUP_WINDOW"],
        max_payload_bytes=given["MAX_PAYLOAD_BYTES"],
        codec=given["CODEC"],
        handler_timeout=given["HANDLER_TIMEOUT"],
    )


def _reset(*, setting: str, **_kwargs: object) -> None:
    # CACHES too: a CONNECTION may be a cache alias.
    if setting in ("GROUPQUEUE", "CACHES"):
        _configs.clear()
        for callback in _reset_callbacks:
            callback()


setting_changed.connect(_reset, dispatch_uid="groupqueue.conf")
