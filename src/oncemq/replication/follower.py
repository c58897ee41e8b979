"""The follower's rules: which leader it follows, what it appends, cuts, acknowledges and applies.

Laws: a lower epoch than the one promised is refused, and a higher one is promised on the disk
before anything is answered in it. Frames are appended only where the log ends at exactly the
place they follow. Nothing is acknowledged in an epoch before the log matched its leader's once
(`_is_matched`), and then only what is synced. Nothing is applied beyond the commit, so what is cut
was never applied. Nothing that is known to be committed is cut: whoever asks for that has lost
data, and a person has to look.

A follower lives as long as its log is open; cutting is opening anew.
"""

from oncemq.protocol.names import LeaderEpoch, Serial, ShardId
from oncemq.protocol.replicas.leader_epochs import EpochStart, LeaderEpochs
from oncemq.protocol.replicas.messages import (
    AnswerNumber,
    Append,
    Appended,
    Cut,
    Life,
    Mismatch,
    Place,
    RefillBegin,
    Stale,
)
from oncemq.replication.actions import (
    AnswerLeader,
    AppendFrames,
    ApplyTo,
    BeginRefill,
    FollowerAction,
    Halt,
    PromiseEpoch,
    Reopen,
)


class Follower:
    """A replica that follows the leader of a shard, from one opening of its log to the next."""

    def __init__(
        self,
        shard: ShardId,
        life: Life,
        *,
        promised: LeaderEpoch,
        tail: Place,
        starts: LeaderEpochs,
        applied: Serial,
        number: int = 0,
        is_proven: bool = False,
    ) -> None:
        self.promised, self.tail, self.applied = promised, tail, applied
        self.commit = applied  # a checkpoint holds nothing else
        self.starts = starts
        self._shard, self._life = shard, life
        self._synced = Serial(0)  # what was found in the files may be in memory only
        self._is_matched = False  # with the log of the leader of `promised`
        self._is_full = False
        self._round = 0  # the newest that the leader of `promised` asked
        self.is_proven = is_proven
        self.number = number  # of its last answer; goes on where the log is opened anew

    def has_promised(self, leader_epoch: LeaderEpoch) -> None:
        """No lower epoch is followed any more, and the disk says so."""
        if leader_epoch > self.promised:
            self.promised, self._is_matched, self._round = leader_epoch, False, 0

    def append(
        self, message: Append, last: Place, starts: tuple[EpochStart, ...], *, has_room: bool
    ) -> list[FollowerAction]:
        """Frames from a leader; `last` is the place of the last, `starts` what begins in them.

        `has_room`: for these frames, and for a few more where there are none.
        """
        actions = self._heed(message.leader_epoch)
        if message.leader_epoch < self.promised:
            return [*actions, self._stale(message.leader_epoch)]
        if message.previous == self.tail:
            self._is_matched = True
        elif self._is_damaged(message.previous):
            return [*actions, Halt(self._damage(message.previous))]
        elif not self._is_matched or message.previous.serial > self.tail.serial:
            return [*actions, self._mismatch()]
        self._round = max(self._round, message.round)
        self._is_full = not has_room
        skip = self.tail.serial - message.previous.serial
        is_new = skip < message.count and has_room
        if is_new:
            self.tail = last
            for start in starts:
                self.starts.began(start)
            actions.append(AppendFrames(skip))
        if not is_new:
            actions.append(self._appended())
        self.commit = max(self.commit, self._committed(message.commit))
        return actions + self._apply()

    def synced(self, serial: Serial) -> list[FollowerAction]:
        """The disk has everything up to here."""
        self._synced = max(self._synced, serial)
        return [self._appended(), *self._apply()] if self._is_matched else []

    def cut(self, message: Cut) -> list[FollowerAction]:
        """The leader says from where on this log is another than its."""
        actions = self._heed(message.leader_epoch)
        if message.leader_epoch < self.promised:
            return [*actions, self._stale(message.leader_epoch)]
        if self._is_matched or message.tail != self.tail:
            return [*actions, self._mismatch()]  # a late copy: it was about another end
        if message.serial < self.commit:
            return [*actions, Halt(self._loss(message.leader_epoch, message.serial))]
        return [*actions, Reopen(message.serial)]

    def refill(self, message: RefillBegin) -> list[FollowerAction]:
        """The leader has files to begin from, and no frames that follow on this log."""
        actions = self._heed(message.leader_epoch)
        if message.leader_epoch < self.promised:
            return [*actions, self._stale(message.leader_epoch)]
        if message.tail != self.tail:
            return [*actions, self._mismatch()]  # a late copy: it was about another end
        # The files may end before this log does: what is behind the commit may be another history.
        if message.end.serial < self.commit:
            return [*actions, Halt(self._loss(message.leader_epoch, message.end.serial))]
        return [*actions, BeginRefill(message)]

    # ------------------------------------------------------------------ parts of the answers

    def _heed(self, leader_epoch: LeaderEpoch) -> list[FollowerAction]:
        if leader_epoch <= self.promised:
            return []
        self.has_promised(leader_epoch)
        return [PromiseEpoch(leader_epoch)]

    def _is_damaged(self, previous: Place) -> bool:
        """Whether the same record has other bytes there than here."""
        tail = self.tail
        is_same = (previous.serial, previous.leader_epoch) == (tail.serial, tail.leader_epoch)
        return is_same and previous.chain != tail.chain

    def _committed(self, commit: Serial) -> Serial:
        return min(commit, self.tail.serial)

    def _apply(self) -> list[FollowerAction]:
        """What is committed and synced here, and not applied yet."""
        serial = min(self.commit, self._synced)
        if self._is_matched and self.starts.epoch_of(serial) == self.promised:
            self.is_proven = self.is_proven or serial == self.commit
        if serial <= self.applied:
            return []
        self.applied = serial
        return [ApplyTo(serial)]

    def _answered(self) -> AnswerNumber:
        self.number += 1
        return AnswerNumber(self._life, self.number)

    def _appended(self) -> AnswerLeader:
        return AnswerLeader(
            Appended(
                self._shard,
                self.promised,
                min(self._synced, self.tail.serial),
                self.tail.serial,
                self._is_full,
                self._answered(),
                self._round,
            )
        )

    def _mismatch(self) -> AnswerLeader:
        return AnswerLeader(
            Mismatch(self._shard, self.promised, self.tail, self.starts.starts, self._answered())
        )

    def _stale(self, leader_epoch: LeaderEpoch) -> AnswerLeader:
        return AnswerLeader(Stale(self._shard, leader_epoch, self.promised))

    def _damage(self, previous: Place) -> str:
        return (
            f"shard {self._shard}: the record {previous.serial} of epoch {previous.leader_epoch} "
            f"has the chain value {self.tail.chain:08x} here and {previous.chain:08x} at the "
            "leader: one of the two disks changed it. Run `once audit` on both directories"
        )

    def _loss(self, leader_epoch: LeaderEpoch, serial: Serial) -> str:
        return (
            f"shard {self._shard}: the leader of epoch {leader_epoch} wants this log to end with "
            f"record {serial}, but up to {self.commit} all is committed: the leader has "
            "lost data. Stop it, and keep this directory: it has what is missing there"
        )
