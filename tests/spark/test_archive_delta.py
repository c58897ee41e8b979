"""An archive as a Delta table, through delta-rs."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from oncemq import Client, errors
from oncemq.spark.pipelines import Archived, archive, replay
from oncemq.spark.pipelines.archives.check import check
from oncemq.spark.pipelines.archives.frames import archive_frame
from oncemq.spark.pipelines.archives.place import find
from oncemq.spark.pipelines.archives.store import store_of
from tests.spark.killing import Nursery, without_spark
from tests.spark.test_archive import FOREVER, Message, put, stored
from tests.spark.test_replay import copied, expected

deltalake = pytest.importorskip("deltalake", reason="the extra `delta`")

NAMES = ["key", "value", "topic", "offset", "timestamp", "headers", "producer", "sequence"]


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def archived(address: str, to: Path) -> Iterator[Callable[..., Archived]]:
    with without_spark():
        yield lambda *topics: archive(topics, to, delta=True, server=address, timeout=20)


def seen(to: Path) -> list[Message]:
    """What a reader of the table sees."""
    if not deltalake.DeltaTable.is_deltatable(str(to)):
        return []
    table = deltalake.DeltaTable(to).to_pyarrow_table(columns=NAMES)
    rows = table.sort_by([("topic", "ascending"), ("offset", "ascending")])
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def test_a_table_has_each_message_once_and_small_files_grow(
    mq: Client, archived, to: Path, address: str
) -> None:
    mq.create_topic("refunds/ä=1", FOREVER)
    for number in range(3):
        put(mq, 10 * number, 10)
        put(mq, number, 1, "refunds/ä=1")
        assert archived("orders", "refunds/ä=1").messages == 11
    assert seen(to) == stored(mq) + stored(mq, "refunds/ä=1")
    assert len(deltalake.DeltaTable(to).file_uris()) == 2
    checked = check(to)
    assert (checked.messages, checked.files, checked.findings) == (33, 2, [])
    mq.create_topic("copy", FOREVER)
    assert replay(to, "copy", server=address, timeout=20).messages == 33
    assert copied(mq) == expected(mq, "orders", "refunds/ä=1")
    put(mq, 30, 5)
    deltalake.DeltaTable(to).optimize.compact()  # by somebody else
    assert archived("orders").messages == 5
    assert replay(to, "copy", server=address, timeout=20).messages == 5
    with pytest.raises(errors.ConfigError, match="an archive in delta"):
        archive("orders", to, server=address, timeout=20)


def test_what_others_made_of_the_table_is_read_in_order(
    mq: Client, archived, to: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncemq.spark.pipelines.archives.delta.FILE_BYTES", 1)
    for number in range(4):
        put(mq, 10 * number, 10)
        archived("orders")
    assert len(deltalake.DeltaTable(to).file_uris()) == 4
    deltalake.DeltaTable(to).optimize.compact()
    assert len(deltalake.DeltaTable(to).file_uris()) == 1
    put(mq, 40, 10)
    assert archived("orders").messages == 10
    assert seen(to) == stored(mq)
    mq.create_topic("copy", FOREVER)
    replay(to, "copy", server=address, timeout=20)
    assert copied(mq) == expected(mq, "orders")


def test_two_writers_at_once(mq: Client, archived, to: Path) -> None:
    put(mq, 0, 10)
    archived("orders")
    place = find(str(to))
    (begun,) = place.topics().values()
    slow, quick = store_of(place), store_of(place)
    for store in (slow, quick):
        store.end("orders", begun)
    put(mq, 10, 5)
    archived("orders")  # as `quick` would have done
    old = slow.tail("orders")
    assert old is not None
    hidden = place.hidden / "x.part"
    hidden.write_bytes(Path(old.path).read_bytes())
    with pytest.raises(errors.Fenced, match="this one stops"):
        slow.publish([replace(old, path=str(hidden))])
    assert seen(to) == stored(mq)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_at_any_step(mq: Client, address: str, tmp_path: Path) -> None:
    every = 1 if "ONCEMQ_EVERY_STEP" in os.environ else 13
    put(mq, 0, 30)
    nursery = Nursery()
    try:
        die, killed = 0, True
        while killed:
            to = tmp_path / str(die)
            given = {"topics": ["orders"], "delta": True, "server": address, "timeout": 20}
            killed = nursery.run("archive", die, to=str(to), **given)
            rows = seen(to)
            assert rows == stored(mq)[: len(rows)]
            nursery.run("archive", to=str(to), **given)
            assert seen(to) == stored(mq)
            assert check(to).findings == []
            die += every
    finally:
        nursery.close()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_spark_reads_the_table_without_a_jar(
    mq: Client, archived, spark: SparkSession, to: Path
) -> None:
    mq.create_topic("42", FOREVER)
    put(mq, 0, 3, "42")
    for number in (0, 30):
        put(mq, number, 30)
        archived("orders", "42")
    frame = archive_frame(spark, str(to), "offset bigint, topic string, headers map<string,string>")
    rows = sorted((row.topic, row.offset) for row in frame.collect())
    assert rows == [*(("42", n) for n in range(3)), *(("orders", n) for n in range(60))]


def test_without_delta_it_says_what_to_install(
    mq: Client, archived, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncemq.spark.pipelines.archives.store.util.find_spec", lambda _: None)
    with pytest.raises(errors.ConfigError, match=r"pip install 'oncemq\[spark,delta\]'"):
        archived("orders")
    assert not to.exists()
