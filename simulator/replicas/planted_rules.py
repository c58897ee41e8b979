"""Rules of the replicas broken on purpose, each of which the world must catch."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from oncemq.protocol.names import LeaderEpoch, Micros, Serial, ServerId
from oncemq.protocol.replicas.leader_epochs import LeaderEpochs
from oncemq.protocol.replicas.messages import Append, Cut
from oncemq.replication.actions import PromiseEpoch, Reopen
from oncemq.replication.follower import Follower
from oncemq.replication.in_sync_changes import InSyncChanges
from oncemq.replication.in_sync_set import InSyncSet
from oncemq.replication.leader import Leader
from oncemq.replication.member import Member
from oncemq.replication.remote_member import RemoteMember
from oncemq.replication.view import Shrink
from simulator.planted.plant import Make, Plant, standing_in
from simulator.replicas.model_coordinator import ModelCoordinator

BROKEN_RULES: dict[str, Plant] = {}


def broken(owner: Any, name: str, *beside: tuple[Any, str, Make]) -> Callable[[Make], Make]:
    """The decorated function makes what stands in for `owner.name`; `beside`, what else does."""

    def plant(make: Make) -> Make:
        @contextmanager
        def planted() -> Generator[None]:
            with standing_in(owner, name, make):
                if not beside:
                    yield
                    return
                with standing_in(*beside[0]):
                    yield

        BROKEN_RULES[make.__name__.strip("_")] = planted
        return make

    return plant


def _always(_: Any) -> Any:
    def yes(*_: Any) -> bool:
        return True

    return yes


def _always_property(_: Any) -> Any:
    return property(lambda _: True)


# ------------------------------------------------------------------ the leader's


@broken(Leader, "_round_of")
def _answers_without_asking_whether_it_leads(_: Any) -> Any:
    def round_of(self: Any, _: Any) -> Any:
        return self.rounds.newest

    return round_of


@broken(Follower, "has_promised")
def _confirms_a_leader_after_a_promise_to_another(_: Any) -> Any:
    def has_promised(self: Any, leader_epoch: LeaderEpoch) -> None:
        self.promised, self._is_matched = leader_epoch, True

    return has_promised


@broken(InSyncSet, "counted")
def _commits_before_the_proposed_member(_: Any) -> Any:
    return property(lambda self: self.view.in_sync)


@broken(InSyncSet, "counted")
def _takes_a_shrink_that_was_asked_for_done(original: Any) -> Any:
    def counted(self: Any) -> frozenset[str]:
        pending = self._pending
        leaving = pending.members if isinstance(pending, Shrink) else frozenset[str]()
        return original.fget(self) - leaving

    return property(counted)


@broken(Leader, "_is_of_this_epoch")
def _commits_what_earlier_leaders_left(_: Any) -> Any:
    return _always(_)


@broken(Leader, "_is_mine")
def _counts_answers_to_an_earlier_leader(_: Any) -> Any:
    return _always(_)


@broken(Leader, "_synced_of")
def _counts_its_own_unsynced_records(original: Any) -> Any:
    def synced_of(self: Any, member: ServerId) -> Serial:
        return self.last if member == self._me else original(self, member)

    return synced_of


@broken(InSyncSet, "is_enough", (InSyncSet, "allows_without", _always))
def _goes_on_with_too_few(_: Any) -> Any:
    return _always_property(_)


@broken(InSyncChanges, "_proposed")
def _expands_before_the_member_caught_up(original: Any) -> Any:
    def proposed(self: Any, remote: Any, now: Micros, everything: Serial) -> Any:
        return original(self, remote, now, Serial(0))

    return proposed


@broken(Leader, "_wanted")
def _takes_what_it_knows_committed_for_everything(original: Any) -> Any:
    def wanted(self: Any, now: Micros) -> Any:
        begin, self._begin = self._begin, Serial(0)
        ask = original(self, now)
        self._begin = begin
        return ask

    return wanted


@broken(Leader, "_needs_nobody")
def _begins_without_asking_anybody(_: Any) -> Any:
    return _always(_)


@broken(InSyncChanges, "_is_cut_off")
def _goes_on_though_it_hears_nobody(_: Any) -> Any:
    def is_cut_off(*_: Any) -> bool:
        return False

    return is_cut_off


@broken(RemoteMember, "lost", (InSyncSet, "holds", _always))
def _counts_what_an_emptied_disk_had(_: Any) -> Any:
    def lost(self: RemoteMember) -> None:
        self.probe(Serial(0))

    return lost


@broken(Leader, "_is_longer")
def _begins_though_another_has_more(_: Any) -> Any:
    def is_longer(*_: Any) -> bool:
        return False

    return is_longer


@broken(LeaderEpochs, "parting")
def _compares_lengths_and_not_epochs(_: Any) -> Any:
    def parting(self: Any, last: Serial, other: LeaderEpochs, other_last: Serial) -> Serial:
        return min(last, other_last)

    return parting


# ------------------------------------------------------------------ the follower's


@broken(Follower, "_heed")
def _promises_in_memory_only(_: Any) -> Any:
    def heed(self: Follower, leader_epoch: LeaderEpoch) -> Any:
        self.has_promised(leader_epoch)
        return []

    return heed


@broken(Follower, "_appended")
def _acknowledges_before_the_sync(original: Any) -> Any:
    def appended(self: Any) -> Any:
        synced, self._synced = self._synced, self.tail.serial
        answer = original(self)
        self._synced = synced
        return answer

    return appended


@broken(Follower, "append")
def _truncates_by_its_commit(original: Any) -> Any:
    def append(self: Any, message: Append, *frames: Any, has_room: bool) -> Any:
        if message.leader_epoch > self.promised and self.commit < self.tail.serial:
            return [PromiseEpoch(message.leader_epoch), Reopen(self.commit)]
        return original(self, message, *frames, has_room=has_room)

    return append


@broken(Follower, "_committed")
def _applies_before_the_commit(_: Any) -> Any:
    def committed(self: Follower, commit: Serial) -> Serial:
        return self.tail.serial

    return committed


@broken(Follower, "append")
def _follows_a_lower_epoch(original: Any) -> Any:
    def append(self: Any, message: Append, *frames: Any, has_room: bool) -> Any:
        self.promised = min(self.promised, message.leader_epoch)
        return original(self, message, *frames, has_room=has_room)

    return append


@broken(Follower, "has_promised")
def _acknowledges_in_an_epoch_it_did_not_match(_: Any) -> Any:
    def has_promised(self: Any, leader_epoch: LeaderEpoch) -> None:
        self.promised = max(self.promised, leader_epoch)

    return has_promised


@broken(Follower, "cut")
def _cuts_at_a_late_copy(_: Any) -> Any:
    def cut(self: Any, message: Cut) -> Any:
        if message.leader_epoch < self.promised or message.serial >= self.tail.serial:
            return []
        return [Reopen(message.serial)]

    return cut


@broken(LeaderEpochs, "parting")
def _cuts_more_than_it_must(original: Any) -> Any:
    def parting(self: Any, *logs: Any) -> Serial:
        return Serial(max(0, original(self, *logs) - 3))

    return parting


# ------------------------------------------------------------------ the candidate's


@broken(Member, "is_whole")
def _stands_though_it_is_not_in_sync(_: Any) -> Any:
    return property(lambda self: self._view is not None)


@broken(Member, "is_whole", (Leader, "_needs_nobody", _always))
def _stands_with_an_emptied_directory(_: Any) -> Any:
    return property(lambda self: self._view is not None and self._me in self._view.in_sync)


@broken(ModelCoordinator, "knows", (Leader, "_needs_nobody", _always))
def _takes_an_older_directory_for_the_newest(_: Any) -> Any:
    return _always(_)


@broken(Member, "tick")
def _leads_an_epoch_again(original: Any) -> Any:
    def tick(self: Any, promised: LeaderEpoch, now: Micros) -> Any:
        return original(self, LeaderEpoch(promised - 1), now)

    return tick
