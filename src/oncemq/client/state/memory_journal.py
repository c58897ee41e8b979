"""A client with an id and no directory: what it must not forget is kept elsewhere.

Spark's source is one: its cursors are in the query's checkpoint. The server tells such a client
its epoch anew with each start, and fences the one before.
"""

import secrets
from collections.abc import Iterable

from oncemq.client.state.endings import ENDED_KEPT, UNTAKEN_KEPT, Ended
from oncemq.client.state.journal_schema import GRANTS_KEPT, UNHEARD_KEPT
from oncemq.client.state.known import ClaimStanding, Known
from oncemq.client.state.state import State
from oncemq.errors import Fenced
from oncemq.protocol.client_requests import StartGrant
from oncemq.protocol.generations import UNKNOWN
from oncemq.protocol.names import NO_SUBSCRIPTION, Epoch, Micros, Offset, SubscriptionId
from oncemq.protocol.replies import NO_OFFSET
from oncemq.protocol.structs import Settled
from oncemq.session.handshake import NO_LOG, LogSeen


class MemoryJournal:
    """What `client.journal.Journal` keeps, for as long as this object lasts."""

    def __init__(self) -> None:
        self._client_epoch = Epoch(0)
        self._claims: list[int] = []
        self._log = NO_LOG
        self._cursors: dict[str, tuple[SubscriptionId, Offset]] = {}
        self._ended: tuple[Settled, ...] = ()
        self._untaken: tuple[Settled, ...] = ()  # ended, too: without a cursor, and patterns
        self._grants: tuple[StartGrant, ...] = ()

    def last_epoch(self) -> Epoch:
        """The newest epoch this state has seen granted."""
        return self._client_epoch

    def claim(self, nonce: int) -> ClaimStanding:
        """This nonce will be sent: remember it first; what stood before, as of the same moment."""
        last = [each.nonce for each in self._grants if each.client_epoch == self._client_epoch]
        last_nonce = last[-1] if last and self._client_epoch else 0
        standing = ClaimStanding(self._client_epoch, tuple(self._claims), self._log, last_nonce)
        self._claims.append(nonce)
        return standing

    def granted(self, client_epoch: Epoch, claim: int, moment: Micros = UNKNOWN) -> Known:
        """The server granted this epoch: this claim, and every one before it, is settled."""
        self._client_epoch = max(self._client_epoch, client_epoch)
        if claim in self._claims:
            before = self._claims.index(claim)
            unheard = map(StartGrant, self._claims[:before][:UNHEARD_KEPT])
            self._grants = (*self._grants, *unheard)
            del self._claims[: before + 1]
        self._grants = (*self._grants, StartGrant(claim, client_epoch, moment))[-GRANTS_KEPT:]
        return self.known()

    def known(self) -> Known:
        """All that this client knows of its server's log."""
        return Known(self._log, self.cursors(), self.ended(), self._grants)

    def know(self, log: LogSeen) -> None:
        """The log that the cursors are of."""
        self._log = log

    def cursors(self) -> dict[str, tuple[SubscriptionId, Offset]]:
        """Where this client stands."""
        return dict(self._cursors)

    def settle(
        self,
        client_epoch: Epoch,
        moved: Iterable[tuple[str, SubscriptionId, Offset]],
        *,
        synced: bool = True,
        ended: Iterable[tuple[str, SubscriptionId, Offset]] = (),
    ) -> None:
        """Move cursors, all or none; only for the client that is current."""
        if client_epoch != self._client_epoch:
            raise Fenced("a newer client with the same id uses this state; this one must stop")
        for topic, subscription_id, cursor in moved:
            if topic in self._cursors and self._cursors[topic][0] != subscription_id:
                self._end(topic)  # nobody noted it
            self._cursors[topic] = (subscription_id, cursor)
        for each in ended:
            self._settle_ended(Settled(*each))

    def _settle_ended(self, taken: Settled) -> None:
        """What was worked on while its subscription ended was taken."""
        topic, subscription_id = taken.topic, taken.subscription_id
        if self._cursors.get(topic, (NO_SUBSCRIPTION,))[0] == subscription_id:
            self._cursors[topic] = subscription_id, max(self._cursors[topic][1], taken.cursor)
            return
        known = [each.cursor for each in self._ended if each.subscription_id == subscription_id]
        if max(known, default=NO_OFFSET) < taken.cursor:
            self._ended = (*without(subscription_id, self._ended), taken)[-ENDED_KEPT:]
            self._untaken = without(subscription_id, self._untaken)

    def forget(self, client_epoch: Epoch, ended: Ended) -> None:
        """The subscriptions ended. A newer client's cursors are not ours to forget: they stay."""
        if client_epoch != self._client_epoch:
            return
        for name, subscription_id in ended:
            if name in self._cursors:
                self._end(name)
            noted = {NO_SUBSCRIPTION, *(each.subscription_id for each in self.ended())}
            if subscription_id not in noted:
                untaken = Settled(name, subscription_id, NO_OFFSET)
                self._untaken = (*self._untaken, untaken)[-UNTAKEN_KEPT:]

    def _end(self, topic: str) -> None:
        self._ended = (*self._ended, Settled(topic, *self._cursors.pop(topic)))[-ENDED_KEPT:]

    def ended(self) -> tuple[Settled, ...]:
        """Subscriptions that ended, the last ones: a server that goes back has them again."""
        return (*self._ended, *self._untaken)

    def grants(self) -> tuple[StartGrant, ...]:
        """Starts of this state, oldest first."""
        return self._grants


def without(subscription_id: SubscriptionId, ended: tuple[Settled, ...]) -> tuple[Settled, ...]:
    """All but the one of this identity."""
    return tuple(each for each in ended if each.subscription_id != subscription_id)


def state_in_memory(client: str) -> State:
    """The state of a client with this id, for one process."""
    return State(
        client,
        journal=MemoryJournal(),
        slots=[],
        directory="",
        random_bytes=secrets.token_bytes,
        close=_nothing,
    )


def _nothing() -> None:
    """There is nothing to let go of."""
