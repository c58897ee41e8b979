"""How a start of a client is let in: its hellos, and what it does when another was let in instead.

Law: a refusal ends this start only after its own claim was asked about, and the words say whether
a twin on the same disk went ahead of it or the state itself is out of date.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oncemq.client.refusals import error_of
from oncemq.core.greeting import Greeting
from oncemq.core.names import ANONYMOUS_EPOCH, Epoch
from oncemq.core.replies import Refused, Reply, Taken, Welcome
from oncemq.core.step import Body
from oncemq.errors import Fenced, OnceMQError

if TYPE_CHECKING:
    from oncemq.client.engine import Engine


class Arrival:
    """The hellos of one engine, from its start or from a server that does not know it."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._greeting: Greeting | None = None
        self.token = 0  # of the hello under way

    def begin(self) -> None:
        """Say hello, if that is due and not under way."""
        if self._engine.client_epoch is None and self._greeting is None:
            self._greet()

    def _greet(self, over: Epoch = ANONYMOUS_EPOCH) -> None:
        self._greeting = self._engine.state.greeting(over)
        self._say_hello(self._greeting)

    def _say_hello(self, greeting: Greeting) -> None:
        self.token = self._engine.begin_put(lambda: (greeting.hello(), None), self._answered)

    def _answered(self, reply: Reply, _: Sequence[Body]) -> None:
        greeting, engine = self._greeting, self._engine
        assert greeting is not None
        if engine.failure is not None:
            return  # nobody is to be let in any more
        assert isinstance(reply, Welcome | Taken | Refused)
        if isinstance(reply, Welcome):
            if greeting.welcomed(reply):
                self._greeting = None
                engine.let_in(reply, greeting.claim)
            else:
                self._say_hello(greeting)
        elif greeting.refused(reply):
            self._say_hello(greeting)
        elif isinstance(reply, Taken) and not self._is_overtaken(greeting):
            self._greet(reply.client_epoch)
        else:
            engine.fail(self._why(reply, greeting))

    def _is_overtaken(self, greeting: Greeting) -> bool:
        """Whether a twin on the same disk was let in since this start made its claim."""
        journal = self._engine.state.journal
        assert journal is not None
        return journal.last_epoch() > greeting.recorded

    def _why(self, reply: Taken | Refused, greeting: Greeting) -> OnceMQError:
        stale = isinstance(reply, Refused) and reply.code == "stale_state"
        if isinstance(reply, Taken) or (stale and self._is_overtaken(greeting)):
            return Fenced("a newer client with the same id uses this state; this one must stop")
        return error_of(reply)
