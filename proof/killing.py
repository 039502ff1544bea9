"""Are the mutants found out? `make mutants` prints by whom, and after how much.

Each mutant lives in a process of its own, two at a time, and dies with its first failing life: at
the hands of the model (`tests/model`), or else of the history checker (`proof.checker`). Who
survives both fails the run: then the model or the checker has to learn something, unless the
mutant does no harm, and is none.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from traceback import extract_tb

import redis

from proof.driver import drive
from proof.edits import in_place
from proof.mutants import MUTANTS, Mutant
from tests.model.lives import Told, live
from tests.servers import Server, guardian, start_server

AT_ONCE = 2
LIVES = 300
SEEDS, STEPS_PER_SEED = 10, 300
SECONDS_PER_MUTANT = 300
NOBODY = "nobody"
PREFIX = "gq:{mutants:0}"
WHY_LENGTH = 100


@dataclass(frozen=True)
class Fate:
    """What became of a mutant."""

    name: str
    killed_by: str
    """model, checker or nobody."""
    after: str = ""
    """How many lives and steps it took."""
    seconds: float = 0
    why: str = ""
    """The beginning of what was found."""


def try_to_kill(mutant: Mutant, url: str, *, lives: int = LIVES, seeds: int = SEEDS) -> Fate:
    """Let a mutant live on a server, in this process, until it is found out."""
    started = time.monotonic()
    with in_place(mutant.edits):
        fate = _by_the_model(mutant, url, lives)
        if fate.killed_by == NOBODY:
            fate = _by_the_checker(mutant, url, seeds)
    return Fate(**asdict(fate) | {"seconds": round(time.monotonic() - started, 1)})


def _by_the_model(mutant: Mutant, url: str, lives: int) -> Fate:
    told = Told()
    try:
        live(url, PREFIX, lives, told=told, is_short=False)
    except Exception as error:  # be it that the model cannot follow what happened
        after = f"{told.lives} lives, {told.steps} steps"
        return Fate(mutant.name, "model", after, why=_why(error)[:WHY_LENGTH])
    return Fate(mutant.name, NOBODY)


def _why(error: Exception) -> str:
    """Return what an assertion says, or else what it was."""
    told = str(error).partition("\n")[0]
    frames = [frame for frame in extract_tb(error.__traceback__) if "model" in frame.filename]
    line = frames[-1].line if frames else None
    return told or line or type(error).__name__


def _by_the_checker(mutant: Mutant, url: str, seeds: int) -> Fate:
    client = redis.Redis.from_url(url, retry=None)
    for seed in range(seeds):
        client.flushdb()
        verdict = drive(client, PREFIX, seed, STEPS_PER_SEED)
        if verdict.findings:
            after, why = f"{seed + 1} lives", verdict.findings[0][:WHY_LENGTH]
            return Fate(mutant.name, "checker", after, why=why)
    return Fate(mutant.name, NOBODY)


# All of them ------------------------------------------------------------------------------


def kill_all(mutants: Sequence[Mutant], directory: Path) -> Iterator[Fate]:
    """Let each live in a process of its own; tell in their order what became of them."""
    servers = [start_server("valkey", directory / str(number)) for number in range(AT_ONCE)]
    free = list(servers)

    def in_a_process(mutant: Mutant) -> Fate:
        server = free.pop()
        try:
            return _asked(mutant, server)
        finally:
            free.append(server)

    try:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            yield from threads.map(in_a_process, mutants)
    finally:
        for server in servers:
            server.stop()
        guardian.dismiss()


def _asked(mutant: Mutant, server: Server) -> Fate:
    command = [sys.executable, "-m", "proof.killing", "--here", server.url, mutant.name]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS_PER_MUTANT, check=False
        )
    except subprocess.TimeoutExpired:
        return Fate(mutant.name, NOBODY, why=f"it came to no end in {SECONDS_PER_MUTANT} s")
    if done.returncode:
        return Fate(mutant.name, NOBODY, why=done.stderr.strip().rpartition("\n")[2])
    return Fate(**json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    """Print what became of each; the result is 1 if one has survived."""
    parser = argparse.ArgumentParser(prog="python -m proof.killing", description=__doc__)
    parser.add_argument("names", nargs="*", help="of the mutants to try; all if none is given")
    parser.add_argument("--here", metavar="URL", help="try one in this process, on that server")
    asked = parser.parse_args()
    mutants = [mutant for mutant in MUTANTS if not asked.names or mutant.name in asked.names]
    if asked.here:
        print(json.dumps(asdict(try_to_kill(mutants[0], asked.here))))
        return 0
    breaks = {mutant.name: mutant.breaks for mutant in mutants}
    killed, started = {"model": 0, "checker": 0, NOBODY: 0}, time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        for fate in kill_all(mutants, Path(directory)):
            killed[fate.killed_by] += 1
            by = f"{fate.killed_by}, {fate.after}, {fate.seconds:.1f} s"
            print(f"{fate.name:<28} {breaks[fate.name]}\n  killed by {by}: {fate.why}", flush=True)
    seconds = time.monotonic() - started
    print(f"{len(mutants)} mutants in {seconds:.0f} s; killed by: {killed}")
    return int(killed[NOBODY] > 0)


if __name__ == "__main__":
    sys.exit(main())
