"""What a table of the page is made of: columns, rows, cells, and buttons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from groupqueue.admin.wording import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """One thing an operator may do with a group or a queue, as a form of its own."""

    action: str
    label: str
    description: str
    group: str = ""
    """The group id, percent-encoded: a browser would change line ends and control
    characters in a form. Empty for the whole queue."""
    message_id: str = ""
    question: str = ""
    """What to ask before it is done; empty to do it at once."""

    @property
    def view(self) -> str:
        """The name of the URL that the form is sent to."""
        return "admin:groupqueue_groupqueue_" + ("act" if self.group else "control")


class Column(NamedTuple):
    """One column's heading."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its header, and a cell for every other column."""

    header: Cell
    cells: Sequence[Cell]
    buttons: Sequence[Button] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of the page."""

    id: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    total: Row | None = None
    note: str = ""
    empty: str = ""
    """The sentence that stands in for the rows when there are none."""

    @property
    def has_buttons(self) -> bool:
        """Whether the last column is one of buttons."""
        return any(row.buttons for row in self.rows)


def numeric(text: str) -> Column:
    """Return a column of numbers."""
    return Column(text, "number")
