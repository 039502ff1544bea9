"""How do the rounds become a table and a file?"""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import redis

import groupqueue
from benchmarks.figures import MILLISECONDS, Reading

Report = dict[str, Any]


class Round(NamedTuple):
    """A reading and the bare round trips per second around it."""

    reading: Reading
    bare: float


class Comparison(NamedTuple):
    """Two readings of each round, divided."""

    name: str
    numerator: str
    denominator: str


def build(
    rounds: Sequence[Round],
    comparisons: Iterable[Comparison],
    *,
    server: Mapping[str, str],
    scale: float,
) -> Report:
    """Return everything that the run found, ready for JSON."""
    by_name: dict[str, list[Round]] = {}
    for entry in rounds:
        by_name.setdefault(entry.reading.name, []).append(entry)
    return heading(server) | {
        "scale": scale,
        "figures": {name: _figure(entries) for name, entries in by_name.items()},
        "comparisons": {
            comparison.name: _values(
                first.reading.value / second.reading.value
                for first, second in zip(
                    by_name[comparison.numerator], by_name[comparison.denominator], strict=True
                )
            )
            for comparison in comparisons
            if comparison.numerator in by_name and comparison.denominator in by_name
        },
    }


def heading(server: Mapping[str, str]) -> Report:
    """Return what every report begins with: what was measured when and where."""
    return {
        "groupqueue": groupqueue.__version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "server": dict(server),
    }


def describe_machine() -> dict[str, Any]:
    """Return what the figures depend on; nothing that says whose machine it is."""
    return {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "redis_py": redis.__version__,
        "hiredis": importlib.util.find_spec("hiredis") is not None,
        "load_average_at_the_end": round(os.getloadavg()[0], 2),
    }


def write(report: Report, path: Path) -> None:
    """Leave a report where it can be read again."""
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


def headline(report: Report) -> str:
    """Return in one line what was measured where."""
    machine, server = report["machine"], report["server"]
    parser = "with" if machine["hiredis"] else "without"
    return (
        f"groupqueue {report['groupqueue']} · {server['name']} {server['version']} by"
        f" {server['reach']}, persistence: {server['persistence']} · Python {machine['python']},"
        f" redis-py {machine['redis_py']} {parser} hiredis · {machine['cores']} cores"
    )


def table(report: Report) -> str:
    """Return the figures for people."""
    head = (
        "figure",
        "median",
        "unit",
        "from to",
        "bare/s",
        "to bare",
        "µs",
        "sent/called",
    )
    rows = [head, *(_row(name, figure) for name, figure in report["figures"].items())]
    rows += [
        (name, f"{values['median']:.2f}", "ratio", _spread(values["rounds"], 2), "", "", "", "")
        for name, values in report["comparisons"].items()
    ]
    return aligned(rows, left=(0, 2))


def aligned(rows: Sequence[Sequence[str]], *, left: Sequence[int]) -> str:
    """Return rows, the first one the head, in columns; those in `left` begin flush."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "─" * max(len(line) for line in lines))
    return "\n".join(lines)


LEGEND = """\
bare/s: round trips of redis-py's EVALSHA of `return 1` with the same arguments, measured
right before and after; to bare: the figure divided by that, or a time counted in such
round trips. Per message: µs the server spent in scripts; commands sent by clients and
called by scripts. Other load on the machine moves the figures; the ratios less."""


def _figure(entries: Sequence[Round]) -> dict[str, Any]:
    unit = entries[0].reading.unit
    ratios = [ratio for entry in entries if (ratio := _ratio(entry)) is not None]
    costs = [
        entry.reading.cost.per(entry.reading.messages) for entry in entries if entry.reading.cost
    ]
    return {
        "unit": unit,
        **_values(entry.reading.value for entry in entries),
        "bare_round_trips_per_second": _values(entry.bare for entry in entries),
        "ratio_to_bare": statistics.median(ratios) if ratios else None,
        "cost_per_message": {
            key: round(statistics.median(cost[key] for cost in costs), 3) for key in costs[0]
        }
        if costs
        else None,
    }


def _ratio(entry: Round) -> float | None:
    if entry.reading.unit == MILLISECONDS:
        return round(entry.reading.value / 1000 * entry.bare, 3)
    if entry.reading.unit == "commands/s" or not entry.reading.unit.endswith("/s"):
        return None
    return round(entry.reading.value / entry.bare, 3)


def _values(values: Iterable[float]) -> dict[str, Any]:
    rounds = [round(value, 3) for value in values]
    return {"rounds": rounds, "median": round(statistics.median(rounds), 3)}


def _row(name: str, figure: Mapping[str, Any]) -> tuple[str, ...]:
    digits = 0 if figure["median"] >= 100 else 2
    cost, ratio = figure["cost_per_message"], figure["ratio_to_bare"]
    return (
        name,
        f"{figure['median']:,.{digits}f}",
        figure["unit"],
        _spread(figure["rounds"], digits),
        f"{figure['bare_round_trips_per_second']['median']:,.0f}",
        "" if ratio is None else f"{ratio:.2f}",
        f"{cost['server_microseconds']:.1f}" if cost else "",
        f"{cost['commands_sent']:.2f}/{cost['commands_called_by_scripts']:.1f}" if cost else "",
    )


def _spread(rounds: Sequence[float], digits: int) -> str:
    return f"{min(rounds):,.{digits}f} to {max(rounds):,.{digits}f}"
