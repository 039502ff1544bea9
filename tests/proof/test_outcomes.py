"""Does whatever may be wrong with a part of a soak fail it?"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from proof.checker import Verdict
from proof.soak.intent import FATES
from proof.soak.nemesis import EVERYDAY
from proof.soak.run import STRICT, Outcome, Part

FATE_NAMES = tuple(f"handler_{fate.name}" for fate in FATES)
PARTS = (
    Part(name="everyday", seconds=60, faults=EVERYDAY),
    Part(name="failover", seconds=60, faults=("failover",), with_replica=True),
)
WRONG: tuple[dict[str, Any], ...] = (
    {"left": ["group-1: due"]},
    {"would_not_end": ["worker-1"]},
    {"stayed_away": ["1 of 2 processes of worker-0"]},
    {"unproven": ["no publish was confirmed"]},
    {"audit_findings": 1},
    {"verdict": Verdict(findings=("I4 double",))},
    *({"verdict": Verdict(**{name: 1})} for name in STRICT if name != "audit_findings"),
)


def _sound(part: Part) -> Outcome:
    return Outcome(part=part, faults=Counter([*part.faults, *FATE_NAMES]))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_in_which_nothing_is_wrong_has_not_failed(part: Part) -> None:
    assert _sound(part).broken == []


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: next(iter(wrong)))
def test_a_part_in_which_anything_is_wrong_has_failed(part: Part, wrong: dict[str, Any]) -> None:
    assert len(replace(_sound(part), **wrong).broken) == 1


@pytest.mark.parametrize("fault", [*EVERYDAY, *FATE_NAMES])
def test_a_fault_that_never_happened_fails_a_part(fault: str) -> None:
    outcome = _sound(PARTS[0])
    del outcome.faults[fault]
    assert outcome.broken == [f"the fault {fault} did not happen"]


def test_a_part_without_a_failover_has_failed() -> None:
    outcome = _sound(PARTS[1])
    del outcome.faults["failover"]
    assert outcome.broken == ["the fault failover did not happen"]
