"""How does an actor wait, and learn that it is to end?"""

from __future__ import annotations

import signal

_ORDER = {signal.SIGTERM}


class Ending:
    """Takes SIGTERM in from now on, when it is asked, and at no other moment.

    A handler could come in the middle of anything: one that sets an Event waits for ever for
    a thread that was just about to wait for it.
    """

    def __init__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _ORDER)
        self._has_come = False

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until told to end; say whether that has been told."""
        if not self._has_come:
            self._has_come = signal.sigtimedwait(_ORDER, max(0.0, seconds)) is not None
        return self._has_come
