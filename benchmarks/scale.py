"""`python -m benchmarks.scale`: do costs and memory keep to their goals at a million of each?

Exits with 1 when a goal is missed at full scale.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import backlogs, crowds, goals, report
from benchmarks.figures import new_bench
from benchmarks.goals import Goal
from benchmarks.report import Report
from benchmarks.run import measure_all
from benchmarks.server import Server, add_server_options, own_server

OUTPUT = Path(__file__).parent / "scale.json"
GROUP_COUNTS = (100, 10_000, 1_000_000)
DEPTHS = (100, 1_000_000)
ROUNDS = 3

COST_RATIO = 1.3
MEMORY = [
    Goal("memory_per_message_beyond_payload", 90),
    Goal("memory_per_group_beyond_payload", 450),
    *(Goal(f"keys_left_by_{unit}s", 0) for unit in backlogs.GROUPS),
    # Less than a pointer: nothing is kept of a message.
    *(Goal(f"worker_growth_per_{unit}", 5) for unit in backlogs.GROUPS),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for, print and write it; return the exit code."""
    options = parser().parse_args(arguments)
    with own_server(options.server, options.connect) as server:
        found = measure(server, options.scale)
    report.write(found, options.output)
    told = (report.headline(found), report.table(found), report.LEGEND, goals.table(found))
    print(*told, sep="\n\n")
    return goals.exit_code(found)


def parser() -> argparse.ArgumentParser:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full load (1.0)")
    add_server_options(parser)
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the JSON file to write")
    return parser


def measure(server: Server, scale: float) -> Report:
    """Return what was found, the goals included, ready for JSON."""
    bench = new_bench(server, scale=scale)
    by_groups = crowds.by_groups([bench.scaled(count) for count in GROUP_COUNTS])
    by_depth = crowds.by_depth([bench.scaled(count) for count in DEPTHS])
    compared = [*crowds.figures("groups", by_groups), *crowds.figures("depth", by_depth)]
    comparisons = [*crowds.comparisons(by_groups), *crowds.comparisons(by_depth)]
    # The backlogs first: the crowds stay, and the server would still be busy with growing them.
    rounds = [
        *measure_all(bench, backlogs.figures(), times=1),
        *measure_all(bench, compared, times=ROUNDS),
    ]
    found = report.build(rounds, comparisons, server=server.describe(), scale=scale)
    costs = [Goal(comparison.name, COST_RATIO) for comparison in comparisons]
    return goals.judged(found, [*MEMORY, *costs])


if __name__ == "__main__":
    sys.exit(main())
