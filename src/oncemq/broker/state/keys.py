"""The idempotency keys of a topic: what was put under each, and when.

Laws: a key stands for one batch as long as it is remembered; the same again is a duplicate,
other bytes are refused. Keys are forgotten by time alone, never to make room for another.
A key is known by its producer (`names.key_producer`), and an entry is 24 packed bytes: there
may be a million of them.
"""

import struct
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile

import msgspec

from oncemq.broker.state.producers import Conflict, Duplicate, New, Recent
from oncemq.protocol.names import Micros, Offset, ProducerId, Sequence, TopicId
from oncemq.protocol.records import KeyedDiscarded, KeysForgotten, MessagesKeyed, TopicDeleted
from oncemq.protocol.replies import NO_OFFSET

CAPTURED = 1_000  # keys in one value of a checkpoint

_ENTRY = struct.Struct("<QqII")  # timestamp, first offset (-1: not stored), count, checksum


class KeysState(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Some keys of a topic as a checkpoint keeps them."""

    topic_id: TopicId
    entries: tuple[tuple[ProducerId, bytes], ...]


class Keys:
    """The keys of one topic, oldest first."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[ProducerId, bytes] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: ProducerId) -> bool:
        return key in self._entries

    def judge(self, key: ProducerId, count: int, checksum: int) -> New | Duplicate | Conflict:
        """Whether a put under this key is new."""
        entry = self._entries.get(key)
        if entry is None:
            return New()
        _, offset, messages, stored = _ENTRY.unpack(entry)
        if (messages, stored) != (count, checksum):
            return Conflict("the idempotency key was used with another payload")
        return Duplicate(Recent(Sequence(1), messages, Offset(offset), stored))

    def add(self, record: MessagesKeyed | KeyedDiscarded) -> None:
        """Remember a put that the log holds."""
        is_stored = isinstance(record, MessagesKeyed)
        run = record.runs[0] if is_stored else record.run
        offset = record.first_offset if is_stored else NO_OFFSET
        self._entries.pop(run.producer, None)  # the newest stand last
        self._entries[run.producer] = _ENTRY.pack(run.timestamp, offset, run.count, record.checksum)

    def forget(self, keys: Iterable[ProducerId]) -> None:
        """The log says that their time was over."""
        for key in keys:
            self._entries.pop(key, None)

    def older_than(self, moment: Micros, most: int) -> tuple[ProducerId, ...]:
        """Keys from before that moment, not too many at a time."""
        old = takewhile(lambda each: _timestamp(each[1]) <= moment, self._entries.items())
        return tuple(key for key, _ in islice(old, most))

    def capture(self, topic_id: TopicId) -> Iterator[KeysState]:
        """The keys as values; others may come and go between two of them."""
        keys = list(self._entries)
        for start in range(0, len(keys), CAPTURED):
            some = keys[start : start + CAPTURED]
            there = ((key, self._entries[key]) for key in some if key in self._entries)
            yield KeysState(topic_id, tuple(there))

    def restore(self, state: KeysState) -> None:
        """Take over what a checkpoint kept."""
        self._entries.update(state.entries)

    def recovered(self) -> None:
        """A replay may have mixed them up: the oldest stand first again."""
        self._entries = dict(sorted(self._entries.items(), key=lambda each: _timestamp(each[1])))


def _timestamp(entry: bytes) -> Micros:
    return Micros(_ENTRY.unpack(entry)[0])


AboutKeys = TopicDeleted | MessagesKeyed | KeyedDiscarded | KeysForgotten
ABOUT_KEYS = (TopicDeleted, MessagesKeyed, KeyedDiscarded, KeysForgotten)


class AllKeys(dict[TopicId, Keys]):
    """The keys of each topic that has any."""

    def apply(self, record: AboutKeys, *, gone: bool) -> None:
        """One fact; `gone`: its topic is no more.

        Keys have no mark of their own: what is remembered twice is remembered the same.
        """
        match record:
            case MessagesKeyed() | KeyedDiscarded():
                if not gone:
                    self.setdefault(record.topic_id, Keys()).add(record)
            case KeysForgotten():
                keys = self.get(record.topic_id, Keys())
                keys.forget(record.keys)
                if not keys:
                    self.pop(record.topic_id, None)
            case TopicDeleted():
                self.pop(record.topic_id, None)

    def capture(self) -> Iterator[KeysState]:
        """All of them, as values; facts may be applied between two."""
        for topic_id in list(self):
            if keys := self.get(topic_id):
                yield from keys.capture(topic_id)

    def restore(self, state: KeysState) -> None:
        """Take over one captured value."""
        self.setdefault(state.topic_id, Keys()).restore(state)

    def recovered(self) -> None:
        """Recovery is over: oldest first again."""
        for keys in self.values():
            keys.recovered()
