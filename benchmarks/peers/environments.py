"""Where does each peer run? In an environment of its own, made when it is missing."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.catalogue import Peer

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv.peers"
PROGRAMS = Path(__file__).parent / "programs"
INSTALL_SECONDS = 300
PIP_OPTIONS = ("--quiet", "--disable-pip-version-check")
OUR_PACKAGES = ("django", "redis", "hiredis")
# Which interpreter, whose packages and which settings are the runner's own affair.
NOT_HANDED_ON = ("DJANGO_", "PYTHON", "VIRTUAL_ENV")


class Unavailable(Exception):
    """A peer cannot be installed here; the text says why."""


class Environment(NamedTuple):
    """How to start a peer's programs, and what was installed for them."""

    command: tuple[str, ...]
    variables: dict[str, str]
    versions: dict[str, str]


def prepare(peer: Peer) -> Environment:
    """Return a peer's environment, made where it is missing; raises Unavailable."""
    try:
        if peer.language == "ours":
            return _own(peer)
        return _node(peer) if peer.language == "node" else _python(peer)
    except subprocess.CalledProcessError as error:
        *_, last = [str(error), *error.stderr.strip().splitlines()]
        raise Unavailable(f"could not be installed: {last}") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"could not be installed in {INSTALL_SECONDS} s") from error


def _own(peer: Peer) -> Environment:
    versions = {name: metadata.version(name) for name in OUR_PACKAGES if _is_installed(name)}
    command = (sys.executable, "-m", f"benchmarks.peers.programs.{peer.program}")
    return Environment(command, dict(os.environ), {"python": _version(sys.executable), **versions})


def _is_installed(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


def _python(peer: Peer) -> Environment:
    folder = FOLDER / peer.program
    python = str(folder / "bin" / "python")
    if not _is_made(folder, peer.requirements):
        _say(peer, folder)
        interpreter = find_python(peer.python)
        shutil.rmtree(folder, ignore_errors=True)
        _run("sh", str(ROOT / "scripts" / "bootstrap"), interpreter, str(folder))
        _run(python, "-m", "pip", "install", *PIP_OPTIONS, *peer.requirements)
        _note_made(folder, peer.requirements)
    listed = json.loads(_run(python, "-m", "pip", "list", "--format=json"))
    versions = {entry["name"].lower(): entry["version"] for entry in listed}
    for name in ("pip", "setuptools"):
        versions.pop(name, None)
    command = (python, "-m", f"benchmarks.peers.programs.{peer.program}")
    return Environment(command, _variables(), {"python": _version(python), **versions})


def _node(peer: Peer) -> Environment:
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        raise Unavailable("needs node and npm on the PATH")
    folder = FOLDER / "node" / peer.program
    if not _is_made(folder, peer.requirements):
        _say(peer, folder)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text('{"private": true}\n')
        _run(npm, "install", "--silent", "--save-exact", *peer.requirements, folder=folder)
        _note_made(folder, peer.requirements)
    versions = {"node": _run(node, "--version").strip().removeprefix("v")}
    for package in sorted((folder / "node_modules").glob("*/package.json")):
        found = json.loads(package.read_text())
        versions[found["name"]] = found["version"]
    variables = _variables() | {
        "NODE_PATH": str(folder / "node_modules"),
        "NODE_ENV": "production",
    }
    return Environment((node, str(PROGRAMS / f"{peer.program}.cjs")), variables, versions)


def find_python(oldest: tuple[int, int]) -> str:
    """Return an interpreter that is new enough: this one, or another of this machine."""
    if sys.version_info >= oldest:
        return sys.executable
    for candidate in _other_pythons(oldest):
        try:
            version = _version(candidate)
        except (OSError, subprocess.SubprocessError):
            continue
        if tuple(int(part) for part in version.split(".")[:2]) >= oldest:
            return candidate
    wanted = ".".join(map(str, oldest))
    raise Unavailable(f"needs Python {wanted} or newer, and there is none here")


def _other_pythons(oldest: tuple[int, int]) -> Iterator[str]:
    major, first = oldest
    for minor in range(first, first + 6):
        if found := shutil.which(f"python{major}.{minor}"):
            yield found
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted(pyenv.glob(f"versions/{major}.*/bin/python3")))


@functools.cache
def _version(python: str) -> str:
    return _run(python, "-c", "import platform; print(platform.python_version())").strip()


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(NOT_HANDED_ON)}


def _is_made(folder: Path, requirements: tuple[str, ...]) -> bool:
    stamp = folder / "requirements.txt"
    return stamp.exists() and stamp.read_text().split() == list(requirements)


def _note_made(folder: Path, requirements: tuple[str, ...]) -> None:
    (folder / "requirements.txt").write_text("\n".join(requirements) + "\n")


def _run(*command: str, folder: Path = ROOT) -> str:
    return subprocess.run(
        command,
        cwd=folder,
        env=_variables(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
        check=True,
    ).stdout


def _say(peer: Peer, folder: Path) -> None:
    print(f"Installing {peer.name} into {folder} ...", file=sys.stderr)
