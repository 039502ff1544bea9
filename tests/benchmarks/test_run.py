"""Does the benchmark run to its end and write what it promises?"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers import is_available

ROOT = Path(__file__).parents[2]
FIGURES = {
    "bare_round_trip",
    "publish_one_transport",
    "publish_one",
    "publish_by_100_transport",
    "publish_by_100",
    "publish_by_100_one_group",
    "turn_want_1",
    "turn_want_16",
    "turn_want_64",
    "turn_of_batches",
    "claim_then_ack",
    "worker_1_process_concurrency_1",
    "worker_1_process_concurrency_16",
    "worker_2_processes_concurrency_16",
    "wake_up_p50",
    "wake_up_p99",
    "idle_worker_commands",
    "claim_at_5_groups",
    "claim_at_20_groups",
    "publish_at_5_groups",
    "publish_at_20_groups",
}
COMPARISONS = {
    "two_processes_to_one",
    "claim_cost_at_20_groups_to_5",
    "publish_cost_at_20_groups_to_5",
}


def run(*options: str) -> subprocess.CompletedProcess[str]:
    """Run the benchmark as `make bench` does, with next to no load."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.run", "--scale=0.01", "--groups=5,20", *options],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def report_of(output: Path, *options: str) -> dict[str, Any]:
    """Run the benchmark and return the report it wrote."""
    ended = run(f"--output={output}", *options)
    assert ended.returncode == 0, ended.stderr
    report: dict[str, Any] = json.loads(output.read_text())
    for name in report["figures"]:
        assert name in ended.stdout
    return report


def test_every_figure_is_there_with_all_its_rounds_and_their_median(tmp_path: Path) -> None:
    report = report_of(tmp_path / "report.json", "--rounds=2")
    assert report["figures"].keys() == FIGURES
    assert report["comparisons"].keys() == COMPARISONS
    every = [*report["figures"].values(), *report["comparisons"].values()]
    every += [figure["bare_round_trips_per_second"] for figure in report["figures"].values()]
    for values in every:
        assert len(values["rounds"]) == 2
        assert values["median"] == pytest.approx(statistics.median(values["rounds"]), abs=0.001)


def test_figures_say_their_unit_and_stand_beside_the_bare_round_trip(tmp_path: Path) -> None:
    report = report_of(tmp_path / "report.json", "--rounds=1", "--only=turn_want_*")
    assert report["figures"].keys() == {"turn_want_1", "turn_want_16", "turn_want_64"}
    for figure in report["figures"].values():
        assert figure["unit"] == "messages/s"
        assert figure["ratio_to_bare"] > 0
        assert figure["bare_round_trips_per_second"]["median"] > 0
        assert figure["cost_per_message"].keys() == {
            "commands_sent",
            "commands_called_by_scripts",
            "server_microseconds",
        }


@pytest.mark.parametrize("connect", ["tcp", "unix"])
@pytest.mark.parametrize("kind", [kind for kind in ("valkey", "redis") if is_available(kind)])
def test_the_report_names_server_and_machine_but_no_host_and_no_path(
    tmp_path: Path, kind: str, connect: str
) -> None:
    options = ("--rounds=1", "--only=bare*", f"--server={kind}", f"--connect={connect}")
    report = report_of(tmp_path / "report.json", *options)
    assert report["server"]["name"].lower() == kind
    assert report["server"]["persistence"] == "none"
    assert {"cores", "python", "redis_py", "hiredis"} <= report["machine"].keys()
    for text in [report["date"], *report["server"].values(), *report["machine"].values()]:
        assert "/" not in str(text)
        assert socket.gethostname() not in str(text)


def test_a_pattern_that_names_no_figure_is_refused_with_the_names(tmp_path: Path) -> None:
    ended = run(f"--output={tmp_path / 'report.json'}", "--only=speed")
    assert ended.returncode != 0
    assert "turn_want_16" in ended.stderr
    assert not (tmp_path / "report.json").exists()
