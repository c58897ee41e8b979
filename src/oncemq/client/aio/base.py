"""The life of the asyncio client, from its opening to its close.

Its engine is moved by the event loop.

Law: no verb leaves the engine half-way: an interrupt ends the wait, never the state.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from oncemq.client.aio.runner import AsyncRunner
from oncemq.client.shell.handouts import Handouts
from oncemq.client.shell.opening import open_engine
from oncemq.client.state.state import State
from oncemq.client.verbs import messages as verbs
from oncemq.errors import OnceMQError, Unreachable
from oncemq.session.inbox_rule import Inbox

AWAY_SECONDS = 2.0  # a close waits no longer for a server that is away, if the outbox has it all


class AsyncBaseClient:
    """An engine, and who runs verbs on it: what the verbs of `AsyncClient` stand on."""

    def __init__(
        self,
        server: str | Sequence[str] = "",
        *,
        id: str | None = None,
        state: str | Path | State | None = None,
        timeout: float = 30.0,
        outbox_bytes_max: int = 256 << 20,
    ) -> None:
        self._engine = open_engine(
            server, id, state, timeout=timeout, outbox_bytes_max=outbox_bytes_max
        )
        self._timeout = timeout
        self._turns = AsyncRunner(self._engine, timeout)
        self._inbox = Inbox(self._engine.losses.over)
        self._handouts = Handouts(self._engine.subscriber.cursors.has)
        self._turns.begin()

    @property
    def id(self) -> str:
        """The client's id; a made-up one when it is anonymous."""
        return self._engine.client

    @property
    def unsent(self) -> int:
        """Messages put that have no receipt yet."""
        return self._engine.outflow.unsent

    @property
    def counters(self) -> dict[str, int]:
        """Requests sent (retries included), and duplicates the server recognized."""
        engine = self._engine
        return {"sends": engine.exchanges.sends, "duplicates": engine.outflow.duplicates}

    def __repr__(self) -> str:
        closed = " closed" if self._turns.closed else ""
        return f"<AsyncClient {self.id!r} of {self._engine.address}{closed}>"

    async def close(self) -> None:
        """Send what is unsent, tell what is settled, let go; the outbox keeps what cannot leave.

        Raises what a put that nobody looked at met, as `flush` does.
        """
        await self._close(self._timeout)

    async def __aenter__(self) -> Self:
        self._turns.begin()  # again: a client may be made before its loop runs
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close(self._timeout if kind is None else 0.0)

    async def _close(self, timeout: float) -> None:
        if self._turns.closed:
            return
        self._turns.check()
        if not self._turns.puts_off(partial(self._close_now, timeout)):
            await self._close_now(timeout)

    async def _close_now(self, timeout: float) -> None:
        lost: OnceMQError | None = None
        try:
            if timeout > 0:
                lost = await self._last_words(timeout)
        finally:
            self._turns.close()
            with self._turns.lock:
                self._engine.close()
        if lost is not None:
            raise lost

    async def _last_words(self, timeout: float) -> OnceMQError | None:
        outflow = self._engine.outflow
        try:
            with self._turns.lock:
                outflow.seal_all()  # what was just put is recorded, too
            if not self._engine.connected and not outflow.unrecorded:
                timeout = min(timeout, AWAY_SECONDS)
            await self._turns.wait_until(lambda: outflow.idle, timeout, "the last puts")
            await self._turns.run(verbs.leave(self._engine), timeout=min(timeout, 2.0))
        except Unreachable as unreachable:
            return unreachable if outflow.unrecorded else None
        except OnceMQError:
            pass  # it is done for: what became of its puts is all there is to say
        return outflow.take_failure()
