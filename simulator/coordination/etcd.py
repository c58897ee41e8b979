"""A model of etcd: its keys, revisions, history, leases and compaction; and times when it is away.

What it does at a moment it does at once and for everybody, as etcd's log does. That answers are
late or lost, and watches lag, is the coordinator's way to it (`simulated_coordinator`).
"""

from collections.abc import Callable, Set
from dataclasses import dataclass

from oncemq.coordination.coordinator import KeyEntry, Transact
from oncemq.coordination.etcd.rules.calls import (
    Attempt,
    Attempted,
    Call,
    CallAnswer,
    CallDone,
    Grant,
    Granted,
    HasRead,
    KeepAlive,
    Kept,
    PutLeased,
    ReadKeys,
    ReadPrefix,
    Revoke,
)
from simulator.clock import MILLISECOND, Clock

History = list[tuple[int, dict[str, KeyEntry | None]]]


@dataclass(slots=True)
class LeaseLife:
    """A lease that was granted: how long it lasts, when it ends, and its keys."""

    length: int
    ends: int
    keys: set[str]


class SimulatedEtcd:
    """All members of one etcd, seen from outside."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.entries: dict[str, KeyEntry] = {}
        self.revision = 1
        self.history: History = []
        self._compacted = 0
        self._leases: dict[int, LeaseLife] = {}
        self._granted = 0
        self._away_until = 0
        self.confirms_too_much = False  # as before 3.5.23: of a lease that ended, that it was kept
        self._watching: list[Callable[[], object]] = []

    # ------------------------------------------------------------------ faults

    @property
    def is_away(self) -> bool:
        """Nothing is answered, and nothing happens but by chance, while it has no leader."""
        return self._clock.now < self._away_until

    def go_away(self, nanoseconds: int) -> None:
        """Its leader dies, or all of it: for so long. Leases begin anew with the next leader."""
        self._away_until = self._clock.now + nanoseconds
        for lease in self._leases.values():
            lease.ends = max(lease.ends, self._away_until + lease.length)

    def compact(self) -> None:
        """The history before the newest revision is forgotten."""
        self._compacted = self.revision
        self.history = [each for each in self.history if each[0] >= self._compacted]

    def end_leases_early(self) -> None:
        """As a leader that was deposed and did not know it has done."""
        for number in list(self._leases):
            self._end(number)

    # ------------------------------------------------------------------ what it is asked

    def apply(self, call: Call) -> CallAnswer:
        """It happens now."""
        match call:
            case ReadKeys(keys):
                return HasRead(self._those(keys), self.revision)
            case ReadPrefix(prefix):
                entries = {k: entry for k, entry in self.entries.items() if k.startswith(prefix)}
                return HasRead(entries, self.revision)
            case Attempt(transaction):
                return self._attempt(transaction)
            case Grant(lease_ms):
                return self._grant(lease_ms * MILLISECOND)
            case KeepAlive(number):
                if lease := self._leases.get(number):
                    lease.ends = self._clock.now + lease.length
                return Kept(number in self._leases or self.confirms_too_much)
            case Revoke(number):
                self._end(number)
                return CallDone()
            case PutLeased(key, value, number):
                if number not in self._leases:
                    return Kept(is_there=False)
                self._take_from_leases({key})
                self._leases[number].keys.add(key)
                self._change({key: value})
                return CallDone()

    def since(self, revision: int) -> History | None:
        """All changes from a revision on; None: some are forgotten."""
        if revision < self._compacted:
            return None
        return [each for each in self.history if each[0] >= revision]

    def watch(self, on_change: Callable[[], object]) -> None:
        """Be told that something changed."""
        self._watching.append(on_change)

    def forget(self, on_change: Callable[[], object]) -> None:
        """Who watched is gone."""
        if on_change in self._watching:
            self._watching.remove(on_change)

    def _those(self, keys: tuple[str, ...]) -> dict[str, KeyEntry]:
        return {key: self.entries[key] for key in keys if key in self.entries}

    def _attempt(self, transaction: Transact) -> Attempted:
        found = self._those(tuple(transaction.expected))
        revisions = {
            key: found[key].revision if key in found else 0 for key in transaction.expected
        }
        if revisions != transaction.expected:
            return Attempted(False, found, self.revision)
        self._take_from_leases(transaction.puts.keys())
        self._change({**transaction.puts, **dict.fromkeys(transaction.deletes)})
        return Attempted(True, {}, self.revision)

    def _change(self, values: dict[str, bytes | None]) -> None:
        revision = self.revision + 1
        changes: dict[str, KeyEntry | None] = {}
        for key, value in values.items():
            if value is not None:
                changes[key] = self.entries[key] = KeyEntry(key, value, revision)
            elif self.entries.pop(key, None) is not None:
                changes[key] = None
        if changes:
            self.revision = revision
            self.history.append((revision, changes))
            for tell in self._watching:
                tell()

    def _take_from_leases(self, keys: Set[str]) -> None:
        """A put decides anew whether its key has a lease."""
        for lease in self._leases.values():
            lease.keys -= keys

    def _grant(self, length: int) -> Granted:
        self._granted += 1
        self._leases[self._granted] = LeaseLife(length, self._clock.now + length, set())
        self._look(self._granted)
        return Granted(self._granted)

    def _look(self, number: int) -> None:
        """End a lease whose time is over; look again when that may be."""
        lease = self._leases.get(number)
        if lease is None:
            return
        if self._clock.now >= lease.ends and not self.is_away:
            self._end(number)
        else:
            wait = max(lease.ends - self._clock.now, MILLISECOND)
            self._clock.after(wait, lambda: self._look(number))

    def _end(self, number: int) -> None:
        lease = self._leases.pop(number, None)
        if lease is not None:
            self._change(dict.fromkeys(sorted(lease.keys)))
