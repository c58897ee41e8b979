"""Stages: messages that are stored and that no reader sees, until a commit publishes them.

A stage is a hidden topic with one producer, itself: its batches lie in the log under its own id.
A commit gives ranges of it to topics; where a range is, is the commit's record, and the bytes
stay where they are.

Laws: a stage's numbers are 1, 2, 3 … like a producer's; a range is published once, in order;
what a topic still keeps of a stage lives (`low`), and so does what may still be published. A stage
that is closed and of which nothing lives is forgotten: that needs no record, for it is so for good.
A closed stage does not stay for as long as a topic keeps its messages: compaction copies them into
the topic, and says so with a record (`StagesEnded`). Then it is only `leaving`: a replica whose own
compaction has not come so far still reads the topics' messages out of the stage's batches. It is
forgotten when its replica's log holds nothing of it.
"""

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import islice

import msgspec

from oncemq.broker.state.producers import Producer, Recent
from oncemq.protocol.commit_records import Committed, Part, StageDropped, StageMade, StagesEnded
from oncemq.protocol.lost_ranges import Holes
from oncemq.protocol.names import Micros, Offset, ProducerId, Sequence, Serial, TopicId
from oncemq.protocol.records import MessagesLost, MessagesStaged
from oncemq.protocol.replies import NO_OFFSET

MARKS_MAX = 64  # parts remembered of one topic and stage; of more, every second, fourth …
RELEASED_A_SWEEP = 1_000
LEFT_A_LOOK = 10_000

LowOf = Callable[[TopicId], Offset | None]  # the lowest offset a topic keeps; None: it is gone


@dataclass(slots=True)
class Share:
    """What of a stage one topic got: where some of its parts begin, here and there."""

    offsets: list[Offset] = field(default_factory=list[Offset])  # in the topic
    places: list[Offset] = field(default_factory=list[Offset])  # in the stage
    end: Offset = Offset(0)  # in the topic, behind the last part
    parts: int = 0
    stride: int = 1  # every so many parts one is remembered

    def add(self, part: Part) -> None:
        """One more part, behind the others in topic and stage."""
        if self.parts % self.stride == 0:
            self.offsets.append(part.first_offset)
            self.places.append(part.stage_offset)
        self.parts += 1
        self.end = Offset(part.first_offset + part.count)
        if len(self.offsets) > MARKS_MAX:
            self.offsets, self.places = self.offsets[::2], self.places[::2]
            self.stride *= 2

    def place(self, low: Offset) -> Offset:
        """Everything the topic keeps from `low` on lies at or above this in the stage.

        A bound, not always the best one: fewer marks may give a lower one than before.
        """
        return self.places[max(0, bisect_right(self.offsets, low) - 1)]


@dataclass(slots=True)
class StagedMessages:
    """One stage."""

    id: TopicId
    name: ProducerId
    last_serial: Serial
    numbers: Producer
    end: Offset = Offset(0)
    published: Offset = Offset(0)  # everything below is published, or never will be
    tail_bytes: int = 0  # of what is above
    given: int = 0  # messages that topics got; one that went to two topics counts twice
    published_at: Serial = Serial(0)  # the last record that published some of it
    is_open: bool = True
    shares: dict[TopicId, Share] = field(default_factory=dict[TopicId, Share])
    lost: Holes = field(default_factory=Holes)

    def bytes_of(self, count: int) -> int:
        """About how many bytes so many unpublished messages have."""
        return self.tail_bytes * count // max(1, self.end - self.published)

    def publish(self, parts: list[Part]) -> None:
        """Topics got these of it."""
        self.published_at = self.last_serial
        for part in parts:
            if part.first_offset != NO_OFFSET:
                self.given += part.count
                self.shares.setdefault(part.topic_id, Share()).add(part)
        published = max(Offset(part.stage_offset + part.count) for part in parts)
        self.tail_bytes = self.bytes_of(self.end - published)
        self.published = published

    def low(self, low_of: LowOf) -> Offset:
        """Everything below is free; the end, when nothing lives."""
        lowest = self.published if self.is_open else self.end
        for topic_id, share in self.shares.items():
            low = low_of(topic_id)
            if low is not None and low < share.end:
                lowest = min(lowest, share.place(low))
        return lowest

    def is_over(self, low_of: LowOf) -> bool:
        """Whether nobody will ever ask for anything of it."""
        return not self.is_open and all(
            (low := low_of(topic_id)) is None or low >= share.end
            for topic_id, share in self.shares.items()
        )


class StageState(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A stage as a checkpoint keeps it: true as of its `last_serial`."""

    stage_id: TopicId
    name: ProducerId
    last_serial: Serial
    last_sequence: Sequence
    seen: Micros
    recent: tuple[Recent, ...]
    end: Offset
    published: Offset
    tail_bytes: int
    is_open: bool
    shares: tuple[tuple[TopicId, list[Offset], list[Offset], Offset, int, int], ...]
    lost: tuple[tuple[Offset, Offset], ...] = ()
    given: int = 0
    published_at: Serial = Serial(0)
    has_ended: bool = False  # it is `leaving`


class Stages:
    """All stages of a shard."""

    def __init__(self) -> None:
        self.by_id: dict[TopicId, StagedMessages] = {}
        self.by_name: dict[ProducerId, StagedMessages] = {}  # the open ones
        self.leaving: dict[TopicId, StagedMessages] = {}  # ended, and perhaps not copied here yet
        self._silent: OrderedDict[TopicId, None] = OrderedDict()  # the open ones, oldest word first
        self._closed: deque[TopicId] = deque()
        self.open_bytes = 0  # staged, and not published yet

    def __len__(self) -> int:
        return len(self.by_id)

    @property
    def opened(self) -> int:
        """How many are open: those that a client may leave behind."""
        return len(self._silent)

    # the fold

    def made(self, record: StageMade, serial: Serial) -> None:
        """A stage began."""
        if record.stage_id not in self.by_id:
            numbers = Producer(anonymous=True, seen=record.timestamp)
            self._add(StagedMessages(record.stage_id, record.name, serial, numbers))

    def stored(self, record: MessagesStaged, serial: Serial) -> bool:
        """A batch is in the log; False when its stage is not known here any more."""
        stage = self.by_id.get(record.topic_id)
        if stage is None or serial <= stage.last_serial:
            return stage is not None
        stage.last_serial = serial
        run = record.runs[0]
        stage.numbers = stage.numbers.after(run, record.first_offset, record.checksum)
        stage.end = Offset(record.first_offset + record.count)
        stage.tail_bytes += record.size
        if stage.is_open:
            self.open_bytes += record.size
            self._silent.move_to_end(stage.id)
        return True

    def committed(self, record: Committed, serial: Serial) -> bool:
        """Ranges were published; False when a stage is not known here any more."""
        by_stage: dict[TopicId, list[Part]] = {}
        for part in record.parts:
            by_stage.setdefault(part.stage_id, []).append(part)
        for stage_id, parts in by_stage.items():
            stage = self.by_id.get(stage_id)
            if stage is not None and serial > stage.last_serial:
                stage.last_serial = serial
                before = stage.tail_bytes
                stage.publish(parts)
                self.open_bytes += stage.tail_bytes - before if stage.is_open else 0
                if record.closing:
                    self._close(stage)
        return by_stage.keys() <= self.by_id.keys()

    def dropped(self, record: StageDropped, serial: Serial) -> bool:
        """Nothing more of it will be published; False when it is not known here any more."""
        stage = self.by_id.get(record.stage_id)
        if stage is not None and serial > stage.last_serial:
            stage.last_serial = serial
            self._close(stage)
        return stage is not None

    def lost(self, record: MessagesLost, serial: Serial) -> None:
        """Messages of one that is known here are gone.

        What of it is not published yet never will be: it would be published with a hole, and its
        owner was told that it is all there. The commit is refused, and done again by its owner.
        """
        stage = self.by_id[record.topic_id]
        if serial > stage.last_serial:
            stage.last_serial = serial
            stage.lost.add(record.first_offset, record.end_offset)
            if record.end_offset > stage.published:
                self._close(stage)

    def ended(self, record: StagesEnded, serial: Serial) -> None:
        """What topics keep of these lies in the topics now."""
        for stage_id in record.stage_ids:
            stage = self.by_id.get(stage_id)
            if stage is not None and serial > stage.last_serial:
                assert not stage.is_open, f"stage {stage_id} may still be published"
                self.leaving[stage_id] = self.by_id.pop(stage_id)

    def needed(self, stage_id: TopicId) -> StagedMessages | None:
        """A stage whose batches may be needed on this replica, ended or not."""
        return self.by_id.get(stage_id) or self.leaving.get(stage_id)

    def forget_left(self, is_held: Callable[[TopicId], bool], most: int = LEFT_A_LOOK) -> None:
        """Forget ended ones that the log holds nothing of; looks at a few of them in turn."""
        for stage_id in list(islice(self.leaving, most)):
            stage = self.leaving.pop(stage_id)
            if is_held(stage_id):
                self.leaving[stage_id] = stage  # behind the others

    def _add(self, stage: StagedMessages) -> None:
        self.by_id[stage.id] = stage
        if stage.is_open:
            namesake = self.by_name.get(stage.name)
            if namesake is None or namesake.id < stage.id:
                self.by_name[stage.name] = stage
            self._silent[stage.id] = None
            self.open_bytes += stage.tail_bytes
        else:
            self._closed.append(stage.id)

    def _close(self, stage: StagedMessages) -> None:
        if stage.is_open:
            stage.is_open = False
            self.open_bytes -= stage.tail_bytes
            # Nothing more will be put.
            stage.numbers = msgspec.structs.replace(stage.numbers, recent=())
            if self.by_name.get(stage.name) is stage:
                del self.by_name[stage.name]
            del self._silent[stage.id]
            self._closed.append(stage.id)

    # time

    def silent_since(self, moment: Micros, most: int) -> list[StagedMessages]:
        """Open stages that nothing was put into after that moment."""
        found: list[StagedMessages] = []
        for stage_id in self._silent:
            stage = self.by_id[stage_id]
            if stage.numbers.seen > moment or len(found) >= most:
                break
            found.append(stage)
        return found

    def release(self, low_of: LowOf, most: int = RELEASED_A_SWEEP) -> None:
        """Forget closed stages of which nothing lives; looks at a few of them in turn."""
        low_of = cache(low_of)  # the lowest of many cursors, and many stages ask for it
        for _ in range(min(most, len(self._closed))):
            stage = self.by_id.get(self._closed.popleft())  # None: it has ended
            if stage is not None and stage.is_over(low_of):
                del self.by_id[stage.id]
            elif stage is not None:
                self._closed.append(stage.id)

    # checkpoints

    def capture(self, stage_id: TopicId) -> StageState:
        """The stage as a value."""
        stage = self.leaving[stage_id] if stage_id in self.leaving else self.by_id[stage_id]
        return StageState(
            stage.id,
            stage.name,
            stage.last_serial,
            stage.numbers.last_sequence,
            stage.numbers.seen,
            stage.numbers.recent,
            stage.end,
            stage.published,
            stage.tail_bytes,
            stage.is_open,
            tuple(
                (topic_id, each.offsets, each.places, each.end, each.parts, each.stride)
                for topic_id, each in stage.shares.items()
            ),
            stage.lost.above(0),
            stage.given,
            stage.published_at,
            stage_id in self.leaving,
        )

    def restore(self, state: StageState) -> None:
        """The stage a checkpoint kept."""
        numbers = Producer(True, state.last_sequence, state.seen, state.recent)
        stage = StagedMessages(state.stage_id, state.name, state.last_serial, numbers)
        stage.end, stage.published = state.end, state.published
        stage.tail_bytes, stage.is_open = state.tail_bytes, state.is_open
        stage.given, stage.published_at = state.given, state.published_at
        stage.shares = {
            topic_id: Share(list(offsets), list(places), end, parts, stride)
            for topic_id, offsets, places, end, parts, stride in state.shares
        }
        stage.lost = Holes(state.lost)
        if state.has_ended:
            self.leaving[stage.id] = stage
        else:
            self._add(stage)

    def recovered(self) -> None:
        """A replay may have mixed them up: the longest silent stand first again."""
        order = sorted(self._silent, key=lambda stage_id: self.by_id[stage_id].numbers.seen)
        self._silent = OrderedDict.fromkeys(order)


def merged(parts: Iterable[Part]) -> list[Part]:
    """Parts in order, those that go on where the one before ended made one with it."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if last is not None and _continues(last, part):
            joined[-1] = msgspec.structs.replace(
                last,
                count=last.count + part.count,
                message_bytes=last.message_bytes + part.message_bytes,
            )
        else:
            joined.append(part)
    return joined


def _continues(last: Part, part: Part) -> bool:
    stored = last.first_offset != NO_OFFSET and part.first_offset != NO_OFFSET
    return (
        (last.topic_id, last.stage_id) == (part.topic_id, part.stage_id)
        and last.stage_offset + last.count == part.stage_offset
        and (
            last.first_offset + last.count == part.first_offset
            if stored
            else last.first_offset == part.first_offset
        )
    )
