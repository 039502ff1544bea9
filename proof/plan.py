"""What does a run tell the processes that it starts?

A plan is a JSON file whose path is handed down in the environment.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

VARIABLE = "GROUPQUEUE_PROOF_PLAN"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What all actors of a run have to know."""

    folder: str
    """Holds the records, and how often each message was treated badly."""
    queue: str
    url: str
    seed: int
    rate: float = 0.0
    """Messages a second that each publisher sends."""
    is_waiting: bool = False
    """Whether a publish counts as confirmed once a replica has it."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Further keys of the queue."""
    mutation: tuple[str, str, str] | None = None
    """A file of the scripts, a text in it and what stands there instead: to see whether a
    fault of ours would be noticed."""

    @property
    def path(self) -> Path:
        """Where the plan is written."""
        return Path(self.folder) / "plan.json"

    @property
    def records(self) -> Path:
        """Where the actors' records are."""
        return Path(self.folder) / "records"

    @property
    def attempts(self) -> Path:
        """Where it is noted how often each message was treated badly."""
        return Path(self.folder) / "attempts"

    def write(self) -> None:
        """Write the plan, and make the folders it speaks of."""
        for folder in (self.records, self.attempts):
            folder.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(asdict(self), indent=2))


def current_plan() -> Plan | None:
    """Return the plan that this process was started with, if any."""
    path = os.environ.get(VARIABLE)
    if path is None:
        return None
    given = json.loads(Path(path).read_text())
    mutation = given["mutation"] and tuple(given["mutation"])
    return Plan(**given | {"mutation": mutation})
