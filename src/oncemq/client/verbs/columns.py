"""Stored messages in the columns they are stored in: no Python step per message.

For readers that keep their own cursor and want much at once (Spark). Law: what is given is
verified, dense and in order; the next piece is on its way while one is worked on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from oncemq.client.checks import wait_ms_of
from oncemq.client.engine.engine import Engine
from oncemq.client.ticket import Ticket
from oncemq.client.values import verified
from oncemq.client.verbs.messages import Verb, ask
from oncemq.errors import Corrupt, OnceMQError
from oncemq.protocol.names import Generation, Offset, TopicId
from oncemq.protocol.records import Run
from oncemq.protocol.replies import Done, Ends, LostMessages, Messages
from oncemq.protocol.requests import Lease, Read, Settle, Settled, WatchEnds
from oncemq.protocol.step import Body

READ_BYTES = 8 << 20  # of one reply; two of them are held at a time. A larger batch comes whole.


class RangeLost(OnceMQError):
    """A range has a hole: its messages are gone, and a person agreed to go on without them."""

    code = "messages_lost"

    def __init__(self, lost: LostMessages) -> None:
        self.end_offset = lost.end_offset
        super().__init__(
            f"{lost.topic}@{lost.first_offset} up to @{lost.end_offset} is lost at the server: a "
            "person agreed to go on without it (once repair --accept-loss)"
        )


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """Consecutive messages of one topic: what they share, and the body as `wire.batch` has it.

    `columns` says which columns stand in the body; `runs` who numbered the messages, and when
    they were stored.
    """

    topic: str
    topic_id: TopicId
    first_offset: Offset
    count: int
    columns: int
    runs: tuple[Run, ...]
    body: Body

    @property
    def end_offset(self) -> int:
        """The offset after the last."""
        return self.first_offset + self.count


class RangeRead:
    """One range of a topic, read piece by piece, by either shell: what is asked, what came."""

    def __init__(self, engine: Engine, topic: str, *, start: int, stop: int) -> None:
        self._engine, self._topic = engine, topic
        self._next, self._stop = start, stop
        self._token, self.ticket = 0, Ticket[list[ColumnBatch]]()
        self._hole: LostMessages | None = None  # right where the range goes on

    @property
    def is_over(self) -> bool:
        """Whether all of it was asked for and came."""
        return self._next >= self._stop

    @property
    def place(self) -> str:
        """Where it goes on, in words."""
        return f"{self._topic}@{self._next}"

    def ask(self) -> None:
        """Ask for the next piece; `ticket` is for it from now on."""
        read = Read(
            self._topic, Offset(self._next), self._stop - self._next, READ_BYTES, whole=True
        )
        self.ticket = Ticket[list[ColumnBatch]]()
        self._token = self._engine.ask_messages(read, self._take, self.ticket)

    def came(self) -> list[ColumnBatch]:
        """The piece that was asked for; none where the topic ends before the range does."""
        found = self.ticket.result()
        if self._hole is not None:
            raise RangeLost(self._hole)
        self._next = found[-1].end_offset if found else self._stop
        return found

    def drop(self) -> None:
        """Nobody wants what was asked for last."""
        self._engine.drop(self._token)

    def _take(self, reply: Messages, bodies: Sequence[Body]) -> list[ColumnBatch]:
        found: list[ColumnBatch] = []
        expected = self._next
        self._hole = next((each for each in reply.lost if each.end_offset > expected), None)
        if self._hole is not None:
            return found
        for head, body in verified(reply, bodies):
            if head.first_offset != expected or head.count < 1:
                raise Corrupt(f"{self._topic}@{expected} was asked for, @{head.first_offset} came")
            found.append(
                ColumnBatch(
                    head.topic,
                    head.topic_id,
                    head.first_offset,
                    head.count,
                    head.columns,
                    head.runs,
                    body,
                )
            )
            expected += head.count
        return found


def watching(
    engine: Engine, topics: Sequence[tuple[str, int]], wait: float, generation: int
) -> Verb[Ends]:
    """Where topics end, as soon as one does not end where it is said to."""
    named = tuple((name, Offset(end)) for name, end in topics)
    question = WatchEnds(named, wait_ms_of(wait), Generation(generation))
    return ask(engine, lambda _: question, patience_ms=question.wait_ms)


def leasing(engine: Engine, seconds: float, about: str) -> Verb[bool]:
    """End this client's subscriptions when it does not ask so again in time."""
    lease_ms = round(seconds * 1000)
    number = engine.subscriber.next_change()
    reply: Done = yield from ask(
        engine,
        lambda client_epoch: Lease(
            engine.client, client_epoch, lease_ms, about, number, engine.context.leader_epoch
        ),
    )
    return reply.changed


def settling(engine: Engine, settled: Sequence[Settled]) -> Verb[bool]:
    """Everything below these cursors took effect elsewhere."""
    reply: Done = yield from ask(
        engine, lambda client_epoch: Settle(engine.client, client_epoch, tuple(settled))
    )
    return reply.changed
