"""Is a flight entered once, however often and by whomever it is delivered?"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.demo.conftest import Demo

# Runs with the demo's settings: reads deliveries as [message id, token], prints the row.
PROGRAM = """
import json, sys
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from demo.flights.handlers import flight_departed
from demo.flights.models import Aircraft
from demo.flights.timetable import read_rows
from groupqueue import Delivery
from groupqueue.core.codec import Content
from groupqueue.core.messages import Lease

first = next(read_rows())
for number, token in json.loads(sys.argv[1]):
    payload = first | {"flight": number}
    lease = Lease("N14228", token, f"{number:032x}", b"", 2, 1, 0, 0, 0)
    flight_departed(Delivery(lease, Content("flights.departed", payload, {}), "default"))
aircraft = Aircraft.objects.get()
print(json.dumps({
    "flights": aircraft.flights, "duplicates": aircraft.duplicates, "fence": aircraft.fence,
    "delay_min": aircraft.delay_min, "chain": aircraft.chain,
}))
"""


def row_after(demo: Demo, *deliveries: tuple[int, int]) -> dict[str, Any]:
    """Return the aircraft's row after deliveries, each a flight and a fencing token."""
    outcome = demo.run(json.dumps(deliveries), program=PROGRAM)
    assert outcome.returncode == 0, outcome.stderr
    row: dict[str, Any] = json.loads(outcome.stdout)
    return row


@pytest.fixture
def undisturbed(demo: Demo) -> dict[str, Any]:
    """The row after two flights, each delivered once."""
    row = row_after(demo, (1, 10), (2, 20))
    (demo.directory / "demo.sqlite3").unlink()
    return row


def test_each_flight_is_entered(undisturbed: dict[str, Any]) -> None:
    assert (undisturbed["flights"], undisturbed["duplicates"]) == (2, 0)
    assert (undisturbed["fence"], undisturbed["delay_min"]) == (20, 4)


def test_a_redelivered_flight_is_counted_and_leaves_the_chain_alone(
    demo: Demo, undisturbed: dict[str, Any]
) -> None:
    row = row_after(demo, (1, 10), (1, 15), (2, 20), (2, 25))
    assert row == undisturbed | {"duplicates": 2}


def test_a_worker_with_an_older_token_comes_too_late(
    demo: Demo, undisturbed: dict[str, Any]
) -> None:
    row = row_after(demo, (1, 10), (2, 20), (1, 5), (3, 20))
    assert row == undisturbed | {"duplicates": 2}
