"""How is a script made to write down what it did?

A stamped script is the script itself, run inside `stamp.lua`. Its record is written in the same
step as all that it did, so that a server which loses its last writes loses both or none.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from groupqueue.transport import scripts
from groupqueue.transport.scripts import Script

_STAMP = Path(__file__).with_name("stamp.lua")
load_plain = scripts.load


def install() -> None:
    """Stamp every script that this process sends from now on; calling it again changes nothing.

    Scripts that only read are sent as they are. So is what goes to fakeredis.
    """
    scripts.load = load  # type: ignore[assignment]


def uninstall() -> None:
    """Send plain scripts again."""
    scripts.load = load_plain


@contextmanager
def stamped() -> Iterator[None]:
    """Stamp scripts meanwhile."""
    before = scripts.load
    install()
    try:
        yield
    finally:
        scripts.load = before


def load(name: str, *, shebang: bool = True) -> Script:
    """Return a script as `scripts.load` does, stamped."""
    plain = load_plain(name, shebang=shebang)
    return stamp(plain) if shebang else plain


@functools.cache
def stamp(plain: Script) -> Script:
    """Return a script with the same name and flags that writes down what it does."""
    first, _, body = plain.source.partition("\n")
    if "no-writes" in first:
        return plain
    source = f"{first}\n" + _filled({"@NAME@": f'"{plain.name}"', "@BODY@": body.rstrip("\n")})
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(plain.name, source, sha)


def run(client: Any, name: str, body: str, prefix: str, *arguments: str | bytes | int) -> Any:
    """Perform an edit by hand so that the history knows of it; `body` is Lua.

    Whoever changes a shard's lists or locks past its scripts makes its history wrong.
    """
    script = stamp(Script(name, f"#!lua\n{body}", ""))
    return client.eval(script.source, 1, prefix, *arguments)


def history_key(prefix: str) -> str:
    """Return the key of a shard's records: `gq:{orders:0}` has `history:{orders:0}`."""
    return f"history:{prefix[prefix.index('{') :]}"


def _filled(parts: dict[str, str]) -> str:
    text = scripts._without_comments(_STAMP.read_text("utf-8"))
    for mark, part in parts.items():
        text = text.replace(mark, part)
    return text
