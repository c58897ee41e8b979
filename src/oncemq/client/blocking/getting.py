"""Who gets at a time, of the threads that share a client; see `client.shell.turn_taking`."""

import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any

from oncemq.client.blocking.listener import Owner
from oncemq.client.shell.turn_taking import check_apart


class Getting:
    """For threads: a lock, and the feeds of the blocks that are open under it.

    A block that raises puts back what it took. A signal handler that raises just then may keep it
    from that; so the feed is noted (by an assignment, which nothing halves), and whoever gets next
    puts it back once more before anything else.
    """

    def __init__(self, put_back: Callable[[tuple[str, ...]], None]) -> None:
        # Taken with `with lock`, in one step of the interpreter, which no interrupt halves.
        self.lock: Any = threading.RLock()
        self._opened: dict[object, str] = {}
        self._raised: tuple[str, ...] = ()
        self._put_back = put_back

    @property
    def nested(self) -> bool:
        """Whether this thread is in a block already; asked before the lock is taken."""
        return self.lock._is_owned()

    def check(self, feed: str, *, nested: bool) -> None:
        """Refuse a feed that an open block gets from; under the lock."""
        if not nested:  # an interrupt may have left something of a block that is over
            self._opened = {}
        check_apart(feed, self._opened.values())
        if self._raised:
            self._put_back(self._raised)
            self._raised = ()

    @contextmanager
    def block(
        self, feed: str, owner: Owner | None = None, give_up: Callable[[], None] | None = None
    ) -> Generator[None]:
        """Get from this feed, and work on it, until the block ends.

        Nobody else ends it: `owner` and `give_up` are for the asyncio shell's.
        """
        nested, mark = self.nested, object()
        with self.lock:
            self.check(feed, nested=nested)
            try:
                self._opened[mark] = feed
                yield
            except BaseException:
                self._raised = (*self._raised, feed)
                raise
            finally:
                self._opened.pop(mark, None)

    @contextmanager
    def inside(self) -> Generator["Block"]:
        """A block that gets from nothing yet; it gets from the feeds that are added to it."""
        with ExitStack() as feeds:
            yield Block(feeds)

    def add(self, block: "Block", feed: str) -> None:
        """Wait until the block may get from this feed, too."""
        if feed not in block.feeds:
            block.stack.enter_context(self.block(feed))
            block.feeds.add(feed)


class Block:
    """A transaction's: the feeds that it gets from, all of them until it is over."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.feeds: set[str] = set()
