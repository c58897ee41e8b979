# pyright: basic
# pyarrow carries no types.
"""What every way to keep an archive's files does: plain Parquet, and a Delta table."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from oncemq.errors import Fenced

pa = pytest.importorskip("pyarrow", reason="the extra `spark`")
pytest.importorskip("pyspark", reason="the extra `spark`")
pytest.importorskip("deltalake", reason="the extra `delta`")

import pyarrow.parquet as pq  # noqa: E402
from pyspark.sql.pandas.types import to_arrow_schema  # noqa: E402

from oncemq.spark.pipelines.archives import delta, parquet  # noqa: E402
from oncemq.spark.pipelines.archives.delta import DeltaStore  # noqa: E402
from oncemq.spark.pipelines.archives.files import ArchivedPiece  # noqa: E402
from oncemq.spark.pipelines.archives.parquet import ParquetStore  # noqa: E402
from oncemq.spark.pipelines.archives.place import ArchivePlace, Begun, make  # noqa: E402
from oncemq.spark.pipelines.archives.stock import Stock, rows_of  # noqa: E402
from oncemq.spark.pipelines.archives.store import Store, store_of  # noqa: E402
from oncemq.spark.pipelines.archives.tasks import SCHEMA  # noqa: E402

KINDS = {"parquet": ParquetStore, "delta": DeltaStore}
ORDERS, REFUNDS = Begun(7, 40), Begun(8, 0)
DAY = datetime(2026, 1, 31, tzinfo=UTC)


@pytest.fixture(params=list(KINDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> ArchivePlace:
    place = make(str(tmp_path / "archive"), request.param)
    place.lock()
    return place


@pytest.fixture
def opened(place: ArchivePlace) -> Callable[[], Store]:
    """Another process's view of the archive."""

    def opened() -> Store:
        store = store_of(place)
        assert type(store) is KINDS[place.format]
        return store

    return opened


def piece(
    place: ArchivePlace, start: int, stop: int, *, topic: str = "orders", day: str = "2026-01-31"
) -> ArchivedPiece:
    """A hidden file with the messages from `start` up to `stop`."""
    begun = ORDERS if topic == "orders" else REFUNDS
    offsets = range(start, stop)
    columns = {
        "key": [None] * len(offsets),
        "value": [b"%d" % offset for offset in offsets],
        "offset": list(offsets),
        "timestamp": [DAY] * len(offsets),
        "headers": [None] * len(offsets),
        "producer": [b"p" * 16] * len(offsets),
        "sequence": [offset + 1 for offset in offsets],
    }
    path = place.hidden / f"{topic}-{start}-{stop}.part"
    pq.write_table(pa.table(columns, schema=to_arrow_schema(SCHEMA, timezone="UTC")), path)
    return ArchivedPiece(topic, begun.id, day, start, stop - start, path.stat().st_size, str(path))


def values(stock: Stock) -> list[bytes]:
    """All messages that a reader finds by it."""
    files = stock.within(stock.start, stock.stop)
    return rows_of(stock.topic, files, stock.start, stock.stop)["value"].to_pylist()


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


def test_a_new_archive_has_nothing(opened: Callable[[], Store]) -> None:
    store = opened()
    assert store.stock("orders", ORDERS) == Stock("orders", 7, 40, 40, (), 0)
    assert (store.end("orders", ORDERS), store.tail("orders")) == (40, None)
    assert store.stock("orders", ORDERS) == Stock("orders", 7, 40, 40, (), 0)


def test_what_is_hidden_is_seen_by_nobody(place: ArchivePlace, opened: Callable[[], Store]) -> None:
    opened().end("orders", ORDERS)
    piece(place, 40, 45)
    assert opened().end("orders", ORDERS) == 40
    assert opened().stock("orders", ORDERS).files == ()


def test_what_is_published_is_seen_by_everybody(
    place: ArchivePlace, opened: Callable[[], Store]
) -> None:
    store = opened()
    store.end("orders", ORDERS)
    store.publish([piece(place, 40, 45)])
    for each in (store, opened()):
        assert each.end("orders", ORDERS) == 45
        stock = each.stock("orders", ORDERS)
        assert (stock.start, stock.stop, len(stock.files)) == (40, 45, 1)
        assert values(stock) == numbers(40, 45)
    assert list(place.hidden.iterdir()) == []


def test_days_and_topics_are_published_together_and_kept_apart(
    place: ArchivePlace, opened: Callable[[], Store]
) -> None:
    store = opened()
    assert (store.end("orders", ORDERS), store.end("refunds", REFUNDS)) == (40, 0)
    store.publish(
        [
            piece(place, 40, 43),
            piece(place, 43, 45, day="2026-02-01"),
            piece(place, 0, 2, topic="refunds"),
        ]
    )
    orders, refunds = opened().stock("orders", ORDERS), opened().stock("refunds", REFUNDS)
    assert [(each.start, each.stop) for each in orders.files] == [(40, 43), (43, 45)]
    assert (values(orders), values(refunds)) == (numbers(40, 45), numbers(0, 2))
    assert [len(orders.within(*part)) for part in ((40, 41), (42, 44), (45, 50))] == [1, 2, 0]


def test_a_small_last_file_grows_and_its_messages_stay_once(
    place: ArchivePlace, opened: Callable[[], Store]
) -> None:
    store = opened()
    store.end("orders", ORDERS)
    store.publish([piece(place, 40, 43), piece(place, 43, 45, day="2026-02-01")])
    for writer, stop in ((store, 47), (opened(), 50)):  # also by the next process
        writer.end("orders", ORDERS)
        tail = writer.tail("orders")
        assert tail is not None
        assert (tail.start, tail.day, Path(tail.path).is_file()) == (43, "2026-02-01", True)
        writer.publish([piece(place, 43, stop, day="2026-02-01")])
    stock = opened().stock("orders", ORDERS)
    assert [(each.start, each.stop) for each in stock.files] == [(40, 43), (43, 50)]
    assert values(stock) == numbers(40, 50)


def test_a_large_last_file_grows_no_more(
    place: ArchivePlace, opened: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (parquet, delta):
        monkeypatch.setattr(module, "FILE_BYTES", 1)
    store = opened()
    store.end("orders", ORDERS)
    store.publish([piece(place, 40, 43)])
    assert store.tail("orders") is None
    again = opened()
    assert (again.end("orders", ORDERS), again.tail("orders")) == (43, None)
    again.publish([piece(place, 43, 44)])
    assert values(opened().stock("orders", ORDERS)) == numbers(40, 44)


def test_of_two_writers_the_second_is_fenced_and_nothing_is_there_twice(
    place: ArchivePlace, opened: Callable[[], Store]
) -> None:
    first, second = opened(), opened()
    assert (first.end("orders", ORDERS), second.end("orders", ORDERS)) == (40, 40)
    first.publish([piece(place, 40, 45)])
    with pytest.raises(Fenced):
        second.publish([piece(place, 40, 43)])
    assert values(opened().stock("orders", ORDERS)) == numbers(40, 45)
