"""Directories of replicas on disks in memory, and a leader's log whose frames they are sent."""

from random import Random

from oncemq.cluster.replica_directory import Home, ReplicaDirectory, place
from oncemq.protocol.names import LeaderEpoch, Micros, Serial, ShardId, TopicId
from oncemq.protocol.records import Record, Retention, TopicCreated
from oncemq.protocol.replicas.messages import Append
from oncemq.storage.log.new_replica import new_replica
from oncemq.testing.faulty_disk import FaultyDisk
from tests.harness.replicas import Replica
from tests.harness.storage import SMALL

SHARD = ShardId(1)
DATA = "/data"


def topic(number: int) -> TopicCreated:
    """A record that shows in the state: a topic of this number."""
    return TopicCreated(TopicId(number), f"t{number}", Retention(), Micros(1_000 * number))


class LeaderLog(Replica):
    """The log of a leader, which wrote EpochBegan of epoch 1 and some topics."""

    def __init__(self, name: bytes = b"\5", *, topics: int = 0, epoch: int = 1) -> None:
        super().__init__(name)
        self.epoch = LeaderEpoch(epoch)
        self.lead(epoch)
        for number in range(1, topics + 1):
            self.log.append(topic(number))
        self.commit()

    def write(self, *records: Record) -> Serial:
        """And sync it; the serial of the last."""
        for record in records:
            self.log.append(record)
        self.commit()
        return self.log.last_serial

    def append(
        self, after: int = 0, *, commit: int = 0, round: int = 0, upto: int | None = None
    ) -> tuple[Append, bytes]:
        """What it sends behind a serial, up to another."""
        previous, count, frames, end = self.log.place_of(after), 0, b"", upto
        assert previous is not None
        end = self.log.last_serial if upto is None else upto
        while after + count < end:
            run = self.log.frames_after(after + count, 1)
            assert run is not None
            frames += run.frames
            count = run.last.serial - after
        return (
            Append(SHARD, self.epoch, place(previous), count, Serial(commit), round),
            frames,
        )

    def new_home(self) -> Home:
        """An empty directory for one more replica of this log."""
        disk = FaultyDisk(Random(2))
        identity = self.log.identity
        random_bytes = b"\7".__mul__
        new_replica(
            disk, DATA, identity, tag=self.log.tag, generation=self.log.generation,
            random_bytes=random_bytes,
        )  # fmt: skip
        return Home(disk, DATA, SMALL, random_bytes)

    def own_home(self) -> Home:
        """This log's own directory, closed."""
        self.log.close()
        disk = self.disk
        assert isinstance(disk, FaultyDisk)
        return Home(disk, DATA, SMALL, self.identity.__mul__)


def opened(
    home: Home, *, cut_to: int | None = None, opening: int | None = None
) -> ReplicaDirectory:
    """The directory, open."""
    end = None if cut_to is None else Serial(cut_to)
    return ReplicaDirectory(home, cut_to=end, opening=opening)


def topics(directory: ReplicaDirectory) -> list[int]:
    """Those that the state has."""
    return sorted(int(each) for each in directory.shard.topics)


def sync(directory: ReplicaDirectory) -> None:
    """What was gathered is on the disk."""
    if (group := directory.log.take_group()) is not None:
        directory.log.write(group)
        directory.log.finished(group)
