"""What the coordinator says of a shard, what may be asked of it, and the limits of the rules.

The coordinator (etcd in a cluster) holds one value for each shard. It changes by compare-and-swap
alone: an `Ask` names the revision it was decided at and does nothing at any other. So once a later
revision is seen, an ask of an earlier one has happened or never will; before that it may still
happen, whatever was answered.
"""

import msgspec

from oncemq.protocol.names import LeaderEpoch, Micros, ServerId
from oncemq.protocol.replicas.messages import Life

SECOND = 1_000_000


class ShardView(msgspec.Struct, frozen=True):
    """A shard as the coordinator has it."""

    revision: int
    leader: ServerId | None
    leader_epoch: LeaderEpoch
    replicas: tuple[ServerId, ...]
    in_sync: frozenset[ServerId]
    proposed: ServerId | None  # is to be in sync, once it has everything
    lives: dict[ServerId, Life]  # directories that are in sync; none where it was replaced since
    draining: frozenset[ServerId] = frozenset()  # these are to lead only where nobody else can


class Elect(msgspec.Struct, frozen=True):
    """Make me the leader of the next epoch: the leader is gone, and I am in sync."""

    server: ServerId
    leader_epoch: LeaderEpoch


class Propose(msgspec.Struct, frozen=True):
    """This member is about to be in sync: from now on no commit is without it."""

    member: ServerId
    incarnation: bytes


class Withdraw(msgspec.Struct, frozen=True):
    """No member is proposed any more."""


class Expand(msgspec.Struct, frozen=True):
    """The proposed member has everything: it is in sync."""

    member: ServerId
    incarnation: bytes


class Shrink(msgspec.Struct, frozen=True):
    """These members do not keep up: they are not in sync any more."""

    members: frozenset[ServerId]


class Resign(msgspec.Struct, frozen=True):
    """Make this member, which is in sync, the leader of the next epoch."""

    to: ServerId


Ask = Elect | Propose | Withdraw | Expand | Shrink | Resign


class ReplicationLimits(msgspec.Struct, frozen=True):
    """When a member counts as lost, and how much may be under way to it. Times in microseconds."""

    min_in_sync: int = 2
    heartbeat: Micros = Micros(SECOND // 5)
    lag_max: Micros = Micros(2 * SECOND)  # a member that is further behind leaves
    first_word: Micros = Micros(SECOND)  # one that says nothing to a new leader leaves after that
    near: Micros = Micros(SECOND // 2)  # one that is no further behind is proposed
    resend_after: Micros = Micros(SECOND)  # without an answer to what is under way
    ask_again: Micros = Micros(SECOND)  # the coordinator, when it does not answer
    own_sync_max: Micros = Micros(3 * SECOND)  # the leader's own; then another leads
    refuse_after: Micros = Micros(3 * SECOND)  # without a commit of what waits for one
    late_tick: Micros = Micros(SECOND)  # whoever hears so late of the time stood still itself
    rank_delay: Micros = Micros(3 * SECOND // 20)  # between candidates, so that the first may win
    window_bytes: int = 16 << 20  # under way to one member that commits wait for
    catch_up_bytes: int = 2 << 20  # to any other: while it reads them, the leader does nothing else
    turn_bytes: int = 256 << 10  # the same while clients wait: then it rests as long as that took
    rest_max: Micros = Micros(SECOND // 20)
    busy: Micros = Micros(SECOND // 10)  # so long after a record clients count as waiting
    append_bytes: int = 1 << 20  # of frames in one message; one frame at least
    ahead_bytes: int = 256 << 10  # sent before the group that they are written in is taken
    probe_bytes: int = 1 << 20  # to one that is not known to follow yet
