"""How --reload notices changed code, and starts the worker anew.

Django's autoreloader keeps the program in a thread, away from signals, and kills it with
SIGKILL on Ctrl-C. So only its watching is used here: the worker keeps the main thread,
drains when code has changed, and then replaces itself.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from django.utils import autoreload


def watch(on_change: Callable[[], None]) -> None:
    """Call `on_change`, from another thread, when code of the project changes."""

    def changed(**_: Any) -> bool:
        on_change()
        return True  # handled: the autoreloader itself does nothing

    autoreload.file_changed.connect(changed, weak=False)
    threading.Thread(
        target=autoreload.get_reloader().run, args=(threading.main_thread(),), daemon=True
    ).start()


def start_anew() -> NoReturn:
    """Run the same command again in this process, with the code as it is now."""
    sys.stdout.flush()
    sys.stderr.flush()
    arguments = autoreload.get_child_arguments()
    os.execv(arguments[0], arguments)  # noqa: S606 - as we were started ourselves
