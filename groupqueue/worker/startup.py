"""What a worker checks before it starts, and what it says of itself then and at the end."""

from __future__ import annotations

from collections.abc import Iterator

from groupqueue import __version__, conf
from groupqueue.exceptions import (
    GroupQueueError,
    ServerRefused,
    ServerUnavailable,
    ServerUnsupported,
)
from groupqueue.handlers import registered
from groupqueue.transport.connections import location
from groupqueue.transport.servers import findings
from groupqueue.worker.options import WorkerOptions
from groupqueue.worker.supervisor import Summary

# Findings about servers that no worker could work with.
USELESS = ("old-server", "replica", "permissions")


class UnsafeServer(GroupQueueError):
    """The server is set up in a way that could lose messages."""


def server_warnings(options: WorkerOptions) -> Iterator[str]:
    """Ask each queue's server and tell what an operator should know.

    A server that does not answer is only reported: the processes wait for it. Raises
    ServerUnsupported for one that no worker could work with, and UnsafeServer for one that
    could lose messages, unless the options allow it.
    """
    for queue in options.queues:
        try:
            found = findings(queue)
        except (ServerUnavailable, ServerRefused) as error:
            yield f"queue {queue!r}: {error}"
            continue
        for finding in found:
            text = f"queue {queue!r}: {finding.text}. {finding.hint}"
            if finding.id in USELESS:
                raise ServerUnsupported(text)
            if finding.level == "error" and not options.unsafe_server:
                raise UnsafeServer(text)
            yield text


def banner(options: WorkerOptions) -> str:
    """Return what the worker says when it starts."""
    lines = [
        f"groupqueue {__version__}: {_counted(options.processes, 'process', 'processes')}, "
        f"each handling {_counted(options.concurrency, 'message', 'messages')} at once"
    ]
    for queue in options.queues:
        seconds = options.visibility_for(conf.get_config(queue))
        lines.append(f"  queue    {queue} at {location(queue)}, visibility {seconds:g} s")
    lines += [f"  handler  {topic}: {found.where}" for topic, found in sorted(registered().items())]
    if not registered():
        lines.append("  no handlers: none of the installed apps has a handlers.py with @handler")
    return "\n".join([*lines, "  stop with Ctrl-C or SIGTERM; a second one leaves at once"])


def closing_line(summary: Summary) -> str:
    """Return what the worker says when it ends."""
    rate = summary.processed / summary.seconds if summary.seconds else 0.0
    line = (
        f"groupqueue: {summary.processed} processed, {summary.failed} failed, "
        f"{_counted(summary.restarts, 'restart', 'restarts')} in {summary.seconds:.1f} s "
        f"({rate:.0f}/s)"
    )
    if summary.untold:
        died = _counted(summary.untold, "process", "processes")
        line += f"; the figures of {died} that died are missing"
    return line


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
