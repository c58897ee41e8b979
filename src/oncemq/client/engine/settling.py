"""What is settled, told to the server in parts where it is much; what ended there, forgotten.

Most cursors go along with gets and listens, a few at a time. After a start, or on a new connection
(the server may have been set back meanwhile), the server hears of every cursor before messages are
taken from it; of more than one request can name, it hears in requests of their own.

Laws: no request names more cursors than TOLD_MAX; a get or a listen leaves only when all that one
request cannot name is told. A cursor whose subscription ended, by a deletion of its topic or by
anybody else, is asked about before there are twice as many cursors as were left the last time,
and forgotten in memory and on disk: topics that come and go leave nothing behind.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oncemq.client.lost_history import with_way_out
from oncemq.client.ticket import Ticket
from oncemq.errors import StorageFull, StorageRefused
from oncemq.protocol.names import ANONYMOUS_EPOCH, Micros, SubscriptionId
from oncemq.protocol.replies import Done, RefusedReply, Reply
from oncemq.protocol.requests import Get, Listen, Request, Settle, Settled
from oncemq.protocol.step import Body
from oncemq.session.subscriber import TOLD_MAX

if TYPE_CHECKING:
    from oncemq.client.engine.engine import Engine

FULL_MICROS = 1_000_000  # until a server without room is told again


class Settling:
    """The Settles of one engine."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self.is_under_way = False  # until everything is told
        self._left = 0  # cursors that there were when everything had been told
        self._not_before = Micros(0)
        self._said: dict[int, tuple[Settled, ...]] = {}  # by the token of a request that left

    def sent(self, token: int, request: Request) -> None:
        """A request left. Of several copies the first counts: a later one may have been lost."""
        if isinstance(request, Get | Listen | Settle) and request.settled:
            self._said.setdefault(token, request.settled)

    def answered(self, token: int, reply: Reply) -> None:
        """The server has what the request said is settled, unless it was refused."""
        said = self._said.pop(token, ())
        if not isinstance(reply, RefusedReply):
            self._engine.subscriber.told(said)
            if isinstance(reply, Done) and reply.ended:
                self._forget(said, reply.ended)

    def dropped(self, token: int) -> None:
        """Nobody hears the answer: what was said is said again."""
        self._said.pop(token, None)

    def begin(self) -> None:
        """Tell everything, if that is due and not under way."""
        engine, subscriber = self._engine, self._engine.subscriber
        if self.is_under_way or engine.now() < self._not_before:
            return
        if len(subscriber) > 2 * self._left + TOLD_MAX:
            subscriber.tell_again()  # so the answers say which of them ended
        if subscriber.has_much_untold:
            self._go_on()

    def tell(self) -> Ticket[None] | None:
        """Tell some of what is settled; None when the server knows all of it."""
        engine, settled = self._engine, self._engine.subscriber.untold()
        if not settled:
            return None
        ticket = Ticket[None]()

        def answered(reply: Reply, _: Sequence[Body]) -> None:
            if isinstance(reply, RefusedReply):
                ticket.fail(engine.error_of(reply))
                return
            ticket.fill(None)

        def make() -> tuple[Request, None]:
            epoch = engine.client_epoch or ANONYMOUS_EPOCH
            return Settle(engine.client, epoch, settled), None

        engine.begin(make, answered)
        return ticket

    def _go_on(self) -> None:
        ticket = self.tell()
        self.is_under_way = ticket is not None
        if ticket is None:
            self._left = len(self._engine.subscriber)
        else:
            ticket.on_done = self._told

    def _told(self, ticket: Ticket[None]) -> None:
        if ticket.error is None:
            self._go_on()
            return
        self.is_under_way = False
        if isinstance(ticket.error, StorageFull):
            # No room to note what is settled: that is told later, messages come all the same.
            self._not_before = Micros(self._engine.now() + FULL_MICROS)
        elif self._engine.failure is None:
            self._engine.fail(with_way_out(ticket.error, self._engine))

    def _forget(self, settled: tuple[Settled, ...], ended: Sequence[SubscriptionId]) -> None:
        """These ended at the server, and what it sent of them before has come before this."""
        engine, gone = self._engine, set(ended)
        theirs = [
            (each.topic, each.subscription_id)
            for each in settled
            if each.subscription_id in gone
            and engine.subscriber.is_current(each.topic, each.subscription_id)
        ]
        if not theirs:
            return
        if engine.state.journal is not None and engine.client_epoch is not None:
            try:
                engine.state.journal.forget(engine.client_epoch, theirs)
            except StorageRefused:
                return  # it stays, on disk and so in memory, until it is asked about again
        topics = [topic for topic, _ in theirs]
        engine.subscriber.ended(topics)
        for topic in topics:
            engine.listening.live.forget(topic)
