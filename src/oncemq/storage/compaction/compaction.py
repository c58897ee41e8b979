"""Giving back the room of settled messages: the jobs that carry out what `planning` chose.

A stage that lies in the sources as a whole ends with a rewriting: what topics keep of it is copied
into the topics, so that no stage stays in memory for as long as its messages are kept.

Laws: only segments the older kept checkpoint covers are touched. Neighbours are rewritten
together, so a topic's offsets stay in order over the segments. Every body is verified before
it is written again; damage, and what cannot be read, raises Corrupt and leaves the sources
alone. A cold segment gets its name only when it is whole and durable, and names its sources, so
whatever crash comes between, the next opening knows which of the two to keep.

Threads: `Log.plan`, `complete` and `abandon` belong to the loop, `run` and `clean` to the janitor.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import msgspec

from oncemq.errors import Corrupt
from oncemq.protocol.records import MessagesStored, PartKept, Run
from oncemq.storage.catalog.batch_places import BatchPlace, place_of, read_frame, read_parts
from oncemq.storage.catalog.commit_parts import Parts, StoredBatch, published
from oncemq.storage.compaction.plan import CompactionPlan
from oncemq.storage.disk import NO_DESCRIPTORS, Buffer, Disk, File
from oncemq.storage.segments.framing import Frame, encode, frame_key
from oncemq.storage.segments.index import BlockCache, FileIndex, Index, MemoryIndex, entries_from
from oncemq.storage.segments.segment import COLD, Header, Segment, remove_segment, save_index
from oncemq.storage.segments.segment_files import make_index
from oncemq.wire import batch

MERGED_BYTES_MAX = 256 << 10
MERGED_COUNT_MAX = 5_000
SMALL_BYTES = 64 << 10


class CompactionJob:
    """One plan carried out: `run` (janitor), `Log.complete` (loop), `clean` (janitor)."""

    def __init__(
        self, disk: Disk, folder: str, identity: bytes, cache: BlockCache, planned: CompactionPlan
    ) -> None:
        self.sources = planned.sources
        self.dissolved = planned.dissolved  # stages that nobody needs once it is complete
        self.result: Segment | None = None
        self.damaged: tuple[Segment, str] | None = None  # the source that `run` gave up at, and why
        self._disk = disk
        self._folder = folder
        self._identity = identity
        self._cache = cache
        self._plan = planned
        self._indexes: dict[str, Index] = {}
        self._source = planned.sources[0]  # the one being read
        self._commit: tuple[tuple[str, int], int, Parts] | None = None  # read last

    def run(self, pause: Callable[[], None] = lambda: None) -> None:
        """Write the cold segment, if there is one to write; `pause` is called between frames."""
        if not self._plan.rewrite:
            return
        header = Header(
            COLD,
            self._identity,
            self.sources[0].first_serial,
            last_serial=self.sources[-1].last_serial,
            edition=1 + max(source.header.edition for source in self.sources),
            sources=tuple(source.name for source in self.sources),
        )
        cold = ColdWriter(self._disk, f"{self._folder}/{header.name}", header)
        files: list[File] = []
        try:
            for source in self.sources:
                self._source = source
                with self._reading():
                    files.append(self._disk.open(source.path))
            for topic_id in sorted(self._plan.live):
                for frame in self._merged(topic_id, files):
                    cold.add(frame)
                    pause()
            if cold.index.by_topic:
                self.result = cold.publish(self._cache)
        except Corrupt as damage:
            self.damaged = self._source, damage.detail
            raise
        finally:
            cold.close()
            for file in files:
                file.close()

    def _merged(self, topic_id: int, files: list[File]) -> Iterator["Moved"]:
        """The topic's live batches, small neighbours joined."""
        name = self._plan.live[topic_id].name
        waiting: list[Moved] = []
        for moved in self._batches(topic_id, files):
            if waiting and not _joins(waiting, moved):
                yield join(name, waiting)
                waiting = []
            waiting.append(moved)
        if waiting:
            yield join(name, waiting)

    def _batches(self, topic_id: int, files: list[File]) -> Iterator["Moved"]:
        """The topic's live batches as they are, in offset order, each verified."""
        with self._reading():
            yield from self._read_batches(topic_id, files)

    def _read_batches(self, topic_id: int, files: list[File]) -> Iterator["Moved"]:
        low = self._plan.live[topic_id].low
        key = frame_key(self._identity)
        for source, file in zip(self.sources, files, strict=True):
            self._source = source
            again = partial(self._remade, source, file)
            for entry in entries_from(self._index(source), topic_id, low, again):
                place = place_of(source, entry)
                if entry.is_part:
                    serial, part = self._part(file, topic_id, place)
                    if part.stage_id in self.dissolved:
                        yield from self._copied(part, serial, low, files)
                        self._source = source
                    else:
                        yield Moved(serial, part, 0, 0, b"")
                    continue
                frame, stored = read_frame(file, place, key, verify=True)
                if stored.record.topic_id != topic_id:
                    raise Corrupt(f"{source.path}: another topic at byte {entry.position}")
                yield Moved.of(frame, stored)

    @contextmanager
    def _reading(self) -> Generator[None]:
        """A source that cannot be read is damaged: only what fails to be written is final."""
        try:
            yield
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                raise
            raise Corrupt(f"{self._source.path} could not be read: {error}") from error

    def _copied(
        self, part: PartKept, serial: int, low: int, files: list[File]
    ) -> Iterator["Moved"]:
        """The messages of a part from `low` on, out of its stage: the topic's own from now on."""
        name = self._plan.live[part.topic_id].name
        at = part.stage_offset + max(0, low - part.first_offset)
        end = part.stage_offset + part.count
        for staged in self._staged(part.stage_id, at, files):
            if staged.record.first_offset > at or at >= end:
                break
            stop = min(end, staged.record.first_offset + staged.record.count)
            yield Moved.copied(name, serial, published(part, staged, start=at, stop=stop))
            at = stop
        if at < end:
            raise Corrupt(f"{self._source.path}: message {at} of stage {part.stage_id} is missing")

    def _staged(self, stage_id: int, offset: int, files: list[File]) -> Iterator[StoredBatch]:
        """A stage's batches from the one holding `offset` on, each verified."""
        key = frame_key(self._identity)
        for source, file in zip(self.sources, files, strict=True):
            again = partial(self._remade, source, file)
            for entry in entries_from(self._index(source), stage_id, offset, again):
                self._source = source
                yield read_frame(file, place_of(source, entry), key, verify=True)[1]
                offset = entry.first_offset + entry.count

    def _part(self, file: File, topic_id: int, place: BatchPlace) -> tuple[int, PartKept]:
        """A part of a commit as it stands alone; a commit is read once, however many it has."""
        key = place.segment.name, place.position
        if self._commit is None or self._commit[0] != key:
            frame, parts = read_parts(file, place, frame_key(self._identity))
            self._commit = key, frame.serial, parts
        _, serial, parts = self._commit
        part = parts.get((topic_id, place.first_offset))
        if part is None:
            raise Corrupt(f"{place.segment.path}: another topic at byte {place.position}")
        return serial, part

    def _index(self, source: Segment) -> Index:
        """An index the janitor may use: it has its own cache, the loop's is not for it."""
        if source.name not in self._indexes:
            index = source.index
            own = index.with_cache(BlockCache(2)) if isinstance(index, FileIndex) else index
            self._indexes[source.name] = own
        return self._indexes[source.name]

    def _remade(self, source: Segment, file: File) -> Index:
        """Of a damaged index, one made from the segment."""
        self._indexes[source.name] = make_index(file, source.header, source.path).index
        return self._indexes[source.name]

    def clean(self) -> None:
        """Remove the sources, oldest first. `Log.complete` has been called."""
        for source in self.sources:
            remove_segment(self._disk, source.path)
        self._disk.sync_directory(self._folder)


@dataclass(frozen=True, slots=True)
class Moved:
    """A batch on its way into a cold segment, or a part of a commit, which stays in its stage."""

    serial: int
    record: MessagesStored | PartKept
    seed: int
    checksum: int
    body: Buffer

    @classmethod
    def of(cls, frame: Frame, stored: StoredBatch) -> "Moved":
        return cls(frame.serial, stored.record, stored.seed, frame.body_checksum, stored.body)

    @classmethod
    def copied(cls, name: str, serial: int, stored: StoredBatch) -> "Moved":
        """Messages out of a stage, with a checksum as the topic's own batches have it."""
        record, run = stored.record, stored.record.runs[0]
        seed = batch.seed(name, run.producer, run.first_sequence, run.count)
        checksum = batch.checksum(stored.body, seed)
        record = msgspec.structs.replace(record, checksum=checksum)
        return cls(serial, record, seed, checksum, stored.body)


def _joins(waiting: list[Moved], moved: Moved) -> bool:
    """Whether the next batch may be joined to those waiting."""
    last = waiting[-1].record
    if isinstance(last, PartKept) or isinstance(moved.record, PartKept):
        return False
    return (
        last.first_offset + last.count == moved.record.first_offset
        and len(moved.body) < SMALL_BYTES
        and len(waiting[-1].body) < SMALL_BYTES
        and sum(len(one.body) for one in waiting) + len(moved.body) <= MERGED_BYTES_MAX
        and moved.record.first_offset + moved.record.count - waiting[0].record.first_offset
        <= MERGED_COUNT_MAX
    )


def join(name: str, parts: list[Moved]) -> Moved:
    """One batch of several consecutive ones; a single one stays as it was put."""
    if len(parts) == 1:
        return parts[0]
    batches = [
        (part.body, part.record) for part in parts if isinstance(part.record, MessagesStored)
    ]
    assert len(batches) == len(parts), "what lies in a stage is not joined"
    first = parts[0].record
    count = sum(record.count for _, record in batches)
    columns, body = batch.join([(body, each.count, each.columns) for body, each in batches])
    runs = join_runs([run for _, record in batches for run in record.runs])
    seed = batch.seed(name, runs[0].producer, runs[0].first_sequence, count)
    checksum = batch.checksum(body, seed)
    record = MessagesStored(first.topic_id, first.first_offset, count, columns, checksum, runs)
    return Moved(parts[0].serial, record, seed, checksum, body)


def join_runs(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Runs in order, those that go on where the one before ended made one with it."""
    joined: list[Run] = []
    for run in runs:
        last = joined[-1] if joined else None
        if (
            last is not None
            and (last.producer, last.producer_epoch, last.timestamp)
            == (run.producer, run.producer_epoch, run.timestamp)
            and last.first_sequence + last.count == run.first_sequence
        ):
            joined[-1] = Run(
                last.count + run.count,
                last.producer,
                last.producer_epoch,
                last.first_sequence,
                last.timestamp,
            )
        else:
            joined.append(run)
    return tuple(joined)


class ColdWriter:
    """Writes a cold segment under a temporary name; `publish` makes it real."""

    def __init__(self, disk: Disk, path: str, header: Header) -> None:
        self.index = MemoryIndex()
        self._disk = disk
        self._path = path
        self._header = header
        self._key = frame_key(header.identity)
        self._position = header.size
        self._file: File | None = disk.open(path + ".tmp", create=True)
        self._file.truncate(0)

    def add(self, moved: Moved) -> None:
        """Write one frame. Cold frames stand alone: no chain, no durable mark."""
        assert self._file is not None
        _, head = encode(
            moved.record,
            key=self._key,
            serial=moved.serial,
            previous=0,
            durable=0,
            seed=moved.seed,
            body_bytes=len(moved.body),
            body_checksum=moved.checksum,
        )
        self._file.write([head, moved.body], self._position)
        size = len(head) + len(moved.body)
        self.index.note(moved.record, self._position, size)
        self._position += size

    def publish(self, cache: BlockCache) -> Segment:
        """Header last, sync, index, rename, sync the directory."""
        assert self._file is not None
        old = self._header
        header = Header(
            COLD,
            old.identity,
            old.first_serial,
            old.chain,
            old.last_serial,
            self._position,
            old.edition,
            old.sources,
        )
        self._file.write([header.encode()], 0)
        self._file.sync()
        self._file.close()
        self._file = None
        end = self._position
        segment = Segment(self._path, header, self.index, end, header.last_serial, 0, end, end)
        segment.index = save_index(self._disk, segment, cache) or segment.index
        self._disk.rename(self._path + ".tmp", self._path)
        self._disk.sync_directory(self._path.rpartition("/")[0])
        return segment

    def close(self) -> None:
        """Give up, if it was not published: nothing of it stays."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._disk.remove(self._path + ".tmp")
