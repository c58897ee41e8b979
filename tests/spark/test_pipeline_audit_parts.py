"""The parts of the audit that need no Spark: what is missing at the ends, and what names what."""

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from pyspark.sql.datasource import InputPartition

from oncemq.audit.findings import FINDINGS_KEPT, Finding
from oncemq.errors import ConfigError, Unreachable
from oncemq.protocol.names import Offset
from oncemq.spark.pipelines.audits.audit import asked_for
from oncemq.spark.pipelines.audits.inputs import (
    COLUMN,
    LINES,
    PARQUET,
    TABLE,
    WrittenNotes,
    notes_of,
)
from oncemq.spark.pipelines.audits.report import (
    HolderExtent,
    JournalBounds,
    JournalCourse,
    collected,
    missing_around,
    missing_at_the_ends,
    missing_between,
)
from oncemq.spark.pipelines.audits.tables import IdsReader
from oncemq.spark.pipelines.failures import SparkFailed, failed
from tests.databases.postgres import Postgres
from tests.spark.conftest import rows_of


def brief(findings) -> list[tuple[str, int, int]]:
    return [(each.kind, each.offset, each.count) for each in findings]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (HolderExtent("s", "t", 3, 9), []),
        (HolderExtent("s", "t", 5, 9), [("gap", 3, 2)]),
        (HolderExtent("s", "t", 3, 6), [("gap", 6, 3)]),
        (HolderExtent("s", "t", 4, 8), [("gap", 3, 1), ("gap", 8, 1)]),
        (None, [("gap", 3, 6)]),
    ],
)
def test_what_a_server_says_it_has_is_there(found: HolderExtent | None, expected) -> None:
    assert brief(missing_at_the_ends(HolderExtent("s", "t", 3, 9), found)) == expected


def test_an_empty_topic_misses_nothing() -> None:
    assert brief(missing_at_the_ends(HolderExtent("s", "t", 3, 3), None)) == []


def test_what_nobody_has_between_an_archive_and_the_server_is_a_gap() -> None:
    archive, more = HolderExtent("/a", "t", 0, 40), HolderExtent("/b", "t", 20, 50)
    assert brief(missing_between([HolderExtent("s", "t", 50, 60), more, archive])) == []
    assert brief(missing_between([HolderExtent("s", "t", 55, 60), more, archive])) == [
        ("gap", 50, 5)
    ]
    assert brief(missing_between([HolderExtent("s", "other", 55, 60), archive])) == []


@pytest.mark.parametrize(
    ("course", "expected"),
    [
        (JournalCourse("j", "t", 5, 0, 3, 8), []),
        (JournalCourse("j", "t", 5, 0, 1, 8), []),
        (JournalCourse("j", "t", 3, 0, 5, 8), [("lost_prefix", 3, 2)]),
        (JournalCourse("j", "t", 3, 0, 3, 5), [("lost_tail", 6, 3)]),
        (JournalCourse("j", "t", 1, 0, 5, 5), [("lost_tail", 6, 3), ("lost_prefix", 3, 2)]),
        (JournalCourse("j", "t", 1, 0, 1, 1), [("lost_tail", 3, 6)]),
        (JournalCourse("j", "t", 1, 0, 12, 12), [("lost_prefix", 3, 6)]),
        (JournalCourse("j", "t"), [("lost_tail", 3, 6)]),
    ],
)
def test_what_a_journal_lacks_at_its_ends(course: JournalCourse, expected) -> None:
    assert brief(missing_around(JournalBounds("j", "t", 3, 9), course)) == expected


def test_all_are_counted_and_the_first_are_told() -> None:
    many = [Finding("gap", "t", Offset(n), "") for n in reversed(range(50))]
    findings = collected(many, {"gap": 50, "lost": 0})
    assert findings.counts == {"gap": 50}
    assert [each.offset for each in findings.kept] == list(range(FINDINGS_KEPT))


# ------------------------------------------------------------------ what names what


def test_a_name_is_looked_at(tmp_path: Path) -> None:
    lines, table, database = tmp_path / "a:b", tmp_path / "c.parquet", tmp_path / "d.db"
    lines.write_text('{"id": "orders@1"}\n')
    table.write_bytes(b"PAR1...")
    sqlite3.connect(database).execute("CREATE TABLE t (id TEXT)").connection.close()
    assert notes_of(str(lines)) == WrittenNotes(LINES, str(lines))
    assert notes_of(str(table)) == WrittenNotes(PARQUET, str(table))
    assert notes_of(str(tmp_path)) == WrittenNotes(PARQUET, str(tmp_path))
    assert notes_of(f"{database}:t:id") == WrittenNotes(COLUMN, str(database), "t", "id")
    assert notes_of("table:shop.done") == WrittenNotes(TABLE, "shop.done")
    assert notes_of("s3a://bucket/effects").form == PARQUET
    assert notes_of("s3a://bucket/effects.jsonl").form == LINES


def test_a_password_is_not_told() -> None:
    notes = notes_of("postgresql://me:secret@db:5432/shop:public.done:message")
    assert (notes.place, notes.table, notes.column) == (
        "postgresql://me:secret@db:5432/shop", "public.done", "message",
    )  # fmt: skip
    assert notes.name == "postgresql://me@db:5432/shop:public.done:message"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nowhere", "is not there; name JSON lines, Parquet"),
        ("postgresql://me@db:5432/shop", "URL:TABLE:COLUMN"),
        ("sqlite:///x.db:t:id", "write the path"),
    ],
)
def test_a_name_that_names_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        notes_of(text)


def test_a_database_needs_its_column(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "d.db").execute("CREATE TABLE t (id TEXT)").connection.close()
    with pytest.raises(ConfigError, match="TABLE:COLUMN"):
        notes_of(str(tmp_path / "d.db"))


def test_a_delta_table_is_not_mere_parquet(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(ConfigError, match="not all of its files count"):
        notes_of(str(tmp_path))


def test_without_a_server_there_must_be_an_archive() -> None:
    with pytest.raises(ConfigError, match="name one"):
        asked_for(["orders"], [], [], [], [], offline=True)


def test_the_topics_of_archives_are_audited_without_the_server() -> None:
    assert asked_for([], ["/a"], [], [], []).offline
    assert not asked_for(["orders"], ["/a"], [], [], []).offline
    assert asked_for(list("abcde"), [], [], [], []).name == "a, b, c and 2 more"


def test_ids_are_read_page_by_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncemq.spark.pipelines.audits.tables.PAGE", 2)
    with closing(sqlite3.connect(tmp_path / "d.db")) as database, database:
        database.execute('CREATE TABLE "odd ""name" (id TEXT)')
        rows = [("orders@2",), ("orders@0",), (None,)]
        database.executemany('INSERT INTO "odd ""name" VALUES (?)', rows)
    reader = IdsReader(str(tmp_path / "d.db"), 'odd "name', "id")
    assert rows_of(reader.read(InputPartition(0))) == [
        ("orders@2", 0, 0), ("orders@0", 0, 1), (None, 0, 2),
    ]  # fmt: skip


@pytest.mark.slow
def test_ids_of_a_table_of_postgresql(postgres: Postgres) -> None:
    schema = postgres.new_schema()
    with psycopg.connect(postgres.dsn(schema)) as connection:
        connection.execute("CREATE TABLE done (message text)")
        connection.execute("INSERT INTO done VALUES ('orders@1'), ('orders@2')")
    reader = IdsReader(postgres.url(), f"{schema}.done", "message")
    found = rows_of(reader.read(InputPartition(0)))
    assert found == [("orders@1", 0, 0), ("orders@2", 0, 1)]


# ------------------------------------------------------------------ what Spark says


def test_an_error_of_ours_is_found_in_sparks_pages() -> None:
    page = """An error occurred while calling o1.start.
: org.apache.spark.SparkException: [PYTHON_DATA_SOURCE_ERROR] Traceback (most recent call last):
  File "x.py", line 1, in f
oncemq.errors.Unreachable: no answer from tcp://127.0.0.1:1 within 2 s
\tat org.apache.spark.Something
"""
    assert isinstance(failed(RuntimeError(page)), Unreachable)
    assert failed(RuntimeError(page)).detail == "no answer from tcp://127.0.0.1:1 within 2 s"
    other = failed(RuntimeError("[PARSE_SYNTAX_ERROR] near 'SELEC'.\n== SQL ==\n…"))
    assert isinstance(other, SparkFailed)
    assert other.detail == "Spark failed: [PARSE_SYNTAX_ERROR] near 'SELEC'."
    full = page.replace("oncemq.errors.Unreachable: no answer", "OSError: no space")
    assert failed(RuntimeError(full)).detail.startswith("Spark failed: OSError: no space")
