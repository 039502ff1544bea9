"""Does every message find a clean database connection, whatever the one before it did?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.databases import EACH, Database, PostgreSQL, SQLite, on_postgresql
from tests.worker.stage import Stage

BOTH = pytest.mark.parametrize("suffix", ["", ".async"])
PERSISTENT = {"CONN_MAX_AGE": None}


@pytest.fixture(params=EACH)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Each database that this machine has."""
    database: Database = SQLite(tmp_path) if request.param == "sqlite" else PostgreSQL()
    try:
        yield database
    finally:
        database.drop()


# The database first: it goes when the workers have gone.
@pytest.fixture
def its_stage(database: Database, stage: Stage) -> Stage:
    """A stage whose workers keep their connections for ever, and use that database."""
    stage.plan.databases["default"] = database.settings(**PERSISTENT)
    return stage


@BOTH
@pytest.mark.parametrize("concurrency", [1, 2])
def test_failure_34_a_transaction_that_a_handler_left_open_is_rolled_back(
    its_stage: Stage, database: Database, suffix: str, concurrency: int
) -> None:
    its_stage.configure(MAX_ATTEMPTS=1, ON_EXHAUSTED="dead_letter")
    for mess in ("leave_open", "autocommit_off", "break"):
        its_stage.publish(f"database.{mess}{suffix}")
        its_stage.publish(f"database.look{suffix}")
        its_stage.publish(f"database.look{suffix}")
    worker = its_stage.work("--concurrency", concurrency)

    looks = its_stage.wait_for_ended(6, topic=f"database.look{suffix}")

    for look in looks:
        assert (look.in_transaction, look.autocommit, look.rows) == (False, True, 0)
    assert len(looks) == 6
    assert database.count_notes() == 0
    assert worker.log.count("a handler left a transaction open; it is rolled back") == 3


def test_a_new_connection_is_made_where_the_settings_keep_none(
    database: Database, stage: Stage
) -> None:
    stage.plan.databases["default"] = database.settings()
    for _ in range(3):
        stage.publish("database.connections")
    stage.work()

    ended = stage.wait_for_ended(3)

    assert [trace.was_connected for trace in ended] == [False] * 3


def test_a_connection_is_kept_where_the_settings_say_so(its_stage: Stage) -> None:
    for _ in range(3):
        its_stage.publish("database.connections")
    its_stage.work()

    ended = its_stage.wait_for_ended(3)

    assert [trace.was_connected for trace in ended] == [False, True, True]


@pytest.fixture
def postgresql() -> Iterator[PostgreSQL]:
    """A schema of the test's own; it goes when the workers have gone."""
    postgresql = PostgreSQL()
    try:
        yield postgresql
    finally:
        postgresql.drop()


@pytest.fixture
def cut_stage(postgresql: PostgreSQL, stage: Stage) -> Stage:
    """A stage whose workers keep connections that the test may cut."""
    stage.plan.databases["default"] = postgresql.settings(**PERSISTENT)
    return stage


@on_postgresql
@BOTH
@pytest.mark.parametrize("concurrency", [1, 2])
def test_failure_34_a_connection_that_died_between_messages_is_replaced(
    cut_stage: Stage, postgresql: PostgreSQL, suffix: str, concurrency: int
) -> None:
    cut_stage.publish(f"database.identify{suffix}", "before")
    cut_stage.work("--concurrency", concurrency)
    [before] = cut_stage.wait_for_ended(group="before")
    cut_stage.wait_until_drained()

    postgresql.cut(before.session)
    # With two threads, each has a connection: reach the one that was cut as well.
    for number in range(concurrency):
        cut_stage.publish(f"database.identify{suffix}", f"after{number}")

    after = cut_stage.wait_for_ended(1 + concurrency)[1:]
    assert {trace.attempt for trace in after} == {1}
    assert before.session not in {trace.session for trace in after}


@on_postgresql
@BOTH
@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_connection_that_dies_under_a_handler_costs_its_attempt_and_nothing_else(
    cut_stage: Stage, postgresql: PostgreSQL, suffix: str, concurrency: int
) -> None:
    cut_stage.publish(f"database.write_at_gate{suffix}", "cut")
    cut_stage.work("--concurrency", concurrency)
    [started] = cut_stage.wait_for_started(group="cut")

    postgresql.cut(started.session)
    cut_stage.open_gate()

    [ended] = cut_stage.wait_for_ended(group="cut")
    assert (ended.attempt, ended.deliveries, ended.crashes) == (2, 2, 0)
    assert ended.session != started.session
    # What the first attempt had written is rolled back with its connection.
    assert postgresql.count_notes() == 1
    cut_stage.publish(f"database.look{suffix}", "after")
    [look] = cut_stage.wait_for_ended(group="after")
    assert (look.in_transaction, look.autocommit, look.rows) == (False, True, 1)


@on_postgresql
@BOTH
def test_connections_that_die_again_and_again_cost_no_message(
    cut_stage: Stage, postgresql: PostgreSQL, suffix: str
) -> None:
    cut_stage.work("--concurrency", 2)
    sessions = []
    for number in range(5):
        cut_stage.publish(f"database.identify{suffix}", f"g{number}")
        [ended] = cut_stage.wait_for_ended(group=f"g{number}")
        sessions.append(ended.session)
        cut_stage.wait_until_drained()
        postgresql.cut(ended.session)

    assert len(set(sessions)) == 5
    assert {trace.attempt for trace in cut_stage.traces.all("ended")} == {1}
