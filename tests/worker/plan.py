"""What does a test tell the processes that it starts?

A plan is a JSON file whose path is handed down in the environment.
"""

from __future__ import annotations

import importlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

VARIABLE = "GROUPQUEUE_TEST_PLAN"


@dataclass(kw_only=True)
class Plan:
    """The settings of the worker under test, and where its handlers leave their traces."""

    directory: str
    """Holds the traces, and the gates at which handlers wait."""
    queues: dict[str, dict[str, Any]] = field(default_factory=dict)
    databases: dict[str, dict[str, Any]] = field(default_factory=dict)
    apps: list[str] = field(default_factory=list)
    """Installed beside the project of these tests."""
    constants: dict[str, Any] = field(default_factory=dict)
    """Values for constants of the package, by dotted path: what is a minute in production
    may be a moment in a test."""
    broken_children: str = ""
    """How the settings fail in child processes alone, a word of the settings module;
    empty for not at all."""

    def write(self) -> Path:
        """Write the plan for the processes started from now on; return where it is."""
        path = Path(self.directory) / "plan.json"
        path.write_text(json.dumps(asdict(self)))
        return path

    def apply_constants(self) -> None:
        """Set the constants in this process."""
        for path, value in self.constants.items():
            module, _, name = path.rpartition(".")
            if not hasattr(importlib.import_module(module), name):
                raise AttributeError(f"{path} is not a constant of the package any more")
            setattr(importlib.import_module(module), name, value)


def current_plan() -> Plan:
    """Return the plan that this process was started with."""
    return Plan(**json.loads(Path(os.environ[VARIABLE]).read_text()))
