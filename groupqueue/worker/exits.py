"""What the exit code of a worker process tells its supervisor."""

EXIT_CONFIGURATION = 78
"""Starting again would not help (EX_CONFIG of sysexits.h)."""

EXIT_OVERDUE = 75
"""A handler ran out of time; a new process takes over (EX_TEMPFAIL)."""
