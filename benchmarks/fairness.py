"""`python -m benchmarks.fairness`: how long do groups wait beside others that want more?

Floods, fresh groups and tiers are simulated on a server of its own; see
benchmarks/simulation.py.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

from benchmarks import report
from benchmarks.server import Server, add_server_options, own_server
from benchmarks.simulation import Arrivals, Scenario, Wait, simulate
from groupqueue.core.keys import shard_prefix
from groupqueue.core.messages import TIERS
from groupqueue.transport.redis import RedisTransport
from groupqueue.worker.options import WorkerOptions

Fared = dict[str, dict[str, Any]]

FLOODING_GROUPS = 20
# More than the virtual workers, so that each tier could keep all of them busy.
GROUPS_PER_TIER = 6
TURNS = 2000
WORKERS = 4
SERVICE_MS = 8.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the simulation that the command line asks for."""
    options = parser().parse_args(arguments)
    with own_server(options.server, options.connect) as server:
        found = report.heading(server.describe()) | {
            "turns": options.turns,
            "workers": options.workers,
            "service_ms": options.service_ms,
            "scenarios": {
                scenario.name: simulated(server, scenario, options) for scenario in scenarios()
            },
        }
    if options.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        print(report.headline(found), table(found), LEGEND, sep="\n\n")


def parser() -> argparse.ArgumentParser:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fairness", description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS, help=f"per scenario ({TURNS})")
    parser.add_argument("--workers", type=int, default=WORKERS, help=f"virtual ones ({WORKERS})")
    parser.add_argument(
        "--service-ms", type=float, default=SERVICE_MS, help=f"per message ({SERVICE_MS:g})"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_server_options(parser)
    return parser


def simulated(server: Server, scenario: Scenario, options: argparse.Namespace) -> Fared:
    """Simulate one scenario on a shard of its own; return how each class of groups fared."""
    print(f"simulating {scenario.name}", file=sys.stderr)
    prefix = shard_prefix(scenario.name)
    with closing(RedisTransport(server.client(), prefix, arrival=scenario.arrival)) as transport:
        waits = simulate(
            transport,
            scenario,
            turns=options.turns,
            workers=options.workers,
            service_seconds=options.service_ms / 1000,
        )
    return by_class(waits)


# Scenarios -----------------------------------------------------------------------------


def scenarios() -> list[Scenario]:
    """Return all scenarios in the order in which they are simulated."""
    return [
        flood(),
        fresh("fair"),
        fresh("front"),
        *(tiers(f"tiers_share_{share:g}", priority_share=share) for share in (0, 0.8, 1)),
        tiers("tiers_high_ratio_0.8_from_3", high_ratio=0.8, priority_threshold=3),
    ]


def flood() -> Scenario:
    """Groups with an endless backlog, and a light one with a message now and then."""
    return Scenario(
        name="flood",
        backlogged={f"flood-{number:02}": 0 for number in range(FLOODING_GROUPS)},
        arrivals=_now_and_then,
    )


def fresh(arrival: str) -> Scenario:
    """A message of a new group per claim, and one group with an endless backlog."""
    return Scenario(
        name=f"fresh_{arrival}", backlogged={"backlogged-0": 0}, arrivals=_fresh, arrival=arrival
    )


def tiers(
    name: str,
    *,
    priority_share: float | None = None,
    high_ratio: float | None = None,
    priority_threshold: int | None = None,
) -> Scenario:
    """Groups with endless backlogs in all tiers."""
    return Scenario(
        name=name,
        backlogged={
            f"tier{tier}-{number}": tier
            for tier in reversed(TIERS)
            for number in range(GROUPS_PER_TIER)
        },
        arrivals=_nothing,
        options=WorkerOptions(
            queues=("default",),
            priority_share=priority_share,
            high_ratio=high_ratio,
            priority_threshold=priority_threshold,
        ),
    )


def _now_and_then(chance: random.Random) -> Arrivals:
    while True:
        # Longer than a round, so that no message waits for its predecessor's handler.
        for _ in range(chance.randint(FLOODING_GROUPS + 10, FLOODING_GROUPS + 30)):
            yield ()
        yield ("light-0",)


def _fresh(chance: random.Random) -> Arrivals:
    number = 0
    while True:
        # Without an order in their names, which decides between equal moments.
        yield (f"fresh-{chance.getrandbits(32):08x}.{number}",)
        number += 1


def _nothing(_: random.Random) -> Arrivals:
    while True:
        yield ()


# The report ----------------------------------------------------------------------------


def by_class(waits: Sequence[Wait]) -> Fared:
    """Return how each class of groups fared, ready for JSON."""
    claims = sum(wait.is_over for wait in waits)
    kinds = sorted({wait.kind for wait in waits}, reverse=True)
    return {kind: _fared([wait for wait in waits if wait.kind == kind], claims) for kind in kinds}


def _fared(waits: Sequence[Wait], claims: int) -> dict[str, Any]:
    claimed = sum(wait.is_over for wait in waits)
    milliseconds = [wait.seconds * 1000 for wait in waits]
    longest = max(waits, key=lambda wait: wait.claims)
    return {
        "claimed": claimed,
        "share": round(claimed / claims, 4),
        "mean_claims": round(statistics.mean(wait.claims for wait in waits), 2),
        "p99_claims": _p99(wait.claims for wait in waits),
        "longest_claims": longest.claims,
        "longest_is_over": longest.is_over,
        "p99_rounds": round(_p99(wait.rounds for wait in waits), 2),
        "mean_ms": round(statistics.mean(milliseconds), 2),
        "p99_ms": round(_p99(milliseconds), 2),
    }


def _p99(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[int(len(ordered) * 0.99)]


def table(found: report.Report) -> str:
    """Return the report for people."""
    head = ["scenario", "class", "claimed", "share", "mean", "p99", "longest", "rounds"]
    rows = [[*head, "mean ms", "p99 ms"]]
    for name, kinds in found["scenarios"].items():
        rows += [[name, kind, *_cells(fared)] for kind, fared in kinds.items()]
    return report.aligned(rows, left=(0, 1))


def _cells(fared: dict[str, Any]) -> list[str]:
    longest = f"{'' if fared['longest_is_over'] else '≥'}{fared['longest_claims']}"
    return [
        f"{fared['claimed']}",
        f"{fared['share']:.1%}",
        *(f"{fared[key]:.0f}" for key in ("mean_claims", "p99_claims")),
        longest,
        f"{fared['p99_rounds']:.1f}",
        *(f"{fared[key]:.0f}" for key in ("mean_ms", "p99_ms")),
    ]


LEGEND = """\
Per class of groups: how many claims it got and their share; how long a group waited from
being due to its claim, counted in claims (mean, p99, longest) and in ms (mean, p99);
rounds: the p99 of waits divided by the number of groups that waited when they began. That
number is the fair share of a wait: 1 round where all are equal; below the highest tier
1 / (1 - PRIORITY_SHARE). What still waited at the end counts with its length so far; ≥: such
a wait is the longest. Waits in claims are the same on every machine."""


if __name__ == "__main__":
    main()
