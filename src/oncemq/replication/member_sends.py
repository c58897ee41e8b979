"""What a member is sent next, how much of it and when: frames, a question, a cut, or files.

Frames leave in pieces. A member takes a message in when it is whole, and syncs it while the next
one is on its way: all in one message would be first sent, then checked, then synced.

Laws: under way to a member is its window at most, and one frame beyond that. Nothing is sent that
says nothing new, but for a heartbeat.
"""

from oncemq.protocol.names import Micros, Serial
from oncemq.replication.actions import LeaderAction, SendFrames, SendToMember, StartRefill
from oncemq.replication.in_sync_set import InSyncSet
from oncemq.replication.remote_member import MemberStage, RemoteMember
from oncemq.replication.view import ReplicationLimits


class MemberSends:
    """Of one leader, for all members."""

    def __init__(self, in_sync: InSyncSet, limits: ReplicationLimits) -> None:
        self._in_sync, self._limits = in_sync, limits

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
                bytes_max = self._room(remote, last)
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

    def _room(self, remote: RemoteMember, last: Serial) -> int:
        """How many bytes of frames may follow now; 0 too, when there are none."""
        if remote.after >= last or remote.is_full:
            return 0
        room = self._in_sync.window(remote.name) - remote.in_flight_bytes
        return max(0, min(room, self._limits.append_bytes))
