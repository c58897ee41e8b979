"""A client's journal in memory that can be copied, as a backup would, and lose power.

Law: what a call returned from survives its process, and a twin shares it; what was synced
survives a power cut, too.
"""

from collections.abc import Iterable

from oncemq.client.state import memory_journal
from oncemq.client.state.endings import Ended
from oncemq.client.state.journal_schema import CLAIMS_KEPT
from oncemq.client.state.memory_journal import without
from oncemq.protocol.client_requests import StartGrant
from oncemq.protocol.names import Epoch, Offset, SubscriptionId
from oncemq.protocol.replies import NO_OFFSET
from oncemq.protocol.structs import Settled
from oncemq.session.handshake import LogSeen


class SimulatedJournal(memory_journal.MemoryJournal):
    """What one client must not forget."""

    def __init__(self) -> None:
        super().__init__()
        self._sync()

    def log(self) -> LogSeen:
        """The log that this state is about."""
        return self._log

    def claims(self) -> tuple[int, ...]:
        """Starts that nobody has heard of yet, oldest first."""
        return tuple(self._claims)

    def accept(
        self,
        log: LogSeen,
        cursors: Iterable[tuple[str, Offset | None]],
        again: Iterable[Settled] = (),
    ) -> None:
        """A person said so: go on with what the server has, as `client.journal` does it."""
        self._client_epoch = Epoch(0)
        left = [*(each.nonce for each in self._grants), *self._claims[:CLAIMS_KEPT]]
        self._grants = tuple(map(StartGrant, left))
        self._claims.clear()
        for topic, cursor in cursors:
            if cursor is None:
                del self._cursors[topic]
            else:
                self._cursors[topic] = self._cursors[topic][0], cursor
        for each in again:
            if each.cursor != NO_OFFSET:  # of a pattern there is none
                self._cursors[each.topic] = each.subscription_id, each.cursor
            self._ended = without(each.subscription_id, self._ended)
            self._untaken = without(each.subscription_id, self._untaken)
        self._sync()
        self.know(log)

    def settle(
        self,
        client_epoch: Epoch,
        moved: Iterable[tuple[str, SubscriptionId, Offset]],
        *,
        synced: bool = True,
        ended: Iterable[tuple[str, SubscriptionId, Offset]] = (),
    ) -> None:
        """Move cursors, all or none; only for the client that is current."""
        super().settle(client_epoch, moved, synced=synced, ended=ended)
        if synced:
            self._sync()

    def forget(self, client_epoch: Epoch, ended: Ended) -> None:
        """The subscriptions ended. A newer client's cursors are not ours to forget: they stay."""
        super().forget(client_epoch, ended)
        self._sync()

    def cut(self) -> None:
        """The power fails: what was not synced is gone."""
        self._cursors, self._ended = dict(self._synced[0]), self._synced[1]

    def _sync(self) -> None:
        self._synced = self.cursors(), self._ended

    def copy(self) -> "SimulatedJournal":
        """The journal as a backup taken now would have it."""
        other = SimulatedJournal()
        other._client_epoch = self._client_epoch
        other._claims = list(self._claims)
        other._log = self._log
        other._cursors = dict(self._cursors)
        other._ended = self._ended
        other._untaken = self._untaken
        other._grants = self._grants
        other._sync()
        return other
