"""The hands of a blocking handler: a client of its own, on a thread of its own."""

import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from oncemq.apps.handler import Handler
from oncemq.apps.hands import ClientHandlerIO
from oncemq.client.blocking.client import Client

T = TypeVar("T")


class BlockingHandlerIO(ClientHandlerIO):
    """A client's verbs, carried out at once."""

    def __init__(self, handler: Handler, client: Client, stop: threading.Event) -> None:
        super().__init__(handler, client)
        self._stop = stop

    async def call(self, payload: Any, extras: dict[str, Any]) -> Any:
        """The handler itself; all it yields, when it yields."""
        answer = self._handler.function(payload, **extras)
        return list(answer) if self._handler.signature.yields else answer

    async def pause(self, seconds: float) -> None:
        """Wait; not longer than until the app is to stop."""
        self._stop.wait(seconds)

    def close(self) -> None:
        """Let go of the database."""
        drive(self.aclose())


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run work whose hands are blocking: it goes through in one go."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("blocking hands wait for no event loop")
