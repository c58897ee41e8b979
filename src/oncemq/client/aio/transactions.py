"""Transactions, stages and puts to several topics, for asyncio; see `blocking_transactions`."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from oncemq.client.aio.runner import AsyncRunner
from oncemq.client.blocking.transactions import Topics, named
from oncemq.client.bodies import encode_many, items_of
from oncemq.client.checks import item_of, wait_ms_of
from oncemq.client.engine.engine import Engine
from oncemq.client.engine.stage_puts import StageLine, StageToken
from oncemq.client.shell.turn_taking import AsyncBlock
from oncemq.client.values import Commit, Headers, Message, Receipt, Receipts
from oncemq.client.verbs import staged_commits
from oncemq.client.verbs.transaction_work import TransactionWork as Work
from oncemq.protocol.step import Body
from oncemq.wire import batch


class AsyncTransaction:
    """What `async with client.transaction() as tx` gives."""

    def __init__(
        self,
        turns: AsyncRunner,
        work: Work,
        timeout: float,
        block: AsyncBlock,
    ) -> None:
        self._turns = turns
        self._work = work
        self._timeout = timeout
        self._block = block  # its own, whichever task gets with it

    def __repr__(self) -> str:
        return f"<AsyncTransaction {self._work.account}>"

    async def get(
        self, topic: str | None = None, *, limit: int = 100, wait: float = 0.0
    ) -> list[Message]:
        """The next messages; settled when the block ends well, and only then."""
        feed = topic or ""
        await self._turns.getting.add(self._block, feed)  # others get after it
        verb = self._work.take(feed, limit, wait_ms_of(wait))
        return await self._turns.run(verb, timeout=self._timeout + wait)

    async def put(
        self,
        topic: Topics,
        payload: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> None:
        """A message for a topic, or for up to 255 of them at once."""
        item = item_of(payload, key, headers)
        await self._turns.run(self._work.put(named(topic), [item]))

    async def put_many(
        self,
        topic: Topics,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        """Messages for a topic, or each of them for several."""
        await self._turns.run(self._work.put(named(topic), items_of(payloads, keys, headers)))

    @property
    def result(self) -> Commit | None:
        """What came of it, once it is committed."""
        return self._work.result

    @property
    def receipts(self) -> dict[str, Receipts]:
        """What each topic got, in the order of the puts; empty until it is committed."""
        return self._work.result.receipts if self._work.result else {}


class AsyncStage:
    """Messages on the server that no reader sees until a commit names them."""

    def __init__(self, engine: Engine, turns: AsyncRunner, line: StageLine) -> None:
        self._engine = engine
        self._turns = turns
        self._line = line

    def __repr__(self) -> str:
        name, client = self._line.name.hex()[:8], self._engine.client
        return f"<AsyncStage {name} of {client!r}: {self._line.count} messages>"

    async def put_many(
        self,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        """Put a batch; waits only while much is on the way."""
        if payloads:
            columns, body = encode_many(payloads, keys, headers)
            await self.put_batch(len(payloads), columns, body)

    async def put_batch(self, count: int, columns: int, body: Body) -> None:
        """Put a batch that is made already, as `oncemq.wire.batch` describes it."""
        verb = staged_commits.stage_put(
            self._engine, self._line, count=count, columns=columns, body=body
        )
        await self._turns.run(verb)

    async def close(self) -> StageToken:
        """Wait until all of it is on the server's disk; what `commit` needs, on any machine."""
        return await self._turns.run(staged_commits.stage_close(self._line))

    def drop(self) -> None:
        """Give it up; else it is given up when it was silent for `stage_ttl`, a day by default."""
        self._line.drop()
        self._turns.pump()


class AsyncTransacting:
    """What `AsyncClient` makes many things one with."""

    _engine: Engine
    _turns: AsyncRunner
    _timeout: float

    @asynccontextmanager
    async def transaction(self, *, required: bool = True) -> AsyncGenerator[AsyncTransaction]:
        """Messages got and put in the block take effect together when it ends well, or not at all.

        An exception gives everything up: nothing was put, and the messages come again. So does
        `Unwanted`: a topic that was put to has no subscription and keeps nothing, so nobody would
        get it. With `required=False` such a topic discards its part, and the receipt says so.
        """
        with self._turns.getting.inside(AsyncBlock()) as block:
            work = Work(self._engine, required=required)
            try:
                yield AsyncTransaction(self._turns, work, self._timeout, block)
                await self._turns.run(work.commit())
            finally:
                work.abort()  # unless it was committed
                self._turns.pump()

    def stage(self, name: bytes | None = None) -> AsyncStage:
        """A stage of messages that `commit` publishes, here or elsewhere."""
        return AsyncStage(self._engine, self._turns, staged_commits.new_line(self._engine, name))

    async def commit(
        self,
        owner: str,
        number: int,
        targets: Sequence[tuple[str, StageToken]],
        *,
        bond: str = "",
        follows: bool = False,
        lasting: bool = True,
        required: bool = True,
        contents: int = 0,
        after: str | int = "",
    ) -> Commit:
        """Publish stages to topics, in order, all at once, and once for this owner and number."""
        verb = staged_commits.commit(
            self._engine,
            owner,
            number,
            targets,
            bond=bond,
            follows=follows,
            lasting=lasting,
            required=required,
            contents=contents,
            after=after,
        )
        return await self._turns.run(verb)

    async def drop_stage(self, token: StageToken) -> bool:
        """Give a stage up that will not be committed; False when it was not there any more."""
        return await self._turns.run(staged_commits.drop(self._engine, token))

    async def _put_to_all(
        self, topics: Sequence[str], item: batch.Item, *, required: bool
    ) -> list[Receipt]:
        """One message to several topics, atomically."""
        work = Work(self._engine, required=required)
        try:
            await self._turns.run(work.put(named(topics), [item]))
            result = await self._turns.run(work.commit())
        finally:
            work.abort()
            self._turns.pump()
        return [result.receipts[topic][0] for topic in topics]
