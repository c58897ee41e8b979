"""What was told of a cluster's keys, and how to go on when a watch broke.

    read everything at revision R ─ tell it ─ watch from R + 1 ─ tell each change
          ▲                                        │
          │   compacted, or time to compare        │ broken: watch again from the last one told + 1
          └────────────────────────────────────────┘

Nothing is missed: etcd gives every change from a revision on, or says that it has forgotten some
(compaction), and then everything is read. Nothing is told twice: what is at or below the last
revision told is left out, whatever a member that lags or repeats sends.

Some versions of etcd lose a change of a watch (see OPERATING.md). So everything is also read from
time to time and compared; a difference is told as a `Snapshot`.

Law: a revision is told once, in order; a `Snapshot` is never older than what was told before,
unless the store itself went back (somebody put an older copy of it there).
"""

from oncemq.coordination.coordinator import (
    Changes,
    CoordinatorEvent,
    KeyEntry,
    Snapshot,
    StoreAway,
    StoreBack,
)
from oncemq.coordination.etcd.rules.calls import HasRead, ReadPrefix, WatchFrom


class Picture:
    """All keys of one prefix, as they were told."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._entries: dict[str, KeyEntry] | None = None
        self.revision = 0  # everything up to here was told
        self._must_read = True
        self.is_away = False  # no member answers

    def next(self) -> ReadPrefix | WatchFrom:
        """What is to be asked now."""
        if self._must_read:
            return ReadPrefix(self._prefix)
        return WatchFrom(self._prefix, self.revision + 1)

    def read(self, answer: HasRead) -> list[CoordinatorEvent]:
        """Everything was read; if that is news, it is told."""
        events: list[CoordinatorEvent] = []
        if self._entries != answer.entries or answer.revision < self.revision:
            events.append(Snapshot(answer.entries, answer.revision))
        if self.is_away:
            events.append(StoreBack())
        self._must_read = self.is_away = False
        self._entries, self.revision = answer.entries, answer.revision
        return events

    def changed(self, changes: dict[str, KeyEntry | None], revision: int) -> list[CoordinatorEvent]:
        """All that changed at a revision."""
        if revision <= self.revision or self._entries is None:
            return []
        self.revision = revision
        entries = dict(self._entries)
        for key, entry in changes.items():
            if entry is None:
                entries.pop(key, None)
            else:
                entries[key] = entry
        self._entries = entries
        return [Changes(changes, revision)]

    def forgotten(self) -> None:
        """Changes that were not told were compacted away: everything must be read."""
        self._must_read = True

    def compare(self) -> None:
        """It is time to read everything again, and to see whether something was lost."""
        self._must_read = True

    def unreachable(self, why: str) -> list[CoordinatorEvent]:
        """No member answers; everything is read again before it is said that one is back."""
        self._must_read = True
        if self.is_away:
            return []
        self.is_away = True
        return [StoreAway(why)]
