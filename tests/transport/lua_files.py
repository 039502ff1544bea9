"""What do the Lua files, their headers and their README say?"""

from __future__ import annotations

import re
from importlib import resources
from typing import NamedTuple

LUA = resources.files("groupqueue") / "lua"


class Header(NamedTuple):
    """The contract at the top of a script."""

    title: str
    flags: str
    fixed: tuple[str, ...]
    """The names of ARGV[1], ARGV[2], …"""
    repeated: tuple[str, ...]
    """The names of what follows once per item."""
    text: str


def script_names() -> list[str]:
    """Return the names of the scripts."""
    return sorted(path.name[:-4] for path in LUA.iterdir() if path.name.endswith(".lua"))


def include_names() -> list[str]:
    """Return the names of the shared functions."""
    return sorted(path.name[:-4] for path in (LUA / "includes").iterdir())


def paths() -> list[str]:
    """Return every file: `ack`, …, `includes/claim`, …"""
    return script_names() + [f"includes/{name}" for name in include_names()]


def read(path: str) -> str:
    """Return the text of a file."""
    return (LUA / f"{path}.lua").read_text("utf-8")


def read_code(path: str) -> str:
    """Return the text of a file without its comments."""
    return re.sub(r"--[^\n]*", "", read(path))


def header(name: str) -> Header:
    """Parse the contract of a script."""
    lines = []
    for line in read(name).splitlines():
        if not line.startswith("-- "):
            break
        lines.append(line.removeprefix("-- "))
    text = "\n".join(lines)
    numbered = re.findall(r"^ARGV\[(\d+)\] (\w+)", text, re.MULTILINE)
    assert [int(number) for number, _ in numbered] == list(range(1, len(numbered) + 1)), name
    flags = re.search(r"^FLAGS ?(.*)$", text, re.MULTILINE)
    return Header(
        title=lines[0],
        flags=flags[1] if flags else "missing",
        fixed=tuple(argument for _, argument in numbered),
        repeated=_repeated(text),
        text=text,
    )


def _repeated(text: str) -> tuple[str, ...]:
    """Return what `then per item: a, b` names, on the line or indented below it."""
    found = re.search(r"^then per \w+:(.*)\n((?:  +\w+ .*\n)*)", text, re.MULTILINE)
    if found is None:
        return ()
    if on_line := found[1].split(";")[0].strip():
        return tuple(name.strip() for name in on_line.split(","))
    return tuple(line.split()[0] for line in found[2].splitlines())


def readme() -> str:
    """Return the README beside the scripts."""
    return (LUA / "README.md").read_text("utf-8")


def table(heading: str) -> list[list[str]]:
    """Return the rows of the README's table under a heading, their cells stripped."""
    section = readme().split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def permissions() -> list[str]:
    """Return the ACL rules for commands that the README names."""
    [rules] = re.findall(r"^ACL SETUSER .*?(\+.*)$", readme(), re.MULTILINE)
    return rules.split()


def commands() -> set[str]:
    """Return every command that a script sends."""
    text = "\n".join(map(read_code, paths()))
    sent = set(re.findall(r'(?:redis\.p?call|reads?|read_if_fit)\("(\w+)"', text))
    sizes = re.search(r"SIZE_OF = \{(.*?)\n\}", text, re.DOTALL)
    by_table = set(re.findall(r'= "([A-Z]+)"', sizes[1] if sizes else ""))
    return sent | by_table | set(re.findall(r'SIZE_OF\[\w+\] or "(\w+)"', text))


def counters() -> set[str]:
    """Return every counter that a script keeps."""
    text = "\n".join(map(read_code, paths()))
    by_outcome = re.search(r"COUNTERS = \{(.*?)\}", text, re.DOTALL)
    named = set(re.findall(r'tally\(shard, "(\w+)"', text))
    return named | set(re.findall(r'= "(\w+)"', by_outcome[1] if by_outcome else ""))


def own_keys(script: str) -> list[str]:
    """Return the shard's own keys that a script says it uses."""
    opened = re.search(r"open_shard\(KEYS\[1\], \{(.*?)\}\)", read(script), re.DOTALL)
    return re.findall(r'"([^"]+)"', opened[1]) if opened else []


def keys_in_code() -> set[str]:
    """Return every key that the code names, as the README writes them."""
    names = {name for script in script_names() for name in own_keys(script)} - {"minute"}
    text = "\n".join(map(read_code, paths()))
    names |= set(re.findall(r'":(\w+)"', text))
    names |= {f"{name}:" for name in re.findall(r'"(?::)?(\w+):"', text)}
    return {re.sub(r"^ready:\d?$", "ready:", name) for name in names}
