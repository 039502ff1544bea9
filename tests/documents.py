"""What do the Markdown pages say? Their tables, code blocks and links, for tests to check."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [
    README,
    ROOT / "CHANGELOG.md",
    ROOT / "groupqueue" / "lua" / "README.md",
    *sorted(DOCS.rglob("*.md")),
]


class Block(NamedTuple):
    """One fenced block of code."""

    language: str
    text: str

    @property
    def path(self) -> str | None:
        """The file that a first line such as `# shop/views.py, at the end` names."""
        first = re.match(r"# ([\w/]+\.py)(, at the end)?\n", self.text)
        return first[1] if first else None

    @property
    def is_appended(self) -> bool:
        """Whether the block goes to the end of its file instead of being all of it."""
        return ", at the end" in self.text.partition("\n")[0]


def blocks(text: str, language: str | None = None) -> list[Block]:
    """Return the fenced blocks of a page, those of one language if asked."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(*block) for block in found if language in (None, block[0])]


def without_blocks(text: str) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def section(page: Path, heading: str) -> str:
    """Return what stands under a heading of the second level."""
    found = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL
    )
    assert found, f"{page.name} has no section {heading!r}"
    return found[1]


def rows(page: Path, heading: str) -> list[list[str]]:
    """Return the rows of the first table under a heading, without its head."""
    lines = re.search(r"(^\|.*\|\n)+", section(page, heading), re.MULTILINE)
    assert lines, f"{page.name} has no table under {heading!r}"
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[0].splitlines()
    ][2:]


def coded(text: str) -> list[str]:
    """Return what a text shows as code within its lines."""
    return re.findall(r"`([^`\n]+)`", without_blocks(text))


def links(page: Path) -> Iterator[str]:
    """Yield where a page's links lead to."""
    prose = re.sub(r"`[^`\n]+`", "code", without_blocks(page.read_text()))
    yield from re.findall(r"\[[^\]]+\]\(([^)\s]+)\)", prose)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, made as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
