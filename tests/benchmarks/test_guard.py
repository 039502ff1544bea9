"""Does an operation that costs more than before fail the suite?"""

from __future__ import annotations

import json

import pytest

from benchmarks import guard
from groupqueue.transport import scripts


def test_nothing_costs_more_than_the_baseline_says() -> None:
    baseline = json.loads(guard.BASELINE.read_text())

    assert guard.compare(baseline, guard.count_all()) == ([], [])


@pytest.mark.parametrize(
    ("before", "now", "is_grown", "is_shrunk"),
    [(12, 12, False, False), (12, 13, True, False), (12, 11, False, True), (100, 100.5, 0, 0)],
)
def test_what_differs_by_more_than_a_hundredth_is_told(before, now, is_grown, is_shrunk) -> None:
    grown, shrunk = guard.compare({"turn": {"commands": before}}, {"turn": {"commands": now}})

    assert (bool(grown), bool(shrunk)) == (bool(is_grown), bool(is_shrunk))


def test_an_operation_that_is_only_on_one_side_is_told() -> None:
    assert guard.compare({}, {"turn": {}})[0]
    assert guard.compare({"turn": {}}, {})[0]


def test_one_command_more_in_a_script_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    read = scripts._read
    monkeypatch.setattr(
        scripts,
        "_read",
        lambda path: read(path).replace(
            'redis.call("TIME")', '(redis.call("TIME") and redis.call("TIME"))'
        ),
    )
    scripts.load.cache_clear()
    try:
        baseline = json.loads(guard.BASELINE.read_text())
        grown, _ = guard.compare(baseline, guard.count_all())
    finally:
        scripts.load.cache_clear()

    assert any(line.startswith("publish_one: commands") for line in grown)
