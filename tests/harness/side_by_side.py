"""Servers of one cluster in one thread, each of a version of its own, on disks in memory.

They are the shipped replicas; their links hand frames over at once, and what they agree on lies in
a store in memory. Whatever is given to a worker is done at once.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from random import Random

from oncemq.broker.expiry import Calendar
from oncemq.cluster.agreement.shard_agreement import ShardAgreement
from oncemq.cluster.replica import Replica
from oncemq.cluster.replica_directory import Home, ReplicaPlace
from oncemq.cluster.serving import Serving
from oncemq.coordination.local import LocalStore
from oncemq.coordination.values import ClusterConfig, ClusterKeys, ShardReplicas, decoded
from oncemq.errors import StorageRefused
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import Micros, ServerId, ShardId
from oncemq.protocol.replies import Reply
from oncemq.protocol.requests import Request
from oncemq.protocol.step import Body
from oncemq.replication.view import ReplicationLimits
from oncemq.server.worker import Task, Worker
from oncemq.storage.log.log import LogOptions
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.wire import codec

SHARD = ShardId(1)
KEYS = ClusterKeys("one")
TURN = 20_000
TURNS_MAX = 3_000  # a minute
OPTIONS = LogOptions(segment_bytes=1 << 16, allocate_bytes=1 << 14, reserve_bytes=1 << 14)


class AtOnce(Worker):
    """Does what it is given in the thread that gives it."""

    def __init__(self) -> None:
        self.under_way = 0

    def give(self, task: Task, then: Task) -> None:
        task()
        then()


class Side:
    """One server, from a start to its end; its disk stays."""

    def __init__(self, name: str, disk: FaultyDisk, servers: "SideBySide", reads: int) -> None:
        self.name, self.servers, self.reads = ServerId(name), servers, reads
        self.inbox: deque[tuple[ServerId, Sequence[Body]]] = deque()  # what others answered
        self.answers: dict[int, Reply] = {}
        self.ended: StorageRefused | None = None
        start, counted, now = next(servers.starts), count(1), Micros(servers.now)
        address = f"tcp://{name}:1"
        self.agreement = ShardAgreement(
            self.name, KEYS, SHARD, founding=ClusterConfig(nonce="", founder=ServerId("a")),
            address=address, claim=f"claim{start}", new_nonce=lambda: f"{start}.{next(counted)}",
            reads=reads,
        )  # fmt: skip
        draw = Random(f"{name}{start}")
        home = Home(disk, "/data", OPTIONS, draw.randbytes)
        self.coordinator = servers.store.coordinator(KEYS.prefix, lambda: None)
        self.replica = Replica(
            ReplicaPlace(self.name, SHARD, home, ReplicationLimits()), self.agreement,
            self.coordinator, self, Serving(ServerLimits()), now, address=address,
        )  # fmt: skip
        self.replica.bind(
            reaches=lambda *_: False, takes=lambda _: True, hand_over=lambda: None, connections=dict
        )
        self.replica.keep_time(Calendar(), now)

    def turn(self, now: Micros) -> None:
        replica = self.replica
        replica.tick(now)
        if replica._parts.opened is not None and (group := replica.commit(now)) is not None:
            replica.log.write(group)
            replica.written(group, now)
        replica.take_news(now)
        replica.turn(AtOnce(), now)
        outgoing, replica.outgoing = replica.outgoing, []
        for route, frames in outgoing:
            if (leader := self.servers.running.get(ServerId(route.decode()))) is not None:
                leader.inbox.append((self.name, frames))
            elif route == b"client":
                token, reply, _ = codec.decode_reply(frames)
                self.answers[token] = reply

    # ------------------------------------------------------------------ as `ReplicaLinks`

    def meet(self, addresses: Mapping[ServerId, str]) -> None: ...
    def taking(self) -> list[ServerId]:
        return []

    def connected(self) -> list[ServerId]:
        return []

    def look(self, now: Micros) -> None: ...
    def close(self) -> None: ...

    def send(self, server: ServerId, frames: Sequence[Body]) -> bool:
        there = self.servers.running.get(server)
        if there is not None:
            sent = [bytes(each) for each in frames]
            there.replica.receive(self.name.encode(), sent, Micros(self.servers.now))
        return there is not None

    def receive(self) -> Iterator[tuple[ServerId, Sequence[Body]]]:
        while self.inbox:
            yield self.inbox.popleft()


class SideBySide:
    """All of them, their disks and their store."""

    def __init__(self) -> None:
        self.store = LocalStore()
        self.disks: dict[str, FaultyDisk] = {}
        self.running: dict[ServerId, Side] = {}
        self.starts = count(1)
        self.now = 1_000_000_000
        self.always: Callable[[], None] = lambda: None  # what has to hold after each turn
        self._tokens = count(1)

    def start(self, name: str, *, reads: int) -> Side:
        """A server whose OnceMQ reads versions up to this one."""
        disk = self.disks.setdefault(name, FaultyDisk(Random(name)))
        made = self.running[ServerId(name)] = Side(name, disk, self, reads)
        return made

    def end(self, name: str) -> None:
        """It is gone, and its lease with it."""
        side = self.running.pop(ServerId(name))
        side.replica.close()

    def until(self, is_so: Callable[[], object]) -> None:
        """Turns of all, until it is so; who ends by itself says why."""
        for _ in range(TURNS_MAX):
            self.now += TURN
            for name, side in list(self.running.items()):
                try:
                    side.turn(Micros(self.now))
                except StorageRefused as refused:
                    side.ended = refused
                    self.end(name)
            self.always()
            if is_so():
                return
        raise AssertionError(f"it is not so: {self.shard}")

    @property
    def shard(self) -> ShardReplicas:
        """As the store has it."""
        key = KEYS.shard(SHARD)
        return decoded(self.store._entries[key].value, ShardReplicas, key=key)

    @property
    def leader(self) -> Side | None:
        """Who serves clients."""
        leads = [each for each in self.running.values() if each.replica._parts.driver is not None]
        return leads[0] if len(leads) == 1 else None

    def until_in_sync(self, *names: str) -> Side:
        """These are in sync, no others, and one of them serves."""
        self.until(lambda: self.leader and set(self.shard.in_sync) == set(names))
        assert self.leader is not None
        return self.leader

    def ask(self, request: Request) -> Reply:
        """What the leader answers, who may change meanwhile."""
        leader, token = self.leader, next(self._tokens)
        assert leader is not None
        frames = codec.encode_request(token, request)
        leader.replica.receive(b"client", frames, Micros(self.now))
        self.until(lambda: token in leader.answers)
        return leader.answers[token]
