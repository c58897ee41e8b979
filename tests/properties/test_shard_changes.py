"""Whatever servers do with a shard's state: who may be elected has all that was committed.

Servers start, stop, lose their disks, get older copies of them back, ask for changes from views
that are out of date and never hear what became of them. Replication is as small as it can be: a
follower takes the leader's whole log, unless it promised a later epoch.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncemq.coordination import transactions
from oncemq.coordination.transactions import Changed, Declined
from oncemq.coordination.values import ClusterConfig, OpenedDirectory, ShardReplicas
from oncemq.protocol.names import ServerId

A, B, C = SERVERS = [ServerId(name) for name in "ABC"]
CONFIG = ClusterConfig(nonce="0")
Record = tuple[int, int]  # epoch, number


@dataclass
class Disk:
    """What a server has on its disk."""

    incarnation: str
    openings: int = 0
    promised: int = 0
    log: list[Record] = field(default_factory=list)

    def copy(self) -> "Disk":
        return replace(self, log=list(self.log))


@dataclass
class Running:
    """A server that runs: what it knows, which may be old."""

    directory: OpenedDirectory
    view: ShardReplicas
    leads: int = 0  # the epoch that it was elected in, by this start
    hopes: ServerId | None = None  # asked to propose it, and not heard
    committed: int = 0  # how many, in the epoch that it leads
    acknowledged: dict[ServerId, tuple[OpenedDirectory, int]] = field(default_factory=dict)


class Shard:
    """One shard, three servers, one store that answers or does not."""

    def __init__(self, chance: Random, *, waits_for_proposed: bool = True) -> None:
        self.waits_for_proposed = waits_for_proposed
        self.is_heard = lambda: chance.random() < 0.7
        self.drawn = 0
        self.committed: list[Record] = []
        self.disks = {server: Disk(self.draw("disk")) for server in SERVERS}
        self.copies: dict[ServerId, Disk] = {}
        self.running: dict[ServerId, Running] = {}
        self.found()

    def draw(self, what: str = "n") -> str:
        self.drawn += 1
        return f"{what}{self.drawn}"

    def found(self) -> None:
        disk = self.disks[A]
        disk.openings, disk.promised, disk.log = 1, 3, [(3, 0), (3, 1)]  # of a single server
        directory = OpenedDirectory(disk.incarnation, 1, self.draw("claim"))
        self.shard = transactions.found(
            A,
            directory,
            identity="log",
            tag=9,
            generation=0,
            leader_epoch=3,
            config=CONFIG,
            nonce=self.draw(),
        )
        self.running[A] = Running(directory, self.shard)

    # ------------------------------------------------------------------ the store

    def change(self, server: ServerId, changed: Changed, *, is_heard: bool) -> bool:
        """Compare and swap from the server's view; whether it knows that it happened."""
        me = self.running[server]
        if isinstance(changed, Declined) or changed == me.view:
            return False
        happened = me.view.nonce == self.shard.nonce
        if happened:
            self.laws(changed)
            self.shard = changed
        if is_heard:
            me.view = self.shard
        return happened and is_heard

    def laws(self, after: ShardReplicas) -> None:
        before = self.shard
        assert after.nonce != before.nonce
        assert after.leader_epoch >= before.leader_epoch
        if after.leader not in (None, before.leader):
            assert after.leader_epoch == before.leader_epoch + 1
        assert after.leader is None or after.leader in after.in_sync
        assert after.proposed is None or after.proposed in after.joining
        if len(after.in_sync) < len(before.in_sync):
            assert len(after.in_sync) >= after.min_in_sync
        if after.in_sync.keys() != before.in_sync.keys() and after.leader == before.leader:
            assert after.leader_epoch == before.leader_epoch or after.leader is not None

    # ------------------------------------------------------------------ servers and their disks

    def start(self, server: ServerId) -> None:
        disk = self.disks[server]
        disk.openings += 1
        directory = OpenedDirectory(disk.incarnation, disk.openings, self.draw("claim"))
        joined = transactions.join(
            self.shard, server, directory, identity="log" if disk.log else None,
            promised_epoch=disk.promised, config=CONFIG, nonce=self.draw(),
        )  # fmt: skip
        assert isinstance(joined, ShardReplicas)
        self.laws(joined)
        self.shard = joined
        self.running[server] = Running(directory, joined)

    def stop_and_copy(self, server: ServerId) -> None:
        self.running.pop(server, None)
        self.copies[server] = self.disks[server].copy()

    def put_a_copy_back(self, server: ServerId) -> None:
        self.running.pop(server, None)
        if server in self.copies:
            self.disks[server] = self.copies[server].copy()

    def lose_the_disk(self, server: ServerId) -> None:
        self.running.pop(server, None)
        self.disks[server] = Disk(self.draw("disk"))

    def hear(self, server: ServerId) -> None:
        if server in self.running:
            self.running[server].view = self.shard

    # ------------------------------------------------------------------ changes

    def leader(self, server: ServerId) -> Running | None:
        me = self.running.get(server)
        if me is None or not me.leads or me.view.leader_epoch != me.leads:
            return None
        return me if me.view.leader == server else None

    def elect(self, server: ServerId) -> None:
        if (me := self.running.get(server)) is None:
            return
        elected = transactions.elect(
            me.view, server, me.directory, promised_epoch=self.disks[server].promised,
            nonce=self.draw(),
        )  # fmt: skip
        if self.change(server, elected, is_heard=True):
            self.begin(server)

    def begin(self, server: ServerId) -> None:
        me, disk = self.running[server], self.disks[server]
        me.leads, me.hopes = me.view.leader_epoch, None
        me.committed, me.acknowledged = 0, {}
        disk.promised = me.leads
        disk.log.append((me.leads, 0))

    def resign(self, server: ServerId, to: ServerId) -> None:
        if (me := self.leader(server)) is None or to not in me.acknowledged:
            return
        there = me.acknowledged[to][0]
        resigned = transactions.resign(
            me.view, server, leader_epoch=me.leads, to=to, directory=there, nonce=self.draw()
        )
        if self.change(server, resigned, is_heard=True) and to in self.running:
            him = self.running[to]
            him.view = self.shard
            if him.directory == there:
                self.begin(to)

    def propose(self, server: ServerId, other: ServerId) -> None:
        if (me := self.leader(server)) is None or other not in me.acknowledged:
            return
        there = me.acknowledged[other][0]
        proposed = transactions.propose(
            me.view, server, leader_epoch=me.leads, server=other, directory=there,
            nonce=self.draw(),
        )  # fmt: skip
        if isinstance(proposed, ShardReplicas):
            me.hopes = other
            self.change(server, proposed, is_heard=self.is_heard())

    def expand(self, server: ServerId) -> None:
        if (me := self.leader(server)) is None or (other := me.view.proposed) is None:
            return
        there, length = me.acknowledged.get(other, (None, 0))
        log = self.disks[server].log
        if there is not None and length >= me.committed and (me.leads, 0) in log[:length]:
            expanded = transactions.expand(
                me.view, server, leader_epoch=me.leads, server=other, directory=there,
                nonce=self.draw(),
            )  # fmt: skip
            self.change(server, expanded, is_heard=self.is_heard())

    def shrink(self, server: ServerId, other: ServerId) -> None:
        if (me := self.leader(server)) is not None:
            shrunk = transactions.shrink(
                me.view, server, leader_epoch=me.leads, server=other, nonce=self.draw()
            )
            self.change(server, shrunk, is_heard=self.is_heard())

    # ------------------------------------------------------------------ the log

    def append(self, server: ServerId) -> None:
        if (me := self.leader(server)) is not None:
            self.disks[server].log.append((me.leads, int(self.draw("")) + 1))

    def replicate(self, server: ServerId, to: ServerId) -> None:
        me, him = self.running.get(server), self.running.get(to)
        if me is None or him is None or not me.leads or to == server:
            return  # a leader that was deposed and does not know sends too
        disk = self.disks[to]
        if disk.promised <= me.leads:
            disk.promised = me.leads
            disk.log = list(self.disks[server].log)
            me.acknowledged[to] = (him.directory, len(disk.log))

    def commits(self, me: Running, server: ServerId) -> int:
        """How much of its log a leader takes to be committed, as it sees the shard."""
        view, own = me.view, len(self.disks[server].log)
        if len(view.in_sync) < view.min_in_sync:
            return 0
        counted = [own]
        for other, directory in view.in_sync.items():
            there, length = me.acknowledged.get(other, (None, 0))
            counted.append(own if other == server else length * (there == directory))
        waits = {view.proposed, me.hopes} - {None, server} if self.waits_for_proposed else set()
        counted += [me.acknowledged.get(other, (None, 0))[1] for other in waits if other]
        return min(counted)

    def commit(self, server: ServerId) -> None:
        if (me := self.leader(server)) is None:
            return
        log = self.disks[server].log
        prefix = log[: self.commits(me, server)]
        if (me.leads, 0) not in prefix or len(prefix) <= me.committed:
            return
        me.committed = len(prefix)
        both = min(len(prefix), len(self.committed))
        assert prefix[:both] == self.committed[:both]  # nobody commits another history
        self.committed = max(prefix, self.committed, key=len)

    def who_may_be_elected_has_all_that_was_committed(self) -> None:
        for server, me in self.running.items():
            elected = transactions.elect(
                self.shard, server, me.directory, promised_epoch=0, nonce="x"
            )
            if isinstance(elected, ShardReplicas):
                assert self.disks[server].log[: len(self.committed)] == self.committed


FAULTS: list[tuple[float, Callable[[Shard, ServerId], None]]] = [
    *((1, Shard.start), (0.4, Shard.stop_and_copy), (0.3, Shard.put_a_copy_back)),
    *((0.1, Shard.lose_the_disk), (1, Shard.elect)),
]
WORK: list[tuple[float, Callable[[Shard, ServerId], None]]] = [
    *((4, Shard.hear), (6, Shard.expand), (4, Shard.append), (6, Shard.commit)),
]
WORK_ON_ANOTHER: list[tuple[float, Callable[[Shard, ServerId, ServerId], None]]] = [
    *((12, Shard.replicate), (6, Shard.propose), (2, Shard.shrink), (0.5, Shard.resign)),
]


def walk(seed: int, *, waits_for_proposed: bool = True, steps: int = 300) -> Shard:
    """So many things happen, drawn from the seed; work is done by the leader more often."""
    chance = Random(seed)
    shard = Shard(chance, waits_for_proposed=waits_for_proposed)
    quiet, all_things = [*WORK, *WORK_ON_ANOTHER], [*FAULTS, *WORK, *WORK_ON_ANOTHER]
    for server in SERVERS:
        shard.start(server)
    shard.hear(A)
    shard.elect(A)
    drawn = [
        *chance.choices(quiet, [weight for weight, _ in quiet], k=chance.choice((0, 100))),
        *chance.choices(all_things, [weight for weight, _ in all_things], k=steps),
    ]
    for thing in drawn:
        one, other = chance.sample(SERVERS, 2)
        if thing in FAULTS:
            thing[1](shard, one)
        else:
            leader = shard.shard.leader
            if leader not in (None, other) and chance.random() < 0.7:
                one = leader
            thing[1](shard, *((one, other) if thing in WORK_ON_ANOTHER else (one,)))
        shard.who_may_be_elected_has_all_that_was_committed()
    return shard


@given(st.integers(min_value=0))
def test_who_may_be_elected_has_all_that_was_committed(seed: int) -> None:
    walk(seed)


def test_walks_come_far() -> None:
    """What is tested happens: commits, elections, in-sync sets of all sizes."""
    ends = [walk(seed) for seed in range(60)]
    assert max(len(end.committed) for end in ends) > 10
    assert max(end.shard.leader_epoch for end in ends) > 6
    assert {len(end.shard.in_sync) for end in ends} == {1, 2, 3}


def _first_loss(seeds: int = 800, **how: bool) -> str:
    for seed in range(seeds):
        try:
            walk(seed, **how)
        except AssertionError as error:
            return str(error) or "lost"
    return ""


def test_a_leader_that_does_not_wait_for_whom_it_proposed_loses_what_it_committed() -> None:
    """In the store the member is in, and its leader has not heard."""
    assert _first_loss(waits_for_proposed=False)


def _in_sync_by_name(shard: ShardReplicas, server: ServerId, _: OpenedDirectory) -> Declined | None:
    return None if server in shard.in_sync else Declined("")


def _goes_on_by_name(shard: ShardReplicas, server: ServerId, _: OpenedDirectory) -> bool:
    return server in shard.in_sync


def _goes_on_by_count(shard: ShardReplicas, server: ServerId, now: OpenedDirectory) -> bool:
    before = shard.in_sync.get(server)
    return before is not None and before.openings < now.openings


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("_not_in_sync", _in_sync_by_name),
        ("_goes_on", _goes_on_by_name),
        ("_goes_on", _goes_on_by_count),
    ],
    ids=["another directory is elected", "an older copy goes on", "another disk goes on"],
)
def test_a_broken_rule_loses_what_was_committed(
    name: str, planted: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, name, planted)
    assert _first_loss()
