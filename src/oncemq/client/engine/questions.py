"""Single questions of verbs: made by the verb, answered to it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from oncemq.client.context import ClientContext
from oncemq.client.ticket import Ticket
from oncemq.client.told_losses import Losses
from oncemq.errors import Corrupt
from oncemq.protocol.replies import Messages, RefusedReply, Reply
from oncemq.protocol.requests import Request
from oncemq.protocol.step import Body

Handler = Callable[[Reply, Sequence[Body]], None]
T = TypeVar("T")


class Question(NamedTuple):
    """How the request is made whenever it is sent, and who gets the reply."""

    make: Callable[[], tuple[Request, Body | None]]
    handler: Handler


class Questions:
    """Those of one client; each knows all about itself."""

    def request(self, key: Question) -> tuple[Request, Body | None]:
        """As the verb makes it now."""
        return key.make()

    def on_reply(self, key: Question, reply: Reply, bodies: Sequence[Body]) -> None:
        """The verb is told."""
        key.handler(reply, bodies)


def messages_for(
    ticket: Ticket[T],
    take: Callable[[Messages, Sequence[Body]], T],
    client: ClientContext,
    losses: Losses,
) -> Handler:
    """What hears an answer that is messages; `take` makes of them what the ticket is for."""

    def handle(reply: Reply, bodies: Sequence[Body]) -> None:
        if isinstance(reply, RefusedReply):
            ticket.fail(client.error_of(reply))
            return
        assert isinstance(reply, Messages)
        for lost in reply.lost:
            losses.met(lost)
        try:
            ticket.fill(take(reply, bodies))
        except Corrupt as damage:
            ticket.fail(damage)

    return handle
