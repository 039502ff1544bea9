"""Does a random life of one shard, driven by one thread, keep the promises?

`python -m proof.driver --url redis://127.0.0.1:6379/9 --seed 7 --steps 500` drives one and says.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace

import redis

from proof import history, stamps
from proof.checker import Limits, Verdict, check
from proof.life import Life


def drive(client: redis.Redis, prefix: str, seed: int, steps: int) -> Verdict:
    """Perform so many random steps on an empty shard with stamped scripts, and check them.

    The same seed gives the same steps. In the end the shard is emptied, so that nothing may
    be left. Scripts are stamped for the time of the drive.
    """
    with stamps.stamped():
        life = Life(client, prefix, random.Random(seed))  # noqa: S311 - to be repeated
        try:
            for _ in range(steps):
                life.step()
            life.drain()
        finally:
            life.close()
    found = check(
        {prefix: history.read(client, prefix)},
        [],
        {prefix: history.read_state(client, prefix)},
        Limits(drained=True),
    )
    return replace(found, findings=(*found.findings, *life.errors))


def main() -> None:
    """Drive a shard on the server that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m proof.driver", description=__doc__)
    parser.add_argument("--url", default="redis://127.0.0.1:6379/0", help="an empty database")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    client = redis.Redis.from_url(options.url, retry=None)
    verdict = drive(client, "gq:{driven:0}", options.seed, options.steps)
    print(verdict)
    raise SystemExit(bool(verdict.findings))


if __name__ == "__main__":
    main()
