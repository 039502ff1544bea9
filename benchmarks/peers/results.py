"""How do the rounds become one file and a table?"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks import report
from benchmarks.figures import MESSAGES_PER_SECOND
from benchmarks.peers.catalogue import OURS, Peer
from benchmarks.peers.environments import Environment
from benchmarks.peers.measuring import FIGURES, PAYLOADS, Failure, Measured, Reading
from benchmarks.report import Report

TITLES = {
    "handled_1": "handled, 1 at a time",
    "handled_16": "handled, 16 at a time",
    "published_1": "published one by one",
    "published_100": "published by 100",
}
WORK = {
    "flights": "27,000 rows of the demo's flights, each a dictionary of ten strings",
    "small": "27,000 strings of 13 bytes",
    "groups": "1,000 in turn, where groups exist",
    "handled_1": "one process, a handler that only counts; from the first to the last message"
    " after the warm-up, by the clock of the handler, with a backlog all the time",
    "handled_16": "the same with 16 at a time in the process",
    "published_1": "one message per call, by one client; each is awaited",
    "published_100": "a hundred at once, in the way the peer has for it",
    "limit": "a case ends after its messages or its time, whichever comes first",
}


def build(
    measured: Measured,
    *,
    environments: Mapping[Peer, Environment | str],
    server: Mapping[str, str],
    scale: float,
) -> Report:
    """Return everything that the run found, ready for JSON.

    In place of an environment stands the reason why there is none.
    """
    ours = report.build(measured.ours, [TWO_TO_ONE], server=server, scale=scale)
    return report.heading(server) | {
        "rounds": measured.rounds,
        "scale": scale,
        "work": WORK,
        "bare_round_trips_per_second": _bare(measured.readings),
        "peers": {
            peer.name: _described(peer, environment, measured.settings, measured.failures)
            for peer, environment in environments.items()
        },
        "figures": {
            payload: {
                figure: _compared(
                    [
                        reading
                        for reading in measured.readings
                        if (reading.payload, reading.figure) == (payload, figure)
                    ]
                )
                for figure in FIGURES
            }
            for payload in PAYLOADS
        },
        "groupqueue_alone": {key: ours[key] for key in ("figures", "comparisons")},
    }


TWO_TO_ONE = report.Comparison(
    "two_processes_to_one",
    "worker_2_processes_concurrency_16",
    "worker_1_process_concurrency_16",
)


def _described(
    peer: Peer,
    environment: Environment | str,
    settings: Mapping[str, Sequence[str]],
    failures: Iterable[Failure],
) -> dict[str, Any]:
    is_there = isinstance(environment, Environment)
    return {
        "acknowledges": peer.acknowledges,
        "because": peer.because,
        "groups": peer.has_groups,
        "versions": environment.versions if is_there else {},
        "settings": list(settings.get(peer.name, ()))
        + [f"{name}: {value}" for name, value in peer.options],
        "not_measured": None if is_there else environment,
        "failures": [failure._asdict() for failure in failures if failure.peer == peer.name],
    }


def _bare(readings: Sequence[Reading]) -> dict[str, Any] | None:
    values = [reading.bare for reading in readings]
    if not values:
        return None
    return {
        "median": round(statistics.median(values)),
        "from": round(min(values)),
        "to": round(max(values)),
    }


def _compared(readings: Sequence[Reading]) -> dict[str, dict[str, Any]]:
    by_peer: dict[str, list[Reading]] = {}
    for reading in readings:
        by_peer.setdefault(reading.peer, []).append(reading)
    ours = by_peer.get(OURS, [])
    return {peer: _figure(entries, ours) for peer, entries in by_peer.items()}


def _figure(readings: Sequence[Reading], ours: Sequence[Reading]) -> dict[str, Any]:
    return {
        "unit": MESSAGES_PER_SECOND,
        "median": round(statistics.median(reading.per_second for reading in readings), 1),
        "rounds": [round(reading.per_second, 1) for reading in readings],
        "messages": [reading.messages for reading in readings],
        "cpu_microseconds_per_message": round(
            statistics.median(reading.cpu_microseconds for reading in readings), 1
        ),
        "ratio_to_bare": ratio(readings, [reading.bare for reading in readings]),
        "groupqueue_to_it": ratio(ours, [reading.per_second for reading in readings]),
    }


def ratio(readings: Sequence[Reading], others: Sequence[float]) -> float | None:
    """Return the median of the rounds' ratios: each round has met the same machine.

    There is none when a round of one of the two is missing.
    """
    if not readings or len(readings) != len(others):
        return None
    ratios = [reading.per_second / other for reading, other in zip(readings, others, strict=True)]
    return round(statistics.median(ratios), 3)


# For people ------------------------------------------------------------------------------


def table(found: Report) -> str:
    """Return all figures, a table for each payload."""
    return "\n\n".join(
        f"{payload}: {WORK[payload]}\n{_table(found, payload)}" for payload in PAYLOADS
    )


def _table(found: Report, payload: str) -> str:
    head = ["peer", "acknowledges"]
    for figure in FIGURES:
        head += [figure.replace("_", " "), "µs", "ours/it"]
    rows = [head]
    for name, peer in found["peers"].items():
        row = [name, peer["acknowledges"]]
        for figure in FIGURES:
            row += _cells(found["figures"][payload][figure].get(name))
        rows.append(row)
    return report.aligned(rows, left=(0, 1))


def _cells(figure: Mapping[str, Any] | None) -> list[str]:
    if figure is None:
        return ["-", "", ""]
    to_it = figure["groupqueue_to_it"]
    return [
        f"{figure['median']:,.0f}",
        f"{figure['cpu_microseconds_per_message']:.0f}",
        "" if to_it is None else f"{to_it:.2f}",
    ]


def alone(found: Report) -> str:
    """Return what is measured of groupqueue alone."""
    return report.table(found["groupqueue_alone"])


def troubles(found: Report) -> list[str]:
    """Return what could not be measured, and why."""
    told = []
    for name, peer in found["peers"].items():
        if peer["not_measured"]:
            told.append(f"{name} was not measured: it {peer['not_measured']}")
        told += [
            f"{name}, {failure['figure']} ({failure['payload']}): {failure['reason']}"
            for failure in peer["failures"]
        ]
    return told


LEGEND = """\
messages/s, medians of the rounds; µs: processor time of the publisher's or worker's process
per message; ours/it: groupqueue's figure divided by this one, the median over the rounds.
-: the peer does not offer it, or see below. How each is set up is in the JSON file."""
