"""Which role a server has in a shard: to wait, to follow, to stand for election, to lead.

Laws: a server has no role before the coordinator knows this opening of its directory. It stands
for election only in sync, with the directory that came into sync. It leads an epoch only if the
coordinator says so and it has not promised that epoch before: what an earlier process led, or
followed, is not led again. A directory that was set back may have forgotten a promise: so the
epoch that a server finds when it starts is promised, whoever leads it. The promise is on the disk
before the epoch's first record. Several may stand; the coordinator's compare-and-swap lets
one win. That nobody stands too early is a matter of leases, and safety does not rest on it.
"""

from oncemq.protocol.names import LeaderEpoch, Micros, ServerId
from oncemq.protocol.replicas.messages import Life
from oncemq.replication.actions import (
    AskCoordinator,
    MemberAction,
    PromiseEpoch,
    StartLeading,
)
from oncemq.replication.view import Ask, Elect, ReplicationLimits, Resign, ShardView


class Member:
    """One server's part in one shard, from the opening of its directory to the next."""

    def __init__(self, me: ServerId, life: Life, limits: ReplicationLimits) -> None:
        self._me, self._life, self._limits = me, life, limits
        self._view: ShardView | None = None
        self._alive: frozenset[ServerId] = frozenset()
        self._asked: int | None = None  # the revision an ask of ours was about
        self._ask_from = Micros(0)
        self._gone_since: Micros | None = None
        self.leads: LeaderEpoch | None = None

    @property
    def may_follow(self) -> bool:
        """Whether the coordinator knows this opening: before that nothing is answered."""
        return self._view is not None

    @property
    def is_whole(self) -> bool:
        """Whether this directory has all that was committed: it is the one that is in sync."""
        view = self._view
        return (
            view is not None and self._me in view.in_sync and view.lives.get(self._me) == self._life
        )

    def told(
        self, view: ShardView, alive: frozenset[ServerId], promised: LeaderEpoch, now: Micros
    ) -> list[MemberAction]:
        """How the shard is, and which servers have a lease. `promised`: the highest epoch here."""
        is_first = self._view is None
        if self._view is None or view.revision >= self._view.revision:
            self._view, self._alive = view, alive
        if is_first and view.leader_epoch > promised:
            return [PromiseEpoch(view.leader_epoch)]  # this server may have led it before
        return self.tick(promised, now)

    def reopened(self) -> None:
        """The log was closed and opened again, by the same process."""
        self.leads = None

    def refused(self, now: Micros) -> None:
        """The coordinator refused what was asked."""
        self._asked, self._ask_from = None, Micros(now + self._limits.ask_again)

    def tick(self, promised: LeaderEpoch, now: Micros) -> list[MemberAction]:
        """What is to be done now."""
        view = self._view
        if view is None or self.leads is not None:
            return []
        if view.leader == self._me and view.leader_epoch > promised and self.is_whole:
            self.leads = view.leader_epoch
            return [PromiseEpoch(view.leader_epoch), StartLeading(view)]
        if view.leader_epoch > promised:
            return [PromiseEpoch(view.leader_epoch)]
        if self._has_leader(view):
            self._gone_since = None
            return []
        if self._gone_since is None:
            self._gone_since = now
        ask = self._way_out(view)
        if ask is None or now - self._gone_since < self._rank(view) * self._limits.rank_delay:
            return []
        return self._ask(ask, view, now)

    def _has_leader(self, view: ShardView) -> bool:
        """Whether another leads, and is there. What this server was given and cannot lead: no."""
        return view.leader is not None and view.leader != self._me and view.leader in self._alive

    def _way_out(self, view: ShardView) -> Ask | None:
        """How the shard gets a leader: this server, or one that it can give the epoch to."""
        if self.is_whole:
            return Elect(self._me, LeaderEpoch(view.leader_epoch + 1))
        others = sorted(view.lives.keys() & view.in_sync & self._alive - {self._me})
        return Resign(others[0]) if view.leader == self._me and others else None

    def _rank(self, view: ShardView) -> int:
        """How many candidates go first; who is to lead nothing goes last."""
        candidates = {*view.in_sync & self._alive, self._me}
        return sorted(candidates, key=lambda each: (each in view.draining, each)).index(self._me)

    def _ask(self, ask: Ask, view: ShardView, now: Micros) -> list[MemberAction]:
        if now < self._ask_from and self._asked in (None, view.revision):
            return []
        self._asked, self._ask_from = view.revision, Micros(now + self._limits.ask_again)
        return [AskCoordinator(ask, view.revision)]
