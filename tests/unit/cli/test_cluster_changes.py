"""What a person changes of a cluster: what is refused and why, and that a change is not doubled."""

from collections.abc import Sequence
from typing import Any

import pytest

from oncemq.cli.cluster.agreed import Agreed, ChangeDeclined, EtcdUnreachable
from oncemq.cli.cluster.drain import drained
from oncemq.cli.cluster.found import (
    WaitingServer,
    founded,
    loss_of,
    may_found,
    settings_of,
    waiting_servers,
)
from oncemq.cli.cluster.remove import removed
from oncemq.cli.cluster.report import ServerAnswer
from oncemq.cluster.agreement.known_keys import KnownKeys
from oncemq.coordination.coordinator import (
    CoordinatorEvent,
    Request,
    Snapshot,
    Transact,
)
from oncemq.coordination.local import LocalStore
from oncemq.coordination.transactions import Declined
from oncemq.coordination.values import (
    ClusterConfig,
    ClusterKeys,
    OpenedDirectory,
    ServerState,
    ShardReplicas,
    decoded,
    encoded,
)
from oncemq.protocol.names import ServerId

KEYS = ClusterKeys("main")
A, B, C = map(ServerId, "abc")
SHARD = KEYS.shard(1)


def directory(name: str) -> OpenedDirectory:
    return OpenedDirectory(f"{name}0", 1, "claim")


def shard(*in_sync: ServerId, leader: ServerId | None = A, joining: Sequence[ServerId] = ()):
    return ShardReplicas(
        nonce="first", identity="f0", tag=1, generation=1, leader=leader, leader_epoch=3,
        in_sync={each: directory(each) for each in in_sync},
        joining={each: directory(each) for each in joining}, proposed=None, min_in_sync=2,
    )  # fmt: skip


class Etcd:
    """A store with a cluster in it."""

    def __init__(self, value: ShardReplicas | None, *alive: ServerId, draining: str = "") -> None:
        self.store = LocalStore()
        if value is not None:
            self.store.put(SHARD, encoded(value))
        for each in (A, B, C):
            state = ServerState("first", f"tcp://{each}:1", each in draining)
            self.store.put(KEYS.server(each), encoded(state))
        for each in alive:
            self.store.put(KEYS.alive(each), b"claim")

    def agreed(self) -> Agreed:
        return Agreed("main", self.store.coordinator, patience=1.0)

    def change(self, decide: Any) -> bool:
        with self.agreed() as agreed:
            return agreed.change(decide)

    def why(self, decide: Any) -> str:
        with pytest.raises(ChangeDeclined) as raised:
            self.change(decide)
        return raised.value.detail

    @property
    def known(self) -> KnownKeys:
        with self.agreed() as agreed:
            return agreed.look()


def draining(name: ServerId, *, on: bool = True) -> Any:
    return lambda known: drained(known, name, draining=on, nonce="next")


def removing(name: ServerId) -> Any:
    return lambda known: removed(known, name, nonce="next")


# ------------------------------------------------------------------ to lead nothing


def test_a_server_is_drained_and_taken_back() -> None:
    etcd = Etcd(shard(A, B, C), A, B, C)
    assert etcd.change(draining(A))
    assert etcd.known.servers[A].draining
    assert not etcd.change(draining(A))
    assert etcd.change(draining(A, on=False))
    assert not etcd.known.servers[A].draining


def test_the_only_one_that_can_lead_is_not_drained() -> None:
    assert "in sync and there are no others" in Etcd(shard(A, B), A).why(draining(A))
    why = Etcd(shard(A, B, C), A, B, draining="b").why(draining(A))
    assert "in sync and there are b, which are to lead nothing either" in why
    assert Etcd(shard(A, B), A).change(draining(B))


def test_a_server_that_is_not_there_is_named_with_those_that_are() -> None:
    why = Etcd(shard(A, B, C)).why(draining(ServerId("d")))
    assert why == "the cluster main has no server d; it has: a, b, c"
    assert "has no server d" in Etcd(shard(A, B, C)).why(removing(ServerId("d")))


# ------------------------------------------------------------------ for good


def test_a_server_that_is_gone_leaves_room() -> None:
    etcd = Etcd(shard(A, B, joining=[C]), A, B)
    assert etcd.change(removing(C))
    known = etcd.known
    assert known.shard is not None
    assert known.shard.replicas == ["a", "b"]
    assert sorted(known.servers) == ["a", "b"]


def test_who_leads_or_runs_is_not_removed() -> None:
    etcd = Etcd(shard(A, B, C), A, B)
    assert "a leads: `once cluster drain a`, stop it" in etcd.why(removing(A))
    assert "b runs: stop it first" in etcd.why(removing(B))


def test_who_is_in_sync_is_not_removed_before_the_leader_does_without_it() -> None:
    assert "is in sync" in Etcd(shard(A, B, C), A, B).why(removing(C))
    why = Etcd(shard(A, C, joining=[B]), A, B).why(removing(C))
    assert "as only a else has, and 2 must have it" in why


def test_a_server_that_never_got_in_is_forgotten() -> None:
    etcd = Etcd(shard(A, B), A, B)
    assert etcd.change(removing(C))
    assert sorted(etcd.known.servers) == ["a", "b"]


# ------------------------------------------------------------------ to begin again


def waits(name: str, *, last: tuple[int, int], log: str = "f0", promised: int = 7) -> ServerAnswer:
    facts: dict[str, Any] = {
        "cluster_name": "main", "cluster_server": name, "cluster_log": log,
        "cluster_role": "waits for the cluster", "cluster_last_epoch": last[0],
        "cluster_last": last[1], "cluster_promised": promised,
    }  # fmt: skip
    return ServerAnswer(f"tcp://{name}:1", facts)


def serves(name: str, *, log: str = "f0") -> ServerAnswer:
    facts = waits(name, last=(1, 1), log=log).facts
    assert facts is not None
    return ServerAnswer(f"tcp://{name}:1", facts | {"cluster_role": "follows"})


def loss(answers: Sequence[ServerAnswer], name: ServerId) -> str | None:
    mine = may_found(answers, name, "main")
    assert isinstance(mine, WaitingServer), mine
    found = loss_of(mine, waiting_servers(answers, "main"), ClusterConfig(""))
    return None if found is None else found.why


def refusal(answers: Sequence[ServerAnswer], name: ServerId) -> str:
    found = may_found(answers, name, "main")
    assert isinstance(found, Declined)
    return found.why


def test_the_longest_log_begins() -> None:
    answers = [waits("a", last=(7, 90)), waits("b", last=(7, 120)), waits("c", last=(7, 120))]
    assert loss(answers, B) is None
    assert "b (epoch 7, record 120) has more than a (epoch 7, record 90)" in str(loss(answers, A))


def test_a_later_epoch_is_more_than_a_longer_log() -> None:
    answers = [waits("a", last=(6, 900)), waits("b", last=(7, 120))]
    assert "b (epoch 7, record 120) has more" in str(loss(answers, A))
    assert loss(answers, B) is None


def test_too_few_do_not_tell_who_has_the_most() -> None:
    why = str(loss([waits("a", last=(7, 120))], A))
    assert why.startswith("1 server of this cluster answered (a), and 2 must")


def test_an_emptied_disk_is_no_witness() -> None:
    answers = [waits("a", last=(7, 120)), waits("b", last=(0, 0), log="other", promised=0)]
    assert "answered (a), and 2 must" in str(loss(answers, A))


def test_a_directory_that_was_in_no_cluster_may_begin_one() -> None:
    assert loss([waits("a", last=(0, 120), promised=0)], A) is None


def test_a_cluster_that_goes_on_is_not_founded_again() -> None:
    answers = [waits("a", last=(7, 120)), serves("b")]
    assert "the cluster goes on (b), and nothing is lost yet" in refusal(answers, A)


def test_one_that_began_by_mistake_is_to_be_stopped() -> None:
    answers = [waits("a", last=(7, 120)), serves("b", log="other")]
    assert "stop it, and try again with --replace" in refusal(answers, A)


def test_who_does_not_answer_founds_nothing() -> None:
    assert "servers of main that wait: b" in refusal([waits("b", last=(7, 1))], A)


def founding(name: ServerId, *, replace: bool = False, replicas: int | None = None) -> Any:
    return lambda known: founded(
        known, name, settings_of(known, replicas), replace=replace, nonce="next"
    )


def test_etcd_is_told_who_begins_once() -> None:
    etcd = Etcd(None)
    assert etcd.change(founding(A))
    assert etcd.known.config == ClusterConfig("next", founder=A)
    assert not etcd.change(founding(A))


def test_a_cluster_of_another_size_needs_more_witnesses_and_stays_of_that_size() -> None:
    etcd = Etcd(None)
    five = settings_of(etcd.known, 5)
    assert (five.replicas, five.min_in_sync) == (5, 3)
    answers = [waits("a", last=(7, 120)), waits("b", last=(7, 120))]
    mine = may_found(answers, A, "main")
    assert isinstance(mine, WaitingServer)
    found = loss_of(mine, waiting_servers(answers, "main"), five)
    assert found is not None
    assert "answered (a, b), and 3 must" in found.why
    assert etcd.change(founding(A, replicas=5))
    assert etcd.known.config == ClusterConfig("next", replicas=5, min_in_sync=3, founder=A)


def test_a_shard_in_etcd_goes_only_where_a_person_says_so() -> None:
    etcd = Etcd(shard(A, B))
    assert "etcd has the cluster main: in sync are a, b, in epoch 3" in etcd.why(founding(A))
    assert etcd.change(founding(A, replace=True))
    known = etcd.known
    assert known.shard is None
    assert known.config is not None
    assert known.config.founder == A


# ------------------------------------------------------------------ through etcd


def test_a_change_that_was_overtaken_is_decided_by_what_is_there_now() -> None:
    etcd = Etcd(shard(A, B, C), A, B, C)
    tries: list[int] = []

    def decide(known: KnownKeys) -> Any:
        wanted = drained(known, B, draining=True, nonce=f"try {len(tries)}")
        if not tries:
            moved = ServerState("other", "tcp://moved:1")
            etcd.store.put(KEYS.server(B), encoded(moved))
        tries.append(1)
        return wanted

    assert etcd.change(decide)
    assert etcd.known.servers[B] == ServerState("try 1", "tcp://moved:1", True)
    assert len(tries) == 2


class LostAnswers:
    """Each transaction happens, and what is heard is the answer to its second try."""

    def __init__(self, store: LocalStore) -> None:
        self.store = store
        self.asked = 0

    def __call__(self, prefix: str, ring: Any) -> "LostAnswers":
        self._within = self.store.coordinator(prefix, ring)
        return self

    def ask(self, request: Request, token: int) -> None:
        self.asked += 1
        assert isinstance(request, Transact)
        self.store.decide(request)
        self._within.ask(request, token)

    def announce(self, key: str, value: bytes) -> None:
        raise AssertionError("a command announces nothing")

    def take(self) -> list[CoordinatorEvent]:
        return self._within.take()

    def close(self) -> None:
        self._within.close()


def test_a_change_whose_answer_was_lost_is_not_made_twice() -> None:
    etcd = Etcd(shard(A, B, joining=[C]), A, B)
    lossy = LostAnswers(etcd.store)
    with Agreed("main", lossy, patience=1.0) as agreed, pytest.raises(ChangeDeclined) as raised:
        agreed.change(removing(C))  # it has happened: there is no such server any more
    assert "has no server c" in raised.value.detail
    with Agreed("main", lossy, patience=1.0) as agreed:
        assert not agreed.change(draining(B))  # it has happened: it is so already
    assert lossy.asked == 2


class Silent:
    """Nothing comes."""

    def __init__(self, _prefix: str, _ring: Any) -> None:
        self.closed = False

    def ask(self, request: Request, token: int) -> None: ...
    def announce(self, key: str, value: bytes) -> None: ...
    def take(self) -> list[CoordinatorEvent]:
        return []

    def close(self) -> None:
        self.closed = True


def test_an_etcd_that_says_nothing_is_unreachable() -> None:
    with Agreed("main", Silent, patience=0.05) as agreed, pytest.raises(EtcdUnreachable):
        agreed.look()


def test_values_are_those_that_servers_read() -> None:
    etcd = Etcd(None)
    etcd.change(founding(A))
    found = etcd.store.coordinator(KEYS.prefix, lambda: None).take()[0]
    assert isinstance(found, Snapshot)
    assert decoded(found.entries[KEYS.config].value, ClusterConfig, key="cfg").founder == A
