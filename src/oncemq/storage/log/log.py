"""The log of a shard: every fact in one order, gathered, written and synced in groups.

Threads: the loop thread calls everything but `write` (the `GroupWriter`'s), which belongs to one
writer thread. A `Group` is handed from the one to the other and back; groups are written
strictly one after the other. Bytes get their place (segment, position) at `append`, in the
loop thread; the writer only puts them there.

Laws: `finished` comes after write and sync, and only then does anyone learn of the records.
A segment is synced before the first byte of the next. An OSError in `write` is final: the log
takes no further write (memory is never believed over disk).
"""

import logging
from functools import partial

from oncemq.protocol.names import Offset, Serial, TopicId
from oncemq.protocol.outbox_records import OutboxRecord
from oncemq.protocol.records import Committed, EpochBegan, MessagesStaged, MessagesStored, Record
from oncemq.protocol.replicas.leader_epochs import EpochStart, LeaderEpochs
from oncemq.storage.catalog.batch_places import BatchPlace
from oncemq.storage.catalog.catalog import Catalog
from oncemq.storage.catalog.gaps import gaps
from oncemq.storage.catalog.moments import moments
from oncemq.storage.compaction.compaction import CompactionJob
from oncemq.storage.compaction.plan import LiveOf, Scales, plan
from oncemq.storage.disk import Buffer, Disk, Lock
from oncemq.storage.log.checkpoint import (
    KEPT,
    CheckpointFile,
    CheckpointJob,
    CheckpointWriter,
    Now,
    keep_newest,
)
from oncemq.storage.log.frame_runs import ChainLink, FrameRun, FrameSource, checked
from oncemq.storage.log.options import LogOptions
from oncemq.storage.log.pinned_files import PinnedFiles, pin
from oncemq.storage.log.room import Room
from oncemq.storage.log.writer import AHEAD_BYTES, Group, GroupPart, GroupWriter
from oncemq.storage.segments.framing import LOCAL_BYTES, encode, frame_key, local_part
from oncemq.storage.segments.index import BlockCache, MemoryIndex
from oncemq.storage.segments.layout import Format
from oncemq.storage.segments.segment import new_log_segment, remove_segment

STATE_BYTES = 32  # what a stored batch adds to a checkpoint, about: its producer, its numbers
FACT_BYTES = 128  # what a record adds that was there before this start, about
JOINED_BYTES = 2048  # bodies up to here are copied beside their header: fewer buffers to write

logger = logging.getLogger("oncemq.storage")


class Log:
    """One log, open. Made by `recovery.open_log`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        options: LogOptions,
        *,
        form: Format,
        catalog: Catalog,
        cache: BlockCache,
        lock: Lock,
        checkpoints: list[CheckpointFile],
        epochs: LeaderEpochs,
        openings: int,
    ) -> None:
        self.form = form
        self.identity = form.identity
        self.tag = form.tag
        self.generation = form.generation
        self.agreed = form.agreed
        self.openings = openings  # of this directory, with this one
        self.epochs = epochs  # those that began behind the checkpoint, committed or not
        self.options = options
        self.reserve_bytes = options.reserve_bytes  # what puts leave to small facts
        self._disk = disk
        self._directory = directory
        self._key = frame_key(form.identity)
        self._source = FrameSource(catalog, self._key)
        self._lock = lock
        self._cache = cache
        # the loop thread's
        self._checkpoints = checkpoints
        self._catalog = catalog
        self._current = catalog.segments[-1]
        self._last_serial = self._current.last_serial
        # of what is appended, and of the record before: they differ only where an epoch begins
        self._epoch = self._epoch_before = max(epochs.newest, self._current.header.leader_epoch)
        self._finished = self._last_serial
        self._gathered: list[GroupPart] = []
        self._begun_serial = checkpoints[-1].begin if checkpoints else 0
        self._appended_bytes = 0
        # Of `Room.unsaved_bytes`: what the checkpoint that is under way has.
        self._unsaved_before = 0
        self._compacting: CompactionJob | None = None
        self._scales = Scales()
        self.room = Room(disk, directory, options, catalog, roll=self._roll)
        self.room.checkpoints_are(
            [one.size for one in checkpoints],
            unsaved_bytes=(self._last_serial - self._begun_serial) * FACT_BYTES,
        )
        self.has_room = self.room.has_room  # before each append
        self.was_full = self.room.was_refused
        self.read = catalog.read
        self.read_many = catalog.read_many
        self.staged_from = catalog.staged_from
        self.extents = catalog.extents
        self.gaps = partial(gaps, catalog)
        self.moments = partial(moments, catalog)
        # the writer thread's; the loop only reads its `synced`
        self._writer = GroupWriter(disk, directory, self._current, cache, sync_ms=options.sync_ms)
        self.write = self._writer.write

    # serials

    @property
    def last_serial(self) -> Serial:
        """The newest record appended, durable or not."""
        return Serial(self._last_serial)

    @property
    def durable_serial(self) -> Serial:
        """Every record up to here is synced, and `finished` said so."""
        return Serial(min(self._finished, self._writer.synced))

    # appending: loop thread

    def append(
        self,
        record: Record | OutboxRecord,
        body: Buffer | None = None,
        *,
        seed: int = 0,
        checksum: int = 0,
        framed: tuple[int, bytes] | None = None,  # chain value and head, by another replica
    ) -> Serial:
        """Gather a record; its body is kept as it is, not copied, until the group is written."""
        current = self._current
        serial = self._last_serial + 1
        body_bytes = 0 if body is None else len(body)
        chain, head = framed or encode(
            record,
            key=self._key,
            serial=serial,
            previous=current.chain,
            durable=min(self._finished, self._writer.synced),
            leader_epoch=self._epoch,
            seed=seed,
            body_bytes=body_bytes,
            body_checksum=checksum,
        )
        size = len(head) + body_bytes
        position = current.end
        if position + size > self.options.segment_bytes and not self._fits(position + size):
            self._roll()
            current = self._current
            position = current.end
        gathered = self._gathered
        if not gathered or gathered[-1].segment is not current:
            gathered.append(GroupPart(current, position, position))
            if position >= current.places.due:
                current.places.note(serial, position)
        part = gathered[-1]
        if body is None or not body_bytes:
            part.buffers.append(head)
        elif body_bytes <= JOINED_BYTES:
            part.buffers.append(head + body)
        else:
            part.buffers.append(head)
            part.buffers.append(body)
        index = current.index
        assert isinstance(index, MemoryIndex)
        if isinstance(record, MessagesStored):
            if index.add(record, position, size):
                self._catalog.hold(record.topic_id, record.first_offset, current)
                current.stages += isinstance(record, MessagesStaged)
        elif isinstance(record, Committed):
            for first in index.add_parts(record, position, size):
                self._catalog.hold(first.topic_id, first.first_offset, current)
        part.end = current.end = position + size
        current.last_serial = self._last_serial = serial
        current.chain = chain
        self._appended_bytes += size
        self.room.unsaved_bytes += len(head) if body is None else STATE_BYTES
        return Serial(serial)

    def begin_epoch(self, record: EpochBegan) -> Serial:
        """This server leads from here on: all records are of its epoch, this one first."""
        assert record.leader_epoch > self._epoch, "an epoch that began is over, or another leader's"
        self._epoch = record.leader_epoch
        serial = self.append(record)
        self._epoch_before = record.leader_epoch
        self.epochs.began(EpochStart(record.leader_epoch, serial))
        return serial

    # between replicas: loop thread

    @property
    def newest(self) -> ChainLink:
        """The newest record appended: who has the same one has the same log up to there."""
        return ChainLink(self._last_serial, self._epoch, self._current.chain)

    def append_frames(self, raw: bytes) -> Serial:
        """Gather frames of another replica as they are: all of them, or FramesRefused."""
        durable = min(self._finished, self._writer.synced)
        for frame, record in checked(raw, self._key, self.newest):
            rest = raw[frame.position + LOCAL_BYTES : frame.body_position]
            framed = frame.chain, local_part(frame.chain, durable) + rest
            serial = self.append(record, frame.body, framed=framed)
            if isinstance(record, EpochBegan):
                self._epoch = self._epoch_before = record.leader_epoch
                self.epochs.began(EpochStart(record.leader_epoch, serial))
        return Serial(self._last_serial)

    def frames_from(self, serial: int, bytes_max: int) -> FrameRun | None:
        """Finished frames from a serial on, for another replica: see `FrameSource.read`."""
        return self._source.read(serial, bytes_max)

    def pin(self) -> PinnedFiles:
        """The files that another replica begins with, as they are now: see `pinned_files`."""
        newest = self._checkpoints[-1] if self._checkpoints else None
        return pin(self._disk, self.form, newest, self._catalog.segments)

    def _fits(self, end: int) -> bool:
        """Whether a frame up to `end` may still go into the segment in use."""
        current = self._current
        return end <= current.size or current.last_serial < current.first_serial

    def _roll(self, size: int = 0) -> None:
        """Go on in a new segment: an empty file now, its header when the writer gets there."""
        self.keep_lock()  # what has the name of the directory now may be another's
        old = self._current
        new = new_log_segment(
            f"{self._directory}/log",
            self.identity,
            self._last_serial + 1,
            old.chain,
            leader_epoch=self._epoch_before,
        )
        new.file = self._disk.open(new.path, create=True)
        try:
            if size:
                new.file.allocate(size)
        except OSError:
            new.file.close()
            remove_segment(self._disk, new.path)
            raise
        new.size = size
        self._catalog.add(new)
        self._current = new

    # room: loop thread

    @property
    def bytes_used(self) -> int:
        """Bytes on disk, reserved room included."""
        return self.room.bytes_used

    # checkpoints and compaction: loop thread

    @property
    def checkpoint_due(self) -> bool:
        """Whether enough was appended since the last checkpoint began."""
        return (
            self._last_serial - self._begun_serial >= self.options.checkpoint_records
            or self._appended_bytes >= self.options.checkpoint_bytes
        )

    @property
    def reclaim_waits(self) -> bool:
        """Whether a full segment cannot be freed only because no two checkpoints cover it."""
        segments = self._catalog.segments
        if len(segments) < 2:
            return False
        covered = self._checkpoints[0].begin if len(self._checkpoints) >= KEPT else 0
        return segments[-2].last_serial > covered

    def begin_checkpoint(self) -> CheckpointWriter:
        """Begin a checkpoint: from here on, add the state piece by piece."""
        self._begun_serial = self._last_serial
        self._appended_bytes = 0
        self._unsaved_before = self.room.unsaved_bytes
        return CheckpointWriter(
            self._disk,
            f"{self._directory}/checkpoints",
            self.identity,
            self._last_serial,
            lambda: Now(self._last_serial, self._current.chain, self.durable_serial),
        )

    def plan(self, live_of: LiveOf) -> CompactionJob | None:
        """What to compact next; None when nothing is worth it, or a job is not complete yet."""
        if self._compacting is not None or len(self._checkpoints) < KEPT:
            return None
        covered = self._checkpoints[0].begin
        weighed = self._scales.weigh(self._catalog.segments, covered, live_of, self._last_serial)
        planned = plan(
            weighed,
            live_of,
            merged_bytes_max=self.options.segment_bytes,
            stages_max=self.options.stages_kept,
        )
        if planned is not None:
            self._compacting = CompactionJob(
                self._disk, f"{self._directory}/log", self.identity, self._cache, planned
            )
        return self._compacting

    @property
    def planned_all(self) -> bool:
        """Whether the plans since the last append have looked at every segment."""
        return len(self._checkpoints) < KEPT or self._scales.looked_at_all

    def complete(self, job: CheckpointJob | CompactionJob) -> None:
        """A job has run: take its result in. Its `clean` comes after."""
        if isinstance(job, CheckpointJob):
            assert job.result is not None
            kept = keep_newest(self._checkpoints, job.result)
            paths = {checkpoint.path for checkpoint in kept}
            job.replaced = [old for old in self._checkpoints if old.path not in paths]
            self._checkpoints = kept
            sizes = [one.size for one in kept]
            unsaved_bytes = self.room.unsaved_bytes - self._unsaved_before
            self.room.checkpoints_are(sizes, unsaved_bytes=unsaved_bytes)
            self._unsaved_before = 0
        else:
            self._catalog.replace(job.sources, job.result)
            self._compacting = None
        self.room.ask_again()

    def abandon(self, job: CompactionJob) -> None:
        """A compaction that raised: its sources stay, another may be planned."""
        assert job is self._compacting
        self._compacting = None
        if job.damaged is not None:
            segment, damage = job.damaged
            segment.damage = damage

    # groups: loop thread

    def take_group(self, *, sync: bool = False) -> Group | None:
        """What was gathered since the last group, for the writer; `sync`: though it is nothing."""
        if not self._gathered and not sync:
            return None
        size = 0
        for part in self._gathered:
            size += part.end - part.position
        if size <= AHEAD_BYTES // 4 and self._gathered:
            part = self._gathered[-1]
            if part.end > part.segment.ahead:
                part.write_ahead()
        group = Group(self._gathered, size, self._last_serial, sync)
        self._gathered = []
        return group

    def finished(self, group: Group) -> Serial:
        """The writer is done with this group: its records may be told of now."""
        for segment, index in group.sealed:
            self._catalog.seal(segment, index)
        for part in group.parts:
            part.segment.visible = part.end
            part.segment.claimed = 0
        self._finished = group.last_serial
        return Serial(group.last_serial)

    # reading: loop thread

    def find(self, topic_id: TopicId, offset: int) -> BatchPlace | None:
        """The stored batch holding `offset`, or the first one after it."""
        return next(self._catalog.places(topic_id, offset), None)

    def offset_at(self, topic_id: TopicId, timestamp: int) -> Offset | None:
        """The first offset with a timestamp at or after this one; None when all are older."""
        offset = self._catalog.offset_at(topic_id, timestamp)
        return None if offset is None else Offset(offset)

    def keep_lock(self) -> None:
        """Raise Locked when the directory may be another's by now; ask every second or so."""
        if self._lock.keep():
            logger.warning("lock file was removed, and is put back directory=%s", self._directory)

    def close(self) -> None:
        """Close the files and give the directory free. The writer has stopped before."""
        self._writer.close()
        self._catalog.close()
        self._lock.release()
