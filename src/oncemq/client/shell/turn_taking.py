"""Who gets at a time: one thread, or one task; and what it may get inside a block of its own.

A block (`consume`, an iteration of `listen`, a transaction) has messages that are not settled yet.
Another get of the same topic would settle later ones, and the cursor has only one place: those of
the block would count as settled, and be lost when it raises. So inside a block its own thread or
task may get from other topics, and is refused the rest; everybody else waits until it is over.
"""

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from oncemq.errors import InvalidRequest
from oncemq.session.subscriber import is_single

LOOK_SECONDS = 0.2  # how often who waits looks up, when nobody says that a block is over


@dataclass(slots=True, eq=False, weakref_slot=True)
class Block:
    """What a thread gets from, until the block is over."""

    feed: str
    thread: threading.Thread
    over: bool = False


class Getting:
    """For threads: the blocks that are open, all of them of one thread.

    A block ends wherever it is left: a listener that one thread has begun may be advanced, closed
    or collected by another, as web frameworks do with what they hand to a pool of threads. So no
    lock is held meanwhile, which only its own thread could release. One that a signal handler kept
    from saying that it is over is over when nobody has it any more.

    A block that raises puts back what it took. A signal handler that raises just then may keep it
    from that; so the feed is noted (by an assignment, which nothing halves), and whoever gets next
    puts it back once more before anything else.
    """

    def __init__(self, put_back: Callable[[tuple[str, ...]], None]) -> None:
        # Taken with `with lock`, in one step of the interpreter, which no interrupt halves.
        self._lock = threading.RLock()
        self._opened: list[weakref.ref[Block]] = []
        self._waiting: list[SimpleQueue[None]] = []
        self._raised: tuple[str, ...] = ()
        self._put_back = put_back

    @contextmanager
    def block(self, feed: str) -> Generator[None]:
        """Get from this feed, and work on it, until the block ends."""
        block = Block(feed, threading.current_thread())
        try:
            if not self._opens(block):
                self._wait(block)
            try:
                yield
            except BaseException:
                self._raised = (*self._raised, feed)
                raise
        finally:
            block.over = True
            for turn in tuple(self._waiting):
                turn.put(None)

    def _wait(self, block: Block) -> None:
        turn: SimpleQueue[None] = SimpleQueue()  # which no interrupt halves, as it does an Event
        try:
            self._waiting.append(turn)
            while not self._opens(block):
                with suppress(Empty):
                    turn.get(timeout=LOOK_SECONDS)
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _opens(self, block: Block) -> bool:
        """Let a block get, unless another thread's is open; refuse one that an open one is of."""
        with self._lock:
            opened = [each for each in (found() for found in self._opened) if each is not None]
            opened = [each for each in opened if not each.over]
            if any(each.thread is not block.thread for each in opened):
                return False
            _check_apart(block.feed, (each.feed for each in opened))
            if self._raised:
                self._put_back(self._raised)
                self._raised = ()
            self._opened = [weakref.ref(each) for each in (*opened, block)]
            return True


class AsyncBlock:
    """What a block gets from. It is open from its first feed on, until it is over.

    A listener's block has an owner, the iterator that its user has. When nobody has that any more,
    `give_up` puts back what the listener has taken; the loop closes the listener itself later.
    """

    def __init__(
        self,
        owner: Callable[[], object] = lambda: True,
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        self.owner = owner
        self.give_up = give_up
        self.feeds: list[str] = []
        self.around: tuple[AsyncBlock, ...] = ()
        self.over = False


# The blocks around what runs now. A task that is started inside a block begins with its blocks, as
# `asyncio.wait_for` does with what it waits for; so these, and not the task, say who is inside.
_AROUND: ContextVar[tuple[AsyncBlock, ...]] = ContextVar("oncemq_blocks", default=())


@dataclass(slots=True, eq=False)
class Waiting:
    """A block that waits for its turn to get from a feed; the turn may be a refusal."""

    block: AsyncBlock
    feed: str
    around: tuple[AsyncBlock, ...]
    turn: "asyncio.Future[InvalidRequest | None]"


class AsyncGetting:
    """For tasks: the same, and a task that was started inside a block is inside.

    Law: a block may get when every block that is open is around it. So those begun inside one
    block take turns; and where the outer one ends first, those keep everybody else out until they
    are over. Those who wait have their turns in the order of asking. `check` refuses who must not
    wait here: a forked process has no loop that would wake it.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._opened: list[AsyncBlock] = []
        self._waiting: list[Waiting] = []

    @asynccontextmanager
    async def block(self, feed: str) -> AsyncGenerator[None]:
        """Get from this feed, and work on it, until the block ends."""
        with self.inside(AsyncBlock()) as block:
            await self.add(block, feed)
            yield

    @contextmanager
    def inside(self, block: AsyncBlock) -> Generator[AsyncBlock]:
        """What runs in here, and every task that is started in here, is inside this block."""
        block.around = tuple(each for each in _AROUND.get() if not each.over)
        _AROUND.set((*block.around, block))
        try:
            yield block
        finally:
            self.end(block)
            _AROUND.set(tuple(each for each in _AROUND.get() if not each.over))

    async def add(self, block: AsyncBlock, feed: str) -> None:
        """Wait until the block may get from this feed, too."""
        self._check()
        for each in [each for each in self._opened if each.owner() is None]:
            each.give_up()
            self.end(each)
        around = (*block.around, *_AROUND.get())
        _check_apart(feed, _feeds((each for each in self._opened if each in around), block))
        turn: asyncio.Future[InvalidRequest | None] = asyncio.get_running_loop().create_future()
        waiting = Waiting(block, feed, around, turn)
        self._waiting.append(waiting)
        self._let_in()
        try:
            refusal = await turn
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
        if refusal is not None:
            raise refusal

    def end(self, block: AsyncBlock) -> None:
        """It is over; nothing changes where it was before."""
        block.over = True
        if block in self._opened:
            self._opened.remove(block)
        self._let_in()

    def _let_in(self) -> None:
        """Those whose turn has come; each is in the way of those behind it."""
        for waiting in tuple(self._waiting):
            block, around, turn = waiting.block, waiting.around, waiting.turn
            if turn.done():
                continue  # it gave up, or was let in
            if block.over:
                turn.set_result(None)  # nothing to wait for: its verb says that it is over
            elif all(each is block or each in around for each in self._opened):
                try:
                    _check_apart(waiting.feed, _feeds(self._opened, block))
                except InvalidRequest as refusal:  # what is around has got from it meanwhile
                    turn.set_result(refusal)
                else:
                    self._open(block, waiting.feed)
                    turn.set_result(None)

    def _open(self, block: AsyncBlock, feed: str) -> None:
        if feed not in block.feeds:
            block.feeds.append(feed)
        if block not in self._opened:
            self._opened.append(block)


def _feeds(blocks: Iterable[AsyncBlock], but: AsyncBlock) -> list[str]:
    return [feed for each in blocks if each is not but for feed in each.feeds]


def _check_apart(feed: str, opened: Iterable[str]) -> None:
    for other in opened:
        if feed == other or not (is_single(feed) and is_single(other)):
            raise InvalidRequest(
                f"a block that gets from {_named(other)} is open here: end it before getting "
                f"from {_named(feed)} (close a listener that you left and still have, as "
                "contextlib.closing and contextlib.aclosing do), or use a second client"
            )


def _named(feed: str) -> str:
    return repr(feed.replace("\n", ", ")) if feed else "any topic"
