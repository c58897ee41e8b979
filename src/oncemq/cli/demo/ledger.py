"""The demo's own database: what took effect, and how far it got, in one transaction.

Law: a row and the cursor that covers it commit together or not at all. The table has no unique
key on purpose: nothing but the cursor stands between a redelivery and a second row.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from oncemq import Message

_SCHEMA = """
CREATE TABLE IF NOT EXISTS effects (
    id TEXT NOT NULL, publisher TEXT NOT NULL, number INTEGER NOT NULL, payload BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS progress (
    one INTEGER PRIMARY KEY CHECK (one = 1), cursor INTEGER NOT NULL, dropped INTEGER NOT NULL
);
INSERT OR IGNORE INTO progress VALUES (1, 0, 0);
"""


class Order(msgspec.Struct, frozen=True):
    """What the demo's publishers put."""

    publisher: str
    number: int
    cents: int


encode_order = msgspec.json.Encoder().encode
decode_order = msgspec.json.Decoder(Order).decode


class DemoLedger:
    """The SQLite database of the demo's subscriber."""

    def __init__(self, path: Path, *, forgetful: bool = False) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, timeout=10)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(_SCHEMA)
        self._forgetful = forgetful

    @property
    def cursor(self) -> int:
        """The next offset that may take effect."""
        return self._db.execute("SELECT cursor FROM progress").fetchone()[0]

    @property
    def dropped(self) -> int:
        """Messages that came again after a crash, and had taken effect."""
        return self._db.execute("SELECT dropped FROM progress").fetchone()[0]

    @property
    def rows(self) -> int:
        """How many effects there are."""
        # Rows are only ever added: the highest rowid is the count, at no cost.
        return self._db.execute("SELECT coalesce(max(rowid), 0) FROM effects").fetchone()[0]

    def apply(self, messages: "Sequence[Message]") -> None:
        """Let each message take effect that has not: rows and cursor in one transaction."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            cursor = 0 if self._forgetful else self.cursor
            new = [message for message in messages if message.offset >= cursor]
            self.insert(new)
            self._db.execute(
                "UPDATE progress SET cursor = ?, dropped = dropped + ?",
                (max(cursor, messages[-1].offset + 1), len(messages) - len(new)),
            )
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    @property
    def connection(self) -> sqlite3.Connection:
        """For `consume(into=)`, which has a cursor and a transaction of its own."""
        return self._db

    def insert(self, messages: "Sequence[Message]") -> None:
        """Their rows, in the transaction that is open."""
        for message in messages:
            order = decode_order(message.payload)
            row = (message.id, order.publisher, order.number, message.payload)
            self._db.execute("INSERT INTO effects VALUES (?, ?, ?, ?)", row)

    def effects(self) -> Iterator[tuple[str, bytes]]:
        """Each effect's message id and payload, in the order they took place."""
        return self._db.execute("SELECT id, payload FROM effects ORDER BY rowid")

    def numbers(self) -> dict[tuple[str, int], int]:
        """How many rows each order of each publisher has."""
        query = "SELECT publisher, number, count(*) FROM effects GROUP BY publisher, number"
        return {(publisher, number): count for publisher, number, count in self._db.execute(query)}

    def close(self) -> None:
        """Let go of the database."""
        self._db.close()
