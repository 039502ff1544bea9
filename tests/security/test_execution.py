"""Is data from a queue ever executed, or does it take a worker down?"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import groupqueue
from groupqueue.core.calls import Settlement
from groupqueue.core.codec import Content, JSONCodec
from groupqueue.exceptions import CorruptMessage
from groupqueue.transport.connections import get_transport
from tests.operating.conftest import operate
from tests.transport import lua_files
from tests.worker.stage import Stage

PACKAGE = Path(groupqueue.__file__).parent
# Whoever reads with these runs what the writer wants.
EXECUTING_MODULES = {
    "_pickle", "cPickle", "cloudpickle", "code", "codeop", "dill", "joblib", "jsonpickle",
    "marshal", "pickle", "runpy", "shelve", "yaml",
}  # fmt: skip
EXECUTING_FUNCTIONS = {"__import__", "compile", "eval", "exec"}
# The names come from the settings, or stand in the package itself.
MAY_IMPORT_BY_NAME = {
    "__init__.py": "import_module",
    "checks.py": "import_string",
    "conf.py": "import_string",
    "transport/connections.py": "import_string",
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Return the package's modules, parsed, by their path in it."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text("utf-8"))


def imported(tree: ast.Module) -> Iterator[str]:
    """Return the first part of each module that is imported, wherever that is written."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def called(tree: ast.Module) -> Iterator[str]:
    """Return the names of the functions that are called: `f` of `f()`, `g` of `m.g()`.

    Of `re.compile` and `client.eval` both parts, as these are something else.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node.func.id
            elif isinstance(node.func, ast.Attribute):
                before = ast.unparse(node.func.value)
                is_own = before in ("builtins", "importlib", "__builtins__")
                yield node.func.attr if is_own else f"{before}.{node.func.attr}"


def test_no_module_imports_what_executes_data() -> None:
    found = {
        path: names for path, tree in modules() if (names := EXECUTING_MODULES & {*imported(tree)})
    }

    assert found == {}


def test_no_module_executes_text() -> None:
    found = {
        path: names for path, tree in modules() if (names := EXECUTING_FUNCTIONS & {*called(tree)})
    }

    assert found == {}


def test_nothing_is_imported_by_a_name_out_of_a_queue() -> None:
    by_name = {
        path: name
        for path, tree in modules()
        for name in {*called(tree)} & {"import_module", "import_string"}
    }

    assert by_name == MAY_IMPORT_BY_NAME


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "def f():\n    from yaml import load",
        "eval('1')",
        "builtins.exec('1')",
        "__import__('os')",
    ],
)
def test_what_is_looked_for_would_be_found(code: str) -> None:
    tree = ast.parse(code)

    assert EXECUTING_MODULES & {*imported(tree)} or EXECUTING_FUNCTIONS & {*called(tree)}


def test_no_script_executes_text() -> None:
    for path in lua_files.paths():
        words = set(re.findall(r"\w+", lua_files.read_code(path)))
        assert not words & {"cjson", "cmsgpack", "dofile", "load", "loadfile", "loadstring"}, path


# Hostile JSON ---------------------------------------------------------------------------------


def body(payload: str, *, topic: str = '"note"') -> bytes:
    """Return a body whose payload is written like this."""
    return f"[{topic},{payload}]".encode()


REFUSED = {
    "a number of five thousand digits": body("9" * 5000),
    "not a number": body("NaN"),
    "infinity": body('{"a":-Infinity}'),
    "a number beyond all numbers": body("1e999"),
    "half of a surrogate pair": body('"\\ud83d"'),
    "half of a surrogate pair in a name": body('{"\\uDE00":1}'),
    "half of a surrogate pair as the topic": body("1", topic='"\\ud83d"'),
    "bytes that are no UTF-8": b'["note","\xed\xa0\xbd"]',
    "levels without end": body("[" * 100_000 + "]" * 100_000),
    "levels that never end": b"[" * 1_000_000,
    "levels of objects without end": body('{"a":' * 100_000 + "1" + "}" * 100_000),
    "a pickle": b"cos\nsystem\n(S'exit 1'\ntR.",
    "YAML that makes things": b'!!python/object/apply:os.system ["exit 1"]',
    "nothing": b"",
    "a topic that is no text": body("1", topic='{"__class__":"os.system"}'),
    "two documents": body("1") * 2,
    "a NUL behind": body("1") + b"\0",
    "UTF-16": json.dumps(["note", 1]).encode("utf-16"),
}
HARMLESS: dict[str, tuple[bytes, Any]] = {
    "a number of four thousand digits": (body("9" * 4000), int("9" * 4000)),
    "a name twice": (body('{"n":1,"n":2}'), {"n": 2}),
    "a whole surrogate pair": (body('"\\ud83d\\ude00"'), "\U0001f600"),
    "what looks like half of one": (body('"\\\\ud83d"'), "\\ud83d"),
    "the smallest number": (body("1e-999"), 0.0),
    "names of Python's own": (body('{"__class__":"os","__init__":1}'), None),
    "a text with everything": (body('"<script>\\u0000\\u001b[2J\\u202e"'), None),
}


@pytest.mark.parametrize("written", REFUSED.values(), ids=REFUSED)
def test_hostile_json_is_refused(written: bytes) -> None:
    with pytest.raises(CorruptMessage):
        JSONCodec().decode(written)


@pytest.mark.parametrize(("written", "payload"), HARMLESS.values(), ids=HARMLESS)
def test_strange_json_means_what_it_says(written: bytes, payload: Any) -> None:
    content = JSONCodec().decode(written)

    assert content == Content("note", json.loads(written)[1] if payload is None else payload, {})
    # What was read can be written: no handler finds what it could not publish.
    assert JSONCodec().decode(JSONCodec().encode(*content)) == content


@pytest.mark.parametrize("options", [[], ["--concurrency", 2], ["--batch", 10]], ids=str)
def test_hostile_json_is_set_aside_and_its_group_goes_on(stage: Stage, options: list[Any]) -> None:
    stage.configure(ON_EXHAUSTED="dead_letter")
    transport = get_transport(stage.queue)
    strange = [written for written, _ in HARMLESS.values()]
    for number, written in enumerate([*REFUSED.values(), *strange]):
        transport.publish(f"group-{number}", written)
        stage.publish("note", f"group-{number}", n="good")
    worker = stage.work(*options)

    ended = stage.wait_for_ended(len(REFUSED) + 2 * len(strange))
    stage.wait_until_drained()

    assert sum(trace.n == "good" for trace in ended) == len(REFUSED) + len(strange)
    assert [letter["reason"] for letter in stage.dead_letters()] == ["corrupt"] * len(REFUSED)
    assert len(stage.wait_for_processes()) == 1
    worker.signal()
    assert worker.wait() == 0


@pytest.mark.parametrize("verb", [["peek", "g", "--payloads"], ["dead"]], ids=" ".join)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_an_operator_can_look_at_hostile_json(
    stage: Stage, verb: list[str], form: list[str]
) -> None:
    transport = get_transport(stage.queue)
    deep = body("[" * 700 + "]" * 700)
    for written in (*REFUSED.values(), *(written for written, _ in HARMLESS.values()), deep):
        transport.publish("g", written)
        lease = transport.claim("worker", 60)
        assert lease is not None
        if verb[0] == "dead":
            transport.settle(Settlement.dead(lease, "why"))
        else:
            transport.nack(lease)

    said = operate(*verb, *form, "--queue", stage.queue, "--limit", 200)

    assert said.code == 0
    assert all(line.isprintable() for line in said.out.split("\n"))
