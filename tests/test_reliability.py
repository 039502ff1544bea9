"""Do the page on reliability and the suite name the same tests?"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.documents import DOCS, ROOT, coded, rows

PAGE = DOCS / "reliability.md"
FAILURES = range(1, 40)
INVARIANTS = [f"I{number}" for number in range(1, 11)]
NAMING = re.compile(r"test_failure_(\d\d)_[a-z]\w+")


def names_in(path: Path) -> Iterator[str]:
    """Yield what the tests of a file are called, `path::name`, without importing it."""
    for node in ast.walk(ast.parse(path.read_text())):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and node.name.startswith("test_"):
            yield f"{path.relative_to(ROOT)}::{node.name}"


def all_tests() -> list[str]:
    """Return what all tests of the suite are called."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [test for file in files for test in names_in(file)]


def named(heading: str) -> dict[str, list[str]]:
    """Return the tests that each line of a table names, by the line's number."""
    return {number: coded(tests) for number, _, _, tests in rows(PAGE, heading)}


def test_each_failure_and_each_invariant_has_one_line() -> None:
    failures = [number for number, *_ in rows(PAGE, "What may fail")]
    invariants = [number for number, *_ in rows(PAGE, "What always holds")]

    assert failures == [str(number) for number in FAILURES]
    assert invariants == INVARIANTS


def test_each_line_names_tests_that_exist() -> None:
    existing = set(all_tests())

    for number, tests in (*named("What may fail").items(), *named("What always holds").items()):
        assert tests, f"nothing shows {number}"
        assert not set(tests) - existing, f"{number} names what is no test"
        assert len(tests) == len(set(tests)), f"{number} names a test twice"


def test_a_test_that_names_a_failure_stands_in_its_line() -> None:
    table = named("What may fail")

    for test in all_tests():
        name = test.partition("::")[2]
        if name.startswith("test_failure"):
            line = NAMING.fullmatch(name)
            assert line, f"{name} names no line"
            assert test in table.get(str(int(line[1])), ()), f"{test} does not stand in its line"


def test_each_failure_has_a_test_that_names_it() -> None:
    for number, tests in named("What may fail").items():
        names = [test.partition("::")[2] for test in tests]
        own = [name for name in names if name.startswith(f"test_failure_{int(number):02}_")]
        assert own, f"no test names {number}"


def test_no_name_is_used_twice_in_a_file() -> None:
    # The later one would hide the earlier one, which nobody would miss.
    twice = [test for test, times in Counter(all_tests()).items() if times > 1]

    assert twice == []
