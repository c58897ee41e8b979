"""Both ends of a transfer of files, over real logs on disks in memory; two queues between them."""

from collections import deque
from collections.abc import Callable, Sequence

from oncemq.cluster.replica_directory import Home, link, place
from oncemq.cluster.transfer.filling import Filling
from oncemq.cluster.transfer.refills import Refills
from oncemq.cluster.transfer.sent_files import Give
from oncemq.protocol.names import LeaderEpoch, Micros, ServerId, ShardId
from oncemq.protocol.replicas.messages import (
    LeaderMessage,
    MemberMessage,
    Place,
    RefillBegin,
    RefillPart,
    RefillWanted,
)
from oncemq.protocol.step import Body
from oncemq.server.worker import InPlaceWorker
from oncemq.storage.disk import LockingDisk
from oncemq.storage.log.log import Log
from oncemq.wire.replica_codec import decode_replica, encode_replica
from tests.harness.replicas import Replica
from tests.harness.storage import SMALL

SHARD, EPOCH = ShardId(1), LeaderEpoch(3)
MEMBER = ServerId("b")
TICK = 50_000

Said = tuple[LeaderMessage | MemberMessage, Body]


def busy_log(name: bytes = b"\5") -> Replica:
    """With cold and sealed segments, two checkpoints, and a tail."""
    made = Replica(name)
    for number in range(20):
        made.store(1, b"m%d " % number + b"x" * 200)
        made.store(2, b"settled" * 30)
    for number in range(2):
        made.checkpoint(b"state %d" % number, b"more")
        made.store(1, b"later %d" % number)
    assert made.compact({1: 0}.get) > 0
    for number in range(6):
        made.store(1, b"tail %d " % number + b"x" * 400)
    return made


class Exchange:
    """A leader's `Refills` and, once it was offered files, a member's `Filling`."""

    def __init__(
        self, log: Log, disk: LockingDisk, directory: str = "/data", give: Give | None = None
    ) -> None:
        self.now = Micros(1_000_000)
        self.said: deque[Said] = deque()  # by the leader
        self.asked: deque[Said] = deque()  # by the member
        self.lose: Callable[[Said], bool] = lambda _: False
        self.change: Callable[[Said], Said] = lambda said: said
        self.can_send = True
        self.filling: Filling | None = None
        self.begin: RefillBegin | None = None
        self.home = Home(disk, directory, SMALL, lambda size: b"\x0b" * size)
        self.form = log.form
        self.refills = Refills(ServerId("a"), SHARD, EPOCH, self, log, give or InPlaceWorker().give)

    def send(self, server: ServerId, frames: Sequence[Body]) -> bool:
        """As the leader's links do."""
        assert server == MEMBER
        if self.can_send:
            self._carry(self.said, frames)
        return self.can_send

    def start(self, tail: Place | None = None) -> None:
        self.refills.start(MEMBER, tail or Place(), self.now)

    def turn(self, micros: int = TICK) -> list[ServerId]:
        """Each end does what it has to do, once; whose transfers ended."""
        self.now = Micros(self.now + micros)
        self.refills.send()
        while self.said:
            self._hear(*self.said.popleft())
        if self.filling is not None:
            self.filling.tick(self.now)
            for _, frames in self.filling.outgoing:
                self._carry(self.asked, frames)
            self.filling.outgoing.clear()
        while self.asked:
            message = self.asked.popleft()[0]
            assert isinstance(message, RefillWanted)
            self.refills.heard(MEMBER, message, self.now)
            self.refills.wanted(MEMBER, message, self.now)
        return self.refills.ended(self.now)

    def run(self, turns: int = 2_000) -> Filling:
        """Until the filling is over."""
        for _ in range(turns):
            self.turn()
            if self.filling is not None and self.filling.is_over:
                return self.filling
        raise AssertionError("it is not over")

    def _carry(self, queue: deque[Said], frames: Sequence[Body]) -> None:
        said = self.change(decode_replica(frames))
        if not self.lose(said):
            queue.append(decode_replica(encode_replica(*said)))

    def _hear(self, message: LeaderMessage | MemberMessage, body: Body) -> None:
        if isinstance(message, RefillBegin) and self.filling is None:
            self.begin = message
            self.filling = Filling(message, b"route", self.home, self.form, self.now)
        elif self.filling is not None:
            assert isinstance(message, RefillBegin | RefillPart)
            self.filling.receive(b"route", message, body, self.now)


def end_of(log: Log) -> Place:
    """Where a log ends."""
    assert link(place(log.newest)) == log.newest
    return place(log.newest)
