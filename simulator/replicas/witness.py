"""What must hold whatever happens, held against everything that any replica does."""

from collections.abc import Callable

from oncemq.protocol.names import LeaderEpoch, Serial, ServerId
from oncemq.protocol.replication_messages import Appended, MemberMessage
from simulator.replicas.replica_disk import ReplicaDisk


class Broken(Exception):
    """A law of the replicas did not hold."""


class ReplicaWitness:
    """Sees every commit, every answer and everything that is applied."""

    def __init__(self) -> None:
        self.chains = [0]  # what is committed, by the chain value of each serial
        self.acknowledged = 0  # to clients: all up to here
        self.stores: Callable[[], list[ReplicaDisk]] = list
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
        holders = sum(disk.synced >= serial and disk.agrees(self.chains) for disk in self.stores())
        if holders < 1:
            raise Broken(f"{serial} is committed and on no disk")

    def serves(self, name: ServerId, disk: ReplicaDisk) -> None:
        """A new leader is about to answer: its log has everything that was acknowledged."""
        if not disk.agrees(self.chains):
            raise Broken(f"{name} serves without all of the {self.committed} committed records")

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
            if message.leader_epoch > disk.promised:
                raise Broken(f"{name} answers in {message.leader_epoch} without a promise")

    def halted(self, name: ServerId, why: str) -> None:
        """No disk was damaged here, so nobody may find one that was."""
        raise Broken(f"{name} stopped: {why}")

    def _is_as_committed(self, disk: ReplicaDisk, serial: int, who: str) -> None:
        if disk.chains[serial] != self.chains[serial]:
            raise Broken(f"{who} {serial}, which is another record than the committed one")
