"""What counts as committed while a TestCase keeps its transaction open, which never commits."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, cast

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from groupqueue import publishing

log = logging.getLogger("groupqueue")


def has_unsent() -> bool:
    """Say whether something was published in an open transaction, to be sent at its commit."""
    return any(_publishing_hooks(connection) for connection in _connections())


def send_unsent() -> None:
    """Send what was published outside any transaction but TestCase's own."""
    for connection in _connections():
        if _only_testcase_is_open(connection):
            for hook in _publishing_hooks(connection):
                # A later call, by captureOnCommitCallbacks, finds nothing left to send.
                hook()


@contextlib.contextmanager
def hooks_run() -> Iterator[None]:
    """Run, at the end of the block, the commit hooks that TestCase's transaction kept back."""
    before = [
        (connection, len(connection.run_on_commit))
        for connection in _connections()
        if _only_testcase_is_open(connection)
    ]
    yield
    for connection, count in before:
        hooks = cast(list[Any], connection.run_on_commit)
        while len(hooks) > count:
            _, hook, is_robust = hooks.pop(count)
            try:
                hook()
            except Exception:
                if not is_robust:
                    raise
                log.exception("a commit hook failed", extra={"action": "commit_hook_failed"})


def _connections() -> list[BaseDatabaseWrapper]:
    return list(connections.all(initialized_only=True))


def _only_testcase_is_open(connection: BaseDatabaseWrapper) -> bool:
    return all(getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)


def _publishing_hooks(connection: BaseDatabaseWrapper) -> list[Callable[[], None]]:
    hooks = [entry[1] for entry in connection.run_on_commit]
    return [hook for hook in hooks if getattr(hook, "__module__", "") == publishing.__name__]
