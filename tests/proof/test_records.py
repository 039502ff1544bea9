"""Are the lines of actors read as they were written, whatever became of the actor?"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from proof.records import Recorder, has_succeeded, read_records


def test_lines_are_read_in_the_order_in_which_they_were_written(tmp_path: Path):
    one, other = Recorder(tmp_path / "one.jsonl"), Recorder(tmp_path / "other.jsonl")
    for number in range(4):
        actor = other if number % 2 else one
        actor.write("publish", phase="invoke", id=f"{number}", group="Ärger", queue="orders")
    records = read_records(tmp_path)
    assert [record.fields["id"] for record in records] == ["0", "1", "2", "3"]
    assert records[0].fields == {"id": "0", "group": "Ärger", "queue": "orders"}
    assert (records[0].event, records[0].phase) == ("publish", "invoke")
    assert records[0].at_ns <= time.monotonic_ns()
    assert records[0].wall_ns <= time.time_ns()


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path):
    recorder = Recorder(tmp_path / "killed.jsonl")
    recorder.write("handle", phase="invoke", id="1")
    with (tmp_path / "killed.jsonl").open("a") as file:
        file.write('{"at_ns":12,"event":"han')
    assert [record.event for record in read_records(tmp_path)] == ["handle"]


@pytest.mark.parametrize("line", ["no record", "{}", "7", "null", "[]"])
def test_a_broken_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path, line: str):
    (tmp_path / "odd.jsonl").write_text(f"{line}\n")
    with pytest.raises(ValueError, match=r"odd\.jsonl:1 is no record"):
        read_records(tmp_path)


def test_threads_that_share_a_recorder_do_not_mix_their_lines(tmp_path: Path):
    recorder = Recorder(tmp_path / "shared.jsonl")

    def write() -> None:
        for _ in range(200):
            recorder.write("nemesis", phase="ok", fault="x" * 500)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()
    assert len(read_records(tmp_path)) == 800


def test_an_actor_has_succeeded_once_it_says_so_after_a_moment(tmp_path: Path):
    recorder = Recorder(tmp_path / "worker-1-0.jsonl")
    recorder.write("handle", phase="invoke", id="1")
    recorder.write("handle", phase="fail", id="1")
    assert not has_succeeded(tmp_path, "worker-1", 0)
    recorder.write("handle", phase="ok", id="1")
    assert has_succeeded(tmp_path, "worker-1", 0)
    assert not has_succeeded(tmp_path, "worker-1", time.time_ns())
    assert not has_succeeded(tmp_path, "worker-2", 0)


def test_an_actor_in_the_middle_of_a_line_has_not_said_it_yet(tmp_path: Path):
    recorder = Recorder(tmp_path / "whole.jsonl")
    recorder.write("handle", phase="ok", id="1")
    whole = (tmp_path / "whole.jsonl").read_bytes()
    (tmp_path / "worker-1-0.jsonl").write_bytes(whole.rstrip(b"\n"))
    assert not has_succeeded(tmp_path, "worker-1", 0)
