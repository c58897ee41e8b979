"""A server's process of one shard: the shipped rules, and a rim that does what they want."""

from collections.abc import Sequence
from random import Random
from typing import assert_never

from oncemq.protocol.names import Micros, Serial, ServerId, ShardId
from oncemq.protocol.replicas.leader_epochs import EpochStart
from oncemq.protocol.replicas.messages import (
    Append,
    Appended,
    Cut,
    LeaderMessage,
    MemberMessage,
    Mismatch,
    Place,
    RefillBegin,
    RefillPart,
    RefillWanted,
    Stale,
)
from oncemq.replication.actions import (
    AnswerLeader,
    AppendFrames,
    ApplyTo,
    AskCoordinator,
    BeginEpoch,
    BeginRefill,
    CommitTo,
    ConfirmedTo,
    FollowerAction,
    Halt,
    LeaderAction,
    MemberAction,
    PromiseEpoch,
    Reopen,
    SendFrames,
    SendToMember,
    ServeClients,
    StartLeading,
    StartRefill,
    StepDown,
)
from oncemq.replication.follower import Follower
from oncemq.replication.leader import Leader
from oncemq.replication.member import Member
from oncemq.replication.view import ShardView
from simulator.replicas.replica_disk import Frames, ReplicaDisk
from simulator.replicas.surroundings import (
    AskUnderWay,
    Envelope,
    Killed,
    OpenRead,
    Surroundings,
    claim_of,
)

SHARD = ShardId(1)
EPOCH_BEGAN = 0  # what the first frame of an epoch says; a client's frames say 1, 2, 3 …

Action = LeaderAction | FollowerAction | MemberAction


class ReplicaProcess:
    """From its start to its kill."""

    def __init__(
        self, name: ServerId, disk: ReplicaDisk, around: Surroundings, chance: Random, run: int
    ) -> None:
        self.name, self.disk, self.run = name, disk, run
        self.fuse: int | None = None  # so many actions from now on it is killed
        self.is_full = False
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.seen = 0  # the revision of the newest view
        self._around = around
        self._member: Member | None = None
        self._leads_to: dict[int, ServerId] = {}
        self._refilling: set[ServerId] = set()
        self._reads: list[OpenRead] = []
        self._at_hand: Envelope | None = None
        self._claim_due = Micros(0)
        self._told_synced: Serial | None = None  # to the rules of now
        if disk.claim[0] != disk.openings + 1:
            disk.claim = (disk.openings + 1, chance.getrandbits(32))

    # ------------------------------------------------------------------ events

    def tick(self) -> None:
        now = self._around.now
        if self._member is None:
            if now >= self._claim_due:
                self._claim_due = Micros(now + self._around.limits.ask_again)
                self._around.asks.append(AskUnderWay(self.name, self.run, claim_of(self.disk)))
            return
        if self.leader is None:
            self._do(self._member.tick(self.disk.promised, now))
            return
        actions: list[LeaderAction] = []
        for member in sorted(self._refilling):
            actions += self.leader.refill_ended(member)
        self._refilling.clear()
        self._do(actions + self.leader.tick(now))

    def claimed(self, openings: int, view: ShardView, alive: frozenset[ServerId]) -> None:
        """The coordinator knows of this opening."""
        if self._member is not None:
            return
        self.disk.openings = openings
        self._member = Member(self.name, self.disk.life, self._around.limits)
        self._open_log(0)
        self.told(view, alive)

    def told(self, view: ShardView, alive: frozenset[ServerId]) -> None:
        """The coordinator says how the shard is."""
        self.seen = max(self.seen, view.revision)
        if self._member is None:
            return
        now = self._around.now
        if self.leader is not None:
            self._do(self.leader.told(view, now))
        else:
            self._do(self._member.told(view, alive, self.disk.promised, now))

    def refused(self, revision: int) -> None:
        """The coordinator says no."""
        if self.leader is not None:
            self.leader.refused(revision)
        elif self._member is not None:
            self._member.refused(self._around.now)

    def synced(self) -> None:
        """The disk has what was appended."""
        self.disk.sync()
        self._told_synced = self.disk.last
        if self.leader is not None:
            self._do(self.leader.local_synced(self.disk.last, self._around.now))
        elif self.follower is not None:
            self._do(self.follower.synced(self.disk.last))

    @property
    def has_to_sync(self) -> bool:
        """Whether anything was appended since."""
        return self._told_synced != self.disk.last

    def put(self, says: int) -> None:
        """A client wants something stored."""
        if self.leader is None or self.leader.refusal(self._around.now) is not None:
            return
        self.disk.append(((self.leader.leader_epoch, says),))
        self._do(self.leader.appended(self.disk.last, self._around.now))

    def read(self) -> None:
        """A client asks for what there is."""
        leader = self.leader
        if leader is None or not leader.is_serving:
            return
        committed = self._around.witness.committed
        self._reads.append(OpenRead(leader.rounds.newest + 1, leader.commit, committed))
        self._do(leader.confirm(self._around.now))

    def keep_house(self) -> None:
        """A checkpoint of what is applied, and compaction up to it."""
        applied = 0
        if self.leader is not None and self.leader.is_serving:
            applied = self.leader.commit
        elif self.follower is not None:
            applied = self.follower.applied
        self.disk.checkpoint = max(self.disk.checkpoint, min(applied, self.disk.synced))
        self.disk.kept_from = self.disk.checkpoint + 1
        if self.leader is not None:
            self.leader.kept_from = Serial(self.disk.kept_from)

    def receive(self, envelope: Envelope) -> None:
        """A message comes in."""
        if self._member is None:
            return
        self._at_hand = envelope
        message = envelope.message
        match message:
            case Append() | Cut() | RefillBegin() | RefillPart():
                if self.leader is not None:
                    self._answer_a_rival(self.leader, envelope.source, message)
                elif self.follower is not None:
                    self._leads_to[message.leader_epoch] = envelope.source
                    self._do(self._follow(self.follower, envelope.frames, message))
            case Appended() | Mismatch() | Stale() | RefillWanted():
                if self.leader is not None:
                    actions = self.leader.heard(envelope.source, message, self._around.now)
                    leader_epoch = self.leader.leader_epoch
                    self._around.witness.hears(self.name, leader_epoch, message, actions)
                    self._do(actions)
            case _:
                assert_never(message)

    def _answer_a_rival(self, leader: Leader, rival: ServerId, message: LeaderMessage) -> None:
        self._do(leader.challenged(message.leader_epoch))
        if message.leader_epoch < leader.leader_epoch:
            stale = Stale(SHARD, message.leader_epoch, leader.leader_epoch)
            self._around.messages.append(Envelope(self.name, rival, stale))

    def _follow(
        self, follower: Follower, frames: Frames, message: LeaderMessage
    ) -> Sequence[FollowerAction]:
        match message:
            case Append():
                laid = ReplicaDisk(
                    frames=[(message.previous.leader_epoch, 0)], chains=[0, message.previous.chain]
                )
                laid.append(frames)
                last = laid.place(1 + len(frames))
                before = message.previous.serial
                place = Place(Serial(before + len(frames)), last.leader_epoch, last.chain)
                starts = tuple(
                    EpochStart(each.leader_epoch, Serial(before + each.serial - 1))
                    for each in laid.starts(after=1)
                )
                return follower.append(message, place, starts, has_room=not self.is_full)
            case Cut():
                return follower.cut(message)
            case RefillBegin():
                return follower.refill(message)
            case RefillPart():
                return []
            case _:
                assert_never(message)

    # ------------------------------------------------------------------ actions

    def _do(self, actions: Sequence[Action]) -> None:
        """In their order; what the rules of a closed log still wanted is not done."""
        rules = self.leader, self.follower
        for action in actions:
            if (self.leader, self.follower) != rules:
                return
            self._burn()
            match action:
                case SendFrames() | SendToMember() | StartRefill():
                    self._send(action)
                case CommitTo() | ConfirmedTo() | ServeClients() | ApplyTo() | Halt():
                    self._tell(action)
                case AskCoordinator():
                    what = (action.ask, action.revision)
                    self._around.asks.append(AskUnderWay(self.name, self.run, what))
                case AppendFrames():
                    assert self._at_hand is not None
                    self.disk.append(self._at_hand.frames[action.skip :])
                case PromiseEpoch():
                    self.disk.promised = action.leader_epoch
                    if self.follower is not None:
                        self.follower.has_promised(action.leader_epoch)
                case AnswerLeader():
                    self._answer(action.message)
                case StepDown():
                    self._open_log(0)
                case Reopen():
                    self._around.witness.cuts(self.name, self.disk, action.cut_to)
                    self.disk.cut_to(action.cut_to)
                    self._open_log(0 if self.follower is None else self.follower.number)
                case BeginRefill():
                    self._refill()
                case BeginEpoch():
                    assert self.leader is not None
                    self._around.witness.leads(self.name, self.disk)
                    self.disk.append(((action.leader_epoch, EPOCH_BEGAN),))
                    self._do(self.leader.appended(self.disk.last, self._around.now))
                case StartLeading():
                    self._lead(action.view)
                case _:
                    assert_never(action)

    def _burn(self) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise Killed

    def _send(self, action: SendFrames | SendToMember | StartRefill) -> None:
        leader = self.leader
        assert leader is not None
        match action:
            case SendToMember():
                envelope = Envelope(self.name, action.member, action.message)
                self._around.messages.append(envelope)
            case StartRefill():
                self._refilling.add(action.member)
                end = self.disk.place(leader.commit)
                begin = RefillBegin(SHARD, leader.leader_epoch, action.tail, end, ())
                frames = tuple(self.disk.frames[: leader.commit])
                self._around.messages.append(Envelope(self.name, action.member, begin, frames))
            case SendFrames():
                self._around.witness.has(self.name, self.disk, action.after)
                frames = tuple(self.disk.frames[action.after : action.after + action.bytes_max])
                previous = self.disk.place(action.after)
                append = Append(
                    SHARD,
                    leader.leader_epoch,
                    previous,
                    len(frames),
                    leader.commit,
                    leader.rounds.newest,
                )
                self._around.messages.append(Envelope(self.name, action.member, append, frames))
                through = Serial(action.after + len(frames))
                now = self._around.now
                self._do(leader.sent(action.member, through, len(frames), now))

    def _tell(self, action: CommitTo | ConfirmedTo | ServeClients | ApplyTo | Halt) -> None:
        witness = self._around.witness
        match action:
            case CommitTo(serial):
                assert self.leader is not None
                leader_epoch = self.leader.leader_epoch
                witness.commits(self.name, self.run, leader_epoch, self.disk, serial)
            case ConfirmedTo(asked):
                for read in [each for each in self._reads if each.round <= asked]:
                    self._reads.remove(read)
                    witness.answers_read(self.name, read.commit, read.committed)
            case ServeClients():
                witness.leads(self.name, self.disk)
            case ApplyTo(serial):
                witness.applies(self.name, self.disk, serial)
            case Halt(why):
                witness.halted(self.name, why)

    def _answer(self, message: MemberMessage) -> None:
        to = self._leads_to.get(message.leader_epoch)
        self._around.witness.answers(self.name, self.disk, message)
        if to is not None:
            self._around.messages.append(Envelope(self.name, to, message))

    def _open_log(self, number: int) -> None:
        is_proven = any(rules and rules.is_proven for rules in (self.leader, self.follower))
        self.leader = self._told_synced = None
        self._reads.clear()
        self._refilling.clear()
        self.follower = Follower(
            SHARD,
            self.disk.life,
            promised=self.disk.promised,
            tail=self.disk.place(self.disk.last),
            starts=self.disk.table(),
            applied=Serial(self.disk.checkpoint),
            number=number,
            is_proven=is_proven,
        )
        if self._member is not None:
            self._member.reopened()

    def _lead(self, view: ShardView) -> None:
        assert self.follower is not None
        commit, is_proven, self.follower = self.follower.commit, self.follower.is_proven, None
        self._told_synced = None
        self.leader = Leader(
            self.name,
            SHARD,
            view,
            last=self.disk.last,
            starts=self.disk.table(),
            commit=commit,
            kept_from=Serial(self.disk.kept_from),
            is_proven=is_proven,
            limits=self._around.limits,
            now=self._around.now,
        )
        self._do(self.leader.tick(self._around.now))

    def _refill(self) -> None:
        """Another directory: what the files hold is all it has."""
        envelope = self._at_hand
        assert envelope is not None
        self.disk.renew(self._around.new_incarnation())
        self._burn()
        self.disk.empty()
        self.disk.append(envelope.frames)
        self.disk.sync()
        self.disk.checkpoint = len(envelope.frames)
        self.disk.kept_from = self.disk.checkpoint + 1
        raise Killed  # it starts anew, and is let in anew
