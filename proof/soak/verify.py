"""Is the queue empty once all is well again, and did it keep its promises on the way?"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from groupqueue.core import calls
from groupqueue.core.codec import JSONCodec
from groupqueue.core.snapshot import Snapshot, held_groups, snapshot_decoder
from groupqueue.core.views import agenda_decoder, explanation
from groupqueue.transport.redis import RedisTransport
from proof import history, settings
from proof.checker import Limits, Verdict, check
from proof.records import Record, has_succeeded, read_records
from proof.soak.intent import FATES
from proof.soak.stage import Stage
from proof.soak.troupe import REPOSITORY, environment

LOOK_SECONDS, AUDIT_SECONDS = 0.25, 300.0
MOST_TOLD = 20
PAGE = 200
FATE = b'"event":"fate"'


def wait_for_fates(stage: Stage, seconds: float) -> None:
    """Return once handlers have treated a message in each of the bad ways, or when time is up."""
    wanted = {fate.name for fate in FATES}
    deadline = time.monotonic() + seconds
    while not wanted <= _fates_in(stage.plan.records) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)


def drain(stage: Stage, seconds: float) -> list[str]:
    """Let everything go on until nothing is left; return what is, when time is up."""
    transport = stage.transport()
    deadline = time.monotonic() + seconds
    try:
        while not _is_empty(transport):
            if time.monotonic() > deadline:
                return _left(transport)
            _let_go(transport)
            time.sleep(LOOK_SECONDS)
        return []
    finally:
        transport.close()


def wait_for_all(stage: Stage, since_ns: int, seconds: float) -> list[str]:
    """Return once all actors have done something since then; or who has not, when time is up.

    Publishers have had an answer, the operator has seen what it did, and of each worker as many
    processes as it has have had a turn.
    """
    deadline = time.monotonic() + seconds
    while away := _still_away(stage, since_ns):
        if time.monotonic() > deadline:
            break
        time.sleep(LOOK_SECONDS)
    return away


def judge(
    stage: Stage, *, is_drained: bool, audit: Sequence[str], with_failovers: bool = False
) -> tuple[Verdict, Sequence[Record]]:
    """Check what happened; return the verdict, and the records that it is based on.

    The workers have ended before. The drained queue is one that lost nothing. What a failover
    loses is lost with what was written down of it: of leases workers may know that nobody gave.
    """
    records = read_records(stage.plan.records)
    with stage.client() as client:
        verdict = check(
            {stage.prefix: history.read(client, stage.prefix)},
            records,
            {stage.prefix: history.read_state(client, stage.prefix)},
            Limits(
                max_attempts=settings.MAX_ATTEMPTS,
                max_crashes=settings.MAX_CRASHES,
                drained=is_drained,
                tail_lost=with_failovers,
            ),
            audit=audit,
        )
    return verdict, records


def audit(stage: Stage) -> list[str]:
    """Have the doctor look at the queue; return what it found wrong, a sentence each."""
    answer = subprocess.run(
        [sys.executable, "manage.py", "group_queues", "doctor", stage.plan.queue, "--json"],
        cwd=REPOSITORY,
        env=environment(stage.plan),
        capture_output=True,
        text=True,
        timeout=AUDIT_SECONDS,
        check=False,
    )
    try:
        [found] = json.loads(answer.stdout)["queues"]
    except ValueError:
        return [f"the doctor did not answer: {answer.stderr.strip()[-500:]}"]
    told = [f"doctor: {fault}" for fault in found["faults"]]
    told += [f"doctor: {one}" for one in found["server"] if one["level"] == "error"]
    if found["trouble"] or not found["complete"]:
        told.append(f"doctor: not all could be examined: {found['trouble']}")
    return told


def unproven(records: Sequence[Record], *, with_failovers: bool = False) -> list[str]:
    """Return what must have been seen for the verdict to say anything, and was not."""
    told = []
    if not any(r.event == "publish" and r.phase == "ok" for r in records):
        told.append("no publish was confirmed")
    if not any(r.event == "handle" and r.phase == "ok" for r in records):
        told.append("no message was handled")
    # Of what was published since the one before, or the beginning.
    since_ns, confirmed = 0, [r.at_ns for r in records if r.event == "publish" and r.phase == "ok"]
    failovers = [
        r.at_ns for r in records if r.fields.get("fault") == "failover" and r.phase == "ok"
    ]
    is_tried = False
    for at_ns in failovers:
        is_tried = is_tried or any(since_ns < one < at_ns for one in confirmed)
        since_ns = at_ns
    if with_failovers and not is_tried:
        told.append("no publish was confirmed before a failover")
    return told


def treatment(records: Sequence[Record]) -> Counter[str]:
    """Return how often handlers treated a message in each of the bad ways."""
    return Counter(f"handler_{r.fields['fate']}" for r in records if r.event == "fate")


def acts(records: Sequence[Record]) -> Counter[str]:
    """Return how often an operator did what."""
    return Counter(r.fields["act"] for r in records if r.event == "operator" and r.phase == "ok")


def _still_away(stage: Stage, since_ns: int) -> list[str]:
    away = [
        actor.name
        for actor in stage.troupe.of("publisher", "operator")
        if not has_succeeded(stage.plan.records, actor.name, since_ns)
    ]
    with stage.client() as client:
        turned = history.workers_since(client, stage.prefix, since_ns // 1000)
    for actor in stage.troupe.of("worker"):
        found = sum(worker.startswith(f"{actor.name}:".encode()) for worker in turned)
        if found < actor.processes:
            away.append(f"{actor.processes - found} of {actor.processes} processes of {actor.name}")
    return away


def _fates_in(folder: Path) -> set[str]:
    """Return the fates that workers have written down, without reading what else they have."""
    found: set[str] = set()
    for path in folder.glob("worker-*.jsonl"):
        with path.open("rb") as lines:
            found |= {
                str(json.loads(line)["fate"])
                for line in lines
                if FATE in line and line.endswith(b"\n")
            }
    return found


def _is_empty(transport: RedisTransport) -> bool:
    snapshot = _snapshot(transport)
    scheduled = transport.perform(calls.agenda(transport.prefix, 0, 1, agenda_decoder(JSONCodec())))
    return not (sum(tier.groups + tier.messages for tier in snapshot.tiers) or scheduled.total)


def _snapshot(transport: RedisTransport) -> Snapshot:
    found: Snapshot = transport.perform(
        calls.inspect(transport.prefix, PAGE, snapshot_decoder(PAGE))
    )
    return found


def _let_go(transport: RedisTransport) -> None:
    """Resume what is paused or halted."""
    transport.perform(calls.start(transport.prefix))
    cursor = "0"
    while cursor:
        page = transport.perform(calls.held(transport.prefix, cursor, PAGE, held_groups))
        for view in page.groups:
            transport.perform(calls.resume(transport.prefix, view.group))
        cursor = page.cursor


def _left(transport: RedisTransport) -> list[str]:
    """Say of the groups that are left why they are."""
    snapshot = _snapshot(transport)
    groups = dict.fromkeys(
        view.group
        for views in (snapshot.leased, snapshot.waiting, snapshot.parked, snapshot.held)
        for view in views
    )
    told = [f"tiers: {[tier for tier in snapshot.tiers if tier.groups or tier.messages]}"]
    for group in list(groups)[:MOST_TOLD]:
        found = transport.perform(calls.explain(transport.prefix, group, explanation))
        told.append(f"{group}: {found.state}, {found.reason}; {found.group}")
    if len(groups) > MOST_TOLD:
        told.append(f"and {len(groups) - MOST_TOLD} groups more")
    return told
