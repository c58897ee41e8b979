"""What a loop serves keeps house and answers alike: a server alone, and a replica that leads.

The replica is of a cluster of one server, over a coordinator in memory.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from random import Random

import pytest

from oncemq.broker.broker import Broker
from oncemq.broker.expiry import Calendar
from oncemq.broker.state.shard import Shard
from oncemq.cluster.agreement.shard_agreement import ShardAgreement
from oncemq.cluster.keeper import Keeper
from oncemq.cluster.replica import Replica
from oncemq.cluster.replica_directory import Home, ReplicaPlace
from oncemq.cluster.serving import Serving
from oncemq.coordination.local import LocalStore
from oncemq.coordination.values import ClusterConfig, ClusterKeys
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import Epoch, Micros, ServerId, ShardId, TopicId
from oncemq.protocol.names import Sequence as Number
from oncemq.protocol.replies import Messages, PutAccepted, Reply, Resumed, StatusReport
from oncemq.protocol.requests import Get, Put, Request, Resume, Start, StatusRequest, Subscribe
from oncemq.protocol.step import Body
from oncemq.replication.view import ReplicationLimits
from oncemq.server.driver import Driver
from oncemq.server.housekeeping import Household, Housekeeping
from oncemq.server.recovery import fold
from oncemq.server.served import KeepsHouse, Served
from oncemq.server.worker import Task, Worker
from oncemq.storage.log.log import LogOptions
from oncemq.storage.log.recovery import open_log
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.testing.unsynced_changes import PowerCut
from oncemq.wire import batch, codec
from tests.harness.server import GUEST, PRODUCER, WRITER, messages

DATA = "/data"
SHARD = ShardId(1)
OPTIONS = LogOptions(
    segment_bytes=1 << 16, allocate_bytes=1 << 14, reserve_bytes=1 << 14, checkpoint_records=50
)
TURN = 10_000


class NoLinks:
    """There is no other server."""

    def meet(self, addresses: object) -> None: ...
    def send(self, server: ServerId, frames: Sequence[Body]) -> bool:
        raise AssertionError("nobody is there")

    def receive(self) -> Iterator[tuple[ServerId, Sequence[Body]]]:
        return iter(())

    def taking(self) -> list[ServerId]:
        return []

    def connected(self) -> list[ServerId]:
        return []

    def look(self, now: Micros) -> None: ...
    def close(self) -> None: ...


class SameThread(Worker):
    """Does what it is given at once."""

    def __init__(self) -> None:
        self.under_way = 0

    def give(self, task: Task, then: Task) -> None:
        task()
        then()


class Turns:
    """One that is served, in the turns that a loop takes; its work is done at once."""

    def __init__(self, served: Served, house: KeepsHouse, worker: Worker, now: int) -> None:
        self.served, self.house, self.worker = served, house, worker
        self.now = now
        self.token = 0
        self.answers: dict[int, Reply] = {}
        self.bodies: dict[int, Sequence[Body]] = {}
        served.bind(
            reaches=lambda *_: False, takes=lambda _: True, hand_over=lambda: None,
            connections=dict,
        )  # fmt: skip
        served.keep_time(Calendar(), Micros(now))

    def turn(self, *, writes: bool = True) -> None:
        served = self.served
        self.now += TURN
        now = Micros(self.now)
        served.tick(now)
        if writes and (group := served.commit(now)) is not None:
            served.log.write(group)
            served.written(group, now)
        if served.has_news:
            served.take_news(now)
        self.house.turn(self.worker, now)
        outgoing, served.outgoing = served.outgoing, []
        for _, frames in outgoing:
            token, reply, bodies = codec.decode_reply(frames)
            self.answers[token], self.bodies[token] = reply, bodies

    def until_at_work(self) -> None:
        """Clients are let in."""
        for _ in range(300):
            status = self.ask(StatusRequest())
            assert isinstance(status, StatusReport)
            if status.facts.get("cluster_role", "leads") == "leads":
                return
        raise AssertionError("nobody is served")

    def send(self, request: Request, body: bytes | None = None) -> int:
        self.token += 1
        frames = codec.encode_request(self.token, request, body)
        self.served.receive(b"route", frames, Micros(self.now))
        return self.token

    def ask(self, request: Request, body: bytes | None = None) -> Reply:
        token = self.send(request, body)
        for _ in range(20):
            self.turn()
            if token in self.answers:
                return self.answers[token]
        raise AssertionError(f"no answer to {request}")

    def put(self, topic: str, number: int) -> Reply:
        """As a publisher does that resumes first."""
        resumed = self.ask(Resume(WRITER, Epoch(0), topic, PRODUCER))
        assert isinstance(resumed, Resumed)
        body = batch.encode_payloads([b"%d" % number])
        seed = batch.seed(topic, PRODUCER, number, 1)
        put = Put(
            WRITER, Epoch(0), topic, TopicId(0), PRODUCER, True, Number(number), 1, 0,
            batch.checksum(body, seed), resumed.permit,
        )  # fmt: skip
        return self.ask(put, body)

    def get(self) -> list[str]:
        """Everything that is new to the guest."""
        token = self.send(Get(GUEST, Epoch(0), "t", (), -1, 1000, 1 << 20, 0))
        for _ in range(20):
            self.turn()
            if token in self.answers:
                reply = self.answers[token]
                assert isinstance(reply, Messages)
                return messages(reply, self.bodies[token])
        raise AssertionError("no answer")


class OnDisk:
    """Makes one or the other on a directory of a disk that is powerless when told so."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.disk = FaultyDisk(Random(1))
        self.store = LocalStore()
        self.now = 1_000_000_000
        self.starts = 0
        self.household: Household
        self.turns = self.start()

    def start(self) -> Turns:
        """As after a crash, or for the first time."""
        self.starts += 1
        self.now += 10_000_000
        if self.kind == "alone":
            served, house = self._alone()
        else:
            served = house = self._replica()
        self.turns = Turns(served, house, SameThread(), self.now)
        self.turns.until_at_work()
        if isinstance(served, Replica):
            assert served._parts.housekeeping is not None
            self.household = served._parts.housekeeping._household
            assert isinstance(self.household, Keeper)
        return self.turns

    def _alone(self) -> tuple[Served, KeepsHouse]:
        opened = open_log(self.disk, DATA, OPTIONS, random_bytes=_random)
        shard = Shard(opened.log.tag)
        fold(shard, opened.states, opened.checkpoint_end, opened.replay)
        shard.serial = opened.log.last_serial
        broker = Broker(shard, ServerLimits())
        broker.recovered(Micros(self.now))
        self.household = driver = Driver(broker, opened.log)
        return driver, Housekeeping(driver, Micros(self.now))

    def _replica(self) -> Replica:
        counted = count(1)
        agreement = ShardAgreement(
            ServerId("a"), ClusterKeys("one"), SHARD, address="tcp://a:1",
            founding=ClusterConfig(nonce="", replicas=1, min_in_sync=1),
            claim=f"claim{self.starts}", new_nonce=lambda: f"{self.starts}.{next(counted)}",
        )  # fmt: skip
        coordinator = self.store.coordinator(ClusterKeys("one").prefix, lambda: None)
        home = Home(self.disk, DATA, OPTIONS, _random)
        place = ReplicaPlace(ServerId("a"), SHARD, home, ReplicationLimits())
        replica = Replica(
            place, agreement, coordinator, NoLinks(), Serving(ServerLimits()), Micros(self.now),
            address="tcp://a:1",
        )  # fmt: skip
        assert replica.recovered >= 0
        return replica

    def crash(self) -> Turns:
        """The power goes, and comes back."""
        self.now = self.turns.now
        self.disk.crash(PowerCut.NOTHING)
        return self.start()


def _random(count: int) -> bytes:
    return b"\5" * count


@pytest.fixture(params=["alone", "replica"])
def made(request: pytest.FixtureRequest) -> OnDisk:
    return OnDisk(request.param)


def test_nothing_is_answered_before_it_is_written(made: OnDisk) -> None:
    turns = made.turns
    turns.ask(Subscribe(GUEST, Epoch(0), "t", Start()))
    token = turns.send(Subscribe(GUEST, Epoch(0), "u", Start()))
    for _ in range(3):
        turns.turn(writes=False)
    assert token not in turns.answers
    for _ in range(3):
        turns.turn()
    assert token in turns.answers


def test_what_was_acknowledged_outlives_a_power_cut(made: OnDisk) -> None:
    made.turns.ask(Subscribe(GUEST, Epoch(0), "t", Start()))
    for number in range(1, 6):
        assert isinstance(made.turns.put("t", number), PutAccepted)
    turns = made.crash()
    assert isinstance(turns.put("t", 6), PutAccepted)
    assert turns.get() == [f"t@{offset}={offset + 1}" for offset in range(6)]


def test_the_house_is_kept_in_turns(made: OnDisk) -> None:
    turns, household = made.turns, made.household
    turns.ask(Subscribe(GUEST, Epoch(0), "t", Start()))
    for number in range(1, 120):
        turns.put("t", number)
    for _ in range(1_000):
        turns.turn()
    assert household.events.counts["checkpoint_written"] > 0
    assert household.settled_serial == household.log.durable_serial == household.shard.serial
    assert household.folded is None or household.folded() == household.log.newest
    assert not turns.house.busy


def test_what_is_due_is_said_and_it_may_stop(made: OnDisk) -> None:
    served = made.turns.served
    made.turns.turn()
    deadline, commit = served.next_deadline(), served.next_commit()
    assert deadline is None or deadline > made.turns.now - TURN
    assert commit is None
    assert not served.is_full
    served.listens(joined=True, subject=b"t")
    assert served.pushes.outgoing == []
    assert served.may_stop(Micros(made.turns.now))
