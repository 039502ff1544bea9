"""Does each message find usable database connections, and leave none in a transaction?"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from asgiref.sync import sync_to_async
from django.db import DatabaseError, close_old_connections, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.transaction import TransactionManagementError

log = logging.getLogger("groupqueue.worker")


def clean_connections() -> None:
    """Give the next message usable database connections: none that died, grew too old or
    was left inside a transaction. Never raises: what is wrong, the next query tells."""
    try:
        if not (opened := _opened()):
            return
        for connection in opened:
            if connection.in_atomic_block or not connection.autocommit:
                _end_transaction(connection)
            # A worker idles for hours: whether the server still knows a connection that
            # was kept is asked before its next use, whatever CONN_HEALTH_CHECKS says.
            connection.health_check_enabled = True  # type: ignore[attr-defined] # not in the stubs
        close_old_connections()
    except DatabaseError:
        log.exception("a connection cannot be cleaned", extra={"action": "clean_up_failed"})


def refuse_open_transactions() -> None:
    """Raise TransactionManagementError when the handler left a transaction open."""
    for connection in _opened():
        is_off = not connection.autocommit and connection.settings_dict["AUTOCOMMIT"]
        if connection.in_atomic_block or is_off:
            raise TransactionManagementError(
                f"the handler left a transaction of database {connection.alias!r} open;"
                " what it wrote is rolled back"
            )


aclean_connections = sync_to_async(clean_connections)
arefuse_open_transactions = sync_to_async(refuse_open_transactions)


class _Use:
    """Whether any database was used in this process: else there is nothing to look after."""

    has_begun = False


def _note_use(**_: object) -> None:
    _Use.has_begun = True


connection_created.connect(_note_use)


def _opened() -> Sequence[BaseDatabaseWrapper]:
    """Return this thread's connections that lead to a server."""
    if not _Use.has_begun:
        return ()
    return [
        connection
        for connection in connections.all(initialized_only=True)
        if connection.connection is not None
    ]


def _end_transaction(connection: BaseDatabaseWrapper) -> None:
    log.warning(
        "a handler left a transaction open; it is rolled back",
        extra={"action": "transaction_left_open", "database": connection.alias},
    )
    try:
        connection.close()
    finally:
        # A wrapper that is closed inside a transaction refuses to connect again.
        del connections[connection.alias]


# What was connected to before this module was there to hear of it.
_Use.has_begun = any(
    connection.connection is not None for connection in connections.all(initialized_only=True)
)
