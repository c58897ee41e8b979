"""What may be asked about clients: what the server lost that one knows, who there is."""

from typing import Annotated

import msgspec

from oncemq.protocol.names import Epoch, Generation, Micros, Sequence, TopicId
from oncemq.protocol.structs import (
    FEW,
    RequestStruct,
    Settled,
    ShortClientId,
    ShortProducerId,
    Text,
)


class KnownNumbers(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A producer's puts on a topic have receipts up to `acknowledged`."""

    topic: Text
    topic_id: TopicId
    producer: ShortProducerId
    acknowledged: Sequence


class KnownCommits(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An owner's commits were answered up to the one with this number."""

    owner: Text
    acknowledged: int


class StartGrant(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A start of a client: its nonce, the epoch granted to it, and the log's newest moment then.

    Epoch and moment are 0 where the state has left that branch of history, or never heard of them.
    """

    nonce: int
    client_epoch: Epoch = Epoch(0)
    moment: Micros = Micros(0)


class Compare(RequestStruct, frozen=True, array_like=True):
    """What of all that a client knows does this server not have? Changes nothing.

    `generation`: that the cursors and numbers are of. `last_epoch`: the newest granted to it.
    `commits`: of its transactions, as far as the server still has to know them. `ended`: of
    subscriptions that it knows to have ended, at -1 where nothing was taken, and of patterns, by
    their text. `grants`: starts of its state, oldest first: the
    newest ones of each branch of history that it was let in on. `claims`: nonces of starts that
    nobody has heard of yet.
    """

    opcode = 25
    client: ShortClientId
    generation: Generation
    last_epoch: Epoch = Epoch(0)
    cursors: Annotated[tuple[Settled, ...], FEW] = ()
    numbers: Annotated[tuple[KnownNumbers, ...], FEW] = ()
    commits: Annotated[tuple[KnownCommits, ...], FEW] = ()
    ended: Annotated[tuple[Settled, ...], FEW] = ()
    grants: Annotated[tuple[StartGrant, ...], FEW] = ()
    claims: Annotated[tuple[int, ...], FEW] = ()

    @property
    def last_nonce(self) -> int:
        """That the newest epoch was granted to; 0: the client does not know."""
        last = [each.nonce for each in self.grants if each.client_epoch == self.last_epoch]
        return last[-1] if last and self.last_epoch else 0


class ForgetClient(RequestStruct, frozen=True, array_like=True):
    """Remember an id no longer that nobody uses: its epoch, and (`ending`) its subscriptions."""

    opcode = 26
    client: ShortClientId
    ending: bool = False


class ListClients(RequestStruct, frozen=True, array_like=True):
    """Clients with state by id, a page at a time, from the first id after `after`."""

    opcode = 27
    after: Text = ""
    limit: int = 100
