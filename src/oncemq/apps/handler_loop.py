"""The loop of one handler: take messages, call the handler, settle, retry, or put a dead letter.

Written once, as a coroutine over `HandlerIO`. Under a blocking handler nothing in it ever waits on
an event loop (see `blocking.drive`); under an awaitable one it is a task.

Laws: a message leaves by success or by a dead letter; a verdict is on disk before it is carried
out and is not taken back, so that a letter and an effect exclude each other; what a handler puts
is its doing, so a commit that is refused for its contents is a failure of the handler; a failure
that is not the handler's (no server, no database, nobody who would get its output) counts against
no message, however often the app is restarted meanwhile.
"""

import logging
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

from oncemq.apps import dead_letters, payloads
from oncemq.apps.attempts import AttemptNotes, Hold
from oncemq.apps.handler import INBOX, TRANSACTIONAL, Handler
from oncemq.apps.retrying import Backoff, Trouble, Verdict
from oncemq.apps.signature import CONNECTION, MESSAGE, TRANSACTION
from oncemq.apps.wording import in_words, place_of, reason_of, traceback_of, waiting_for
from oncemq.client.values import Message
from oncemq.errors import (
    Fenced,
    Forked,
    HistoryLost,
    OnceMQError,
    Refused,
    StorageFull,
    Unreachable,
    Unwanted,
)

NOBODYS_FAULT = (Unreachable, StorageFull, Unwanted)  # in the handler, too: no message is to blame
OVER = (Fenced, Forked, HistoryLost)  # of the client whose transaction the handler was given
CONTENTS = ("name_invalid", "too_large", "malformed")  # a commit refused for what is put in it
AWAY = Backoff(first=0.2, longest=5.0)  # between looks for a server or a database that is away

logger = logging.getLogger("oncemq.app")


@dataclass(slots=True)
class TakenMessages:
    """Messages in hand, and what they are committed in."""

    messages: list[Message]
    connection: Any = None
    transaction: Any = None


class HandlerIO(Protocol):
    """What the work does in the world; a client's verbs, blocking or awaitable."""

    def take(self, limit: int) -> AbstractAsyncContextManager[TakenMessages]: ...
    async def subscribe(self) -> bool: ...
    async def call(self, payload: Any, extras: dict[str, Any]) -> Any: ...
    async def output(self, taken: TakenMessages, payloads: list[bytes]) -> None: ...
    async def bury(self, letter: dead_letters.Sealed) -> None: ...
    async def sound(self) -> bool: ...
    async def pause(self, seconds: float) -> None: ...


class Failed(Exception):
    """The handler raised on this message: nothing of the round is kept."""

    def __init__(self, place: int, error: Exception) -> None:
        super().__init__(place, error)
        self.place = place
        self.error = error


class Away(Exception):
    """The database was not there: nobody's fault here, and time will mend it."""


class HandlerLoop:
    """One handler of a running app."""

    def __init__(
        self,
        handler: Handler,
        hands: HandlerIO,
        *,
        client: str,
        directory: Path,
        hold: Hold,
        stopping: Callable[[], bool],
    ) -> None:
        self._handler = handler
        self._hands = hands
        self._client = client
        self._stopping = stopping
        self._notes = AttemptNotes(directory, hold)
        self._trouble = Trouble(handler.limits)
        self._away = 0  # looks in a row that found no server or no database

    async def run(self, ready: Callable[[], None]) -> None:
        """Until told to stop; the message in hand is finished first."""
        try:
            while not self._stopping() and not await self._met(self._subscribe):
                pass
            # Not sooner: until this start was let in, an older process may write a verdict.
            self._trouble = Trouble(self._handler.limits, self._notes.read())
            ready()
            while not self._stopping():
                await self._met(self._round)
        finally:
            self._notes.close()

    async def _met(self, step: Callable[[], Any]) -> bool:
        """Carry out a step; False when the world was not there for it, after a wait."""
        try:
            await step()
        except (*NOBODYS_FAULT, Away) as error:
            self._away += 1
            if self._away == 1:
                logger.warning(
                    "handler waits handler=%s because=%s", self._client, waiting_for(error)
                )
            if self._trouble.note is not None:  # a stop during the wait is no crash of the message
                self._notes.write(self._trouble.note)
            await self._hands.pause(AWAY(self._away, random.random()))
            return False
        if self._away:
            logger.info("handler goes on handler=%s", self._client)
        self._away = 0
        return True

    async def _subscribe(self) -> None:
        made = await self._hands.subscribe()
        what = "made" if made else "resumed"
        logger.info("subscription %s handler=%s topic=%s", what, self._client, self._handler.topic)

    async def _round(self) -> None:
        """Take some messages and carry them through, or none of them."""
        messages: list[Message] = []
        try:
            async with self._hands.take(self._trouble.limit(self._handler.limit)) as taken:
                messages = taken.messages
                if messages:
                    await self._carry_out(taken)
        except Failed as failed:
            await self._failed(messages, failed.place, failed.error)
        except OnceMQError as error:
            if not messages or self._trouble.is_judged or not _is_about_contents(error):
                raise
            await self._failed(messages, len(messages) - 1, error)
        except Exception as error:  # of the user's database: at its begin, or at its commit
            if self._handler.kind != INBOX:
                raise
            await self._failed(messages, len(messages) - 1, error)
        else:
            self._trouble.settled(len(messages))

    async def _carry_out(self, taken: TakenMessages) -> None:
        first = taken.messages[0]
        micros = int(first.timestamp.timestamp() * 1_000_000)
        note = self._trouble.take(first.offset, micros, len(taken.messages))
        verdict = note.verdict
        if verdict is None and self._trouble.crashed_too_often:
            reason = f"the process died {note.crashes} times while it handled this message"
            verdict = Verdict(reason, "", note.attempts, _now())
        if verdict is None:
            verdict = self._notes.write(self._trouble.begin()).verdict  # what is there stands
        if verdict is not None:  # synced here: who wrote it may have been killed before
            await self._bury(first, self._judge(verdict))
            return
        if self._handler.signature.batch:
            await self._call_with_all(taken)
        else:
            for place in range(len(taken.messages)):
                await self._call_with_one(taken, place)

    # Calling

    async def _call_with_one(self, taken: TakenMessages, place: int) -> None:
        message = taken.messages[place]
        if not dead_letters.is_for(message, self._client):
            return
        try:
            payload = self._handler.signature.payload(message)
            answer = await self._hands.call(payload, self._extras(taken, message))
            outputs = self._encoded(answer if self._handler.signature.yields else [answer])
            await self._hands.output(taken, outputs)
        except Exception as error:
            self._blame(place, error)

    async def _call_with_all(self, taken: TakenMessages) -> None:
        messages = [each for each in taken.messages if dead_letters.is_for(each, self._client)]
        if not messages:
            return
        place = len(taken.messages) - 1
        try:
            decoded = [self._handler.signature.payload(each) for each in messages]
            answer = await self._hands.call(decoded, self._extras(taken, messages))
            outputs = self._encoded([] if answer is None else answer)
            await self._hands.output(taken, outputs)
        except Exception as error:
            self._blame(place, error)

    def _blame(self, place: int, error: Exception) -> NoReturn:
        """It failed on a message, unless no message is to blame."""
        transactional = self._handler.kind == TRANSACTIONAL
        if isinstance(error, NOBODYS_FAULT) or (transactional and isinstance(error, OVER)):
            raise error
        raise Failed(place, error) from error

    def _encoded(self, outputs: Any) -> list[bytes]:
        """What the handler returned as payloads, where they go anywhere; None is none."""
        if self._handler.options.to is None:
            return []
        if not isinstance(outputs, list | tuple):
            raise TypeError(f"a handler of a list returned {type(outputs).__name__}, not a list")
        many = cast("list[Any]", outputs)
        return [payloads.encode(each) for each in many if each is not None]

    def _extras(self, taken: TakenMessages, message: Message | list[Message]) -> dict[str, Any]:
        given = {
            MESSAGE: message,
            CONNECTION: taken.connection,
            TRANSACTION: taken.transaction,
        }
        return {name: given[what] for name, what in self._handler.signature.extras.items()}

    # Failing

    async def _failed(self, messages: list[Message], place: int, error: Exception) -> None:
        if not messages:
            raise Away(in_words(error, ()))  # the database, before any message
        if not await self._hands.sound() or self._trouble.is_judged:
            raise Away(in_words(error, messages))
        if len(messages) > 1:
            suspects = len(messages) if self._handler.signature.batch else place + 1
            self._trouble.failed_among(suspects)
            self._log_failure("handler failed among others", messages, place, error)
            return
        final = isinstance(error, (payloads.MalformedPayload, *self._handler.options.give_up_on))
        last = self._trouble.failed(final=final)
        note = self._trouble.note
        assert note is not None
        self._log_failure("handler failed", messages, 0, error, attempt=note.attempts)
        if last:
            self._judge(Verdict(_reason(error), traceback_of(error), note.attempts, _now()))
            return
        self._notes.write(note)
        await self._hands.pause(self._handler.backoff(note.attempts, random.random()))

    def _log_failure(
        self, what: str, messages: list[Message], place: int, error: Exception, *, attempt: int = 0
    ) -> None:
        logger.warning(
            "%s handler=%s message=%s attempt=%d error=%s at=%s",
            what,
            self._client,
            messages[place].id,
            attempt,
            in_words(error, messages),
            place_of(error),
        )

    def _judge(self, verdict: Verdict) -> Verdict:
        """From here on the message goes to the dead letters, whatever crashes."""
        self._trouble.note = self._notes.write(self._trouble.judged(verdict), sync=True)
        assert self._trouble.note.verdict is not None
        return self._trouble.note.verdict

    async def _bury(self, message: Message, verdict: Verdict) -> None:
        await self._hands.bury(dead_letters.seal(message, self._client, verdict))
        logger.error(
            "message buried handler=%s message=%s dead=%s attempts=%d",
            self._client,
            message.id,
            self._handler.dead,
            verdict.attempts,
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _reason(error: Exception) -> str:
    return reason_of(
        error, "malformed payload" if isinstance(error, payloads.MalformedPayload) else ""
    )


def _is_about_contents(error: OnceMQError) -> bool:
    """Whether a commit was refused for what the handler put: no restart mends that."""
    return isinstance(error, Refused) and error.code in CONTENTS
