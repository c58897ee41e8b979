"""One real replica, a; the store and the other servers, b and c, are played by a test."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from random import Random

from msgspec.structs import replace

from oncemq.cluster.parts import Parts
from oncemq.cluster.replica import Replica
from oncemq.cluster.replica_directory import Home, ReplicaDirectory, ReplicaPlace, place
from oncemq.cluster.serving import Serving
from oncemq.coordination.local import LocalStore
from oncemq.coordination.values import ClusterConfig, ServerState, ShardReplicas, encoded
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import LeaderEpoch, Micros, Serial, ServerId
from oncemq.protocol.replicas.messages import (
    AnswerNumber,
    Append,
    Appended,
    LeaderMessage,
    MemberMessage,
    Place,
)
from oncemq.protocol.replies import Reply
from oncemq.protocol.requests import Request
from oncemq.protocol.step import Body
from oncemq.replication.view import ReplicationLimits
from oncemq.server.worker import InPlaceWorker
from oncemq.storage.log.log import LogOptions
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.wire import codec
from oncemq.wire.replica_codec import decode_replica, encode_replica, is_of_replicas
from oncemq.wire.replica_seal import is_sealed, sealed
from tests.harness.agreement import (
    FOUNDING,
    KEY,
    KEYS,
    SHARD,
    A,
    AgreeingServer,
    B,
    C,
    life,
    opened,
    shard_in,
)

DATA = "/data"
OPTIONS = LogOptions(segment_bytes=1 << 16, allocate_bytes=1 << 14, reserve_bytes=1 << 14)
TURN = 10_000
CLIENT = b"client"
LEADER = b"leader"  # the way to who leads


class PlayedLinks:
    """The connections of a to the others: a test hears what is sent, and says what comes."""

    def __init__(self) -> None:
        self.addresses: dict[ServerId, str] = {}
        self.reached = {B, C}
        self.sent: list[tuple[ServerId, LeaderMessage, bytes]] = []
        self.said: deque[tuple[ServerId, Sequence[Body]]] = deque()
        self.new: list[ServerId] = []
        self.is_closed = False

    def meet(self, addresses: Mapping[ServerId, str]) -> None:
        self.addresses = dict(addresses)

    def send(self, server: ServerId, frames: Sequence[Body]) -> bool:
        if server in self.reached:
            message, body = decode_replica([bytes(frame) for frame in frames])
            assert isinstance(message, LeaderMessage)
            self.sent.append((server, message, bytes(body)))
        return server in self.reached

    def receive(self) -> Iterator[tuple[ServerId, Sequence[Body]]]:
        while self.said:
            yield self.said.popleft()

    def taking(self) -> list[ServerId]:
        return []

    def connected(self) -> list[ServerId]:
        new, self.new = self.new, []
        return new

    def look(self, now: Micros) -> None: ...

    def close(self) -> None:
        self.is_closed = True


class PlayedCluster:
    """Server a, over a store in memory and on a disk in memory."""

    def __init__(
        self, founding: ClusterConfig = FOUNDING, *, shard: ShardReplicas | None = None
    ) -> None:
        self.store, self.disk = LocalStore(), FaultyDisk(Random(3))
        if shard is not None:
            self.store.put(KEYS.config, encoded(replace(founding, nonce="c", secret="secret")))
            self.store.put(KEY, encoded(shard))
        self.now = 1_000_000_000
        self.worker = InPlaceWorker()
        self.answers: dict[int, Reply] = {}  # to clients
        self.said: list[tuple[bytes, MemberMessage]] = []  # by a, to those that lead
        self._founding = founding
        self._starts, self._tokens, self._nonces = count(1), count(1), count(1)
        self._numbers = count(1)
        self.start()

    # ------------------------------------------------------------------ lives

    def start(self) -> None:
        """A new process on the disk as it is."""
        starts = next(self._starts)
        agreeing = AgreeingServer(self.store, A, claim=f"start{starts}", founding=self._founding)
        self.agreement, self.coordinator = agreeing.agreement, agreeing.coordinator
        self.links = PlayedLinks()
        home = Home(self.disk, DATA, OPTIONS, bytes((starts,)).__mul__)
        self.serving = Serving(ServerLimits())
        self.replica = Replica(
            ReplicaPlace(A, SHARD, home, ReplicationLimits()), self.agreement, self.coordinator,
            self.links, self.serving, Micros(self.now), address=agreeing.address,
        )  # fmt: skip

    def kill(self) -> None:
        """The process is gone; what it wrote is there."""
        self.disk.kill()
        self.coordinator.close()

    @property
    def parts(self) -> Parts:
        return self.replica._parts

    @property
    def directory(self) -> ReplicaDirectory:
        assert self.parts.opened is not None
        return self.parts.opened

    # ------------------------------------------------------------------ turns

    def turn(self, *, writes: bool = True) -> None:
        """As the loop does; without writes, the group is under way to the disk."""
        self.now += TURN
        now, replica = Micros(self.now), self.replica
        replica.tick(now)
        if writes and (group := replica.commit(now)) is not None:
            replica.log.write(group)
            replica.written(group, now)
        replica.take_news(now)
        replica.turn(self.worker, now)
        self._take_outgoing()

    def turns(self, seconds: float) -> None:
        for _ in range(round(seconds * 1_000_000 / TURN)):
            self.turn()

    def until_served(self) -> None:
        """Clients of a are let in."""
        for _ in range(300):
            if self.parts.driver is not None:
                return
            self.turn()
        raise AssertionError(f"not served: {self.agreement.trouble}")

    def _take_outgoing(self) -> None:
        outgoing, self.replica.outgoing = self.replica.outgoing, []
        for route, frames in outgoing:
            if is_of_replicas(frames):
                assert is_sealed(frames, self.agreement.secret)
                message, _ = decode_replica(frames)
                assert isinstance(message, MemberMessage)
                self.said.append((route, message))
            else:
                token, reply, _ = codec.decode_reply(frames)
                self.answers[token] = reply

    # ------------------------------------------------------------------ the store

    def change(self, **fields: object) -> None:
        """Somebody else changes the shard's value."""
        nonce = f"other{next(self._nonces)}"
        self.store.put(KEY, encoded(replace(shard_in(self.store), nonce=nonce, **fields)))

    def join(self, *names: ServerId, alive: bool = True) -> None:
        """These are in sync from now on, beside those that are."""
        in_sync = {**shard_in(self.store).in_sync, **{name: opened(name) for name in names}}
        for name in names:
            self.store.put(KEYS.server(name), encoded(ServerState("s", f"tcp://{name}:1")))
            if alive:
                self.store.put(KEYS.alive(name), b"{}")
        self.change(in_sync=in_sync)

    def led_by(self, name: ServerId, epoch: int) -> None:
        """Another one leads from now on."""
        self.store.put(KEYS.server(name), encoded(ServerState("s", f"tcp://{name}:1")))
        self.store.put(KEYS.alive(name), b"{}")
        self.change(
            leader=name, leader_epoch=epoch,
            in_sync={**shard_in(self.store).in_sync, name: opened(name)},
        )  # fmt: skip

    # ------------------------------------------------------------------ other servers

    def sealed(self, message: LeaderMessage | MemberMessage, body: bytes = b"") -> Sequence[Body]:
        """As a server of the cluster says it."""
        return sealed(encode_replica(message, body), self.agreement.secret)

    def says(self, message: LeaderMessage, body: bytes = b"", *, route: bytes = LEADER) -> None:
        """Who leads says something to a."""
        self.replica.receive(route, self.sealed(message, body), Micros(self.now))

    def heartbeat(self, epoch: int, *, at: Place | None = None, commit: int = 0) -> Append:
        """Of a leader whose log ends as a's, or elsewhere."""
        tail = place(self.directory.log.newest) if at is None else at
        return Append(SHARD, LeaderEpoch(epoch), tail, 0, Serial(commit))

    def has(self, name: ServerId, synced: int | None = None, *, round: int = 0) -> None:
        """A member says to a, which leads, how far it is: as far as a, or less."""
        rules = self.parts.leading
        assert rules is not None
        serial = Serial(int(self.replica.log.last_serial) if synced is None else synced)
        answered = AnswerNumber(life(name), next(self._numbers))
        epoch = rules.rules.leader_epoch
        message = Appended(SHARD, epoch, serial, serial, False, answered, round)
        self.links.said.append((name, self.sealed(message)))

    # ------------------------------------------------------------------ clients

    def ask(self, request: Request, body: bytes | None = None) -> int:
        """A client asks a; the token."""
        token = next(self._tokens)
        frames = codec.encode_request(token, request, body)
        self.replica.receive(CLIENT, frames, Micros(self.now))
        return token

    def answer(self, request: Request) -> Reply:
        """The same, and what it was told."""
        token = self.ask(request)
        for _ in range(20):
            self.turn()
            if token in self.answers:
                return self.answers[token]
        raise AssertionError(f"no answer to {request}")
