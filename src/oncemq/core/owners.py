"""Owners of commits: the last number each has used, so that a commit takes effect once.

Laws: a number that was used, or one below it, never publishes anything again. An owner that
lasts is remembered for good; one that ends with its process is forgotten a day after its last word.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import msgspec

from oncemq.core.names import Micros, Offset, Serial, TopicId
from oncemq.core.records import Committed, OwnersForgotten, Part
from oncemq.core.replies import NO_OFFSET

RECENT_MAX = 4  # answers kept word for word


class Published(NamedTuple):
    """What a topic got by a commit. `first_offset` is -1 when nobody wanted it."""

    topic_id: TopicId
    first_offset: Offset
    messages: int


class Answer(NamedTuple):
    """A commit as it was accepted."""

    number: int
    published: tuple[Published, ...]


@dataclass(slots=True)
class Owner:
    """One owner."""

    lasting: bool
    last_number: int
    seen: Micros
    last_serial: Serial
    recent: tuple[Answer, ...] = ()


class OwnerState(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """An owner as a checkpoint keeps it: true as of its `last_serial`."""

    owner: str
    lasting: bool
    last_number: int
    seen: Micros
    last_serial: Serial
    recent: tuple[tuple[int, tuple[tuple[TopicId, Offset, int], ...]], ...]


class Owners:
    """All owners of a shard."""

    def __init__(self) -> None:
        self.entries: dict[str, Owner] = {}
        self.guests: OrderedDict[str, None] = OrderedDict()  # that end with their process

    def used(self, owner: str, number: int) -> Answer | None:
        """The first answer to a number that was used (or passed over); None when it is new."""
        entry = self.entries.get(owner)
        if entry is None or number > entry.last_number:
            return None
        known = (each for each in entry.recent if each.number == number)
        return next(known, Answer(number, ()))

    def apply(self, record: Committed, serial: Serial) -> None:
        """A commit is in the log."""
        entry = self.entries.get(record.owner)
        if entry is not None and serial <= entry.last_serial:
            return
        recent = entry.recent if entry else ()
        answer = Answer(record.number, published_by(record.parts))
        self.entries[record.owner] = Owner(
            record.lasting,
            record.number,
            record.timestamp,
            serial,
            (*recent[1 - RECENT_MAX :], answer),
        )
        if not record.lasting:
            self.guests[record.owner] = None
            self.guests.move_to_end(record.owner)

    def forgotten(self, record: OwnersForgotten, serial: Serial) -> None:
        """Their processes were silent for long enough."""
        for owner in record.owners:
            entry = self.entries.get(owner)
            if entry is not None and entry.last_serial < serial:
                del self.entries[owner]
                self.guests.pop(owner, None)

    def silent_since(self, moment: Micros, most: int) -> tuple[str, ...]:
        """Guests that committed nothing after that moment."""
        found: list[str] = []
        for owner in islice(self.guests, most):
            if self.entries[owner].seen > moment:
                break
            found.append(owner)
        return tuple(found)

    def capture(self, owner: str) -> OwnerState:
        """The owner as a value."""
        entry = self.entries[owner]
        return OwnerState(
            owner, entry.lasting, entry.last_number, entry.seen, entry.last_serial, entry.recent
        )

    def restore(self, state: OwnerState) -> None:
        """The owner a checkpoint kept."""
        recent = tuple(
            Answer(number, tuple(Published(*each) for each in published))
            for number, published in state.recent
        )
        self.entries[state.owner] = Owner(
            state.lasting, state.last_number, state.seen, state.last_serial, recent
        )
        if not state.lasting:
            self.guests[state.owner] = None

    def recovered(self) -> None:
        """A replay may have mixed them up: the longest silent stand first again."""
        order = sorted(self.guests, key=lambda owner: self.entries[owner].seen)
        self.guests = OrderedDict.fromkeys(order)


def published_by(parts: Iterable[Part]) -> tuple[Published, ...]:
    """What each topic got by a commit with these parts."""
    found: dict[TopicId, Published] = {}
    for part in parts:
        known = found.get(part.topic_id, Published(part.topic_id, part.first_offset, 0))
        first = known.first_offset if known.first_offset != NO_OFFSET else part.first_offset
        found[part.topic_id] = Published(part.topic_id, first, known.messages + part.count)
    return tuple(found.values())
