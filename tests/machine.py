"""On what does the suite run? Prints a line that says so; the server asked for must be there."""

from __future__ import annotations

import importlib.util
import platform
import sys

import django
import redis

from tests.servers import KINDS, server_program

MISSING = "missing: "


def main(kind: str) -> None:
    """Print what this environment is made of, or what is missing of it."""
    [known] = [each for each in KINDS if each == kind]
    try:
        server_program(known)
    except FileNotFoundError as error:
        sys.stdout.write(f"{MISSING}{error}\n")
        return
    parser = "with" if importlib.util.find_spec("hiredis") else "without"
    sys.stdout.write(
        f"Python {platform.python_version()}, Django {django.__version__},"
        f" redis-py {redis.__version__} {parser} hiredis, on {kind}\n"
    )


if __name__ == "__main__":
    main(sys.argv[1])
