"""What is wrong with a log that will not open, and what would be lost by going on without it.

Laws: looking changes nothing. Torn tails and leftovers of crashes are no damage: opening the
log deals with them. A checkpoint counts only if the log goes on from where it begins to where it
ends; else the one before it is tried, as the next opening will.
"""

from collections.abc import Sequence

from oncemq.protocol.commit_records import Committed, PartKept
from oncemq.protocol.names import Serial
from oncemq.protocol.records import MessagesStored, TopicCreated
from oncemq.storage.catalog.catalog import Catalog
from oncemq.storage.disk import Disk, File
from oncemq.storage.log.checkpoint import CheckpointFile, read_checkpoint
from oncemq.storage.log.replay import replayed
from oncemq.storage.repair.findings import (
    Damage,
    DamagedMessages,
    Diagnosis,
    SurvivingContents,
    messages_of,
    valid_frames,
)
from oncemq.storage.repair.forgiving import ForgivingDisk, ForgivingFile
from oncemq.storage.repair.lost_format import find_format
from oncemq.storage.segments.end import NAME as END
from oncemq.storage.segments.end import End, read_end
from oncemq.storage.segments.framing import INDEXED, Bad, frame_key
from oncemq.storage.segments.index import MemoryIndex
from oncemq.storage.segments.layout import Format
from oncemq.storage.segments.segment import LOG, Header, Segment, read_header, scan_cold
from oncemq.storage.segments.segment_files import orphans
from oncemq.storage.segments.verify import is_blank, verify


def diagnose_files(disk: Disk, directory: str) -> Diagnosis:
    """Verify every byte of the log. The caller holds the lock."""
    form, fault = find_format(disk, directory)
    found = diagnose_copy(disk, directory, form, read_end(disk, directory))
    found.format_fault = fault
    return found


def diagnose_copy(disk: Disk, directory: str, form: Format, end: End) -> Diagnosis:
    """The same for a copy of a log, which has no FORMAT and no END of its own yet."""
    disk = ForgivingDisk(disk)
    checkpoints, passed_over = _checkpoints(disk, directory, form)
    number = len(checkpoints)
    found = _Examination(disk, directory, form, end, checkpoints, number).run()
    while number and not (found.healthy or found.mendable):
        number -= 1
        found = _Examination(disk, directory, form, end, checkpoints, number).run()
    found.passed_over = passed_over
    return found


def _checkpoints(
    disk: Disk, directory: str, form: Format
) -> tuple[list[CheckpointFile], list[str]]:
    """Those that hold, oldest first, and those that do not."""
    folder = f"{directory}/checkpoints"
    good: list[CheckpointFile] = []
    passed_over: list[str] = []
    for name in disk.names(folder) if "checkpoints" in disk.names(directory) else ():
        if name.endswith(".ckpt"):
            found = read_checkpoint(disk, f"{folder}/{name}", form.identity)
            if found is None:
                passed_over.append(f"{folder}/{name}")
            else:
                good.append(found[0])
    return good, passed_over


class _Examination:
    """One look at a log, as an opening that has the first `number` of the checkpoints."""

    def __init__(
        self,
        disk: ForgivingDisk,
        directory: str,
        form: Format,
        end: End,
        checkpoints: Sequence[CheckpointFile],
        number: int,
    ) -> None:
        self.disk = disk
        self.folder = f"{directory}/log"
        self.form = form
        self.key = frame_key(form.identity)
        self.segments: list[Segment] = []  # what would be left of each
        self.end = end
        self.checkpoint = checkpoints[number - 1] if number else None
        self.begin = self.checkpoint.begin if self.checkpoint else 0
        self.given_up = list(checkpoints[number:])
        self.misfits: list[str] = []
        self.misnamed: list[tuple[Damage, str, Header]] = []
        self.found = Diagnosis(directory)
        self.proven = max([end.serial, *(one.end for one in checkpoints)])
        self.proof: int | None = None  # the chain value where the checkpoint ends

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
        starts = (n for n, name in enumerate(logs) if int(name[:20]) <= self.begin + 1)
        start = max(starts, default=0)
        for name in logs[:start]:
            self._covered(name)
        self._chain(logs[start:])
        self._bring_home()
        self._look_at_end(logs)
        self._judge(int(logs[0][:20]) if logs else 0)
        if self.found.mendable:
            self.found.contents = self._contents()
        return self.found

    def _contents(self) -> SurvivingContents:
        """What is left, as the next opening will find it."""
        catalog = Catalog(self.disk, self.key)
        for segment in sorted(self.segments, key=lambda each: each.first_serial):
            catalog.add(segment)
        end, states = 0, list[bytes]()
        if self.checkpoint is not None:
            read = read_checkpoint(self.disk, self.checkpoint.path, self.form.identity)
            assert read is not None
            end, states = self.checkpoint.end, read[1]
        replay = [
            (each.path, each.end)
            for each in catalog.segments
            if each.header.form == LOG and each.last_serial > self.begin
        ]
        records = replayed(self.disk, replay, self.key, self.begin)
        return SurvivingContents(self.form, catalog, states, records, Serial(end))

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

    def _salvaged(self, file: File, name: str, header: Header) -> None:
        """What repair would put in the place of a covered segment: every batch that holds."""
        index, last = MemoryIndex(), header.first_serial - 1
        for frame in valid_frames(file, 0, self.key):
            body_holds = frame.holds(file.read(frame.body_position, frame.body_bytes))
            if frame.kind in INDEXED and body_holds:
                record = frame.record()
                assert isinstance(record, MessagesStored | Committed | PartKept)
                index.note(record, frame.position, frame.size)
            last = max(last, frame.serial)
        self._keep(name, header, index, file.size(), last)

    def _set_aside(self, file: File, name: str, bad: Bad) -> None:
        """A damaged segment that the checkpoint covers: what holds of it is salvaged."""
        damage = self._damage(file, name, bad, covered=True)
        header = read_header(file)
        if header is None or header.identity != self.form.identity:
            header = Header(LOG, self.form.identity, int(name[:20]))
        elif header.name != name:
            self.misnamed.append((damage, name, header))  # when the others are known
            return
        damage.home = header.first_serial
        self._salvaged(file, name, header)

    def _bring_home(self) -> None:
        """Segments under the name of another one, as far as nobody else has what they hold.

        Twice in the log, or in another order, messages would be found wrongly.
        """
        for damage, name, header in self.misnamed:
            home = header.first_serial
            if any(
                each.first_serial <= home <= max(each.first_serial, each.last_serial)
                for each in self.segments
            ):
                continue
            file = self.disk.open(f"{self.folder}/{name}")
            try:
                self._salvaged(file, name, header)
            finally:
                file.close()
            if self.segments[-1].last_serial > self.begin:  # not covered where it belongs
                self.segments.pop()
            else:
                damage.home = home

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
                self._set_aside(file, name, header)
                return
            index = scan_cold(file, header, self.key)
            if not isinstance(index, Bad) and file.trouble is not None:
                index = Bad(0, f"it cannot be read: {file.trouble}")
            if isinstance(index, Bad):
                self._set_aside(file, name, index)
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
                self._set_aside(file, name, bad)
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

    def _chain(self, logs: list[str]) -> None:
        """Follow the chain to its first bad place; what comes after is lost with it."""
        wanted = self.checkpoint.end if self.checkpoint else 0
        expected: tuple[int, int] | None = None
        for number, name in enumerate(logs):
            file, header = self._open(name)
            try:
                if isinstance(header, Bad):
                    bad = header
                elif expected not in (None, (header.first_serial, header.chain)):
                    bad = Bad(0, "it does not go on where the segment before it ends")
                else:
                    whole = verify(file, header, self.key, prove=wanted)
                    self.proven = max(self.proven, whole.durable)
                    self.found.last_serial = whole.last_serial
                    expected = whole.last_serial + 1, whole.chain
                    if whole.proof is not None:
                        self.proof = whole.proof
                    self._keep(name, header, whole.index, whole.end, whole.last_serial)
                    bad = whole.bad
                    torn = whole.after is None and whole.last_serial + 1 > self.proven
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

    def _look_at_end(self, logs: list[str]) -> None:
        """Whether what is left of the log ends where it is known to have been durable."""
        last, end = self.found.last_serial, self.end
        cut = {each.path for each in self.found.damages if not (each.covered or each.position)}
        gone = {*cut, *(f"{self.folder}/{name}" for name in self.found.beyond)}
        left = [name for name in logs if f"{self.folder}/{name}" not in gone]
        last_segment = int(left[-1][:20]) if left else 0
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

    def _damage(self, file: File, name: str, bad: Bad, *, covered: bool) -> Damage:
        first = int(name[:20]) if covered else self.found.last_serial + 1
        damage = Damage(f"{self.folder}/{name}", bad.position, bad.why, first, covered)
        if not covered:  # a covered segment is salvaged around the damage
            damage.lost = self._lost_in(file, bad.position, [])
        self.found.damages.append(damage)
        return damage

    def _lost_beyond(self) -> None:
        damage = self.found.damages[-1]
        for name in self.found.beyond:
            file = self.disk.open(f"{self.folder}/{name}")
            try:
                damage.lost = self._lost_in(file, 0, damage.lost)
            finally:
                file.close()

    def _lost_in(
        self, file: File, start: int, known: list[DamagedMessages]
    ) -> list[DamagedMessages]:
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
        return [DamagedMessages(topic_id, *span) for topic_id, span in sorted(spans.items())]

    def _judge(self, first_serial: int) -> None:
        """Whether the checkpoint fits what is left, and whether that is enough to go on."""
        last, one = self.found.last_serial, self.checkpoint
        reached = one is None or 0 < first_serial <= one.begin + 1
        if one is not None and (one.end > last or self.proof != one.chain or not reached):
            self.given_up.insert(0, one)
        self.found.checkpoints = [*(each.path for each in self.given_up), *self.misfits]
        fits = first_serial == 1 if one is None else one not in self.given_up
        if not fits:
            self._misses(f"{self.found.directory}/checkpoints", _stateless(first_serial), 1)
        self.found.mendable = last > 0 and fits


def _stateless(first_serial: int) -> str:
    begins = f"begins at serial {first_serial:,}" if first_serial else "has no segment"
    return f"the log {begins}, and no checkpoint that holds says what was before"
