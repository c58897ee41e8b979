"""What a client says when its state database cannot be used: SQLite's codes in our own words."""

import sqlite3
from pathlib import Path

from oncemq.errors import Corrupt, Locked, StorageFull, StorageRefused

BUSY_SECONDS = 10
# What SQLite says before it has written a commit: nothing of it is on the disk.
SURELY_NOT = (
    sqlite3.SQLITE_ERROR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB,
)  # fmt: skip

# What SQLite says of an exception in `row_checksum`; which one it was it does not keep.
OURS_RAISED = "user-defined function raised exception"


def trouble_of(path: Path, error: sqlite3.DatabaseError) -> StorageRefused:
    """What happened, and what to do about it."""
    code = code_of(error)
    if code == sqlite3.SQLITE_FULL:
        return StorageFull(f"the disk of this client is full: {path} could not be written")
    if code == sqlite3.SQLITE_BUSY:
        return Locked(
            f"{path} was held by another process for more than {BUSY_SECONDS} s; "
            "end what works on this client's state, then try again"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return damaged(path, error)
    if str(error) == OURS_RAISED:
        return StorageRefused(
            f"{path} was left as it was: something was raised in this process (by a "
            "signal handler, or for want of memory) while it was used; its disk is in order",
            code="interrupted",
        )
    return StorageRefused(f"{path} cannot be used: {error}. Is its disk in order?")


def damaged(path: Path, what: object) -> Corrupt:
    """The database is not what was written."""
    return Corrupt(
        f"{path} is damaged ({what}). Move it away, with {path.name}-wal and "
        f"{path.name}-shm, and start again: unsent puts are safe in the outbox beside "
        "it, and the server's own cursors stand in, so that what was settled after the "
        "last request comes again. Do not put a backup in its place: the server refuses it"
    )


def code_of(error: BaseException | None) -> int:
    """What kind of trouble SQLite has; the rest of its code is detail."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
