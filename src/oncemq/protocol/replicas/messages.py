"""What a shard's leader and its other replicas say to each other. The rules are in `replication`.

A leader says `LeaderMessage`, a member `MemberMessage`. Every message names the leader epoch it is
of; what a leader hears of another epoch than its own it passes over. Frames travel beside an
`Append` as the raw bytes they have in the log, and the bytes of a file beside a `RefillPart`.
"""

from typing import ClassVar, get_args

import msgspec

from oncemq.protocol.names import LeaderEpoch, Serial, ShardId
from oncemq.protocol.replicas.leader_epochs import EpochStart

REFILL_PART_BYTES = 256 << 10  # of a file in one message: about 0.1 ms of who sends or writes it


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a record stands in a shard's log. Equal places: the logs are equal up to there."""

    serial: Serial = Serial(0)  # 0: before the first record
    leader_epoch: LeaderEpoch = LeaderEpoch(0)  # of the frame; 0: of before there was a cluster
    chain: int = 0


class Life(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which life of a data directory: its incarnation, and how often it was opened.

    An emptied directory has another incarnation; one that was set back has a count of openings
    that somebody had before.
    """

    incarnation: bytes
    openings: int


class AnswerNumber(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """When a member said something: in which life, as which of the answers it gave in it."""

    life: Life
    number: int


class ReplicaMessage(msgspec.Struct, frozen=True, array_like=True):
    """One message between replicas of a shard. `opcode` is its number on the wire."""

    opcode: ClassVar[int]
    shard: ShardId
    leader_epoch: LeaderEpoch


class Append(ReplicaMessage, frozen=True, array_like=True):
    """Frames that follow `previous` in the leader's log, beside it; none: it is a heartbeat."""

    opcode = 160
    previous: Place
    count: int  # of the frames
    commit: Serial  # as far as the leader knows; it may be beyond the frames
    round: int = 0  # of questions whether this is still the leader: the answer names it


class Cut(ReplicaMessage, frozen=True, array_like=True):
    """Your log ends at `tail`, and parts from mine behind `serial`: cut what is behind it.

    It is for a log that ends at `tail` and for no other: a late copy cuts nothing.
    """

    opcode = 161
    tail: Place
    serial: Serial


class RefillFile(msgspec.Struct, frozen=True, array_like=True):
    """One file that a replica begins from: a checkpoint, a cold or a sealed segment."""

    name: str
    size: int
    checksum: int  # CRC-32 of all of it


class RefillBegin(ReplicaMessage, frozen=True, array_like=True):
    """What follows on your log, which ends at `tail`, is no longer in frames: begin from files.

    They are pinned while they travel, and together they are the log up to `end`.
    """

    opcode = 162
    tail: Place
    end: Place
    files: tuple[RefillFile, ...]


class RefillPart(ReplicaMessage, frozen=True, array_like=True):
    """Bytes of a file, beside it, from `position` on; none: the files are not kept any more."""

    opcode = 163
    name: str
    position: int


class Appended(ReplicaMessage, frozen=True, array_like=True):
    """My log is equal to yours up to its end, `held`, and synced up to `synced`."""

    opcode = 170
    synced: Serial
    held: Serial
    is_full: bool  # there is no room on the disk: nothing more was appended
    answered: AnswerNumber
    round: int = 0  # the newest that was asked in this epoch


class Mismatch(ReplicaMessage, frozen=True, array_like=True):
    """What you sent does not follow on my log: it ends at `tail`, and had these epochs."""

    opcode = 171
    tail: Place
    starts: tuple[EpochStart, ...]
    answered: AnswerNumber


class Stale(ReplicaMessage, frozen=True, array_like=True):
    """Your epoch, `leader_epoch`, is over: I have promised a higher one."""

    opcode = 172
    promised: LeaderEpoch


class RefillWanted(ReplicaMessage, frozen=True, array_like=True):
    """Give me the bytes of this file from `position` on: `REFILL_PART_BYTES`, or up to its end."""

    opcode = 173
    name: str
    position: int
    answered: AnswerNumber


LeaderMessage = Append | Cut | RefillBegin | RefillPart
MemberMessage = Appended | Mismatch | Stale | RefillWanted
REPLICA_MESSAGES: dict[int, type[LeaderMessage | MemberMessage]] = {
    kind.opcode: kind for kind in (*get_args(LeaderMessage), *get_args(MemberMessage))
}
