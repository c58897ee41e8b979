"""What a client is between two starts: nothing (anonymous), or a journal and an outbox."""

import secrets
from pathlib import Path

from oncemq.client.journal import Journal
from oncemq.client.outbox import Slot, open_slots
from oncemq.client.paths import state_directory
from oncemq.core.greeting import Greeting
from oncemq.core.names import (
    ANONYMOUS,
    ClientId,
    Epoch,
    Offset,
    ProducerId,
    SubscriptionId,
    is_system,
    name_fault,
)
from oncemq.core.requests import Hello, Request
from oncemq.errors import InvalidRequest


class State:
    """The durable side of a client."""

    def __init__(self, client: str | None, directory: str | Path | None) -> None:
        self.lasting = client is not None
        self.guest = ProducerId(secrets.token_bytes(16))  # numbers of puts that do not last
        self.journal: Journal | None = None
        self.slots: list[Slot] = []
        if client is None:
            self.client = f"{ANONYMOUS}{self.guest.hex()}"
            return
        fault = name_fault(client, what="client id")
        if fault is None and is_system(client):
            fault = f"the client id {client!r} begins with '_', which is the system's"
        if fault:
            raise InvalidRequest(fault, code="name_invalid")
        self.client = client
        self.directory = state_directory(client, directory)
        self.journal = Journal(self.directory, client)
        try:
            self.slots = open_slots(self.directory / "outbox", secrets.token_bytes)
        except BaseException:
            self.journal.close()
            raise

    def greeting(self) -> Greeting:
        """How this start gets its epoch; the claim is on disk before it is sent."""
        assert self.journal is not None
        earlier = self.journal.claims()
        claim = secrets.randbits(62)
        last_epoch = self.journal.last_epoch()
        self.journal.claim(claim)
        return Greeting(ClientId(self.client), last_epoch=last_epoch, earlier=earlier, claim=claim)

    def granted(self, client_epoch: Epoch, claim: int) -> None:
        """The server let this start in."""
        assert self.journal is not None
        self.journal.granted(client_epoch, claim)

    def cursors(self) -> dict[str, tuple[SubscriptionId, Offset]]:
        """Where the last start stopped."""
        return self.journal.cursors() if self.journal is not None else {}

    def opens(self, request: Request) -> bool:
        """Whether a request may be sent before the client has its epoch."""
        return isinstance(request, Hello)

    def close(self) -> None:
        """Let go of the disk."""
        for slot in self.slots:
            slot.close()
        if self.journal is not None:
            self.journal.close()
