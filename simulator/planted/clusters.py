"""Bugs planted in the shell of a replica, and in what it rests on; each with worlds aimed at it.

The rules of replication have theirs in `simulator/replicas/planted_rules`. These break what joins
the rules to logs, disks, clients and etcd. Law: as in `planted`, one rule each.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from typing import Any, NamedTuple

from msgspec.structs import replace

from oncemq.broker.permits import Permits
from oncemq.cluster.following import Following
from oncemq.cluster.keeper import Keeper
from oncemq.cluster.leading import Leading
from oncemq.cluster.replica import Replica
from oncemq.coordination import transactions
from oncemq.protocol.names import Micros
from oncemq.protocol.replicas.messages import Appended
from oncemq.replication.actions import AnswerLeader
from oncemq.replication.awaited_answer import AwaitedAnswer
from oncemq.replication.follower import Follower
from oncemq.replication.leader import Leader
from oncemq.server.housekeeping import Housekeeping
from oncemq.storage.compaction.compaction import CompactionJob
from oncemq.storage.log.writer import Group
from simulator.planted.plant import Make, Plant, standing_in
from simulator.schedule.clusters import cluster_options_of
from simulator.schedule.options import WorldOptions
from simulator.schedule.schedule import Schedule, schedule_of
from simulator.world.simulation import run


class ClusterBug(NamedTuple):
    """How it is planted, and what sets the worlds apart that look for it."""

    plant: Plant
    options: dict[str, object]  # in place of those that the seed has
    shows: tuple[str, ...]  # kinds of findings, one of which tells of it


IN_CLUSTERS: dict[str, ClusterBug] = {}

LOST = (
    "lost",
    "lost_prefix",
    "lost_middle",
    "lost_tail",
    "changed_receipt",
    "redelivered",
    "stuck",
)
STALE_LEADERS = ("isolation", "freeze", "one_after_the_other")
PLAIN: dict[str, object] = {
    **dict.fromkeys(("deals", "sinks", "wild", "required", "churn", "leases"), 0),
    "inbox": False,
    "mishaps": 0,
    "cluster_mishaps": 12,
    "deeds": 120,
    "chaos_ms": 8_000,
    "topics": 1,
    "publishers": 2,
}


def in_clusters(
    owner: Any, name: str, *faults: str, shows: Sequence[str] = LOST, **more: object
) -> Callable[[Make], Make]:
    """The decorated function makes what stands in for `owner.name` while the bug is planted."""

    def plant(make: Make) -> Make:
        bug = make.__name__.strip("_")
        options = {**PLAIN, "faults": faults, **more}
        IN_CLUSTERS[bug] = ClusterBug(lambda: standing_in(owner, name, make), options, tuple(shows))
        return make

    return plant


def beside_in_cluster(bug: str, owner: Any, name: str, value: Any) -> None:
    """While this bug is planted, `owner.name` is `value`: else it would make up for the bug."""
    alone = IN_CLUSTERS[bug].plant

    @contextmanager
    def both() -> Generator[None]:
        with alone(), standing_in(owner, name, lambda _: value):
            yield

    IN_CLUSTERS[bug] = IN_CLUSTERS[bug]._replace(plant=both)


def world_of(bug: str, seed: int) -> Schedule:
    """The world of a seed, as it is for this bug."""
    options: WorldOptions = replace(cluster_options_of(seed), **IN_CLUSTERS[bug].options)
    return schedule_of(seed, options)


def caught(bug: str, *, seeds: int, hint: int | None = None) -> tuple[int, str] | None:
    """The first seed that shows a bug, and how; the same world without it finds nothing."""
    first = [] if hint is None else [hint]
    for seed in (*first, *islice(count(), seeds)):
        schedule = world_of(bug, seed)
        with IN_CLUSTERS[bug].plant():
            findings = run(schedule).findings
        telling = [each for each in findings if each.partition(":")[0] in IN_CLUSTERS[bug].shows]
        if telling and not run(schedule).findings:
            return seed, telling[0]
    return None


# ------------------------------------------------------------------ the leader


@in_clusters(Leading, "written", *STALE_LEADERS)
def _replies_before_the_commit(original: Any) -> Any:
    def written(self: Any, group: Group, now: Micros) -> None:
        original(self, group, now)
        if self.driver is not None:
            self.driver.committed(self.log.durable_serial, now)
            self.outgoing += self.driver.outgoing
            self.driver.outgoing = []

    return written


@in_clusters(Leading, "do", *STALE_LEADERS)
def _answers_what_is_open_when_it_steps_down(original: Any) -> Any:
    """As done: it is in the log, after all."""

    def do(self: Any, actions: Any, now: Micros) -> None:
        before = self.stepped_down
        original(self, actions, now)
        if self.stepped_down and not before and self.driver is not None:
            self.driver.committed(self.log.last_serial, now)
            self.outgoing += self.driver.outgoing
            self.driver.outgoing = []

    return do


@in_clusters(
    AwaitedAnswer, "is_in_vain", "one_way_cuts", shows=("unserved",), cluster_mishaps=3,
    chaos_ms=30_000,
)  # fmt: skip
def _waits_until_tcp_sends_again(_: Any) -> Any:
    def is_in_vain(*_: Any) -> bool:
        return False

    return is_in_vain


# ------------------------------------------------------------------ what state and files rest on

HALTED = ("broke", "unequal", *LOST)


@in_clusters(
    Keeper, "settled_serial", *STALE_LEADERS, shows=HALTED, checkpoint_records=15,
    checkpoint_bytes=4 << 10,
)  # fmt: skip
def _makes_checkpoints_of_what_is_only_durable(_: Any) -> Any:
    return property(lambda self: self.log.durable_serial)


@in_clusters(
    Following, "_take_in", "left_behind", shows=HALTED, checkpoint_records=15,
    checkpoint_bytes=4 << 10,
)  # fmt: skip
def _folds_before_the_commit(original: Any) -> Any:
    def take_in(self: Any, skip: int) -> None:
        original(self, skip)
        self._opened.apply_to(self.log.last_serial)

    return take_in


@in_clusters(Keeper, "folded", "all_cut", "one_after_the_other", shows=HALTED,
             checkpoint_records=15)  # fmt: skip
def _takes_a_followers_state_for_its_logs_end(_: Any) -> Any:
    return property(lambda _: None)


# ------------------------------------------------------------------ the follower


@in_clusters(Following, "_take_in", "followers_cut", shows=HALTED, sync_us=30_000)
def _acknowledges_before_its_disk_has_it(original: Any) -> Any:
    def take_in(self: Any, skip: int) -> None:
        original(self, skip)
        self._do(self.rules.synced(self.log.last_serial))

    return take_in


@in_clusters(Follower, "append", "full_disk", "one_after_the_other", shows=HALTED, mishaps=14)
def _acknowledges_what_its_full_disk_did_not_take(original: Any) -> Any:
    def append(self: Any, message: Any, last: Any, starts: Any, *, has_room: bool) -> Any:
        actions = original(self, message, last, starts, has_room=has_room)
        if has_room or not message.count:
            return actions
        return [
            AnswerLeader(replace(each.message, synced=last.serial, held=last.serial, is_full=False))
            if isinstance(each, AnswerLeader) and isinstance(each.message, Appended)
            else each
            for each in actions
        ]

    return append


@in_clusters(Replica, "turn", *STALE_LEADERS, shows=HALTED, sync_us=30_000)
def _opens_anew_while_its_disk_is_at_work(original: Any) -> Any:
    def turn(self: Any, janitor: Any, now: Micros) -> None:
        self._group_is_under_way = False
        original(self, janitor, now)

    return turn


# ------------------------------------------------------------------ what others have to know
#
# A promise (EPOCH) that is not synced shows in no world: whoever loses power starts anew, is let in
# by a change of the value that etcd has, and promises the epoch of that value first. No epoch was
# promised before it was in etcd. So only an etcd that was put back to an older copy would let it
# follow a lower one; `tests/unit/storage/test_promises.py` cuts the power on a promise instead.


@in_clusters(
    Leading, "_hold_back", "forgotten", shows=("stale",), cluster_mishaps=1, subscribers=3,
    chaos_ms=15_000, sync_us=200, delay_us=500,
)  # fmt: skip
def _answers_without_a_round(_: Any) -> Any:
    """As it knows it, though another may lead since."""

    def hold_back(self: Any) -> None:
        if self.driver is not None:
            self.outgoing += self.driver.outgoing
            self.driver.outgoing = []

    return hold_back


@in_clusters(
    Permits, "begin", "to_and_fro",
    shows=("failed_but_delivered", "conflict", "phantom", "duplicate", *LOST),
    required=150, cluster_mishaps=3, guests=1, deeds=60,
)  # fmt: skip
def _begins_to_lead_with_permits_that_it_has_forgotten(original: Any) -> Any:
    """Who has none is taken for one who never resumed."""

    def begin(self: Any, now: Micros, leader_epoch: Any) -> None:
        original(self, now, leader_epoch)
        self._has_forgotten = False

    return begin


@in_clusters(
    Housekeeping, "turn", "left_alone", shows=HALTED, checkpoint_records=15,
    checkpoint_bytes=4 << 10, segment_bytes=8 << 10, size_max=3_000, subscribers=1,
    cluster_mishaps=2, chaos_ms=15_000, deeds=200, sync_us=200,
)  # fmt: skip
def _compacts_by_what_is_only_durable(original: Any) -> Any:
    def turn(self: Any, janitor: Any, now: Micros) -> None:
        if self._ready is not None and isinstance(self._ready[0], CompactionJob):
            job, needed = self._ready
            if self._household.log.durable_serial >= needed:
                self._ready = job, 0
        original(self, janitor, now)

    return turn


@in_clusters(transactions, "_goes_on", "back_and_alone", shows=HALTED, cluster_mishaps=3)
def _takes_a_disk_that_was_set_back_for_the_one_in_sync(_: Any) -> Any:
    def goes_on(shard: Any, server: Any, directory: Any) -> bool:
        before = shard.in_sync.get(server)
        return before is not None and before.incarnation == directory.incarnation

    return goes_on


def _always(_: object) -> bool:
    return True


# Whoever is elected asks another in sync first, and would find that it has more.
beside_in_cluster(
    "takes_a_disk_that_was_set_back_for_the_one_in_sync", Leader, "_needs_nobody", _always
)
