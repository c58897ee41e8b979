"""Whether replicas are equal: their logs, what is folded from them, and what topics keep.

Law: looking changes nothing: each disk is copied before it is opened.
"""

from collections.abc import Mapping
from random import Random

from simulator.actors.server_loop import DIRECTORY
from simulator.cluster.replica_digests import ReplicaDigest, digest_on
from simulator.machines.machine import Machine


def differences(machines: Mapping[str, Machine]) -> list[str]:
    """What is otherwise on one machine than on the first of them, in words."""
    found = {name: _digest(machine) for name, machine in machines.items()}
    (first, own), *others = found.items()
    told: list[str] = []
    for name, other in others:
        if other.tail != own.tail:
            told.append(f"the logs of {first} and {name} end with {own.tail} and {other.tail}")
        elif other.state != own.state:
            told.append(f"{first} and {name} fold the same log to states that differ")
        told += _of_messages(first, own, name, other)
    return told


def _of_messages(first: str, own: ReplicaDigest, name: str, other: ReplicaDigest) -> list[str]:
    topics = sorted(own.messages.keys() | other.messages.keys())
    return [
        f"{first} keeps of {topic} {own.messages.get(topic)}, {name} {other.messages.get(topic)}"
        for topic in topics
        if own.messages.get(topic) != other.messages.get(topic)
    ]


def _digest(machine: Machine) -> ReplicaDigest:
    return digest_on(machine.copy(Random(0)).disk, DIRECTORY)
