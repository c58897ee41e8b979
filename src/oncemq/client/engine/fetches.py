"""Fetches: gets under way for the feeds of a client, one for each feed.

Laws: what a fetch brings goes behind what its feed has; what the server says it lost is told once.
What came in one generation of the server's log is void in another: the same offsets may be other
messages there. A get says what is settled as it stands when the get leaves, not when it was asked
for: between the two the client may have been let in, or connected to a server that was set back.
A ticket says whether its fetch was answered; one that was given up says no, and whoever waits for
it asks anew: a ticket is never left open.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from oncemq.client.context import ClientContext
from oncemq.client.ticket import Ticket
from oncemq.client.told_losses import Losses
from oncemq.client.values import Fetched, Message, verified
from oncemq.errors import Corrupt
from oncemq.protocol.names import ANONYMOUS_EPOCH, Offset, SubscriptionId
from oncemq.protocol.replies import Messages, RefusedReply, Reply
from oncemq.protocol.requests import Get, Request
from oncemq.protocol.step import Body
from oncemq.session.outgoing import Outgoing
from oncemq.session.prefetched import is_single
from oncemq.session.subscriber import Subscriber

FETCH_BYTES = 4 << 20  # what one get brings at most


class Fetch(NamedTuple):
    """A get for a feed, and who waits for it."""

    feed: str
    get: Get
    ticket: Ticket[bool]
    tells: bool = True  # what is settled


class Fetches:
    """All of one client."""

    def __init__(
        self,
        client: ClientContext,
        outgoing: Outgoing,
        subscriber: Subscriber[Message],
        losses: Losses,
    ) -> None:
        self._client = client
        self._outgoing = outgoing
        self._subscriber = subscriber
        self._losses = losses
        self._under_way: dict[str, Fetch] = {}

    def begin(self, topic: str, limit: int, wait_ms: int) -> "Ticket[bool]":
        """Bring messages into a feed (one topic's, several', "" for any), waiting if asked."""
        subscriber = self._subscriber
        under_way = self._under_way.get(topic)
        if under_way is not None:
            ticket = under_way.ticket
            if under_way.get.wait_ms <= wait_ms and not subscriber.prefetched.outdated(topic):
                return ticket
            self._outgoing.give_up(under_way)
        ticket = Ticket[bool]()
        feed = subscriber.prefetched.feed(topic)
        count = subscriber.prefetched.want(topic, limit)
        get = Get(
            self._client.client,
            ANONYMOUS_EPOCH,
            topic if is_single(topic) else "",
            start=feed.ahead if is_single(topic) else Offset(-1),
            limit=count,
            bytes_max=FETCH_BYTES,
            wait_ms=wait_ms,
            only=() if is_single(topic) or not topic else tuple(topic.split("\n")),
            subscription_id=subscriber.cursors.subscription(topic) or SubscriptionId(0),
        )
        self._send(Fetch(topic, get, ticket))
        return ticket

    def end(self, topic: str) -> None:
        """What is on its way for a topic (or for any) is not wanted any more (G6)."""
        for key in list(self._under_way):
            if key == topic or not is_single(key):
                self._end(key)

    def end_all(self) -> None:
        """Nothing that is on its way is wanted any more; who waits asks anew."""
        for key in list(self._under_way):
            self._end(key)

    def forget(self, topic: str) -> None:
        """The listener has the feed now: what is on its way is not wanted, whoever asked for it."""
        if topic in self._under_way:
            self._end(topic)

    def _end(self, key: str) -> None:
        self._drop(key).fill(False)

    def _drop(self, key: str) -> "Ticket[bool]":
        """Nothing is on its way for this feed any more; who waited for it."""
        fetch = self._under_way.pop(key)
        self._outgoing.give_up(fetch)
        self._subscriber.prefetched.unasked(key)
        return fetch.ticket

    def _send(self, fetch: Fetch) -> None:
        self._under_way[fetch.feed] = fetch
        self._outgoing.begin(self, fetch, patience_ms=fetch.get.wait_ms)

    def request(self, key: Fetch) -> tuple[Request, None]:
        """The get, with what is settled now."""
        settled = self._subscriber.told.untold() if key.tells else ()
        return replace(key.get, client_epoch=self._client.epoch_to_send, settled=settled), None

    def on_reply(self, key: Fetch, reply: Reply, bodies: Sequence[Body]) -> None:
        """Messages came, or the get was refused."""
        self._under_way.pop(key.feed, None)
        if key.tells and isinstance(reply, RefusedReply) and reply.code == "storage_full":
            # No room to note what is settled: that is told later, messages come all the same.
            self._send(key._replace(tells=False))
        else:
            self._came(key.feed, key.ticket, reply, bodies)

    def _came(
        self, topic: str, ticket: "Ticket[bool]", reply: Reply, bodies: Sequence[Body]
    ) -> None:
        subscriber, losses = self._subscriber, self._losses
        if isinstance(reply, RefusedReply):
            subscriber.prefetched.fetch_again(topic)
            subscriber.prefetched.unasked(topic)
            ticket.fail(self._client.error_of(reply))
            return
        assert isinstance(reply, Messages)
        try:
            generation = self._client.generation
            stretches = [Fetched(*each, generation) for each in verified(reply, bodies)]
        except Corrupt as damage:
            subscriber.prefetched.unasked(topic)
            ticket.fail(damage)
            return
        for lost in reply.lost:
            if subscriber.cursors.before(lost.topic, lost.end_offset):
                losses.met(lost)
        subscriber.came(topic, stretches, more=reply.more)
        ticket.fill(True)
