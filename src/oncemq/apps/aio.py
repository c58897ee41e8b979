"""The hands of an awaitable handler: a client of its own, in a task of its own."""

import asyncio
from contextlib import suppress
from typing import Any

from oncemq.apps.handler import Handler
from oncemq.apps.hands import ClientHandlerIO
from oncemq.client.aio.client import AsyncClient


class AsyncHandlerIO(ClientHandlerIO):
    """A client's verbs, awaited."""

    def __init__(self, handler: Handler, client: AsyncClient, stop: asyncio.Event) -> None:
        super().__init__(handler, client)
        self._stop = stop

    async def call(self, payload: Any, extras: dict[str, Any]) -> Any:
        """The handler itself; all it yields, when it yields."""
        answer = self._handler.function(payload, **extras)
        if self._handler.signature.yields:
            return [each async for each in answer]
        return await answer

    async def pause(self, seconds: float) -> None:
        """Wait; not longer than until the app is to stop."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)
