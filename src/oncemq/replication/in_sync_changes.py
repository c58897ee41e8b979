"""Who is to leave the in-sync set, who is to enter it, and when the leader is to give up.

Laws: only members that do not keep up leave, and never so many that too few are left: a leader
that is left with too few stops committing, and gives the shard to another when it hears nobody.
A member enters in two steps: once it is near, it is proposed, and commits wait for it; once it
has everything that may have been committed, it is in sync. Everything is not what this leader
knows to be committed: an earlier leader may have got further, so it is all that this epoch began
with, too.
"""

from oncemq.protocol.names import Micros, Serial, ServerId
from oncemq.replication.in_sync_set import InSyncSet
from oncemq.replication.remote_member import MemberStage, RemoteMember
from oncemq.replication.view import (
    Ask,
    Expand,
    Propose,
    ReplicationLimits,
    Resign,
    Shrink,
    Withdraw,
)


class InSyncChanges:
    """What a leader wants to be changed, by what it hears of the members."""

    def __init__(
        self,
        in_sync: InSyncSet,
        remotes: dict[ServerId, RemoteMember],
        limits: ReplicationLimits,
    ) -> None:
        self._in_sync, self._remotes, self._limits = in_sync, remotes, limits
        self._asked_to_lead: dict[ServerId, Micros] = {}  # when each was to lead instead, last

    def wanted(self, now: Micros, everything: Serial) -> Ask | None:
        """The most urgent change. `everything`: what a member needs, to be in sync."""
        leaving = self._leaving(now)
        for members in (leaving, frozenset(each for each in leaving if self.is_lost(each))):
            if members and self._in_sync.allows_without(members):
                return Shrink(members)
        wanted = self._entering(now, everything)
        if wanted is None and not self._in_sync.allows_without(leaving) and self._is_cut_off(now):
            return self._to_one_of(self._in_sync.others, now)
        return wanted

    def heir(self, now: Micros) -> ServerId | None:
        """Who may lead instead of this server: the member that keeps up and was heard of last."""
        able = self._in_sync.others - self._leaving(now) - self._in_sync.view.draining
        return max(able, key=lambda name: (self._remotes[name].heard_at, name), default=None)

    def relief(self, synced: Serial, now: Micros) -> ServerId | None:
        """The member that may lead instead, if its disk has what the leader's own does not get.

        Where all disks are slow, it has not: leaders do not change for that.
        """
        to = self.heir(now)
        return to if to is not None and self._remotes[to].acked > synced else None

    def caught_up_to(self, now: Micros) -> Serial | None:
        """Up to here all have the log that are sent frames and answer; None: there is nobody."""
        patience = self._limits.lag_max
        streaming = [each for each in self._remotes.values() if _is_streaming(each)]
        heard = [each.acked for each in streaming if not each.is_silent(now, patience)]
        return min(heard, default=None)

    def takes_in(self, member: ServerId, now: Micros) -> None:
        """A large message arrives there, a part after the other: before it is whole, who gets it
        cannot answer, and is not silent. It may fall behind, and leave for that."""
        if (remote := self._remotes.get(member)) is not None:
            remote.heard_at = remote.progressed_at = now

    def is_lost(self, member: ServerId) -> bool:
        """Whether the directory that was in sync is known to be gone."""
        remote = self._remotes[member]
        return remote.incarnation is not None and (
            remote.caught_up_at is None or not self._in_sync.holds(member, remote.incarnation)
        )

    def _is_cut_off(self, now: Micros) -> bool:
        """Whether nobody is heard of: another may hear more."""
        return all(each.is_silent(now, self._limits.lag_max) for each in self._remotes.values())

    def _leaving(self, now: Micros) -> frozenset[ServerId]:
        """Members in sync that do not keep up, or whose disk is full."""
        return frozenset(name for name in self._in_sync.others if self._is_leaving(name, now))

    def _is_leaving(self, member: ServerId, now: Micros) -> bool:
        remote, limits = self._remotes[member], self._limits
        return (
            self.is_lost(member)
            or remote.is_full
            or remote.is_behind(now, limits.lag_max)
            or remote.is_unheard(now, limits.first_word)
        )

    def _entering(self, now: Micros, everything: Serial) -> Ask | None:
        proposed = self._in_sync.view.proposed
        if proposed is not None:
            return self._proposed(self._remotes.get(proposed), now, everything)
        for remote in self._remotes.values():
            if self._in_sync.holds(remote.name, remote.incarnation) or remote.is_full:
                continue
            is_near = not remote.is_behind(now, self._limits.near)
            if remote.incarnation is not None and _is_streaming(remote) and is_near:
                return Propose(remote.name, remote.incarnation)
        return None

    def _proposed(self, remote: RemoteMember | None, now: Micros, everything: Serial) -> Ask | None:
        """What becomes of a member that is proposed."""
        if remote is None:
            return Withdraw()
        has_everything = _is_streaming(remote) and remote.acked >= everything
        if has_everything and remote.incarnation is not None:
            return Expand(remote.name, remote.incarnation)
        is_gone = remote.is_full or remote.is_behind(now, self._limits.lag_max)
        return Withdraw() if is_gone else None

    def _to_one_of(self, members: frozenset[ServerId], now: Micros) -> Ask | None:
        """To each in turn, as some may not be there: first to who was heard of last."""
        able = [name for name in members if not self.is_lost(name)]
        if not able:
            return None
        asked, remotes = self._asked_to_lead, self._remotes
        to = max(able, key=lambda name: (-asked.get(name, 0), remotes[name].heard_at, name))
        asked[to] = now
        return Resign(to)


def _is_streaming(remote: RemoteMember) -> bool:
    """Whether its log is known to be a beginning of the leader's."""
    return remote.stage is MemberStage.STREAMING
