"""Answers about clients: what a log that went back in time lost of what one knows; who there is."""

import msgspec

from oncemq.protocol.names import (
    ClientId,
    Epoch,
    Generation,
    Offset,
    ProducerId,
    Sequence,
    SubscriptionId,
    TopicId,
)
from oncemq.protocol.structs import ReplyStruct


class LostCursor(msgspec.Struct, frozen=True, array_like=True):
    """A cursor beyond what this server has of the topic that the client knows.

    `agreed`: below it both mean the same messages; -1: nobody can say, or the subscription is
    gone. `cursor`: where the server has the subscription; -1: it has none of this id.
    """

    topic: str
    known: Offset
    agreed: Offset
    cursor: Offset
    end: Offset


class LostNumbers(msgspec.Struct, frozen=True, array_like=True):
    """Puts with a receipt that this server does not have: those after `last_sequence`.

    Where that is the higher one, the numbers up to it are of other messages, but for those whose
    first number, count and checksum are among `recent`.
    """

    topic: str
    producer: ProducerId
    acknowledged: Sequence
    last_sequence: Sequence
    recent: tuple[tuple[Sequence, int, int], ...] = ()


class LostCommits(msgspec.Struct, frozen=True, array_like=True):
    """Transactions of a client that were answered, and that the server does not have."""

    owner: str
    acknowledged: int
    last: int  # that it has


class ThereAgain(msgspec.Struct, frozen=True, array_like=True):
    """A subscription that ended in the future that was lost, and that the server has again.

    `known`, `agreed`, `cursor`: as in LostCursor. `known` is -1 where the client took nothing of
    it; of a pattern (`topic` is its text) all three are -1.
    """

    topic: str
    subscription_id: SubscriptionId
    known: Offset
    agreed: Offset
    cursor: Offset


class Compared(ReplyStruct, frozen=True, array_like=True, repr_omit_defaults=True):
    """What the client knows and this server does not have; `client_epoch` is the one granted.

    `deleted`: topics that its numbers count on and that were deleted here: nothing is lost there,
    and the numbers are of no use any more. `parted`: what the client knows is of another branch of
    the log's history, so that nobody can say up to where both agree. `stale`: the client's state is
    an old copy: this server has let in another start since that its state does not know of.
    """

    opcode = 85
    log_id: bytes
    generation: Generation
    client_epoch: Epoch
    cursors: tuple[LostCursor, ...] = ()
    numbers: tuple[LostNumbers, ...] = ()
    deleted: tuple[TopicId, ...] = ()
    commits: tuple[LostCommits, ...] = ()
    parted: bool = False
    again: tuple[ThereAgain, ...] = ()
    stale: bool = False


class ClientInfo(msgspec.Struct, frozen=True, array_like=True):
    client: ClientId
    client_epoch: Epoch
    subscriptions: int


class ClientList(ReplyStruct, frozen=True, array_like=True):
    opcode = 86
    clients: tuple[ClientInfo, ...]
    more: bool
