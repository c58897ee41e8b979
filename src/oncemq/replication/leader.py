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
    ConfirmedTo,
    LeaderAction,
    SendFrames,
    ServeClients,
    StepDown,
)
from oncemq.replication.in_sync_changes import InSyncChanges
from oncemq.replication.in_sync_set import InSyncSet
from oncemq.replication.member_sends import MemberSends
from oncemq.replication.refusals import what_lacks
from oncemq.replication.remote_member import MemberStage, RemoteMember, meet
from oncemq.replication.rounds import LeaderRounds
from oncemq.replication.standings import MemberStanding, standing_of
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
        self.rounds = LeaderRounds()
        self._me, self._shard, self._limits = me, shard, limits
        self._begin, self._starts, self._synced = Serial(last + 1), starts, Serial(0)
        self._in_sync = InSyncSet(me, view, limits)
        self._remotes: dict[ServerId, RemoteMember] = {}
        self._changes = InSyncChanges(self._in_sync, self._remotes, limits)
        self._to_members = MemberSends(self._in_sync, limits)
        self.refused = self._in_sync.refused  # what was asked at a revision
        self.caught_up_to, self.takes_in = self._changes.caught_up_to, self._changes.takes_in
        self._hand_over_to: ServerId | None = None
        self._has_begun = self._is_draining = False
        self._ticked_at = self._moved_at = now
        self._meet(now)

    def _meet(self, now: Micros) -> None:
        view, before = self._in_sync.view, Serial(self._begin - 1)
        meet(self._remotes, view, self._me, before=before, last=self.last, now=now)

    # ------------------------------------------------------------------ events of the own log

    def appended(self, last: Serial, now: Micros, *, size: int = 0) -> list[LeaderAction]:
        """The log ends here now, so much further; nothing needs to be synced to be sent."""
        self._to_members.grew(size, now)
        if self.last == self.commit:
            self._moved_at = now
        self.last = last
        if last == self._begin:
            self._starts.began(EpochStart(self.leader_epoch, last))
        return self.sends(now)

    def gathers(self, last: Serial, size: int, now: Micros) -> list[LeaderAction]:
        """So many bytes up to `last` wait for the group before theirs: sent now, if that is much.

        Then all sync at the same time. A few leave with their group: a message costs a sync.
        """
        is_much = size >= self._limits.ahead_bytes
        return self.appended(last, now, size=size) if is_much and last > self.last else []

    def sent(self, member: ServerId, through: Serial, size: int, now: Micros) -> list[LeaderAction]:
        """An Append left, with frames up to `through`, so many bytes; what may follow it."""
        remote = self._remotes.get(member)
        if remote is None or not size:
            return []
        remote.sent(through, size, now)
        self._to_members.sent(remote, size, now)
        return self._send_to(remote, now)

    def unsent(self, member: ServerId) -> None:
        """Frames did not leave: there is no connection, or it has no room."""
        self._remotes[member].is_unreached = True

    def confirm(self, now: Micros) -> list[LeaderAction]:
        """Ask all that a commit waits for whether this is still their leader: a new `round`.

        Whoever leads after this one was in sync, and has promised a higher epoch before it did
        anything. So once all of them have answered in this epoch, nobody else had begun when the
        round was asked, and what this leader knew then was all there was. No clock is in this.
        """
        self.rounds.ask(now)
        asked = [each for each in self._remotes.values() if each.name in self._in_sync.counted]
        for remote in asked:
            remote.sent_at = now
        return [SendFrames(each.name, each.after, 0) for each in asked] + self._confirmations()

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
                remote.acknowledged(message, last=self.last, kept_from=self.kept_from, now=now)
                self._to_members.answered(remote, now)
                actions = self._surveyed(remote) + self._advance(now)
                if self._keeps_up(remote) and not self._is_to_give_up:
                    return actions + self._send_to(remote, now)  # time alone asks for a change
            case Mismatch():
                actions = [] if self._is_longer(remote, message) else self._surveyed(remote)
                self._compare(remote, message)
            case RefillWanted():
                return []  # the files' reader answers it
            case _:
                assert_never(message)
        return actions + self._send_to(remote, now) + self._ask(now)

    def _keeps_up(self, remote: RemoteMember) -> bool:
        """Whether nothing about this member asks for a change of the in-sync set."""
        is_well = remote.stage is MemberStage.STREAMING and not remote.is_full
        return is_well and self._in_sync.holds(remote.name, remote.incarnation)

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
        return self._advance(now) + self.sends(now) + self._ask(now)

    def next_deadline(self, now: Micros) -> Micros | None:
        """When a member may be sent more (`sends`) before the next tick."""
        return self._to_members.next_deadline(self._remotes.values(), now)

    def refill_ended(self, member: ServerId) -> list[LeaderAction]:
        """The files are not kept for this member any more: it has them, or was silent too long."""
        remote = self._remotes.get(member)
        if remote is not None and remote.stage is MemberStage.REFILLING:
            remote.probe(Serial(self.kept_from - 1))
        return []

    def drain(self) -> None:
        """Let another lead, as soon as everything is committed; take nothing new."""
        self._is_draining = True

    def gives_up(self, now: Micros) -> bool:
        """Whether another is to lead, and can: this server goes on where nobody else does."""
        return self._is_to_give_up and self._changes.heir(now) is not None

    @property
    def _is_to_give_up(self) -> bool:
        return self._is_draining or self._me in self._in_sync.view.draining

    def reconnected(self, member: ServerId, now: Micros) -> list[LeaderAction]:
        """A new connection to a member: what was under way on the one before may be lost."""
        remote = self._remotes.get(member)
        if remote is None or remote.stage is MemberStage.CUTTING:
            return []
        if remote.stage is MemberStage.REFILLING:  # it asks for files where it was heard last
            return [SendFrames(member, Serial(self.kept_from - 1), 0)]
        remote.probe(remote.acked)
        remote.sent_at = None
        return self._send_to(remote, now)

    def tick(self, now: Micros) -> list[LeaderAction]:
        """Time passed. A leader that stood still blames nobody for it."""
        passed = Micros(now - self._ticked_at)
        self._ticked_at = now
        if passed > self._limits.late_tick:
            self._moved_at = Micros(self._moved_at + passed)
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
        return begins + self.sends(now) + self._ask(now)

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
        confirmations = self._confirmations()
        if not self._in_sync.is_enough:
            return confirmations
        serial = min(self._synced_of(member) for member in self._in_sync.counted)
        if serial <= self.commit or not self._is_of_this_epoch(serial):
            return confirmations
        self.commit, self._moved_at = serial, now
        if self.is_serving:
            return [CommitTo(serial), *confirmations]
        self.is_serving = self.is_proven = True
        return [CommitTo(serial), ServeClients(), *confirmations]

    def _confirmations(self) -> list[LeaderAction]:
        """Which round all have answered that a commit waits for."""
        others = self._in_sync.counted - {self._me}
        is_news = self.rounds.answered(map(self._round_of, others))
        return [ConfirmedTo(self.rounds.confirmed)] if is_news else []

    def _round_of(self, member: ServerId) -> int:
        """As the directory answered that is in sync; of who is proposed only, as it is now."""
        remote = self._remotes.get(member)
        return remote.round if remote is not None and self._counts(remote) else 0

    def _is_of_this_epoch(self, serial: Serial) -> bool:
        """Before that, an acknowledged record may still part from what another leader has."""
        return serial >= self._begin

    def _synced_of(self, member: ServerId) -> Serial:
        if member == self._me:
            return self._synced
        remote = self._remotes.get(member)
        return remote.acked if remote is not None and self._counts(remote) else Serial(0)

    def _counts(self, remote: RemoteMember) -> bool:
        """Whether what it says is of the directory that is in sync; who is proposed has one."""
        is_recorded = self._in_sync.holds(remote.name, remote.incarnation)
        return is_recorded or remote.name not in self._in_sync.others

    # ------------------------------------------------------------------ the others' logs

    def sends(self, now: Micros) -> list[LeaderAction]:
        """What each member gets now; also when one has rested."""
        return [
            action for remote in self._remotes.values() for action in self._send_to(remote, now)
        ]

    def _send_to(self, remote: RemoteMember, now: Micros) -> list[LeaderAction]:
        return self._to_members.next(remote, last=self.last, kept_from=self.kept_from, now=now)

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
        if repeated := self._in_sync.repeat(now):
            return [*repeated]
        wanted = self._wanted(now)
        return [] if wanted is None else [*self._in_sync.ask(wanted, now)]

    def _wanted(self, now: Micros) -> Ask | None:
        """The most urgent change."""
        to = self._hands_over(now)
        if to is None and self._is_to_give_up and self.commit == self.last:
            to = self._changes.heir(now)
        if to is None and now - self._moved_at >= self._limits.own_sync_max:
            to = self._changes.relief(self._synced, now)
        if to is not None:
            return Resign(to)
        return self._changes.wanted(now, Serial(max(self.commit, self._begin)))

    # ------------------------------------------------------------------ what people are told

    def refusal(self, now: Micros) -> str | None:
        """Why nobody is answered just now, or nothing new is taken, in words; None: it is."""
        if not self.is_serving:
            begins = f"shard {self._shard} has a new leader, not confirmed yet: try again"
            return self.stalls(now) or begins
        if self.gives_up(now):
            return f"{self._me} is giving shard {self._shard} to another server: try again"
        return self.lacks(now)

    def stalls(self, now: Micros) -> str | None:
        """Why nobody was answered for a while, in words; None: who waits, waits for an answer."""
        since = [self._moved_at] if self.commit < self.last else []
        if (asked_at := self.rounds.waits_since()) is not None:
            since.append(asked_at)
        if not since or now - min(since) < self._limits.refuse_after:
            return None
        return self.lacks(now, min(since))

    def lacks(self, now: Micros, since: Micros | None = None) -> str | None:
        """Why what is new cannot be committed, in words. That another is to lead is no reason."""
        since = self._moved_at if since is None else since
        return what_lacks(self._shard, self._in_sync, self._remotes, since, now, self._limits)

    def standings(self, now: Micros) -> list[MemberStanding]:
        """How each other replica is."""
        return [standing_of(e, self._in_sync, self.last, now) for e in self._remotes.values()]
