"""Does `demo_flights` prove the order of the flights, and say so when it cannot?"""

from __future__ import annotations

import signal

from tests.demo.conftest import Demo, result_of
from tests.servers import wait_until

# The command with other workers than its own.
WITH_WORKERS = """
import sys
import django
django.setup()
from django.core.management import execute_from_command_line
from demo.flights import month
month.WORKERS = (*month.WORKERS, *sys.argv[1].split())
execute_from_command_line(["manage.py", "demo_flights", *sys.argv[2:]])
"""

# The command with something done to it before it compares, or before it publishes.
MEDDLED_WITH = """
import sys
import django
django.setup()
from django.core.management import execute_from_command_line
from demo.flights.models import Aircraft
from demo.flights.month import Month
from groupqueue import get_queue

def tamper():
    Aircraft.objects.filter(tail_number="N14228").update(chain="0" * 64)

def pause():
    get_queue().pause("N14228", "in the hangar")

def first(meddle, method):
    def meddled(*arguments):
        meddle()
        return method(*arguments)
    return meddled

if sys.argv[1] == "tamper":
    Month._check = first(tamper, Month._check)
else:
    Month._publish_all = first(pause, Month._publish_all)
execute_from_command_line(["manage.py", "demo_flights", *sys.argv[2:]])
"""


def test_a_run_ends_with_one_line_of_json_and_exit_code_0(demo: Demo) -> None:
    outcome = demo.run("demo_flights", "--rows", "500")
    assert outcome.returncode == 0, outcome.stderr
    result = result_of(outcome.stdout)
    seconds, rate = result.pop("seconds"), result.pop("messages_per_second")
    assert result == {
        "read": 500,
        "published": 500,
        "rejected": 0,
        "processed": 500,
        "out_of_order": 0,
        "duplicates": 0,
    }
    assert seconds > 0
    assert rate > 0


def test_a_second_run_starts_fresh_and_reports_the_rows_it_rejects(demo: Demo) -> None:
    demo.run("demo_flights", "--rows", "20")
    outcome = demo.run("demo_flights", "--rows", "1500")
    assert outcome.returncode == 0, outcome.stderr
    result = result_of(outcome.stdout)
    assert (result["read"], result["published"], result["rejected"]) == (1500, 1498, 2)
    assert (result["processed"], result["duplicates"]) == (1498, 0)
    assert "Rejected 2 rows: no tail number" in outcome.stderr
    assert "line 1429: 2013-01-02T20:45Z,AA,133,NA,JFK,LAX,NA,NA,NA,2475" in outcome.stderr


def test_progress_is_shown_on_stderr(demo: Demo) -> None:
    outcome = demo.run("demo_flights", "--rows", "100")
    for word in ("published", "handled", "waiting", "per second"):
        assert word in outcome.stderr


def test_a_tampered_chain_makes_the_run_fail(demo: Demo) -> None:
    outcome = demo.run("tamper", "--rows", "100", program=MEDDLED_WITH)
    assert outcome.returncode == 1
    assert result_of(outcome.stdout)["out_of_order"] == 1
    assert "another hash chain" in outcome.stderr
    assert "N14228" in outcome.stderr


def test_workers_that_end_early_make_the_run_fail_with_the_result_as_it_stands(
    demo: Demo,
) -> None:
    outcome = demo.run("--max-messages 50", "--rows", "500", program=WITH_WORKERS)
    assert outcome.returncode == 1
    result = result_of(outcome.stdout)
    assert (result["processed"], result["out_of_order"]) == (50, 0)
    assert "the workers have ended early" in outcome.stderr


def test_workers_that_handle_nothing_make_the_run_fail_instead_of_hang(demo: Demo) -> None:
    # Of the first rows, none is of the most urgent tier.
    outcome = demo.run(
        "--min-priority 4", "--rows", "50", "--patience", "0.5", program=WITH_WORKERS
    )
    assert outcome.returncode == 1
    assert result_of(outcome.stdout)["processed"] == 0
    assert "nothing was handled for 0.5 seconds" in outcome.stderr


def test_workers_that_cannot_start_are_reported_in_their_own_words(demo: Demo) -> None:
    outcome = demo.run("--no-such-option", "--rows", "50", program=WITH_WORKERS)
    assert outcome.returncode == 1
    assert outcome.stdout == ""
    assert "unrecognized arguments: --no-such-option" in outcome.stderr


def test_held_groups_are_named_instead_of_waited_for(demo: Demo) -> None:
    outcome = demo.run("pause", "--rows", "50", program=MEDDLED_WITH)
    assert outcome.returncode == 1
    result = result_of(outcome.stdout)
    assert 0 < result["processed"] < result["published"] == 50
    assert "'N14228', in the hangar" in outcome.stderr


def test_ctrl_c_ends_the_workers_too(demo: Demo) -> None:
    process = demo.start("demo_flights", DEMO_HANDLER_MS="50")
    assert process.stderr is not None
    # The line after that of the set-up is the first on how far it got.
    assert "Setting up" in process.stderr.readline()
    assert "published" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stdout == ""
    assert "Interrupted" in stderr
    wait_until(lambda: not demo.is_in_use(), "the workers have ended")


def test_rows_that_are_no_number_of_rows_are_refused(demo: Demo) -> None:
    outcome = demo.run("demo_flights", "--rows", "0")
    assert outcome.returncode == 2
    assert "0 is not 1 or more" in outcome.stderr
