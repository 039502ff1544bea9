"""Which figures are held against a goal, and does a report meet them?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from benchmarks import report
from benchmarks.report import Report


class Goal(NamedTuple):
    """The most that the median of a figure or comparison may be."""

    name: str
    limit: float


def judged(found: Report, goals: Iterable[Goal]) -> Report:
    """Return a report to which is added how each goal fares."""
    medians = {
        name: values["median"] for name, values in (found["figures"] | found["comparisons"]).items()
    }
    return found | {
        "goals": {
            name: {"limit": limit, "found": medians[name], "met": medians[name] <= limit}
            for name, limit in goals
        }
    }


def exit_code(found: Report) -> int:
    """Return 1 when a goal is missed; a load that is cut down proves nothing."""
    is_missed = not all(goal["met"] for goal in found["goals"].values())
    return 1 if is_missed and found["scale"] >= 1 else 0


def table(found: Report) -> str:
    """Return the goals for people."""
    head = ("goal", "found", "at most", "met")
    rows = [
        (name, f"{goal['found']:,.2f}", f"{goal['limit']:g}", "yes" if goal["met"] else "no")
        for name, goal in found["goals"].items()
    ]
    return report.aligned([head, *rows], left=(0,))
