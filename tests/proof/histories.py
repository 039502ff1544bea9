"""How does a test write a history down?"""

from __future__ import annotations

from typing import Any

from proof.checker import Limits, Verdict, check
from proof.history import Effect, Operation, ShardState
from proof.records import Record

PREFIX = "gq:{orders:0}"
START_US = 1_700_000_000_000_000
SECOND_US = 1_000_000
A, B, C = (letter * 32 for letter in "abc")


def element(name: str, *, expires_ms: int = 0, body: bytes = b"1") -> bytes:
    """Return a message as its list holds it."""
    return b"%s%013d%013d%s" % (name.encode(), START_US // 1000, expires_ms, body)


class History:
    """Operations one after the other, half a second apart, on one shard."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.at_us = START_US

    def add(
        self,
        script: str,
        args: tuple[Any, ...],
        reply: Any,
        *effects: tuple[Any, ...],
        commands: int = 20,
        number: int | None = None,
        error: str = "",
    ) -> History:
        """Add an operation; an effect is (command, key, reply, what follows the key ...)."""
        self.at_us += SECOND_US // 2
        self.operations.append(
            Operation(
                number or len(self.operations) + 1,
                script,
                self.at_us,
                commands,
                tuple(_bytes(one) for one in args),
                _sent(reply),
                error,
                tuple(
                    Effect(
                        command,
                        key.encode(errors="surrogateescape"),
                        _sent(told),
                        tuple(map(_bytes, rest)),
                    )
                    for command, key, told, *rest in effects
                ),
            )
        )
        return self

    def wait(self, seconds: float) -> History:
        """Let time pass."""
        self.at_us += int(seconds * SECOND_US)
        return self

    # What happens most, as it should --------------------------------------------------------

    def publish(self, *names: str, group: str = "g", depth: int = 0, sequence: int = 1) -> History:
        """Publish messages to a group that has so many."""
        args = ["me", sequence, "fair", len(names)]
        for name in names:
            args += [group, 0, name, b"1"]
        elements = [element(name) for name in names]
        pushed = ("RPUSH", f"q:{group}", depth + len(names), *elements)
        return self.add("publish", tuple(args), ["ok", 1], pushed)

    def claim(
        self,
        name: str,
        token: int,
        *,
        group: str = "g",
        deliveries: int = 1,
        failures: str = "0",
        worker: str = "anna",
    ) -> History:
        """Lease a group, whose head this is, for 30 seconds."""
        row = [group, str(token), deliveries, failures, "0", element(name)]
        lock = ("SET", f"lock:{group}", "OK", token, "PX", 30_000, "NX")
        return self.add("claim", (worker, 30_000, 0), [[row], -1], lock)

    def ack(self, name: str, token: int, *, group: str = "g", left: int = 0) -> History:
        """Finish a group's head."""
        return self.add(
            "ack",
            (group, token, name),
            ["ok", left],
            ("LPOP", f"q:{group}", [element(name)], 1),
            ("DEL", f"lock:{group}", 1),
        )

    def nack(self, name: str, token: int, *, group: str = "g", left: int = 1) -> History:
        """Give a group's head back after a failure."""
        args = (group, token, name, 0, "boom")
        return self.add("nack", args, ["ok", left], ("DEL", f"lock:{group}", 1))


def judged(
    history: History,
    *records: Record,
    left: dict[str, list[bytes]] | None = None,
    dead: dict[str, bytes] | None = None,
    scheduled: dict[str, bytes] | None = None,
    locks: dict[str, int] | None = None,
    audit: tuple[str, ...] = (),
    **limits: Any,
) -> Verdict:
    """Return the verdict on a history, given what the server holds in the end."""
    final = ShardState(
        lists={group.encode(): tuple(elements) for group, elements in (left or {}).items()},
        locks={group.encode(): token for group, token in (locks or {}).items()},
        scheduled=scheduled or {},
        dead={entry.encode(): element for entry, element in (dead or {}).items()},
    )
    operations = {PREFIX: history.operations}
    return check(operations, records, {PREFIX: final}, Limits(**limits), audit=audit)


def record(event: str, phase: str, *, at_us: int = START_US, **fields: Any) -> Record:
    """Return a line of an actor."""
    return Record(at_us * 1000, at_us * 1000, 4711, event, phase, fields)


def named(verdict: Verdict) -> set[str]:
    """Return which invariants are said to be broken."""
    return {finding.split()[0] for finding in verdict.findings}


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogateescape")


def _sent(value: Any) -> Any:
    """Return a reply as scripts send it: texts are bytes."""
    if isinstance(value, list):
        return [_sent(part) for part in value]
    return value.encode(errors="surrogateescape") if isinstance(value, str) else value
