"""What do actors write down before they act, and how is it read?

An actor (a publisher, a worker, what breaks things) has a file of its own, so that only its
last line can be torn when it is killed. Each line is one JSON object:

    at_ns    time.monotonic_ns(): comparable between the processes of one machine
    wall_ns  time.time_ns(): comparable with the server's clock on the same machine
    pid      of the actor
    event    "publish": id, group, queue
             "handle": id, group, queue, token, attempt
             "nemesis": fault, target, ...
             "kill": killed (the pid), worker (its id, when known)
    phase    "invoke" before the act; "ok", "fail" or "unknown" once its outcome is known.
             Of a handler "ok" is that it returned, "fail" that it raised.
    ...      the event's fields, named above, and whatever else helps to read it
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Phase = Literal["invoke", "ok", "fail", "unknown"]

_OWN = ("at_ns", "wall_ns", "pid", "event", "phase")
_SUCCESS = b'"phase":"ok"'


@dataclass(frozen=True, slots=True)
class Record:
    """One line of an actor."""

    at_ns: int
    wall_ns: int
    pid: int
    event: str
    phase: str
    fields: Mapping[str, Any] = field(default_factory=dict)


class Recorder:
    """Appends an actor's lines to its file; safe to share between threads."""

    def __init__(self, path: Path | str) -> None:
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )

    def write(self, event: str, *, phase: Phase, **fields: Any) -> None:
        """Append one line, in one write, before the next thing is done."""
        line = {
            "at_ns": time.monotonic_ns(),
            "wall_ns": time.time_ns(),
            "pid": os.getpid(),
            "event": event,
            "phase": phase,
            **fields,
        }
        os.write(self._descriptor, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def read_records(folder: Path | str) -> list[Record]:
    """Read all `*.jsonl` files of a folder, in the order in which the lines were written.

    The last line of a file may be torn: its actor was killed in the middle of it. Raises
    ValueError for any other line that is none.
    """
    records = [record for path in sorted(Path(folder).glob("*.jsonl")) for record in _read(path)]
    return sorted(records, key=lambda record: record.at_ns)


def has_succeeded(folder: Path | str, actor: str, since_ns: int) -> bool:
    """Say whether an actor has written down, since then by the wall, that something went well.

    `actor` is how the names of its files begin; files that are still written to can be read.
    """
    for path in Path(folder).glob(f"{actor}-*.jsonl"):
        with path.open("rb") as lines:
            said = (line for line in lines if _SUCCESS in line and line.endswith(b"\n"))
            if any(json.loads(line)["wall_ns"] >= since_ns for line in said):
                return True
    return False


def _read(path: Path) -> Iterator[Record]:
    *lines, _torn = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            found = json.loads(line)
            own = {name: found.pop(name) for name in _OWN}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}:{number} is no record: {line[:80]!r}") from error
        yield Record(**own, fields=found)
