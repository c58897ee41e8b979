"""Who gets at a time: one thread, or one task; and what it may get inside a block of its own.

A block (`consume`, an iteration of `listen`, a transaction) has messages that are not settled yet.
Another get of the same topic would settle later ones, and the cursor has only one place: those of
the block would count as settled, and be lost when it raises. So inside a block its own thread or
task may get from other topics, and is refused the rest; everybody else waits until it is over.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any

from oncemq.core.subscriber import is_single
from oncemq.errors import InvalidRequest


class Getting:
    """For threads: a lock, and the feeds of the blocks that are open under it."""

    def __init__(self) -> None:
        # Taken with `with lock`, in one step of the interpreter, which no interrupt halves.
        self.lock: Any = threading.RLock()
        self._opened: dict[object, str] = {}

    @property
    def nested(self) -> bool:
        """Whether this thread is in a block already; asked before the lock is taken."""
        return self.lock._is_owned()

    def check(self, feed: str, *, nested: bool) -> None:
        """Refuse a feed that an open block gets from; under the lock."""
        if not nested:  # an interrupt may have left something of a block that is over
            self._opened = {}
        _check_apart(feed, self._opened)

    @contextmanager
    def block(self, feed: str) -> Generator[None]:
        """Get from this feed, and work on it, until the block ends."""
        nested, mark = self.nested, object()
        with self.lock:
            self.check(feed, nested=nested)
            try:
                self._opened[mark] = feed
                yield
            finally:
                self._opened.pop(mark, None)


class AsyncBlock:
    """A block that is open, and the lock that takes turns of the gets inside it."""

    def __init__(self, feed: str) -> None:
        self.feed = feed
        self.lock = asyncio.Lock()


# The blocks around what runs now. A task that is started inside a block begins with its blocks, as
# `asyncio.wait_for` does with what it waits for; so these, and not the task, say who is inside.
_AROUND: ContextVar[tuple[AsyncBlock, ...]] = ContextVar("oncemq_blocks", default=())


class AsyncGetting:
    """For tasks: the same."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._opened: dict[object, str] = {}

    @asynccontextmanager
    async def block(self, feed: str) -> AsyncGenerator[None]:
        """Get from this feed, and work on it, until the block ends."""
        around = [each for each in _AROUND.get() if each in self._opened]
        _check_apart(feed, {each: each.feed for each in around})
        block = AsyncBlock(feed)
        async with around[-1].lock if around else self._lock:
            self._opened[block] = feed
            _AROUND.set((*_AROUND.get(), block))
            try:
                yield
            finally:
                del self._opened[block]
                _AROUND.set(tuple(each for each in _AROUND.get() if each is not block))


def _check_apart(feed: str, opened: dict[object, str]) -> None:
    for other in opened.values():
        if feed == other or not (is_single(feed) and is_single(other)):
            raise InvalidRequest(
                f"a block that gets from {_named(other)} is open here: end it before getting "
                f"from {_named(feed)}, or use a second client"
            )


def _named(feed: str) -> str:
    return repr(feed.replace("\n", ", ")) if feed else "any topic"
