"""What looking at a log finds: damages, what they cost, and the frames that still hold."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from oncemq.protocol.commit_records import Committed, Part, PartKept
from oncemq.protocol.names import Serial
from oncemq.protocol.records import MessagesStored, Record
from oncemq.protocol.replies import NO_OFFSET
from oncemq.storage.catalog.catalog import Catalog
from oncemq.storage.disk import File
from oncemq.storage.segments.framing import Frame, first_frame_after
from oncemq.storage.segments.layout import Format


@dataclass(frozen=True, slots=True)
class DamagedMessages:
    """Messages of a topic that lie in or behind the damage, as far as they can still be read."""

    topic_id: int
    first_offset: int
    end_offset: int


@dataclass(slots=True)
class Damage:
    """One damaged place, and what going on without it would cost."""

    path: str
    position: int
    why: str
    first_serial: int  # the first one that cannot be trusted
    covered: bool  # the checkpoints hold its facts: only messages are at stake
    lost: list[DamagedMessages] = field(default_factory=list[DamagedMessages])
    home: int | None = None  # covered: the first serial of what is salvaged; None: nothing is


@dataclass(slots=True)
class SurvivingContents:
    """What a log holds once it goes on without what is damaged."""

    form: Format
    catalog: Catalog
    states: list[bytes]  # of the newest checkpoint that fits
    replay: Iterator[tuple[Serial, Record]]
    checkpoint_end: Serial


@dataclass(slots=True)
class Diagnosis:
    """The state of a log on disk."""

    directory: str
    last_serial: int = 0  # the last record that can be trusted
    damages: list[Damage] = field(default_factory=list[Damage])
    checkpoints: list[str] = field(default_factory=list[str])  # (and END) that do not fit the log
    passed_over: list[str] = field(default_factory=list[str])  # checkpoints that do not hold
    beyond: list[str] = field(default_factory=list[str])  # segments behind the damage
    format_fault: str = ""  # why FORMAT has to be written again
    mendable: bool = True  # whether the log can go on without what is damaged
    contents: SurvivingContents | None = None  # None: it cannot go on
    names: dict[int, str] = field(default_factory=dict[int, str])  # of topics, as far as seen

    @property
    def healthy(self) -> bool:
        return not (self.damages or self.checkpoints or self.format_fault)

    def faults(self) -> list[str]:
        """What is wrong, in words, one for each place."""
        return [
            *(f"{each.path} at byte {each.position}: {each.why}" for each in self.damages),
            *(f"{path} does not fit the log" for path in self.checkpoints),
        ]


def valid_frames(file: File, start: int, key: int) -> Iterator[Frame]:
    """Every frame that still holds, wherever it lies."""
    end = file.size()
    while (frame := first_frame_after(file, start, end, key, serial_min=0)) is not None:
        yield frame
        start = frame.end if frame.end <= end else frame.position + 1


def messages_of(record: Record) -> Iterator[MessagesStored | Part | PartKept]:
    """What a record says about messages: which of which topic (or stage)."""
    if isinstance(record, MessagesStored | PartKept):
        yield record
    elif isinstance(record, Committed):
        yield from (part for part in record.parts if part.first_offset != NO_OFFSET)
