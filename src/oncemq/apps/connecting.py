"""The connection behind `into=`: given, or opened by a function or from a URL, and mended.

Law: a connection that was given is never closed here, and one that was lost is opened again only
where it was opened here.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from oncemq.databases.aio.work import run
from oncemq.databases.connections import awaited, is_connection, recognize
from oncemq.databases.opening import awaitable_opener, opener
from oncemq.databases.statements import Ask, Work
from oncemq.errors import DatabaseRefused

LOST = (
    "the connection given to into= was lost and cannot be opened again from here; give a function "
    "that opens one, or a URL"
)


def opening(into: Any, *, awaitable: bool) -> Callable[[], Any] | None:
    """How to open it; None: it is a connection. DatabaseRefused: it is nothing of the kind."""
    if isinstance(into, str):
        return awaitable_opener(into) if awaitable else opener(into)
    if callable(into) and not is_connection(into):
        return into
    recognize(into, awaitable=awaitable)
    return None


class Attachment:
    """The connection of one handler; one that blocks is used at once, and nothing is waited for."""

    def __init__(self, into: Any, *, awaitable: bool) -> None:
        self._awaitable = awaitable
        self._open = opening(into, awaitable=awaitable)
        self._connection = into if self._open is None else None

    async def get(self) -> Any:
        """The connection, opened if it is not."""
        if self._connection is None:
            assert self._open is not None
            opened = self._open()
            # Under a blocking handler nothing may be awaited; that it must be, `recognize` refuses.
            self._connection = await awaited(opened) if self._awaitable else opened
        return self._connection

    async def is_sound(self) -> bool:
        """Whether it still answers; if not, the next `get` opens another."""
        if self._connection is None:
            return False
        try:
            await run(recognize(self._connection, awaitable=self._awaitable), _question())
        except Exception as error:
            if self._open is None:
                raise DatabaseRefused(LOST) from error
            await self.close()
            return False
        return True

    async def close(self) -> None:
        """Close what was opened here."""
        if self._open is not None and self._connection is not None:
            with suppress(Exception):
                await awaited(self._connection.close())
            self._connection = None


def _question() -> Work[None]:
    yield Ask("SELECT 1", {})
