"""A cluster that is founded again, where etcd lost its data: by whom, and in which epoch."""

from itertools import count

from oncemq.cluster.agreement.founding import FOUNDED_ABOVE
from oncemq.cluster.agreement.shard_agreement import ShardAgreement
from oncemq.coordination.coordinator import Coordinator
from oncemq.coordination.local import LocalStore
from oncemq.coordination.values import ClusterConfig, ClusterKeys, encoded
from oncemq.protocol.names import LeaderEpoch, Micros, ServerId, ShardId
from oncemq.protocol.replicas.messages import Life

KEYS = ClusterKeys("main")
IDENTITY = b"\xf0" * 8
A, B = ServerId("a"), ServerId("b")


class Side:
    """One server's part in it, with its directory open."""

    def __init__(self, store: LocalStore, name: ServerId, promised: int) -> None:
        numbers = count(1)
        self.agreement = ShardAgreement(
            name, KEYS, ShardId(1), founding=ClusterConfig(nonce=""), address=f"tcp://{name}:1",
            claim=f"claim of {name}", new_nonce=lambda: f"{name}{next(numbers)}",
        )  # fmt: skip
        self.coordinator: Coordinator = store.coordinator(KEYS.prefix, lambda: None)
        life = Life(name.encode() * 16, 1)
        self.agreement.open(life, IDENTITY, 1, 1, LeaderEpoch(promised))

    def go_on(self) -> ShardAgreement:
        for _ in range(5):
            for event in self.coordinator.take():
                self.agreement.heard(event, Micros(0))
            self.agreement.tick(Micros(0))
            for request, token in self.agreement.requests:
                self.coordinator.ask(request, token)
            self.agreement.requests.clear()
        return self.agreement


def test_a_directory_that_was_a_replica_waits_for_a_person() -> None:
    store = LocalStore()
    waits = Side(store, A, promised=5).go_on()
    assert waits.shard is None
    assert "`once cluster found ID`" in str(waits.declined)


def test_who_promised_more_than_the_founder_is_let_in_all_the_same() -> None:
    """And no epoch that anybody may have led is led again."""
    store = LocalStore()
    sides = [Side(store, A, promised=5), Side(store, B, promised=9)]
    store.put(KEYS.config, encoded(ClusterConfig("by hand", founder=A)))
    for _ in range(2):
        a, b = (each.go_on() for each in sides)
    assert a.is_known
    assert a.shard is not None
    assert a.shard.leader_epoch == 5 + FOUNDED_ABOVE
    assert b.is_known, b.declined
    assert sorted(a.shard.in_sync) == [A]


def test_a_single_servers_directory_begins_with_the_first_epoch() -> None:
    side = Side(LocalStore(), A, promised=0).go_on()
    assert side.shard is not None
    assert side.shard.leader_epoch == 0
