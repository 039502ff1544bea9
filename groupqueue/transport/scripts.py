"""How the Lua files become scripts that a server runs."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

_INCLUDE = re.compile(r"^--@(include|lazy) (\w+)\n", re.MULTILINE)
_FLAGS = re.compile(r"^-- FLAGS ?([\w, -]*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One script as sent: its source and the SHA1 that EVALSHA names it by."""

    name: str
    source: str
    sha: str


@cache
def load(name: str, *, shebang: bool = True) -> Script:
    """Read `lua/<name>.lua` with its includes; the first line declares its flags.

    `shebang=False` leaves that line out, for servers that do not know it (fakeredis).
    """
    text = _read(f"{name}.lua")
    flags = _FLAGS.search(text)
    if flags is None:
        raise ValueError(f"{name}.lua has no FLAGS line in its header")
    body = _expanded(text, seen=set(), path=())
    source = _without_comments(body)
    if shebang:
        source = f"#!lua flags={flags[1]}\n{source}" if flags[1] else f"#!lua\n{source}"
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def names() -> list[str]:
    """Return the names of all scripts."""
    folder = resources.files("groupqueue") / "lua"
    return sorted(
        path.name.removesuffix(".lua") for path in folder.iterdir() if path.name.endswith(".lua")
    )


def _read(path: str) -> str:
    return (resources.files("groupqueue") / "lua" / path).read_text("utf-8")


def _expanded(text: str, *, seen: set[str], path: tuple[str, ...]) -> str:
    """Put each include in place of its first mention; a circle is an error.

    A server runs the whole text for each call, and each function in it costs. A lazy include
    defines its functions when it is called: what it includes itself is for it alone.
    """

    def replacement(match: re.Match[str]) -> str:
        kind, name = match.groups()
        if name in path:
            raise ValueError(f"circular include: {' → '.join((*path, name))}")
        if name in seen:
            return ""
        seen.add(name)
        inner = seen if kind == "include" else set(seen)
        body = _expanded(_read(f"includes/{name}.lua"), seen=inner, path=(*path, name))
        return body if kind == "include" else _lazily(name, body)

    return _INCLUDE.sub(replacement, text)


def _lazily(name: str, body: str) -> str:
    inner = "".join(f"  {line}\n" for line in body.splitlines())
    return f"local function {name}(...)\n{inner}  return {name}(...)\nend\n"


def _without_comments(text: str) -> str:
    """Drop comment lines and blank ones: a server keeps every script's text in memory."""
    lines = (line for line in text.splitlines() if line.strip())
    return "\n".join(line for line in lines if not line.lstrip().startswith("--")) + "\n"
