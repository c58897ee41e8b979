# Generated from client/aio/transactions.py by tools/unasync.py; do not edit.
"""Transactions, stages and puts to several topics, for the blocking client."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial

from oncemq.client.blocking.base import BaseClient
from oncemq.client.blocking.getting import Block
from oncemq.client.blocking.runner import Runner
from oncemq.client.bodies import encode_many, items_of
from oncemq.client.checks import Topics, item_of, named, wait_ms_of
from oncemq.client.engine.engine import Engine
from oncemq.client.engine.stage_puts import StageLine, StageToken
from oncemq.client.shell.handouts import Handouts
from oncemq.client.shell.turn_taking import one_life
from oncemq.client.values import Commit, Headers, Message, Receipt, Receipts
from oncemq.client.verbs import staged_commits
from oncemq.client.verbs.transaction_work import TransactionWork as Work
from oncemq.protocol.step import Body
from oncemq.wire import batch


class Transaction:
    """Gets and puts that take effect together: `with client.transaction() as tx`."""

    def __init__(
        self,
        turns: Runner,
        work: Work,
        timeout: float,
        block: Block,
        handouts: Handouts,
    ) -> None:
        self._turns = turns
        self._work = work
        self._timeout = timeout
        self._block = block  # its own, whoever gets with it
        self._handouts = handouts

    def __repr__(self) -> str:
        return f"<Transaction {self._work.account}>"

    def get(
        self, topic: str | None = None, *, limit: int = 100, wait: float = 0.0
    ) -> list[Message]:
        """The next messages; settled when the block ends well, and only then.

        Without a topic, from any subscribed one: once in a transaction. Refused while there are
        messages that a `get` has settled and, interrupted, not returned: take them first.
        """
        feed = topic or ""
        self._turns.getting.add(self._block, feed)  # others get after it
        with self._turns.lock:
            self._handouts.check_none(feed)
        verb = self._work.take(feed, limit, wait_ms_of(wait))
        return self._turns.run(verb, timeout=self._timeout + wait)

    def put(
        self,
        topic: Topics,
        payload: bytes,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> None:
        """A message for a topic, or for up to 255 of them at once."""
        item = item_of(payload, key, headers)
        self._turns.run(self._work.put(named(topic), [item]))

    def put_many(
        self,
        topic: Topics,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        """Messages for a topic, or each of them for several."""
        self._turns.run(self._work.put(named(topic), items_of(payloads, keys, headers)))

    @property
    def result(self) -> Commit | None:
        """What came of it, once it is committed."""
        return self._work.result

    @property
    def receipts(self) -> dict[str, Receipts]:
        """What each topic got, in the order of the puts; empty until it is committed."""
        return self._work.result.receipts if self._work.result else {}


class Stage:
    """Messages on the server that no reader sees until a commit names them."""

    def __init__(self, engine: Engine, turns: Runner, line: StageLine) -> None:
        self._engine = engine
        self._turns = turns
        self._line = line

    def __repr__(self) -> str:
        name, client = self._line.name.hex()[:8], self._engine.client
        return f"<Stage {name} of {client!r}: {self._line.count} messages>"

    def put_many(
        self,
        payloads: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        """Put a batch; waits only while much is on the way."""
        if payloads:
            columns, body = encode_many(payloads, keys, headers)
            self.put_batch(len(payloads), columns, body)

    def put_batch(self, count: int, columns: int, body: Body) -> None:
        """Put a batch that is made already, as `oncemq.wire.batch` describes it."""
        verb = staged_commits.stage_put(
            self._engine, self._line, count=count, columns=columns, body=body
        )
        self._turns.run(verb)

    def close(self) -> StageToken:
        """Wait until all of it is on the server's disk; what `commit` needs, on any machine."""
        return self._turns.run(staged_commits.stage_close(self._line))

    def drop(self) -> None:
        """Give it up; else it is given up when it was silent for `stage_ttl`, a day by default."""
        with self._turns.lock:
            self._line.drop()
            self._turns.pump()


def _end(work: Work, turns: Runner) -> None:
    work.abort()  # unless it was committed
    turns.pump()


class Transacting(BaseClient):
    """What `Client` makes many things one with."""

    @contextmanager
    def transaction(self, *, required: bool = True) -> Generator[Transaction]:
        """Messages got and put in the block take effect together when it ends well, or not at all.

        An exception gives everything up: nothing was put, and the messages come again. So does
        `Unwanted`: a topic that was put to has no subscription and keeps nothing, so nobody would
        get it. With `required=False` such a topic discards its part, and the receipt says so.
        """
        with self._turns.getting.inside() as block:
            for life in one_life():
                with self._turns.lock:
                    self._engine.check_open()
                    work = Work(self._engine, required=required)
                    self._engine.transactions.begun(life, work.abort)
                try:
                    yield Transaction(self._turns, work, self._timeout, block, self._handouts)
                    self._turns.run(work.commit())
                finally:
                    self._turns.change(partial(_end, work, self._turns))

    def stage(self, name: bytes | None = None) -> Stage:
        """A stage of messages that `commit` publishes, here or elsewhere."""
        return Stage(self._engine, self._turns, staged_commits.new_line(self._engine, name))

    def commit(
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
        """Publish stages to topics, in order, all at once, and once for this owner and number.

        A number that the owner has used (or passed over) says `already` and adds nothing,
        however long ago that was. With a `bond` (such as the id of a checkpoint) the owner's
        name is taken: a commit with another bond is refused, and so is a number below the last;
        with `follows` also one that is not the next, and the bond is this owner's alone. With
        `contents` (see `oncemq.wire.contents`) one of the owner's last four numbers is refused
        when it comes again with other messages. With `after`, the mark of the commit before as its
        receipt had it (or its number), `HistoryLost` where the server does not have that commit
        any more, or never had it on this branch. An owner that does not last has a leading `_` and
        is forgotten a day after its last commit. `Unwanted` when a topic would discard its
        messages because nobody would get them; `required=False` lets it.
        """
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
        return self._turns.run(verb)

    def drop_stage(self, token: StageToken) -> bool:
        """Give a stage up that will not be committed; False when it was not there any more."""
        return self._turns.run(staged_commits.drop(self._engine, token))

    def _put_to_all(
        self, topics: Sequence[str], item: batch.Item, *, required: bool
    ) -> list[Receipt]:
        """One message to several topics, atomically."""
        with self._turns.lock:
            work = Work(self._engine, required=required)
        try:
            self._turns.run(work.put(named(topics), [item]))
            result = self._turns.run(work.commit())
        finally:
            self._turns.change(partial(_end, work, self._turns))
        return [result.receipts[topic][0] for topic in topics]
