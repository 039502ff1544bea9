"""Which steps only look? What people are told is held against the model, page by page."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from groupqueue.core import calls
from groupqueue.core.audits import Audit, audit_queue, repair_queue
from groupqueue.core.letters import Flow
from tests.model.audit import id_of, text
from tests.model.parts import Group
from tests.model.steps import Steps, choices, step

ALL = ("peek", "explain", "agenda", "letters", "held", "survey", "inspect", "audit", "repair")


class Looking(Steps):
    """Look at a group, at lists of things, at everything; nothing may change by that."""

    @step(what=choices, which=choices, page=st.integers(1, 3))
    def look(self, *, what: int, which: int, page: int) -> None:
        """Look at something."""
        self._look_by(self._one_of(ALL, what), self._name(which), page)

    def _look_by(self, script: str, name: str, page: int) -> None:
        getattr(self, f"_look_by_{script}")(name, page)

    def _look_by_peek(self, name: str, page: int) -> None:
        model = self.model
        depth, found = model.depth(name), list[str]()
        for start in range(0, depth + 1, page):
            call = calls.peek(self.prefix, name, start, page, _as_it_is)
            told, elements = self.transport.perform(call)
            assert told == depth
            assert len(elements) == min(page, depth - start)
            found += map(id_of, elements)
        started = [group.head.id for group in model.started(name)]
        waiting = [m.id for m in model.groups[name].messages] if name in model.groups else []
        assert sorted(found[: len(started)]) == sorted(started)
        assert found[len(started) :] == waiting

    def _look_by_explain(self, name: str, page: int) -> None:
        reply = self.transport.perform(calls.explain(self.prefix, name, _as_it_is))
        row, stopped, doomed = reply[1], reply[4], reply[6]
        self._check_row(row, name)
        assert bool(stopped) == self.model.is_stopped
        doom = self.model.doomed.get(name)
        assert text(doomed) == (f"{len(doom.ids)} {doom.behind}" if doom else "")

    def _check_row(self, row: list[Any], name: str) -> None:
        """Hold what is told of a group against the model; see includes/group_row.lua."""
        model = self.model
        group = model.groups.get(name) or Group(name, name, 0, [], 0)
        started = model.started(name)
        told = [part if isinstance(part, int) else text(part) for part in row]
        lease, holds = group.lease, model.holds
        assert (told[0], told[3]) == (name, len(group.messages))
        if group.messages:
            assert (told[1], told[4][:32]) == (str(group.tier), group.head.id)
            assert told[14] == (group.head.id in model.holding)
        assert told[5] == (str(lease.token) if lease else "")
        assert (told[6] > 0) == bool(lease)
        assert told[7] == (lease.worker if lease else "")
        assert told[8:10] == [str(group.deliveries or ""), str(group.failures)]
        assert told[10] == (group.error or "")
        assert bool(told[11]) == (name in holds)
        in_flight = sum(one.has_place for one in started)
        halted = sum(one.key in holds for one in started)
        assert told[15:] == [model.widths.get(name, 0), in_flight, len(started), halted]

    def _look_by_agenda(self, _: str, page: int) -> None:
        moments, found = self.model.moments, list[str]()
        for start in range(0, len(moments) + 1, page):
            call = calls.agenda(self.prefix, start, page, _as_it_is)
            total, rows = self.transport.perform(call)
            assert total == len(moments)
            for identifier, due, noted in rows:
                found.append(text(identifier))
                assert int(due) == moments[found[-1]]
                held = self.model.holding.get(found[-1])
                assert text(noted[:1]) == ("H" if held else "M")
        assert found == sorted(moments, key=lambda identifier: (moments[identifier], identifier))

    def _look_by_letters(self, _: str, page: int) -> None:
        entries = [letter.entry for letter in self.model.dead]
        for newest_first in (False, True):
            first, last = ("+", "-") if newest_first else ("-", "+")
            found: list[str] = []
            for _ in range(0, len(entries) + 1, page):
                start = f"({found[-1]}" if found else first
                call = calls.letters(
                    self.prefix, start, last, page, newest_first=newest_first, decode=_as_it_is
                )
                total, rows = self.transport.perform(call)
                assert total == len(entries)
                found += [text(entry) for entry, _ in rows]
            assert found == (entries[::-1] if newest_first else entries)

    def _look_by_held(self, _: str, page: int) -> None:
        found, cursor = set[str](), ""
        while cursor != "0":
            call = calls.held(self.prefix, cursor or "0", page, _as_it_is)
            _, total, following, rows = self.transport.perform(call)
            assert total == len(self.model.holds)
            for row in rows:
                self._check_row(row, text(row[0]))
                found.add(text(row[0]))
            cursor = text(following)
        assert found == set(self.model.holds)

    def _look_by_survey(self, _: str, page: int) -> None:
        found, cursor = set[str](), ""
        while cursor != "0":
            told = self.transport.perform(
                calls.survey(self.prefix, "keys", cursor or "0", 8 * page)
            )
            assert told.faults == []
            found.update(told.names)
            cursor = told.cursor
        assert found == set(self.model.groups)

    def _look_by_inspect(self, _: str, page: int) -> None:
        model = self.model
        reply = self.transport.perform(calls.inspect(self.prefix, page, _as_it_is))
        groups = list(model.groups.values())
        for tier, number, due, leased, held, messages, _longest_wait_ms in reply[1]:
            mine = [group for group in groups if group.tier == tier]
            assert number == len(mine)
            assert leased == sum(group.lease is not None for group in mine)
            assert held == sum(g.key in model.holds and not g.lease for g in mine)
            assert messages == sum(len(group.messages) for group in mine)
            assert due + leased + held <= number
        for rows in reply[2:6]:
            for row in rows:
                self._check_row(row, text(row[0]))
        assert len(reply[3]) == min(page, sum(group.lease is not None for group in groups))
        assert {text(worker[0]) for worker in reply[6]} == set(model.workers)
        halted = sum(hold.halted is not None for hold in model.holds.values())
        assert (reply[9], reply[10]) == (halted, len(model.dead))
        assert bool(reply[11]) == model.is_stopped

    def _look_by_audit(self, _: str, page: int) -> None:
        found = self._go_through(audit_queue(self.prefix, limit=1000))
        assert found.faults == (), f"the doctor finds {found.faults}"
        assert (found.is_complete, found.groups) == (True, len(self.model.groups))

    def _look_by_repair(self, _: str, page: int) -> None:
        mended = self._go_through(repair_queue(self.prefix, limit=1000))
        assert mended.faults == (), f"there was nothing to mend, and it mended {mended.faults}"

    def _go_through(self, flow: Flow[Audit]) -> Audit:
        """Perform the calls that a flow asks for."""
        try:
            call = next(flow)
            while True:
                call = flow.send(self.transport.perform(call))
        except StopIteration as end:
            found: Audit = end.value
            return found


def _as_it_is(reply: Any) -> Any:
    return reply
