"""Transactions from the client's side: inputs and outputs that take effect together.

Laws: outputs are gathered, and staged as they grow, so memory is bounded; the commit is one
request under an owner and a number of its own, and is repeated under these until it is answered.
What became of a commit without an answer is learned before the next get or commit: it has happened
then, or never will. The cursor on this client's disk follows the server's, never leads it.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from oncemq.client.checks import size_of
from oncemq.client.engine.engine import Engine
from oncemq.client.puts.discards import discarded
from oncemq.client.puts.put_limits import check_outputs
from oncemq.client.refusals import error_of
from oncemq.client.ticket import Ticket, Until, Verb
from oncemq.client.values import Commit as CommitReceipt
from oncemq.client.values import Message, commit_receipt, input_of, must_be_of
from oncemq.client.verbs.messages import take
from oncemq.errors import Corrupt, InvalidRequest
from oncemq.protocol.names import ANONYMOUS_EPOCH, Epoch, Offset
from oncemq.protocol.replies import CommitDone, RefusedReply, Reply
from oncemq.protocol.requests import CommitRequest, Piece, Request
from oncemq.session.prefetched import is_single
from oncemq.wire import batch

TOPICS_MAX = 255  # that get one message at once
STAGE_BYTES = 1 << 20  # outputs gathered here go into a stage
STAGE_MESSAGES = 5_000
NOT_THERE_YET = ("stage_unknown", "stage_incomplete")  # a commit that overtook its stage


def ask_once(engine: Engine, make: Callable[[Epoch], Request]) -> Verb[Reply]:
    """Ask until it is answered; the answer, also when that is a refusal."""
    if engine.failure is not None:
        raise engine.failure.with_traceback(None)
    ticket: Ticket[Reply] = Ticket()
    token = engine.begin(
        lambda: (make(engine.client_epoch or ANONYMOUS_EPOCH), None),
        lambda reply, _: ticket.fill(reply),
    )
    try:
        yield ticket
    finally:
        engine.drop(token)
    if engine.failure is not None:
        raise engine.failure.with_traceback(None)
    return ticket.result()


class TransactionWork:
    """One transaction, without waiting: both shells carry its verbs out."""

    def __init__(self, engine: Engine, *, required: bool = True) -> None:
        self._engine = engine
        self._required = required  # refused where a topic would discard its part
        self._home = engine.transactions
        self._session = self._home.lease()
        self._staged_before = self._session.stage.count
        self._first: dict[str, Message] = {}  # of each topic, the first message taken
        self._last: dict[str, Message] = {}
        self._feeds: dict[str, None] = {}
        self._pieces: list[tuple[tuple[str, ...], int, int]] = []  # topics, start, count
        self._gathered: list[tuple[tuple[str, ...], batch.Item]] = []
        self._gathered_bytes = 0
        self._sent = 0  # the number of the commit, once it was asked for
        self._resolved = False  # whether it is known what became of it
        self._over = False  # whether it takes no more
        self.result: CommitReceipt | None = None

    # Inputs

    def take(self, topic: str, limit: int, wait_ms: int) -> Verb[list[Message]]:
        """The next messages, settled by the commit and only by it."""
        self._must_be_open()
        if self._home.other_than(self) is not None:
            raise InvalidRequest("another transaction of this client gets: end that one first")
        if self._home.taking is None:
            yield from self._home.certain()
            self._home.taking = self
        if self._feeds and not (is_single(topic) and all(map(is_single, self._feeds))):
            raise InvalidRequest(
                "a transaction gets from any topic once, and from no other then; name the topics"
            )
        self._feeds[topic] = None
        while True:
            messages = yield from take(self._engine, topic, limit, wait_ms, inside=True)
            if self._over or self._sent:  # while it waited: these are not of the commit
                self._engine.subscriber.prefetched.fetch_again(topic)
            self._must_be_open()
            fresh = [each for each in messages if self._is_fresh(each)]
            for message in fresh:
                self._first.setdefault(message.topic, message)
                self._last[message.topic] = message
            if fresh or not messages:
                return fresh

    def _is_fresh(self, message: Message) -> bool:
        """A feed that began anew gives again what this transaction has."""
        last = self._last.get(message.topic)
        return last is None or message.offset > last.offset

    # Outputs

    def put(self, topics: Sequence[str], items: Sequence[batch.Item]) -> Verb[None]:
        """Add outputs, each for all of these topics; what has grown large goes into the stage."""
        self._must_be_open()
        named = tuple(dict.fromkeys(topics))
        if not 1 <= len(named) <= TOPICS_MAX or len(named) != len(topics):
            raise InvalidRequest(f"a message goes to 1 to {TOPICS_MAX} topics, each named once")
        check_outputs(named)
        for item in items:
            self._engine.outflow.check(named[0], size_of(item), 0)
            self._gathered.append((named, item))
            self._gathered_bytes += len(item.payload)
            if self._gathered_bytes >= STAGE_BYTES or len(self._gathered) >= STAGE_MESSAGES:
                self._stage()
                yield self._session.stage.flows
                self._session.stage.check()

    def _stage(self) -> None:
        """What is gathered becomes a batch of the stage."""
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if not gathered:
            return
        if all(len(topics) == 1 for topics, _ in gathered):
            gathered.sort(key=lambda each: each[0])  # stable: a topic's order stays
        stage = self._session.stage
        start = stage.count
        for place, (topics, _) in enumerate(gathered):
            last = self._pieces[-1] if self._pieces else None
            if last is not None and (topics, start + place) == (last[0], last[1] + last[2]):
                self._pieces[-1] = topics, last[1], last[2] + 1
            else:
                self._pieces.append((topics, start + place, 1))
        columns, body = batch.encode([item for _, item in gathered])
        stage.put(len(gathered), columns, body)

    # The end

    @property
    def in_doubt(self) -> tuple[str, int] | None:
        """The owner and number of a commit of which it is not known whether it has happened."""
        return (self._session.owner, self._sent) if self._sent and not self._resolved else None

    def commit(self) -> Verb[CommitReceipt]:
        """All of it takes effect, or none; what the topics got."""
        self._must_be_open()
        engine, session = self._engine, self._session
        yield from self._home.learn()  # who never gets would keep them for good
        engine.outflow.seal_all()
        yield Until(lambda: engine.outflow.idle)  # what this client put before comes before
        self._stage()
        number = session.next_number()
        make = self._request(number)
        self._sent = number
        reply = yield from ask_once(engine, make)
        if isinstance(reply, RefusedReply) and reply.code in NOT_THERE_YET:
            yield session.stage.idle
            if session.stage.error is None:
                reply = yield from ask_once(engine, make)
        if isinstance(reply, RefusedReply):
            # Why a batch was refused says more than that the commit misses it.
            error = session.stage.error or engine.context.error_of(reply)
            yield from self.resolve()  # another copy may be on its way yet
            if self.result is None:
                raise error
        elif not self._resolved:
            assert isinstance(reply, CommitDone)
            self._committed(reply)
        assert self.result is not None
        first = (receipts[0] for receipts in self.result.receipts.values())
        if self._required and (unwanted := discarded(first)):
            raise unwanted
        return self.result

    def resolve(self) -> Verb[None]:
        """Learn whether the commit has happened, and if not, see to it that it never will.

        An empty commit under the next number does both: no earlier one takes effect after it,
        and its answer names the one that did before.
        """
        if self._resolved:
            return
        next_number = self._session.number = max(self._session.number, self._sent + 1)
        reply = yield from self._ask_empty(next_number)
        happened = reply.before == self._sent
        if happened:
            reply = yield from self._ask_empty(self._sent)  # what the topics got
        if self._resolved:  # by another thread, meanwhile
            return
        if happened:
            self._committed(reply)
        else:
            self._resolved = True
            self._give_up()

    def _ask_empty(self, number: int) -> Verb[CommitDone]:
        engine, owner = self._engine, self._session.owner
        reply = yield from ask_once(
            engine,
            lambda client_epoch: CommitRequest(engine.client, client_epoch, owner, number, False),
        )
        if isinstance(reply, RefusedReply):
            raise error_of(reply)
        assert isinstance(reply, CommitDone)
        return reply

    def _check_receipts(self, reply: CommitDone) -> None:
        """Refuse receipts of other messages than were put: that server is not believed."""
        put: Counter[str] = Counter()
        for topics, _, count in self._pieces:
            put.update(dict.fromkeys(topics, count))
        got = {each.topic: each.count for each in reply.results}
        if got != put and not (reply.already and not got):  # that was long ago, and is forgotten
            error = Corrupt(
                f"{dict(put)} were put in a transaction, by topics, and the server gave receipts "
                f"for {got}: nobody knows what it has stored. Is it a OnceMQ server?"
            )
            self._engine.fail(error)
            raise error

    def _committed(self, reply: CommitDone) -> None:
        self._check_receipts(reply)
        self._resolved = True
        self.result = commit_receipt(reply)
        for receipts in self.result.receipts.values():
            self._engine.outflow.outcomes.discards.note(receipts[0])
        self._session.committed(self._sent)
        self._home.give_back(self._session)
        self._end()
        self._settle()

    def _give_up(self) -> None:
        """Nothing of it has taken effect, nor will."""
        self._session.gave_up(self._staged_before)
        self._home.give_back(self._session)

    def _request(self, number: int) -> Callable[[Epoch], Request]:
        engine, session = self._engine, self._session
        pieces = tuple(
            Piece(topic, session.stage.name, Offset(start), count)
            for topics, start, count in self._pieces
            for topic in topics
        )
        must_be_of(list(self._last.values()), engine.generation)
        inputs = tuple(input_of(first, self._last[topic]) for topic, first in self._first.items())

        def make(client_epoch: Epoch) -> Request:
            return CommitRequest(
                engine.client, client_epoch, session.owner, number, False, pieces, inputs, False,
                required=self._required,
            )  # fmt: skip

        return make

    def _settle(self) -> None:
        """The server has moved the cursors: so does this client's disk."""
        engine = self._engine
        if self._last:
            settled = engine.subscriber.cursors.moves(list(self._last.values()))
            engine.telling.record(list(self._last.values()))
            engine.subscriber.told.moved_there(settled)

    def abort(self) -> None:
        """End it, if it was not committed: nothing of it takes effect, what was taken comes again.

        Unless a commit was sent and not answered: what became of that is learned before
        anything is got again.
        """
        if self._over:
            return
        self._over = True
        self._end()
        if self.result is not None:
            return
        for feed in self._feeds:
            self._engine.subscriber.prefetched.put_back(feed)
        if self._resolved:
            return
        if self._sent:
            self._home.doubt(self)
        else:
            self._give_up()

    @property
    def account(self) -> str:
        """Whose it is, what it took and puts, and whether it is over: for a repr."""
        took = (f"{each.id} to @{self._last[name].offset}" for name, each in self._first.items())
        puts = len(self._gathered) + sum(count for _, _, count in self._pieces)
        standing = "open" if not self._over else "committed" if self.result else "not committed"
        inputs = ", ".join(took) or "nothing"
        return f"of {self._engine.client!r} {standing}: took {inputs}; messages put: {puts}"

    def _end(self) -> None:
        if self._home.taking is self:
            self._home.taking = None

    def _must_be_open(self) -> None:
        if self._over or self._sent:
            raise InvalidRequest("the transaction is over; begin another")
        if self._engine.failure is not None:
            raise self._engine.failure.with_traceback(None)
