"""One client, without waiting: what to send, what came back, what is due. Both shells run it.

Not thread-safe: a shell calls it under its own lock. Nothing here blocks but the client's
own disk, and that only where the contract says "recorded first".
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from oncemq.client.context import ClientContext
from oncemq.client.engine.answers import check_answer
from oncemq.client.engine.current_server import CurrentServer
from oncemq.client.engine.fetches import Fetches
from oncemq.client.engine.handshake import HandshakeEngine, LetIn
from oncemq.client.engine.line import ServerConnection
from oncemq.client.engine.listening import FeedPort, Listening
from oncemq.client.engine.questions import Handler, Question, Questions, messages_for
from oncemq.client.engine.settling import Settling
from oncemq.client.engine.survival import failed_by
from oncemq.client.engine.transactions import Transactions
from oncemq.client.engine.unanswered import unanswered
from oncemq.client.puts.put_buffer import PutBuffer
from oncemq.client.refusals import error_of
from oncemq.client.settings import Settings
from oncemq.client.state.known import Known
from oncemq.client.state.state import State
from oncemq.client.ticket import Ticket
from oncemq.client.told_losses import Losses
from oncemq.client.values import Message, must_be_of
from oncemq.errors import Forked, OnceMQError
from oncemq.protocol.names import Epoch, Generation, Micros
from oncemq.protocol.replies import Messages, RefusedReply, Reply, Welcome
from oncemq.protocol.requests import Get, Listen, Request, Settle
from oncemq.protocol.step import Body
from oncemq.session.inflight import FIRST_WAIT, InFlight, InFlightRequest
from oncemq.session.outgoing import Outgoing
from oncemq.session.subscriber import Subscriber
from oncemq.wire import codec

FULL_MICROS = 5_000  # until a connection that took no more is tried again
TAKEN_MAX = 256  # replies taken before everybody else has a turn

T = TypeVar("T")


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
        self.context = client = ClientContext(settings, state, clock)
        self.settings = settings
        self.state = state
        self.client = client.client
        self.now = clock
        self.closed = False
        self.pumped_at = Micros(0)
        self._ear = ear
        self.exchanges = InFlight(settings.chance)
        self.outgoing = out = Outgoing()
        self.subscriber: Subscriber[Message] = Subscriber()  # of a state: when it is let in
        self.losses = Losses()
        self.outflow = PutBuffer(client, out)
        self.transactions = Transactions(client, out)
        self._fetches = Fetches(client, out, self.subscriber, self.losses)
        self.listening = Listening(
            client, out, self.subscriber, self._fetches, self.transactions, ear
        )
        self.telling = Settling(client, out, self.subscriber, self.listening.live)
        self._arrival = HandshakeEngine(client, out, self.subscriber, self.transactions)
        self._questions = Questions()
        self._line = line
        self._told_failure: OnceMQError | None = None  # what every part and caller was told
        self._server = CurrentServer(client, line)
        self._full = False  # the connection takes no more just now

    # What shells call

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What to wait on after a pump."""
        ear = self._ear
        return self._line.descriptors + (ear.descriptors if ear is not None else ())

    @property
    def address(self) -> str:
        """The server it talks to, or tries to."""
        return self._server.address

    @property
    def connected(self) -> bool:
        """Whether a server is on the line."""
        return self._server.is_connected

    @property
    def failure(self) -> OnceMQError | None:
        """Why this client is done for; None while it is not."""
        return self.context.failure

    @property
    def client_epoch(self) -> Epoch | None:
        """The epoch that this client has; None until it is let in."""
        return self.context.client_epoch

    @property
    def generation(self) -> Generation:
        """Of the server's log, as it was told."""
        return self.context.generation

    def ask(
        self, make: Callable[[Epoch], Request], *, ticket: "Ticket[Any]", patience_ms: int = 0
    ) -> int:
        """Send a request (as soon as the client has its epoch) and fill the ticket."""
        return self.begin(
            lambda: (make(self.context.epoch_to_send), None),
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
        handle = messages_for(ticket, take, self.context, self.losses)
        return self.begin(lambda: (request, None), handle)

    def forget_fetches(self, topic: str) -> None:
        """What is on its way for a topic (or for any) is of a subscription that ended (G6)."""
        self._fetches.end(topic)
        self.listening.forget(topic)
        self._take_out()

    def settle(self, messages: list[Message], *, synced: bool = True) -> None:
        """These took effect: on our disk now, at the server with the next request."""
        must_be_of(messages, self.generation)
        self.telling.record(messages, synced=synced)

    def drop(self, token: int) -> None:
        """Nobody waits for this reply any more."""
        self.exchanges.end(token)

    def pump(self, *, readable: bool = True) -> bool:
        """Take what came, send what is due; whether anything came. Never blocks on the network.

        `readable`: one of the descriptors was, or it is not known. When it was not, nothing is
        taken: a descriptor stays readable for as long as there is something to take.
        """
        client, server = self.context, self._server
        now = self.pumped_at = self.now()
        if (readable or not server.is_connected) and server.hear(now):
            self.exchanges.retry_all()
            self.exchanges.first_wait = server.answer_micros
            self.listening.relinked()
            self.subscriber.told.tell_again()
        if server.has_others and (server.is_silent or self.exchanges.troubled):
            server.is_of_no_use(now)
        if server.moves_at is not None and server.moved_on(now):
            self.exchanges.retry_all()
        if client.failure is not None:
            self._tell_failure()  # that of a verb, since the last pump
        moved = readable and self._take(now)
        if client.client_epoch is None and client.failure is None:
            self._arrival.begin()
        if not server.is_connected and client.failure is None:
            self.outflow.seal_all()  # nothing leaves now: gathering longer only risks it
        if client.client_epoch is not None and client.failure is None:
            if self.subscriber.told.waiting or self.subscriber.cursors.by_topic:
                self.telling.begin(now)
            self.outflow.start(now)
        self._full = False
        if (self.outgoing.wanted or self.exchanges.open) and client.failure is None:
            self._send(now)
        if client.failure is not None:
            self._tell_failure()
        return moved

    def _take(self, now: Micros) -> bool:
        """What came, up to so much of it: a server that says more than that has the next turn."""
        moved = False
        for _ in range(TAKEN_MAX):
            frames = self._line.receive()
            if frames is None:
                break
            self._receive(frames)
            moved = True
        return self.listening.pump(now) or moved

    def next_deadline(self) -> Micros | None:
        """When to pump again even if nothing comes."""
        at_line = self._line.next_deadline()
        if self._full:
            due = Micros(self.now() + FULL_MICROS)
        else:
            due, outflow = self.exchanges.next_due(), self.outflow
            at_room = outflow.next_try if outflow.try_again_at is not None else None
            for each in (self._arrival.next_try, at_room, self.listening.next_deadline()):
                if each is not None and (due is None or each < due):
                    due = each
            if self._server.moves_at is not None or not self._server.is_connected:
                due = self._server.next_look(due)
        return due if at_line is None else at_line if due is None else min(due, at_line)

    def gave_up(self, limit: float, what: str) -> OnceMQError:
        """The error of who waited in vain: who did not answer, and what is kept."""
        self.outflow.seal_all()  # what the error calls recorded is so
        no_leader = self._server.no_leader
        return unanswered(self.context, self.outflow, self._arrival.refusal, no_leader, limit, what)

    def fail(self, error: OnceMQError) -> None:
        """This client is done for: everyone who waits learns why."""
        self.context.fail(error)
        self._tell_failure()

    def _tell_failure(self) -> None:
        """What a part noted, or a verb: every request ends with it, and every put that waits."""
        error = self.context.failure
        if error is None or error is self._told_failure:
            return
        self._told_failure = error
        self._take_out()
        for token in self.exchanges:
            exchange = self.exchanges.get(token)
            if exchange is not None:  # else one before it, a listener's say, has dropped it
                self.exchanges.end(token)
                refusal = RefusedReply(error.code, error.detail)
                exchange.owner.on_reply(exchange.key, refusal, ())
                self._take_out()
        self.outflow.fail(error)

    def close(self) -> None:
        """Let go of socket and state; nothing is sent any more, what lasts is recorded."""
        if self.closed:
            return
        self.closed = True
        try:
            self.outflow.seal_all()
        finally:
            self.context.closed()
            self._line.close()
            self.listening.close()
            self.state.close()

    def disown(self, error: Forked) -> None:
        """In a copy that a fork made: nothing of it is touched, every verb says why."""
        self.context.failure = error
        self.closed = True
        self.outflow.open_batches.disown()
        self.state.disown()

    @property
    def is_own(self) -> bool:
        """Whether this is the process that made it, not one that was forked from that."""
        return not isinstance(self.failure, Forked)

    def check_open(self) -> None:
        """Refuse to go on when it is closed, or a copy that a fork made, whatever was found yet."""
        if self.closed and self.context.failure is not None:
            raise self.context.failure.with_traceback(None)

    # For its parts

    def meet(self, generation: Generation) -> None:
        """The server's log is of this generation; of another one, what was fetched is void.

        The same offsets may be other messages there: they are fetched again from the cursors.
        """
        if generation == self.generation:
            return
        self.context.generation = generation
        self.subscriber.prefetched.put_back_all()
        self.listening.live.put_back()
        self._fetches.end_all()

    def let_in(self, welcome: Welcome, known: Known) -> None:
        """This start has its epoch, and knows nothing that the server does not have."""
        self.settings.limits = welcome.limits
        self.context.client_epoch = welcome.client_epoch
        # Exactly those that were compared, and no earlier ones: an older process may have moved
        # them until it was fenced, or a person, who accepted a loss, set them back.
        self.subscriber.recall(known.cursors)
        self.exchanges.retry_all()
        self.context.news.let_in(self.address, welcome)

    def begin(
        self,
        make: Callable[[], tuple[Request, Body | None]],
        handler: Handler,
        *,
        patience_ms: int = 0,
    ) -> int:
        """A question: `make` the request whenever it is sent, `handler` gets its reply."""
        self._take_out()  # what goes before it: of a stage, the batches that a commit names
        question = Question(make, handler)
        return self.exchanges.begin(self._questions, question, patience_ms=patience_ms)

    # Inside

    def _take_out(self) -> None:
        """Carry out what the parts have left."""
        if self.outgoing.wanted:
            self.exchanges.carry_out(self.outgoing.take())

    def _fill(self, ticket: "Ticket[Any]", reply: Reply) -> None:
        if isinstance(reply, RefusedReply):
            ticket.fail(self.context.error_of(reply))
        else:
            ticket.fill(reply)

    def _receive(self, frames: Sequence[Body]) -> None:
        try:
            token, reply, bodies = codec.decode_reply(frames)
        except codec.Malformed as fault:
            token, reply, bodies = fault.token, fault.refusal, ()
        if self.outgoing.wanted:
            self._take_out()  # what was given up is answered to nobody
        exchange = self.exchanges.open.get(token)
        if exchange is None or exchange.asked is None:
            return  # answered before, or nobody wants it, or it was never sent
        if isinstance(reply, RefusedReply) and self._comes_again(exchange, reply):
            return
        if not self._server.has_answered:
            self._server.answered(reply)
            self.exchanges.first_wait = FIRST_WAIT
        if exchange.said:
            self.telling.answered(exchange, reply)
        self.exchanges.end(token)
        try:
            if not isinstance(reply, RefusedReply):
                check_answer(exchange.asked, reply)
            exchange.owner.on_reply(exchange.key, reply, bodies)
            if self._arrival.outcomes:
                self._go_on_from_handshake()
            if self.context.failure is not None:
                self._tell_failure()
        except Exception as error:
            # Its exchange is ended, so nobody would ask again: who waits must hear of it.
            self.fail(error if isinstance(error, OnceMQError) else failed_by(error))
            if not isinstance(error, OnceMQError):
                raise

    def _comes_again(self, exchange: InFlightRequest, refusal: RefusedReply) -> bool:
        """Whether a refusal is no answer: the request is sent again, or the client has ended."""
        if self._server.is_about_leading(exchange, refusal):
            return True
        if refusal.code == "unknown_client" and self.state.lasting:
            self.context.client_epoch = None  # another server, or one that lost us: say hello again
            return True
        if refusal.code == "storage_full" and exchange.owner is self._arrival:
            self._arrival.refusal = refusal  # no room to let us in: said again after a while
            return True
        if refusal.code == "fenced":
            if not self.exchanges.is_of_before(exchange.token, self.client_epoch):
                self.fail(error_of(refusal))
            return True
        return False

    def _go_on_from_handshake(self) -> None:
        outcomes, self._arrival.outcomes = self._arrival.outcomes, []
        for each in outcomes:
            if isinstance(each, LetIn):
                self.let_in(each.welcome, each.known)
            else:
                self.meet(each.generation)

    # The connection

    def _send(self, now: Micros) -> None:
        if not self._server.is_connected or self._server.moves_at is not None:
            return
        if self.outgoing.wanted:
            self.exchanges.carry_out(self.outgoing.take())
        client_epoch = self.context.client_epoch
        for exchange in self.exchanges.due(now):
            request, body = exchange.owner.request(exchange.key)
            if client_epoch is None and not self.state.opens(request):
                continue
            is_telling = isinstance(request, Get | Listen | Settle)
            if is_telling and self.telling.is_under_way and not isinstance(request, Settle):
                continue  # what comes is compared with cursors that the server knows
            if not self._line.send(codec.encode_request(exchange.token, request, body)):
                self._full = True
                break
            self.exchanges.sent(exchange, now, client_epoch)
            exchange.asked = type(request)
            if is_telling:
                self.telling.sent(exchange, request)
