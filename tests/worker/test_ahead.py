"""Does a worker claim ahead while its handlers are quick, and harm nobody by it?"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from groupqueue.worker import ahead
from groupqueue.worker.ahead import MOST_AHEAD, Line
from groupqueue.worker.executor import Held
from tests.servers import wait_until
from tests.worker.stage import Stage

QUICK = [f"quick-{number:02d}" for number in range(40)]
BEHIND = [f"behind-{number}" for number in range(MOST_AHEAD - 3)]


def a_held() -> Held:
    """A lease that nobody looks into."""
    return Held(queue=None, lease=None, lasts_until=0, renewed_at=0)  # type: ignore[arg-type]


def refuse(waiting: Sequence[Held]) -> None:
    """Expect nothing to be handed back."""
    raise AssertionError(f"{len(waiting)} handed back")


def handle(line: Line, monkeypatch, seconds: float) -> None:
    """Let the hand be busy for so long, by the line's clock."""
    moments = iter((0.0, seconds))
    monkeypatch.setattr(ahead.time, "monotonic", lambda: next(moments))
    line.ended(line.begun())
    monkeypatch.undo()


def test_nothing_is_claimed_ahead_until_handlers_have_been_quick_for_a_while(monkeypatch):
    line = Line(refuse)
    assert line.spare == 0

    handle(line, monkeypatch, 0.0001)

    assert 0 < line.spare < MOST_AHEAD
    for _ in range(30):
        handle(line, monkeypatch, 0.0001)
    assert line.spare == MOST_AHEAD


def test_one_slow_handler_ends_it_at_once(monkeypatch):
    line = Line(refuse)
    for _ in range(30):
        handle(line, monkeypatch, 0.0001)

    handle(line, monkeypatch, 0.5)

    assert line.spare == 0


def test_what_waits_is_what_can_be_handled_soon(monkeypatch):
    line = Line(refuse)
    for _ in range(60):
        handle(line, monkeypatch, 0.002)

    assert line.spare == 4  # of 2 ms each, within 10 ms, the last of them begun before


def test_more_hands_have_more_waiting_for_them(monkeypatch):
    line = Line(refuse, hands=3)
    for _ in range(60):
        handle(line, monkeypatch, 0.002)

    assert line.spare == 12


@pytest.mark.parametrize("hands", [1, 3])
def test_what_waits_behind_busy_hands_is_handed_back_once_and_in_order(hands: int):
    handed_back: list[Held] = []
    is_done = threading.Event()

    def hand_back(waiting: Sequence[Held]) -> None:
        handed_back.extend(waiting)
        is_done.set()

    line = Line(hand_back, hands=hands)
    first, second = a_held(), a_held()
    line.add(first)
    line.add(second)
    for _ in range(hands):
        line.begun()

    assert is_done.wait(20)
    assert handed_back == [first, second]
    assert line.take() is None


@pytest.mark.parametrize(("hands", "busy"), [(1, 0), (3, 2)])
def test_what_waits_for_an_idle_hand_is_not_handed_back(hands: int, busy: int):
    line = Line(refuse, hands=hands)
    held = a_held()
    line.add(held)
    for _ in range(busy):
        line.begun()
    threading.Event().wait(ahead.PATIENCE_SECONDS * 3)

    assert line.take() is held


def fill(stage: Stage, hands: int = 1) -> list[str]:
    """Publish what is quick, then what waits at a gate, for each hand, then what is quick again;
    return the groups of what waits."""
    slow = [f"slow-{number}" for number in range(hands)]
    stage.publish_numbered("note", QUICK, 2)
    for group in slow:
        stage.publish("gate", group)
    for group in BEHIND:
        stage.publish("note", group)
    return slow


def turns(stage: Stage) -> int:
    """Return how many scripts the server was asked for so far."""
    return stage.client.info("commandstats")["cmdstat_evalsha"]["calls"]


@pytest.fixture(params=[1, 3], ids=["one-hand", "three-hands"])
def hands(request: pytest.FixtureRequest) -> int:
    """Return with which concurrency a worker runs."""
    return request.param


def test_quick_messages_cost_far_fewer_turns_than_there_are(stage: Stage, hands: int) -> None:
    stage.publish_numbered("note", QUICK, 10)
    before = turns(stage)

    assert stage.work("--burst", "--concurrency", hands).wait() == 0

    assert len(stage.wait_for_ended(400)) == 400
    assert turns(stage) - before < 300
    assert {trace.deliveries for trace in stage.traces.all("ended")} == {1}


def test_what_waits_behind_slow_handlers_goes_to_another_worker(stage: Stage, hands: int) -> None:
    slow = fill(stage, hands)
    stage.work("--concurrency", hands)
    [pid] = {stage.wait_for_started(group=group)[0].pid for group in slow}

    stage.work("--concurrency", hands)

    for group in BEHIND:
        [trace] = stage.wait_for_ended(group=group)
        assert trace.pid != pid
        # It was handed back as if it had never been claimed.
        assert (trace.deliveries, trace.attempt) == (1, 1)
    stage.open_gate()
    stage.wait_until_drained()


def test_a_worker_that_drains_hands_back_what_it_claimed_ahead(stage: Stage, hands: int) -> None:
    stage.plan.constants["groupqueue.worker.ahead.PATIENCE_SECONDS"] = 3600
    slow = fill(stage, hands)
    worker = stage.work("--concurrency", hands)
    for group in slow:
        stage.wait_for_started(group=group)
    wait_until(lambda: len(stage.snapshot().leased) > hands, "leases that wait in line")

    worker.signal()
    worker.wait_for_logged("takes no new messages")
    stage.open_gate()

    assert worker.wait() == 0
    assert not stage.snapshot().leased
    stage.work("--concurrency", hands)
    for group in BEHIND:
        assert stage.wait_for_ended(group=group)[0].deliveries == 1
    stage.wait_until_drained()


def test_who_is_given_up_after_one_crash_never_waits_beside_another(
    stage: Stage, hands: int
) -> None:
    stage.plan.constants["groupqueue.worker.ahead.PATIENCE_SECONDS"] = 3600
    stage.configure(MAX_CRASHES=1)
    slow = fill(stage, hands)
    stage.work("--concurrency", hands)
    for group in slow:
        stage.wait_for_started(group=group)

    assert {view.group for view in stage.snapshot().leased} == set(slow)
