"""What a client's state database knows: its starts, its cursors, and the log that they are of."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from oncemq.client.state.endings import Ended
from oncemq.protocol.client_requests import StartGrant
from oncemq.protocol.generations import UNKNOWN
from oncemq.protocol.names import Epoch, Micros, Offset, SubscriptionId
from oncemq.protocol.structs import Settled
from oncemq.session.handshake import NO_LOG, LogSeen


class ClaimStanding(NamedTuple):
    """What a claim found on the disk: the newest epoch granted, and claims without an answer."""

    last_epoch: Epoch
    claims: tuple[int, ...]  # oldest first
    log: LogSeen = NO_LOG
    last_nonce: int = 0  # that the epoch was granted to; 0: not known


class Known(NamedTuple):
    """What a state knows of its server's log, all as of one moment."""

    log: LogSeen
    cursors: dict[str, tuple[SubscriptionId, Offset]]
    ended: tuple[Settled, ...] = ()  # subscriptions that ended; NO_OFFSET: nothing was taken
    grants: tuple[StartGrant, ...] = ()  # starts, oldest first, by which branches are told apart


class Memory(Protocol):
    """What a client must not forget, as `client.journal.Journal` keeps it."""

    def last_epoch(self) -> Epoch: ...
    def claim(self, nonce: int) -> ClaimStanding: ...
    def granted(self, client_epoch: Epoch, claim: int, moment: Micros = UNKNOWN) -> Known: ...
    def know(self, log: LogSeen) -> None: ...
    def known(self) -> Known: ...
    def settle(
        self,
        client_epoch: Epoch,
        moved: Iterable[tuple[str, SubscriptionId, Offset]],
        *,
        synced: bool = True,
        ended: Iterable[tuple[str, SubscriptionId, Offset]] = (),
    ) -> None: ...
    def forget(self, client_epoch: Epoch, ended: Ended) -> None: ...
