"""Who is who: clients with state, their epochs, and who is fenced.

Laws: an epoch of an id is granted once, also when the id was forgotten in between: a new id begins
above every epoch that was ever forgotten; and in one branch of the log's history alone: those of
a generation begin above all that another can have granted. A lower one is refused for good; a
client whose state is older than what was granted to it is told so, and never let in silently. A
state that was never let in takes over only when it says from which epoch: a late copy of its first
hello does not.
"""

import msgspec

from oncemq.protocol.generations import epochs_above
from oncemq.protocol.names import ANONYMOUS, ClientId, Epoch, Generation
from oncemq.protocol.records import ClientForgotten, ClientOpened
from oncemq.protocol.replies import RefusedReply, TakenReply
from oncemq.protocol.requests import Hello


class ClientState(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A client as a checkpoint keeps it."""

    client: ClientId
    client_epoch: Epoch
    nonce: int
    must_say_hello: bool = False


class Clients:
    """The epochs granted so far."""

    def __init__(self) -> None:
        self.entries: dict[ClientId, ClientOpened] = {}
        self.forgotten = Epoch(0)  # the highest that was ever forgotten, of any id
        self._above = Epoch(0)  # what is granted from now on: see `generations`
        self._outdated: set[ClientId] = set()  # let in before the log's generation began

    def granted(self, client: ClientId) -> Epoch:
        """The newest epoch of a client; 0: it was never let in."""
        entry = self.entries.get(client)
        return entry.client_epoch if entry else Epoch(0)

    def is_repeat(self, hello: Hello) -> bool:
        """Whether this start was let in before."""
        entry = self.entries.get(hello.client)
        return entry is not None and entry.nonce == hello.nonce

    def judge(self, hello: Hello) -> ClientOpened | TakenReply | RefusedReply:
        """The fact that lets this client in (the known one, when repeated), or why not."""
        entry = self.entries.get(hello.client)
        if entry is not None and self.is_repeat(hello):
            return entry
        granted = self.granted(hello.client)
        if hello.last_epoch == granted:  # who knows a higher one was refused before
            newest = max(granted or self.forgotten, self._above)
            return ClientOpened(hello.client, Epoch(newest + 1), hello.nonce)
        if hello.last_epoch == 0:
            return TakenReply(granted)
        return RefusedReply(
            "stale_state",
            f"client {hello.client!r} comes with epoch {hello.last_epoch}, but {granted} was "
            "granted since: its state is an old copy, or a client with another state took "
            "its id. Give this one another id, or move its state directory away to start afresh: "
            "puts that were not sent yet are in it",
        )

    def apply(self, record: ClientOpened | ClientForgotten) -> None:
        """A client was let in: everything below its epoch is fenced. Or it is new to us again."""
        if isinstance(record, ClientForgotten):
            self.forgotten = max(self.forgotten, record.client_epoch)
            self.entries.pop(record.client, None)
            self._outdated.discard(record.client)
            return
        granted = self.granted(record.client)
        if granted < record.client_epoch:
            self.entries[record.client] = record  # else a checkpoint knew it already
        if granted <= record.client_epoch:
            self._outdated.discard(record.client)

    def began(self, generation: Generation) -> None:
        """The log went back in time: whoever was let in before compares what it knows first."""
        self._outdated.update(self.entries)
        self.grant_above(generation)

    def grant_above(self, generation: Generation) -> None:
        """Epochs from now on are those of this generation."""
        self._above = max(self._above, epochs_above(generation))

    def must_compare(self, client: ClientId) -> bool:
        """Whether it was last let in before the log's generation began."""
        return client in self._outdated

    def refusal(self, client: ClientId, client_epoch: Epoch) -> RefusedReply | None:
        """Why a client with this epoch may not act, or None."""
        entry = self.entries.get(client)
        if entry is not None and client_epoch == entry.client_epoch and not self._outdated:
            return None  # as it nearly always is
        if client.startswith(ANONYMOUS):  # `is_anonymous`, without the call
            return None
        if entry is None or client_epoch > entry.client_epoch:
            return RefusedReply("unknown_client", f"client {client!r} has not said hello here")
        if client_epoch == entry.client_epoch and client in self._outdated:
            detail = f"client {client!r} has not said hello since the log's generation began"
            return RefusedReply("unknown_client", detail)
        if client_epoch < entry.client_epoch:
            return RefusedReply(
                "fenced",
                f"client {client!r} acts with epoch {client_epoch}, but {entry.client_epoch} has "
                "begun: a newer client with the same id took over; give each an id of its own",
            )
        return None

    def capture(self, client: ClientId) -> ClientState:
        """The client as a value."""
        entry = self.entries[client]
        return ClientState(client, entry.client_epoch, entry.nonce, client in self._outdated)

    def restore(self, state: ClientState) -> None:
        """The client a checkpoint kept."""
        self.apply(ClientOpened(state.client, state.client_epoch, state.nonce))
        if state.must_say_hello:
            self._outdated.add(state.client)
