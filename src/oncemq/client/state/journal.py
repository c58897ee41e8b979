"""What a client must not forget: its epoch, its claims, its cursors. SQLite, synced.

Laws: a cursor is on disk before its messages are handed out, and only the client that holds
the current epoch may write it: a twin on the same directory is fenced here as well. What is said
to be not written stays so: SQLite puts a commit into its file and then syncs it, and when the sync
fails it says no, but whoever opens the file after a kill finds the commit there and takes it. So
what failed that way is written again, which everything here may be, and only then is it known.

A row has a checksum of its values: SQLite itself takes a cursor for right in which a bit flipped,
and what lies below it would never be given.
"""

import sqlite3
import threading
from collections.abc import Callable, Generator, Iterable
from collections.abc import Sequence as Many
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from oncemq.client.state.endings import Ended, Endings
from oncemq.client.state.journal_schema import (
    CHECKSUMS,
    FORGET_GRANTS,
    FORMAT,
    GRANT,
    GRANTS,
    HEARD,
    LAST_NONCE,
    LEAVE,
    SETTLE,
    STRANGE,
    TABLES,
    VERIFIED,
    row_checksum,
)
from oncemq.client.state.journal_trouble import (
    BUSY_SECONDS,
    SURELY_NOT,
    code_of,
    damaged,
    trouble_of,
)
from oncemq.client.state.known import ClaimStanding, Known
from oncemq.databases.connections import never_close
from oncemq.errors import Corrupt, Fenced, StorageRefused, StorageUnsure
from oncemq.protocol.client_requests import StartGrant
from oncemq.protocol.generations import UNKNOWN
from oncemq.protocol.names import Epoch, Generation, Micros, Offset, SubscriptionId
from oncemq.protocol.replies import NO_OFFSET
from oncemq.protocol.structs import Settled
from oncemq.session.handshake import NO_LOG, LogSeen

T = TypeVar("T")

REPLACED = "a newer client with the same id uses this state; this one must stop"


class Journal:
    """The database of one client. Any thread; they wait for each other."""

    def __init__(self, directory: Path, client: str) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = directory / "state.db"
        self._synced = "FULL"
        self._turn = threading.RLock()
        self._granted = Epoch(0)  # to this process
        # SQLite gives its -wal and -shm files the rights of this one.
        self.path.touch(mode=0o600)
        self.path.chmod(0o600)
        try:
            self._db = sqlite3.connect(
                self.path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS
            )
        except sqlite3.DatabaseError as error:
            raise trouble_of(self.path, error) from error
        self._db.create_function("row_checksum", -1, row_checksum, deterministic=True)
        self._endings = Endings(self._rows, self._verify)
        try:
            self._open(directory, client)
        except BaseException:
            self._db.close()
            raise

    def _open(self, directory: Path, client: str) -> None:
        ((mode,),) = self._rows("PRAGMA journal_mode=WAL")
        # Where there is no shared memory SQLite goes on with a journal of its own, and FULL then
        # leaves the last commit to a power cut: the name of the deleted journal is not synced.
        self._synced = "FULL" if mode == "wal" else "EXTRA"
        self._rows(f"PRAGMA synchronous={self._synced}")
        self._rows("PRAGMA fullfsync=1")  # macOS: an fsync there stops at the disk's cache
        self._rows("PRAGMA checkpoint_fullfsync=1")
        ((version,),) = self._rows("PRAGMA user_version")
        if version > FORMAT:
            raise StorageRefused(
                f"the state in {directory} was written by a newer OnceMQ (format {version}); "
                f"this one knows {FORMAT}. Upgrade, or use another state directory",
                code="format_too_new",
            )
        if version < FORMAT:  # a new one, or an older one: what it has stays as it is
            with self._transaction():
                self._bring_up_to_date()
        self._endings.open()
        self._rows(GRANTS)
        if self._rows(STRANGE):
            raise damaged(self.path, "a value is not of its type")
        self._rows(
            "INSERT OR IGNORE INTO client VALUES (1, ?, 0, row_checksum(CAST(? AS BLOB), 0))",
            *(client, client),
        )
        self._verify("client")
        self._verify("log")
        ((owner,),) = self._rows("SELECT id FROM client")
        if owner != client:
            raise StorageRefused(
                f"the state in {directory} belongs to client {owner!r}, not {client!r}; "
                "give each client a state directory of its own",
                code="not_yours",
            )

    def _bring_up_to_date(self) -> None:
        """The tables of this format; a twin that started at the same moment may have made them."""
        if self._rows("PRAGMA user_version") == [(FORMAT,)]:
            return
        for statement in TABLES:
            self._rows(statement)
        for table, checksum in CHECKSUMS.items():
            self._rows(f"ALTER TABLE {table} ADD COLUMN checksum INTEGER")
            self._rows(f"UPDATE {table} SET checksum = {checksum}")
        self._rows(f"PRAGMA user_version = {FORMAT}")

    def _verify(self, table: str) -> None:
        """Every row of it is as it was written, or Corrupt."""
        if self._rows(f"SELECT 1 FROM {table} WHERE checksum IS NOT {VERIFIED[table]} LIMIT 1"):
            raise damaged(self.path, f"the checksum of a row of {table} does not hold")

    def last_epoch(self) -> Epoch:
        """The newest epoch this state has seen granted."""
        ((client_epoch,),) = self._rows("SELECT epoch FROM client")
        return Epoch(client_epoch)

    def claim(self, nonce: int) -> ClaimStanding:
        """This nonce will be sent: remember it first; what stood before, as of the same moment.

        In one transaction: a twin's grant between the reading and the claim would go unseen.
        """

        def body() -> ClaimStanding:
            self._rows("DELETE FROM claims WHERE nonce = ?", nonce)  # of the first try
            claims = self.claims()
            last = self._rows(LAST_NONCE)
            last_nonce = last[0][0] if last else 0
            standing = ClaimStanding(self.last_epoch(), claims, self.log(), last_nonce)
            self._rows("INSERT INTO claims (nonce) VALUES (?)", nonce)
            return standing

        return self._write(body)

    def granted(self, client_epoch: Epoch, claim: int, moment: Micros = UNKNOWN) -> Known:
        """The server granted this epoch: this claim, and every one before it, is settled.

        What the state knows then is of the same transaction: an older process is fenced with it,
        and a person who accepts a loss moves log and cursors together, before it or after it.
        """

        def body() -> Known:
            self._rows(
                "UPDATE client SET epoch = ?, checksum = row_checksum(CAST(id AS BLOB), ?) "
                "WHERE epoch < ?",
                *(client_epoch, client_epoch, client_epoch),
            )
            for statement in HEARD:
                self._rows(statement, claim)
            self._rows(GRANT, claim, client_epoch, moment)
            for statement in FORGET_GRANTS:
                self._rows(statement)
            return self.known()

        with self._turn:
            known = self._write(body)
            self._granted = client_epoch
            return known

    @contextmanager
    def hold(self) -> Generator[None]:
        """Nobody else is let in meanwhile, in any process: for what is kept beside this database.

        Fenced when somebody newer was.
        """
        with self._transaction():
            if self.last_epoch() != self._granted:
                raise Fenced(REPLACED)
            yield

    def known(self) -> Known:
        """All that this state knows of its server's log."""
        return Known(self.log(), self.cursors(), self.ended(), self.grants())

    def log(self) -> LogSeen:
        """The log that this state is about."""
        rows = self._rows("SELECT log_id, generation FROM log")
        return LogSeen(bytes(rows[0][0]), Generation(rows[0][1])) if rows else NO_LOG

    def know(self, log: LogSeen) -> None:
        """What this state knows is no more than the server has, in this generation of its log."""
        self._write(lambda: self._know(log))

    def _know(self, log: LogSeen) -> None:
        self._rows("INSERT OR REPLACE INTO log VALUES (1, ?, ?, row_checksum(?, ?))", *log, *log)

    def accept(
        self,
        log: LogSeen,
        cursors: Iterable[tuple[str, Offset | None]],
        again: Iterable[Settled] = (),
    ) -> None:
        """A person said so: go on with what the server has. No process may use the state now.

        The epoch begins anew, and so do the claims: this state takes its id over again, and keeps
        in mind which starts were its own. A cursor is moved to where its topic agrees, or forgotten
        with its subscription (None). `again`: of subscriptions that had ended, and are there.
        """
        moved, restored = list(cursors), list(again)

        def body() -> None:
            self._rows("UPDATE client SET epoch = 0")
            self._rows(f"UPDATE client SET checksum = {CHECKSUMS['client']}")
            for statement in (*LEAVE, *FORGET_GRANTS):
                self._rows(statement)
            for topic, cursor in moved:
                if cursor is None:
                    self._rows("DELETE FROM cursors WHERE topic = ?", topic)
                else:
                    self._rows("UPDATE cursors SET cursor = ? WHERE topic = ?", cursor, topic)
            for topic, subscription_id, cursor in map(msgspec.structs.astuple, restored):
                self._endings.is_again(subscription_id)
                if cursor != NO_OFFSET:  # of a pattern there is none
                    row = (topic, subscription_id, cursor)
                    self._rows("INSERT OR REPLACE INTO cursors VALUES (?, ?, ?, 0)", *row)
            self._rows(f"UPDATE cursors SET checksum = {CHECKSUMS['cursors']}")
            self._know(log)

        self._write(body)

    def cursors(self) -> dict[str, tuple[SubscriptionId, Offset]]:
        """Where this client stands."""
        self._verify("cursors")
        rows = self._rows("SELECT topic, subscription_id, cursor FROM cursors")
        if any(list(map(type, row)) != [str, int, int] for row in rows):
            raise damaged(self.path, "a cursor is not of its type")
        return {topic: (SubscriptionId(sub), Offset(cursor)) for topic, sub, cursor in rows}

    def settle(
        self,
        client_epoch: Epoch,
        moved: Iterable[tuple[str, SubscriptionId, Offset]],
        *,
        synced: bool = True,
        ended: Iterable[tuple[str, SubscriptionId, Offset]] = (),
    ) -> None:
        """Move cursors, all or none; only for the client that is current.

        Not `synced`, a power cut may take it, a kill not: for what another disk knows as well.
        `ended`: the same of subscriptions that ended while their messages were worked on.
        """
        if not synced:
            with self._turn:
                self._db.execute("PRAGMA synchronous=NORMAL")
                try:
                    self.settle(client_epoch, moved, ended=ended)
                finally:
                    self._db.execute(f"PRAGMA synchronous={self._synced}")
            return
        rows, over = [(*each, client_epoch) for each in moved], list(ended)

        def body() -> None:
            _all_moved(sum(self._run(SETTLE, *row)[1] for row in rows), rows)
            if over:
                _all_moved(int(self.last_epoch() == client_epoch), ["the client's own"])
                self._endings.taken(over)

        self._write(body, alone=len(rows) == 1 and not over)

    def forget(self, client_epoch: Epoch, ended: Ended) -> None:
        """The subscriptions ended. A newer client's cursors are not ours to forget: they stay."""
        gone = list(ended)
        self._write(lambda: self._endings.note(client_epoch, gone))

    def ended(self) -> tuple[Settled, ...]:
        """Subscriptions that ended, the last ones: a server that goes back has them again."""
        return self._endings.known()

    def claims(self) -> tuple[int, ...]:
        """Starts that nobody has heard of yet, oldest first."""
        return tuple(nonce for (nonce,) in self._rows("SELECT nonce FROM claims ORDER BY number"))

    def grants(self) -> tuple[StartGrant, ...]:
        """Starts of this state, oldest first; without an epoch: of branches that it has left."""
        self._verify("grants")
        rows = self._rows("SELECT nonce, epoch, moment FROM grants ORDER BY number")
        return tuple(StartGrant(nonce, Epoch(epoch), Micros(at)) for nonce, epoch, at in rows)

    def close(self) -> None:
        """Let go of the database."""
        self._db.close()

    def disown(self) -> None:
        """In a forked process: never close the connection."""
        never_close(self._db)

    # Inside

    def _write(self, body: Callable[[], T], *, alone: bool = False) -> T:
        """Carry out what writes, all or nothing; StorageUnsure when nobody knows which.

        `alone`: it is one statement, which is a transaction by itself.
        """
        try:
            if alone:
                return body()
            with self._transaction():
                return body()
        except StorageRefused as error:
            if error.__cause__ is None or code_of(error.__cause__) in SURELY_NOT:
                raise  # it came before the commit
            doubt = error
        try:
            with self._transaction():
                # A change in any case: SQLite writes no commit for values that are there already.
                self._rows("INSERT INTO claims VALUES (-1, 0)")
                self._rows("DELETE FROM claims WHERE number = -1")
                return body()
        except StorageRefused as error:
            raise StorageUnsure(
                f"{doubt.detail} It failed while it was written, and again: what this client "
                "last noted there (its epoch, messages taken, subscriptions ended) may be on the "
                "disk or not, and the next start goes by what it finds: messages that were about "
                "to be handed out may count as taken"
            ) from error

    @contextmanager
    def _transaction(self) -> Generator[None]:
        """All of it or nothing, and nothing of a twin's in between."""
        with self._turn:
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
            with self._turn:
                cursor = self._db.execute(statement, values)
                return cursor.fetchall(), cursor.rowcount
        except sqlite3.ProgrammingError:
            raise  # our mistake
        except OverflowError:  # nothing was begun; the numbers here are the server's
            raise Corrupt(
                "the server gave a number that is over 2**63, which none of ours is: nothing of "
                "it was noted. Is it a OnceMQ server?"
            ) from None
        except sqlite3.DatabaseError as error:
            raise trouble_of(self.path, error) from error


def _all_moved(changed: int, rows: Many[object]) -> None:
    if changed != len(rows):
        raise Fenced(REPLACED)
