"""What frees room in a log: checkpoints, and the compaction of what they cover.

Owned by the loop thread. The jobs are run by the janitor, a thread of its own, and their results
are taken in here.

Law: only what two checkpoints cover is compacted, so a damaged one never loses state. A checkpoint
stands for a state that some record led to; where the state is behind the end of the log, as a
follower's is, that record is not the newest.
"""

from collections.abc import Callable

from oncemq.protocol.names import Serial
from oncemq.storage.catalog.catalog import Catalog
from oncemq.storage.compaction.compaction import CompactionJob
from oncemq.storage.compaction.plan import LiveOf, Scales, plan
from oncemq.storage.disk import Disk
from oncemq.storage.log.checkpoint import (
    KEPT,
    CheckpointFile,
    CheckpointJob,
    CheckpointWriter,
    Now,
    keep_newest,
)
from oncemq.storage.log.frame_runs import ChainLink
from oncemq.storage.log.options import LogOptions
from oncemq.storage.log.room import Room
from oncemq.storage.segments.index import BlockCache

FACT_BYTES = 128  # what a record adds that was there before this start, about


class Reclaiming:
    """The checkpoints of one open log, and what is compacted behind them."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        options: LogOptions,
        identity: bytes,
        catalog: Catalog,
        cache: BlockCache,
        room: Room,
        checkpoints: list[CheckpointFile],
        now: Callable[[], Now],  # where the log stands
    ) -> None:
        self.checkpoints = checkpoints  # oldest first
        self.appended_bytes = 0  # since the last one began
        self.damage = ""  # that a compaction met
        self._held: Serial | None = None  # behind it nothing is compacted
        self._disk = disk
        self._directory = directory
        self._options = options
        self._identity = identity
        self._catalog = catalog
        self._cache = cache
        self._room = room
        self._now = now
        self._begun_serial = checkpoints[-1].begin if checkpoints else 0
        # Of `Room.unsaved_bytes`: what the checkpoint that is under way has.
        self._unsaved_before = 0
        self._compacting: CompactionJob | None = None
        self._scales = Scales()
        room.checkpoints_are(
            [one.size for one in checkpoints],
            unsaved_bytes=(now().serial - self._begun_serial) * FACT_BYTES,
        )

    # checkpoints

    @property
    def checkpoint_due(self) -> bool:
        """Whether enough was appended since the last checkpoint began."""
        return (
            self._now().serial - self._begun_serial >= self._options.checkpoint_records
            or self.appended_bytes >= self._options.checkpoint_bytes
        )

    def adds(self, serial: int) -> bool:
        """Whether a checkpoint of the state there would be another than the last one begun."""
        return serial > self._begun_serial

    @property
    def reclaim_waits(self) -> bool:
        """Whether a full segment cannot be freed only because no two checkpoints cover it."""
        segments = self._catalog.segments
        if len(segments) < 2:
            return False
        covered = self.checkpoints[0].begin if len(self.checkpoints) >= KEPT else 0
        return segments[-2].last_serial > covered

    def begin_checkpoint(self, folded: Callable[[], ChainLink] | None = None) -> CheckpointWriter:
        """Begin a checkpoint: from here on, add the state piece by piece.

        `folded`: the newest record that the state has, where that is not the newest of the log.
        """

        def now() -> Now:
            log = self._now()
            if folded is None:
                return log
            link = folded()
            return Now(link.serial, link.chain, log.durable)

        self._begun_serial = now().serial
        self.appended_bytes = 0
        self._unsaved_before = self._room.unsaved_bytes
        folder = f"{self._directory}/checkpoints"
        return CheckpointWriter(self._disk, folder, self._identity, self._begun_serial, now)

    # compaction

    def hold(self, serial: Serial | None) -> None:
        """Compact nothing behind this record: other replicas need it as frames.

        As long as there is as much room again: nobody is refused for the sake of a slow replica.
        """
        if serial is not None and self._bytes_behind(serial) > self._free_bytes:
            serial = None
        self._held = serial

    @property
    def _free_bytes(self) -> int:
        free, most = self._disk.free_bytes(self._directory), self._options.disk_bytes_max
        return free if most is None else min(free, most - self._room.bytes_used)

    def _bytes_behind(self, serial: int) -> int:
        size = 0
        for segment in reversed(self._catalog.segments):
            if segment.last_serial <= serial:
                break
            size += segment.size
        return size

    def plan(self, live_of: LiveOf) -> CompactionJob | None:
        """What to compact next; None when nothing is worth it, or a job is not complete yet."""
        if self._compacting is not None or len(self.checkpoints) < KEPT:
            return None
        covered = self.checkpoints[0].begin
        if self._held is not None:
            covered = min(covered, self._held)
        last_serial = self._now().serial
        weighed = self._scales.weigh(self._catalog.segments, covered, live_of, last_serial)
        planned = plan(
            weighed,
            live_of,
            merged_bytes_max=self._options.segment_bytes,
            stages_max=self._options.stages_kept,
        )
        if planned is not None:
            self._compacting = CompactionJob(
                self._disk, f"{self._directory}/log", self._identity, self._cache, planned
            )
        return self._compacting

    @property
    def planned_all(self) -> bool:
        """Whether the plans since the last append have looked at every segment."""
        if len(self.checkpoints) < KEPT:
            return True
        is_held_back = self._held is not None and self._held < self.checkpoints[0].begin
        return self._scales.looked_at_all and not is_held_back

    # both

    def complete(self, job: CheckpointJob | CompactionJob) -> None:
        """A job has run: take its result in. Its `clean` comes after."""
        if isinstance(job, CheckpointJob):
            assert job.result is not None
            kept = keep_newest(self.checkpoints, job.result)
            paths = {checkpoint.path for checkpoint in kept}
            job.replaced = [old for old in self.checkpoints if old.path not in paths]
            self.checkpoints = kept
            sizes = [one.size for one in kept]
            unsaved_bytes = self._room.unsaved_bytes - self._unsaved_before
            self._room.checkpoints_are(sizes, unsaved_bytes=unsaved_bytes)
            self._unsaved_before = 0
        else:
            self._catalog.replace(job.sources, job.result)
            self._compacting = None
        self._room.ask_again()

    def abandon(self, job: CompactionJob) -> None:
        """A compaction that raised: its sources stay, another may be planned."""
        assert job is self._compacting
        self._compacting = None
        if job.damaged is not None:
            segment, damage = job.damaged
            segment.damage = self.damage = damage
