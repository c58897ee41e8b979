"""Two logs of one shard, on disks in memory: one leads, the other gets its files and frames."""

from pathlib import Path
from random import Random

from oncemq.protocol.names import LeaderEpoch, Serial
from oncemq.protocol.records import EpochBegan
from oncemq.protocol.replicas.leader_epochs import EpochStart
from oncemq.storage.log.log import Log, LogOptions
from oncemq.storage.log.pinned_files import PinnedFiles
from oncemq.storage.log.refill import Refill
from oncemq.storage.segments.layout import Format
from oncemq.testing.faulty_disk import FaultyDisk
from tests.harness.storage import SMALL, Scribe

DATA = Path("/data")


class Replica(Scribe):
    """A log on a disk of its own."""

    def __init__(self, name: bytes = b"\5", options: LogOptions = SMALL) -> None:
        super().__init__(DATA, FaultyDisk(Random(f"{name!r}")), options, name)  # type: ignore[arg-type]

    def lead(self, epoch: int) -> int:
        return self.log.begin_epoch(EpochBegan(LeaderEpoch(epoch), "me"))

    def refilled_from(self, leader: "Replica", *, step: int = 700) -> Format:
        """Become a replica of another's shard: all its files, `step` bytes at a time."""
        self.log.close()
        pinned = leader.log.pin()
        made = fill(self.disk, pinned, step=step)  # type: ignore[arg-type]
        pinned.release()
        self.topics = {topic: list(kept) for topic, kept in leader.topics.items()}
        self.open()
        return made

    def take(self, frames: bytes) -> int:
        """Take in frames that follow the end of this log."""
        received = self.log.check_frames(frames, self.log.newest)
        return self.log.append_received(received, 0)

    def follow(self, leader: "Replica", *, bytes_max: int = 1 << 20) -> None:
        """Take in all frames that the leader has finished and this log lacks."""
        while True:
            run = leader.log.frames_after(self.log.last_serial, bytes_max)
            assert run is not None
            if not run.frames:
                break
            assert run.previous == self.log.newest
            assert self.take(run.frames) == run.last.serial
            assert run.last == self.log.newest
        self.commit()
        self.topics = {topic: list(kept) for topic, kept in leader.topics.items()}


def fill(disk: FaultyDisk, pinned: PinnedFiles, *, step: int) -> Format:
    refill = Refill(disk, str(DATA), pinned.files)
    for each in pinned.files:
        for position in range(0, each.size, step):
            refill.write(each.name, position, pinned.read(each.name, position, step))
    return refill.finish(pinned.form, lambda size: b"\x0b" * size)


def records(log: Log) -> list[tuple[int, bytes]]:
    """Every frame from the first on, without what is local to its replica."""
    found: list[tuple[int, bytes]] = []
    serial = 0
    while (run := log.frames_after(serial, 1)) is not None and run.frames:
        found.append((run.last.chain, run.frames[20:]))
        serial = run.last.serial
    return found


def epoch_starts(*pairs: tuple[int, int]) -> tuple[EpochStart, ...]:
    """Epochs, each with its first serial."""
    return tuple(EpochStart(LeaderEpoch(epoch), Serial(serial)) for epoch, serial in pairs)
