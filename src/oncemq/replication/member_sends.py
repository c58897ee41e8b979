"""What a member is sent next, how much of it and when: frames, a question, a cut, or files.

Frames leave in pieces. A member takes a message in when it is whole, and syncs it while the next
one is on its way: all in one message would be first sent, then checked, then synced.

A member that no commit waits for catches up, and takes disk and processors from those who do. While
clients put, it gets one small piece at a time, and rests after each for as long as that one took.
It does not rest while the log grows half as fast as it catches up, or it might never be there; and
while nobody puts it goes as fast as it can.

Laws: under way to a member is its window at most, and one frame beyond that. Nothing is sent that
says nothing new, but for a heartbeat.
"""

from collections.abc import Iterable

from oncemq.protocol.names import Micros, Serial
from oncemq.replication.actions import LeaderAction, SendFrames, SendToMember, StartRefill
from oncemq.replication.in_sync_set import InSyncSet
from oncemq.replication.remote_member import MemberStage, RemoteMember, SendingTurn
from oncemq.replication.view import ReplicationLimits


class MemberSends:
    """Of one leader, for all members."""

    def __init__(self, in_sync: InSyncSet, limits: ReplicationLimits) -> None:
        self._in_sync, self._limits = in_sync, limits
        self._grown, self._grew_at = 0, Micros(-limits.busy)

    def grew(self, size: int, now: Micros) -> None:
        """The log got so many bytes: clients wait for them."""
        self._grown, self._grew_at = self._grown + size, now

    def sent(self, remote: RemoteMember, size: int, now: Micros) -> None:
        """So many bytes of frames left."""
        remote.is_unreached = False
        if remote.turn is None:
            remote.turn = SendingTurn(now, self._grown)
        remote.turn.size += size

    def answered(self, remote: RemoteMember, now: Micros) -> None:
        """It said how far it is; when it has all that was sent, it may have to rest."""
        turn = remote.turn
        if turn is None or remote.in_flight:
            return
        remote.turn = None
        remote.is_outrun = 2 * (self._grown - turn.grown_before) > turn.size
        rest = 0 if remote.is_outrun else min(now - turn.begun_at, self._limits.rest_max)
        remote.rests_until = Micros(now + rest)

    def next_deadline(self, remotes: Iterable[RemoteMember], now: Micros) -> Micros | None:
        """When a member has rested, if one rests."""
        if not self._is_busy(now):
            return None
        return min((each.rests_until for each in remotes if each.rests_until > now), default=None)

    def next(
        self, remote: RemoteMember, *, last: Serial, kept_from: Serial, now: Micros
    ) -> list[LeaderAction]:
        """What it is to be sent now; the log ends at `last`, and has frames from `kept_from` on."""
        limits, oldest = self._limits, Serial(kept_from - 1)
        if remote.after < oldest and remote.stage in (MemberStage.UNMATCHED, MemberStage.STREAMING):
            remote.probe(oldest)  # what follows on its log is not in frames: it says where it ends
        is_due = remote.sent_at is None or now - remote.sent_at >= limits.heartbeat
        match remote.stage:
            case MemberStage.UNMATCHED if is_due:
                bytes_max = limits.probe_bytes if remote.sent_at is None else 0
            case MemberStage.STREAMING:
                may_leave = is_due or not remote.is_unreached
                bytes_max = self._room(remote, last, now) if may_leave else 0
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

    def _room(self, remote: RemoteMember, last: Serial, now: Micros) -> int:
        """How many bytes of frames may follow now; 0 too, when there are none."""
        limits = self._limits
        if remote.after >= last or remote.is_full:
            return 0
        if remote.name in self._in_sync.counted:
            return max(0, min(limits.window_bytes - remote.in_flight_bytes, limits.append_bytes))
        is_sparing = self._is_busy(now) and not remote.is_outrun
        if is_sparing and now < remote.rests_until:
            return 0
        window = limits.turn_bytes if is_sparing else limits.catch_up_bytes
        return max(0, min(window - remote.in_flight_bytes, limits.append_bytes))

    def _is_busy(self, now: Micros) -> bool:
        return now - self._grew_at < self._limits.busy
