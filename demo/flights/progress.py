"""How does a person see that the demo gets on? One live line, or a line now and then."""

from __future__ import annotations

import time
from typing import TextIO

LINE_EVERY_SECONDS = 2.0
CLEAR_LINE = "\r\x1b[K"


class Progress:
    """Tells on a stream, stderr as a rule: stdout is for the result."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_live = stream.isatty()
        self._next_line_at = 0.0
        self._is_line_open = False

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self.close_line()
        print(text, file=self._stream, flush=True)

    def show(self, text: str) -> None:
        """Show how things stand: the same line again on a terminal, seldom elsewhere."""
        if self._is_live:
            print(CLEAR_LINE + text, end="", file=self._stream, flush=True)
            self._is_line_open = True
        elif time.monotonic() >= self._next_line_at:
            self._next_line_at = time.monotonic() + LINE_EVERY_SECONDS
            print(text, file=self._stream, flush=True)

    def close_line(self) -> None:
        """Leave the live line as it is; what comes next begins a new one."""
        if self._is_line_open:
            print(file=self._stream, flush=True)
            self._is_line_open = False
