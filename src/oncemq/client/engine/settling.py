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
from typing import NamedTuple

from oncemq.client.context import ClientContext
from oncemq.client.lost_history import with_way_out
from oncemq.client.ticket import Ticket
from oncemq.client.values import Message
from oncemq.errors import StorageFull, StorageRefused
from oncemq.protocol.names import Micros, SubscriptionId
from oncemq.protocol.replies import Done, RefusedReply, Reply
from oncemq.protocol.requests import Get, Listen, Request, Settle, Settled
from oncemq.protocol.step import Body
from oncemq.session.inflight import InFlightRequest
from oncemq.session.listener_order import ListenerOrder
from oncemq.session.outgoing import Outgoing
from oncemq.session.subscriber import Subscriber
from oncemq.session.told_cursors import TOLD_MAX

FULL_MICROS = 1_000_000  # until a server without room is told again


class SettlesTold(NamedTuple):
    """Cursors that the server is told, and who waits until it knows them."""

    settled: tuple[Settled, ...]
    ticket: Ticket[None]


class Settling:
    """The Settles of one client."""

    def __init__(
        self,
        client: ClientContext,
        outgoing: Outgoing,
        subscriber: Subscriber[Message],
        live: ListenerOrder[Message],
    ) -> None:
        self._client = client
        self._outgoing = outgoing
        self._subscriber = subscriber
        self._live = live
        self.is_under_way = False  # until everything is told
        self._left = 0  # cursors that there were when everything had been told
        self._not_before = Micros(0)

    def record(self, messages: list[Message], *, synced: bool = True) -> None:
        """These took effect: on our disk now, at the server with the next request."""
        client, subscriber = self._client, self._subscriber
        moved, journal = subscriber.cursors.moves(messages), client.state.journal
        ended = subscriber.cursors.over(messages) if journal is not None else []
        if journal is not None and (moved or ended):
            assert client.granted is not None, "messages come after the hello"
            journal.settle(client.granted, moved, synced=synced, ended=ended)
        subscriber.move(moved)

    def sent(self, exchange: InFlightRequest, request: Get | Listen | Settle) -> None:
        """A request left. Of several copies the first counts: a later one may have been lost."""
        if request.settled and not exchange.said:
            exchange.said = request.settled

    def answered(self, exchange: InFlightRequest, reply: Reply) -> None:
        """The server has what the request said is settled, unless it was refused."""
        if exchange.said and not isinstance(reply, RefusedReply):
            self._subscriber.told.answered(exchange.said)
            if isinstance(reply, Done) and reply.ended:
                self._forget(exchange.said, reply.ended)

    def begin(self, now: Micros) -> None:
        """Tell everything, if that is due and not under way."""
        subscriber = self._subscriber
        if self.is_under_way or now < self._not_before:
            return
        if len(subscriber.cursors.by_topic) > 2 * self._left + TOLD_MAX:
            subscriber.told.tell_again()  # so the answers say which of them ended
        if len(subscriber.told.waiting) > TOLD_MAX:  # one request cannot tell all of it
            self._go_on()

    def tell(self) -> Ticket[None] | None:
        """Tell some of what is settled; None when the server knows all of it."""
        settled = self._subscriber.told.untold()
        if not settled:
            return None
        told = SettlesTold(settled, Ticket[None]())
        self._outgoing.begin(self, told)
        return told.ticket

    def request(self, key: SettlesTold) -> tuple[Request, None]:
        """These cursors, and no others: the answer is about them."""
        return Settle(self._client.client, self._client.epoch_to_send, key.settled), None

    def on_reply(self, key: SettlesTold, reply: Reply, bodies: Sequence[Body]) -> None:
        """The server knows them, or refuses them."""
        del bodies
        if isinstance(reply, RefusedReply):
            key.ticket.fail(self._client.error_of(reply))
        else:
            key.ticket.fill(None)

    def _go_on(self) -> None:
        ticket = self.tell()
        self.is_under_way = ticket is not None
        if ticket is None:
            self._left = len(self._subscriber.cursors)
        else:
            ticket.on_done = self._told

    def _told(self, ticket: Ticket[None]) -> None:
        if ticket.error is None:
            self._go_on()
            return
        self.is_under_way = False
        if isinstance(ticket.error, StorageFull):
            # No room to note what is settled: that is told later, messages come all the same.
            self._not_before = Micros(self._client.now() + FULL_MICROS)
        elif self._client.failure is None:
            self._client.fail(with_way_out(ticket.error, self._client))

    def _forget(self, settled: tuple[Settled, ...], ended: Sequence[SubscriptionId]) -> None:
        """These ended at the server, and what it sent of them before has come before this."""
        client, gone = self._client, set(ended)
        theirs = [
            (each.topic, each.subscription_id)
            for each in settled
            if each.subscription_id in gone
            and self._subscriber.cursors.is_current(each.topic, each.subscription_id)
        ]
        if not theirs:
            return
        if client.state.journal is not None and client.client_epoch is not None:
            try:
                client.state.journal.forget(client.client_epoch, theirs)
            except StorageRefused:
                return  # it stays, on disk and so in memory, until it is asked about again
        topics = [topic for topic, _ in theirs]
        self._subscriber.ended(topics)
        for topic in topics:
            self._live.forget(topic)
