"""Which epoch of a leader began at which serial of the log.

A leader writes `EpochBegan` as the first record of its epoch, so the table is a fold of the log,
and equal where logs are equal. It answers where two replicas part: at the end of the newest epoch
that both know, or before it.

Laws: epochs and serials both grow. A server alone is in epoch 0, from the first serial on, which no
record begins: so its log is the beginning of a replicated one as it is.
"""

from collections.abc import Iterable

from oncemq.protocol.names import LeaderEpoch, Serial

ALONE = LeaderEpoch(0)
KEPT = 1_000  # the newest; who is behind all of them is brought files, whatever epoch it is in

EpochBegin = tuple[LeaderEpoch, Serial]


class LeaderEpochs:
    """The epochs that began in a log, oldest first."""

    def __init__(self, known: Iterable[EpochBegin] = ()) -> None:
        self._begins: list[EpochBegin] = []
        for epoch, serial in known:
            self.began(epoch, serial)

    @property
    def newest(self) -> LeaderEpoch:
        """The one that the log is in."""
        return self._begins[-1][0] if self._begins else ALONE

    def began(self, leader_epoch: LeaderEpoch, serial: Serial) -> None:
        """An epoch began with this record; again, when it is known already."""
        if leader_epoch > self.newest:
            self._begins.append((leader_epoch, serial))
            del self._begins[:-KEPT]

    def capture(self) -> tuple[EpochBegin, ...]:
        """As a value: each epoch with its first serial."""
        return tuple(self._begins)
