"""Wildcards: `orders.*` is one segment more, `orders.>` everything below; who asked for which.

Laws: a name is cut at its dots; `*` stands for exactly one segment, `>` at the end for one or more.
A pattern matches no system topic. What a new topic matches is found by its segments, not by asking
every pattern.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, takewhile

import msgspec

from oncemq.protocol.names import ClientId, SubscriptionId, is_system, name_fault

ONE, REST = "*", ">"


def is_pattern(name: str) -> bool:
    """Whether a name stands for many topics."""
    if ONE not in name and REST not in name:
        return False
    return any(segment in (ONE, REST) for segment in name.split("."))


def wildcard_fault(name: str) -> str | None:
    """Why a new topic cannot have this name, or None: what looks like a pattern would mislead."""
    if ONE not in name and REST not in name:
        return None
    return (
        f"a topic cannot be named {name!r}: '*' and '>' are for subscriptions, where 'orders.*' "
        "stands for one more segment and 'orders.>' for everything below"
    )


def pattern_fault(pattern: str) -> str | None:
    """Why a pattern cannot be subscribed to, or None."""
    fault = name_fault(pattern, what="pattern")
    segments = pattern.split(".")
    if fault is None and REST in segments[:-1]:
        fault = f"in {pattern!r} something follows '>': it stands for all the rest, at the end"
    if fault is None and any(
        segment not in (ONE, REST) and (ONE in segment or REST in segment) for segment in segments
    ):
        fault = f"in {pattern!r} '*' or '>' is part of a segment: it stands for a whole one"
    return fault


def matches(pattern: str, topic: str) -> bool:
    """Whether a topic's name is one that a pattern stands for."""
    if is_system(topic):
        return False
    wanted, there = pattern.split("."), topic.split(".")
    if wanted[-1] == REST:
        if len(there) < len(wanted):
            return False
        wanted, there = wanted[:-1], there[: len(wanted) - 1]
    return len(wanted) == len(there) and all(
        each in (ONE, segment) for each, segment in zip(wanted, there, strict=True)
    )


def among(pattern: str, names: list[str]) -> list[str]:
    """The names a pattern stands for, of sorted ones; looks only where they can be."""
    segments = pattern.split(".")
    literal = list(takewhile(lambda segment: segment not in (ONE, REST), segments))
    prefix = "".join(f"{segment}." for segment in literal)
    near = takewhile(
        lambda name: name.startswith(prefix), islice(names, bisect_left(names, prefix), None)
    )
    return [name for name in near if matches(pattern, name)]


class PatternState(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """A pattern as a checkpoint keeps it."""

    client: ClientId
    pattern: str
    subscription_id: SubscriptionId


@dataclass(slots=True)
class Branch:
    """The patterns that have the same segments up to here."""

    below: dict[str, "Branch"] = field(default_factory=dict[str, "Branch"])
    clients: dict[ClientId, SubscriptionId] = field(default_factory=dict[ClientId, SubscriptionId])


class Patterns:
    """Every pattern someone subscribes to, by its segments."""

    def __init__(self) -> None:
        self._root = Branch()
        self.names: list[str] = []  # sorted: a page of them costs no sorting
        self.by_client: dict[ClientId, dict[str, SubscriptionId]] = {}
        self.count = 0
        self.bytes = 0  # of the names of their clients

    def of(self, client: ClientId) -> dict[str, SubscriptionId]:
        """A client's patterns."""
        return self.by_client.get(client, {})

    def clients(self, pattern: str) -> dict[ClientId, SubscriptionId]:
        """Who subscribes to a pattern."""
        branch = self._root
        for segment in pattern.split("."):
            if segment not in branch.below:
                return {}
            branch = branch.below[segment]
        return branch.clients

    def add(self, client: ClientId, pattern: str, subscription_id: SubscriptionId) -> None:
        """A client wants what matches, from now on."""
        branch = self._root
        for segment in pattern.split("."):
            branch = branch.below.setdefault(segment, Branch())
        if not branch.clients:
            insort(self.names, pattern)
        if client not in branch.clients:
            self.count += 1
            self.bytes += len(client.encode())
        branch.clients[client] = subscription_id
        self.by_client.setdefault(client, {})[pattern] = subscription_id

    def remove(self, client: ClientId, pattern: str) -> None:
        """No longer; a pattern that was not there changes nothing."""
        trail = [self._root]
        segments = pattern.split(".")
        for segment in segments:
            if segment not in trail[-1].below:
                return
            trail.append(trail[-1].below[segment])
        if trail[-1].clients.pop(client, None) is None:
            return
        self.count -= 1
        self.bytes -= len(client.encode())
        if not trail[-1].clients:
            self.names.remove(pattern)
        for branch, segment in zip(reversed(trail[:-1]), reversed(segments), strict=True):
            leaf = branch.below[segment]
            if not leaf.below and not leaf.clients:
                del branch.below[segment]
        mine = self.by_client[client]
        del mine[pattern]
        if not mine:
            del self.by_client[client]

    def wanting(self, topic: str) -> list[ClientId]:
        """Each client with a pattern that a topic's name matches, once."""
        if is_system(topic):
            return []
        found = dict.fromkeys(self._walk(self._root, topic.split("."), 0))
        return list(found)

    def _walk(self, branch: Branch, segments: list[str], depth: int) -> Iterator[ClientId]:
        if depth == len(segments):
            yield from branch.clients
            return
        rest = branch.below.get(REST)
        if rest is not None:
            yield from rest.clients
        for segment in (segments[depth], ONE):
            below = branch.below.get(segment)
            if below is not None:
                yield from self._walk(below, segments, depth + 1)

    def capture(self, client: ClientId) -> list[PatternState]:
        """A client's patterns as values."""
        return [PatternState(client, pattern, each) for pattern, each in self.of(client).items()]
