"""The iterator of `AsyncClient.listen`, which tells whether anybody still has it.

`break` leaves an async generator open until the event loop gets to closing it. Its block would be
in the way of a get on the very next line; so whoever gets asks whether somebody still has the
iterator (`client.aio.getting`), and what nobody has is over.
"""

import weakref
from collections.abc import AsyncGenerator, Callable
from types import TracebackType

from oncemq.client.values import Message

Owner = Callable[[], object]  # None once nobody has it


class AsyncListener(AsyncGenerator[Message, None]):
    """Messages as they come, from the generator that is made for it."""

    def __init__(self, begin: Callable[[Owner | None], AsyncGenerator[Message]]) -> None:
        self._messages = begin(weakref.ref(self))  # weakly: the generator must not keep it

    async def asend(self, value: None) -> Message:
        """The next message; the one before is settled."""
        return await self._messages.asend(value)

    async def athrow(
        self,
        typ: "type[BaseException] | BaseException",
        val: object = None,
        tb: TracebackType | None = None,
    ) -> Message:
        """As of any async generator."""
        error = typ(val) if isinstance(typ, type) and val is not None else typ
        return await self._messages.athrow(error)

    async def aclose(self) -> None:
        """End it: what was not settled comes again."""
        await self._messages.aclose()


def listener(begin: Callable[[Owner | None], AsyncGenerator[Message]]) -> AsyncGenerator[Message]:
    """Messages as they come, in an iterator that tells whether anybody still has it."""
    return AsyncListener(begin)
