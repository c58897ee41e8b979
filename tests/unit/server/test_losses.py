"""What a person agreed to lose is a hole with a name: the server serves, readers are told."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from oncemq.broker.state import snapshot
from oncemq.errors import Corrupt
from oncemq.protocol.names import ClientId, Epoch, Micros, Offset, ProducerId, TopicId
from oncemq.protocol.names import Sequence as Number
from oncemq.protocol.records import MessagesLost, Retention
from oncemq.protocol.replies import (
    CommitDone,
    LostMessages,
    Messages,
    RefusedReply,
    StagedReply,
    TopicShown,
)
from oncemq.protocol.requests import (
    CommitRequest,
    CreateTopic,
    Piece,
    Read,
    ShowTopic,
    StagePut,
    Start,
)
from oncemq.server import completeness, examination
from oncemq.storage.disk import LocalDisk
from oncemq.storage.log.log import LogOptions
from oncemq.storage.segments.layout import FormatHole
from oncemq.wire import batch

SMALL = LogOptions(segment_bytes=4096, allocate_bytes=2048, reserve_bytes=256)
FOREVER = Retention(forever=True)
ME = ClientId("_anonymous-1")


def checkpoint(host) -> None:
    host.driver.mark(Micros(host.now))
    host.commit()
    writer = host.log.begin_checkpoint()
    for blob in snapshot.capture(host.broker.shard):
        writer.add(blob)
    host.run(writer.finish())


def stage(host, *payloads: bytes) -> None:
    name = ProducerId(b"s" * 16)
    body = batch.encode_payloads(payloads)
    checksum = batch.checksum(body, batch.seed("", name, 1, len(payloads)))
    put = StagePut(ME, Epoch(0), name, Number(1), len(payloads), 0, checksum)
    assert isinstance(host.ask(put, body), StagedReply)


def commit(host, topic: str, count: int):
    piece = Piece(topic, ProducerId(b"s" * 16), Offset(0), count)
    host.now += 1_000_000
    return host.ask(CommitRequest(ME, Epoch(0), "job", 1, True, (piece,), closing=True))


def filled(make_host):
    """A topic in several segments, all but the last of which the checkpoints cover."""
    host = make_host(SMALL)
    host.ask(CreateTopic("a", FOREVER))
    host.subscribe("a", Start("earliest"))
    for number in range(30):
        host.put("a", b"m%d " % number + b"x" * 500)
    checkpoint(host)
    checkpoint(host)
    return host


def agree(host) -> examination.Examination:
    return examination.accept_loss(
        LocalDisk(), str(host.directory), random_bytes=secrets.token_bytes
    )


def start(host) -> list[completeness.Missing]:
    """As the assembly does."""
    host.start()
    missing = completeness.take(host.broker.shard, host.log, agreed=host.log.agreed)
    host.driver.lose([each.record for each in missing], Micros(host.now))
    host.commit()
    return missing


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def lose(path: Path) -> None:
    """A segment is gone, and its index with it: the log itself cannot know."""
    path.unlink()
    path.with_suffix(".idx").unlink()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "one bit, early": lambda path: flip(path, 300),
    "one bit, in the middle": lambda path: flip(path, path.stat().st_size // 2),
    "one bit, at the end": lambda path: flip(path, path.stat().st_size - 2),
    "one bit of the header": lambda path: flip(path, 20),
    "cut in the first frame": lambda path: path.write_bytes(path.read_bytes()[:200]),
    "no header": lambda path: path.write_bytes(bytes(68) + path.read_bytes()[68:]),
}


@pytest.mark.parametrize("number", [1, 2, 3])  # the first holds only facts
@pytest.mark.parametrize("damage", DAMAGES)
def test_the_circle_ends(make_host, damage: str, number: int) -> None:
    """Damage, diagnosis, accepted loss, and a server that serves: all but the hole, by name."""
    host = filled(make_host)
    before = host.read("a")
    segments = sorted(host.directory.glob("log/*.log"))
    host.log.close()
    DAMAGES[damage](segments[number])
    found = examination.examine(LocalDisk(), str(host.directory))
    assert not found.sound
    if "header" not in damage:  # else every message can be read still
        assert found.missing, "what would be lost is named before anything is done"
        assert {each.topic for each in found.missing} == {"a"}
    assert agree(host).missing == found.missing

    missing = start(host)
    assert missing == found.missing
    holes = [(each.record.first_offset, each.record.end_offset) for each in missing]
    expected = {
        f"a@{offset}={payload.decode()}"
        for offset, payload in enumerate(before)
        if not any(first <= offset < end for first, end in holes)
    }
    assert expected
    got: list[str] = []
    reply, _ = host.ask_all(host.getting("a"))
    assert isinstance(reply, Messages)
    while more := host.get("a", start=int(got[-1][2:].partition("=")[0]) + 1 if got else -1):
        got += more
    assert got == sorted(expected, key=lambda text: int(text[2:].partition("=")[0]))

    host.restart()  # agreed to once, it is so for good: nobody has to agree again
    assert completeness.take(host.broker.shard, host.log, agreed=()) == []
    host.put("a", b"it goes on")
    assert host.get("a", start=30) == ["a@30=it goes on"]
    host.compact()
    host.restart()
    completeness.check(host.broker.shard, host.log)
    shown = host.ask(ShowTopic("a"))
    assert isinstance(shown, TopicShown)
    assert shown.topic.lost == tuple(holes)
    host.log.close()
    assert examination.examine(LocalDisk(), str(host.directory)).sound


def test_a_hole_that_nobody_agreed_to_is_refused(make_host) -> None:
    host = filled(make_host)
    segments = sorted(host.directory.glob("log/*.log"))
    host.log.close()
    lose(segments[1])
    with pytest.raises(Corrupt, match=r"a@\d+ is in no segment"):
        start(host)


def test_what_goes_missing_after_a_person_agreed_is_refused(make_host) -> None:
    host = filled(make_host)
    segments = sorted(host.directory.glob("log/*.log"))
    host.log.close()
    lose(segments[1])
    (hole,) = agree(host).missing
    found = examination.examine(LocalDisk(), str(host.directory))
    assert found.sound, "a server starts on it"
    assert found.agreed == [hole]
    lose(segments[2])
    found = examination.examine(LocalDisk(), str(host.directory))
    assert not found.sound
    end = hole.record.end_offset
    with pytest.raises(Corrupt, match=f"nobody agreed to lose it from offset {end}"):
        start(host)
    host.log.close()
    agree(host)
    (both,) = start(host)
    assert both.record.first_offset == hole.record.first_offset
    assert both.record.end_offset > hole.record.end_offset


@pytest.mark.parametrize(
    ("agreed", "expected"),
    [
        ([], 3),
        ([FormatHole(7, 3, 9)], None),
        ([FormatHole(7, 0, 20)], None),
        ([FormatHole(8, 3, 9)], 3),
        ([FormatHole(7, 4, 9)], 3),
        ([FormatHole(7, 3, 8)], 8),
        ([FormatHole(7, 6, 9), FormatHole(7, 3, 6)], None),
        ([FormatHole(7, 3, 5), FormatHole(7, 6, 9)], 5),
    ],
)
def test_beyond_what_was_agreed(agreed: list[FormatHole], expected: int | None) -> None:
    lost = MessagesLost(TopicId(7), Offset(3), Offset(9))
    assert completeness.beyond(lost, agreed) == expected


def test_readers_are_told_of_the_hole_they_stand_in(make_host) -> None:
    host = filled(make_host)
    segments = sorted(host.directory.glob("log/*.log"))
    host.log.close()
    lose(segments[2])
    agree(host)
    (hole,) = start(host)
    first, end = hole.record.first_offset, hole.record.end_offset
    lost = (LostMessages("a", hole.record.topic_id, first, end),)
    reply, _ = host.ask_all(Read("a", Offset(first + 1), 5, 1 << 20))
    assert isinstance(reply, Messages)
    assert reply.lost == lost
    assert reply.batches[0].first_offset == end
    reply, _ = host.ask_all(Read("a", Offset(0), 100, 1 << 20))
    assert isinstance(reply, Messages)
    assert (reply.lost, reply.more) == ((), True)
    assert reply.batches[-1].first_offset + reply.batches[-1].count == first
    reply, _ = host.ask_all(host.getting("a", start=first))
    assert isinstance(reply, Messages)
    assert reply.lost == lost
    assert reply.batches[0].first_offset == end


def test_a_subscription_in_a_hole_goes_on_behind_it(make_host) -> None:
    host = filled(make_host)
    segments = sorted(host.directory.glob("log/*.log"))
    host.log.close()
    lose(segments[1])
    agree(host)
    (hole,) = start(host)
    topic = host.broker.shard.by_name["a"]
    assert [each.cursor for each in topic.subscriptions.values()] == [hole.record.end_offset]
    assert host.get("a")[0].startswith(f"a@{hole.record.end_offset}=")
    host.restart()  # and the fold says the same
    assert host.broker.shard.by_name["a"].lost == topic.lost
    checkpoint(host)
    host.restart()  # from the checkpoint, too
    assert host.broker.shard.by_name["a"].lost == topic.lost


@pytest.fixture
def staged(make_host):
    """A published stage in a segment that the checkpoints cover; `rest` comes later."""
    host = make_host(SMALL)
    host.ask(CreateTopic("a", FOREVER))
    host.put("a", b"before")
    stage(host, b"1" * 1000, b"2" * 1000)
    for _ in range(4):
        host.put("a", b"x" * 1500)
    return host


def lose_stage(host) -> None:
    stage_id = next(iter(host.broker.shard.stages.by_id))
    for _ in range(2):
        checkpoint(host)
        for _ in range(3):
            host.put("a", b"y" * 1500)
    path = Path(host.log.find(stage_id, 0).segment.path)
    host.log.close()
    lose(path)


def test_a_lost_stage_is_a_hole_in_the_topics_it_was_published_to(staged) -> None:
    assert isinstance(commit(staged, "a", 2), CommitDone)
    lose_stage(staged)
    staged.start()
    with pytest.raises(Corrupt):
        completeness.check(staged.broker.shard, staged.log)
    staged.log.close()
    agree(staged)
    missing = start(staged)
    spans = {(each.record.first_offset, each.record.end_offset) for each in missing}
    assert (5, 7) in spans, "the commit stands behind five puts"
    staged.restart()
    completeness.check(staged.broker.shard, staged.log)
    reply, _ = staged.ask_all(Read("a", Offset(5), 100, 1 << 20))
    assert isinstance(reply, Messages)
    assert [(each.first_offset, each.end_offset) for each in reply.lost] == [(5, 7)]
    assert reply.batches[0].first_offset == 7


def test_a_lost_stage_is_not_published_any_more(staged) -> None:
    lose_stage(staged)
    agree(staged)
    assert start(staged)
    answer = commit(staged, "a", 2)
    assert isinstance(answer, RefusedReply)
    assert answer.code == "stage_unknown"
    staged.restart()
    completeness.check(staged.broker.shard, staged.log)
