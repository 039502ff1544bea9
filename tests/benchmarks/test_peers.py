"""Is the comparison with other queues right about its rounds, and does it end what it starts?

The peers themselves are installed from the network, so only groupqueue is run here.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import statistics
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import chart, environments, program, results
from benchmarks.peers.__main__ import chosen
from benchmarks.peers.catalogue import OURS, PEERS, Peer
from benchmarks.peers.environments import PROGRAMS, Environment, Unavailable, find_python
from benchmarks.peers.measuring import (
    FIGURES,
    PAYLOADS,
    Failure,
    Measured,
    Reading,
    is_payload,
    is_time_for,
    rotated,
)
from benchmarks.peers.processes import ProgramFailed, running
from benchmarks.peers.program import Job, Window
from tests.servers import wait_until

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
SERVER = {"name": "Valkey", "version": "9", "reach": "loopback TCP", "persistence": "none"}
US = Peer(OURS, "groupqueue", "after handling", "", language="ours")
THEM = Peer("Them & Co", "rq", "before handling", "", requirements=("rq==3.0.0",))
HERE = Environment((sys.executable,), {}, {"python": "3"})
PROGRAM = "from benchmarks.peers import program; import threading;"


def job(**options: Any) -> Job:
    """Return a job as small as the test needs it."""
    given = {"role": "work", "url": "", "payload": "small", "count": 10, "seconds": 60.0}
    given |= {"warm_up_count": 4, "warm_up_seconds": 60.0}
    return Job(**given | options)


def reading(
    peer: Peer, per_second: float, *, figure: str = "handled_1", payload: str = "flights"
) -> Reading:
    return Reading(peer.name, payload, figure, per_second, 20.0, 1000, bare=1000.0)


def report_of(
    readings: Sequence[Reading], *, failures: Sequence[Failure] = (), there: bool = True
) -> dict[str, Any]:
    """Return the report on us and them."""
    return results.build(
        Measured(list(readings), list(failures), {THEM.name: ["logging off"]}, [], rounds=3),
        environments={US: HERE, THEM: HERE if there else "needs something else"},
        server=SERVER,
        scale=1.0,
    )


# What the rounds become ------------------------------------------------------------------


def test_a_figure_is_the_median_and_a_ratio_the_median_of_the_ratios():
    # The machine was twice as slow in the second round, for both.
    ours, theirs = [900, 400, 1000], [300, 100, 200]
    found = report_of(
        [reading(US, value) for value in ours] + [reading(THEM, value) for value in theirs]
    )

    figures = found["figures"]["flights"]["handled_1"]
    assert figures[OURS]["median"] == statistics.median(ours)
    assert figures[THEM.name]["rounds"] == theirs
    assert figures[THEM.name]["median"] == 200
    assert figures[THEM.name]["groupqueue_to_it"] == 4  # of 3, 4 and 5; the medians give 4.5
    assert figures[THEM.name]["ratio_to_bare"] == 0.2
    assert figures[OURS]["groupqueue_to_it"] == 1


def test_there_is_no_ratio_when_a_round_is_missing():
    found = report_of([reading(US, 900), reading(US, 800), reading(THEM, 300)])

    assert found["figures"]["flights"]["handled_1"][THEM.name]["groupqueue_to_it"] is None
    assert found["figures"]["flights"]["handled_1"][THEM.name]["median"] == 300


def test_figures_of_one_payload_and_kind_do_not_mix_with_others():
    found = report_of(
        [
            reading(US, 1, figure=figure, payload=payload)
            for figure in FIGURES
            for payload in PAYLOADS
        ]
    )

    for payload in PAYLOADS:
        for figure in FIGURES:
            assert found["figures"][payload][figure][OURS]["rounds"] == [1]


def test_the_report_tells_how_a_peer_is_set_up_and_when_it_acknowledges():
    found = report_of([reading(THEM, 300)])

    told = found["peers"][THEM.name]
    assert told["acknowledges"] == "before handling"
    assert told["settings"] == ["logging off"]
    assert told["versions"] == {"python": "3"}
    assert json.loads(json.dumps(found)) == found


def test_what_could_not_be_measured_is_named():
    failure = Failure(US.name, "small", "handled_16", "nothing for 30 s")
    found = report_of([], failures=[failure], there=False)

    assert results.troubles(found) == [
        "groupqueue, handled_16 (small): nothing for 30 s",
        "Them & Co was not measured: it needs something else",
    ]


def test_the_table_has_every_peer_and_marks_what_one_does_not_offer():
    found = report_of([reading(US, 12_345), reading(THEM, 300)], there=False)

    lines = results.table(found).splitlines()
    [ours] = [line for line in lines if line.startswith("groupqueue") and "12,345" in line]
    [theirs] = [line for line in lines if line.startswith("Them") and "300" in line]
    assert ours.split()[-3:] == ["-", "-", "-"]
    assert "41.15" in theirs


# The chart -------------------------------------------------------------------------------


def drawn(found: dict[str, Any]) -> ET.Element:
    return ET.fromstring(chart.svg(found))


def test_bars_are_as_long_as_their_figures():
    both = [reading(US, 800), reading(THEM, 200), reading(THEM, 400, payload="small")]
    root = drawn(report_of(both))

    bars = [
        (bar.get("class"), float(bar.get("width", "")))
        for bar in root.iter(f"{SVG}rect")
        if bar.get("class") != "page"
    ]
    longest = bars[0][1]
    assert bars == [
        ("flights ours", longest),
        ("flights", pytest.approx(longest / 4, abs=0.1)),
        ("small", pytest.approx(longest / 2, abs=0.1)),
    ]


def test_the_chart_names_peers_and_figures_and_marks_who_acknowledges_too_early():
    root = drawn(report_of([reading(US, 800), reading(THEM, 200)]))

    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "Them & Co **" in texts
    assert "groupqueue" in texts
    assert "800" in texts
    for title in results.TITLES.values():
        assert title in texts


def test_everything_that_is_drawn_is_inside_of_the_picture():
    figures = [
        reading(Peer(f"peer {number}", "rq", "partly", ""), number, figure=figure)
        for figure in FIGURES
        for number in range(1, 12)
    ]
    peers = {Peer(f"peer {number}", "rq", "partly", ""): HERE for number in range(1, 12)}
    measured = Measured(figures, [], {}, [], rounds=1)
    found = results.build(measured, environments=peers, server=SERVER, scale=1.0)
    root = drawn(found)

    width, height = float(root.get("width", "")), float(root.get("height", ""))
    for panel in root.iter(f"{SVG}g"):
        left, top = map(float, re.findall(r"[\d.]+", panel.get("transform", "")))
        for bar in panel.iter(f"{SVG}rect"):
            x, y, w, h = (float(bar.get(key, "")) for key in ("x", "y", "width", "height"))
            assert left + x + w <= width
            assert top + y + h <= height


def test_a_run_without_any_figure_still_makes_a_chart():
    assert drawn(report_of([])).tag == f"{SVG}svg"


# What is measured ------------------------------------------------------------------------


def test_the_measurement_begins_after_the_warm_up_and_ends_with_the_count():
    window = Window(job(count=10, warm_up_count=4))

    told = [window.note() for _ in range(12)]

    assert [bool(found) for found in told] == [False] * 9 + [True] + [False] * 2
    found = told[9]
    assert found is not None
    assert (found["messages"], found["total"]) == (6, 10)
    assert found["seconds"] > 0


def test_time_ends_the_warm_up_and_the_measurement_too():
    window = Window(job(count=1000, warm_up_count=500, warm_up_seconds=0, seconds=0))

    told = [window.note(100) for _ in range(2)]

    assert told[0] is None
    assert told[1] is not None
    assert (told[1]["messages"], told[1]["total"]) == (100, 200)


def test_both_payloads_come_as_27_000_messages_in_1_000_groups():
    flights = list(job(payload="flights", count=27_000).messages())
    small = list(job(payload="small", count=27_000).messages())

    assert len(flights) == len(small) == 27_000
    assert len({group for group, _ in flights}) == len({group for group, _ in small}) == 1000
    assert all(len(payload) == 10 for _, payload in flights)
    assert {payload for _, payload in small} == {"13 bytes long"}
    assert len(program.SMALL.encode()) == 13
    assert is_payload(flights[7][1], "flights")
    assert is_payload(small[7][1], "small")
    assert not is_payload(small[7][1], "flights")


def test_the_programs_for_node_do_the_same_work():
    text = (PROGRAMS / "program.cjs").read_text()

    assert f'const SMALL = "{program.SMALL}";' in text
    assert f"const GROUPS = {program.GROUPS};" in text
    assert f"process.env.{program.JOB_VARIABLE})" in text
    assert program.FLIGHTS.name in text


def test_every_peer_begins_a_round_once():
    peers = ["a", "b", "c"]

    assert [rotated(peers, number) for number in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]
    assert rotated([], 3) == []


def test_no_round_begins_that_would_not_end_in_time():
    assert is_time_for(0, 0, seconds=1)  # the first one always does
    assert is_time_for(2, 200, seconds=300)
    assert not is_time_for(2, 201, seconds=300)


# The peers -------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_every_peer_has_its_program_and_pinned_requirements(peer: Peer):
    ending = "cjs" if peer.language == "node" else "py"
    text = (PROGRAMS / f"{peer.program}.{ending}").read_text()

    assert "by 100: " in text
    assert peer.because
    assert bool(peer.requirements) == (peer.language != "ours")
    pinned = r"[a-z-]+@[\d.]+" if peer.language == "node" else r"[a-z-]+(\[[a-z]+\])?==[\d.]+"
    for requirement in peer.requirements:
        assert re.fullmatch(pinned, requirement)


def test_patterns_choose_peers_whatever_the_case():
    assert [peer.name for peer in chosen(["*mq", "rq"])] == ["GroupMQ", "BullMQ", "RQ"]
    assert chosen(None) == list(PEERS)
    with pytest.raises(SystemExit, match="Dramatiq"):
        chosen(["speed"])


def test_an_environment_is_made_anew_only_for_other_requirements(tmp_path: Path):
    assert not environments._is_made(tmp_path, ("rq==3.0.0",))

    environments._note_made(tmp_path, ("rq==3.0.0", "redis==8.1.0"))

    assert environments._is_made(tmp_path, ("rq==3.0.0", "redis==8.1.0"))
    assert not environments._is_made(tmp_path, ("rq==3.0.1", "redis==8.1.0"))


def test_a_peer_that_cannot_be_installed_is_unavailable_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, body in {"node": "exit 0", "npm": "echo 'no such package' >&2; exit 1"}.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "peers")
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    peer = Peer("Them", "them", "partly", "", language="node", requirements=("them@1.0.0",))

    with pytest.raises(Unavailable, match="could not be installed: no such package"):
        environments.prepare(peer)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="needs node and npm"):
        environments.prepare(peer)


def test_an_interpreter_is_new_enough_or_there_is_none():
    assert find_python(sys.version_info[:2]) == sys.executable
    with pytest.raises(Unavailable, match=r"needs Python 99\.0"):
        find_python((99, 0))


# Programs --------------------------------------------------------------------------------


def environment_of(code: str) -> Environment:
    """Return where a program of a test runs."""
    return Environment((sys.executable, "-c", code), dict(os.environ), {})


# Holds a file's lock for as long as it runs, whatever becomes of its pid.
HOLDER = """
import fcntl, json, subprocess, sys, threading
path, *others = sys.argv[1:]
file = open(path, "w")
fcntl.flock(file, fcntl.LOCK_EX)
if others:
    subprocess.Popen([sys.executable, __file__, *others])
print(json.dumps({"held": path}), flush=True)
threading.Event().wait()
"""


def is_held(path: Path) -> bool:
    """Return whether a process that holds the file's lock is still running."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_handler_of_a_program_tells_what_it_measured_and_was_given():
    code = PROGRAM + (
        "program.run(publish=None, settings=('fast',), work=lambda:"
        " ([program.handle('13 bytes long') for _ in range(12)], threading.Event().wait()))"
    )
    with running(environment_of(code), job()) as started:
        assert started.hear(20) == {"settings": ["fast"]}
        told = started.hear(20)

    assert (told["messages"], told["total"], told["payload"]) == (6, 10, "13 bytes long")


def test_a_publisher_tells_when_its_messages_are_published():
    code = PROGRAM + "program.run(publish=lambda: list(program.at_once()), work=None, settings=())"
    with running(environment_of(code), job(role="publish", count=11, by=3)) as started:
        started.hear(20)
        told = started.hear(20)

    assert (told["messages"], told["total"]) == (5, 11)


def test_what_a_peer_prints_is_not_taken_for_its_word():
    code = "print('ready'); print(17); print('{\"settings\": []}')"
    with running(environment_of(code), job()) as started:
        assert started.hear(20) == {"settings": []}


def test_a_program_that_ends_early_fails_with_its_last_words():
    with (
        running(environment_of("raise SystemExit('no such option')"), job()) as started,
        pytest.raises(ProgramFailed, match="no such option"),
    ):
        started.hear(20)


def test_a_program_that_says_nothing_fails():
    code = "import threading; threading.Event().wait()"
    with (
        running(environment_of(code), job()) as started,
        pytest.raises(ProgramFailed, match="nothing for 0 s"),
    ):
        started.hear(0.01)


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_a_program_and_all_that_it_started_end_with_the_case(
    tmp_path: Path, error: type[BaseException] | None
):
    script, paths = tmp_path / "holder.py", [tmp_path / "program", tmp_path / "child"]
    script.write_text(HOLDER)
    command = (sys.executable, str(script), *map(str, paths))
    environment = Environment(command, dict(os.environ), {})

    with contextlib.suppress(KeyboardInterrupt), running(environment, job()) as started:
        assert {started.hear(20)["held"] for _ in paths} == set(map(str, paths))
        assert all(map(is_held, paths))
        if error:
            raise error

    assert not is_held(paths[0])
    wait_until(lambda: not is_held(paths[1]), "the end of what the program started")


def test_a_program_ends_when_its_runner_is_gone():
    code = PROGRAM + "program.run(publish=None, work=threading.Event().wait, settings=())"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {program.JOB_VARIABLE: json.dumps(job()._asdict())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdin
        assert process.stdout
        assert json.loads(process.stdout.readline()) == {"settings": []}
        process.stdin.close()
        assert process.wait(20) == 1
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# The command -----------------------------------------------------------------------------


def test_the_command_measures_groupqueue_and_writes_both_files(tmp_path: Path):
    output = tmp_path / "peers.json"
    options = ("--only=groupqueue", "--rounds=1", "--scale=0.01")
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.peers", *options, f"--output={output}"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(output.read_text())

    assert results.troubles(found) == []
    assert found["rounds"] == 1
    for payload in PAYLOADS:
        for figure in FIGURES:
            figures = found["figures"][payload][figure]
            assert figures.keys() == {OURS}
            assert len(figures[OURS]["rounds"]) == 1
            assert figures[OURS]["cpu_microseconds_per_message"] > 0
            assert figures[OURS]["groupqueue_to_it"] == 1
    assert "wake_up_p99" in found["groupqueue_alone"]["figures"]
    assert "two_processes_to_one" in found["groupqueue_alone"]["comparisons"]
    assert ET.parse(output.with_suffix(".svg")).getroot().tag == f"{SVG}svg"
    assert "handled 16" in ended.stdout
