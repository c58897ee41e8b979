"""Which members a commit waits for, and what the leader asks the coordinator to change.

Law: the set that a commit waits for is never smaller than the coordinator's. A member enters the
coordinator's set only after it was proposed there and the leader has seen that: from then on
commits wait for it, so whether the answer to the expansion comes or not makes no difference. A
member that is to leave is waited for until a later revision says that it left. So whoever may be
elected has everything that was ever committed.
"""

from msgspec.structs import replace

from oncemq.protocol.names import Micros, ServerId
from oncemq.replication.actions import AskCoordinator
from oncemq.replication.view import Ask, ReplicationLimits, ShardView


class InSyncSet:
    """The in-sync set of a shard, as its leader has to take it."""

    def __init__(self, me: ServerId, view: ShardView, limits: ReplicationLimits) -> None:
        self.view = view
        self._me = me
        self._limits = limits
        self._pending: Ask | None = None
        self._ask_from = Micros(0)

    @property
    def others(self) -> frozenset[ServerId]:
        """The members in sync beside the leader, as the coordinator last said."""
        return self.view.in_sync - {self._me}

    @property
    def counted(self) -> frozenset[ServerId]:
        """Whom a commit waits for."""
        proposed = () if self.view.proposed is None else (self.view.proposed,)
        return self.view.in_sync.union(proposed)

    @property
    def is_enough(self) -> bool:
        """Whether so many are in sync that something may be committed at all."""
        return len(self.view.in_sync) >= self._limits.min_in_sync

    def allows_without(self, members: frozenset[ServerId]) -> bool:
        """Whether enough are in sync without these."""
        return len(self.view.in_sync - members) >= self._limits.min_in_sync

    def holds(self, member: ServerId, incarnation: bytes | None) -> bool:
        """Whether the member is in sync with this directory of its."""
        life = self.view.lives.get(member)
        return member in self.view.in_sync and life is not None and life.incarnation == incarnation

    def told(self, view: ShardView) -> bool:
        """The coordinator says how it is; False when that is no news of the shard.

        Who is to lead nothing is no part of the shard's value: it comes without a new revision, and
        what was asked stays asked.
        """
        if view.revision == self.view.revision:
            self.view = replace(self.view, draining=view.draining)
        if view.revision <= self.view.revision:
            return False
        self.view, self._pending = view, None
        self._ask_from = Micros(0)
        return True

    def refused(self, revision: int) -> None:
        """The answer to what was asked is no. A copy that is still under way may get a yes."""
        if revision == self.view.revision:
            self._pending = None

    def may_ask(self, now: Micros) -> bool:
        """Whether nothing was asked or refused a short while ago."""
        return now >= self._ask_from

    def repeat(self, now: Micros) -> list[AskCoordinator]:
        """What has no answer yet, asked again: it cannot happen twice."""
        return [] if self._pending is None else self.ask(self._pending, now)

    def ask(self, ask: Ask, now: Micros) -> list[AskCoordinator]:
        """Ask for this change, of the shard as it is known here."""
        self._pending, self._ask_from = ask, Micros(now + self._limits.ask_again)
        return [AskCoordinator(ask, self.view.revision)]
