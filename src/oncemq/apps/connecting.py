"""The connection behind `into=`: given, or opened by a function or from a URL, and mended.

Law: a connection that was given is never closed here, and one that was lost is opened again only
where it was opened here.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from oncemq.databases.aio.work import run as run_awaitable
from oncemq.databases.blocking.work import run
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
    """The connection of one blocking handler."""

    def __init__(self, into: Any) -> None:
        self._open = opening(into, awaitable=False)
        self._connection = into if self._open is None else None

    def get(self) -> Any:
        """The connection, opened if it is not."""
        if self._connection is None:
            assert self._open is not None
            self._connection = self._open()
        return self._connection

    def is_sound(self) -> bool:
        """Whether it still answers; if not, the next `get` opens another."""
        if self._connection is None:
            return False
        try:
            run(recognize(self._connection, awaitable=False), _question())
        except Exception as error:
            if self._open is None:
                raise DatabaseRefused(LOST) from error
            self.close()
            return False
        return True

    def close(self) -> None:
        """Close what was opened here."""
        if self._open is not None and self._connection is not None:
            with suppress(Exception):
                self._connection.close()
            self._connection = None


class AsyncAttachment:
    """The connection of one awaitable handler."""

    def __init__(self, into: Any) -> None:
        self._open = opening(into, awaitable=True)
        self._connection = into if self._open is None else None

    async def get(self) -> Any:
        """The connection, opened if it is not."""
        if self._connection is None:
            assert self._open is not None
            self._connection = await awaited(self._open())
        return self._connection

    async def is_sound(self) -> bool:
        """Whether it still answers; if not, the next `get` opens another."""
        if self._connection is None:
            return False
        try:
            await run_awaitable(recognize(self._connection, awaitable=True), _question())
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
