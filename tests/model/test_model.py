"""Do the scripts do what the model says, whatever comes after what?

`MODEL_EXAMPLES` says how many lives of a queue are tried, each time others; without it the same
few are. A failure prints the calls that lead to it, as few as they can be.
"""

from __future__ import annotations

import os

import pytest

from groupqueue.transport import scripts
from tests.model.lives import Told, live
from tests.model.narrow import BOUNDS, narrowed
from tests.servers import Kind, Server

ASKED_FOR = os.environ.get("MODEL_EXAMPLES", "")
LIVES, STEPS = 60, 2500

# Shortening a failure takes minutes, and a machine may stand still.
pytestmark = pytest.mark.timeout(0 if ASKED_FOR else 900)

_told: dict[Kind, Told] = {}


def _lived_on(server: Server) -> Told:
    """Return what was done on a server; all tests look at the same lives."""
    if server.kind not in _told:
        told = _told[server.kind] = Told()
        lives, prefix = int(ASKED_FOR or LIVES), f"gq:{{model-{server.kind}:0}}"
        live(server.url, prefix, lives, told=told, is_random=bool(ASKED_FOR))
    return _told[server.kind]


def test_server_and_model_agree_after_every_step(server: Server):
    told = _lived_on(server)

    assert told.steps > STEPS or ASKED_FOR


def test_no_script_is_left_out_of_the_model(server: Server):
    told = _lived_on(server)

    without_a_step = set(scripts.names()) - set(told.performed)
    assert not without_a_step or ASKED_FOR, f"no step calls {sorted(without_a_step)}: add one"


@pytest.mark.parametrize("texts", BOUNDS, ids=lambda texts: texts[0][0])
def test_each_bound_that_is_narrowed_is_one_of_the_scripts(texts: tuple[tuple[str, str], ...]):
    plain = [scripts.load(name) for name in scripts.names()]
    bound = [script for script in plain if all(text in script.source for text, _ in texts)]
    assert bound
    for script in bound:
        narrow = narrowed(script)
        assert all(instead in narrow.source for _, instead in texts)
        assert not any(text in narrow.source for text, _ in texts)
