"""Does `doctor` say how a queue and its server are, and mend what it was asked to?"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from groupqueue import get_queue
from groupqueue.core.audits import Fault
from groupqueue.core.calls import Settlement
from groupqueue.core.keys import ShardKeys
from groupqueue.exceptions import InvalidArgument
from groupqueue.transport.connections import get_async_transport
from tests.documents import DOCS, coded, rows
from tests.operating.conftest import Bench, operate
from tests.operating.test_terminal import answering, everything
from tests.servers import free_port

KEYS = ShardKeys("gq:{default:0}")


def break_order(bench: Bench, *groups: str) -> None:
    """Let groups stand in no tier."""
    for group in groups:
        bench.publish(group)
        bench.client.zrem(KEYS.ready(0), group)


def test_a_queue_in_order_is_well(bench: Bench) -> None:
    bench.publish("group", 1, 2)
    bench.claim()

    said = operate("doctor")
    assert (said.code, said.trouble) == (0, "")
    assert said.out == "queue default\ngroups with messages looked at: 1\nall is well\n"
    assert operate("doctor", "--json").document == {
        "queues": [
            {
                "queue": "default",
                "server": [],
                "faults": [],
                "groups": 1,
                "complete": True,
                "mended": [],
                "mended_total": 0,
                "trouble": "",
            }
        ]
    }


def test_what_is_wrong_is_named_and_nothing_is_changed(bench: Bench) -> None:
    break_order(bench, "a\x1b[2J")
    before = everything(bench)

    said = operate("doctor")
    assert (said.code, said.trouble) == (4, "something is wrong with default")
    assert "not-ready" in said.out
    assert r"group a\x1b[2J" in said.out
    [fault] = operate("doctor", "--json").document["queues"][0]["faults"]
    assert fault == {
        "subject": "group",
        "name": "a\x1b[2J",
        "word": "not-ready",
        "detail": "",
        "level": "error",
        "text": "has messages and stands in no tier: nobody is given them",
        "mendable": True,
    }
    assert everything(bench) == before


def test_failure_32_repair_mends_and_the_group_goes_on(bench: Bench) -> None:
    break_order(bench, "group")

    said = operate("doctor", "--repair", "--yes")

    assert said.code == 0
    assert "mended, 1 in all" in said.out
    assert bench.claim().group == "group"
    [examined] = operate("doctor", "--repair", "--yes", "--json").document["queues"]
    assert (examined["mended"], examined["faults"]) == ([], [])


def test_what_cannot_be_mended_is_still_wrong_after_repair(bench: Bench) -> None:
    break_order(bench, "group")
    bench.client.set(KEYS.fifo("other"), "foreign")

    said = operate("doctor", "--repair", "--yes", "--json")

    [examined] = said.document["queues"]
    assert said.code == 4
    assert [fault["word"] for fault in examined["mended"]] == ["not-ready"]
    assert [fault["word"] for fault in examined["faults"]] == ["wrong-type"]


def test_warnings_alone_are_no_failure_unless_they_are_asked_for(bench: Bench) -> None:
    bench.client.set(KEYS.named("strange"), 1)

    assert operate("doctor").code == 0
    assert "unknown-key" in operate("doctor").out
    assert operate("doctor", "--fail-level", "warning").code == 4
    assert operate("doctor", "--fail-level", "error").code == 0


def test_a_servers_findings_count_as_well(bench: Bench) -> None:
    bench.client.hset(KEYS.named("meta"), "schema", 99)

    said = operate("doctor")
    assert said.code == 4
    assert "error: the queue's data has layout '99'" in said.out
    assert "Upgrade groupqueue here" in said.out
    [finding] = operate("doctor", "--json").document["queues"][0]["server"]
    assert (finding["id"], finding["level"]) == ("schema", "error")


def test_many_faults_are_shown_in_part(bench: Bench) -> None:
    break_order(bench, *(f"group-{number}" for number in range(60)))

    assert "and 10 more, which --json lists" in operate("doctor").out
    assert len(operate("doctor", "--json").document["queues"][0]["faults"]) == 60


def test_an_audit_that_ends_early_is_no_good_news(bench: Bench) -> None:
    bench.client.mset({KEYS.lock(f"group-{number}"): 1 for number in range(3000)})

    said = operate("doctor")

    assert said.code == 4
    assert "there may be more" in said.out
    assert operate("doctor", "--repair", "--yes").code == 0


def test_any_number_of_warnings_hides_no_error(bench: Bench) -> None:
    bench.client.mset({KEYS.named(f"strange:{number}"): 1 for number in range(1500)})
    assert operate("doctor").code == 0
    break_order(bench, "group")

    said = operate("doctor")

    assert said.code == 4
    assert "group group" in said.out
    assert "1,501 in all" in said.out
    assert operate("doctor", "--repair", "--yes").code == 0
    assert bench.claim().group == "group"


def test_keys_that_stop_an_audit_are_named(bench: Bench) -> None:
    bench.publish("group")
    bench.client.delete(KEYS.named("prio"))
    bench.client.set(KEYS.named("prio"), "foreign")

    said = operate("doctor")

    assert said.code == 4
    assert "key prio" in said.out
    assert "not all could be looked at" in said.out


# Which queues ---------------------------------------------------------------------------------


@pytest.fixture
def two_queues(bench: Bench, settings: Any) -> Bench:
    """Beside the default queue one whose server does not answer."""
    away = {"CONNECTION": f"redis://127.0.0.1:{free_port()}/0"}
    settings.GROUPQUEUE = {"default": settings.GROUPQUEUE["default"], "away": away}
    return bench


def test_all_queues_are_examined_and_one_that_is_away_hides_no_other(two_queues: Bench) -> None:
    break_order(two_queues, "group")

    said = operate("doctor", "--json")

    default, away = said.document["queues"]
    assert said.code == 3
    assert "away" in said.trouble
    assert "default" in said.trouble
    assert [fault["word"] for fault in default["faults"]] == ["not-ready"]
    assert "not available" in away["trouble"]
    assert "could not be examined" in operate("doctor").out
    assert operate("doctor", "--repair", "--yes").code == 3
    assert operate("doctor", "default").code == 0


@pytest.mark.parametrize("named", [["default"], ["--queue", "default"], ["default"] * 2])
def test_queues_can_be_named(two_queues: Bench, named: list[str]) -> None:
    said = operate("doctor", *named, "--json")

    assert said.code == 0
    assert [examined["queue"] for examined in said.document["queues"]] == ["default"]


def test_a_queue_that_is_not_configured_is_a_mistake(bench: Bench) -> None:
    assert operate("doctor", "nowhere").code == 2


# Questions ------------------------------------------------------------------------------------


def test_repair_asks_and_takes_no_for_an_answer(bench: Bench, monkeypatch, capsys) -> None:
    break_order(bench, "group")
    before = everything(bench)
    answering(monkeypatch, "n\n")

    said = operate("doctor", "--repair")

    assert (said.code, said.trouble, said.out) == (1, "nothing was changed", "")
    assert everything(bench) == before


def test_repair_mends_after_a_yes(bench: Bench, monkeypatch) -> None:
    break_order(bench, "group")
    answering(monkeypatch, "y\n")

    assert operate("doctor", "--repair").code == 0
    assert bench.claim().group == "group"


def test_nothing_to_mend_is_no_question(bench: Bench, monkeypatch) -> None:
    answering(monkeypatch, "")

    assert operate("doctor", "--repair").code == 0


def test_repair_without_a_terminal_needs_a_yes_beforehand(bench: Bench, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)

    said = operate("doctor", "--repair")

    assert said.code == 2
    assert "--yes" in said.trouble
    assert operate("doctor").code == 0


def test_the_question_says_how_much_and_where(bench: Bench, monkeypatch) -> None:
    from io import StringIO

    from django.core.management import CommandError, call_command

    break_order(bench, "a", "b")
    answering(monkeypatch, "n\n")
    asked = StringIO()

    with pytest.raises(CommandError):
        call_command("group_queues", "doctor", "--repair", stdout=StringIO(), stderr=asked)

    assert "not-ready" in asked.getvalue()
    assert asked.getvalue().endswith("Mend what is wrong (2 in queue default)? [y/N] ")


# From Python, and on paper --------------------------------------------------------------------

Ask = Callable[..., Awaitable[Any]]


@pytest.fixture(params=["sync", "async"])
async def ask(request: pytest.FixtureRequest):
    """Ask the default queue by a method's name, through the method or its async twin."""
    queue = get_queue()

    async def asked(name: str, *args: Any, **kwargs: Any) -> Any:
        if request.param == "async":
            return await getattr(queue, f"a{name}")(*args, **kwargs)
        return getattr(queue, name)(*args, **kwargs)

    yield asked
    if request.param == "async":
        await get_async_transport().close()


async def test_auditing_and_repairing(bench: Bench, ask: Ask) -> None:
    bench.publish("sound", 1)
    break_order(bench, "a", "b", "c")

    looked = await ask("audit")
    assert sorted(looked.faults) == [Fault("group", name, "not-ready", "") for name in "abc"]
    assert (looked.total, looked.groups, looked.is_complete) == (3, 4, True)
    assert len((await ask("audit", limit=2)).faults) == 2
    mended = await ask("repair", limit=2)
    assert (len(mended.faults), mended.total) == (2, 3)
    assert (await ask("audit")).faults == ()
    with pytest.raises(InvalidArgument, match="limit"):
        await ask("audit", limit=0)


def test_a_repaired_queue_keeps_what_a_holder_does(bench: Bench) -> None:
    bench.publish("group", 1, 2)
    lease = bench.claim()
    bench.client.zrem(KEYS.ready(0), "group")
    bench.client.persist(KEYS.lock("group"))

    assert operate("doctor", "--repair", "--yes").code == 0

    assert bench.transport.renew([lease], 60) == []
    assert bench.transport.settle(Settlement.ack(lease)) == 1
    assert bench.client.ttl(KEYS.lock("group")) == -2


def test_the_documentation_lists_every_fault_with_its_level() -> None:
    from groupqueue.core.audits import KINDS

    listed = {
        coded(row[0])[0]: (row[1], not row[3].startswith("no"))
        for row in rows(DOCS / "operating.md", "Doctor")
    }

    assert listed == {word: (kind.level, kind.is_mendable) for word, kind in KINDS.items()}
    assert list(listed) == list(KINDS)
