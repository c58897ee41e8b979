"""A client's outbox on any disk, and what is known of each of its slots.

Law: a recorded put is pending until it is done, its numbers are never given again, and the
producer of a slot stays the same; what was being recorded may be there or not.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from random import Random

from msgspec.structs import replace

from oncemq.client.state.outbox import Slot, open_slots
from oncemq.client.state.outbox_contents import LaneKept
from oncemq.client.state.unsent import Unsent
from oncemq.protocol.names import ProducerId, Sequence, TopicId
from oncemq.protocol.outbox_records import OutboxResumed
from oncemq.testing.faulty_disk import FaultyDisk


@dataclass(eq=False)
class Mail:
    """What one slot of the outbox was given, and what came back from it."""

    producer: ProducerId | None = None
    asked: list[Unsent] = field(default_factory=list[Unsent])
    kept: int = 0  # so many of them are recorded
    done: dict[str, int] = field(default_factory=dict[str, int])
    done_kept: dict[str, int] = field(default_factory=dict[str, int])
    becoming: "Mail | None" = None  # with other numbers, while these are put on the disk

    def pending(self) -> list[Unsent]:
        return [put for put in self.asked if put.first_sequence >= self.done.get(put.topic, 1)]

    def lanes(self, puts: list[Unsent]) -> dict[str, LaneKept]:
        return {p.topic: (p.topic_id, p.end, p.producer) for p in puts}

    def renumber(self, topic: str, record: OutboxResumed) -> None:
        """As the record says; nothing of the topic is done."""
        first = record.first
        asked: list[Unsent] = []
        for put in self.asked:
            if put.topic == topic and put.first_sequence in record.gone:
                continue
            if put.topic == topic:
                changes = put.first_sequence >= record.kept_below
                number = first if changes else put.first_sequence
                first = Sequence(first + put.count) if changes else first
                put = replace(put, topic_id=record.topic_id, first_sequence=number)
            asked.append(put)
        self.asked, self.kept = asked, len(asked)

    def check(self, slot: Slot) -> None:
        if self.becoming is not None:
            becoming, self.becoming = self.becoming, None
            if [(p.first_sequence, p.topic_id) for p in slot.pending] == [
                (p.first_sequence, p.topic_id) for p in becoming.pending()
            ]:
                vars(self).update(vars(becoming))
        assert self.producer in (None, slot.producer)
        must = [put for put in self.asked[: self.kept] if put in self.pending()]
        assert [put for put in slot.pending if put in must] == must, "a recorded put is lost"
        may = [p for p in self.asked if p.first_sequence >= self.done_kept.get(p.topic, 1)]
        assert [put for put in may if put in slot.pending] == slot.pending, "nobody put this"
        for topic, (_, sequence, _) in self.lanes(self.asked[: self.kept]).items():
            assert slot.lanes[topic][1] >= sequence, "numbers would be given twice"
        most = self.lanes(self.asked)
        assert all(lane[1] <= most[topic][1] for topic, lane in slot.lanes.items())


class Post:
    """A client's outbox on a disk: its slots, and what is known of each."""

    def __init__(self, disk: FaultyDisk, mails: dict[str, Mail], seed: int = 3) -> None:
        self.disk, self.mails, self.random = disk, mails, Random(seed)
        self.slots: dict[str, Slot] = {}

    def open(self) -> None:
        """A client starts: every slot that nobody holds is taken over."""
        for slot in open_slots(self.disk, "/state", self.random.randbytes):
            name = slot._directory.rpartition("/")[2]
            mail = self.mails.setdefault(name, Mail())
            mail.check(slot)
            mail.producer, mail.asked = slot.producer, self._known(mail, slot)
            mail.kept, self.slots[name] = len(mail.asked), slot
            if any(put not in mail.pending() for put in slot.pending):
                mail.done = dict(mail.done_kept)  # what was done was not durable yet
            mail.done_kept = dict(mail.done)

    def _known(self, mail: Mail, slot: Slot) -> list[Unsent]:
        """The puts that count from here on: those never recorded did not happen."""
        lost = [put for put in mail.asked[mail.kept :] if put not in slot.pending]
        return [put for put in mail.asked if put not in lost]

    def record(self, name: str, *sizes: int, topic: str = "a") -> None:
        mail = self.mails[name]
        for size in sizes:
            mine = [put for put in mail.asked if put.topic == topic]
            first = Sequence(1 + sum(put.count for put in mine))
            body = self.random.randbytes(size)
            mail.asked.append(Unsent(topic, TopicId(7), first, 2, 0, body))
        done = dict(mail.done)
        self.slots[name].record(mail.asked[mail.kept :])
        mail.kept, mail.done_kept = len(mail.asked), done

    def done(self, name: str, number: int, topic: str = "a") -> None:
        mail = self.mails[name]
        mail.done[topic] = 1 + 2 * number
        mine = [put for put in mail.asked if put.topic == topic]
        self.slots[name].done(mine[number - 1])

    def renumber(self, name: str, record: OutboxResumed) -> None:
        mail = self.mails[name]
        mail.becoming = deepcopy(mail)
        mail.becoming.renumber(record.topic, record)
        self.slots[name].renumber(
            record.topic, record.topic_id, kept_below=record.kept_below, first=record.first,
            gone=record.gone,
        )  # fmt: skip
        self.mails[name] = mail.becoming

    def rotate(self, name: str) -> None:
        mail = self.mails[name]
        done = dict(mail.done)
        self.slots[name].rotate(mail.lanes(mail.asked), mail.pending())
        mail.done_kept = done
