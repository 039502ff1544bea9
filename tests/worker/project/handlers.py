"""How do the tests' handlers behave, well and badly?

Each leaves a trace when it starts and, unless it comes to grief, when it ends.
"""

from __future__ import annotations

import asyncio
import ctypes
import datetime
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, transaction

from groupqueue import Delivery, Reject, Retry, handler, publish, signals
from groupqueue.exceptions import Snooze
from tests.servers import wait_until
from tests.worker.plan import current_plan
from tests.worker.project.connections import one_connection
from tests.worker.traces import Traces

EVERY_GATE = "every"
PLAN = current_plan()
PLAN.apply_constants()
traces = Traces(PLAN.directory)

# Longer than any test waits: a handler at a gate that stays shut ends with its test.
PATIENCE_SECONDS = 60.0


def at_gate(delivery: Delivery) -> bool:
    """Say whether the gate that the message names is open."""
    return is_open(delivery.payload.get("gate", "gate"))


def is_open(gate: str) -> bool:
    """Say whether a gate is open, or all are."""
    return any((Path(PLAN.directory) / f"gate-{name}").exists() for name in (gate, EVERY_GATE))


async def until(condition: Callable[[], bool]) -> None:
    """Return once the condition holds, and let the event loop do its work meanwhile."""
    while not condition():  # noqa: ASYNC110 - what is waited for happens in another process
        await asyncio.sleep(0.01)


# Well-behaved ------------------------------------------------------------------------------


@handler("note")
def note(delivery: Delivery) -> None:
    """Do nothing but say so."""
    traces.leave("started", delivery)
    traces.leave("ended", delivery)


@handler("note.async")
async def note_async(delivery: Delivery) -> None:
    """Do nothing but say so, with a pause in which the others have their turn."""
    traces.leave("started", delivery)
    await asyncio.sleep(0)
    traces.leave("ended", delivery)


@handler("gate")
def gate(delivery: Delivery) -> None:
    """Wait until the test opens the gate."""
    traces.leave("started", delivery)
    wait_until(lambda: at_gate(delivery), "the gate", seconds=PATIENCE_SECONDS)
    traces.leave("ended", delivery, lease_lost=delivery.lease_lost)


@handler("late")
def late(delivery: Delivery) -> None:
    """Wait at the gate, and fail behind it if asked to; wait at the second one after a crash."""
    traces.leave("started", delivery)
    gate = "gate" if delivery.crashes == 0 else "second"
    wait_until(lambda: is_open(gate), f"the gate {gate}", seconds=PATIENCE_SECONDS)
    if delivery.crashes == 0 and delivery.payload["fails"]:
        raise RuntimeError("out of paint")
    traces.leave("ended", delivery)


@handler("gate.async")
async def gate_async(delivery: Delivery) -> None:
    """Wait until the test opens the gate, on the event loop."""
    traces.leave("started", delivery)
    await until(lambda: at_gate(delivery))
    traces.leave("ended", delivery, lease_lost=delivery.lease_lost)


@handler("meet")
def meet(delivery: Delivery) -> None:
    """Wait until the handlers of all the groups have started: only in parallel can it end."""
    traces.leave("started", delivery)
    traces.wait_for("started", delivery.payload["parties"], topic="meet")
    traces.leave("ended", delivery)


@handler("meet.main")
def meet_and_tell_whether_signals_can_be_caught(delivery: Delivery) -> None:
    """Wait as `meet` does, and say whether this is the main thread: others cannot do it."""
    is_main = True
    try:
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    except ValueError:
        is_main = False
    traces.leave("started", delivery, is_main=is_main)
    traces.wait_for("started", delivery.payload["parties"], topic="meet.main")
    traces.leave("ended", delivery)


@handler("meet.async")
async def meet_async(delivery: Delivery) -> None:
    """The same on the event loop."""
    traces.leave("started", delivery)
    parties = delivery.payload["parties"]
    await until(lambda: len(traces.all("started", topic="meet.async")) >= parties)
    traces.leave("ended", delivery)


@handler("work")
def work(delivery: Delivery) -> None:
    """Take a while, as real work does."""
    traces.leave("started", delivery)
    time.sleep(delivery.payload["seconds"])
    traces.leave("ended", delivery, lease_lost=delivery.lease_lost)


@handler("mind_lease")
def mind_lease(delivery: Delivery) -> None:
    """Go on until the lease is lost, as a careful handler would."""
    traces.leave("started", delivery)
    wait_until(lambda: delivery.lease_lost or at_gate(delivery), "a loss", seconds=PATIENCE_SECONDS)
    traces.leave("gave way" if delivery.lease_lost else "ended", delivery)


@handler("hog")
def hog(delivery: Delivery) -> None:
    """Hold the only connection of the project's own client, and wait at the gate with it."""
    pool = one_connection().connection_pool
    held = pool.get_connection()
    traces.leave("started", delivery)
    wait_until(lambda: at_gate(delivery), "the gate", seconds=PATIENCE_SECONDS)
    pool.release(held)
    traces.leave("ended", delivery, lease_lost=delivery.lease_lost)


@handler("relay")
def relay(delivery: Delivery) -> None:
    """Publish a message to another queue."""
    traces.leave("started", delivery)
    publish("note", {"n": delivery.payload["n"]}, group="relayed", queue=delivery.payload["to"])
    traces.leave("ended", delivery)


@handler("read_input")
def read_input(delivery: Delivery) -> None:
    """Read standard input, which is nobody's to read."""
    traces.leave("ended", delivery, read=sys.stdin.read())


@handler("parent")
def parent(delivery: Delivery) -> None:
    """Have a process of its own, forked or of another program, and wait for its end."""
    starters = {"fork": fork, "program": start_program}
    wait_for_end = starters[delivery.payload["by"]](delivery)
    traces.leave("ended", delivery, exit_code=wait_for_end())


def fork(delivery: Delivery) -> Callable[[], int | None]:
    """Fork a process that idles; return what waits for its end."""

    def idle() -> None:
        traces.leave("child", delivery)
        time.sleep(PATIENCE_SECONDS)

    process = multiprocessing.get_context("fork").Process(target=idle)
    process.start()

    def wait() -> int | None:
        process.join()
        return process.exitcode

    return wait


def start_program(delivery: Delivery) -> Callable[[], int]:
    """Start a program that idles; return what waits for its end."""
    program = f"import time; print(flush=True); time.sleep({PATIENCE_SECONDS})"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    traces.leave("child", delivery, child_pid=process.pid)
    return process.wait


# Failing -----------------------------------------------------------------------------------


def fails_now(delivery: Delivery) -> bool:
    """Say whether this attempt is one of those that fail; all are unless `times` is given."""
    return bool(delivery.attempt <= delivery.payload.get("times", sys.maxsize))


@handler("fail")
def fail(delivery: Delivery) -> None:
    """Raise an error."""
    traces.leave("started", delivery)
    if fails_now(delivery):
        raise RuntimeError("out of paint")
    traces.leave("ended", delivery)


@handler("fail.async")
async def fail_async(delivery: Delivery) -> None:
    """Raise an error on the event loop."""
    traces.leave("started", delivery)
    await asyncio.sleep(0)
    if fails_now(delivery):
        raise RuntimeError("out of paint")
    traces.leave("ended", delivery)


@handler("recover")
def recover(delivery: Delivery) -> None:
    """Fail for as long as the gate is shut."""
    traces.leave("started", delivery)
    if not at_gate(delivery):
        raise RuntimeError("out of paint")
    traces.leave("ended", delivery)


@handler("fail.twice", max_attempts=2, on_exhausted="dead_letter")
def fail_twice(delivery: Delivery) -> None:
    """Raise an error, under a policy of its own."""
    traces.leave("started", delivery)
    raise RuntimeError("out of paint")


def raise_named(delivery: Delivery) -> None:
    """Raise the error that the message names, or do nothing."""
    traces.leave("started", delivery)
    errors = {"value": UnicodeError, "os": TimeoutError, "key": KeyError}
    if delivery.payload.get("error"):
        raise errors[delivery.payload["error"]]("out of paint")
    traces.leave("ended", delivery)


BY_ERROR: Any = {
    ValueError: "dead_letter",
    OSError: {"max_attempts": 2, "on_exhausted": "dead_letter_group"},
    KeyError: "retry",
}


@handler("sort", on_error=BY_ERROR)
def sort(delivery: Delivery) -> None:
    """Raise what the message names, under a policy for each error."""
    raise_named(delivery)


@handler("sort.async", on_error=BY_ERROR)
async def sort_async(delivery: Delivery) -> None:
    """The same on the event loop."""
    await asyncio.sleep(0)
    raise_named(delivery)


@handler("steer")
def steer(delivery: Delivery) -> None:
    """Raise what the message asks for."""
    traces.leave("started", delivery)
    if fails_now(delivery):
        raise steering(delivery.payload)
    traces.leave("ended", delivery)


@handler("steer.async")
async def steer_async(delivery: Delivery) -> None:
    """The same on the event loop."""
    traces.leave("started", delivery)
    if fails_now(delivery):
        raise steering(delivery.payload)
    traces.leave("ended", delivery)


class Unprintable(Exception):
    """An error that cannot even be shown."""

    def __str__(self) -> str:
        raise ValueError("no words for it")


def steering(payload: dict[str, Any]) -> BaseException:
    """Return the exception that the message asks for."""
    kinds: dict[str, Callable[[], BaseException]] = {
        "exit": lambda: SystemExit(3),
        "reject": lambda: Reject("no such order"),
        "retry": lambda: Retry(delay=payload.get("delay")),
        "cancelled": lambda: asyncio.CancelledError("from inside"),
        "interrupt": KeyboardInterrupt,
        "unprintable": Unprintable,
        "too_long": lambda: Retry(delay=1e12),
        "no_reason": lambda: Reject(None),  # type: ignore[arg-type] # a slip that types would catch
    }
    return kinds[payload["error"]]()


def until_later(payload: dict[str, Any]) -> float | datetime.timedelta | datetime.datetime:
    """Return until when the message is put off, in the form that it asks for."""
    length = datetime.timedelta(seconds=payload.get("seconds", 0.05))
    now = datetime.datetime.now(tz=datetime.UTC)
    forms: dict[str, float | datetime.timedelta | datetime.datetime] = {
        "seconds": length.total_seconds(),
        "timedelta": length,
        "moment": now + length,
        "past": now - length,
        "naive": (now + length).replace(tzinfo=None),
        "too_long": 1e12,
    }
    return forms[payload["until"]]


def put_off(delivery: Delivery) -> None:
    """Fail as often as the message says, then ask for later while the gate is shut."""
    if delivery.attempt <= delivery.payload.get("failures", 0):
        raise RuntimeError("out of paint")
    if not at_gate(delivery):
        raise Snooze(until_later(delivery.payload))


@handler("snooze")
def snooze(delivery: Delivery) -> None:
    """Put the message off for as long as the gate is shut."""
    traces.leave("started", delivery)
    put_off(delivery)
    traces.leave("ended", delivery)


@handler("snooze.async")
async def snooze_async(delivery: Delivery) -> None:
    """The same on the event loop."""
    traces.leave("started", delivery)
    await asyncio.sleep(0)
    put_off(delivery)
    traces.leave("ended", delivery)


@handler("crash")
def crash(delivery: Delivery) -> None:
    """Take the process down; the first time while as many others work as the message says."""
    traces.leave("started", delivery)
    if delivery.crashes == 0:
        traces.wait_for("started", delivery.payload.get("beside", 0), topic="work")
    os.kill(os.getpid(), signal.SIGKILL)


@handler("crash.once")
def crash_once(delivery: Delivery) -> None:
    """Take the process down, but not the second one."""
    traces.leave("started", delivery)
    if delivery.crashes == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    traces.leave("ended", delivery)


@handler("exit.once")
def exit_once(delivery: Delivery) -> None:
    """End the process as if all were well, but not the second one."""
    traces.leave("started", delivery)
    if delivery.crashes == 0:
        os._exit(0)
    traces.leave("ended", delivery)


@handler("end_loop")
async def end_loop(delivery: Delivery) -> None:
    """End the event loop under everybody's feet, the first times, in the way asked for."""
    traces.leave("started", delivery)
    if len(traces.all("started", topic="end_loop")) <= delivery.payload.get("times", 1):
        if delivery.payload["by"] == "stopping":
            asyncio.get_running_loop().stop()
        else:
            _background.add(asyncio.create_task(exit_in_background()))
        await asyncio.Event().wait()
    traces.leave("ended", delivery)


_background: set[asyncio.Task[None]] = set()


async def exit_in_background() -> None:
    """End the program, as if a task could."""
    raise SystemExit(0)


def fork_and_come_back(delivery: Delivery) -> int | None:
    """Fork; the child comes back from here, the parent returns its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if delivery.payload["by"] == "raising":
        raise RuntimeError("the child's trouble")
    if delivery.payload["by"] == "exiting":
        sys.exit(3)
    return None


@handler("come_back")
def come_back(delivery: Delivery) -> None:
    """Fork, and let the child come back."""
    traces.leave("started", delivery)
    if (code := fork_and_come_back(delivery)) is not None:
        traces.leave("ended", delivery, code=code)


@handler("come_back.async")
async def come_back_async(delivery: Delivery) -> None:
    """The same on the event loop."""
    traces.leave("started", delivery)
    if (code := fork_and_come_back(delivery)) is not None:
        traces.leave("ended", delivery, code=code)


@handler("overrun", timeout=0.3)
def overrun(delivery: Delivery) -> None:
    """Run out of time, in the first deliveries or in all."""
    traces.leave("started", delivery)
    if delivery.deliveries <= delivery.payload.get("times", sys.maxsize):
        time.sleep(PATIENCE_SECONDS)
    traces.leave("ended", delivery)


@handler("overrun.async", timeout=0.3)
async def overrun_async(delivery: Delivery) -> None:
    """Run out of time on the event loop, in the first deliveries or in all."""
    traces.leave("started", delivery)
    if delivery.deliveries <= delivery.payload.get("times", sys.maxsize):
        await asyncio.sleep(PATIENCE_SECONDS)
    traces.leave("ended", delivery)


@handler("freeze")
def freeze(delivery: Delivery) -> None:
    """Sleep with the interpreter's lock in hand: no other thread of the process can run.

    As often as asked to, with a breath in between.
    """
    traces.leave("started", delivery)
    for _ in range(delivery.payload.get("times", 1)):
        ctypes.PyDLL(None).sleep(delivery.payload["seconds"])
        time.sleep(0.01)
    traces.leave("ended", delivery, lease_lost=delivery.lease_lost)


# With a database -----------------------------------------------------------------------------


def query(sql: str) -> Any:
    """Return the first value of a query."""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def write_note() -> None:
    """Insert a row."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO notes (n) VALUES (1)")


def leave_open(delivery: Delivery) -> None:
    """Leave a transaction open, with a row in it that must not stay."""
    transaction.atomic().__enter__()
    write_note()
    traces.leave("ended", delivery)


def autocommit_off(delivery: Delivery) -> None:
    """Leave autocommit off, with a row that was never committed."""
    transaction.set_autocommit(False)
    write_note()
    traces.leave("ended", delivery)


def break_off(delivery: Delivery) -> None:
    """Fail inside a transaction that was entered by hand."""
    transaction.atomic().__enter__()
    write_note()
    query("SELECT n FROM no_such_table")


def look(delivery: Delivery) -> None:
    """Tell in which state the connection was found, and how many rows there are."""
    traces.leave(
        "ended",
        delivery,
        in_transaction=connection.in_atomic_block,
        autocommit=connection.get_autocommit(),
        rows=query("SELECT COUNT(*) FROM notes"),
    )


def tell_connections(delivery: Delivery) -> None:
    """Tell whether there was a connection already, and see to it that there is one."""
    was_connected = connection.connection is not None
    query("SELECT COUNT(*) FROM notes")
    traces.leave("ended", delivery, was_connected=was_connected)


def identify(delivery: Delivery) -> None:
    """Tell which session of PostgreSQL this is."""
    traces.leave("ended", delivery, session=query("SELECT pg_backend_pid()"))


def write_at_gate(delivery: Delivery) -> None:
    """Write a row, wait at the gate inside the transaction, and write no other one."""
    with transaction.atomic():
        write_note()
        session = query("SELECT pg_backend_pid()")
        traces.leave("started", delivery, session=session)
        wait_until(lambda: at_gate(delivery), "the gate", seconds=PATIENCE_SECONDS)
        query("SELECT COUNT(*) FROM notes")
    traces.leave("ended", delivery, session=session)


def declare_both(topic: str, function: Callable[[Delivery], None]) -> None:
    """Make a function the handler of a topic, and of its twin on the event loop."""

    async def on_the_loop(delivery: Delivery) -> None:
        await sync_to_async(function)(delivery)

    on_the_loop.__qualname__ = f"{function.__qualname__}_on_the_loop"
    handler(topic)(function)
    handler(f"{topic}.async")(on_the_loop)


declare_both("database.leave_open", leave_open)
declare_both("database.autocommit_off", autocommit_off)
declare_both("database.break", break_off)
declare_both("database.look", look)
declare_both("database.connections", tell_connections)
declare_both("database.identify", identify)
declare_both("database.write_at_gate", write_at_gate)


# Everything that is told ----------------------------------------------------------------------


def receive(event: str) -> Any:
    """Return a receiver that leaves a trace with the signal's plain arguments."""

    def receiver(sender: Any, signal: Any, delivery: Any = None, **arguments: Any) -> None:
        plain = {
            name: value if isinstance(value, int | float | str | None) else repr(value)
            for name, value in arguments.items()
        }
        sender_name = getattr(sender, "topic", None) or getattr(sender, "__name__", repr(sender))
        names = sorted(arguments) + ["delivery"] * (delivery is not None)
        traces.leave(event, delivery, sender=sender_name, arguments=names, **plain)

    return receiver


RECEIVERS = {
    name: receive(name)
    for name in (
        "message_published",
        "message_started",
        "message_succeeded",
        "message_failed",
        "message_expired",
        "message_dead",
        "group_halted",
        "lease_lost",
        "worker_started",
        "worker_stopping",
        "worker_stopped",
    )
}
for signal_name, signal_receiver in RECEIVERS.items():
    getattr(signals, signal_name).connect(signal_receiver)
