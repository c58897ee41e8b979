"""What the rules want to be done.

Law: the actions of one event are done in their order, and each is over before the next begins. A
promise is on the disk before what follows it leaves. Only the sync of what was appended is told
later, by an event; and `ApplyTo` may wait for the end of a turn, for no answer rests on it. After
`Reopen`, `StepDown` or `Halt` the rules that said it are not asked again: the log is opened anew,
and new rules are made of what it holds.
"""

import msgspec

from oncemq.protocol.names import LeaderEpoch, Serial, ServerId
from oncemq.protocol.replicas.messages import LeaderMessage, MemberMessage, Place, RefillBegin
from oncemq.replication.view import Ask, ShardView


class SendFrames(msgspec.Struct, frozen=True):
    """Send the member an Append with the frames behind `after`, as many as fit, one at least.

    `bytes_max` 0: without frames. Then say what was sent (`Leader.sent`).
    """

    member: ServerId
    after: Serial
    bytes_max: int


class SendToMember(msgspec.Struct, frozen=True):
    """Send this message as it is."""

    member: ServerId
    message: LeaderMessage


class StartRefill(msgspec.Struct, frozen=True):
    """Pin a checkpoint and the segments behind it, and send the member RefillBegin.

    What was pinned for an earlier refill of the member is not needed any more. Say when this one
    ended, in whatever way (`Leader.refill_ended`).
    """

    member: ServerId
    tail: Place  # of the member's log: the refill is for this one


class AskCoordinator(msgspec.Struct, frozen=True):
    """Ask for a change, to be made only if the shard is still at this revision."""

    ask: Ask
    revision: int


class CommitTo(msgspec.Struct, frozen=True):
    """Everything up to here is committed: replies leave, readers see it."""

    serial: Serial


class ConfirmedTo(msgspec.Struct, frozen=True):
    """When this round was asked, this was the leader: what was decided before may be said."""

    round: int


class ServeClients(msgspec.Struct, frozen=True):
    """The epoch's first record is committed: requests may be answered from now on."""


class StepDown(msgspec.Struct, frozen=True):
    """Another leads, or will: close the log, and open it anew as a follower."""

    why: str


class PromiseEpoch(msgspec.Struct, frozen=True):
    """Write into DIR/EPOCH that no lower epoch is followed any more, and sync it.

    Then tell the follower, who may not have said it (`Follower.has_promised`).
    """

    leader_epoch: LeaderEpoch


class AppendFrames(msgspec.Struct, frozen=True):
    """Append the frames of the message at hand but the first `skip`, and sync them."""

    skip: int


class AnswerLeader(msgspec.Struct, frozen=True):
    """Send this to the leader of the epoch the message names."""

    message: MemberMessage


class ApplyTo(msgspec.Struct, frozen=True):
    """Fold the records up to here into the state: they are committed."""

    serial: Serial


class Reopen(msgspec.Struct, frozen=True):
    """Close the log, open it anew without what is behind `cut_to` (a copy of that is kept)."""

    cut_to: Serial


class BeginRefill(msgspec.Struct, frozen=True):
    """Take a new incarnation, then empty the log, then fetch these files."""

    begin: RefillBegin


class Halt(msgspec.Struct, frozen=True):
    """Stop this replica: something is damaged, and going on could lose what was acknowledged."""

    why: str


class StartLeading(msgspec.Struct, frozen=True):
    """Fold the log up to its end, and make a `Leader` of this epoch."""

    view: ShardView


class BeginEpoch(msgspec.Struct, frozen=True):
    """Append EpochBegan of this epoch, and say so (`Leader.appended`)."""

    leader_epoch: LeaderEpoch


LeaderAction = (
    SendFrames
    | SendToMember
    | StartRefill
    | AskCoordinator
    | CommitTo
    | ConfirmedTo
    | ServeClients
    | StepDown
    | BeginEpoch
)
FollowerAction = PromiseEpoch | AppendFrames | AnswerLeader | ApplyTo | Reopen | BeginRefill | Halt
MemberAction = PromiseEpoch | AskCoordinator | StartLeading
