"""The shop's database."""

import sqlite3
from pathlib import Path

import oncemq

TABLES = """
CREATE TABLE IF NOT EXISTS stock (product TEXT PRIMARY KEY, cups INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS orders (number INTEGER, guest TEXT, product TEXT, cups INTEGER);
CREATE TABLE IF NOT EXISTS mails (key TEXT PRIMARY KEY, guest TEXT, text TEXT);
INSERT OR IGNORE INTO stock VALUES ('espresso', 1000), ('tea', 1000);
"""


def connect(path: Path) -> sqlite3.Connection:
    """A connection of one's own."""
    return sqlite3.connect(path, timeout=30)


def create(path: Path) -> None:
    """The tables, and the outbox beside them."""
    connection = connect(path)
    try:
        connection.execute("PRAGMA journal_mode = WAL")  # readers and the writer do not wait
        connection.executescript(TABLES)
        oncemq.outbox(connection).create()
    finally:
        connection.close()
