"""The relay as users hold it: in a thread of their program, or as a program of its own.

Laws: of several relays at one database one works and the others wait; that is for peace, not for
safety, which rests on the numbers and the versions in the database. A database or a server that
is away is waited for, aloud; what waiting cannot mend ends the relay.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from oncemq.databases.outbox_schema import make_tables
from oncemq.errors import Fenced, StaleState
from oncemq.relay.absence import is_away, of_the_database
from oncemq.relay.database import Connect, RelayDatabase, Replaced
from oncemq.relay.publisher import RelayPublisher
from oncemq.relay.session import RelaySession
from oncemq.relay.tables import RelayTables, StandingOvertaken

TURN_SECONDS = 0.5  # between two looks whether the other relay is gone
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0

logger = logging.getLogger("oncemq.relay")


class Relay:
    """Publishes what commits in a database's outbox.

    `connect` gives a new connection for the relay alone, or something to await for one. With
    `with` or `async with` it works in a thread until the block ends; `run` works right here.
    `id` is its name at the server; without one the outbox has a name of its own. `set_aside`:
    a row that the server refuses is put aside and its topic goes on, instead of stopping. Rows for
    a topic that nobody subscribes to and that keeps nothing wait, and go out once it is otherwise;
    with `required=False` the server discards them, and they are deleted.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        server: str | Sequence[str] = "",
        id: str | None = None,
        set_aside: bool = False,
        required: bool = True,
    ) -> None:
        self._connect = connect
        self._server = server
        self._id = id
        self._sets_aside = set_aside
        self._required = required
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.failure: BaseException | None = None  # what ended it

    def __repr__(self) -> str:
        servers = self._server if isinstance(self._server, str) else ", ".join(self._server)
        standing = "works" if self._thread is not None and self._thread.is_alive() else "rests"
        if self.failure is not None:
            standing = f"ended by {self.failure!r}"
        return f"<Relay {self._id or ''} to {servers or 'the default server'}: {standing}>"

    def run(self) -> None:
        """Relay until `stop`; raises what cannot be waited out."""
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._stay()
            except (StandingOvertaken, StaleState) as error:
                logger.warning("another relay was here, beginning again: %s", error)
            except Replaced as error:
                logger.warning("database file was replaced, beginning again path=%s", error)
            except Exception as error:
                if not of_the_database(error) and not is_away(error):
                    raise
                logger.warning("database away, beginning again: %s", error)
            well = time.monotonic() - began > LONGEST_PAUSE
            pause = FIRST_PAUSE if well else min(pause * 2, LONGEST_PAUSE)
            self._stopping.wait(pause)

    def stop(self) -> None:
        """End the relay, soon; what is under way is published by the next one."""
        self._stopping.set()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="oncemq-relay", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()
        if self.failure is not None and error is None:
            raise self.failure

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.failure = error
            logger.exception("relay ended")

    def _stay(self) -> None:
        """From the connection to its end."""
        desk = RelayDatabase(self._connect)
        try:
            desk.run(make_tables(desk.kind))
            if not self._our_turn(desk):
                return
            name = self._id or desk.run(RelayTables(desk.kind).name())
            courier = RelayPublisher(self._server, name)
            try:
                logger.info("relay at work id=%s database=%s", name, desk.kind)
                session = RelaySession(
                    desk, courier, sets_aside=self._sets_aside, required=self._required
                )
                session.serve(self._stopping)
            except Fenced:
                desk.ask("SELECT 1")  # a relay that lost its database lost its turn with it
                raise
            finally:
                courier.close()
        finally:
            desk.close()

    def _our_turn(self, desk: RelayDatabase) -> bool:
        """Wait while another relay works; False when stopped."""
        waited = False
        while not self._stopping.is_set():
            desk.must_have_its_name()
            if desk.lock():
                return True
            if not waited:
                logger.info("another relay is at work; waiting for its end")
            waited = True
            self._stopping.wait(TURN_SECONDS)
        return False
