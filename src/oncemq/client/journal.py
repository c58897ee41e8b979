"""What a client must not forget: its epoch, its claims, its cursors. SQLite, synced.

Law: a cursor is on disk before its messages are handed out, and only the client that holds
the current epoch may write it: a twin on the same directory is fenced here as well.
"""

import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oncemq.client.state import Standing
from oncemq.core.names import Epoch, Offset, SubscriptionId
from oncemq.errors import Corrupt, Fenced, Locked, StorageFull, StorageRefused

FORMAT = 1
BUSY_SECONDS = 10

_CLIENT = """
CREATE TABLE IF NOT EXISTS client (
    one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, epoch INTEGER NOT NULL
)
"""
_CLAIMS = """
CREATE TABLE IF NOT EXISTS claims (number INTEGER PRIMARY KEY, nonce INTEGER NOT NULL)
"""
_CURSORS = """
CREATE TABLE IF NOT EXISTS cursors (
    topic TEXT PRIMARY KEY, subscription_id INTEGER NOT NULL, cursor INTEGER NOT NULL
) WITHOUT ROWID
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
        try:
            self._db = sqlite3.connect(
                self.path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS
            )
        except sqlite3.DatabaseError as error:
            raise self._trouble(error) from error
        try:
            self._open(directory, client)
        except BaseException:
            self._db.close()
            raise

    def _open(self, directory: Path, client: str) -> None:
        self._rows("PRAGMA journal_mode=WAL")
        self._rows("PRAGMA synchronous=FULL")
        ((version,),) = self._rows("PRAGMA user_version")
        if version > FORMAT:
            raise StorageRefused(
                f"the state in {directory} was written by a newer OnceMQ (format {version}); "
                f"this one knows {FORMAT}. Upgrade, or use another state directory",
                code="format_too_new",
            )
        if version == 0:
            with self._transaction():
                for statement in (_CLIENT, _CLAIMS, _CURSORS, f"PRAGMA user_version = {FORMAT}"):
                    self._rows(statement)
        self._rows("INSERT OR IGNORE INTO client VALUES (1, ?, 0)", client)
        ((owner,),) = self._rows("SELECT id FROM client")
        if owner != client:
            raise StorageRefused(
                f"the state in {directory} belongs to client {owner!r}, not {client!r}; "
                "give each client a state directory of its own",
                code="not_yours",
            )

    def last_epoch(self) -> Epoch:
        """The newest epoch this state has seen granted."""
        ((client_epoch,),) = self._rows("SELECT epoch FROM client")
        return Epoch(client_epoch)

    def claim(self, nonce: int) -> Standing:
        """This nonce will be sent: remember it first; what stood before, as of the same moment.

        In one transaction: a twin's grant between the reading and the claim would go unseen.
        """
        with self._transaction():
            rows = self._rows("SELECT nonce FROM claims ORDER BY number")
            standing = Standing(self.last_epoch(), tuple(nonce for (nonce,) in rows))
            self._rows("INSERT INTO claims (nonce) VALUES (?)", nonce)
        return standing

    def granted(self, client_epoch: Epoch, claim: int) -> None:
        """The server granted this epoch: this claim, and every one before it, is settled."""
        with self._transaction():
            self._rows("UPDATE client SET epoch = ?1 WHERE epoch < ?1", client_epoch)
            self._rows(
                "DELETE FROM claims WHERE number <= (SELECT number FROM claims WHERE nonce = ?)",
                claim,
            )

    def cursors(self) -> dict[str, tuple[SubscriptionId, Offset]]:
        """Where this client stands."""
        rows = self._rows("SELECT topic, subscription_id, cursor FROM cursors")
        return {topic: (SubscriptionId(sub), Offset(cursor)) for topic, sub, cursor in rows}

    def settle(
        self,
        client_epoch: Epoch,
        moved: Iterable[tuple[str, SubscriptionId, Offset]],
        *,
        synced: bool = True,
    ) -> None:
        """Move cursors, all or none; only for the client that is current.

        Not `synced`, a power cut may take it, a kill not: for what another disk knows as well.
        """
        if not synced:
            self._db.execute("PRAGMA synchronous=NORMAL")
            try:
                self.settle(client_epoch, moved)
            finally:
                self._db.execute("PRAGMA synchronous=FULL")
            return
        rows = [(*each, client_epoch) for each in moved]
        if len(rows) == 1:
            _all_moved(self._run(_SETTLE, *rows[0])[1], rows)
        else:
            with self._transaction():
                _all_moved(sum(self._run(_SETTLE, *row)[1] for row in rows), rows)

    def forget(self, client_epoch: Epoch, topic: str) -> None:
        """The subscription ended. A newer client's cursor is not ours to forget: it stays."""
        self._rows(
            "DELETE FROM cursors WHERE topic = ? AND (SELECT epoch FROM client) = ?",
            topic,
            client_epoch,
        )

    def close(self) -> None:
        """Let go of the database."""
        self._db.close()

    # Inside

    @contextmanager
    def _transaction(self) -> Generator[None]:
        """All of it or nothing, and nothing of a twin's in between."""
        self._rows("BEGIN IMMEDIATE")
        try:
            yield
            self._rows("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # else the failure has ended it already
                self._db.execute("ROLLBACK")
            raise

    def _rows(self, statement: str, *values: object) -> list[Any]:
        """Everything a statement gives."""
        return self._run(statement, *values)[0]

    def _run(self, statement: str, *values: object) -> tuple[list[Any], int]:
        """What a statement gives, and how many rows it changed; trouble in our own words."""
        try:
            cursor = self._db.execute(statement, values)
            return cursor.fetchall(), cursor.rowcount
        except sqlite3.ProgrammingError:
            raise  # our mistake
        except sqlite3.DatabaseError as error:
            raise self._trouble(error) from error

    def _trouble(self, error: sqlite3.DatabaseError) -> StorageRefused:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of it is detail
        if code == sqlite3.SQLITE_FULL:
            return StorageFull(f"the disk of this client is full: {self.path} could not be written")
        if code == sqlite3.SQLITE_BUSY:
            return Locked(
                f"{self.path} was held by another process for more than {BUSY_SECONDS} s; "
                "end what works on this client's state, then try again"
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return Corrupt(
                f"{self.path} is damaged ({error}). Move it away, with {self.path.name}-wal and "
                f"{self.path.name}-shm, and start again: unsent puts are safe in the outbox beside "
                "it, and the server's own cursors stand in, so that what was settled after the "
                "last request comes again. Do not put a backup in its place: the server refuses it"
            )
        return StorageRefused(f"{self.path} cannot be used: {error}. Is its disk in order?")


def _all_moved(changed: int, rows: Sequence[object]) -> None:
    if changed != len(rows):
        raise Fenced("a newer client with the same id uses this state; this one must stop")
