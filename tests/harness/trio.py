"""Three servers of a cluster in one process: the real replicas, on disks in memory.

Time goes on in turns; the network is queues, and the coordinator is in memory. A server that is
killed loses its lease at once.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from random import Random

from oncemq.broker.expiry import Calendar
from oncemq.cluster.agreement.shard_agreement import ShardAgreement
from oncemq.cluster.replica import Replica
from oncemq.cluster.replica_directory import Home, ReplicaPlace
from oncemq.cluster.serving import Serving
from oncemq.coordination.coordinator import Coordinator
from oncemq.coordination.local import LocalStore
from oncemq.coordination.values import ClusterConfig, ClusterKeys
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import Epoch, Micros, ServerId, ShardId, TopicId
from oncemq.protocol.names import Sequence as Number
from oncemq.protocol.replies import Messages, PutAccepted, RefusedReply, Reply, Resumed
from oncemq.protocol.requests import Get, Put, Request, Resume, Start, Subscribe, Unsubscribe
from oncemq.protocol.step import Body
from oncemq.replication.view import ReplicationLimits
from oncemq.server.worker import InPlaceWorker
from oncemq.storage.log.log import LogOptions
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.wire import batch, codec
from simulator.cluster.replica_digests import ReplicaDigest, digest_on
from tests.harness.server import GUEST, PRODUCER, WRITER, messages

DATA = "/data"
TURN = 10_000
CLIENT = b"client"
SERVERS = tuple(map(ServerId, "abc"))
OPTIONS = LogOptions(
    segment_bytes=1 << 14, allocate_bytes=1 << 12, reserve_bytes=1 << 12, checkpoint_records=40,
    checkpoint_idle_ms=500,
)  # fmt: skip


class QueueLinks:
    """One server's connections to the others."""

    def __init__(self, trio: "Trio", me: ServerId) -> None:
        self._trio, self._me = trio, me
        self.heard: deque[tuple[ServerId, Sequence[Body]]] = deque()

    def meet(self, addresses: Mapping[ServerId, str]) -> None: ...

    def send(self, server: ServerId, frames: Sequence[Body]) -> bool:
        return self._trio.carry(self._me, server, frames)

    def receive(self) -> Iterable[tuple[ServerId, Sequence[Body]]]:
        while self.heard:
            yield self.heard.popleft()

    def taking(self) -> list[ServerId]:
        return []

    def connected(self) -> list[ServerId]:
        return []

    def look(self, now: Micros) -> None: ...
    def close(self) -> None: ...


class RunningServer:
    """One life of one server."""

    def __init__(self, trio: "Trio", name: ServerId, number: int) -> None:
        keys, counted = ClusterKeys("one"), count(1)
        self.links = QueueLinks(trio, name)
        self.coordinator: Coordinator = trio.store.coordinator(keys.prefix, lambda: None)
        agreement = ShardAgreement(
            name, keys, ShardId(1), address=f"tcp://{name}:1",
            founding=ClusterConfig(nonce="", replicas=3, min_in_sync=2),
            claim=f"claim{number}", new_nonce=lambda: f"{number}.{next(counted)}",
        )  # fmt: skip
        home = Home(trio.disks[name], DATA, OPTIONS, trio.random.randbytes)
        place = ReplicaPlace(name, ShardId(1), home, ReplicationLimits())
        self.replica = Replica(
            place, agreement, self.coordinator, self.links, Serving(ServerLimits()),
            Micros(trio.now), address=f"tcp://{name}:1",
        )  # fmt: skip
        self.replica.bind(
            reaches=lambda *_: False, takes=lambda _: True, hand_over=lambda: None,
            connections=dict,
        )  # fmt: skip
        self.replica.keep_time(Calendar(), Micros(trio.now))
        self.inbox: deque[tuple[bytes, Sequence[Body]]] = deque()


class Trio:
    """All three, their disks, and a client."""

    def __init__(self, seed: int = 1) -> None:
        self.random = Random(seed)
        self.store = LocalStore()
        self.disks = {name: FaultyDisk(Random(f"{seed} {name}")) for name in SERVERS}
        self.now = 1_000_000_000
        self.running: dict[ServerId, RunningServer] = {}
        self.ended: dict[ServerId, Exception] = {}  # who ended by itself, and why
        self.cut: Callable[[ServerId, ServerId], bool] = lambda _source, _to: False
        self._lives, self._tokens = count(1), count(1)
        self._answers: dict[int, tuple[Reply, Sequence[Body]]] = {}
        self._sequences: dict[str, int] = {}
        for name in SERVERS:
            self.start(name)

    # ------------------------------------------------------------------ lives

    def start(self, name: ServerId) -> None:
        self.running[name] = RunningServer(self, name, next(self._lives))

    def kill(self, name: ServerId) -> None:
        """Its process is gone, what it wrote is there; its lease ends."""
        if (server := self.running.pop(name, None)) is not None:
            self.disks[name].kill()
            server.coordinator.close()

    def damage(self, name: ServerId, ending: str, position: int = 200) -> str:
        """Flip a bit in the newest file with such a name; which one."""
        disk = self.disks[name]
        for folder in (DATA, f"{DATA}/log", f"{DATA}/checkpoints"):
            for each in reversed(disk.names(folder)):
                if each.endswith(ending):
                    disk.flip_bit(f"{folder}/{each}", position)
                    return each
        raise AssertionError(f"no {ending}")

    # ------------------------------------------------------------------ turns

    def carry(self, source: ServerId, to: ServerId, frames: Sequence[Body]) -> bool:
        if to not in self.running or self.cut(source, to):
            return False
        self.running[to].inbox.append((source.encode(), [bytes(each) for each in frames]))
        return True

    def turn(self) -> None:
        self.now += TURN
        for name, server in list(self.running.items()):
            try:
                self._turn(server, Micros(self.now))
            except Exception as error:
                self.ended[name] = error
                self.kill(name)
                continue
            outgoing, server.replica.outgoing = server.replica.outgoing, []
            for route, frames in outgoing:
                self._answer(name, route, frames)

    def _turn(self, server: RunningServer, now: Micros) -> None:
        replica = server.replica
        while server.inbox:
            replica.receive(*server.inbox.popleft(), now)
        replica.tick(now)
        if (group := replica.commit(now)) is not None:
            replica.log.write(group)
            replica.written(group, now)
        replica.take_news(now)
        replica.turn(InPlaceWorker(), now)

    def _answer(self, name: ServerId, route: bytes, frames: Sequence[Body]) -> None:
        if route == CLIENT:
            token, reply, bodies = codec.decode_reply(frames)
            self._answers[token] = reply, bodies
            return
        to = ServerId(route.decode())
        if to in self.running and not self.cut(name, to):
            self.running[to].links.heard.append((name, [bytes(each) for each in frames]))

    def until(self, what: Callable[[], object], turns: int = 6_000) -> None:
        for _ in range(turns):
            if what():
                return
            self.turn()
        raise AssertionError(f"it does not come to be: {self.all_facts()} {self.ended}")

    # ------------------------------------------------------------------ how they are

    def facts(self, name: ServerId) -> dict[str, object]:
        return dict(self.running[name].replica._told_of_itself())

    def all_facts(self) -> dict[ServerId, dict[str, object]]:
        return {name: self.facts(name) for name in self.running}

    def leader(self) -> ServerId | None:
        for name in self.running:
            if self.facts(name)["cluster_role"] == "leads":
                return name
        return None

    def until_led(self) -> ServerId:
        self.until(self.leader)
        leader = self.leader()
        assert leader is not None
        return leader

    def are_in_sync(self, *names: ServerId) -> bool:
        """Whether somebody leads, and these follow in sync."""
        leader = self.leader()
        facts = {} if leader is None else self.facts(leader)
        return bool(facts) and all(
            facts.get(f"member.{each}.in_sync") for each in names or SERVERS if each != leader
        )

    def until_equal(self) -> dict[ServerId, ReplicaDigest]:
        """All in sync and at rest, then killed; what their directories hold, which is the same."""
        self.until(self.are_in_sync)
        self.until(self._rest)
        for name in SERVERS:
            self.kill(name)
        found = {name: digest_on(self.disks[name], DATA) for name in SERVERS}
        one, *others = found.values()
        assert all(other == one for other in others), found
        return found

    def _rest(self) -> bool:
        names = ("cluster_last", "cluster_synced", "cluster_applied", "cluster_commit")
        seen = {facts.get(name) for facts in self.all_facts().values() for name in names}
        return len(seen) == 1 and None not in seen

    # ------------------------------------------------------------------ a client

    def ask(self, request: Request, body: bytes | None = None) -> tuple[Reply, Sequence[Body]]:
        """Ask the leader, and whoever leads then, until there is an answer."""
        for _ in range(100):
            token = next(self._tokens)
            leader = self.until_led()
            frames = codec.encode_request(token, request, body)
            self.running[leader].inbox.append((CLIENT, frames))
            for _ in range(100):
                self.turn()
                if token in self._answers:
                    break
            else:
                continue
            reply = self._answers[token]
            if not (isinstance(reply[0], RefusedReply) and reply[0].code == "not_leader"):
                return reply
        raise AssertionError(f"no answer to {request}")

    def subscribe(self, *topics: str) -> None:
        for topic in topics:
            self.ask(Subscribe(GUEST, Epoch(0), topic, Start()))

    def unsubscribe(self, topic: str) -> None:
        self.ask(Unsubscribe(GUEST, Epoch(0), topic))

    def put(self, topic: str, *, size: int = 200) -> None:
        """Until it is stored."""
        number = self._sequences[topic] = self._sequences.get(topic, 0) + 1
        payload = b"%d " % number + b"x" * size
        body = batch.encode_payloads([payload])
        seed = batch.seed(topic, PRODUCER, number, 1)
        for _ in range(200):
            resumed, _ = self.ask(Resume(WRITER, Epoch(0), topic, PRODUCER))
            permit = resumed.permit if isinstance(resumed, Resumed) else 0
            put = Put(
                WRITER, Epoch(0), topic, TopicId(0), PRODUCER, True, Number(number), 1, 0,
                batch.checksum(body, seed), permit,
            )  # fmt: skip
            reply, _ = self.ask(put, body)
            if isinstance(reply, PutAccepted):
                return
        raise AssertionError(f"{reply}")

    def get(self, topic: str, start: int) -> list[str] | RefusedReply:
        """One answer to a reader, from an offset on."""
        reply, bodies = self.ask(Get(GUEST, Epoch(0), topic, (), start, 1000, 1 << 20, 0))
        if isinstance(reply, RefusedReply):
            return reply
        assert isinstance(reply, Messages)
        return messages(reply, bodies)

    def have_compacted(self, serial: int) -> bool:
        """Whether no server that runs has the frames up to there in its files."""
        logs = [each.replica.log for each in self.running.values()]
        return all(log._source.kept_from > serial for log in logs)

    def fill(self, count: int = 120) -> None:
        """Messages of a topic that is kept, among others that nobody wants: they are compacted."""
        before = self.running[self.until_led()].replica.log.last_serial
        self.fill_some(count)
        self.until(lambda: self.have_compacted(before + count))

    def fill_some(self, count: int, *, unsubscribes: bool = True) -> None:
        """The same, and what becomes of it is left open."""
        self.subscribe("kept", "gone")
        for _ in range(count):
            self.put("kept")
            self.put("gone")
        if unsubscribes:
            self.unsubscribe("gone")
