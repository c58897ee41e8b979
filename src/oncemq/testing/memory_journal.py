"""A client's journal in memory that can be copied, as a backup would.

Law: what a call returned from is durable. It survives its process, and a twin shares it.
"""

from oncemq.client import memory_journal


class MemoryJournal(memory_journal.MemoryJournal):
    """What one client must not forget."""

    def copy(self) -> "MemoryJournal":
        """The journal as a backup taken now would have it."""
        other = MemoryJournal()
        other._client_epoch = self._client_epoch
        other._claims = list(self._claims)
        other._cursors = dict(self._cursors)
        return other
