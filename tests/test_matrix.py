"""Is there each test that the noxfile has run at the corners of the matrix?"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


def _smoke() -> tuple[str, ...]:
    """Return what `corners` runs; nox itself is not among what tests need."""
    parsed = ast.parse((REPOSITORY / "noxfile.py").read_text())
    [found] = [
        ast.literal_eval(node.value)
        for node in parsed.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SMOKE"
    ]
    return tuple(found)


@pytest.mark.parametrize("name", _smoke())
def test_what_runs_at_the_corners_is_there(name: str) -> None:
    path, _, test = name.partition("::")
    assert (REPOSITORY / path).exists()
    if test:
        defined = ast.parse((REPOSITORY / path).read_text()).body
        assert test in {getattr(node, "name", "") for node in defined}
