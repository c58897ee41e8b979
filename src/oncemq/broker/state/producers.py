"""What a topic remembers of a producer, and the judgement of a put by its sequence.

Laws (G2, G3): sequences of a producer on a topic are 1, 2, 3 … without gap; one that was
stored is never stored again, however long ago; a repeated one must repeat the same bytes.
"""

from typing import NamedTuple

import msgspec

from oncemq.protocol.limits import PUTS_UNDER_WAY_MAX
from oncemq.protocol.names import ANONYMOUS_EPOCH, Micros, Offset, Sequence
from oncemq.protocol.structs import Run


class Recent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A put as it was accepted. `first_offset` is -1 when it was not stored."""

    first_sequence: Sequence
    messages: int
    first_offset: Offset
    checksum: int


class Producer(msgspec.Struct, frozen=True, gc=False):
    """One producer on one topic: a value, so that a checkpoint has the one of its moment."""

    anonymous: bool
    last_sequence: Sequence = Sequence(0)
    seen: Micros = Micros(0)  # when its last put was stored
    recent: tuple[Recent, ...] = ()
    seen_before: Micros = Micros(0)  # when the put before that was; 0: none, or it is not known

    def after(self, run: Run, first_offset: Offset, checksum: int) -> "Producer":
        """The producer once the log holds this put; once lasting, it is so for good."""
        recent = Recent(run.first_sequence, run.count, first_offset, checksum)
        return Producer(
            self.anonymous and run.producer_epoch == ANONYMOUS_EPOCH,
            Sequence(run.first_sequence + run.count - 1),
            run.timestamp,
            (*self.recent[1 - PUTS_UNDER_WAY_MAX :], recent),
            self.seen,
        )


UNHEARD = Producer(anonymous=True)  # before its first put


class New(NamedTuple):
    """Never seen: store it."""


class Duplicate(NamedTuple):
    """Stored before. `recent` is None when that was too long ago to know its offset."""

    recent: Recent | None


class Gap(NamedTuple):
    """An earlier put is missing."""

    expected: Sequence


class Conflict(NamedTuple):
    """The sequence was used for something else."""

    detail: str


Verdict = New | Duplicate | Gap | Conflict
UNSEEN = (New, Gap)  # nothing with this sequence was stored
NEW = New()


def judge(producer: Producer | None, *, first: Sequence, count: int, checksum: int) -> Verdict:
    """Whether a put of `count` messages from sequence `first` is new."""
    last = producer.last_sequence if producer else 0
    if first == last + 1:
        return NEW
    if first > last + 1 or producer is None:
        return Gap(Sequence(last + 1))
    if first + count - 1 > last:
        return Conflict(
            f"sequences up to {last} are stored, {first} to {first + count - 1} overlap"
        )
    for recent in producer.recent:
        if recent.first_sequence == first:
            if (recent.messages, recent.checksum) == (count, checksum):
                return Duplicate(recent)
            return Conflict(f"sequence {first} was stored with another payload")
    if producer.recent and first < producer.recent[0].first_sequence:
        return Duplicate(None)
    return Conflict(f"sequence {first} lies inside a batch that was stored as one")
