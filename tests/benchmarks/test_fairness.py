"""Are the promises about fairness kept, counted in claims?"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from benchmarks import fairness
from benchmarks.fairness import (
    FLOODING_GROUPS,
    GROUPS_PER_TIER,
    by_class,
    flood,
    fresh,
    scenarios,
    tiers,
)
from benchmarks.simulation import Scenario, Wait, simulate
from groupqueue import RedisTransport
from groupqueue.core.keys import shard_prefix
from groupqueue.core.messages import TIERS
from tests.documents import DOCS, coded, rows

ROOT = Path(__file__).parents[2]
TURNS = 600
WORKERS = 4
TIER_NAMES = [f"tier{tier}" for tier in TIERS]

Simulate = Callable[..., list[Wait]]


@pytest.fixture
def simulated(redis_client: redis.Redis, queue_prefix: str) -> Simulate:
    """Simulate a scenario without a handler's time, on an empty server of each kind."""

    def run(scenario: Scenario, *, turns: int = TURNS, workers: int = WORKERS) -> list[Wait]:
        redis_client.flushdb()
        transport = RedisTransport(redis_client, queue_prefix, arrival=scenario.arrival)
        try:
            return simulate(transport, scenario, turns=turns, workers=workers)
        finally:
            transport.close()

    return run


@pytest.mark.parametrize("workers", [1, WORKERS])
def test_a_light_group_among_floods_waits_no_longer_than_twice_its_fair_share(
    simulated: Simulate, workers: int
):
    fared = by_class(simulated(flood(), turns=1500, workers=workers))

    assert fared["light"]["claimed"] > 20
    assert fared["light"]["p99_claims"] <= 2 * (FLOODING_GROUPS + 1)


def test_where_all_are_equal_nobody_waits_longer_than_one_round(simulated: Simulate):
    for scenario in (flood(), fresh("fair"), tiers("equal", priority_share=0)):
        assert max(wait.rounds for wait in simulated(scenario)) == 1


def test_failure_15_fresh_groups_do_not_starve_a_backlogged_one(simulated: Simulate):
    waits = [wait for wait in simulated(fresh("fair")) if wait.kind == "backlogged"]

    assert len(waits) > 20
    assert max(wait.rounds for wait in waits) <= 2


def test_fresh_groups_starve_a_backlogged_one_when_they_arrive_at_the_front(simulated: Simulate):
    *served, last = [wait for wait in simulated(fresh("front")) if wait.kind == "backlogged"]

    # At the start it was fresh itself.
    assert len(served) == 1
    assert not last.is_over
    assert last.claims > TURNS - 2 * WORKERS


def test_with_a_share_of_claims_by_priority_urgent_groups_come_first_and_no_tier_starves(
    simulated: Simulate,
):
    waits = simulated(tiers("share", priority_share=0.8), turns=1500)

    fared = by_class(waits)
    assert fared["tier4"]["share"] == pytest.approx(0.8, abs=0.02)
    for tier in TIER_NAMES[:4]:
        assert fared[tier]["share"] == pytest.approx(0.2 / 4, abs=0.02)
        # A fifth of the claims goes round all groups.
        assert fared[tier]["longest_claims"] <= 2 * 5 * len(TIERS) * GROUPS_PER_TIER


def test_with_all_claims_by_priority_the_order_of_tiers_is_strict(simulated: Simulate):
    waits = simulated(tiers("strict", priority_share=1))

    assert {wait.kind for wait in waits if wait.is_over} == {"tier4"}


def test_without_claims_by_priority_all_tiers_are_equal(simulated: Simulate):
    fared = by_class(simulated(tiers("equal", priority_share=0)))

    for tier in TIER_NAMES:
        assert fared[tier]["share"] == pytest.approx(1 / 5, abs=0.02)


def test_the_high_ratio_goes_to_the_tiers_from_the_threshold_up_and_no_tier_starves(
    simulated: Simulate,
):
    scenario = tiers("ratio", high_ratio=0.8, priority_threshold=3)

    fared = by_class(simulated(scenario, turns=1500))

    for tier in TIER_NAMES[3:]:
        assert fared[tier]["share"] == pytest.approx(0.8 / 2, abs=0.02)
    for tier in TIER_NAMES[:3]:
        assert fared[tier]["share"] == pytest.approx(0.2 / 3, abs=0.02)


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_waits_counted_in_claims_are_the_same_in_every_run(simulated: Simulate, scenario: Scenario):
    first, second = (
        [(wait.group, wait.claims, wait.round) for wait in simulated(scenario, turns=200)]
        for _ in range(2)
    )

    assert first == second


def test_the_figures_of_the_guide_come_out(default_client: redis.Redis):
    fared = {}
    for scenario in scenarios():
        transport = RedisTransport(
            default_client, shard_prefix(scenario.name), arrival=scenario.arrival
        )
        waits = simulate(transport, scenario, turns=fairness.TURNS, workers=fairness.WORKERS)
        transport.close()
        fared |= {f"{scenario.name} {kind}": found for kind, found in by_class(waits).items()}

    for _, label, share, mean, p99 in rows(DOCS / "workers.md", "Fairness"):
        found = fared[coded(label)[0]]
        assert f"{found['share']:.1%}" == share, label
        if found["longest_is_over"]:
            assert (mean, p99) == (f"{found['mean_claims']:.0f}", f"{found['p99_claims']}"), label
        else:
            assert (mean, p99) == ("for ever", "for ever"), label


def run(*options: str) -> str:
    """Run the command as `make fairness` does, but briefly; return what it prints."""
    command = [sys.executable, "-m", "benchmarks.fairness", "--turns=80", "--service-ms=0.1"]
    ended = subprocess.run(
        [*command, *options],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_command_prints_every_class_of_every_scenario():
    printed = run()

    for scenario in scenarios():
        for group in scenario.backlogged:
            kind = group.partition("-")[0]
            assert [scenario.name, kind] in [line.split()[:2] for line in printed.splitlines()]


def test_the_command_prints_json_when_asked_to():
    report = json.loads(run("--json", "--workers=2"))

    assert (report["turns"], report["workers"], report["service_ms"]) == (80, 2, 0.1)
    assert report["server"]["name"] == "Valkey"
    assert list(report["scenarios"]) == [scenario.name for scenario in scenarios()]
    light = report["scenarios"]["flood"]["light"]
    assert light["p99_ms"] >= light["mean_ms"] > 0
    assert sum(fared["claimed"] for fared in report["scenarios"]["flood"].values()) == 80
