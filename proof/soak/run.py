"""How does a soak go? Actors and faults at once, then health, an empty queue, and a verdict."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from proof import stamps
from proof.checker import Verdict
from proof.edits import DoesNotFit, Edit, in_place
from proof.plan import Plan
from proof.records import Recorder
from proof.soak import verify
from proof.soak.intent import FATES
from proof.soak.nemesis import EVERYDAY, Nemesis, plan
from proof.soak.stage import Stage
from proof.soak.troupe import PUBLISHERS
from tests.servers import Kind, guardian

EXIT_BROKEN = 1
EXIT_INTERRUPTED = 128 + signal.SIGINT
STRICT = ("lost", "out_of_order", "double_leases", "audit_findings")
COUNTS = ("published", "confirmed", "delivered", "redelivered", "stale_settles", *STRICT)
# The second part of a run, with a replica that takes over.
FAILOVER_SHARE, LONGEST_FAILOVER_SECONDS = 0.25, 300.0
FAILOVER_FAULTS = ("failover", "kill_worker", "cut_connections")
SHORTEST_DRAIN_SECONDS = 60.0
# How much longer is published, if handlers have not done all that is bad so far.
FATES_SECONDS = 40.0
MOST_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a run: which faults, for how long, and whether a replica takes over."""

    name: str
    seconds: float
    faults: tuple[str, ...]
    with_replica: bool = False


@dataclass(kw_only=True)
class Outcome:
    """What a part came to."""

    part: Part
    faults: Counter[str] = field(default_factory=Counter)
    verdict: Verdict = field(default_factory=Verdict)
    audit_findings: int = 0
    operator: Counter[str] = field(default_factory=Counter)
    """What the operator did meanwhile."""
    restarts: int = 0
    left: list[str] = field(default_factory=list)
    """What was not handled in the end."""
    would_not_end: list[str] = field(default_factory=list)
    """Actors that had to be killed, when all was well."""
    stayed_away: list[str] = field(default_factory=list)
    """Actors that did nothing any more, when all was well."""
    unproven: list[str] = field(default_factory=list)
    """Of what nothing has been seen, so that nothing wrong could be seen of it either."""

    @property
    def never_fired(self) -> list[str]:
        """The faults that did not happen."""
        wanted = list(self.part.faults)
        if not self.part.with_replica:
            wanted += [f"handler_{fate.name}" for fate in FATES]
        return [fault for fault in wanted if not self.faults[fault]]

    @property
    def broken(self) -> list[str]:
        """Why the part has failed; nothing when it has not."""
        reasons = [f"the fault {fault} did not happen" for fault in self.never_fired]
        reasons += [f"not handled in the end: {told}" for told in self.left]
        reasons += [f"{name} did not end" for name in self.would_not_end]
        reasons += [f"{told} did not come back" for told in self.stayed_away]
        reasons += self.unproven
        reasons += [f"{name}: {self.counts[name]}" for name in STRICT if self.counts[name]]
        return [*reasons, *self.verdict.findings]

    @property
    def counts(self) -> dict[str, int]:
        """The figures of the verdict."""
        counts = {name: value for name, value in asdict(self.verdict).items() if name in COUNTS}
        return counts | {"audit_findings": self.audit_findings}

    def document(self) -> dict[str, Any]:
        """Return it for the line that a run ends with."""
        return {
            "seconds": round(self.part.seconds, 1),
            "faults": dict(sorted(self.faults.items())),
            **{name: self.counts[name] for name in COUNTS},
            "findings": len(self.verdict.findings),
            "operator": dict(sorted(self.operator.items())),
            "restarts": self.restarts,
            "drained": not self.left,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak that the command line asks for; return the exit code."""
    options = parser().parse_args(arguments)
    parts = parts_of(options)
    for part in parts:
        try:
            plan(options.seed, part.seconds, part.faults)
        except ValueError as error:
            parser().error(f"--seconds {options.seconds:g} is too short: {error}")
    try:
        with in_place([Edit(*options.mutation)] if options.mutation else []):
            pass
    except (DoesNotFit, OSError) as error:
        parser().error(f"--break: {error}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # What is resumed from here while the queue drains belongs to its history as well.
    stamps.install()
    folder = Path(tempfile.mkdtemp(prefix="groupqueue-soak-"))
    exit_code = EXIT_BROKEN
    try:
        outcomes = [run_part(part, options, folder / part.name) for part in parts]
        exit_code = EXIT_BROKEN if any(outcome.broken for outcome in outcomes) else 0
        for outcome in outcomes:
            for reason in outcome.broken[:MOST_SHOWN]:
                tell(f"{outcome.part.name}: {reason}")
        print(json.dumps(document(options, outcomes, is_well=not exit_code)), flush=True)
    except KeyboardInterrupt:
        exit_code = EXIT_INTERRUPTED
    finally:
        guardian.dismiss()
        if exit_code == 0 and not options.keep:
            shutil.rmtree(folder)
        else:
            tell(f"records, logs and data are in {folder}")
    return exit_code


def parser() -> argparse.ArgumentParser:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        prog="python -m proof.soak",
        description="Run publishers and workers against a server while everything around it"
        " breaks; then let it heal, and check that nothing was lost or out of order. Needs Linux.",
    )
    parser.add_argument("--seconds", type=_positive, default=60, help="how long things break (60)")
    parser.add_argument("--seed", type=int, default=1, help="what breaks, and when (1)")
    parser.add_argument("--server", choices=("valkey", "redis"), default="valkey")
    parser.add_argument("--rate", type=_positive, default=200, help="messages a second (200)")
    parser.add_argument(
        "--failover", choices=("also", "only", "no"), default="also", help="the second part (also)"
    )
    parser.add_argument(
        "--drain",
        type=_positive,
        help="how long the queue may take to empty (a quarter, at least 60)",
    )
    parser.add_argument(
        "--back",
        type=_positive,
        # One that keeps dying is started ever later.
        default=60,
        help="how long an actor may take to be at work again (60)",
    )
    parser.add_argument(
        "--trust-replies",
        action="store_true",
        help="take what a primary confirms as confirmed, without WAIT: failovers will lose some",
    )
    parser.add_argument("--keep", action="store_true", help="keep records, logs and data")
    parser.add_argument(
        "--break",
        dest="mutation",
        nargs=3,
        metavar=("FILE", "TEXT", "REPLACEMENT"),
        help="put something else in place of a text in a file of the scripts: a soak must notice",
    )
    return parser


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError(text)
    return number


def parts_of(options: argparse.Namespace) -> list[Part]:
    """Return the parts of a run: everything else first, then failovers."""
    share = {"also": FAILOVER_SHARE, "only": 1.0, "no": 0.0}[options.failover]
    seconds = options.seconds * share
    if options.failover == "also":
        seconds = min(seconds, LONGEST_FAILOVER_SECONDS)
    parts = [
        Part(name="everyday", seconds=options.seconds - seconds, faults=EVERYDAY),
        Part(name="failover", seconds=seconds, faults=FAILOVER_FAULTS, with_replica=True),
    ]
    return [part for part in parts if part.seconds > 0]


def run_part(part: Part, options: argparse.Namespace, folder: Path) -> Outcome:
    """Run one part on servers of its own; return what it came to."""
    kind: Kind = options.server
    told = Plan(
        folder=str(folder),
        queue=f"soak-{part.name}",
        url="",
        seed=options.seed,
        rate=options.rate / PUBLISHERS,
        is_waiting=part.with_replica and not options.trust_replies,
        mutation=options.mutation and tuple(options.mutation),
    )
    drain_seconds = options.drain or max(SHORTEST_DRAIN_SECONDS, part.seconds / 4)
    outcome = Outcome(part=part)
    with contextlib.closing(Stage(kind, told, with_replica=part.with_replica)) as stage:
        steps = plan(options.seed, part.seconds, part.faults)
        nemesis = Nemesis(stage, steps, options.seed, Recorder(told.records / "nemesis.jsonl"))
        tell(f"{part.name}: {part.seconds:.0f} s, {len(steps)} faults, seed {options.seed}")
        stage.troupe.start()
        with _progress(part, nemesis):
            nemesis.run(part.seconds, threading.Event())
        _bring_to_rest(stage, outcome, drain_seconds, options.back)
        outcome.faults = nemesis.fired
        outcome.restarts = stage.troupe.restarts
        tell(f"{part.name}: checking")
        outcome.audit_findings = len(found := verify.audit(stage))
        outcome.verdict, records = verify.judge(
            stage, is_drained=not outcome.left, audit=found, with_failovers=part.with_replica
        )
        outcome.unproven = verify.unproven(records, with_failovers=part.with_replica)
        outcome.faults += verify.treatment(records)
        outcome.operator = verify.acts(records)
    return outcome


def _bring_to_rest(
    stage: Stage, outcome: Outcome, drain_seconds: float, back_seconds: float
) -> None:
    """Publish no more, break nothing more, let everything be handled, and end the workers."""
    stage.heal()
    healed_ns = time.time_ns()
    if not outcome.part.with_replica:
        verify.wait_for_fates(stage, FATES_SECONDS)
    outcome.stayed_away = verify.wait_for_all(stage, healed_ns, back_seconds)
    outcome.would_not_end += stage.troupe.dismiss("publisher", "operator")
    tell(f"{outcome.part.name}: draining")
    outcome.left = verify.drain(stage, drain_seconds)
    outcome.would_not_end += stage.troupe.dismiss("worker")


def document(
    options: argparse.Namespace, outcomes: Sequence[Outcome], *, is_well: bool
) -> dict[str, Any]:
    """Return the line that a run ends with: the first part's figures, then the failovers'."""
    first, *others = outcomes
    return {
        "ok": is_well,
        "seed": options.seed,
        "server": options.server,
        "part": first.part.name,
        **first.document(),
        **{outcome.part.name: outcome.document() for outcome in others},
    }


@contextlib.contextmanager
def _progress(part: Part, nemesis: Nemesis) -> Any:
    """Tell now and then how it goes."""
    is_over = threading.Event()
    started = time.monotonic()

    def tell_now_and_then() -> None:
        while not is_over.wait(10):
            seconds = time.monotonic() - started
            tell(f"{part.name}: {seconds:.0f} s, {nemesis.fired.total()} faults")

    teller = threading.Thread(target=tell_now_and_then, daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()


def tell(text: str) -> None:
    """Say something to whoever watches; stdout is for the result."""
    print(f"soak: {text}", file=sys.stderr, flush=True)
