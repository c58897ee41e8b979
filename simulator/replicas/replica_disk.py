"""One replica's directory: its log, what of it is synced, its promise, and which life it is in."""

from dataclasses import dataclass, field, replace
from random import Random

from oncemq.protocol.names import LeaderEpoch, Serial
from oncemq.protocol.replicas.leader_epochs import EpochStart, LeaderEpochs
from oncemq.protocol.replicas.messages import Life, Place

Frames = tuple[tuple[LeaderEpoch, int], ...]  # the epoch of each, and what it says


@dataclass
class ReplicaDisk:
    """What survives a crash; of `frames`, after a power cut, only what is synced for sure."""

    incarnation: int = 1
    openings: int = 0
    claim: tuple[int, int] = (0, 0)  # which opening is asked for, and the nonce it is asked with
    checkpoint: int = 0  # what is applied up to here need not be folded again
    kept_from: int = 1  # compaction joined what is before; it cannot be sent as frames
    promised: LeaderEpoch = LeaderEpoch(0)
    synced: int = 0
    frames: list[tuple[LeaderEpoch, int]] = field(default_factory=list[tuple[LeaderEpoch, int]])
    chains: list[int] = field(default_factory=lambda: [0])

    @property
    def life(self) -> Life:
        return Life(self.incarnation.to_bytes(4, "big"), self.openings)

    @property
    def last(self) -> Serial:
        return Serial(len(self.frames))

    def place(self, serial: int) -> Place:
        """Where a record stands: its chain value is of everything up to it."""
        leader_epoch = self.frames[serial - 1][0] if serial else LeaderEpoch(0)
        return Place(Serial(serial), leader_epoch, self.chains[serial])

    def starts(self, after: int = 0) -> tuple[EpochStart, ...]:
        """The epochs that begin behind `after`."""
        return tuple(
            EpochStart(leader_epoch, Serial(at + 1))
            for at, (leader_epoch, _) in enumerate(self.frames[after:], start=after)
            if leader_epoch > (self.frames[at - 1][0] if at else 0)
        )

    def table(self) -> LeaderEpochs:
        return LeaderEpochs(self.starts())

    def append(self, frames: Frames) -> None:
        for frame in frames:
            self.frames.append(frame)
            self.chains.append(hash((self.chains[-1], *frame)) & 0xFFFFFFFF)

    def sync(self) -> None:
        self.synced = len(self.frames)

    def cut_to(self, serial: int) -> None:
        del self.frames[serial:], self.chains[serial + 1 :]
        self.synced = min(self.synced, serial)

    def power_cut(self, chance: Random) -> None:
        """What was not synced is there or not, up to anywhere."""
        self.cut_to(chance.randint(self.synced, len(self.frames)))

    def copy(self) -> "ReplicaDisk":
        return replace(self, frames=self.frames[:], chains=self.chains[:])

    def renew(self, incarnation: int) -> None:
        """From now on this is another directory: what it was in sync with is not known."""
        self.incarnation, self.openings, self.claim = incarnation, 0, (0, 0)

    def empty(self) -> None:
        self.cut_to(0)
        self.checkpoint, self.kept_from = 0, 1

    def agrees(self, chains: list[int]) -> bool:
        """Whether this log begins with these records."""
        return len(chains) <= len(self.chains) and self.chains[len(chains) - 1] == chains[-1]
