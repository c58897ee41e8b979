"""Who gets at a time, of the tasks that share a client; see `client.shell.turn_taking`."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from oncemq.client.aio.listener import Owner
from oncemq.client.shell.turn_taking import check_apart
from oncemq.errors import InvalidRequest, OnceMQError


class AsyncBlock:
    """What a block gets from. It is open from its first feed on, until it is over.

    A listener's block has an owner, the iterator that its user has. When nobody has that any more,
    `give_up` puts back what the listener has taken; the loop closes the listener itself later.
    """

    def __init__(
        self,
        owner: Owner | None = None,
        give_up: Callable[[], None] | None = None,
    ) -> None:
        self._owner = owner
        self._give_up = give_up
        self.loop: asyncio.AbstractEventLoop | None = None  # that it waited for its turn in
        self.feeds: list[str] = []
        self.around: tuple[AsyncBlock, ...] = ()
        self.over = False

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody has the iterator any more that this block is of."""
        return self._owner is not None and self._owner() is None

    def give_up(self) -> None:
        """Put back what was taken."""
        if self._give_up is not None:
            self._give_up()


# The blocks around what runs now. A task that is started inside a block begins with its blocks, as
# `asyncio.wait_for` does with what it waits for; so these, and not the task, say who is inside.
_AROUND: ContextVar[tuple[AsyncBlock, ...]] = ContextVar("oncemq_blocks", default=())


@dataclass(slots=True, eq=False)
class Waiting:
    """A block that waits for its turn to get from a feed; the turn may be a refusal."""

    block: AsyncBlock
    feed: str
    around: tuple[AsyncBlock, ...]
    turn: "asyncio.Future[OnceMQError | None]"


class AsyncGetting:
    """For tasks: the same, and a task that was started inside a block is inside.

    Law: a block may get when every block that is open is around it. So those begun inside one
    block take turns; and where the outer one ends first, those keep everybody else out until they
    are over. Those who wait have their turns in the order of asking. `check` refuses who must not
    wait here: a forked process has no loop that would wake it. What was open in a loop that was
    closed is over, and `put_back` puts back what was taken there.
    """

    def __init__(
        self, check: Callable[[], None], put_back: Callable[[Iterable[str]], None]
    ) -> None:
        self._check = check
        self._put_back = put_back
        self._opened: list[AsyncBlock] = []
        self._waiting: list[Waiting] = []

    @asynccontextmanager
    async def block(
        self, feed: str, owner: Owner | None = None, give_up: Callable[[], None] | None = None
    ) -> AsyncGenerator[None]:
        """Get from this feed, and work on it, until the block ends.

        A listener's ends also when nobody has its iterator any more, which `owner` tells; then
        `give_up` is called.
        """
        with self.inside(owner, give_up) as block:
            await self.add(block, feed)
            yield

    @contextmanager
    def inside(
        self, owner: Owner | None = None, give_up: Callable[[], None] | None = None
    ) -> Generator[AsyncBlock]:
        """What runs in here, and every task that is started in here, is inside this block.

        It gets from nothing yet; it gets from the feeds that are added to it.
        """
        block = AsyncBlock(owner, give_up)
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
        for each in [each for each in self._opened if each.is_abandoned]:
            each.give_up()
            self.end(each)
        around = (*block.around, *_AROUND.get())
        check_apart(feed, _feeds((each for each in self._opened if each in around), block))
        block.loop = asyncio.get_running_loop()
        turn: asyncio.Future[OnceMQError | None] = block.loop.create_future()
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

    def refuse_all(self, error: OnceMQError) -> None:
        """Nobody who waits will have a turn any more: the client is closed."""
        for waiting in self._waiting:
            if not waiting.turn.done():
                waiting.turn.set_result(error)

    def end_closed(self) -> None:
        """End what was open, or waited, in loops that were closed: nothing goes on there."""
        self._waiting = [each for each in self._waiting if not each.turn.get_loop().is_closed()]
        for each in tuple(self._opened):
            if each.loop is not None and each.loop.is_closed():
                self._put_back(each.feeds)
                self.end(each)

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
                    check_apart(waiting.feed, _feeds(self._opened, block))
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
