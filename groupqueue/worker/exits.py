"""What the end of a worker process tells its supervisor."""

EXIT_CONFIGURATION = 78
"""Starting again would not help (EX_CONFIG of sysexits.h)."""

EXIT_OVERDUE = 75
"""A handler ran out of time; a new process takes over (EX_TEMPFAIL)."""

EXIT_BROKEN = 70
"""Messages could not be handled any more; a new process takes over (EX_SOFTWARE)."""

FINISHED = frozenset({"burst", "max_messages", "max_seconds"})
"""The reasons to stop after which nothing is left to do. Exit code 0 alone does not say so:
a handler may call `os._exit(0)`, and a signal for one process only drains it."""
