"""The leader's rules: what to send to whom, how far the log is committed, whom to ask for.

Laws: a record is committed when every member that a commit waits for (`in_sync_set`) said, in
this epoch, that it has synced it; never with fewer than `min_in_sync` in sync; and never before
the first record of this epoch, EpochBegan, is committed with it. What the leader itself has not
synced it does not count. Times are of the steady clock.

An event goes in as a method, actions come out (`actions`). The log's own events: `appended` when it
got longer, `local_synced` when it was synced, `kept_from` when frames were compacted away.
"""

from typing import assert_never

from oncemq.protocol.names import LeaderEpoch, Micros, Serial, ServerId, ShardId
from oncemq.protocol.replicas.leader_epochs import EpochStart, LeaderEpochs
from oncemq.protocol.replicas.messages import (
    Appended,
    Cut,
    MemberMessage,
    Mismatch,
    RefillWanted,
    Stale,
)
from oncemq.replication.actions import (
    BeginEpoch,
    CommitTo,
    LeaderAction,
    SendFrames,
    SendToMember,
    ServeClients,
    StartRefill,
    StepDown,
)
from oncemq.replication.in_sync_changes import InSyncChanges
from oncemq.replication.in_sync_set import InSyncSet
from oncemq.replication.remote_member import MemberStage, RemoteMember
from oncemq.replication.view import Ask, ReplicationLimits, Resign, ShardView


class Leader:
    """The leader of one epoch of a shard. It begins when its log is known to lack nothing."""

    def __init__(
        self,
        me: ServerId,
        shard: ShardId,
        view: ShardView,
        *,
        last: Serial,
        starts: LeaderEpochs,
        commit: Serial,
        kept_from: Serial,
        is_proven: bool,
        limits: ReplicationLimits,
        now: Micros,
    ) -> None:
        self.leader_epoch: LeaderEpoch = view.leader_epoch
        self.commit, self.last, self.kept_from = commit, last, kept_from
        self.is_proven, self.is_serving = is_proven, False
        self._me, self._shard, self._limits = me, shard, limits
        self._begin, self._starts, self._synced = Serial(last + 1), starts, Serial(0)
        self._has_begun = False
        self._in_sync = InSyncSet(me, view, limits)
        self._remotes: dict[ServerId, RemoteMember] = {}
        self._changes = InSyncChanges(self._in_sync, self._remotes, limits)
        self._hand_over_to: ServerId | None = None
        self._is_draining = False
        self._ticked_at = self._moved_at = now
        self._meet(now)

    def _meet(self, now: Micros) -> None:
        """Every other replica is looked after, and nobody else."""
        view, before = self._in_sync.view, Serial(self._begin - 1)
        for name in view.replicas:
            if name == self._me or name in self._remotes:
                continue
            is_near = name in view.in_sync or name == view.proposed
            remote = RemoteMember(name, before, now if is_near else None, now, now, self.last)
            if name in view.in_sync and name in view.lives:
                remote.incarnation = view.lives[name].incarnation
            self._remotes[name] = remote
        for name in self._remotes.keys() - set(view.replicas):
            del self._remotes[name]

    # ------------------------------------------------------------------ events of the own log

    def appended(self, last: Serial, now: Micros) -> list[LeaderAction]:
        """The log ends here now; nothing of it needs to be synced to be sent."""
        if self.last == self.commit:
            self._moved_at = now
        self.last = last
        if last == self._begin:
            self._starts.began(EpochStart(self.leader_epoch, last))
        return self._sends(now)

    def sent(self, member: ServerId, through: Serial, size: int, now: Micros) -> list[LeaderAction]:
        """An Append left, with frames up to `through`, so many bytes; what may follow it."""
        remote = self._remotes.get(member)
        if remote is None or not size:
            return []
        remote.sent(through, size, now)
        return self._send_to(remote, now)

    def local_synced(self, serial: Serial, now: Micros) -> list[LeaderAction]:
        """The own disk has everything up to here."""
        self._synced = max(self._synced, serial)
        return self._advance(now)

    # ------------------------------------------------------------------ events of others

    def heard(self, member: ServerId, message: MemberMessage, now: Micros) -> list[LeaderAction]:
        """A member says something. Of what it says to the leader of another epoch, nothing."""
        remote = self._remotes.get(member)
        if isinstance(message, Stale):
            return self.challenged(message.promised)
        if remote is None or not self._is_mine(message):
            return []
        if not remote.hears(message.answered, now, self._limits.lag_max):
            return []
        match message:
            case Appended():
                last, kept_from = self.last, self.kept_from
                remote.acknowledged(message, last=last, kept_from=kept_from, now=now)
                actions = self._surveyed(remote) + self._advance(now)
            case Mismatch():
                actions = [] if self._is_longer(remote, message) else self._surveyed(remote)
                self._compare(remote, message)
            case RefillWanted():
                return []  # the files' reader answers it
            case _:
                assert_never(message)
        return actions + self._send_to(remote, now) + self._ask(now)

    def _is_mine(self, message: MemberMessage) -> bool:
        return message.leader_epoch == self.leader_epoch

    def challenged(self, leader_epoch: LeaderEpoch) -> list[LeaderAction]:
        """Somebody knows of this epoch: a higher one ends this leader."""
        if leader_epoch <= self.leader_epoch:
            return []
        return [StepDown(f"epoch {leader_epoch} has begun; this leader's was {self.leader_epoch}")]

    def told(self, view: ShardView, now: Micros) -> list[LeaderAction]:
        """The coordinator says how the shard is."""
        if view.revision > self._in_sync.view.revision and (
            view.leader != self._me or view.leader_epoch != self.leader_epoch
        ):
            leads = view.leader or "nobody"
            return [StepDown(f"{leads} leads epoch {view.leader_epoch} of shard {self._shard}")]
        if not self._in_sync.told(view):
            return []
        self._meet(now)
        return self._advance(now) + self._sends(now) + self._ask(now)

    def refused(self, revision: int) -> None:
        """The coordinator refused what was asked at this revision."""
        self._in_sync.refused(revision)

    def refill_ended(self, member: ServerId) -> list[LeaderAction]:
        """The files are not kept for this member any more: it has them, or was silent too long."""
        remote = self._remotes.get(member)
        if remote is not None and remote.stage is MemberStage.REFILLING:
            remote.probe(Serial(self.kept_from - 1))
        return []

    def drain(self) -> None:
        """Let another lead, as soon as everything is committed; take nothing new."""
        self._is_draining = True

    def tick(self, now: Micros) -> list[LeaderAction]:
        """Time passed. A leader that stood still blames nobody for it."""
        passed = Micros(now - self._ticked_at)
        self._ticked_at = now
        if passed > self._limits.late_tick:
            for remote in self._remotes.values():
                remote.forgive(passed)
        if self.last == self.commit:
            self._moved_at = now
        for remote in self._remotes.values():
            quiet = now - remote.progressed_at
            if remote.in_flight and quiet >= self._limits.resend_after:
                remote.probe(remote.acked)
                remote.sent_at = Micros(now - self._limits.heartbeat)  # without frames: it may have
        begins = self._begin_epoch() if self._needs_nobody() else []
        return begins + self._sends(now) + self._ask(now)

    # ------------------------------------------------------------------ the beginning

    def _needs_nobody(self) -> bool:
        """Whether the own log is known to have everything, or those to be asked lost theirs."""
        return self.is_proven or all(
            remote.incarnation is not None and not self._in_sync.holds(name, remote.incarnation)
            for name, remote in self._remotes.items()
            if name in self._in_sync.others
        )

    def _surveyed(self, remote: RemoteMember) -> list[LeaderAction]:
        """A member has nothing that this leader lacks: if it is in sync, nothing is lacking."""
        is_in_sync = self._in_sync.holds(remote.name, remote.incarnation)
        return self._begin_epoch() if is_in_sync else []

    def _begin_epoch(self) -> list[LeaderAction]:
        if self._has_begun or self._hand_over_to is not None:
            return []
        self._has_begun = True
        return [BeginEpoch(self.leader_epoch)]

    def _is_longer(self, remote: RemoteMember, message: Mismatch) -> bool:
        """Whether a member in sync has more than this leader, whose log is not proven yet.

        Every member in sync has all that was committed. So the one with the longest log has it
        even when another's disk was set back and nobody noticed.
        """
        if self._has_begun or not self._in_sync.holds(remote.name, remote.incarnation):
            return False
        own = (self._starts.epoch_of(self.last), self.last)
        return (message.tail.leader_epoch, message.tail.serial) > own

    def _hands_over(self, now: Micros) -> ServerId | None:
        """To the member whose log is longer, while it is there."""
        to = self._hand_over_to
        if to is None:
            return None
        if to not in self._in_sync.others or self._remotes[to].is_silent(now, self._limits.lag_max):
            self._hand_over_to = None
        return self._hand_over_to

    # ------------------------------------------------------------------ the commit

    def _advance(self, now: Micros) -> list[LeaderAction]:
        """How far everybody that counts is."""
        if not self._in_sync.is_enough:
            return []
        serial = min(self._synced_of(member) for member in self._in_sync.counted)
        if serial <= self.commit or not self._is_of_this_epoch(serial):
            return []
        self.commit, self._moved_at = serial, now
        if self.is_serving:
            return [CommitTo(serial)]
        self.is_serving = self.is_proven = True
        return [CommitTo(serial), ServeClients()]

    def _is_of_this_epoch(self, serial: Serial) -> bool:
        """Before that, an acknowledged record may still part from what another leader has."""
        return serial >= self._begin

    def _synced_of(self, member: ServerId) -> Serial:
        if member == self._me:
            return self._synced
        remote = self._remotes.get(member)
        if remote is None:
            return Serial(0)
        recorded = self._in_sync.holds(member, remote.incarnation)
        return remote.acked if recorded or member not in self._in_sync.others else Serial(0)

    # ------------------------------------------------------------------ the others' logs

    def _sends(self, now: Micros) -> list[LeaderAction]:
        return [
            action for remote in self._remotes.values() for action in self._send_to(remote, now)
        ]

    def _send_to(self, remote: RemoteMember, now: Micros) -> list[LeaderAction]:
        limits, oldest = self._limits, Serial(self.kept_from - 1)
        if remote.after < oldest and remote.stage in (MemberStage.UNMATCHED, MemberStage.STREAMING):
            remote.probe(oldest)  # what follows on its log is not in frames: it says where it ends
        is_due = remote.sent_at is None or now - remote.sent_at >= limits.heartbeat
        match remote.stage:
            case MemberStage.UNMATCHED if is_due:
                bytes_max = limits.probe_bytes if remote.sent_at is None else 0
            case MemberStage.STREAMING:
                bytes_max = 0
                if remote.after < self.last and not remote.is_full:
                    bytes_max = max(0, limits.window_bytes - remote.in_flight_bytes)
                if not bytes_max and not is_due:
                    return []
            case MemberStage.CUTTING if is_due and remote.cut is not None:
                remote.sent_at = now
                return [SendToMember(remote.name, remote.cut)]
            case MemberStage.REFILLING if remote.sent_at is None and remote.refill_tail is not None:
                remote.sent_at = now
                return [StartRefill(remote.name, remote.refill_tail)]
            case _:
                return []
        remote.sent_at = now
        return [SendFrames(remote.name, remote.after, bytes_max)]

    def _compare(self, remote: RemoteMember, message: Mismatch) -> None:
        """Where the logs part decides how to go on: frames, a cut, files, or the other leads."""
        tail = message.tail
        if tail.serial < remote.acked:
            remote.lost()  # it synced more than it has now
        if self._is_longer(remote, message):
            self._hand_over_to = remote.name
        if not self._has_begun:
            return  # before that, nobody's log is touched
        agreed = self._starts.parting(self.last, LeaderEpochs(message.starts), tail.serial)
        if agreed < self.kept_from - 1:
            if remote.stage is not MemberStage.REFILLING or remote.refill_tail != tail:
                remote.stage, remote.refill_tail, remote.sent_at = MemberStage.REFILLING, tail, None
        elif agreed < tail.serial:
            if remote.cut is None or remote.cut.tail != tail:
                remote.sent_at = None
            remote.cut = Cut(self._shard, self.leader_epoch, tail, agreed)
            remote.stage = MemberStage.CUTTING
        else:
            remote.probe(agreed)

    # ------------------------------------------------------------------ the in-sync set

    def _ask(self, now: Micros) -> list[LeaderAction]:
        if not self._in_sync.may_ask(now):
            return []
        repeated = self._in_sync.repeat(now)
        if repeated:
            return [*repeated]
        wanted = self._wanted(now)
        return [] if wanted is None else [*self._in_sync.ask(wanted, now)]

    def _wanted(self, now: Micros) -> Ask | None:
        """The most urgent change."""
        if (to := self._hands_over(now)) is not None:
            return Resign(to)
        if self._is_draining and self.commit == self.last:
            return self._changes.resignation(now)
        return self._changes.wanted(now, Serial(max(self.commit, self._begin)))

    # ------------------------------------------------------------------ what users are told

    def refusal(self, now: Micros) -> str | None:
        """Why nothing new is taken just now, in words; None: it is."""
        if not self.is_serving:
            return f"shard {self._shard} has a new leader, which is not confirmed yet: try again"
        if self._is_draining:
            return f"{self._me} is giving shard {self._shard} to another server: try again"
        full = sorted(n for n in self._in_sync.counted - {self._me} if self._remotes[n].is_full)
        if full:
            return (
                f"the disk of {', '.join(full)} is full, and shard {self._shard} needs "
                f"{self._limits.min_in_sync} servers that store: free room there"
            )
        if self._in_sync.is_enough and now - self._moved_at < self._limits.refuse_after:
            return None
        silent = sorted(n for n in self._in_sync.counted - {self._me} if self._is_silent(n, now))
        waits_for = ", ".join(silent) or "servers to come into sync"
        return (
            f"shard {self._shard} needs {self._limits.min_in_sync} servers that store and waits "
            f"for {waits_for}: start what is down, or mend the network"
        )

    def _is_silent(self, member: ServerId, now: Micros) -> bool:
        remote = self._remotes.get(member)
        return remote is None or remote.is_behind(now, self._limits.lag_max)
