"""Single questions of verbs: made by the verb, answered to it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from oncemq.protocol.replies import Reply
from oncemq.protocol.requests import Request
from oncemq.protocol.step import Body

Handler = Callable[[Reply, Sequence[Body]], None]


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
