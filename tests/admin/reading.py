"""How a test reads the admin's page: its tables, forms and tags, as a browser finds them.

The page's own tables are inside sections; the admin's sidebar has one that is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import NamedTuple

from django.http import HttpResponse

Attributes = dict[str, str | None]
VOID_TAGS = ("input", "link", "meta", "br", "img", "path")


class Cell(NamedTuple):
    """What a cell says, and what it says when hovered over."""

    text: str
    title: str


@dataclass
class Form:
    """A form with its hidden fields and the text on its button."""

    action: str
    method: str
    section: str
    fields: dict[str, str] = field(default_factory=dict)
    button: str = ""

    def name(self) -> str:
        """Return what the form does: the last part of its address."""
        return self.action.rstrip("/").rpartition("/")[2]


class Page(HTMLParser):
    """Everything that tests ask of a page."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(convert_charrefs=True)
        self.html = response.content.decode()
        self.tags: list[tuple[str, Attributes]] = []
        self.tables: dict[str, list[dict[str, Cell]]] = {}
        self.totals: dict[str, dict[str, Cell]] = {}
        self.captions: dict[str, str] = {}
        self.counters: dict[str, str] = {}
        self.forms: list[Form] = []
        self.texts: dict[str, str] = {}
        self.inline: list[str] = []
        self._open: list[str] = []
        self._sections: list[str] = []
        self._columns: list[str] = []
        self._cells: list[Cell] | None = None
        self._text: str | None = None
        self._title = ""
        self._label = ""
        self._in_foot = False
        self.feed(self.html)
        self.close()

    @property
    def _section(self) -> str:
        return self._sections[-1] if self._sections else ""

    def actions(self) -> list[Form]:
        """Return the forms that act on groups."""
        return [form for form in self.forms if "/groups/" in form.action]

    def controls(self) -> list[Form]:
        """Return the forms that act on the whole queue."""
        return [form for form in self.forms if "/queue/" in form.action]

    def action(self, name: str, group: str) -> Form:
        """Return the form of an action for a group."""
        (form,) = [
            form for form in self.actions() if form.name() == name and form.fields["group"] == group
        ]
        return form

    def groups(self, table: str) -> list[str]:
        """Return the ids in a table of groups, whole."""
        return [row["Group"].title for row in self.tables.get(table, [])]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag, and begin what it begins."""
        given: Attributes = dict(attrs)
        self.tags.append((tag, given))
        if tag not in VOID_TAGS:
            self._open.append(tag)
        if tag == "section":
            self._sections.append(given.get("id") or "")
            self.texts[self._section] = ""
        elif tag == "thead" and self._section:
            self._columns = []
            self.tables[self._section] = []
        elif tag == "tfoot":
            self._in_foot = True
        elif tag == "tr":
            self._cells = []
        elif tag in ("th", "td", "caption", "dt", "dd"):
            self._text, self._title = "", given.get("title") or ""
        elif tag == "form":
            form = Form(given.get("action") or "", given.get("method") or "", self._section)
            self.forms.append(form)
        elif tag == "input" and "form" in self._open:
            self.forms[-1].fields[given.get("name") or ""] = given.get("value") or ""

    def handle_endtag(self, tag: str) -> None:
        """End what the tag ends."""
        if tag in self._open:
            while self._open.pop() != tag:
                pass
        if tag == "section":
            self._sections.pop()
        elif tag == "tfoot":
            self._in_foot = False
        elif tag == "caption" and self._section:
            self.captions[self._section] = " ".join((self._text or "").split())
            self._text = None
        elif tag == "dt":
            self._label, self._text = (self._text or "").strip(), None
        elif tag == "dd":
            self.counters[self._label], self._text = (self._text or "").strip(), None
        elif tag in ("th", "td") and self._cells is not None:
            self._cells.append(Cell(" ".join((self._text or "").split()), self._title))
            self._text = None
        elif tag == "tr" and self._cells is not None and self._section:
            self._end_row(self._cells)
            self._cells = None

    def handle_data(self, data: str) -> None:
        """Collect text where it is asked for."""
        if self._section:
            self.texts[self._section] += data
        if self._text is not None:
            self._text += data
        if self._open and self._open[-1] in ("script", "style") and data.strip():
            self.inline.append(data)
        if self._open and self._open[-1] == "button" and self.forms:
            self.forms[-1].button += data.strip()

    def _end_row(self, cells: list[Cell]) -> None:
        if "thead" in self._open:
            self._columns = [cell.text for cell in cells]
            return
        row = dict(zip(self._columns, cells, strict=True))
        if self._in_foot:
            self.totals[self._section] = row
        else:
            self.tables[self._section].append(row)
