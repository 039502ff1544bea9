"""Does a lease last as long as its handler runs, through what befalls the server meanwhile?"""

from __future__ import annotations

import time

import pytest

from tests.servers import Server, wait_until
from tests.transport.proxy import Proxy
from tests.worker.stage import Stage


@pytest.mark.parametrize("topic", ["gate", "gate.async"])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_handler_that_outlasts_three_leases_keeps_its_group(
    stage: Stage, topic: str, concurrency: int
) -> None:
    stage.configure(VISIBILITY_TIMEOUT=0.7)
    stage.publish(topic)
    stage.work("--concurrency", concurrency)
    # Somebody who would take the group if it came free.
    stage.work()
    [started] = stage.wait_for_started()
    stage.wait_for_processes(2)

    hold_for(stage, started.token, leases=3, visibility=0.7)
    stage.open_gate()

    [ended] = stage.wait_for_ended()
    assert not ended.lease_lost
    stage.wait_until_drained()
    assert len(stage.traces.all("started")) == 1
    assert stage.snapshot().counters["delivered"] == 1


def hold_for(stage: Stage, token: int, *, leases: int, visibility: float, group: str = "g") -> None:
    """Let so many visibility timeouts go by, by the server's clock; the token holds all along."""
    ends = server_seconds(stage) + leases * visibility
    while server_seconds(stage) < ends:
        assert stage.group(group).token == token
        time.sleep(0.02)


def server_seconds(stage: Stage) -> float:
    """The time by the server's clock."""
    seconds, microseconds = stage.client.time()
    return float(seconds + microseconds / 1e6)


@pytest.mark.parametrize("times", [1, 6])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_failure_06_a_handler_that_lets_nobody_run_for_seconds_costs_no_lease(
    stage: Stage, concurrency: int, times: int
) -> None:
    stage.configure(VISIBILITY_TIMEOUT=4)
    # Once for half a lease; or again and again, for longer than a lease in all.
    stage.publish("freeze", "freezing", seconds=2 if times == 1 else 1, times=times)
    if concurrency > 1:
        stage.publish("gate", "beside")
    stage.work("--concurrency", concurrency)

    stage.wait_for_ended(group="freezing")
    stage.open_gate()

    ended = stage.wait_for_ended(concurrency)
    assert not any(trace.lease_lost for trace in ended)
    stage.wait_until_drained()
    assert stage.traces.all("lease_lost") == []
    counters = stage.snapshot().counters
    assert (counters["delivered"], counters["acked"]) == (concurrency, concurrency)


def test_many_leases_are_renewed_together(stage: Stage) -> None:
    stage.configure(VISIBILITY_TIMEOUT=1)
    groups = [f"g{number}" for number in range(60)]
    for group in groups:
        stage.publish("gate.async", group)
    stage.work("--concurrency", 60)
    started = stage.wait_for_started(60)

    ends = server_seconds(stage) + 2
    wait_until(lambda: server_seconds(stage) > ends, "two leases' time")
    tokens = {view.group: view.token for view in stage.snapshot().leased}
    stage.open_gate()

    assert tokens == {trace.group: trace.token for trace in started}
    ended = stage.wait_for_ended(60)
    assert not any(trace.lease_lost for trace in ended)


def test_failure_05_renewal_survives_an_outage_shorter_than_the_lease(
    valkey_stage: Stage, valkey: Server
) -> None:
    valkey_stage.configure(VISIBILITY_TIMEOUT=6)
    valkey_stage.publish("gate")
    worker = valkey_stage.work()
    [started] = valkey_stage.wait_for_started()

    valkey.pause()
    # The lease has been due for renewal at a third of its time: an attempt has failed.
    worker.wait_for_logged("cannot be reached by the lease keeper; trying again")
    valkey.resume()

    left = valkey_stage.group().lease_left_seconds
    wait_until(lambda: valkey_stage.group().lease_left_seconds > left, "the next renewal")
    valkey_stage.open_gate()
    [ended] = valkey_stage.wait_for_ended()
    assert not ended.lease_lost
    valkey_stage.wait_until_drained()
    assert valkey_stage.traces.all("lease_lost") == []
    assert len(valkey_stage.traces.all("started")) == 1
    assert ended.token == started.token


@pytest.mark.parametrize("concurrency", [1, 2])
def test_failure_05_a_handler_learns_that_its_lease_ended_in_an_outage(
    valkey_stage: Stage, valkey: Server, concurrency: int
) -> None:
    valkey_stage.configure(VISIBILITY_TIMEOUT=1)
    valkey_stage.publish("mind_lease")
    valkey_stage.publish("note", n=1)
    worker = valkey_stage.work("--concurrency", concurrency)
    [started] = valkey_stage.wait_for_started()

    valkey.pause()
    [lost] = valkey_stage.traces.wait_for("lease_lost")
    valkey_stage.traces.wait_for("gave way")
    valkey.resume()

    assert (lost.pid, lost.token) == (started.pid, started.token)
    # Its result counts no more; the message is delivered again, and again loses nothing.
    again = valkey_stage.wait_for_started(2, topic="mind_lease")[1]
    assert (again.id, again.crashes) == (started.id, 1)
    assert "lease lost" in worker.log


def test_failure_05_an_error_that_nobody_expects_does_not_end_renewal(stage: Stage) -> None:
    stage.configure(VISIBILITY_TIMEOUT=2)
    stage.add_app("breaking", BREAKING_RENEWAL)
    stage.publish("gate")
    worker = stage.work()
    [started] = stage.wait_for_started()
    # Somebody who would take the group if it came free.
    stage.work()

    worker.wait_for_logged("the lease keeper met an error")
    hold_for(stage, started.token, leases=2, visibility=2)
    stage.open_gate()

    [ended] = stage.wait_for_ended()
    assert not ended.lease_lost
    assert len(stage.traces.all("started")) == 1


BREAKING_RENEWAL = """
from groupqueue.transport.redis import RedisTransport

renew = RedisTransport.renew
left = ["once"]

def breaking_renew(*arguments, **options):
    if left:
        left.pop()
        raise ZeroDivisionError("what nobody expects of a renewal")
    return renew(*arguments, **options)

RedisTransport.renew = breaking_renew
"""


def test_a_lease_taken_away_is_noticed_while_the_handler_runs(stage: Stage) -> None:
    stage.configure(VISIBILITY_TIMEOUT=1)
    stage.publish("mind_lease")
    stage.work("--concurrency", 2)
    [started] = stage.wait_for_started()

    stage.client.delete(stage.keys.lock("g"))

    [lost] = stage.traces.wait_for("lease_lost", token=started.token)
    assert lost.id == started.id
    stage.traces.wait_for("gave way", token=started.token)


def test_failure_18_the_lease_keeper_does_not_depend_on_connections_that_handlers_exhaust(
    stage: Stage,
) -> None:
    stage.configure(
        VISIBILITY_TIMEOUT=0.7, CONNECTION="tests.worker.project.connections.one_connection"
    )
    stage.publish("hog")
    stage.work("--concurrency", 2)
    stage.work()
    [started] = stage.wait_for_started()
    stage.wait_for_processes(2)

    hold_for(stage, started.token, leases=3, visibility=0.7)
    stage.open_gate()

    [ended] = stage.wait_for_ended()
    assert not ended.lease_lost
    assert len(stage.traces.all("started")) == 1


def test_a_claim_whose_reply_comes_after_the_lease_is_not_handled(stage: Stage) -> None:
    stage.configure(VISIBILITY_TIMEOUT=1)
    stage.add_app("late", LATE_REPLY)
    stage.publish("note")
    stage.work()

    [ended] = stage.wait_for_ended()

    [claimed] = stage.traces.all("claimed")
    assert ended.token > claimed.token
    assert [trace.token for trace in stage.traces.all("started")] == [ended.token]


LATE_REPLY = """
import time

from groupqueue.core import calls
from groupqueue.transport.redis import RedisTransport
from tests.servers import wait_until
from tests.worker.project.handlers import traces

begin = RedisTransport.begin

def begin_late(transport, call):
    answer = begin(transport, call)

    def late_answer():
        turned = answer()
        if turned.rows and not traces.all("claimed"):
            traces.leave("claimed", token=calls.token_of(turned.rows[0]))
            ends = time.monotonic() + call.arguments[2] / 1000
            wait_until(lambda: time.monotonic() > ends, "the lease's end")
        return turned

    return late_answer

RedisTransport.begin = begin_late
"""


def test_failure_09_a_finished_message_is_acknowledged_after_an_outage_longer_than_many_retries(
    own_stage: Stage, own_server: Server
) -> None:
    own_stage.configure(VISIBILITY_TIMEOUT=60)
    own_stage.plan.constants["groupqueue.worker.outages.REMIND_SECONDS"] = 0
    own_stage.publish("gate", n=0)
    own_stage.publish("note", n=1)
    worker = own_stage.work()
    own_stage.wait_for_started()
    own_server.kill()

    own_stage.open_gate()
    own_stage.wait_for_ended(n=0)
    wait_until(lambda: worker.log.count("trying again") >= 3, "several attempts")
    own_server.start()

    own_stage.wait_for_ended(n=1)
    own_stage.wait_until_drained()
    assert len(own_stage.traces.all("started")) == 2


def test_failure_09_a_result_whose_answer_was_lost_is_told_to_be_unknown(
    valkey_stage: Stage, valkey: Server
) -> None:
    stage = valkey_stage
    stage.configure(VISIBILITY_TIMEOUT=60)
    # What the worker sends while its only place is taken is the result.
    stage.plan.constants["groupqueue.worker.leases.HEARTBEAT_SECONDS"] = 3600
    stage.publish("gate", n=0)
    stage.publish("note", n=1)
    with Proxy(valkey.port) as proxy:
        stage.work_through(proxy.url)
        worker = stage.work()
        stage.wait_for_started()
        proxy.lose_reply()
        stage.open_gate()

        worker.wait_for_logged("whether the settlement took effect is unknown")
        stage.wait_for_ended(n=1)
        stage.wait_until_drained()

    # It had, and the group has gone on.
    assert [trace.n for trace in stage.traces.all("started")] == [0, 1]
    assert stage.snapshot().counters["acked"] == 2


def test_failure_09_a_result_that_outlasts_its_lease_is_told_to_be_unknown_and_the_lease_lost(
    own_stage: Stage, own_server: Server
) -> None:
    own_stage.publish("gate", n=0)
    worker = own_stage.work()
    [started] = own_stage.wait_for_started()
    own_server.kill()

    own_stage.open_gate()
    own_stage.wait_for_ended(n=0)
    # Until then it is kept, and tried again.
    [lost] = own_stage.traces.wait_for("lease_lost")
    own_server.start()

    worker.wait_for_logged("whether the settlement took effect is unknown")
    assert lost.token == started.token
    again = own_stage.wait_for_ended(2, n=0)[1]
    assert (again.id, again.crashes) == (started.id, 1)
    own_stage.wait_until_drained()
