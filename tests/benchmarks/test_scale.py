"""Does the benchmark of scale run to its end, judge its goals, and notice what misses them?"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from benchmarks import goals
from benchmarks.goals import Goal
from benchmarks.memory import names_left
from tests.servers import is_available

ROOT = Path(__file__).parents[2]
# At a scale of 0.0005.
GOALS = {
    "memory_per_message_beyond_payload": 90,
    "memory_per_group_beyond_payload": 450,
    "keys_left_by_messages": 0,
    "keys_left_by_groups": 0,
    "worker_growth_per_message": 5,
    "worker_growth_per_group": 5,
    "claim_cost_at_5_groups_to_4": 1.3,
    "claim_cost_at_500_groups_to_4": 1.3,
    "publish_cost_at_5_groups_to_4": 1.3,
    "publish_cost_at_500_groups_to_4": 1.3,
    "claim_cost_at_500_messages_to_4": 1.3,
    "publish_cost_at_500_messages_to_4": 1.3,
}
# What a message has beside its body: id, two moments.
HEAD_BYTES = 58


@pytest.mark.parametrize("kind", [kind for kind in ("valkey", "redis") if is_available(kind)])
def test_every_goal_is_judged_and_told(tmp_path: Path, kind: str) -> None:
    output = tmp_path / "scale.json"
    command = [sys.executable, "-m", "benchmarks.scale", "--scale=0.0005", f"--server={kind}"]
    ended = subprocess.run(
        [*command, f"--output={output}"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    # Whatever so small a load makes of the goals.
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(output.read_text())
    assert found["server"]["name"].lower() == kind
    assert {name: goal["limit"] for name, goal in found["goals"].items()} == GOALS
    lines = ended.stdout.splitlines()
    for name, goal in found["goals"].items():
        assert goal["met"] == (goal["found"] <= goal["limit"])
        assert any(
            line.startswith(name) and line.endswith(" yes" if goal["met"] else " no")
            for line in lines
        )
    assert found["goals"]["memory_per_message_beyond_payload"]["found"] > HEAD_BYTES
    assert found["goals"]["memory_per_group_beyond_payload"]["found"] > HEAD_BYTES
    assert found["goals"]["keys_left_by_messages"]["met"]
    assert found["goals"]["keys_left_by_groups"]["met"]


@pytest.mark.parametrize(
    ("scale", "median", "code"), [(1.0, 90.0, 0), (1.0, 90.1, 1), (2.0, 90.1, 1), (0.9, 90.1, 0)]
)
def test_a_missed_goal_fails_at_full_scale_and_only_there(
    scale: float, median: float, code: int
) -> None:
    report = {"scale": scale, "figures": {"memory": {"median": median}}, "comparisons": {}}

    found = goals.judged(report, [Goal("memory", 90)])

    assert found["goals"] == {"memory": {"limit": 90, "found": median, "met": median <= 90}}
    assert goals.exit_code(found) == code


def test_what_a_drained_queue_keeps_beside_the_fixed_few_is_named(
    default_client: redis.Redis, queue_prefix: str
) -> None:
    for name in ("backlog", "fence", "meta", "q:group", "prio"):
        default_client.set(f"{queue_prefix}:{name}", "1")
    default_client.set(f"{queue_prefix}:stats:29830000", "1", ex=1000)
    default_client.set("another:prio", "1")

    assert names_left(default_client, queue_prefix) == {"q:group", "prio"}
