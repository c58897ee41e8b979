"""Which leader epoch each serial of a log is of, and where two logs part.

A leader writes `EpochBegan` as the first record of its epoch, so the table is a fold of the log,
and equal where logs are equal. A server alone is in epoch 0, from the first serial on, which no
record begins: so its log is the beginning of a replicated one as it is.

Laws: epochs and serials both grow. A leader epoch has one leader, who only appends. So two records
with the same serial and the same epoch are the same record, and everything before them is the same
too. Two logs agree up to where the last epoch that both have ends in the one that ends it earlier.
The commit that a replica was told says nothing about that: it may be behind what was acknowledged,
and cutting by it loses messages.
"""

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from oncemq.protocol.names import LeaderEpoch, Serial

ALONE = LeaderEpoch(0)
EPOCHS_KEPT = 1_000  # the newest; who is behind all of them begins anew, from files


class EpochStart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The first serial that the leader of an epoch gave."""

    leader_epoch: LeaderEpoch
    serial: Serial


class LeaderEpochs:
    """The epochs of one log, each with its first serial, oldest first."""

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self._starts = list(starts)

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        """As a value."""
        return tuple(self._starts)

    @property
    def newest(self) -> LeaderEpoch:
        """The one that the log is in."""
        return self._starts[-1].leader_epoch if self._starts else ALONE

    def began(self, start: EpochStart) -> None:
        """An epoch begins in the log; one that is known changes nothing."""
        if start.leader_epoch > self.newest:
            self._starts.append(start)
            del self._starts[:-EPOCHS_KEPT]

    def epoch_of(self, serial: Serial) -> LeaderEpoch:
        """The epoch a serial is of; 0 before the first that is known."""
        at = bisect_right(self._starts, serial, key=lambda start: start.serial)
        return self._starts[at - 1].leader_epoch if at else ALONE

    def parting(self, last: Serial, other: "LeaderEpochs", other_last: Serial) -> Serial:
        """The last serial at which this log, up to `last`, and the other are equal."""
        ends, other_ends = self._ends(last), other._ends(other_last)
        common = ends.keys() & other_ends.keys()
        return max((min(ends[key], other_ends[key]) for key in common), default=Serial(0))

    def _ends(self, last: Serial) -> dict[EpochStart, Serial]:
        """Where each epoch ends, in a log up to `last`.

        What is before the first is epoch 0, as long as none was forgotten.
        """
        before = [EpochStart(ALONE, Serial(1))]
        starts = (before if len(self._starts) < EPOCHS_KEPT else []) + self._starts
        ends = [Serial(each.serial - 1) for each in starts[1:]] + [last]
        return {
            start: min(end, last)
            for start, end in zip(starts, ends, strict=True)
            if start.serial <= min(end, last)
        }
