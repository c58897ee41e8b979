"""What a client is between two starts: nothing (anonymous), or a journal and an outbox."""

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from oncemq.client.checks import check_text
from oncemq.client.state.known import Known, Memory
from oncemq.client.state.paths import state_directory
from oncemq.errors import InvalidRequest
from oncemq.protocol.names import (
    ANONYMOUS,
    ANONYMOUS_EPOCH,
    PRODUCER_BYTES,
    ClientId,
    Epoch,
    Micros,
    Offset,
    ProducerId,
    SubscriptionId,
    is_system,
    name_fault,
)
from oncemq.protocol.requests import Compare, Hello, Request
from oncemq.session.handshake import NO_LOG, Handshake, LogSeen

if TYPE_CHECKING:
    from oncemq.client.state.outbox import Slot

RandomBytes = Callable[[int], bytes]


class State:
    """The durable side of a client: who it is, its journal and its outbox, if it has any."""

    def __init__(
        self,
        client: str,
        *,
        journal: Memory | None,
        slots: "list[Slot]",
        directory: str,
        random_bytes: RandomBytes,
        close: Callable[[], None],
        disown: "Callable[[], None] | None" = None,
        hold: "Callable[[], AbstractContextManager[None]] | None" = None,
    ) -> None:
        self.client = client
        self.journal = journal
        self.lasting = journal is not None  # whether this client is the same after a restart
        self.slots = slots
        self.directory = directory
        self.guest = ProducerId(random_bytes(PRODUCER_BYTES))  # numbers of puts that do not last
        self.random_bytes = random_bytes
        self._close = close
        self._disown = disown or _nothing
        # While it is held nobody newer is let in; raises Fenced when somebody was.
        self.hold = hold or nullcontext

    def renew_guest(self) -> None:
        """Puts that do not last get a producer that has put nothing yet."""
        self.guest = ProducerId(self.random_bytes(PRODUCER_BYTES))

    def greeting(self, over: Epoch = ANONYMOUS_EPOCH) -> Handshake:
        """How this start gets its epoch; the claim is on disk before it is sent.

        `over`: from which epoch to take over, when nothing was ever granted to this state.
        """
        assert self.journal is not None
        claim = int.from_bytes(self.random_bytes(8)) >> 2
        last_epoch, earlier, log, last_nonce = self.journal.claim(claim)
        return Handshake(
            ClientId(self.client),
            last_epoch=last_epoch,
            earlier=earlier,
            claim=claim,
            last_nonce=last_nonce,
            over=over,
            log=log,
        )

    def granted(self, client_epoch: Epoch, claim: int, moment: Micros) -> Known:
        """The server let this start in; what the state knows, now that nobody else may write it."""
        assert self.journal is not None
        return self.journal.granted(client_epoch, claim, moment)

    def know(self, log: LogSeen) -> None:
        """What this state knows is no more than the server has, in this generation of its log."""
        assert self.journal is not None
        self.journal.know(log)

    def cursors(self) -> dict[str, tuple[SubscriptionId, Offset]]:
        """Where the last start stopped."""
        return self.known().cursors

    def known(self) -> Known:
        """What the last start knew of the server's log."""
        return self.journal.known() if self.journal is not None else Known(NO_LOG, {})

    def opens(self, request: Request) -> bool:
        """Whether a request may be sent before the client has its epoch."""
        return isinstance(request, Hello | Compare)

    def close(self) -> None:
        """Let go of the disk."""
        for slot in self.slots:
            slot.close()
        self._close()

    def disown(self) -> None:
        """In a forked process: leave everything to the one that opened it."""
        self._disown()


def open_state(client: str | None, directory: str | Path | None) -> State:
    """The state of a client on this machine's disk; an anonymous one has none."""
    random_bytes = secrets.token_bytes
    if client is None:
        name = f"{ANONYMOUS}{random_bytes(PRODUCER_BYTES).hex()}"
        return State(
            name, journal=None, slots=[], directory="", random_bytes=random_bytes, close=_nothing
        )
    check_text(client, "the id of a client")
    fault = name_fault(client, what="client id")
    if fault is None and is_system(client):
        fault = f"the client id {client!r} begins with '_', which is the system's"
    if fault:
        raise InvalidRequest(fault, code="name_invalid")
    # Loaded here: an anonymous `once put` needs neither SQLite nor the storage package.
    from oncemq.client.state.damage import naming_repair
    from oncemq.client.state.disk_trouble import in_words
    from oncemq.client.state.journal import Journal
    from oncemq.client.state.outbox import open_slots
    from oncemq.storage.disk import LocalDisk

    path = state_directory(client, directory)
    disk = LocalDisk()
    try:
        if not path.is_dir():
            disk.make_directory(str(path))  # durable before anything in it is relied on
        journal = Journal(path, client)
    except OSError as error:
        raise in_words(error, f"the state directory {path} could not be opened") from error
    try:
        journal.known()  # damage is told by the constructor, and not by the first verb
        with naming_repair(client, str(path)):
            slots = open_slots(disk, str(path / "outbox"), random_bytes)
    except BaseException:
        journal.close()
        raise
    return State(
        client,
        journal=journal,
        slots=slots,
        directory=str(path),
        random_bytes=random_bytes,
        close=journal.close,
        disown=journal.disown,
        hold=journal.hold,
    )


def _nothing() -> None:
    """Nothing is held that others could want."""
