"""Reading by columns: the very batches that were put, verified, dense, and cut to the range."""

import secrets
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from oncemq import AsyncClient, Client, testing
from oncemq.audit.checker import Audit
from oncemq.client.admin.topic_facts import walk
from oncemq.client.verbs import columns
from oncemq.client.verbs.columns import ColumnBatch, RangeLost
from oncemq.errors import Corrupt, NoSuchTopic, Refused
from oncemq.protocol.names import Offset
from oncemq.protocol.records import MessagesLost, Retention, TopicCreated
from oncemq.protocol.structs import Settled
from oncemq.storage.disk import LocalDisk
from oncemq.storage.log.log import LogOptions
from oncemq.storage.log.recovery import open_log
from oncemq.wire import batch


@pytest.fixture
def mq() -> Iterator[Client]:
    """A client of a server that keeps everything put to `orders`."""
    with testing.server() as address, Client(address, timeout=20) as client:
        client.create_topic("orders", Retention(forever=True))
        yield client


@pytest.fixture
def lossy(tmp_path: Path) -> Iterator[tuple[Client, str]]:
    """As `mq`, of a server whose topic `orders` lost @3 up to @6 of ten messages."""
    data = tmp_path / "data"
    with testing.server(data=data) as address, Client(address, timeout=20) as client:
        client.create_topic("orders", Retention(forever=True))
        for number in range(10):
            client.put("orders", b"%d" % number)
    opened = open_log(LocalDisk(), str(data), LogOptions(), random_bytes=secrets.token_bytes)
    (created,) = [each for _, each in opened.replay if isinstance(each, TopicCreated)]
    opened.log.append(MessagesLost(created.topic_id, Offset(3), Offset(6)))
    group = opened.log.take_group()
    assert group is not None
    opened.log.write(group)
    opened.log.close()
    with testing.server(data=data) as address, Client(address, timeout=20) as client:
        yield client, address


def payloads(batches: Iterator[ColumnBatch]) -> list[bytes]:
    found: list[bytes] = []
    for each in batches:
        found += batch.payloads_of(each.body, each.count, each.columns)
    return found


def test_a_range_is_what_was_put_from_start_up_to_stop(mq: Client) -> None:
    wanted = [b"%d" % number for number in range(100)]
    for first in range(0, 100, 7):
        mq.put_many("orders", wanted[first : first + 7])
    for start, stop in ((0, 100), (0, 1), (5, 8), (13, 14), (99, 100), (3, 97)):
        assert payloads(mq.read_columns("orders", start, stop)) == wanted[start:stop]


def test_batches_come_as_they_are_stored(mq: Client) -> None:
    mq.put_many("orders", [b"a", b"b"])
    mq.put_many("orders", [b"c"], keys=[b"k"], headers=[{"trace": "1"}])
    plain, rich = mq.read_columns("orders", 0, 3)
    assert (plain.first_offset, plain.count, plain.columns) == (0, 2, 0)
    assert plain.body == batch.encode_payloads([b"a", b"b"])
    assert batch.decode(rich.body, 1, rich.columns) == [batch.Item(b"c", b"k", {"trace": "1"})]
    assert [run.first_sequence for run in (*plain.runs, *rich.runs)] == [1, 3]


def test_an_empty_range_asks_nothing(mq: Client) -> None:
    sends = mq.counters["sends"]
    assert list(mq.read_columns("orders", 5, 5)) == []
    assert list(mq.read_columns("orders", 5, 3)) == []
    assert mq.counters["sends"] == sends


def test_a_range_beyond_the_end_ends_with_the_topic(mq: Client) -> None:
    mq.put_many("orders", [b"a", b"b"])
    assert payloads(mq.read_columns("orders", 1, 10)) == [b"b"]


def test_a_range_that_is_not_kept_or_not_there_is_refused(mq: Client) -> None:
    with pytest.raises(NoSuchTopic, match="ordres"):
        list(mq.read_columns("ordres", 0, 1))
    with pytest.raises(Refused, match="0 up to 0, not 3"):
        list(mq.read_columns("orders", 3, 4))


def test_much_comes_in_pieces_and_a_large_batch_whole(
    mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "READ_BYTES", 10_000)
    wanted = [b"%06d" % number * 100 for number in range(200)]
    mq.put_many("orders", wanted[:100])  # 60 kB
    for each in wanted[100:]:
        mq.put("orders", each, wait=False)
        if len(each) % 3:
            mq.flush()
    mq.flush()
    batches = list(mq.read_columns("orders", 0, 200))
    assert batches[0].count == 100
    assert payloads(iter(batches)) == wanted
    assert mq.counters["sends"] > 3


def test_a_reader_that_stops_half_way_leaves_nothing_behind(
    mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "READ_BYTES", 1_000)
    for number in range(20):
        mq.put("orders", b"%d" % number * 400)
    reading = mq.read_columns("orders", 0, 20)
    assert next(reading).first_offset == 0
    reading.close()  # type: ignore[attr-defined]
    assert len(mq._engine.exchanges) == 0
    assert len(payloads(mq.read_columns("orders", 0, 20))) == 20


def test_bytes_that_changed_on_the_way_are_refused(
    mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    mq.put("orders", b"a")
    monkeypatch.setattr(batch, "checksum", lambda body, seed: 0)
    with pytest.raises(Corrupt, match="orders@0"):
        list(mq.read_columns("orders", 0, 1))


def test_where_a_topic_ends_is_told_when_it_moves(mq: Client) -> None:
    (here,) = mq.ends([("orders", 0), ("ordres", 0)])
    assert (here.name, here.low, here.end) == ("orders", 0, 0)
    (same,) = mq.ends([("orders", 0)], wait=0.05)
    assert same == here
    with Client(mq._engine.settings.servers[0], timeout=20) as publisher:
        publisher.put("orders", b"a")
    (moved,) = mq.ends([("orders", 0)], wait=20)
    assert (moved.topic_id, moved.end) == (here.topic_id, 1)


def test_a_hole_in_a_range_is_named(lossy: tuple[Client, str]) -> None:
    mq, _ = lossy
    reading = mq.read_columns("orders", 0, 10)
    found = [batch.payloads_of(each.body, 1, each.columns) for each in islice(reading, 3)]
    assert found == [[b"0"], [b"1"], [b"2"]]
    with pytest.raises(RangeLost, match="orders@3 up to @6 is lost") as hole:
        next(reading)
    behind = payloads(mq.read_columns("orders", hole.value.end_offset, 10))
    assert behind == [b"6", b"7", b"8", b"9"]
    with pytest.raises(RangeLost):
        payloads(mq.read_columns("orders", 4, 10))


def test_the_audit_names_a_hole_and_finds_nothing_wrong(lossy: tuple[Client, str]) -> None:
    mq, _ = lossy
    audit = Audit()
    for fact in walk(mq, mq.topic("orders").topic):
        audit.see(fact)
    assert audit.finish().counts == {}
    assert audit.logs["orders"].lost == [(3, 6)]
    assert audit.logs["orders"].messages == 7


async def test_the_asyncio_client_reads_by_columns_too() -> None:
    with testing.server() as address:
        async with AsyncClient(address, timeout=20) as client:
            await client.create_topic("orders", Retention(forever=True))
            wanted = [b"%d" % number for number in range(30)]
            for first in range(0, 30, 7):
                await client.put_many("orders", wanted[first : first + 7])
            found: list[bytes] = []
            async for each in client.read_columns("orders", 5, 99):
                found += batch.payloads_of(each.body, each.count, each.columns)
            assert found == wanted[5:]
            assert [each async for each in client.read_columns("orders", 9, 9)] == []
            (end,) = await client.ends([("orders", 30), ("nowhere", 0)])
            assert (end.name, end.low, end.end) == ("orders", 0, 30)
            assert (await client.watch([("orders", 0)], wait=20)).generation == 1


async def test_the_asyncio_client_leases_and_settles_what_took_effect_elsewhere(
    tmp_path: Path,
) -> None:
    with testing.server() as address:
        async with AsyncClient(address, id="reader", state=tmp_path, timeout=20) as client:
            await client.subscribe("orders")
            await client.put_many("orders", [b"a", b"b", b"c"])
            assert await client.lease(60, "a test") is True
            (mine,) = await client.subscriptions("orders")
            assert mine.about == "a test"
            settled = Settled("orders", mine.subscription_id, Offset(2))
            assert await client.settle_below([settled]) is True
            assert await client.settle_below([settled]) is False
            (mine,) = await client.subscriptions("orders")
            assert mine.cursor == 2
