"""`python -m benchmarks.run`: measure groupqueue on a server of its own, print and write it."""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import crowds, operations, report, workers
from benchmarks.figures import Bench, Figure, bare_round_trips, new_bench
from benchmarks.report import Round
from benchmarks.server import Server, add_server_options, own_server

LATEST = Path(__file__).parent / "latest.json"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark that the command line asks for."""
    options = parser().parse_args(arguments)
    with own_server(options.server, options.connect) as server:
        measure(server, options)


def parser() -> argparse.ArgumentParser:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full load (1.0)")
    parser.add_argument(
        "--only", default="*", metavar="PATTERN", help="figures to measure, such as 'turn*'"
    )
    add_server_options(parser)
    parser.add_argument(
        "--groups",
        type=lambda text: [int(number) for number in text.split(",")],
        default=[100, 10_000, 100_000],
        help="with how many groups claims and publishes are compared (100,10000,100000)",
    )
    parser.add_argument("--output", type=Path, default=LATEST, help="the JSON file to write")
    return parser


def measure(server: Server, options: argparse.Namespace) -> None:
    """Measure on a running server, print the table and write the file."""
    compared = crowds.by_groups(options.groups)
    there = [*operations.figures(), *workers.figures(), *crowds.figures("groups", compared)]
    figures = [figure for figure in there if fnmatch.fnmatch(figure.name, options.only)]
    if not figures:
        names = ", ".join(figure.name for figure in there)
        raise SystemExit(f"--only {options.only}: no such figure; there are {names}")
    bench = new_bench(server, scale=options.scale)
    rounds = measure_all(bench, figures, times=options.rounds)
    comparisons = [workers.SECOND_PROCESS, *crowds.comparisons(compared)]
    found = report.build(rounds, comparisons, server=server.describe(), scale=options.scale)
    report.write(found, options.output)
    print(report.headline(found), report.table(found), report.LEGEND, sep="\n\n")


def measure_all(bench: Bench, figures: Sequence[Figure], *, times: int) -> list[Round]:
    """Measure the figures in turn, so many times."""
    rounds: list[Round] = []
    for number in range(times):
        for figure in figures:
            print(f"round {number + 1} of {times}: {figure.name}", file=sys.stderr)
            rounds += measure_figure(bench, figure)
    return rounds


def measure_figure(bench: Bench, figure: Figure) -> list[Round]:
    """Measure a figure once, between two looks at the bare round trip."""
    bench.client.flushdb()
    call = figure.typical_call(bench)
    before = bare_round_trips(bench, call)
    readings = figure.measure(bench)
    after = bare_round_trips(bench, call)
    return [Round(reading, (before + after) / 2) for reading in readings]


if __name__ == "__main__":
    main()
