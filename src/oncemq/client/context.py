"""What the parts of one client share: who it is, where it stands with its server, how it ended.

The parts (put buffer, fetches, handshake, listening, settling, transactions) read it, and none of
them knows the engine. Law: a part that fails notes it here; the engine tells the others, before it
looks at the next reply and before it sends.
"""

from collections.abc import Callable

from oncemq.client.news import News
from oncemq.client.refusals import error_of
from oncemq.client.settings import Settings
from oncemq.client.state.state import State
from oncemq.errors import OnceMQError, Unreachable
from oncemq.protocol.names import ANONYMOUS_EPOCH, ClientId, Epoch, Micros
from oncemq.protocol.replies import RefusedReply
from oncemq.session.handshake import NO_LOG

CLOSED = "the client is closed: make another one"


class ClientContext:
    """One client, as its parts see it."""

    def __init__(self, settings: Settings, state: State, clock: Callable[[], Micros]) -> None:
        self.settings = settings
        self.state = state
        self.now = clock  # the clock that this client goes by
        self.client = ClientId(state.client)
        self.client_epoch: Epoch | None = None if state.lasting else ANONYMOUS_EPOCH
        self.granted: Epoch | None = None  # the newest epoch of this start, let in with it or not
        self.generation = NO_LOG.generation  # of the server's log, as it was told
        self.leader_epoch = 0  # of the leader that answers, as it said; a server alone says nothing
        # Raised with an empty traceback each time: else it would keep every frame it was raised in.
        self.failure: OnceMQError | None = None
        self.leaving = False  # it is being closed, and a guest's subscriptions end before it is
        self.address = ""  # of the server it talks to, or tries to
        self.news = News(self.client)

    @property
    def epoch_to_send(self) -> Epoch:
        """What a request names: requests that need an epoch wait until there is one."""
        return self.client_epoch or ANONYMOUS_EPOCH

    def fail(self, error: OnceMQError) -> None:
        """This client is done for: everyone who waits will learn why."""
        self.failure = error
        self.news.failed(error)

    def closed(self) -> None:
        """Nothing is asked of it any more; why it had ended before says more than that."""
        self.failure = self.failure or Unreachable(CLOSED, code="closed")

    def error_of(self, reply: RefusedReply) -> OnceMQError:
        """What whoever waited is told: why it was refused, or why this client is done for."""
        if self.leaving and reply.code == "not_subscribed":
            return self.failure or Unreachable(CLOSED, code="closed")
        return self.failure or error_of(reply)
