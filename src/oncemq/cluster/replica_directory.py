"""A replica's directory, open: its log, and the state up to what is known to be committed.

The log of a replica may end with records that are not committed. They wait here, in order, until
they are (`apply_to`); what is cut instead was never part of the state.

Law: the state stands at `folded`, a record that is committed; a checkpoint holds nothing else.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from oncemq.broker.state import snapshot
from oncemq.broker.state.shard import Shard
from oncemq.coordination.values import ShardReplicas
from oncemq.protocol.generations import depth
from oncemq.protocol.names import LeaderEpoch, Micros, Serial, ServerId, ShardId
from oncemq.protocol.records import EpochBegan, Record
from oncemq.protocol.replicas.leader_epochs import EpochStart, LeaderEpochs
from oncemq.protocol.replicas.messages import Life, Place
from oncemq.replication.view import ReplicationLimits
from oncemq.server import completeness
from oncemq.storage.disk import LockingDisk
from oncemq.storage.log.frame_runs import ChainLink, CheckedFrame
from oncemq.storage.log.new_replica import begun, new_replica, take_generation
from oncemq.storage.log.options import LogOptions
from oncemq.storage.log.recovery import Recovery, open_log
from oncemq.storage.segments.layout import VERSION, Format
from oncemq.storage.segments.promised_epoch import PromisedEpoch


@dataclass(frozen=True, slots=True)
class Home:
    """Where a replica lives, and how its log is to be."""

    disk: LockingDisk
    directory: str
    options: LogOptions
    random_bytes: Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class ReplicaPlace:
    """Where a replica is: which server's, of which shard, in which directory."""

    me: ServerId
    shard_id: ShardId
    home: Home
    limits: ReplicationLimits


class ReplicaDirectory:
    """From one opening of a directory to the next."""

    def __init__(self, home: Home, *, cut_to: Serial | None, opening: int | None) -> None:
        opened = open_log(
            home.disk,
            home.directory,
            home.options,
            random_bytes=home.random_bytes,
            cut_to=cut_to,
            opening=opening,
        )
        self._home = home
        self.log = opened.log
        self.report: Recovery = opened.report
        try:
            self.log.room.secure()
            self.promised = PromisedEpoch(home.disk, home.directory)
            self.shard = Shard(self.log.tag, self.log.identity)
            for blob in opened.states:
                snapshot.restore(self.shard, blob)
            self.shard.checkpointed = opened.checkpoint_end
            self._waiting: deque[tuple[ChainLink, Record]] = deque()
            # When the newest timestamp came, by this server's steady clock; None: before it began.
            self.stamped_at: Micros | None = None
            for frame in opened.frames:
                link = ChainLink(frame.serial, frame.leader_epoch, frame.chain)
                if frame.serial <= opened.checkpoint_end:
                    self.shard.apply(frame.record(), Serial(frame.serial))
                else:
                    self._waiting.append((link, frame.record()))
            folded = self.log.place_of(opened.checkpoint_end)
            assert folded is not None, "recovery has read the log from the checkpoint on"
            self.folded = folded
            self.shard.serial = opened.checkpoint_end
        except BaseException:
            self.log.close()
            raise

    @property
    def life(self) -> Life:
        """Which life of which directory this is."""
        return Life(self.log.form.incarnation, self.log.openings)

    @property
    def applied(self) -> Serial:
        """The newest record that the state has."""
        return Serial(self.folded.serial)

    @property
    def tail(self) -> Place:
        """Where the log ends."""
        return place(self.log.newest)

    @property
    def newest_epoch(self) -> LeaderEpoch:
        """That it promised, or that its log has: a restored backup has promised nothing."""
        return max(self.promised.leader_epoch, self.tail.leader_epoch)

    def epochs(self) -> LeaderEpochs:
        """Every epoch that the log knows, committed or not."""
        epochs = LeaderEpochs(self.shard.leader_epochs.starts)
        for link, record in self._waiting:
            if isinstance(record, EpochBegan):
                epochs.began(EpochStart(record.leader_epoch, Serial(link.serial)))
        return epochs

    def received(self, frames: list[CheckedFrame]) -> None:
        """These were appended to the log."""
        for frame, record in frames:
            self._waiting.append((ChainLink(frame.serial, frame.leader_epoch, frame.chain), record))

    def began(self, record: EpochBegan) -> None:
        """This server appended the first record of its epoch."""
        self._waiting.append((self.log.newest, record))

    def apply_to(self, serial: Serial, now: Micros | None = None) -> None:
        """What is up to here is committed; `now`, where it came from another server just now."""
        waiting, shard = self._waiting, self.shard
        before = shard.last_timestamp
        while waiting and waiting[0][0].serial <= serial:
            self.folded, record = waiting.popleft()
            shard.apply(record, Serial(self.folded.serial))
        if now is not None and shard.last_timestamp != before:
            self.stamped_at = now

    def lead(self) -> list[completeness.Missing]:
        """Everything is committed: from here on the state is the broker's. What is lost of it."""
        log, shard = self.log, self.shard
        self.apply_to(log.last_serial)
        shard.serial = log.last_serial
        agreed = log.agreed if log.generation > shard.generation else ()
        return completeness.take(shard, log, agreed=agreed)

    def lacks_room(self, size: int) -> int:
        """How many bytes are missing on the disk for a log of this size in this one's place."""
        free = self._home.disk.free_bytes(self._home.directory)
        return max(0, size - free - self.log.bytes_used)

    def promise(self, leader_epoch: LeaderEpoch) -> None:
        """Follow nobody of a lower epoch; durable when it returns."""
        self.promised.promise(leader_epoch)

    def close(self) -> None:
        """Nothing is under way to the disk any more."""
        self.log.close()


def format_of(shard: ShardReplicas) -> Format:
    """What a directory of this shard's says, but for its incarnation."""
    return Format(VERSION, bytes.fromhex(shard.identity), shard.tag, shard.generation)


def make_empty(home: Home, form: Format) -> None:
    """A directory without a log of that shard gets an empty one.

    One that has a log of it goes back in time with the shard.
    """
    held = begun(home.disk, home.directory, form.identity)
    if held is not None:
        if depth(held.generation) < depth(form.generation):
            take_generation(home.disk, home.directory, form)
        return
    new_replica(
        home.disk,
        home.directory,
        identity=form.identity,
        tag=form.tag,
        generation=form.generation,
        random_bytes=home.random_bytes,
    )


def place(link: ChainLink) -> Place:
    """A record's place, as replicas tell each other."""
    return Place(Serial(link.serial), LeaderEpoch(link.leader_epoch), link.chain)


def link(place: Place) -> ChainLink:
    """The same for the log."""
    return ChainLink(place.serial, place.leader_epoch, place.chain)
