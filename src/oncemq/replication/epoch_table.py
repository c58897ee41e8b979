"""Which leader epoch each serial of a log is of, and where two logs part.

Law: a leader epoch has one leader, who only appends. So two records with the same serial and the
same epoch are the same record, and everything before them is the same too. Two logs agree up to
where the last epoch that both have ends in the one that ends it earlier. The commit that a
replica was told says nothing about that: it may be behind what was acknowledged, and cutting by
it loses messages.
"""

from bisect import bisect_right
from collections.abc import Iterable

from oncemq.protocol.names import LeaderEpoch, Serial
from oncemq.protocol.replicas.messages import EpochStart

EPOCHS_KEPT = 1_000  # the newest; who is behind all of them begins anew, from files


class EpochTable:
    """The epochs of one log, each with its first serial. A fold of the EpochBegan records."""

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self._starts = list(starts)

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        return tuple(self._starts)

    def begin(self, start: EpochStart) -> None:
        """An epoch begins in the log; one that is known changes nothing."""
        if not self._starts or start.leader_epoch > self._starts[-1].leader_epoch:
            self._starts.append(start)
            del self._starts[:-EPOCHS_KEPT]

    def epoch_of(self, serial: Serial) -> LeaderEpoch:
        """The epoch a serial is of; 0 before the first that is known."""
        at = bisect_right(self._starts, serial, key=lambda start: start.serial)
        return self._starts[at - 1].leader_epoch if at else LeaderEpoch(0)

    def parting(self, last: Serial, other: "EpochTable", other_last: Serial) -> Serial:
        """The last serial at which this log, up to `last`, and the other are equal."""
        ends, other_ends = self._ends(last), other._ends(other_last)
        common = ends.keys() & other_ends.keys()
        return max((min(ends[key], other_ends[key]) for key in common), default=Serial(0))

    def _ends(self, last: Serial) -> dict[EpochStart, Serial]:
        """Where each epoch ends, in a log up to `last`.

        What is before the first is epoch 0, as long as none was forgotten.
        """
        before = [EpochStart(LeaderEpoch(0), Serial(1))]
        starts = (before if len(self._starts) < EPOCHS_KEPT else []) + self._starts
        ends = [Serial(each.serial - 1) for each in starts[1:]] + [last]
        return {
            start: min(end, last)
            for start, end in zip(starts, ends, strict=True)
            if start.serial <= min(end, last)
        }
