"""Listening: the live feed of a client, joined and left with an answer, filled up by pulling.

How it works. A listener wants each message within a millisecond, and exactly once, in order. The
server publishes what is stored on a feed (PUB and SUB sockets): fast, for any number of listeners,
but a feed may lose, and a listener hears nothing of what came before it tuned in. So the feed is
only ever a quicker copy of what a get would bring, and three things make up for what it lacks:

1. Joining. A Listen without a wait asks where each topic ends and where the feed is. From there on
   every offset of a topic is expected: `session.listener_order` puts what is pushed behind what is
   there, keeps what came too early, drops what came twice, and says what is lacking.
2. Pulling. What is lacking is fetched as a get fetches it, from the cursor on. Only for who takes:
   gets and takes exclude each other, and must not replace what the other has under way.
3. Standing. A second Listen waits at the server for up to STAND_MS. The server answers it early
   when it knows something that the feed may not have brought (a nudge: the client's cursor has not
   moved though there is more, or a topic came or went). So silence on the feed is never trusted
   for longer than the server's own patience, and no client polls.

A Listen also says what is settled. It takes the place of the one before it: when messages were
settled and nothing has told the server within ACK_MICROS, the Listen that stands is said again.

Without a feed (none, not reached within PATIENCE_MICROS, lost) `is_live` is False, and `take` is a
long poll: the same messages, a little later. When the connection for requests is a new one, or a
subscription was made or ended, all is joined anew: nobody there knows what was said before.

Laws: the feed is only ever quicker, never needed. What the server asks for again is looked after at
once. What is settled is acknowledged within ACK_MICROS. What is wrong with a push is as good as
lost: it is pulled.
"""

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

import msgspec

from oncemq.client.checks import check_topics
from oncemq.client.context import ClientContext
from oncemq.client.engine.fetches import Fetches
from oncemq.client.engine.line import FeedPort, reachable
from oncemq.client.engine.listening_requests import LeaveSaid, ListenSaid
from oncemq.client.engine.transactions import Transactions
from oncemq.client.ticket import Awaited, Ticket
from oncemq.client.values import Fetched, Message, verified
from oncemq.errors import Corrupt, NotSubscribed, OnceMQError, StorageFull
from oncemq.protocol.names import Micros, TopicId
from oncemq.protocol.replies import Done, Messages, RefusedReply, Reply
from oncemq.protocol.replies import ListeningAnswer as Heard
from oncemq.protocol.requests import Leave, Listen, Request, Settled
from oncemq.protocol.step import Body
from oncemq.session.listener_order import ListenerOrder
from oncemq.session.outgoing import Outgoing
from oncemq.session.prefetched import several
from oncemq.session.subscriber import Subscriber
from oncemq.wire import codec

WAIT_MS = 20_000  # one long poll, where there is no feed
STAND_MS = 55_000  # how long a Listen stands at the server before it is said again
ACK_MICROS = 500_000
PATIENCE_MICROS = 500_000  # for the feed, at first; then messages are pulled until it is there
PULL = 100  # messages asked for at first; more while there is more
PUMP_MAX = 256  # messages of the feed taken before everything else gets its turn


class Listening:
    """What one client listens to: nothing, or some of its topics."""

    def __init__(
        self,
        client: ClientContext,
        outgoing: Outgoing,
        subscriber: Subscriber[Message],
        fetches: Fetches,
        transactions: Transactions,
        ear: FeedPort | None,
    ) -> None:
        self._client = client
        self._outgoing = outgoing
        self._subscriber = subscriber
        self._fetches = fetches
        self._transactions = transactions
        self._ear = ear
        self.live: ListenerOrder[Message] = ListenerOrder(subscriber)
        self.is_live = False  # the feed is there, and what it brings counts
        self.nudges = 0
        self.goodbye: Ticket[Any] | None = None  # the last one, until it is answered
        self._topics: tuple[str, ...] | None = None
        self._number = 0
        self._known = 0
        self._said: ListenSaid | None = None  # the Listen that stands, or the one that joins
        self._stands = False
        self._feed = ""  # where the ear is connected to, or tries to
        self._hears = False
        self._acked: tuple[Settled, ...] = ()
        self._ack_due: Micros | None = None
        self._waiting: Ticket[None] | None = None
        self._waits_until: Micros | None = None
        self._patient_until = Micros(0)
        self._more = False  # the feed has more than was taken

    # What shells and verbs call

    def take(
        self, topics: tuple[str, ...], limit: int, wait_ms: int
    ) -> Generator[Awaited, None, list[Message]]:
        """The next messages, not yet settled; none when none came in time. A verb."""
        check_topics(topics)
        yield from self._transactions.certain()
        client, key = self._client, several(topics)
        deadline = Micros(client.now() + wait_ms * 1000)
        while True:
            if client.failure is not None:
                raise client.failure.with_traceback(None)
            self._begin(topics)
            messages = self.live.take(limit) if self.is_live else self._take_pulled(key, limit)
            left = (deadline - client.now()) // 1000
            if messages and self.is_live:
                self._pull()  # the next ones come while these are worked on
            if messages or left <= 0:
                return messages
            ticket = self._wait(key, limit, left, deadline)
            try:
                yield ticket
            finally:
                self._waiting = self._waits_until = None
            ticket.result()

    def put_back(self, topics: tuple[str, ...]) -> None:
        """What was taken did not take effect: it comes again."""
        self._subscriber.prefetched.put_back(several(topics))
        self.live.put_back()

    def leave(self, topics: tuple[str, ...]) -> None:
        """Listen to these no longer, and say so; said again until the server has heard it.

        Another listener of the same topics, on another thread, that waits now joins anew.
        """
        if self._topics != topics:
            return  # others are listened to by now
        number = self._number
        self._stop()
        self._wake()
        if self._client.failure is None:
            ticket = self.goodbye = Ticket[Any]()
            self._outgoing.begin(self, LeaveSaid(number, ticket))

    # What the engine calls

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What to wait on besides the requests."""
        return self._ear.descriptors if self._ear is not None else ()

    def pump(self, now: Micros) -> bool:
        """Take what the feed brought, ask for what is missing; whether anything came."""
        if self._ear is None or self._topics is None:
            return False
        moved = False
        while (connected := self._ear.news()) is not None:
            self._news(connected)
            moved = True
        self._more = True
        for _ in range(PUMP_MAX):
            frames = self._ear.receive()
            if frames is None:
                self._more = False
                break
            self._pushed(frames)
            moved = True
        if self.is_live and self._waiting is not None:
            self._pull()
        if (self.is_live and self.live.ready) or (self._waits_until or now + 1) <= now:
            self._wake()
        self._acknowledge(now)
        return moved

    def next_deadline(self) -> Micros | None:
        """When to pump again even if nothing comes."""
        if self._topics is None:
            return None
        if self._more:
            return Micros(0)
        dues = self._ack_due, self._waits_until, self._ear.next_deadline() if self._ear else None
        return min((each for each in dues if each is not None), default=None)

    def relinked(self) -> None:
        """The connection for requests is another one: nobody there knows what was said before."""
        if self._topics is not None:
            self._join()

    def forget(self, topic: str) -> None:
        """A subscription was made or ended: what is on its way is not of it, or not wanted (G6)."""
        self.live.forget(topic)
        if self._topics is not None:
            self._join()

    def close(self) -> None:
        """Let go of the feed."""
        if self._ear is not None:
            self._ear.close()

    # Joining

    def _begin(self, topics: tuple[str, ...]) -> None:
        if self._topics == topics:
            return
        self._stop()
        self._topics = topics
        self._number += 1
        self._patient_until = Micros(self._client.now() + PATIENCE_MICROS)
        self._join()

    def _stop(self) -> None:
        self._topics = None
        self.is_live = False
        self._outgoing.give_up(self._said)
        self._stands = self._more = False
        self._known = 0
        self._ack_due = None
        self.live.leave()
        self._tune("")

    def _listen(self, wait_ms: int, *, joins: bool, acknowledges: bool = True) -> None:
        """Say what this client listens to, instead of what it said last."""
        assert self._topics is not None
        self._outgoing.give_up(self._said)
        self._said = ListenSaid(self._topics, self._number, wait_ms, joins, acknowledges)
        self._outgoing.begin(self, self._said, patience_ms=wait_ms)

    def request(self, key: ListenSaid | LeaveSaid) -> tuple[Request, None]:
        """The word as it is to be said now: with what is settled now."""
        client, epoch = self._client.client, self._client.epoch_to_send
        if isinstance(key, LeaveSaid):
            return Leave(client, epoch, key.number), None
        self._acked = self._subscriber.told.untold()
        settled = self._acked if key.acknowledges else ()
        about = key.topics, settled, self._known, key.wait_ms, key.number
        return Listen(client, epoch, *about), None

    def on_reply(self, key: ListenSaid | LeaveSaid, reply: Reply, bodies: Sequence[Body]) -> None:
        """The server let this client join, has a reason to answer, or refuses."""
        del bodies
        ticket: Ticket[Reply] = key.ticket if isinstance(key, LeaveSaid) else Ticket()
        if isinstance(reply, RefusedReply):
            ticket.fail(self._client.error_of(reply))
        else:
            ticket.fill(reply)
        if isinstance(key, LeaveSaid):
            return
        if isinstance(ticket.error, StorageFull) and key.acknowledges:
            # No room to note what is settled: that is told later, listening goes on.
            self._listen(key.wait_ms, joins=key.joins, acknowledges=False)
        elif key.joins:
            self._joined(ticket)
        else:
            self._stood(ticket)

    def _join(self) -> None:
        """Ask where everything ends, to be told at once; until then nothing is sure."""
        self._stands = False
        self._listen(0, joins=True)

    def _joined(self, ticket: Ticket[Reply]) -> None:
        if ticket.error is not None:
            self._fail(ticket.error)
            return
        self._hear(ticket.result())
        if self._hears and not self.is_live:
            self.is_live = True
            self._fetches.forget(several(self._topics or ()))
        self._wake()
        self._stand()

    def _stand(self) -> None:
        """Stay: the server answers when there is a reason, and else when the time is over."""
        self._stands = True
        self._listen(STAND_MS, joins=False)

    def _stood(self, ticket: Ticket[Reply]) -> None:
        if ticket.error is not None:
            self._fail(ticket.error)
            return
        reply = ticket.result()
        if not isinstance(reply, Done):
            self.nudges += 1
            self._hear(reply)
        self._stand()

    def _hear(self, reply: Reply) -> None:
        assert isinstance(reply, Heard)
        self._known = reply.known
        if not reply.feed:
            self._patient_until = Micros(0)
        self.live.joined(reply.topics)
        self._tune(reply.feed)

    def _tune(self, feed: str) -> None:
        """Connect to the feed, if it is another one, and listen to the topics there."""
        if self._ear is None:
            return
        self._ear.tune({codec.subject(topic_id) for topic_id in self.live.topics})
        if (place := reachable(feed, self._client.address)) != self._feed:
            self._feed = place
            self._hears = self.is_live = False
            self._ear.connect(place)

    def _news(self, connected: bool) -> None:
        """The feed came or went. Either way the server is asked where everything stands."""
        self._hears = connected
        if not connected:
            self.is_live = False
            self._wake()
        self._join()

    def _fail(self, error: OnceMQError) -> None:
        waiting, self._waiting = self._waiting, None
        self._stop()
        if waiting is not None:
            waiting.fail(error)
        # Else whoever takes next begins anew, and is told the same.

    # Messages

    def _wait(self, key: str, limit: int, left_ms: int, deadline: Micros) -> Ticket[None]:
        ticket = self._waiting = Ticket[None]()
        if self.is_live:
            self._waits_until = deadline
            self._pull()
        elif self._ear is not None and self._patient_until > self._client.now():
            self._waits_until = min(deadline, self._patient_until)
        else:
            fetch = self._fetches.begin(key, limit, min(left_ms, WAIT_MS))
            fetch.on_done = self._fetched
        return ticket

    def _take_pulled(self, key: str, limit: int) -> list[Message]:
        subscriber = self._subscriber
        messages = subscriber.prefetched.take(key, limit)
        if messages and subscriber.prefetched.hungry(key):
            # The next ones come while these are worked on.
            self._fetches.begin(key, limit, 0)
        return messages

    def _fetched(self, fetch: Ticket[bool]) -> None:
        if fetch.error is not None and self._waiting is not None:
            self._waiting.fail(fetch.error)
        else:
            self._wake()

    def _wake(self) -> None:
        if self._waiting is not None:
            self._waiting.fill(None)

    def _pushed(self, frames: Sequence[Body]) -> None:
        """Something came on the feed; what is wrong with it is as good as lost, and pulled."""
        if not self.is_live:
            return
        try:
            pushed, bodies = codec.decode_push(frames)
        except codec.Malformed:
            return
        subscription = self.live.subscription(TopicId(pushed.topic_id))
        if subscription is None:
            return
        heads = (
            msgspec.structs.replace(each, subscription_id=subscription) for each in pushed.batches
        )
        try:
            batches = verified(Messages(tuple(heads), more=False), bodies)
            generation = self._client.generation
            stretches = [Fetched(head, body, generation) for head, body in batches]
        except Corrupt:
            stretches = []
        self.live.pushed(pushed.topic_id, pushed.end, stretches)

    def _pull(self) -> None:
        """Ask for what is missing; what is under way is not asked for again.

        Only for who takes: gets and takes exclude each other, and must not replace what the
        other has under way.
        """
        for topic in self.live.lacking():
            self._fetches.begin(topic, PULL, 0).on_done = partial(self._pulled, topic)

    def _pulled(self, topic: str, ticket: Ticket[bool]) -> None:
        if ticket.error is None:
            self.live.pulled(topic)
        elif isinstance(ticket.error, NotSubscribed) and self._topics is not None:
            self._join()  # it says which of the topics are still there
        else:
            self._fail(ticket.error)

    def _acknowledge(self, now: Micros) -> None:
        settled = self._subscriber.told.untold()
        if not self._stands or not settled or settled == self._acked:
            self._ack_due = None
        elif self._ack_due is None:
            self._ack_due = Micros(now + ACK_MICROS)
        elif now >= self._ack_due:
            self._ack_due = None
            self._stand()
