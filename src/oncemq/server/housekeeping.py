"""Checkpoints, compaction and retention, a little at a time beside the work.

Law: a checkpoint is taken over many turns and never stalls the loop; neither its file nor
anything freed goes ahead of what is durable. A full disk puts housekeeping off, it stops nothing;
nor does a damaged segment, which compaction leaves alone: its readers are told, the others served.
A directory that another process may have by now ends the server: it is looked at every second.

How it works. `turn` is called once in every turn of the loop and does at most one small thing:

- Under way is a capture: add some more values of the state to the checkpoint's file. The state
  changes between two turns, so the values are of different moments; the checkpoint says between
  which serials, and recovery replays what came in between (storage/log/recovery).
- A job is ready: a checkpoint whose values are all there, or a compaction that was planned. It
  waits until the log is durable up to the serial that it rests on, then it goes to the janitor,
  a thread of its own. The loop takes its result in when it is done (`swap`), and only then are
  the files removed that it replaces (`clean`), again on the janitor.
- Once a second, if neither is the case: upkeep (absent guests, retention, keys and stages whose
  time is over), and then the next piece of work is chosen.

What is chosen. A checkpoint is due when enough was appended since the last one, or when a full
segment could be freed and only waits for two checkpoints that cover it. Else the log is asked for
a compaction: the segments most of whose bytes nobody needs, rewritten without them.

Why each may wait for the log. A checkpoint that was published before the records it contains are
durable would, after a power cut, hold a state that the log never had. A compaction frees what
cursors have passed: if the moves of these cursors were lost, their subscribers would ask again
for messages that are gone. Both are bugs that the simulator plants, and finds.

A replica that follows keeps house as well, over the same log and another state: one that stands
behind the end of the log, at a record that is committed (`folded`). Its checkpoints and plans rest
on that record, and it writes no facts: these come from the leader.

On a full disk. A checkpoint that finds no room is given up, and the log lends it some of its own
reserve for the next try (`Room.lend`). Compaction then has the first turn: it may free what the
checkpoint needs. Nothing of this stops the server: puts are refused for want of room, readers
catch up, and what they settle is freed.

Stages. A compaction may copy the last messages that topics keep of a stage into the topics. Then
the stage is not needed, which is a fact of its own (`_end_stages`); when the server stops between
the two, the next start sees that the log holds nothing of the stage, and notes it then.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from oncemq.broker.state import snapshot
from oncemq.broker.state.shard import Shard
from oncemq.errors import Corrupt
from oncemq.protocol.names import Micros, Serial, TopicId
from oncemq.server.events import Events
from oncemq.server.worker import Worker
from oncemq.storage.compaction.compaction import CompactionJob
from oncemq.storage.compaction.plan import LiveShare
from oncemq.storage.log.checkpoint import CheckpointJob, CheckpointWriter, FlushJob
from oncemq.storage.log.frame_runs import ChainLink
from oncemq.storage.log.log import Log
from oncemq.storage.shortage import DISK_FULL, NO_DESCRIPTORS

CAPTURED_A_TURN = 50  # values of topics or clients, about half a millisecond
UPKEEP_MICROS = 1_000_000
ENDED_A_TURN = 10_000  # stages: about 100 KB of records

logger = logging.getLogger("oncemq.server")

Job = FlushJob | CheckpointJob | CompactionJob


class Household(Protocol):
    """A log and its state: of a server that decides, or of a replica that follows one."""

    log: Log
    events: Events

    @property
    def shard(self) -> Shard: ...

    @property
    def settled_serial(self) -> Serial: ...  # what is durable, and will never be cut

    @property
    def folded(self) -> Callable[[], ChainLink] | None: ...  # None: the state is the log's end

    def upkeep(self, now: Micros) -> None: ...
    def mark(self, now: Micros) -> None: ...
    def end_stages(self, stage_ids: Sequence[TopicId], now: Micros) -> bool: ...


class Housekeeping:
    """What one server does when it has a moment."""

    def __init__(self, household: Household, now: Micros) -> None:
        self._household = household
        self._capture: Iterator[bytes] | None = None
        self._writer: CheckpointWriter | None = None
        self._ready: tuple[Job, int] | None = None  # run once the log is durable up to there
        self._next_upkeep = self._next_look = Micros(now + UPKEEP_MICROS)
        self._now = now
        self._last_checkpoint = now
        self._hurries = False  # a checkpoint found no room, and was lent some
        self._frees_first = False  # a checkpoint found no room: compact before the next one
        self._completed = 0  # jobs
        self._at_rest: tuple[int, int] | None = None  # serial and jobs when nothing was to be done
        self._ended = _ended_before(
            household
        )  # stages that compaction has copied into their topics

    @property
    def busy(self) -> bool:
        """Whether a capture is under way, so the loop should not sleep."""
        return self._capture is not None

    def turn(self, janitor: Worker, now: Micros) -> None:
        """One small step."""
        self._now = now
        if now >= self._next_look:
            self._next_look = Micros(now + UPKEEP_MICROS)
            self._household.log.keep_lock()  # also while the janitor is at a long job
        if not janitor.idle:
            return
        if self._capture is not None:
            self._capture_some(janitor)
        elif self._ready is not None:
            job, needed = self._ready
            if self._household.settled_serial >= needed:
                self._ready = None
                self._give(janitor, job)
        elif now >= self._next_upkeep:
            self._next_upkeep = Micros(now + UPKEEP_MICROS)
            self._household.upkeep(now)
            self._household.shard.stages.forget_left(self._is_held)
            self._end_stages(now)
            self._begin_work(now)

    def _begin_work(self, now: Micros) -> None:
        """A checkpoint, if one is due; else a compaction.

        After a checkpoint that found no room the compaction has the first turn: the checkpoint
        stays due, and may never find room unless what the earlier ones cover is freed.
        """
        frees_first, self._frees_first = self._frees_first, False
        if frees_first and self._compact(now):
            return
        if self._checkpoint_due(now):
            self._last_checkpoint = now
            self._capture = snapshot.capture(self._household.shard)
            self._writer = self._household.log.begin_checkpoint(self._household.folded)
        else:
            self._compact(now)

    def _compact(self, now: Micros) -> bool:
        """Prepare the next compaction; False: there is none."""
        planned = self._plan()
        if planned is None:
            return False
        # It frees what cursors have passed: those moves must be durable before.
        self._ready = planned, self._state_serial
        if self._household.log.was_full(now // 1000):
            self._next_upkeep = now  # there may be more of it, and someone waits
        return True

    def _plan(self) -> CompactionJob | None:
        """The next compaction; not looked for again while nothing has happened."""
        now = self._state_serial, self._completed
        if now == self._at_rest:
            return None
        planned = self._household.log.plan(self._live)
        self._at_rest = (
            now if planned is None and self._household.log.reclaiming.planned_all else None
        )
        return planned

    def _end_stages(self, now: Micros) -> None:
        """Some of the stages that are not needed any more; more of them at the next turn."""
        some = self._ended[:ENDED_A_TURN]
        if some and self._household.end_stages(some, now):
            del self._ended[: len(some)]

    @property
    def _state_serial(self) -> int:
        """The newest record that the state has."""
        folded = self._household.folded
        return self._household.log.last_serial if folded is None else folded().serial

    def _is_held(self, stage_id: TopicId) -> bool:
        """Whether the log holds messages of a stage."""
        return bool(self._household.log.extents(stage_id))

    def _checkpoint_due(self, now: Micros) -> bool:
        log = self._household.log
        reclaiming = log.reclaiming
        adds = self._hurries or reclaiming.adds(self._state_serial)
        if self._household.folded is not None and not adds:
            return False  # the leader has not said that anything more is committed
        if reclaiming.checkpoint_due or self._hurries:
            self._hurries = False
            return True
        waited = now - self._last_checkpoint >= log.options.checkpoint_idle_ms * 1000
        waited = waited or log.was_full(now // 1000)  # then someone waits for the room
        if not (reclaiming.reclaim_waits and waited):
            return False
        self._household.mark(now)  # each checkpoint ends at a record of its own
        return True

    def _capture_some(self, janitor: Worker) -> None:
        assert self._capture is not None
        assert self._writer is not None
        blobs = list(islice(self._capture, CAPTURED_A_TURN))
        for blob in blobs:
            self._writer.add(blob)
        if len(blobs) < CAPTURED_A_TURN:
            job = self._writer.finish()
            self._ready = job, job.end
            self._capture = self._writer = None
        elif self._writer.flush_due:
            self._give(janitor, self._writer.flush())

    def _give(self, janitor: Worker, job: Job) -> None:
        """Run a job on the janitor; take its result in, then clean up after it."""
        log = self._household.log
        log.keep_lock()  # a job makes and removes files by their names
        trouble: OSError | Corrupt | None = None

        def run() -> None:
            nonlocal trouble
            try:
                job.run()
            except Corrupt as damage:
                trouble = damage
            except OSError as error:
                if error.errno not in (*DISK_FULL, *NO_DESCRIPTORS):
                    raise
                trouble = error

        def swap() -> None:
            self._completed += 1
            if trouble is None:
                if not isinstance(job, FlushJob):
                    self._tell(job)
                    log.complete(job)
                    janitor.give(job.clean, lambda: None)
                if isinstance(job, CompactionJob):
                    self._ended.extend(map(TopicId, sorted(job.dissolved)))
                return
            if isinstance(trouble, Corrupt):  # its segment is left alone, the others go on
                logger.error("compaction given up reason=corrupt detail=%s", trouble.detail)
            else:
                full = trouble.errno in DISK_FULL
                reason = "disk_full" if full else "no_file_descriptors"
                logger.warning("housekeeping put off reason=%s", reason)
            if isinstance(job, CompactionJob):
                log.abandon(job)
            else:
                self._capture = self._writer = None
                self._hurries = log.room.lend()
                self._frees_first = True

        janitor.give(run, swap)

    def _tell(self, job: CheckpointJob | CompactionJob) -> None:
        events, now = self._household.events, self._now
        if isinstance(job, CheckpointJob):
            size = job.result.size if job.result else 0
            events.note("checkpoint_written", now, serial=job.end, bytes=size)
        else:
            left = job.result.end if job.result else 0
            freed = sum(source.disk_bytes for source in job.sources) - left
            events.note("segments_compacted", now, segments=len(job.sources), freed=freed)

    def _live(self, topic_id: TopicId) -> LiveShare | None:
        live = self._household.shard.live(topic_id)
        return None if live is None else LiveShare(*live)


def _ended_before(household: Household) -> list[TopicId]:
    """Stages that the log has nothing of: they were copied, and the stop came before the record.

    The inventory has seen to it that no topic needs them.
    """
    return [
        stage.id
        for stage in household.shard.stages.by_id.values()
        if not stage.is_open and not household.log.extents(stage.id)
    ]
