"""How far producers had come on topics that were deleted.

A producer that was cut off, or killed, does not know whether its last puts were stored. It asks
(`Resume`), and when its topic was deleted and made anew meanwhile, the new topic knows nothing of
them. What the deleted topic had of a producer is kept here: sent again, it would take effect twice.

Laws: of a name and a producer the newest deletion counts, since a producer asks about a topic
before it goes on to the next of the same name. What is kept is bounded; the oldest goes first, and
puts that it was about may be stored once more in the topic that was made anew.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from oncemq.protocol.names import ProducerId, Sequence, Serial, TopicId

KEPT_MAX = 20_000
IN_A_STATE = 1_000


class LastNumber(NamedTuple):
    """The last number of a producer on one topic."""

    topic_id: TopicId
    sequence: Sequence


class DeletedState(msgspec.Struct, frozen=True, array_like=True, tag=45):
    """Some of it, as a checkpoint keeps it: name, producer, topic, last number."""

    numbers: tuple[tuple[str, ProducerId, TopicId, Sequence], ...]
    newest: Serial = Serial(0)  # deletion that was known


class DeletedTopics:
    """Of each (name, producer) of a deleted topic, its last number; the oldest deletion first."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, ProducerId], LastNumber] = {}
        self._newest = Serial(0)  # the record of the newest deletion in it

    def deleted(
        self,
        name: str,
        topic_id: TopicId,
        numbers: Iterable[tuple[ProducerId, Sequence]],
        serial: Serial,
    ) -> None:
        """A topic is gone, by this record. One that a checkpoint knew already changes nothing."""
        if serial <= self._newest:
            return
        self._newest = serial
        for producer, sequence in sorted(numbers):
            self._last.pop((name, producer), None)
            self._last[name, producer] = LastNumber(topic_id, sequence)
        while len(self._last) > KEPT_MAX:
            del self._last[next(iter(self._last))]

    def last_number(self, name: str, producer: ProducerId, topic_id: TopicId) -> Sequence:
        """What a producer had put to a topic that was deleted; `topic_id` 0: it does not know it.

        0: nothing, as far as is known.
        """
        last = self._last.get((name, producer))
        if last is None or topic_id not in (0, last.topic_id):
            return Sequence(0)
        return last.sequence

    def capture(self) -> Iterator[DeletedState]:
        """As values, some at a time, all as of one moment."""
        entries, newest = iter(list(self._last.items())), self._newest
        while some := list(islice(entries, IN_A_STATE)):
            numbers = tuple((*key, last.topic_id, last.sequence) for key, last in some)
            yield DeletedState(numbers, newest)

    def restore(self, state: DeletedState) -> None:
        """As a checkpoint kept them."""
        self._newest = max(self._newest, state.newest)
        for name, producer, topic_id, sequence in state.numbers:
            self._last[name, producer] = LastNumber(topic_id, sequence)
