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
from oncemq.storage.disk import Buffer, Disk, Lock
from oncemq.storage.log.checkpoint import CheckpointFile, Now
from oncemq.storage.log.frame_runs import (
    ChainLink,
    FrameRun,
    FrameSource,
    ReceivedFrames,
    check,
)
from oncemq.storage.log.options import LogOptions
from oncemq.storage.log.pinned_files import PinnedFiles, pin
from oncemq.storage.log.recent_frames import RecentFrames
from oncemq.storage.log.reclaiming import Reclaiming
from oncemq.storage.log.room import Room
from oncemq.storage.log.writer import AHEAD_BYTES, Group, GroupPart, GroupWriter
from oncemq.storage.segments.framing import LOCAL_BYTES, encode, frame_key, local_part
from oncemq.storage.segments.index import BlockCache, MemoryIndex
from oncemq.storage.segments.layout import Format
from oncemq.storage.segments.segment import new_log_segment, remove_segment

STATE_BYTES = 32  # what a stored batch adds to a checkpoint, about: its producer, its numbers
RECENT_BYTES = 64 << 20
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
        # the loop thread's
        self._catalog = catalog
        self._current = catalog.segments[-1]
        self._last_serial = self._current.last_serial
        # of what is appended, and of the record before: they differ only where an epoch begins
        self._epoch = self._epoch_before = max(epochs.newest, self._current.header.leader_epoch)
        self._finished = self._last_serial
        self._recent: RecentFrames | None = None
        self._gathered: list[GroupPart] = []
        # the writer thread's; the loop only reads its `synced`
        self._writer = GroupWriter(disk, directory, self._current, cache, sync_ms=options.sync_ms)
        self.write = self._writer.write
        self.room = room = Room(disk, directory, options, catalog, roll=self._roll)
        self.has_room = room.has_room  # before each append
        self.was_full = room.was_refused
        self.read = catalog.read
        self.read_many = catalog.read_many
        self.staged_from = catalog.staged_from
        self.extents = catalog.extents
        self.gaps = partial(gaps, catalog)
        self.moments = partial(moments, catalog)
        self.reclaiming = Reclaiming(
            disk, directory, options, self.identity, catalog, cache, room, checkpoints, self._now
        )
        self.begin_checkpoint = self.reclaiming.begin_checkpoint
        self.plan = self.reclaiming.plan
        self.complete = self.reclaiming.complete
        self.abandon = self.reclaiming.abandon

    # serials

    @property
    def last_serial(self) -> Serial:
        """The newest record appended, durable or not."""
        return Serial(self._last_serial)

    @property
    def durable_serial(self) -> Serial:
        """Every record up to here is synced, and `finished` said so."""
        return Serial(min(self._finished, self._writer.synced))

    def _now(self) -> Now:
        return Now(self._last_serial, self._current.chain, self.durable_serial)

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
        if self._recent is not None:
            self._recent.add(self._epoch, chain, size, part.buffers, body_bytes > JOINED_BYTES)
        self.reclaiming.appended_bytes += size
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

    def keep_recent(self, bytes_max: int = RECENT_BYTES) -> None:
        """Keep the newest frames in memory from now on: others are sent them before a sync."""
        self._recent = RecentFrames(self.newest, bytes_max)

    @property
    def kept_from(self) -> Serial:
        """The first serial from which on all frames can be had."""
        kept = self._source.kept_from
        recent = self._recent
        return Serial(kept if recent is None else min(kept, recent.kept_from))

    def frames_after(self, serial: int, bytes_max: int) -> FrameRun | None:
        """The frames behind a record: at least one, and beyond that `bytes_max` bytes at most.

        None: only files bring them. Without frames, `previous` is the newest record; or one before
        `serial`, when what follows is still being written or looked for: ask again.
        """
        if serial >= self._last_serial:
            return FrameRun(self.newest, b"", self.newest)
        if self._recent is not None and serial >= self._recent.kept_from - 1:
            return self._recent.after(serial, bytes_max)
        return self._source.read(serial + 1, bytes_max)

    def recent_bytes_after(self, serial: int) -> int:
        """How many bytes follow a record that is among the newest, written or not."""
        assert self._recent is not None, "nobody keeps them"
        return self._recent.size_after(serial)

    def place_of(self, serial: int) -> ChainLink | None:
        """The link of a record; of 0, where the chain begins. None: see `FrameSource.place_of`."""
        if serial == self._last_serial:
            return self.newest
        recent = self._recent
        if recent is not None and recent.kept_from - 1 <= serial < self._last_serial:
            return recent.place_of(serial)
        return self._source.place_of(serial)

    def check_frames(self, raw: Buffer, previous: ChainLink) -> ReceivedFrames:
        """Frames of another replica that follow `previous`, whatever is here; or FramesRefused."""
        return check(raw, self._key, previous)

    def append_received(self, received: ReceivedFrames, skip: int) -> Serial:
        """Gather all but the first `skip` of these frames as they are; they follow the own end."""
        assert received.before(skip) == self.newest, "these frames do not follow"
        durable = min(self._finished, self._writer.synced)
        raw = received.raw
        for frame, record in received.frames[skip:]:
            rest = raw[frame.position + LOCAL_BYTES : frame.body_position]
            framed = frame.chain, local_part(frame.chain, durable) + rest
            serial = self.append(record, frame.body, framed=framed)
            if isinstance(record, EpochBegan):
                self._epoch = self._epoch_before = record.leader_epoch
                self.epochs.began(EpochStart(record.leader_epoch, serial))
        return Serial(self._last_serial)

    @property
    def finished_link(self) -> ChainLink | None:
        """The newest record that is finished. None: it has to be looked for; ask again."""
        return self.place_of(self._finished)

    def pin(self) -> PinnedFiles:
        """The files that another replica begins with, as they are now: see `pinned_files`.

        They go up to `finished_link`.
        """
        checkpoints = self.reclaiming.checkpoints
        newest = checkpoints[-1] if checkpoints else None
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

    # groups: loop thread

    @property
    def has_gathered(self) -> bool:
        """Whether anything waits for the next group."""
        return bool(self._gathered)

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
        if self._recent is not None:
            self._recent.let_go(self._finished)
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
        self._recent = None  # 64 MB, and it may be long until the log itself is collected
        self._writer.close()
        self._catalog.close()
        self._lock.release()
