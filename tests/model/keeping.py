"""How do workers keep leases and find lost ones, and say that they are there?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from groupqueue.core import calls
from tests.model.parts import DAY_MS
from tests.model.steps import WORKERS, choices, one_of, step
from tests.model.working import Working


class Keeping(Working):
    """Renew, recover, recount; enter the registry and leave it."""

    @step(weight=3, what=choices, which=choices, other=choices, is_lost=st.booleans())
    def keep(self, *, what: int, which: int, other: int, is_lost: bool) -> None:
        """Do something for leases, or for those who have them."""
        of_leases = [self._renew, self._find_lost, self._recount] if self.leases else []
        possible = [self._beat, self._leave, *of_leases, *of_leases]
        self._one_of(possible, what)(which, other, is_lost=is_lost)

    def _renew(self, which: int, other: int, *, is_lost: bool) -> None:
        """Push deadlines out, or pull them in, of the leases that still hold, paused or not."""
        leases = [self._lease(which + number) for number in range(1 + other % 3)]
        if other % 4 == 0:
            self._pause_leased(leases[0])
        visibility_ms = one_of((1, 2, 4), other) * DAY_MS
        call = calls.renew(self.prefix, leases, visibility_ms=visibility_ms)
        self._act(call, lambda: self.model.renew(leases, visibility_ms), is_lost=is_lost)

    def _find_lost(self, which: int, other: int, *, is_lost: bool) -> None:
        """Hand back what a worker was given after a lease that it knows, or when it knows none."""
        worker = one_of(WORKERS, other)
        after_token = self._lease(which).token if other % 4 > 1 else 0
        for _ in range(1 + is_lost):
            expected = self.model.recover(worker, after_token)
        call = calls.recover(self.prefix, worker, after_token=after_token)
        assert self._perform(call, is_lost=is_lost) == ("0", expected)

    def _recount(self, which: int, other: int, *, is_lost: bool) -> None:
        """Say that a leased message is not being handled yet, or that it is now."""
        lease = self._lease(which)
        group = self.model.held(lease)
        change: Any = 1 if group and group.lease and not group.lease.is_counted else -1
        call = calls.recount(self.prefix, lease, change)
        send = self.transport.send_unheard if is_lost else self.transport.perform
        assert self._said(lambda: send(call))[0] == self.model.recount(lease, change)

    def _beat(self, which: int, other: int, *, is_lost: bool) -> None:
        """Enter the registry, or be still there."""
        worker, fields = one_of(WORKERS, which), {"serves": str(other)}
        call = calls.heartbeat(self.prefix, worker, fields, kept_ms=DAY_MS)
        # A worker of another version comes at times; the first that ever came has decided.
        version = calls.SCHEMA_VERSION + (other % 3 == 2)
        call = replace(call, arguments=[*call.arguments[:2], version, *call.arguments[3:]])
        known = self.model.heartbeat(worker, fields, version)
        assert self._perform(call, is_lost=is_lost) == (self.model.version, known)

    def _leave(self, which: int, other: int, *, is_lost: bool) -> None:
        """Leave the registry."""
        worker = one_of(WORKERS, which)
        call = calls.depart(self.prefix, worker)
        self._act(call, lambda: self.model.depart(worker), is_lost=is_lost)
