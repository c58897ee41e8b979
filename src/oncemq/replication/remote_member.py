"""What a leader knows of one other replica: how far it is, what is under way to it, since when.

Laws: what a member acknowledged counts for the directory it has now, and for no other: with a new
incarnation it has nothing. Its answers are heard in the order they were given, a late one never.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto

from oncemq.protocol.names import Micros, Serial, ServerId
from oncemq.protocol.replicas.messages import AnswerNumber, Appended, Cut, Place
from oncemq.replication.view import ShardView


class MemberStage(Enum):
    """What is to be said to a member next."""

    UNMATCHED = auto()  # it is not known whether its log is a beginning of the leader's
    STREAMING = auto()  # it is: frames follow each other without waiting for answers
    CUTTING = auto()  # its end is not the leader's
    REFILLING = auto()  # it fetches files


@dataclass(slots=True)
class SendingTurn:
    """Frames that are on their way to a member, from the first that left to the last answer."""

    begun_at: Micros
    grown_before: int  # bytes that the leader's log had got by then
    size: int = 0


@dataclass(slots=True)
class RemoteMember:
    """One other replica, as its leader sees it."""

    name: ServerId
    after: Serial  # what is sent next follows this serial
    caught_up_at: Micros | None  # when it last had all there was; None: never, or not any more
    heard_at: Micros
    mark_at: Micros  # at this time the log ended at `mark`
    mark: Serial
    stage: MemberStage = MemberStage.UNMATCHED
    acked: Serial = Serial(0)
    incarnation: bytes | None = None  # as it said itself
    is_full: bool = False
    round: int = 0  # the newest that it answered, with the directory it has now
    sent_at: Micros | None = None
    progressed_at: Micros = Micros(0)
    cut: Cut | None = None
    refill_tail: Place | None = None
    in_flight: deque[tuple[Serial, int]] = field(default_factory=deque[tuple[Serial, int]])
    in_flight_bytes: int = 0
    turn: SendingTurn | None = None  # since nothing was under way
    rests_until: Micros = Micros(0)  # while clients wait: see `member_sends`
    is_unreached: bool = False  # frames did not leave: the next heartbeat tries again
    is_outrun: bool = False  # the log grows half as fast as it catches up, or faster
    _newest: tuple[int, int] = (0, 0)
    _gone: set[bytes] = field(default_factory=set[bytes])

    def hears(self, answered: AnswerNumber, now: Micros, patience: Micros) -> bool:
        """Whether this answer is newer than all that were heard; then it is now the newest.

        Which of two directories is the newer one, nothing tells but the order of their answers.
        A late answer may mislead: so one that is gone is back when the other one is silent.
        """
        life = answered.life
        if life.incarnation in self._gone:
            if not self.is_silent(now, patience):
                return False
            self._gone.discard(life.incarnation)
        if self.incarnation is not None and self.incarnation != life.incarnation:
            self._gone.add(self.incarnation)
            self._newest = (0, 0)
            self.lost()
        self.incarnation = life.incarnation
        given = (life.openings, answered.number)
        if given <= self._newest:
            return False
        self._newest, self.heard_at = given, now
        return True

    def lost(self) -> None:
        """Its disk does not have what it acknowledged."""
        self.acked, self.caught_up_at, self.round = Serial(0), None, 0
        self.probe(Serial(0))

    def probe(self, after: Serial) -> None:
        """Find out whether its log and the leader's are equal up to `after`; send on from there."""
        if self.stage is not MemberStage.UNMATCHED or self.after != after:
            self.sent_at = None
        self.stage, self.after, self.is_unreached = MemberStage.UNMATCHED, after, False
        self._forget_in_flight()

    def sent(self, through: Serial, size: int, now: Micros) -> None:
        """Frames up to `through` are on their way."""
        if self.stage is not MemberStage.STREAMING or not size:
            return
        if not self.in_flight:
            self.progressed_at = now
        self.after = through
        self.in_flight.append((through, size))
        self.in_flight_bytes += size

    def acknowledged(
        self, message: Appended, *, last: Serial, kept_from: Serial, now: Micros
    ) -> None:
        """It has so much; the leader's log ends at `last`, and has frames from `kept_from` on."""
        if message.synced > self.acked:
            self.acked, self.progressed_at = message.synced, now
        self.round = max(self.round, message.round)
        self.is_full, self.is_unreached = message.is_full, False
        lacks_files = self.stage is MemberStage.REFILLING and message.held < kept_from - 1
        if self.stage is not MemberStage.STREAMING and not lacks_files:
            self.stage, self.after, self.cut = MemberStage.STREAMING, message.held, None
        if self.is_full:  # what is under way was not taken
            self.after = message.held
            self._forget_in_flight()
        while self.in_flight and self.in_flight[0][0] <= self.acked:
            self.in_flight_bytes -= self.in_flight.popleft()[1]
        if self.acked >= last:
            self.caught_up_at = now
        elif self.acked >= self.mark:
            self.caught_up_at = self.mark_at
        else:
            return
        self.mark, self.mark_at = last, now

    def _forget_in_flight(self) -> None:
        self.turn = None
        self.in_flight.clear()
        self.in_flight_bytes = 0

    def is_silent(self, now: Micros, patience: Micros) -> bool:
        """Whether nothing was heard of it for longer than that."""
        return now - self.heard_at > patience

    def is_unheard(self, now: Micros, patience: Micros) -> bool:
        """Whether it has said nothing at all in this epoch, for longer than that."""
        return self._newest == (0, 0) and self.is_silent(now, patience)

    def is_behind(self, now: Micros, patience: Micros) -> bool:
        """Whether it has not had all there was for longer than that."""
        return self.caught_up_at is None or now - self.caught_up_at > patience

    def forgive(self, passed: Micros) -> None:
        """The leader stood still so long: that was not the member's fault."""
        if self.caught_up_at is not None:
            self.caught_up_at = Micros(self.caught_up_at + passed)
        self.heard_at = Micros(self.heard_at + passed)
        self.mark_at = Micros(self.mark_at + passed)
        self.progressed_at = Micros(self.progressed_at + passed)


def meet(
    remotes: dict[ServerId, RemoteMember],
    view: ShardView,
    me: ServerId,
    *,
    before: Serial,
    last: Serial,
    now: Micros,
) -> None:
    """Look after every other replica, and nobody else; what it lacks begins behind `before`."""
    for name in view.replicas:
        if name == me or name in remotes:
            continue
        is_near = name in view.in_sync or name == view.proposed
        remote = RemoteMember(name, before, now if is_near else None, now, now, last)
        if name in view.in_sync and name in view.lives:
            remote.incarnation = view.lives[name].incarnation
        remotes[name] = remote
    for name in remotes.keys() - set(view.replicas):
        del remotes[name]
