"""A query whose server went back in time: data loss said by name, as failOnDataLoss has it."""

import shutil
from pathlib import Path

import pytest

from oncemq import Client, testing
from oncemq.protocol.records import Retention
from oncemq.spark.options.reader import source_options
from oncemq.spark.source.data_loss import DataLost
from oncemq.spark.source.stream_reader import StreamReader
from oncemq.storage.disk import LocalDisk
from oncemq.storage.segments.layout import raise_generation
from tests.spark.conftest import BRIEF
from tests.spark.test_stream_reader import Query, offsets


def reader(address: str, **options: str) -> StreamReader:
    given = {"server": address, "timeout": "20", "subscribe": "orders", **options}
    return StreamReader(source_options(given, streaming=True), BRIEF)


def put(address: str, *payloads: bytes) -> None:
    with Client(address, timeout=20) as mq:
        mq.create_topic("orders", Retention(forever=True))
        mq.put_many("orders", payloads)


def restore(copy: Path, data: Path, name: int) -> None:
    """Go on from the copy, in a generation of this name."""
    shutil.rmtree(data)
    shutil.copytree(copy, data)
    raise_generation(LocalDisk(), str(data), lambda count: bytes([name] * count))


def test_a_query_that_read_more_than_the_server_has_fails_by_name_or_reads_anew(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with testing.server(data) as address:
        put(address, b"0", b"1")
    shutil.copytree(data, tmp_path / "copy")
    with testing.server(data) as address:
        put(address, b"2", b"3")
        query = Query(reader(address, startingOffsets="earliest"))
        assert offsets(query.everything()) == [0, 1, 2, 3]
        assert "generation" not in query.checkpoint[-1]  # as it was before there were any
        query.reader.stop()
    initial, checkpoint = query.initial, query.checkpoint
    restore(tmp_path / "copy", data, 7)
    with testing.server(data) as address:
        put(address, b"x", b"y", b"z", b"!")
        query = Query(reader(address), checkpoint)
        with pytest.raises(DataLost, match=r"offsets 2 up to 4 of 'orders'.*are lost"):
            query.plan()
        query.initial = initial
        with pytest.raises(DataLost, match="went back in time"):
            query.run()  # the last batch again, as after a crash
        query.reader.stop()
        query = Query(reader(address, failOnDataLoss="false"), checkpoint)
        assert offsets(query.everything()) == [2, 3, 4, 5]
        assert '"generation": 17237767' in query.checkpoint[-1]
        query.reader.stop()
        fresh = Query(reader(address, startingOffsets="latest"))
        assert offsets(fresh.everything()) == []
        fresh.reader.stop()


@pytest.mark.parametrize("names", [(9, 5), (5, 9)])
def test_a_query_of_another_branch_of_history_fails_by_name_or_reads_all_that_is_held(
    tmp_path: Path, names: tuple[int, int]
) -> None:
    """One copy is gone back to twice, whichever of the two generations has the higher number."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    with testing.server(data) as address:
        put(address, b"0", b"1")
    shutil.copytree(data, copy)
    restore(copy, data, names[0])
    with testing.server(data) as address:
        put(address, b"first", b"first")
        query = Query(reader(address, startingOffsets="earliest"))
        assert offsets(query.everything()) == [0, 1, 2, 3]
        query.reader.stop()
    initial, checkpoint = query.initial, query.checkpoint
    restore(copy, data, names[1])
    with testing.server(data) as address:
        put(address, *[b"second"] * 4)  # beyond where the query stands
        query = Query(reader(address), checkpoint)
        with pytest.raises(DataLost, match=r"offsets 0 up to 4 of 'orders'.*nobody can say"):
            query.plan()
        query.initial = initial
        with pytest.raises(DataLost, match="nobody can say"):
            query.run()  # the last batch again, as after a crash
        query.reader.stop()
        query = Query(reader(address, failOnDataLoss="false"), checkpoint)
        assert offsets(query.everything()) == [0, 1, 2, 3, 4, 5]
        assert query.plan() is False  # and from then on it is of this branch
        query.reader.stop()
