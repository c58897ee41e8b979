"""Who gets at a time, of the threads that share a client; see `client.shell.turn_taking`."""

import gc
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from oncemq.client.blocking.listener import Owner
from oncemq.client.shell.turn_taking import check_apart, one_life
from oncemq.errors import InvalidRequest

LOOK_SECONDS = 0.2  # how often who waits looks up, when nobody says that a block is over
LOOKS = 5  # in vain: then garbage is collected, once


@dataclass(slots=True, eq=False, weakref_slot=True)
class OpenFeed:
    """What a thread gets from, until its block is over."""

    feed: str
    thread: threading.Thread
    owner: Owner  # gives None when its block, or the one around it, is over
    over: bool = False

    @property
    def is_over(self) -> bool:
        """Whether its block has said so, or nobody is left who could."""
        return self.over or self.owner() is None


class Getting:
    """For threads: the feeds of the blocks that are open, all of them of one thread.

    A block ends wherever it is left: a listener that one thread has begun may be advanced, closed
    or collected by another, as web frameworks do with what they hand to a pool of threads. So no
    lock is held meanwhile, which only its own thread could release. One that a signal handler kept
    from saying that it is over is over when nobody has it any more. An exception that went through
    it may have it in a ring of frames until garbage is collected (since Python 3.12 one through a
    `contextmanager` does): so that is done before somebody is refused, and by who waits for long.

    A block that raises puts back what it took. A signal handler that raises just then may keep it
    from that; so the feed is noted (by an assignment, which nothing halves), and whoever gets next
    puts it back once more before anything else. `check` refuses who waits for a turn in a client
    that was closed meanwhile.
    """

    def __init__(
        self, check: Callable[[], None], put_back: Callable[[tuple[str, ...]], None]
    ) -> None:
        self._check = check
        # Taken with `with lock`, in one step of the interpreter, which no interrupt halves.
        self._lock = threading.RLock()
        self._opened: list[weakref.ref[OpenFeed]] = []
        self._waiting: list[SimpleQueue[None]] = []
        self._raised: tuple[str, ...] = ()
        self._put_back = put_back

    @contextmanager
    def block(
        self, feed: str, owner: Owner | None = None, give_up: Callable[[], None] | None = None
    ) -> Generator[None]:
        """Get from this feed, and work on it, until the block ends.

        It is over as well when `owner` gives None; `give_up` is for the asyncio shell's.
        """
        for life in one_life():
            mine = OpenFeed(feed, threading.current_thread(), owner or life)
            try:
                if not self._opens(mine):
                    self._wait(mine)
                try:
                    yield
                except BaseException:
                    self._raised = (*self._raised, feed)
                    raise
            finally:
                mine.over = True
                for turn in tuple(self._waiting):
                    turn.put(None)

    @contextmanager
    def inside(self) -> Generator["Block"]:
        """A block that gets from nothing yet; it gets from the feeds that are added to it."""
        for life in one_life():
            with ExitStack() as feeds:
                yield Block(feeds, life)

    def add(self, block: "Block", feed: str) -> None:
        """Wait until the block may get from this feed, too."""
        if feed not in block.feeds:
            block.stack.enter_context(self.block(feed, block.owner))
            block.feeds.add(feed)

    def _wait(self, mine: OpenFeed) -> None:
        turn: SimpleQueue[None] = SimpleQueue()  # which no interrupt halves, as it does an Event
        try:
            self._waiting.append(turn)
            looks = 0
            while not self._opens(mine):
                with suppress(Empty):
                    turn.get(timeout=LOOK_SECONDS)
                self._check()
                looks += 1
                if looks == LOOKS:
                    gc.collect()
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _opens(self, mine: OpenFeed) -> bool:
        """Let a block get, unless another thread's is open; refuse one that an open one is of."""
        with self._lock:
            if self._refuses(mine):
                gc.collect()
            opened = self._open_feeds()
            if any(each.thread is not mine.thread for each in opened):
                return False
            check_apart(mine.feed, (each.feed for each in opened))
            if self._raised:
                self._put_back(self._raised)
                self._raised = ()
            self._opened = [weakref.ref(each) for each in (*opened, mine)]
            return True

    def _refuses(self, mine: OpenFeed) -> bool:
        """Whether a block would be refused now; keeps nothing of those that are open."""
        opened = self._open_feeds()
        if any(each.thread is not mine.thread for each in opened):
            return False
        try:
            check_apart(mine.feed, (each.feed for each in opened))
        except InvalidRequest:
            return True
        return False

    def _open_feeds(self) -> list[OpenFeed]:
        """Those whose blocks are not over."""
        found = (reference() for reference in self._opened)
        return [each for each in found if each is not None and not each.is_over]


class Block:
    """A transaction's: the feeds that it gets from, all of them until it is over."""

    def __init__(self, stack: ExitStack, owner: Owner) -> None:
        self.stack = stack
        self.owner = owner
        self.feeds: set[str] = set()
