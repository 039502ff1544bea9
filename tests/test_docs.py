"""Do the pages say what the code does, and do they hang together?"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import itertools
import re
import tokenize
from pathlib import Path
from typing import get_args

import pytest
from django.core.management.base import BaseCommand
from django.dispatch import Signal

from groupqueue import checks, conf, signals
from groupqueue.core.calls import Outcome
from groupqueue.management.commands.run_group_workers import Command
from groupqueue.transport import scripts
from tests.documents import DOCS, PAGES, README, ROOT, anchors, blocks, coded, links, rows

LIFECYCLE = DOCS / "lifecycle.md"
GLOSSARY = DOCS / "glossary.md"
OPERATING = DOCS / "operating.md"
DECISIONS = DOCS / "adr"
PACKAGE = ROOT / "groupqueue"

# Names that Python and Django gave, not we.
ALLOWED_IDENTIFIERS = {"create_task", "current_task", "all_tasks", "Task", "TaskGroup", "tasks"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path):
    for link in links(page):
        if re.match(r"https?://", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(target), f"{link}: there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_example_compiles(page: Path):
    for number, block in enumerate(blocks(page.read_text(), "python"), 1):
        compile(block.text, f"{page.name}, example {number}", "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_page_is_reached_from_the_readme(page: Path):
    reached: set[Path] = set()
    to_read = {README}
    while to_read:
        current = to_read.pop()
        reached.add(current)
        targets = {(current.parent / link.partition("#")[0]).resolve() for link in links(current)}
        to_read |= {target for target in targets if target in PAGES} - reached

    assert page in reached


def test_the_settings_table_has_every_key_with_its_default():
    table = {coded(key)[0]: default for key, default, _ in rows(README, "Settings")}

    assert list(table) == list(conf.KEYS)
    for key, default in table.items():
        if conf.KEYS[key].default is conf.KEYS["CONNECTION"].default:
            assert default == "required"
        else:
            assert ast.literal_eval(coded(default)[0]) == conf.KEYS[key].default, key


def test_the_options_table_has_every_option_with_its_default():
    djangos = {action.dest for action in _actions(BaseCommand())}
    ours = {
        action.option_strings[0]: action
        for action in _actions(Command())
        if action.option_strings and action.dest not in djangos
    }
    table = {coded(name)[0]: default for name, default, _ in rows(README, "The worker's options")}

    assert list(table) == list(ours)
    for name, default in table.items():
        words = {
            "off": False,
            "no limit": None,
            "as many as handlers declare": None,
            "the host's name": "",
        }
        if default in words:
            expected = words[default]
        elif coded(default)[0] in conf.KEYS:
            expected = None  # left to the setting
        else:
            expected = ast.literal_eval(coded(default)[0])
        assert ours[name].default == expected, name


def test_the_signals_table_has_every_signal_with_its_arguments():
    table = {
        coded(name)[0]: set(coded(arguments))
        for name, arguments, _ in rows(DOCS / "handlers.md", "Signals")
    }

    assert table == _declared_signals()


def test_the_checks_table_has_every_id():
    declared = set(re.findall(r"\b[EW]\d{3}\b", inspect.getsource(checks)))
    table = [coded(identifier)[0] for identifier, _, _ in rows(OPERATING, "System checks")]

    assert len(table) == len(set(table))
    assert set(table) == {f"{checks.TAG}.{identifier}" for identifier in declared}


def test_the_acl_recipe_has_exactly_the_commands_that_are_used():
    [recipe] = [block.text for block in blocks(OPERATING.read_text(), "text")]
    allowed = set(re.findall(r"\+([a-z]\w*)", recipe))
    lua = "\n".join(path.read_text() for path in (PACKAGE / "lua").rglob("*.lua"))
    # A command stands in a call, as the value of a table, or as what is taken without one.
    called = set(re.findall(r'(?:call\(|read\(|= |\] or )"([A-Z]{3,})"', lua))

    assert allowed == {command.lower() for command in called} | {"eval", "evalsha", "blpop", "info"}


def test_every_edge_of_the_lifecycle_names_a_script_that_exists():
    for script, outcome in _edges():
        assert script in scripts.names()
        assert outcome is None or (script == "turn" and outcome in get_args(Outcome))


def test_every_script_and_every_outcome_is_in_the_lifecycle():
    edges = _edges()
    named = {script for script, _ in edges} | set(coded(LIFECYCLE.read_text()))

    assert set(scripts.names()) <= named
    assert {outcome for _, outcome in edges if outcome} == set(get_args(Outcome))


def test_every_edge_of_the_lifecycle_says_what_it_changes():
    table = {
        edge
        for row in rows(LIFECYCLE, "What each edge changes")
        for label in coded(row[0])
        for edge in _parsed(label)
    }

    assert table == _edges()


def test_no_identifier_is_a_word_that_the_glossary_bans():
    banned = {row[0] for row in rows(GLOSSARY, "Words we do not use")}
    forms = {word + ending for word in banned for ending in ("", "s", "d", "ed", "r", "rs")}
    found = {
        f"{path.relative_to(ROOT)}: {identifier}"
        for path in PACKAGE.rglob("*.*")
        if path.suffix in (".py", ".lua")
        for identifier in _identifiers(path) - ALLOWED_IDENTIFIERS
        if forms & set(_words(identifier))
    }

    assert banned
    assert not found


def test_every_term_is_explained_once():
    terms = [row[0] for row in rows(GLOSSARY, "Terms")]

    assert len(terms) == len(set(terms))


def test_the_index_of_decisions_is_complete():
    files = sorted(path for path in DECISIONS.glob("*.md") if path.name != "README.md")
    index = (DECISIONS / "README.md").read_text()
    entries = re.findall(r"^\| \[(\d{4})\]\(([\w-]+\.md)\) \| (.+) \|$", index, re.MULTILINE)

    assert [number for number, _, _ in entries] == [
        f"{number:04}" for number in range(1, len(files) + 1)
    ]
    assert [name for _, name, _ in entries] == [path.name for path in files]
    for number, name, title in entries:
        first = (DECISIONS / name).read_text().partition("\n")[0]
        assert first == f"# {number}: {title}"


@pytest.mark.parametrize(
    "page", sorted(DECISIONS.glob("0*.md")), ids=lambda page: page.name.removesuffix(".md")
)
def test_every_decision_says_why_and_names_evidence_that_exists(page: Path):
    text = page.read_text()
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))

    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [
        "Context",
        "Decision",
        "Consequences",
        "Evidence",
    ]
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in tests, f"{name} is no test"


# Helpers -------------------------------------------------------------------------------


def _actions(command: BaseCommand) -> list[argparse.Action]:
    return command.create_parser("manage.py", "run_group_workers")._actions


def _declared_signals() -> dict[str, set[str]]:
    """Return the arguments of each signal, from the text behind its declaration."""
    texts: dict[str, str] = {}
    body = ast.parse(inspect.getsource(signals)).body
    for declaration, explanation in itertools.pairwise(body):
        if isinstance(declaration, ast.Assign) and isinstance(explanation, ast.Expr):
            [name] = [target.id for target in declaration.targets if isinstance(target, ast.Name)]
            if isinstance(getattr(signals, name), Signal):
                texts[name] = str(ast.literal_eval(explanation.value))
    for name, text in texts.items():
        if same := re.search(r"Arguments: as for (\w+)", text):
            texts[name] = texts[same[1]]
    return {name: set(coded(text.partition("Arguments:")[2])) for name, text in texts.items()}


def _edges() -> set[tuple[str, str | None]]:
    """Return the scripts and outcomes on the edges of the lifecycle's diagrams."""
    diagrams = "\n".join(block.text for block in blocks(LIFECYCLE.read_text(), "mermaid"))
    labels = re.findall(r"-->[^:\n]+: (.+)$", diagrams, re.MULTILINE)
    return {edge for label in labels if not label.startswith("(") for edge in _parsed(label)}


def _parsed(label: str) -> list[tuple[str, str | None]]:
    """Split "ack, turn / retry" into scripts and outcomes."""
    edges = []
    for part in label.split(", "):
        script, _, outcome = part.partition(" / ")
        edges.append((script, outcome or None))
    return edges


def _identifiers(path: Path) -> set[str]:
    text = path.read_text()
    if path.suffix == ".lua":
        return set(re.findall(r"[A-Za-z_]\w*", re.sub(r"--.*", "", text)))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def _words(identifier: str) -> list[str]:
    """Split snake_case and CamelCase into lower-case words."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", identifier)]
