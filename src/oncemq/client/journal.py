"""What a client must not forget: its epoch, its claims, its cursors. SQLite, synced.

Law: a cursor is on disk before its messages are handed out, and only the client that holds
the current epoch may write it: a twin on the same directory is fenced here as well.
"""

import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path

from oncemq.client.state import Standing
from oncemq.core.names import Epoch, Offset, SubscriptionId
from oncemq.errors import Fenced, StorageRefused

FORMAT = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS client (
    one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, epoch INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS claims (number INTEGER PRIMARY KEY, nonce INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS cursors (
    topic TEXT PRIMARY KEY, subscription_id INTEGER NOT NULL, cursor INTEGER NOT NULL
) WITHOUT ROWID;
"""
_SETTLE = """
INSERT INTO cursors (topic, subscription_id, cursor)
SELECT ?, ?, ? WHERE (SELECT epoch FROM client) = ?
ON CONFLICT (topic) DO UPDATE
SET subscription_id = excluded.subscription_id, cursor = excluded.cursor
"""


class Journal:
    """The database of one client. Any thread, one at a time."""

    def __init__(self, directory: Path, client: str) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = directory / "state.db"
        self._db = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, timeout=10
        )
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > FORMAT:
            raise StorageRefused(
                f"the state in {directory} was written by a newer OnceMQ (format {version}); "
                f"this one knows {FORMAT}. Upgrade, or use another state directory",
                code="format_too_new",
            )
        if version == 0:
            self._db.executescript(_SCHEMA + f"PRAGMA user_version = {FORMAT};")
        self._db.execute("INSERT OR IGNORE INTO client VALUES (1, ?, 0)", (client,))
        (owner,) = self._db.execute("SELECT id FROM client").fetchone()
        if owner != client:
            raise StorageRefused(
                f"the state in {directory} belongs to client {owner!r}, not {client!r}; "
                "give each client a state directory of its own",
                code="not_yours",
            )

    def last_epoch(self) -> Epoch:
        """The newest epoch this state has seen granted."""
        return Epoch(self._db.execute("SELECT epoch FROM client").fetchone()[0])

    def claim(self, nonce: int) -> Standing:
        """This nonce will be sent: remember it first; what stood before, as of the same moment.

        In one transaction: a twin's grant between the reading and the claim would go unseen.
        """
        with self._transaction():
            rows = self._db.execute("SELECT nonce FROM claims ORDER BY number").fetchall()
            standing = Standing(self.last_epoch(), tuple(nonce for (nonce,) in rows))
            self._db.execute("INSERT INTO claims (nonce) VALUES (?)", (nonce,))
        return standing

    def granted(self, client_epoch: Epoch, claim: int) -> None:
        """The server granted this epoch: this claim, and every one before it, is settled."""
        with self._transaction():
            self._db.execute(
                "UPDATE client SET epoch = ? WHERE epoch < ?", (client_epoch, client_epoch)
            )
            self._db.execute(
                "DELETE FROM claims WHERE number <= (SELECT number FROM claims WHERE nonce = ?)",
                (claim,),
            )

    def cursors(self) -> dict[str, tuple[SubscriptionId, Offset]]:
        """Where this client stands."""
        rows = self._db.execute("SELECT topic, subscription_id, cursor FROM cursors")
        return {topic: (SubscriptionId(sub), Offset(cursor)) for topic, sub, cursor in rows}

    def settle(
        self, client_epoch: Epoch, moved: Iterable[tuple[str, SubscriptionId, Offset]]
    ) -> None:
        """Move cursors, all or none; only for the client that is current."""
        rows = [(*each, client_epoch) for each in moved]
        if len(rows) == 1:
            changed = self._db.execute(_SETTLE, rows[0]).rowcount
            _all_moved(changed, rows)
        else:
            with self._transaction():
                changed = sum(self._db.execute(_SETTLE, row).rowcount for row in rows)
                _all_moved(changed, rows)

    def forget(self, client_epoch: Epoch, topic: str) -> None:
        """The subscription ended. A newer client's cursor is not ours to forget: it stays."""
        self._db.execute(
            "DELETE FROM cursors WHERE topic = ? AND (SELECT epoch FROM client) = ?",
            (topic, client_epoch),
        )

    def close(self) -> None:
        """Let go of the database."""
        self._db.close()

    @contextmanager
    def _transaction(self) -> Generator[None]:
        """All of it or nothing, and nothing of a twin's in between."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # else the failure has ended it already
                self._db.execute("ROLLBACK")
            raise


def _all_moved(changed: int, rows: Sequence[object]) -> None:
    if changed != len(rows):
        raise Fenced("a newer client with the same id uses this state; this one must stop")
