"""A simulated server that goes back in time: a backup is restored, or damage is taken out.

Both run the shipped code of `once backup`, `once restore` and `once repair --accept-loss`, as tools
of their own on the server's machine. Laws: damage that the shipped code does not see, or cannot
mend, is not done (a bit of the last frame is a torn tail to everybody). A backup that was made
must be there to be restored, whatever befell the machine since.
"""

import errno
from collections.abc import Iterator
from random import Random

from oncemq.errors import OnceMQError, StorageRefused
from oncemq.protocol.names import TopicId
from oncemq.protocol.records import MessagesLost, MessagesStored
from oncemq.server.examination import accept_loss, examine, faults
from oncemq.storage.backup.backup import back_up
from oncemq.storage.backup.manifest import read_manifest
from oncemq.storage.backup.restore import restore
from oncemq.storage.repair.findings import valid_frames
from oncemq.storage.segments.framing import frame_key
from oncemq.storage.segments.layout import read_format
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.wire import batch
from simulator.actors.server import SimulatedServer
from simulator.actors.server_loop import DIRECTORY
from simulator.actors.shared_world import World
from simulator.clock import stream
from simulator.history.history import History
from simulator.history.lost_future import WentBack
from simulator.servers.server_lifecycle import AMPLE, ServerLives

BACKUP = "/backup"
TRIES = 20  # to find a place whose damage shows


class GoingBack:
    """The going back of a world: once, or twice to one backup."""

    def __init__(
        self, lives: ServerLives[SimulatedServer], history: History, world: World, seed: int
    ) -> None:
        self._lives = lives
        self._history = history
        self._world = world
        self._seed = seed
        self._backed_up: int | None = None  # when the newest backup was begun
        self._since: int | None = None  # it went back to what was there at that moment
        self._times = 0
        self._noted = 0  # of those, the ones that the checker was told of
        self._before: list[tuple[int, int, int]] = []  # what was stored: see `_stored`
        lives.came_up = self._came_up

    @property
    def _disk(self) -> FaultyDisk:
        return self._lives.machine.disk

    def back_up(self) -> None:
        """What `once backup` does, beside a server that runs or not."""
        moment = self._history.moment()
        try:
            back_up(self._disk, DIRECTORY, BACKUP, progress=_silent, judge=faults)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EIO):
                raise
            self._world.tell("backup failed")
        except StorageRefused:
            self._world.tell("backup refused")  # of a directory that is being made
        else:
            self._backed_up = moment
            self._world.tell("backup made")

    def restore(self, down_ms: int) -> None:
        """What `once restore` does, in place of what the server had."""
        if self._backed_up is None or self._since == 0 or self._times == 2:
            return
        self._times += 1
        self._lives.take_down(down_ms)
        self._mend()
        assert read_manifest(self._disk, BACKUP) is not None
        self._before += _stored(self._disk)
        self._disk.rename(DIRECTORY, f"{DIRECTORY}-before-{self._times}")
        random = stream(self._seed, f"restore {self._times}")
        restore(self._disk, BACKUP, DIRECTORY, random_bytes=random.randbytes, progress=_silent)
        if not examine(self._disk, DIRECTORY).sound:
            self._history.trouble("lost: the restored backup is not whole")
        self._since = self._backed_up
        self._world.tell("backup restored" if self._times == 1 else "backup restored twice")

    def damage(self, down_ms: int) -> None:
        """A byte of the log changes, and a person accepts what that costs."""
        if self._since is not None:
            return
        self._lives.take_down(down_ms)
        self._mend()
        chosen = self._place(stream(self._seed, "damage"))
        if chosen is None:
            return
        self._before = list(_stored(self._disk))
        _change(self._disk, *chosen)
        random = stream(self._seed, "repair")
        accept_loss(self._disk, DIRECTORY, random_bytes=random.randbytes)
        if not examine(self._disk, DIRECTORY).sound:
            self._history.trouble("lost: the log is not whole after its repair")
        self._since = 0
        self._times += 1
        self._world.tell("damage taken out")

    def _place(self, draw: Random) -> tuple[str, int] | None:
        """A byte whose change is seen, and can be mended."""
        folder = f"{DIRECTORY}/log"
        names = [n for n in self._disk.names(folder) if n.endswith((".log", ".cold"))]
        for _ in range(TRIES if names else 0):
            path = f"{folder}/{draw.choice(names)}"
            copy = self._disk.fork(Random(0))
            size = len(copy.open(path).read(0, 1 << 30).rstrip(b"\0"))
            position = draw.randrange(max(1, size))
            _change(copy, path, position)
            try:
                found = examine(copy, DIRECTORY)
            except OnceMQError:
                continue
            if not found.sound and found.diagnosis.mendable:
                return path, position
        return None

    def _mend(self) -> None:
        """The machine is in order when a person works on it."""
        self._disk.faults.capacity, self._disk.faults.failing_syncs = AMPLE, 0

    def _came_up(self, server: SimulatedServer) -> None:
        """The first time since: this is what is left."""
        if self._since is None or self._noted == self._times:
            return
        self._noted = self._times
        assert server.driver is not None
        for each in self._history.several():
            each.learn(self._history.moment())
        shard, log = server.driver.broker.shard, server.driver.log
        topics = shard.topics.values()
        names = {topic.id: topic.name for topic in topics}
        holes = [record for record, _ in server.missing if record.topic_id in names]
        went_back = WentBack(
            self._since,
            self._history.moment(),
            log.generation,
            {topic.name: topic.end for topic in topics},
            {
                (client, topic.name): subscription.id
                for topic in topics
                for client, subscription in topic.subscriptions.items()
            },
            {
                (client, pattern)
                for client, patterns in shard.patterns.by_client.items()
                for pattern in patterns
            },
            [(names[hole.topic_id], hole.first_offset, hole.end_offset) for hole in holes],
            {
                number
                for topic_id, offset, number in self._before
                if topic_id not in names
                or offset >= shard.topics[TopicId(topic_id)].end
                or any(_is_in(hole, topic_id, offset) for hole in holes)
            },
        )
        self._history.back.begin(went_back)


def _stored(disk: FaultyDisk) -> Iterator[tuple[int, int, int]]:
    """Every message of the server's log: its topic, its offset, the number of its put."""
    form = read_format(disk, DIRECTORY)
    names = disk.names(f"{DIRECTORY}/log") if form else []
    for name in names:
        if form is None or not name.endswith((".log", ".cold")):
            continue
        file = disk.open(f"{DIRECTORY}/log/{name}")
        for frame in valid_frames(file, 0, frame_key(form.identity)):
            record = frame.record()
            if isinstance(record, MessagesStored):
                body = file.read(frame.body_position, frame.body_bytes)
                if not frame.holds(body):  # a power cut left the header of a write, not its body
                    continue
                payloads = batch.payloads_of(body, record.count, record.columns)
                for offset, payload in enumerate(payloads, record.first_offset):  # of several puts
                    yield record.topic_id, offset, int(payload.split(b".", 1)[0])


def _is_in(hole: MessagesLost, topic_id: int, offset: int) -> bool:
    return hole.topic_id == topic_id and hole.first_offset <= offset < hole.end_offset


def _change(disk: FaultyDisk, path: str, position: int) -> None:
    file = disk.open(path)
    byte = file.read(position, 1) or b"\0"
    file.write([bytes([byte[0] ^ 0x41])], position)
    file.sync()
    file.close()


def _silent(_name: str, _size: int) -> None:
    """Nobody looks."""
