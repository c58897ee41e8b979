"""What is wrong with a log that will not open, and what would be lost by going on without it.

Law: looking changes nothing. Torn tails and leftovers of crashes are no damage: opening the
log deals with them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from oncemq.core.commit_records import Committed, Part, PartKept
from oncemq.core.names import Serial
from oncemq.core.records import MessagesStored, Record, TopicCreated
from oncemq.core.replies import NO_OFFSET
from oncemq.storage.catalog import Catalog
from oncemq.storage.checkpoint import Checkpoint, read_checkpoint
from oncemq.storage.disk import Disk, File
from oncemq.storage.end import NAME as END
from oncemq.storage.end import End, read_end
from oncemq.storage.forgiving import ForgivingDisk, ForgivingFile
from oncemq.storage.framing import INDEXED, Bad, Frame, first_frame_after, frame_key
from oncemq.storage.index import MemoryIndex
from oncemq.storage.layout import Format
from oncemq.storage.lost_format import find_format
from oncemq.storage.recovery import replayed
from oncemq.storage.segment import LOG, Header, Segment, read_header, scan_cold
from oncemq.storage.shelf import orphans
from oncemq.storage.verify import is_blank, verify


@dataclass(frozen=True, slots=True)
class Lost:
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
    lost: list[Lost] = field(default_factory=list[Lost])


@dataclass(slots=True)
class Contents:
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
    contents: Contents | None = None  # None: it cannot go on
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


def diagnose_files(disk: Disk, directory: str) -> Diagnosis:
    """Verify every byte of the log. The caller holds the lock."""
    form, fault = find_format(disk, directory)
    found = _Examination(disk, directory, form, read_end(disk, directory)).run()
    found.format_fault = fault
    return found


def diagnose_copy(disk: Disk, directory: str, form: Format, end: End) -> Diagnosis:
    """The same for a copy of a log, which has no FORMAT and no END of its own yet."""
    return _Examination(disk, directory, form, end).run()


class _Examination:
    def __init__(self, disk: Disk, directory: str, form: Format, end: End) -> None:
        self.disk = ForgivingDisk(disk)
        self.folder = f"{directory}/log"
        self.form = form
        self.key = frame_key(form.identity)
        self.segments: list[Segment] = []  # what would be left of each
        self.end = end
        self.misfits: list[str] = []
        self.found = Diagnosis(directory)
        self.proofs: dict[int, int] = {}  # chain values at the ends of the checkpoints

    def run(self) -> Diagnosis:
        there = "log" in self.disk.names(self.found.directory)
        names = self.disk.names(self.folder) if there else []
        colds = [name for name in names if name.endswith(".cold")]
        replaced = self._replaced(colds)
        for name in colds:
            if name not in replaced:  # else a leftover, as its sources are
                self._cold(name)
        logs = [name for name in names if name.endswith(".log") and name not in replaced]
        for name in orphans(names, replaced):
            self._misses(f"{self.folder}/{name}", "its segment is missing", int(name[:20]))
        logs = self._without_unbegun(logs)
        checkpoints = self._checkpoints()
        newest = checkpoints[-1] if checkpoints else None
        begin = newest.begin if newest else 0
        start = max((n for n, name in enumerate(logs) if int(name[:20]) <= begin + 1), default=0)
        for name in logs[:start]:
            self._covered(name)
        self._chain(logs[start:], [one.end for one in checkpoints])
        self._look_at_end(int(logs[-1][:20]) if logs else 0)
        fitting = self._judge(checkpoints, int(logs[0][:20]) if logs else 0)
        if self.found.mendable:
            self.found.contents = self._contents(fitting[-1] if fitting else None)
        return self.found

    def _contents(self, checkpoint: Checkpoint | None) -> Contents:
        """What is left, as the next opening will find it."""
        catalog = Catalog(self.disk, self.key)
        for segment in sorted(self.segments, key=lambda each: each.first_serial):
            catalog.add(segment)
        begin, end, states = 0, 0, list[bytes]()
        if checkpoint is not None:
            read = read_checkpoint(self.disk, checkpoint.path, self.form.identity)
            assert read is not None
            begin, end, states = checkpoint.begin, checkpoint.end, read[1]
        replay = [
            (each.path, each.end)
            for each in catalog.segments
            if each.header.form == LOG and each.last_serial > begin
        ]
        records = replayed(self.disk, replay, self.key, begin)
        return Contents(self.form, catalog, states, records, Serial(end))

    def _open(self, name: str) -> tuple[ForgivingFile, Header | Bad]:
        """A segment and its header, or what is wrong with that."""
        file = self.disk.open(f"{self.folder}/{name}")
        header = read_header(file)
        if header is None:
            return file, Bad(0, "the header does not hold")
        if header.identity != self.form.identity:
            return file, Bad(0, "it belongs to another log: take it away")
        if header.name != name:
            return file, Bad(0, f"it says it is {header.name}: give it back its name")
        return file, header

    def _keep(self, name: str, header: Header, index: MemoryIndex, end: int, last: int) -> None:
        path = f"{self.folder}/{name}"
        self.segments.append(Segment(path, header, index, end, last, 0, end, end))

    def _salvaged(self, file: File, name: str, header: Header | Bad) -> None:
        """What repair would put in the place of a covered segment: every batch that holds."""
        index, last = MemoryIndex(), int(name[:20]) - 1
        for frame in valid_frames(file, 0, self.key):
            body_holds = frame.holds(file.read(frame.body_position, frame.body_bytes))
            if frame.kind in INDEXED and body_holds:
                record = frame.record()
                assert isinstance(record, MessagesStored | Committed | PartKept)
                index.note(record, frame.position, frame.size)
            last = max(last, frame.serial)
        if isinstance(header, Bad):
            header = Header(LOG, self.form.identity, int(name[:20]))
        self._keep(name, header, index, file.size(), last)

    def _replaced(self, colds: list[str]) -> set[str]:
        """The segments that others were made from."""
        found: set[str] = set()
        for name in colds:
            file, header = self._open(name)
            file.close()
            if isinstance(header, Header):
                found.update(header.sources)
        return found

    def _cold(self, name: str) -> None:
        file, header = self._open(name)
        try:
            if isinstance(header, Bad):
                self._damage(file, name, header, covered=True)
                self._salvaged(file, name, header)
                return
            index = scan_cold(file, header, self.key)
            if not isinstance(index, Bad) and file.trouble is not None:
                index = Bad(0, f"it cannot be read: {file.trouble}")
            if isinstance(index, Bad):
                self._damage(file, name, index, covered=True)
                self._salvaged(file, name, header)
            else:
                self._keep(name, header, index, header.file_bytes, header.last_serial)
        finally:
            file.close()

    def _covered(self, name: str) -> None:
        file, header = self._open(name)
        try:
            if isinstance(header, Bad):
                bad = header
            else:
                whole = verify(file, header, self.key)
                bad = whole.bad
                if bad is None and file.trouble is not None:
                    bad = Bad(whole.end, f"it cannot be read: {file.trouble}")
                if bad is None:
                    self._keep(name, header, whole.index, whole.end, whole.last_serial)
            if bad is not None:
                self._damage(file, name, bad, covered=True)
                self._salvaged(file, name, header)
        finally:
            file.close()

    def _without_unbegun(self, logs: list[str]) -> list[str]:
        """Leave out segments at the end that were made but never begun."""
        while len(logs) > 1:
            file = self.disk.open(f"{self.folder}/{logs[-1]}")
            unbegun = read_header(file) is None and is_blank(file, self.key)
            file.close()
            if not unbegun or file.trouble is not None:
                break
            logs = logs[:-1]
        return logs

    def _chain(self, logs: list[str], ends: list[int]) -> None:
        """Follow the chain to its first bad place; what comes after is lost with it."""
        proven = max([*ends, self.end.serial])
        expected: tuple[int, int] | None = None
        for number, name in enumerate(logs):
            file, header = self._open(name)
            try:
                if isinstance(header, Bad):
                    bad = header
                elif expected not in (None, (header.first_serial, header.chain)):
                    bad = Bad(0, "it does not go on where the segment before it ends")
                else:
                    whole = verify(file, header, self.key, prove=ends[-1] if ends else 0)
                    proven = max(proven, whole.durable)
                    self.found.last_serial = whole.last_serial
                    expected = whole.last_serial + 1, whole.chain
                    if ends and whole.proof is not None:
                        self.proofs[ends[-1]] = whole.proof
                    self._keep(name, header, whole.index, whole.end, whole.last_serial)
                    bad = whole.bad
                    torn = whole.after is None and whole.last_serial + 1 > proven
                    if file.trouble is not None:
                        bad, torn = Bad(whole.end, f"it cannot be read: {file.trouble}"), False
                    if bad is not None and torn and number == len(logs) - 1:
                        return
                if bad is not None:
                    self._damage(file, name, bad, covered=False)
                    self.found.beyond = logs[number + 1 :]
                    self._lost_beyond()
                    return
            finally:
                file.close()

    def _look_at_end(self, last_segment: int) -> None:
        """Whether the log ends where it is known to have been durable."""
        last, end = self.found.last_serial, self.end
        path = f"{self.found.directory}/{END}"
        fits = last >= end.serial and last_segment >= end.segment
        if not fits and any(not damage.covered for damage in self.found.damages):
            self.misfits.append(path)  # the damage says why
        elif last < end.serial:
            why = f"the log ends at serial {last}, and was durable up to {end.serial}"
            self._misses(path, why, last + 1)
        elif last_segment < end.segment:
            why = f"the segment that begins with serial {end.segment} is missing"
            self._misses(path, why, end.segment)

    def _misses(self, path: str, why: str, first_serial: int) -> None:
        """A file that says something is missing; it is taken away with what it says."""
        self.found.damages.append(Damage(path, 0, why, first_serial, covered=False))

    def _damage(self, file: File, name: str, bad: Bad, *, covered: bool) -> None:
        first = int(name[:20]) if covered else self.found.last_serial + 1
        damage = Damage(f"{self.folder}/{name}", bad.position, bad.why, first, covered)
        if not covered:  # a covered segment is salvaged around the damage
            damage.lost = self._lost_in(file, bad.position, [])
        self.found.damages.append(damage)

    def _lost_beyond(self) -> None:
        damage = self.found.damages[-1]
        for name in self.found.beyond:
            file = self.disk.open(f"{self.folder}/{name}")
            try:
                damage.lost = self._lost_in(file, 0, damage.lost)
            finally:
                file.close()

    def _lost_in(self, file: File, start: int, known: list[Lost]) -> list[Lost]:
        """The messages of a file from `start` on, by topic, added to those known to be lost."""
        spans = {lost.topic_id: (lost.first_offset, lost.end_offset) for lost in known}
        for frame in valid_frames(file, start, self.key):
            record = frame.record()
            if isinstance(record, TopicCreated):
                self.found.names[record.topic_id] = record.name
            for each in messages_of(record):
                end = each.first_offset + each.count
                low, high = spans.get(each.topic_id, (each.first_offset, end))
                spans[each.topic_id] = min(low, each.first_offset), max(high, end)
        return [Lost(topic_id, *span) for topic_id, span in sorted(spans.items())]

    def _checkpoints(self) -> list[Checkpoint]:
        folder = f"{self.found.directory}/checkpoints"
        if "checkpoints" not in self.disk.names(self.found.directory):
            return []
        good: list[Checkpoint] = []
        for name in self.disk.names(folder):
            if name.endswith(".ckpt"):
                path = f"{folder}/{name}"
                found = read_checkpoint(self.disk, path, self.form.identity)
                if found is None:
                    self.found.passed_over.append(path)
                else:
                    good.append(found[0])
        return good

    def _judge(self, checkpoints: list[Checkpoint], first_serial: int) -> list[Checkpoint]:
        """Which checkpoints fit what is left, and whether that is enough to go on."""
        last = self.found.last_serial
        misfits = [
            one
            for one in checkpoints
            if one.end > last or self.proofs.get(one.end, one.chain) != one.chain
        ]
        self.found.checkpoints = [*(one.path for one in misfits), *self.misfits]
        reached = [one for one in checkpoints if 0 < first_serial <= one.begin + 1]
        fits = [one for one in reached if one not in misfits]
        rebuilt = first_serial == 1 or bool(fits)
        if not rebuilt:
            self._misses(f"{self.found.directory}/checkpoints", _stateless(first_serial), 1)
        self.found.mendable = last > 0 and rebuilt
        return fits


def _stateless(first_serial: int) -> str:
    begins = f"begins at serial {first_serial:,}" if first_serial else "has no segment"
    return f"the log {begins}, and no checkpoint that holds says what was before"


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
