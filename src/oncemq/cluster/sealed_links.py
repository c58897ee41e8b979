"""The connections to the other servers, where each message that leaves has the cluster's seal."""

from collections.abc import Sequence

from oncemq.cluster.agreement.shard_agreement import ShardAgreement
from oncemq.cluster.sends import Sends
from oncemq.protocol.names import ServerId
from oncemq.protocol.step import Body
from oncemq.wire.replica_seal import sealed


class SealedLinks:
    """What a leader sends on."""

    def __init__(self, links: Sends, agreement: ShardAgreement) -> None:
        self._links, self._agreement = links, agreement

    def send(self, server: ServerId, frames: Sequence[Body]) -> bool:
        """Send now, or not at all."""
        return self._links.send(server, sealed(frames, self._agreement.secret))
