"""Where handlers run: inline, in threads, or on the event loop for `async def` ones."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Protocol

from groupqueue.worker.executor import Held, handle, handle_async

log = logging.getLogger("groupqueue.worker")

Done = Callable[[Held], None]


class Pool(Protocol):
    """Runs prepared messages and says when each is settled."""

    def start(self, held: Held) -> None:
        """Have a message handled; `done` is called from any thread, perhaps before it returns."""
        ...

    def run(self, held: Held) -> None:
        """Handle a message in the thread that calls."""
        ...

    def call_next(self) -> None:
        """Say that one more waits in line for a hand."""
        ...


class InlinePool:
    """For a concurrency of one: the handler runs where it is started, without a hand-over."""

    def __init__(self, done: Done, on_loop_ended: Callable[[], None]) -> None:
        self._done = done
        self._loop = EventLoop(on_loop_ended)

    def start(self, held: Held) -> None:
        """Handle the message before returning."""
        self.run(held)

    def run(self, held: Held) -> None:
        """Handle the message before returning."""
        self._loop.handle_in_turn(held)
        self._done(held)

    def call_next(self) -> None:
        """Do nothing: whoever started the last one starts the next."""


class ThreadPool:
    """A fixed number of threads for sync handlers, and one event loop for async ones."""

    def __init__(
        self,
        size: int,
        done: Done,
        on_loop_ended: Callable[[], None],
        *,
        handle_next: Callable[[], object],
    ) -> None:
        """`handle_next` handles whoever is next in line, if anybody still is."""
        self._done = done
        self._handle_next = handle_next
        self._inbox: SimpleQueue[Held | None] = SimpleQueue()
        self._loop = EventLoop(on_loop_ended)
        for number in range(size):
            threading.Thread(
                target=self._work, name=f"groupqueue-handler-{number}", daemon=True
            ).start()

    def start(self, held: Held) -> None:
        """Hand the message to a free thread or to the event loop."""
        if held.handler is not None and held.handler.is_async:
            self._loop.run(held).add_done_callback(lambda _: self._done(held))
        else:
            self._inbox.put(held)

    def call_next(self) -> None:
        """Let a thread that is free take whoever is next."""
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
            if held is None:
                self._handle_next()
            else:
                self.run(held)


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
