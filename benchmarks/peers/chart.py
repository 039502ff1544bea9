"""How does the comparison look? As one SVG: a panel per figure, two bars per peer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from benchmarks.peers.catalogue import OURS
from benchmarks.peers.measuring import FIGURES, PAYLOADS
from benchmarks.peers.results import TITLES
from benchmarks.report import Report

PANEL_WIDTH, GAP = 470, 40
NAME_WIDTH, VALUE_WIDTH = 160, 96
BAR, ROW = 8, 24
TOP, PANEL_HEAD, MARGIN = 74, 28, 16
COLUMNS = 2

# Readable on a light and on a dark page.
STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.panel { font-weight: 600 }
.quiet, .value { fill: #656d76; font-size: 11px }
.ours { font-weight: 600 }
.page { fill: #ffffff }
.flights { fill: #8c959f }
.small { fill: #c8ced5 }
.flights.ours { fill: #0b7285 }
.small.ours { fill: #66b5c4 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .quiet, .value { fill: #9198a1 }
  .page { fill: #0d1117 }
  .flights { fill: #7d8590 }
  .small { fill: #444c56 }
  .flights.ours { fill: #3bc9db }
  .small.ours { fill: #1b7f8f }
}"""


class Bars(NamedTuple):
    """One peer in one panel."""

    name: str
    is_ours: bool
    values: dict[str, float]
    """Messages per second by payload."""


def svg(found: Report) -> str:
    """Return the chart of a result."""
    panels = [(TITLES[figure], bars(found, figure)) for figure in FIGURES]
    heights = [PANEL_HEAD + ROW * len(rows) for _, rows in panels]
    tallest = [max(heights[start : start + COLUMNS]) for start in range(0, len(panels), COLUMNS)]
    width = 2 * MARGIN + COLUMNS * PANEL_WIDTH + (COLUMNS - 1) * GAP
    height = TOP + sum(tallest) + GAP * (len(tallest) - 1) + 2 * MARGIN
    parts = list(_head(found, width, height))
    for number, (title, rows) in enumerate(panels):
        line, column = divmod(number, COLUMNS)
        x = MARGIN + column * (PANEL_WIDTH + GAP)
        y = TOP + sum(tallest[:line]) + line * GAP
        parts += [f'<g transform="translate({x} {y})">', *_panel(title, rows), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def bars(found: Report, figure: str) -> list[Bars]:
    """Return the bars of a figure, the fastest with the first payload first."""
    values: dict[str, dict[str, float]] = {}
    for payload in PAYLOADS:
        for name, entry in found["figures"][payload][figure].items():
            values.setdefault(name, {})[payload] = entry["median"]
    marks = {name: MARKS[peer["acknowledges"]] for name, peer in found["peers"].items()}
    rows = [
        Bars(name + marks[name], name.startswith(OURS), by_payload)
        for name, by_payload in values.items()
    ]
    return sorted(
        rows, key=lambda row: [row.values.get(payload, 0) for payload in PAYLOADS], reverse=True
    )


MARKS = {"after handling": "", "partly": " *", "before handling": " **"}


def _head(found: Report, width: int, height: int) -> Iterator[str]:
    machine, server, bare = (
        found[key] for key in ("machine", "server", "bare_round_trips_per_second")
    )
    limit = f", {bare['median']:,} bare EVALSHA round trips/s" if bare else ""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img">'
    )
    yield "<title>Messages per second of groupqueue and other queues</title>"
    yield f"<style>{STYLE}</style>"
    yield f'<rect class="page" width="{width}" height="{height}"/>'
    yield _text(MARGIN, 26, "Messages per second, longer is faster", "title")
    yield _text(
        MARGIN,
        44,
        f"{server['name']} {server['version']} by {server['reach']}, {machine['cores']} cores,"
        f" medians of rounds: {found['rounds']}{limit}.",
        "quiet",
    )
    yield _text(
        MARGIN,
        60,
        "Upper bar: a row of the flights; lower bar: 13 bytes."
        " Acknowledged after handling, but: * partly, ** before handling.",
        "quiet",
    )


def _panel(title: str, rows: list[Bars]) -> Iterator[str]:
    yield _text(0, 14, title, "panel")
    longest = max((max(row.values.values()) for row in rows), default=1)
    room = PANEL_WIDTH - NAME_WIDTH - VALUE_WIDTH
    for number, row in enumerate(rows):
        y = PANEL_HEAD + number * ROW
        ours = " ours" if row.is_ours else ""
        yield _text(NAME_WIDTH - 8, y + 12, row.name, f"name{ours}", anchor="end")
        for place, payload in enumerate(PAYLOADS):
            if (value := row.values.get(payload)) is not None:
                length = value / longest * room
                yield (
                    f'<rect class="{payload}{ours}" x="{NAME_WIDTH}" y="{y + place * BAR}"'
                    f' width="{length:.1f}" height="{BAR}"/>'
                )
        end = NAME_WIDTH + max(row.values.values()) / longest * room
        yield _text(end + 5, y + 12, _told(row), "value")


def _told(row: Bars) -> str:
    return " · ".join(f"{row.values[name]:,.0f}" for name in PAYLOADS if name in row.values)


def _text(x: float, y: float, text: str, kind: str, *, anchor: str = "start") -> str:
    place: dict[str, Any] = {"x": f"{x:.1f}", "y": f"{y:.1f}"}
    attributes = " ".join(f'{name}="{value}"' for name, value in place.items())
    return f'<text class="{kind}" {attributes} text-anchor="{anchor}">{escape(text)}</text>'
