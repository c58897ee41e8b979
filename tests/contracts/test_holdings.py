"""What every keeper of segments says it holds: a running log, and files that are looked at."""

from collections.abc import Iterator
from random import Random

import pytest

from oncemq.protocol.commit_records import Committed, Part, StageMade
from oncemq.protocol.names import Epoch, Micros, Offset, ProducerId, Sequence, TopicId
from oncemq.protocol.records import MessagesStaged, MessagesStored, Run
from oncemq.server.completeness import Holdings
from oncemq.server.examination import _Shelves
from oncemq.storage.log.log import Log, LogOptions
from oncemq.storage.log.recovery import open_log
from oncemq.storage.repair import repair
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.wire import batch

PRODUCER = ProducerId(b"p" * 16)
ORDERS, COPIES, STAGE = TopicId(1), TopicId(2), TopicId(3)
DATA = "/data"


def store(log: Log, topic: TopicId, first: int, *payloads: bytes) -> None:
    body = batch.encode_payloads(payloads)
    seed = batch.seed(f"t{topic}", PRODUCER, first + 1, len(payloads))
    checksum = batch.checksum(body, seed)
    run = Run(len(payloads), PRODUCER, Epoch(1), Sequence(first + 1), Micros(100 + first))
    facts = topic, Offset(first), len(payloads), 0, checksum, (run,)
    record = MessagesStaged(*facts, len(body)) if topic == STAGE else MessagesStored(*facts)
    log.append(record, body, seed=seed, checksum=checksum)


def written(disk: FaultyDisk) -> Log:
    """Orders 0 to 2 and 5 to 6; two of a stage's three messages in copies."""
    options = LogOptions(segment_bytes=1 << 20, allocate_bytes=4096, reserve_bytes=64)
    log = open_log(disk, DATA, options, random_bytes=lambda size: b"\5" * size).log
    store(log, ORDERS, 0, b"0", b"1", b"2")
    log.append(StageMade(STAGE, ProducerId(b"s" * 16), Micros(200)))
    store(log, STAGE, 0, b"a", b"b", b"c")
    part = Part(COPIES, Offset(0), 2, Sequence(1), STAGE, Offset(1), 20)
    log.append(Committed("owner", 1, True, Micros(300), (part,), (), False))
    store(log, ORDERS, 5, b"5", b"6")
    group = log.take_group()
    assert group is not None
    log.write(group)
    log.finished(group)
    return log


@pytest.fixture(params=["log", "shelves"])
def holdings(request: pytest.FixtureRequest) -> Iterator[Holdings]:
    disk = FaultyDisk(Random(1))
    log = written(disk)
    if request.param == "log":
        yield log
        log.close()
        return
    log.close()
    contents = repair.diagnose(disk, DATA).contents
    assert contents is not None
    yield _Shelves(contents.catalog)
    contents.catalog.close()


def test_what_there_is_of_a_topic(holdings: Holdings) -> None:
    found = [(each.first_offset, each.end_offset) for each in holdings.extents(ORDERS)]
    assert found == [(0, 7)]
    assert [len(holdings.extents(topic)) for topic in (COPIES, STAGE, TopicId(9))] == [1, 1, 0]


def test_what_is_missing_of_a_topic(holdings: Holdings) -> None:
    assert list(holdings.gaps(ORDERS, 0, 7)) == [(3, 5)]
    assert list(holdings.gaps(ORDERS, 4, 9)) == [(4, 5), (7, 9)]
    assert list(holdings.gaps(ORDERS, 5, 7)) == []
    assert list(holdings.gaps(TopicId(9), 2, 4)) == [(2, 4)]


def test_what_a_commit_gave_is_there_while_its_stage_is(holdings: Holdings) -> None:
    assert list(holdings.gaps(COPIES, 0, 2)) == []
    assert list(holdings.gaps(COPIES, 0, 3)) == [(2, 3)]


def test_from_where_on_a_topic_needs_its_stages(holdings: Holdings) -> None:
    found = [holdings.staged_from(COPIES, offset) for offset in (0, 1, 2)]
    assert found == [{STAGE: 1}, {STAGE: 2}, {}]
    assert holdings.staged_from(ORDERS, 0) == {}
