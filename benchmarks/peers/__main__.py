"""`python -m benchmarks.peers`: measure groupqueue beside other queues, print and write it.

What a peer needs is installed into .venv.peers, once.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import report
from benchmarks.figures import new_bench
from benchmarks.peers import chart, results
from benchmarks.peers.catalogue import OURS, PEERS, Peer
from benchmarks.peers.environments import Environment, Unavailable, prepare
from benchmarks.peers.measuring import measure
from benchmarks.server import add_server_options, own_server

FOLDER = Path(__file__).parents[1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for."""
    options = parser().parse_args(arguments)
    peers = chosen(options.only)
    environments = {peer: _prepared(peer) for peer in peers}
    there = [
        (peer, environment)
        for peer, environment in environments.items()
        if isinstance(environment, Environment)
    ]
    with own_server(options.server, options.connect) as server:
        bench = new_bench(server, scale=options.scale)
        ours = any(peer.name == OURS for peer, _ in there)
        measured = measure(
            bench, there, rounds=options.rounds, seconds=options.minutes * 60, ours=ours
        )
        found = results.build(
            measured,
            environments=environments,
            server=server.describe(),
            scale=options.scale,
        )
    report.write(found, options.output)
    options.output.with_suffix(".svg").write_text(chart.svg(found))
    print(report.headline(found), results.table(found), results.LEGEND, sep="\n\n")
    if ours:
        print(f"\ngroupqueue alone:\n{results.alone(found)}")
    for trouble in results.troubles(found):
        print(trouble, file=sys.stderr)


def parser() -> argparse.ArgumentParser:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often (default 3)")
    parser.add_argument(
        "--minutes",
        type=float,
        default=14.0,
        help="no round begins that would not end in this time (14); the first one does",
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of the messages and of the time (1.0)"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="PATTERN",
        help="peers to measure, such as 'group*'; may be given several times",
    )
    add_server_options(parser)
    parser.add_argument(
        "--output",
        type=Path,
        default=FOLDER / "peers.json",
        help="the JSON file to write; the chart is written beside it as .svg",
    )
    return parser


def chosen(patterns: Sequence[str] | None) -> list[Peer]:
    """Return the peers that match one of the patterns, whatever the case."""
    peers = [
        peer
        for peer in PEERS
        if not patterns
        or any(fnmatch.fnmatch(peer.name.lower(), pattern.lower()) for pattern in patterns)
    ]
    if not peers:
        names = ", ".join(peer.name for peer in PEERS)
        raise SystemExit(f"--only {' '.join(patterns or ())}: no such peer; there are {names}")
    return peers


def _prepared(peer: Peer) -> Environment | str:
    try:
        return prepare(peer)
    except Unavailable as error:
        print(f"{peer.name} is left out: it {error}", file=sys.stderr)
        return str(error)


if __name__ == "__main__":
    main()
