"""What must hold whatever happens, held against everything that any replica does."""

from collections.abc import Callable, Sequence

from oncemq.protocol.names import LeaderEpoch, Serial, ServerId
from oncemq.protocol.replicas.messages import Appended, MemberMessage, Stale
from oncemq.replication.actions import LeaderAction
from simulator.replicas.replica_disk import ReplicaDisk


class Broken(Exception):
    """A law of the replicas did not hold."""


class ReplicaWitness:
    """Sees every commit, every answer and everything that is applied."""

    def __init__(
        self,
        disks: dict[ServerId, ReplicaDisk],
        in_sync: Callable[[], frozenset[ServerId]],
        holders_min: int,
    ) -> None:
        self.chains = [0]  # what is committed, by the chain value of each serial
        self.disks, self.in_sync = disks, in_sync
        self.damaged: set[ServerId] = set()  # since they came into sync
        self.set_back: set[ServerId] = set()  # of them, and what they said before may still count
        self.reads = 0  # that were answered
        self.holders_min = holders_min  # how many disks have what is committed, when it is
        self._committers: dict[LeaderEpoch, tuple[ServerId, int]] = {}

    @property
    def committed(self) -> int:
        return len(self.chains) - 1

    def commits(
        self, name: ServerId, run: int, leader_epoch: LeaderEpoch, disk: ReplicaDisk, serial: Serial
    ) -> None:
        """A leader says that everything up to there is committed."""
        committer = self._committers.setdefault(leader_epoch, (name, run))
        if committer != (name, run):
            raise Broken(f"epoch {leader_epoch} has two leaders: {committer} and {(name, run)}")
        self._is_as_committed(disk, min(serial, self.committed), f"{name} commits")
        self.chains.extend(disk.chains[self.committed + 1 : serial + 1])
        if self.committed < serial:
            raise Broken(f"{name} commits {serial}, and its log ends at {disk.last}")
        if disk.frames[serial - 1][0] != leader_epoch:
            raise Broken(f"{name} commits up to {serial}, which is of an earlier leader")
        holders = sum(self.has_all(disk) for disk in self.disks.values())
        if holders < self.holders_min:
            raise Broken(f"{name} commits {serial}, which is on {holders} disks")
        self.in_sync_have_all(f"{name} commits {serial}")

    def in_sync_have_all(self, when: str) -> None:
        """Whoever may be elected has everything."""
        for name in sorted(self.in_sync() - self.damaged):
            disk = self.disks[name]
            if not self.has_all(disk):
                raise Broken(f"{when}, and {name} is in sync and has only {disk.synced}")

    def grows(self, name: ServerId, incarnation: bytes) -> None:
        """A member comes into sync, by what this directory of it said."""
        if self.disks[name].life.incarnation == incarnation and name not in self.set_back:
            self.damaged.discard(name)
        self.in_sync_have_all(f"{name} comes into sync")

    def has_all(self, disk: ReplicaDisk) -> bool:
        """Whether everything committed is on this disk, for good."""
        return disk.synced >= self.committed and disk.agrees(self.chains)

    def has(self, name: ServerId, disk: ReplicaDisk, serial: Serial) -> None:
        """A leader is about to send what follows."""
        if serial > disk.last:
            raise Broken(f"{name} sends what follows {serial}, and its log ends at {disk.last}")

    def hears(
        self,
        name: ServerId,
        leader_epoch: LeaderEpoch,
        message: MemberMessage,
        actions: Sequence[LeaderAction],
    ) -> None:
        """A leader was told something: of what is said to another leader it does nothing."""
        if message.leader_epoch != leader_epoch and not isinstance(message, Stale) and actions:
            raise Broken(
                f"{name} leads {leader_epoch} and heeds what {message.leader_epoch} is told"
            )

    def leads(self, name: ServerId, disk: ReplicaDisk) -> None:
        """A leader is about to write, or to answer: its log has everything that was committed."""
        if not disk.agrees(self.chains):
            raise Broken(f"{name} leads without all of the {self.committed} committed records")

    def cuts(self, name: ServerId, disk: ReplicaDisk, serial: Serial) -> None:
        """A follower is about to cut what is behind."""
        behind = self.chains[serial + 1 : serial + 2]
        if behind and behind == disk.chains[serial + 1 : serial + 2]:
            raise Broken(f"{name} cuts behind {serial}, and the next record is committed")

    def applies(self, name: ServerId, disk: ReplicaDisk, serial: Serial) -> None:
        """A follower folds up to there."""
        if serial > self.committed:
            raise Broken(f"{name} applies {serial}; committed are {self.committed}")
        self._is_as_committed(disk, serial, f"{name} applies")

    def answers(self, name: ServerId, disk: ReplicaDisk, message: MemberMessage) -> None:
        """A member says something: it must be true of its disk."""
        if isinstance(message, Appended):
            if message.synced > disk.synced:
                raise Broken(f"{name} says {message.synced} is synced; {disk.synced} is")
            if message.leader_epoch != disk.promised:
                raise Broken(f"{name} answers in {message.leader_epoch} without its promise")

    def answers_read(self, name: ServerId, commit: int, committed: int) -> None:
        """A leader tells a client what there is, as of when it was asked."""
        self.reads += 1
        if commit < committed:
            raise Broken(f"{name} answers as of {commit}, when {committed} was committed elsewhere")

    def halted(self, name: ServerId, why: str) -> None:
        """No disk was damaged here, so nobody may find one that was."""
        raise Broken(f"{name} stopped: {why}")

    def _is_as_committed(self, disk: ReplicaDisk, serial: int, who: str) -> None:
        if disk.chains[serial] != self.chains[serial]:
            raise Broken(f"{who} {serial}, which is another record than the committed one")
