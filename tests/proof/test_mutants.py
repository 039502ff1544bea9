"""Do the mutants fit the scripts as they are, and does one that is let loose die?"""

from __future__ import annotations

from collections import Counter

import pytest
import redis

from groupqueue.transport import scripts
from proof.edits import DoesNotFit, Edit, in_place
from proof.killing import NOBODY, try_to_kill
from proof.mutants import MUTANTS, Mutant
from tests.servers import Server

HARMLESS = Mutant("harmless", "nothing", (Edit("publish.lua", "-- publish: ", "-- to publish: "),))

# Found out by the first lives.
SHORT_LIVED = ("no-token-check", "retry-to-the-tail", "hint-as-only-copy", "wide-without-end")


def _files(name: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the files that a script is put together from."""
    read, seen = scripts._read, set[str]()
    with monkeypatch.context() as patch:
        patch.setattr(scripts, "_read", lambda path: seen.add(path) or read(path))
        scripts.load.__wrapped__(name)
    return seen


def test_each_mutant_is_other_scripts_which_a_server_takes(
    default_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    plain = {name: scripts.load(name) for name in scripts.names()}
    files = {name: _files(name, monkeypatch) for name in plain}
    for mutant in MUTANTS:
        edited = {edit.path for edit in mutant.edits}
        with in_place(mutant.edits):
            others = [scripts.load(name) for name in plain if files[name] & edited]
        for other in others:
            assert other.source != plain[other.name].source, f"{mutant.name} is as {other.name} is"
            default_client.script_load(other.source)
    assert {name: scripts.load(name) for name in plain} == plain


def test_each_mutant_has_a_name_of_its_own():
    names = Counter(mutant.name for mutant in MUTANTS)
    assert set(names.values()) == {1}


def test_a_text_that_is_not_there_once_is_refused():
    for text in ("no such text", "redis.call"):
        with pytest.raises(DoesNotFit, match="not once"), in_place([Edit("turn.lua", text, "")]):
            pass


@pytest.mark.parametrize("name", SHORT_LIVED)
def test_the_model_finds_a_mutant_out(server: Server, name: str):
    [mutant] = [mutant for mutant in MUTANTS if mutant.name == name]
    fate = try_to_kill(mutant, server.url, lives=150, seeds=0)
    assert (fate.name, fate.killed_by) == (name, "model"), fate


def test_the_checker_finds_out_what_the_model_did_not(default_server: Server):
    [mutant] = [mutant for mutant in MUTANTS if mutant.name == "no-token-check"]
    assert try_to_kill(mutant, default_server.url, lives=0, seeds=5).killed_by == "checker"


def test_what_does_no_harm_survives(default_server: Server):
    fate = try_to_kill(HARMLESS, default_server.url, lives=1, seeds=1)
    assert (fate.killed_by, fate.why) == (NOBODY, "")
