"""What a replica's process has around it, and what is on its way to others."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from oncemq.protocol.names import Micros, Serial, ServerId
from oncemq.protocol.replicas.messages import LeaderMessage, MemberMessage
from oncemq.replication.view import Ask, ReplicationLimits
from simulator.replicas.model_coordinator import Claim
from simulator.replicas.replica_disk import Frames, ReplicaDisk
from simulator.replicas.witness import ReplicaWitness


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message on its way, with the frames beside it."""

    source: ServerId
    to: ServerId
    message: LeaderMessage | MemberMessage
    frames: Frames = ()


@dataclass(frozen=True, slots=True)
class AskUnderWay:
    """A transaction on its way to the coordinator."""

    server: ServerId
    run: int
    what: tuple[Ask, int] | Claim


@dataclass
class Surroundings:
    """What a process has around it: the network, the way to the coordinator, whoever watches."""

    witness: ReplicaWitness
    limits: ReplicationLimits
    new_incarnation: Callable[[], int]
    messages: deque[Envelope] = field(default_factory=deque[Envelope])
    asks: list[AskUnderWay] = field(default_factory=list[AskUnderWay])
    now: Micros = Micros(0)


def claim_of(disk: ReplicaDisk) -> Claim:
    """What a server asks the coordinator before it opens this directory."""
    return Claim(disk.incarnation, disk.openings, disk.claim[1])


@dataclass(frozen=True, slots=True)
class OpenRead:
    """A client asked what there is: what may be answered once the round is confirmed."""

    round: int
    commit: Serial
    committed: int  # anywhere, when it asked


class Killed(Exception):
    """The process ends between two actions."""
