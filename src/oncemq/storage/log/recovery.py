"""Opening a log: what is on the disk, what of it can be believed, and where it goes on.

Laws: nothing is cut that may have been acknowledged. A bad place is a torn tail only when
nothing valid comes after it and its serial lies beyond every durable mark and the checkpoint;
else it is corruption and the log is refused. What was recovered is written and synced again
before anyone is told of it: after a kill it may be only in the page cache, after a failed
sync even a later sync proves nothing.

How it works. A directory has FORMAT (whose log this is), `log/` (segments: `.log` as they were
written, `.cold` as compaction made them), `checkpoints/` (the two newest) and END (a hint how far
the log was durable). Opening goes through them in this order:

1. Take the lock. Remove what a crash left half made: temporary files, and segments that were
   begun and never had a durable header (`tidy`, `load_shelf`).
2. Read the newest checkpoint that is whole. It was taken while the server went on working, from
   the serial `begin` to the serial `end`: some of its values are older than others. So every
   record after `begin` is replayed, and each part of the state knows by its own last serial
   which of them it has seen already.
3. Segments that lie before `begin` are covered: their records are not needed for the state, and
   only their indexes are loaded. Whether they are there at all is checked once the state is
   known (server/completeness).
4. The other segments are the tail. Each frame of it is verified: its checksum, its serial, and
   the chain value that ties it to the frame before (`verify`).
5. Where the verification stops, there are two cases. Torn tail: a write was under way when the
   power went, nobody was told of it, and it is cut off (a copy is kept). Corruption: something
   that was durable is damaged, and somebody may have been told. They look alike. What tells them
   apart are the durable marks: each frame says up to which serial the log was synced when it
   was written, END and the checkpoint say the same. A bad place at or below the highest mark was
   durable once; then the log is refused, and a person decides (`once repair`).
6. The tail is written again where it ends and synced (`_mend`). It may have been read from the
   page cache of a process that was killed before its sync; an answer that rests on it must not
   leave before it is on the disk for sure. Full segments get their index.
7. What is handed out is lazy: `replay` reads the tail a second time, now known to be whole, and
   decodes one record after the other. So a tail of any size takes little memory.

Why twice: verifying comes before anything is changed or told, and the records cannot be kept in
memory meanwhile. Why not repair by itself: cutting what was acknowledged is the one thing that a
log must never do without being told to.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from oncemq.errors import Corrupt, StorageFull
from oncemq.protocol.names import LeaderEpoch, Serial
from oncemq.protocol.records import Record
from oncemq.protocol.replicas.leader_epochs import EpochStart, LeaderEpochs
from oncemq.storage.catalog.catalog import Catalog
from oncemq.storage.disk import Disk, File, Lock, LockingDisk
from oncemq.storage.log.checkpoint import CheckpointFile, read_checkpoint
from oncemq.storage.log.cutting import cut, keep_copy
from oncemq.storage.log.log import Log, LogOptions
from oncemq.storage.log.replay import replayed, replayed_frames
from oncemq.storage.segments.end import NAME as END
from oncemq.storage.segments.end import NOTHING, read_end
from oncemq.storage.segments.framing import STRETCH_BYTES, Frame, frame_key
from oncemq.storage.segments.index import BlockCache, read_index
from oncemq.storage.segments.layout import Format, ensure_format, migrated, tidy
from oncemq.storage.segments.openings import count_opening
from oncemq.storage.segments.segment import Header, Segment, index_path, save_index
from oncemq.storage.segments.segment_files import SegmentFiles, load_covered, load_shelf
from oncemq.storage.segments.verify import Verified, must_be_torn, must_lead_to, verify
from oncemq.storage.shortage import DISK_FULL

SEGMENT_BYTES_LEAST = 1 << 20
PLACE_FRAMES = 64  # of so many, the place of one is offered to `Segment.places`


@dataclass(slots=True)
class Recovery:
    """What opening found and did; for the log line and for `once status`."""

    segments: int = 0
    replayed: int = 0
    torn: list[str] = field(default_factory=list[str])  # copies of what was cut off
    cut: list[str] = field(default_factory=list[str])  # copies of what another leader's log lacks
    damaged_checkpoints: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])  # leftovers of a crash


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """An open log, and what its state is to be rebuilt from."""

    log: Log
    states: list[bytes]  # blobs of the checkpoint, in the order they were added
    replay: Iterator[tuple[Serial, Record]]  # every record after the checkpoint's begin
    frames: Iterator[Frame]  # the same with their bodies; each is valid until the next
    checkpoint_end: Serial  # the blobs hold nothing after this serial
    report: Recovery


def open_log(
    disk: LockingDisk,
    directory: str,
    options: LogOptions,
    *,
    random_bytes: Callable[[int], bytes],
    cut_to: int | None = None,
    opening: int | None = None,
) -> OpenedLog:
    """Open the log of a directory, or make a new one in it.

    `cut_to`: as if it had ended with this serial; for a replica that follows another leader.
    `opening`: which one of the directory's openings this goes on with, when the same process has
    closed the log before; it is not counted again.
    """
    disk.make_directory(directory)
    lock = disk.lock(f"{directory}/lock")
    try:
        form = ensure_format(disk, directory, random_bytes)
        one = _Opening(disk, directory, form, random_bytes, opening)
        try:
            return one.open(options, lock, cut_to)
        except BaseException:
            for file in one.files:
                file.close()
            raise
    except BaseException:
        lock.release()
        raise


class _Opening:
    """One opening of one directory."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        form: Format,
        random_bytes: Callable[[int], bytes],
        opening: int | None,
    ) -> None:
        self.opening = opening
        self.disk = disk
        self.directory = directory
        self.form = form
        self.random_bytes = random_bytes
        self.epochs = LeaderEpochs()
        self.key = frame_key(form.identity)
        self.report = Recovery()
        self.cache = BlockCache()
        self.files: list[File] = []  # to be closed when the opening fails
        self.end = NOTHING

    def open(self, options: LogOptions, lock: Lock, cut_to: int | None) -> OpenedLog:
        if "log" not in self.disk.names(self.directory):
            raise Corrupt(
                f"{self.directory} has a FORMAT file but no log/; restore it from a backup"
            )
        # Without checkpoints the whole log is replayed; one that does not begin at 1 is refused.
        self.disk.make_directory(f"{self.directory}/checkpoints")
        self.report.removed += tidy(self.disk, self.directory)
        self.end = read_end(self.disk, self.directory)
        shelf = load_shelf(self.disk, self.directory, self.form.identity, self.end.segment)
        self.report.removed += shelf.removed
        checkpoints, states, damaged = self._checkpoints()
        newest = checkpoints[-1] if checkpoints else None
        if cut_to is not None:
            self._cut(shelf, cut_to, newest)
        begin = newest.begin if newest else 0
        start = _replay_start(shelf, begin, self.directory)
        self._move_away(damaged)  # not before: who refuses a directory leaves it as it is
        covered = [
            load_covered(self.disk, self.directory, header, self.cache)
            for header in (*shelf.cold, *shelf.log[:start])
        ]
        tail = self._verify_tail(shelf.log[start:], newest)
        catalog = Catalog(self.disk, self.key)
        for segment in sorted([*covered, *tail], key=lambda segment: segment.first_serial):
            catalog.add(segment)
        form, openings = self._noted()
        log = Log(
            self.disk,
            self.directory,
            self._fitting(options, catalog),
            form=form,
            catalog=catalog,
            cache=self.cache,
            lock=lock,
            checkpoints=checkpoints,
            epochs=self.epochs,
            openings=openings,
        )
        self.report.segments = len(catalog.segments)
        self.report.replayed = log.last_serial - begin
        ends = [(segment.path, segment.end) for segment in tail]
        replay = replayed(self.disk, ends, self.key, begin)
        frames = replayed_frames(self.disk, ends, self.key, begin, bodies=True)
        end = Serial(newest.end if newest else 0)
        return OpenedLog(log, states, replay, frames, end, self.report)

    def _cut(self, shelf: SegmentFiles, serial: int, newest: CheckpointFile | None) -> None:
        """Let the log end with a serial, if it is one that can be opened."""
        _replay_start(shelf, newest.begin if newest else 0, self.directory)
        self.report.cut = cut(
            self.disk, self.directory, serial, key=self.key, headers=shelf.log, newest=newest
        )
        if self.report.cut:
            self.end = read_end(self.disk, self.directory)
            names = self.disk.names(f"{self.directory}/log")
            shelf.log = [each for each in shelf.log if each.name in names]

    def _noted(self) -> tuple[Format, int]:
        """Say durably that the directory is opened, once more, by a version that writes format 2.

        Not before the log was found whole: who refuses a directory leaves it as it is.
        """
        try:
            form = migrated(self.disk, self.directory, self.form, self.random_bytes)
            return form, count_opening(
                self.disk, self.directory, form.incarnation, again=self.opening
            )
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            raise StorageFull(
                f"there is no room in {self.directory} to note that it is opened, which is needed "
                "once after an upgrade: make 64 KiB of room on its disk, and start again"
            ) from error

    def _fitting(self, options: LogOptions, catalog: Catalog) -> LogOptions:
        """What is settled is freed a segment at a time: where there is little room, small ones."""
        if not options.segment_share:
            return options
        room = self.disk.free_bytes(self.directory) + catalog.disk_bytes
        if options.disk_bytes_max is not None:
            room = min(room, options.disk_bytes_max)
        size = max(SEGMENT_BYTES_LEAST, room // options.segment_share)
        return replace(options, segment_bytes=min(options.segment_bytes, size))

    def _checkpoints(self) -> tuple[list[CheckpointFile], list[bytes], list[str]]:
        """The kept checkpoints that hold, oldest first, the newest one's blobs, the damaged."""
        folder = f"{self.directory}/checkpoints"
        names = [name for name in self.disk.names(folder) if name.endswith(".ckpt")]
        good: list[CheckpointFile] = []
        states: list[bytes] = []
        damaged: list[str] = []
        for name in reversed(names):
            found = read_checkpoint(self.disk, f"{folder}/{name}", self.form.identity)
            if found is None:
                damaged.append(name)
                continue
            if not good:
                states = found[1]
            good.insert(0, found[0])
        return good, states, damaged

    def _move_away(self, damaged: list[str]) -> None:
        """Keep damaged checkpoints for a person to look at."""
        folder, copies = f"{self.directory}/checkpoints", f"{self.directory}/torn"
        for name in damaged:
            self.report.damaged_checkpoints.append(name)
            self.disk.make_directory(copies)
            self.disk.rename(f"{folder}/{name}", f"{copies}/{name}")
            self.disk.sync_directory(folder)

    def _verify_tail(self, headers: list[Header], newest: CheckpointFile | None) -> list[Segment]:
        """Everything the checkpoint does not cover, each frame checked; the last one mended."""
        segments: list[Segment] = []
        prove = newest.end if newest else 0
        proven = max(prove, self.end.serial)
        for number, header in enumerate(headers):
            is_last = number == len(headers) - 1
            path = f"{self.directory}/log/{header.name}"
            file = self.disk.open(path)
            self.files.append(file)
            found = verify(file, header, self.key, prove=prove)
            proven = max(proven, found.durable)
            for epoch, serial in found.epochs:
                self.epochs.began(EpochStart(LeaderEpoch(epoch), Serial(serial)))
            if not is_last:
                must_lead_to(path, found, headers[number + 1])
            elif found.bad is not None:
                must_be_torn(path, found, proven)
            if newest and found.proof not in (None, newest.chain):
                raise Corrupt(
                    f"{path}: the log at serial {prove} is not the one {newest.path} was made "
                    "of; one of the two comes from another time: run `once repair`"
                )
            segment = Segment(
                path, header, found.index, found.end, found.last_serial, found.chain,
                file.size(), found.end, file,
            )  # fmt: skip
            for at in range(0, len(found.positions), PLACE_FRAMES):
                segment.places.note(header.first_serial + at, found.positions[at])
            if is_last:
                self._mend(segment, found, proven)
            else:
                self._seal(segment)
            segments.append(segment)
        if newest and segments[-1].last_serial < newest.end:
            raise Corrupt(
                f"{self.directory}: the log ends at serial {segments[-1].last_serial} but the "
                f"checkpoint {newest.path} proves it was durable up to {newest.end}; serials "
                f"{segments[-1].last_serial + 1} to {newest.end} are lost: run `once repair`"
            )
        if segments[-1].last_serial < self.end.serial:
            raise Corrupt(
                f"{self.directory}: the log ends at serial {segments[-1].last_serial}, but "
                f"{self.directory}/{END} says it was durable up to {self.end.serial}: serials "
                f"{segments[-1].last_serial + 1} to {self.end.serial} are lost: run `once repair`"
            )
        return segments

    def _seal(self, segment: Segment) -> None:
        """Finish what a crash may have left undone when the log went on to the next segment."""
        file = segment.file
        assert file is not None
        if segment.size != segment.end:
            file.truncate(segment.end)
            file.sync()
            segment.size = segment.end
        file.close()
        segment.file = None
        covered = segment.covered
        kept = read_index(
            self.disk,
            index_path(segment.path),
            self.cache,
            identity=covered.identity,
            fingerprint=covered.fingerprint,
        )
        if kept is not None and kept[1] == covered:
            segment.index = kept[0]
        else:
            segment.index = save_index(self.disk, segment, self.cache) or segment.index

    def _mend(self, segment: Segment, found: Verified, proven: int) -> None:
        """Cut a torn tail off, and make durable what no durable mark proves to be so.

        The unproven frames are written again in place, byte for byte, then synced: that makes
        their pages dirty anew, so a sync that failed before cannot be taken for one that did
        not. It needs no room, which a full disk may not have.
        """
        file = segment.file
        assert file is not None
        if found.bad is not None:
            where = self.disk, self.directory, file, segment.name, segment.end
            self.report.torn.append(keep_copy(*where, "torn"))
        if segment.size != segment.end:
            self._clear_room(segment, file)
        position = segment.end
        if proven < segment.first_serial:
            position = 0
        elif proven < segment.last_serial:
            position = found.positions[proven + 1 - segment.first_serial]
        while position < segment.end:
            stretch = file.read(position, min(STRETCH_BYTES, segment.end - position))
            file.write([stretch], position)
            position += len(stretch)
        file.sync()
        self.disk.sync_directory(f"{self.directory}/log")

    @staticmethod
    def _clear_room(segment: Segment, file: File) -> None:
        """Zeros after the last frame, and the room as it was: the reserve outlives a restart."""
        file.truncate(segment.end)
        try:
            file.allocate(segment.size)  # at once: nobody else on the disk is to have it
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            file.truncate(segment.end)
        segment.size = file.size()


def _replay_start(shelf: SegmentFiles, begin: int, directory: str) -> int:
    """Which log segment holds the first record to replay."""
    starts = [n for n, header in enumerate(shelf.log) if header.first_serial <= begin + 1]
    if not starts:
        first = shelf.log[0].first_serial if shelf.log else "nowhere"
        raise Corrupt(
            f"{directory}: recovery must begin at serial {begin + 1} but the log begins at "
            f"{first}; the checkpoint or the segments before are missing: run `once repair`"
        )
    return starts[-1]
