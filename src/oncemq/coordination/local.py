"""A coordinator in memory: of a server that is alone, or of several in one process."""

import threading
from collections import deque

from oncemq.coordination.coordinator import (
    Answered,
    Changes,
    CoordinatorEvent,
    Found,
    Happened,
    KeyEntry,
    Outcome,
    Overtaken,
    ReadEntries,
    Request,
    Ring,
    Snapshot,
    Transact,
)


class LocalStore:
    """What several local coordinators have in common; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._entries: dict[str, KeyEntry] = {}
        self._revision = 0
        self._members: list[LocalCoordinator] = []

    def coordinator(self, prefix: str, ring: Ring) -> "LocalCoordinator":
        """One more that uses this store, and hears of the keys that begin so."""
        made = LocalCoordinator(self, prefix, ring)
        with self._lock:
            self._members.append(made)
            entries = {key: entry for key, entry in self._entries.items() if key.startswith(prefix)}
            made.hear(Snapshot(entries, self._revision))
        return made

    def leave(self, member: "LocalCoordinator", announced: set[str]) -> None:
        """It is closed: what it announced is gone."""
        with self._lock:
            if member in self._members:
                self._members.remove(member)
                self._change(dict.fromkeys(announced))

    def decide(self, request: Request) -> Outcome:
        """What becomes of a request, at once."""
        with self._lock:
            if isinstance(request, ReadEntries):
                return Found(self._those(request.keys), self._revision)
            return self._transact(request)

    def put(self, key: str, value: bytes) -> None:
        """Without any condition: for what is announced."""
        with self._lock:
            self._change({key: value})

    def _transact(self, request: Transact) -> Outcome:
        found = self._those(tuple(request.expected))
        revisions = {key: found[key].revision if key in found else 0 for key in request.expected}
        if revisions != request.expected:
            return Overtaken(found)
        self._change({**request.puts, **dict.fromkeys(request.deletes)})
        return Happened(self._revision)

    def _those(self, keys: tuple[str, ...]) -> dict[str, KeyEntry]:
        return {key: self._entries[key] for key in keys if key in self._entries}

    def _change(self, values: dict[str, bytes | None]) -> None:
        revision = self._revision + 1
        changes: dict[str, KeyEntry | None] = {}
        for key, value in values.items():
            if value is not None:
                changes[key] = self._entries[key] = KeyEntry(key, value, revision)
            elif self._entries.pop(key, None) is not None:
                changes[key] = None
        if changes:
            self._revision = revision
            for member in self._members:
                member.changed(changes, revision)


class LocalCoordinator:
    """The port over a `LocalStore`; made by `LocalStore.coordinator`."""

    def __init__(self, store: LocalStore, prefix: str, ring: Ring) -> None:
        self._store = store
        self._prefix = prefix
        self._ring = ring
        self._events: deque[CoordinatorEvent] = deque()
        self._announced: set[str] = set()

    def ask(self, request: Request, token: int) -> None:
        self.hear(Answered(token, self._store.decide(request)))

    def announce(self, key: str, value: bytes) -> None:
        self._announced.add(key)
        self._store.put(key, value)

    def take(self) -> list[CoordinatorEvent]:
        return [self._events.popleft() for _ in range(len(self._events))]

    def close(self) -> None:
        self._store.leave(self, self._announced)

    def hear(self, event: CoordinatorEvent) -> None:
        """It happened; the owner takes it when it likes."""
        self._events.append(event)
        self._ring()

    def changed(self, changes: dict[str, KeyEntry | None], revision: int) -> None:
        """Keys of the store changed; of interest are those of this cluster."""
        mine = {key: entry for key, entry in changes.items() if key.startswith(self._prefix)}
        if mine:
            self.hear(Changes(mine, revision))
