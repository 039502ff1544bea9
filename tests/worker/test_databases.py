"""Does every message find a clean database connection, whatever the one before it did?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.databases import Database, PostgreSQL, SQLite, available
from tests.worker.stage import Stage

BOTH = pytest.mark.parametrize("suffix", ["", ".async"])
PERSISTENT = {"CONN_MAX_AGE": None}


@pytest.fixture(params=available())
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
def test_a_transaction_that_a_handler_left_open_is_rolled_back(
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


if "postgresql" in available():

    @BOTH
    @pytest.mark.parametrize("concurrency", [1, 2])
    def test_a_connection_that_died_between_messages_is_replaced(
        stage: Stage, suffix: str, concurrency: int
    ) -> None:
        postgresql = PostgreSQL()
        try:
            stage.plan.databases["default"] = postgresql.settings(**PERSISTENT)
            stage.publish(f"database.identify{suffix}", "before")
            stage.work("--concurrency", concurrency)
            [before] = stage.wait_for_ended(group="before")
            stage.wait_until_drained()

            postgresql.cut(before.session)
            # With two threads, each has a connection: reach the one that was cut as well.
            for number in range(concurrency):
                stage.publish(f"database.identify{suffix}", f"after{number}")

            after = stage.wait_for_ended(1 + concurrency)[1:]
            assert {trace.attempt for trace in after} == {1}
            assert before.session not in {trace.session for trace in after}
            stage.end()
        finally:
            postgresql.drop()
