"""Does everything that docs/testing.md shows work as it says, and do the fixtures of pytest?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.documents import DOCS, ROOT, blocks

GUIDE = DOCS / "testing.md"

SETTINGS = """
SECRET_KEY = "of no use outside the test"
USE_TZ = True
INSTALLED_APPS = ["groupqueue", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
GROUPQUEUE = {"default": {"CONNECTION": "redis://localhost:1/0", "MAX_ATTEMPTS": 1}}
"""

FIXTURES = """
import pytest

from groupqueue import get_queue, handler, publish
from groupqueue.conf import get_config
from groupqueue.testing import fake_redis, run_until_empty

handled = []


@handler("note")
def note(delivery):
    handled.append(delivery.payload)


def test_messages_are_captured(published_messages):
    publish("note", 1, group="g")

    published_messages.assert_published("note", payload=1, group="g")


@pytest.mark.parametrize("number", [1, 2])
def test_each_test_has_an_empty_server(groupqueue_server, number):
    assert groupqueue_server.keys() == []
    publish("note", number, group="g")
    assert b"gq:{default:0}:q:g" in groupqueue_server.keys()


def test_other_settings_stay(groupqueue_server):
    assert get_config().policy.max_attempts == 1


def test_messages_are_run(groupqueue_server):
    publish("note", 1, group="g")
    assert run_until_empty().processed == 1
    assert handled == [1]


def test_without_the_fixture_the_settings_are_as_they_were():
    assert get_config().connection == "redis://localhost:1/0"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty Django project with an app `shop`; its Redis does not exist."""
    for name in ("mysite", "shop"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "mysite" / "settings.py").write_text(SETTINGS)
    return tmp_path


def passed_tests(project: Path, settings: str) -> int:
    """Run the project's tests as its owner would; return how many there are, all passed."""
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-W", "error", f"--ds={settings}"),
            *("--rootdir", str(project), "-p", "no:cacheprovider"),
            # By name, so that it makes no difference whether groupqueue is installed.
            *("-p", "pytest_django.plugin", "-p", "groupqueue.pytest_plugin"),
        ],
        cwd=project,
        env=os.environ
        | {"PYTHONPATH": f"{project}{os.pathsep}{ROOT}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    passed = re.search(r"=+ (\d+) passed in ", run.stdout)
    assert passed is not None, run.stdout
    return int(passed[1])


def test_the_guides_examples_run(project: Path) -> None:
    examples = blocks(GUIDE.read_text("utf-8"), "python")
    for example in examples:
        assert example.path is not None, f"no file is named at the top of:\n{example.text}"
        (project / example.path).write_text(example.text)

    tests = sum(len(re.findall(r"\bdef test_", example.text)) for example in examples)
    assert tests > 10
    assert passed_tests(project, "mysite.settings_for_tests") == tests


def test_the_fixtures_do_what_the_guide_says(project: Path) -> None:
    (project / "shop" / "test_fixtures.py").write_text(FIXTURES)

    assert passed_tests(project, "mysite.settings") == 6


def test_pytest_finds_the_fixtures_and_imports_nothing_else_for_them() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    plugin = pyproject["project"]["entry-points"]["pytest11"]["groupqueue"]
    program = (
        f"import sys, {plugin} as plugin; plugin.published_messages; plugin.groupqueue_server;"
        "print([name for name in sys.modules if name.split('.')[0] in ('django', 'redis')])"
    )

    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "[]"
