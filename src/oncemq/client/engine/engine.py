"""One client, without waiting: what to send, what came back, what is due. Both shells run it.

Not thread-safe: a shell calls it under its own lock. Nothing here blocks but the client's
own disk, and that only where the contract says "recorded first".
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from oncemq.client.engine.fetches import Fetches
from oncemq.client.engine.handshake import HandshakeEngine
from oncemq.client.engine.line import ServerConnection
from oncemq.client.engine.listening import FeedPort, Listening
from oncemq.client.engine.settling import Settling
from oncemq.client.engine.survival import failed_by
from oncemq.client.engine.transactions import Transactions
from oncemq.client.news import News
from oncemq.client.puts.put_buffer import PutBuffer
from oncemq.client.refusals import error_of
from oncemq.client.settings import Settings
from oncemq.client.state.known import Known
from oncemq.client.state.state import State
from oncemq.client.ticket import Ticket
from oncemq.client.told_losses import Losses
from oncemq.client.values import Message, must_be_of
from oncemq.errors import Corrupt, Forked, OnceMQError, StorageFull, Unreachable
from oncemq.protocol.names import (
    ANONYMOUS_EPOCH,
    ClientId,
    Epoch,
    Generation,
    Micros,
)
from oncemq.protocol.replies import Messages, RefusedReply, Reply, Welcome
from oncemq.protocol.requests import Get, Listen, Request
from oncemq.protocol.step import Body
from oncemq.session.handshake import NO_LOG
from oncemq.session.inflight import InFlight
from oncemq.session.subscriber import Subscriber
from oncemq.wire import codec

FULL_MICROS = 5_000  # until a connection that took no more is tried again
CONNECT_PATIENCE = 1_500_000  # microseconds to wait for a connection before the next address

T = TypeVar("T")
Handler = Callable[[Reply, Sequence[Body]], None]


class Engine:
    """The moving parts of a client, moved by `pump`."""

    def __init__(
        self,
        settings: Settings,
        state: State,
        line: ServerConnection,
        clock: Callable[[], Micros],
        ear: FeedPort | None = None,
    ) -> None:
        self.settings = settings
        self.state = state
        self.client = ClientId(state.client)
        self.client_epoch: Epoch | None = None if state.lasting else ANONYMOUS_EPOCH
        self.granted: Epoch | None = None  # the newest epoch of this start, let in with it or not
        self.generation = NO_LOG.generation  # of the server's log, as it was told
        self.failure: OnceMQError | None = None
        self.closed = False
        self.exchanges = InFlight(settings.chance)
        self.subscriber: Subscriber[Message] = Subscriber()  # of a state: when it is let in
        self.losses = Losses()
        self.news = News(self.client)
        self.outflow = PutBuffer(self)
        self.listening = Listening(self, ear)
        self.telling = Settling(self)
        self.transactions = Transactions(self, state.random_bytes)
        self._clock = clock
        self._handlers: dict[int, Handler] = {}
        self._line = line
        self._arrival = HandshakeEngine(self)
        self._fetches = Fetches(self)
        self._connected = False
        self._full = False  # the connection takes no more just now
        self._address = 0
        self._connect()

    # What shells call

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What to wait on after a pump."""
        return (*self._line.descriptors, *self.listening.descriptors)

    @property
    def address(self) -> str:
        """The server it talks to, or tries to."""
        return self.settings.servers[self._address % len(self.settings.servers)]

    @property
    def connected(self) -> bool:
        """Whether a server is on the line."""
        return self._connected

    def ask(
        self, make: Callable[[Epoch], Request], *, ticket: "Ticket[Any]", patience_ms: int = 0
    ) -> int:
        """Send a request (as soon as the client has its epoch) and fill the ticket."""
        return self.begin(
            lambda: (make(self.client_epoch or ANONYMOUS_EPOCH), None),
            lambda reply, _: self._fill(ticket, reply),
            patience_ms=patience_ms,
        )

    def fetch(self, topic: str, limit: int, wait_ms: int) -> "Ticket[bool]":
        """Bring messages into a feed (one topic's, several', "" for any), waiting if asked.

        False: the fetch was given up. Ask again.
        """
        return self._fetches.begin(topic, limit, wait_ms)

    def ask_messages(
        self, request: Request, take: Callable[[Messages, Sequence[Body]], T], ticket: "Ticket[T]"
    ) -> int:
        """Send a request whose answer is messages; `take` makes of them what the ticket is for."""

        def handle(reply: Reply, bodies: Sequence[Body]) -> None:
            if isinstance(reply, RefusedReply):
                ticket.fail(self.error_of(reply))
                return
            assert isinstance(reply, Messages)
            for lost in reply.lost:
                self.losses.met(lost)
            try:
                ticket.fill(take(reply, bodies))
            except Corrupt as damage:
                ticket.fail(damage)

        return self.begin(lambda: (request, None), handle)

    def now(self) -> Micros:
        """The clock this engine goes by."""
        return self._clock()

    def forget_fetches(self, topic: str) -> None:
        """What is on its way for a topic (or for any) is of a subscription that ended (G6)."""
        self._fetches.end(topic)
        self.listening.forget(topic)

    def forget_fetch(self, topic: str) -> None:
        """The listener has this feed now; who else waits for what is on its way asks anew."""
        self._fetches.forget(topic)

    def settle(self, messages: list[Message], *, synced: bool = True) -> None:
        """These took effect: on our disk now, at the server with the next request."""
        must_be_of(messages, self.generation)
        self.settled(messages, synced=synced)

    def settled(self, messages: list[Message], *, synced: bool = True) -> None:
        """As `settle`, of what the server has settled: so it means the same messages."""
        moved = self.subscriber.moves(messages)
        ended = self.subscriber.over(messages) if self.state.journal is not None else []
        if self.state.journal is not None and (moved or ended):
            assert self.granted is not None, "messages come after the hello"
            self.state.journal.settle(self.granted, moved, synced=synced, ended=ended)
        self.subscriber.move(moved)

    def drop(self, token: int) -> None:
        """Nobody waits for this reply any more."""
        self.exchanges.end(token)
        self.telling.dropped(token)
        self._handlers.pop(token, None)

    def pump(self, *, news: bool = True) -> bool:
        """Take what came, send what is due; whether anything came. Never blocks on the network.

        `news`: the connection's own descriptor was readable, or it is not known.
        """
        now = self._clock()
        if news or not self._connected or len(self.settings.servers) > 1:
            self._hear(now)
        moved = False
        while True:
            while (frames := self._line.receive()) is not None:
                self._receive(frames)
                moved = True
            moved = self.listening.pump(now) or moved
            # A send may swallow the signal that something came: look again after sending.
            if self.failure is not None or not self._push(now):
                return moved

    def _push(self, now: Micros) -> bool:
        """Send what may leave; whether anything did."""
        self._arrival.begin()
        if not self._connected:
            self.outflow.seal_all()  # nothing leaves now: gathering longer only risks it
        if self.client_epoch is not None:
            self.telling.begin()
            self.outflow.start()
        return self._send(now)

    def next_deadline(self) -> Micros | None:
        """When to pump again even if nothing comes."""
        if self._full:
            return Micros(self._clock() + FULL_MICROS)
        dues = (
            *(self.exchanges.next_due(), self._arrival.next_try),
            *(self.outflow.next_try, self.listening.next_deadline()),
        )
        due = min((each for each in dues if each is not None), default=None)
        if due is None or self._connected:
            return due
        return Micros(max(due, self._connect_deadline))

    def gave_up(self, limit: float, what: str) -> OnceMQError:
        """The error of who waited in vain: who did not answer, and what is kept."""
        self.outflow.seal_all()  # what the error calls recorded is so
        kept = ""
        if self.state.lasting and self.outflow.unsent:
            where = self.state.directory
            kept = f"; {self.outflow.unsent} puts are recorded in {where} and go out later"
        servers = ", ".join(self.settings.servers)
        late = f"within {limit:g} s while waiting for {what}"
        if self._arrival.refusal is None:
            answer = f"no answer from {servers} {late}"
            if self.outflow.trouble:
                answer = f"not all that was put is stored {late}: {self.outflow.trouble}"
            return Unreachable(f"{answer}{kept}")
        full = f"not let in by {servers} {late}: {self._arrival.refusal.detail}{kept}"
        # What may still go out must not sound as if it were refused.
        return Unreachable(full) if self.outflow.unsent else StorageFull(full, code="storage_full")

    def fail(self, error: OnceMQError) -> None:
        """This client is done for: everyone who waits learns why."""
        self.failure = error
        self.news.failed(error)
        for token in list(self._handlers):
            handler = self._handlers.pop(token, None)
            self.exchanges.end(token)
            if handler is not None:  # else one before it, a listener's say, has dropped it
                handler(RefusedReply(error.code, error.detail), ())
        self.outflow.fail(error)

    def close(self) -> None:
        """Let go of socket and state; nothing is sent any more, what lasts is recorded."""
        if self.closed:
            return
        self.closed = True
        try:
            self.outflow.seal_all()
        finally:
            self._line.close()
            self.listening.close()
            self.state.close()

    def disown(self, error: Forked) -> None:
        """In a copy that a fork made: nothing of it is touched, every verb says why."""
        self.failure = error
        self.closed = True
        self.outflow.open_batches.disown()
        self.state.disown()

    @property
    def is_own(self) -> bool:
        """Whether this is the process that made it, not one that was forked from that."""
        return not isinstance(self.failure, Forked)

    def check_own(self) -> None:
        """Refuse to go on in a copy that a fork made, whatever the verb has found already."""
        if isinstance(self.failure, Forked):
            raise self.failure

    # For its parts

    def meet(self, generation: Generation) -> None:
        """The server's log is of this generation; of another one, what was fetched is void.

        The same offsets may be other messages there: they are fetched again from the cursors.
        """
        if generation == self.generation:
            return
        self.generation = generation
        self.subscriber.put_back_all()
        self.listening.live.put_back()
        self._fetches.end_all()

    def let_in(self, welcome: Welcome, known: Known) -> None:
        """This start has its epoch, and knows nothing that the server does not have."""
        self.settings.limits = welcome.limits
        self.client_epoch = welcome.client_epoch
        # Exactly those that were compared, and no earlier ones: an older process may have moved
        # them until it was fenced, or a person, who accepted a loss, set them back.
        self.subscriber.recall(known.cursors)
        self.exchanges.retry_all()
        self.news.let_in(self.address, welcome)

    def begin(
        self,
        make: Callable[[], tuple[Request, Body | None]],
        handler: Handler,
        *,
        patience_ms: int = 0,
    ) -> int:
        """An exchange: `make` the request whenever it is sent, `handler` gets its reply."""
        token = self.exchanges.begin(make, patience_ms=patience_ms)
        self._handlers[token] = handler
        return token

    def error_of(self, reply: RefusedReply) -> OnceMQError:
        """What whoever waited is told: why it was refused, or why this client is done for."""
        return self.failure or error_of(reply)

    # Inside

    def _fill(self, ticket: "Ticket[Any]", reply: Reply) -> None:
        if isinstance(reply, RefusedReply):
            ticket.fail(self.error_of(reply))
        else:
            ticket.fill(reply)

    def _receive(self, frames: list[bytes]) -> None:
        try:
            token, reply, bodies = codec.decode_reply(frames)
        except codec.Malformed as fault:
            token, reply, bodies = fault.token, fault.refusal, ()
        if token not in self.exchanges:
            return  # answered before, or nobody wants it
        if isinstance(reply, RefusedReply):
            if reply.code == "unknown_client" and self.state.lasting:
                self.client_epoch = None  # another server, or one that lost us: say hello again
                return
            if reply.code == "storage_full" and token == self._arrival.token:
                self._arrival.refusal = reply  # no room to let us in: said again after a while
                return
            if reply.code == "fenced":
                if not self.exchanges.is_of_before(token, self.client_epoch):
                    self.fail(error_of(reply))
                return
        handler = self._handlers[token]
        self.telling.answered(token, reply)
        self.drop(token)
        try:
            handler(reply, bodies)
        except Exception as error:
            # Its exchange is ended, so nobody would ask again: who waits must hear of it.
            self.fail(error if isinstance(error, OnceMQError) else failed_by(error))
            if not isinstance(error, OnceMQError):
                raise

    # The connection

    def _connect(self) -> None:
        self._line.connect(self.address)
        self._connected = False
        self._connect_deadline = Micros(self._clock() + CONNECT_PATIENCE)

    def _hear(self, now: Micros) -> None:
        while (connected := self._line.news()) is not None:
            if connected and not self._connected:
                self.exchanges.retry_all()
                self.listening.relinked()
                self.subscriber.tell_again()
            self.news.linked(self.address, connected=connected)
            self._connected = connected
            self._connect_deadline = Micros(now + CONNECT_PATIENCE)
        silent = not self._connected and now > self._connect_deadline
        if silent:
            self.news.linked(self.address, connected=False)
            self._connect_deadline = Micros(now + CONNECT_PATIENCE)
        if len(self.settings.servers) > 1 and (silent or self.exchanges.troubled):
            self._address += 1
            self._connect()
            self.exchanges.retry_all()

    def _send(self, now: Micros) -> bool:
        self._full = False
        if not self._connected:
            return False
        sent = False
        waiting_for_hello = self.client_epoch is None
        for exchange in self.exchanges.due(now):
            request, body = exchange.make()
            if waiting_for_hello and not self.state.opens(request):
                continue
            if self.telling.is_under_way and isinstance(request, Get | Listen):
                continue  # what comes is compared with cursors that the server knows
            if not self._line.send(codec.encode_request(exchange.token, request, body)):
                self._full = True
                break
            self.exchanges.sent(exchange, now, self.client_epoch)
            self.telling.sent(exchange.token, request)
            sent = True
        return sent
