"""What every fact on a disk is: a value with a number for its kind; and whose messages it holds."""

from typing import ClassVar

import msgspec

from oncemq.protocol.names import Epoch, Micros, ProducerId, Sequence


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One fact. `kind` is its number on disk, for good."""

    kind: ClassVar[int]


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive messages of one producer inside a batch. A put is one run."""

    count: int
    producer: ProducerId
    producer_epoch: Epoch  # of the client that put it; 0: the producer ends with its process
    first_sequence: Sequence
    timestamp: Micros
