"""Where handlers run: in the main thread and others, or on the event loop for `async def` ones."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

from groupqueue.worker.ahead import Line
from groupqueue.worker.executor import Held, handle, handle_async

log = logging.getLogger("groupqueue.worker")

Done = Callable[[Held], None]

# Whoever lets others go on, and can itself go on so soon, has met nobody.
AT_ONCE_SECONDS = 0.0002


class Pool:
    """A fixed number of hands for sync handlers, and one event loop for async ones.

    The first hand is the thread that calls `serve`, the others are threads of the pool's own.
    """

    def __init__(
        self,
        size: int,
        done: Done,
        on_loop_ended: Callable[[], None],
        *,
        handle_next: Callable[[], int],
        line: Line | None,
    ) -> None:
        """`done` is told of each message that was handled, from any thread; `handle_next`
        handles whoever is next in line, and returns the line's `taken`, 0 if nobody was there."""
        self._size = size
        self._done = done
        self._handle_next = handle_next
        self._line = line
        self._inbox: SimpleQueue[Held | None] = SimpleQueue()
        self._is_called = False
        """Whether a hand has been called that has not come yet."""
        self._door = threading.Lock()
        """Held by the hand that waits until it is needed."""
        self._is_closed = False
        self._loop = EventLoop(on_loop_ended)

    def serve(self) -> None:
        """Handle messages, here and in threads, until the pool is closed."""
        for number in range(1, self._size):
            threading.Thread(
                target=self._work, name=f"groupqueue-handler-{number}", daemon=True
            ).start()
        self._work()

    def close(self) -> None:
        """Let the hands go, once they are free."""
        self._is_closed = True
        for _ in range(self._size):
            self._inbox.put(None)

    def start(self, held: Held) -> None:
        """Hand the message to a free hand or to the event loop."""
        if held.handler is not None and held.handler.is_async:
            self._loop.run(held).add_done_callback(lambda _: self._done(held))
        else:
            self._inbox.put(held)

    def call_next(self) -> None:
        """Say that somebody waits in line for a hand.

        Waking a thread costs more than a quick handler does: one is called at a time, and
        calls the next if it does not take the last one in line.
        """
        if not self._is_called and not self._door.locked():
            self._is_called = True
            self._inbox.put(None)

    def run(self, held: Held) -> None:
        """Handle a message in the thread that calls."""
        try:
            self._loop.handle_in_turn(held)
        except BaseException:
            # Ours to mend: without a settlement the lease is handed back.
            log.exception("handling broke off", extra={"action": "handling_broke_off"})
        self._done(held)

    def _work(self) -> None:
        while True:
            held = self._inbox.get()
            if held is not None:
                self.run(held)
            elif self._is_closed:
                return
            else:
                self._is_called = False
                self._serve_line()

    def _serve_line(self) -> None:
        """Take one after the other from the line while somebody waits and this hand is needed.

        Handlers that compute are no faster for a second hand, which would only get in the way
        of the first one, and of the pump. So whoever was not the last to take somebody waits
        at the door, one hand at a time, until the others are found waiting or busy for long.
        """
        line, mine = self._line, 0
        while True:
            if line and line.taken != mine and self._size > 1:
                if not self._door.acquire(blocking=False):
                    return  # whoever is there takes the next one
                try:
                    _await_need(line)
                finally:
                    self._door.release()
            mine = self._handle_next()
            if not mine:
                return


def _await_need(line: Line) -> None:
    """Return once nobody waits in line any more, or nobody else takes who does."""
    while not line.is_empty:
        taken, begun_at = line.taken, time.monotonic()
        time.sleep(0)  # whoever can go on does
        waited_seconds = time.monotonic() - begun_at
        is_nobody_there = waited_seconds < AT_ONCE_SECONDS
        if line.taken == taken and (is_nobody_there or waited_seconds >= sys.getswitchinterval()):
            return


class EventLoop:
    """An event loop in a thread of its own, started by the first async handler."""

    def __init__(self, on_ended: Callable[[], None]) -> None:
        self._on_ended = on_ended
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.Lock()

    def handle_in_turn(self, held: Held) -> None:
        """Handle a message: here, or on the loop, and wait until that is done."""
        if held.handler is not None and held.handler.is_async:
            self.run(held).result()
        else:
            handle(held)

    def run(self, held: Held) -> Future[None]:
        """Start an async handler; from any thread."""
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._serve,
                    args=(self._loop,),
                    name="groupqueue-event-loop",
                    daemon=True,
                ).start()
        return asyncio.run_coroutine_threadsafe(handle_async(held), self._loop)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop, for ever unless somebody ends it: then no async handler goes on."""
        cause: BaseException | None = None
        try:
            loop.run_forever()
        except BaseException as error:  # a background task of a handler raised SystemExit, say
            cause = error
        log.error(
            "the event loop was ended from outside; async handlers cannot go on",
            exc_info=cause,
            extra={"action": "event_loop_ended"},
        )
        self._on_ended()
