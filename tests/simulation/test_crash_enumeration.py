"""A crash before every single call to the disk, in eight variants, of a server and of an outbox.

One scripted workload runs through the real driver, log and housekeeping on a FaultyDisk. Before
each call a copy of the disk is crashed and opened by the real recovery. It must hold everything
that was answered and nothing that was not put; a second crash loses nothing of it; and it goes on
without storing anything twice.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from oncemq.broker.state import snapshot
from oncemq.broker.state.topic import Topic, TopicState
from oncemq.client.state import outbox
from oncemq.client.state.outbox import open_slots
from oncemq.errors import Corrupt, StorageUnsure
from oncemq.protocol.names import ClientId, Sequence, TopicId
from oncemq.protocol.outbox_records import OutboxLane, OutboxResumed
from oncemq.protocol.records import Marked, Retention
from oncemq.server import driver
from oncemq.storage.log.log import LogOptions
from oncemq.storage.log.recovery import OpenedLog, _Opening, open_log
from oncemq.storage.log.writer import GroupWriter
from oncemq.storage.segments.segment import Segment
from oncemq.storage.segments.verify import Verified
from oncemq.testing.crash_points import KILL, CrashPoints
from oncemq.testing.faulty_disk import FaultyDisk, FaultyFile
from oncemq.testing.unsynced_changes import PowerCut
from simulator import proof
from tests.simulation.crashed_outbox import Mail, Post
from tests.simulation.crashed_server import Ledger, Machine, check, copied

PARTS = 16  # each with about a sixteenth of the crashes; the first is always run, the others slow
LATER = 10**10  # when whoever recovers looks at the clock; before a guest is forgotten


def verify_server(ledger: Ledger, disk: FaultyDisk, random: Random) -> int:
    """Recover; crash again at once; ask again for all that is open, go on, crash, recover."""
    mine = copied(ledger)
    machine = Machine(disk, mine, LATER)
    found = machine.found()
    check(mine, found, machine.epochs())

    again = disk.fork(random)
    again.crash(PowerCut.NOTHING)
    second = Machine(again, mine, LATER)
    assert second.found() == found, "what was recovered was not durable"

    machine.repeat()
    for known in [each for each in mine.topics if each.deleted is False]:
        machine.put(known.name, b"z")
    machine.put("new", b"z")
    machine.commit()
    check(mine, machine.found(), machine.epochs())
    disk.crash(PowerCut.NOTHING)
    third = Machine(disk, mine, LATER)
    check(mine, third.found(), third.epochs())
    return 3


A, B = ClientId("alice"), ClientId("bob")


def fill(machine: Machine) -> None:
    """Several segments of several topics, much of it settled."""
    for client in (A, B):
        machine.hello(client)
    machine.commit()
    machine.put("nobody", b"p")  # discarded
    machine.subscribe(A, "a")
    machine.subscribe(B, "a")
    machine.subscribe(B, "b")
    machine.commit()
    machine.create("kept", Retention(forever=True))
    machine.create("some", Retention(keep_bytes=600))
    machine.subscribe(A, "some")
    for number in range(10):  # groups of several puts, of several producers
        few = 1 + number % 3
        machine.group(("a", b"p", few, 120), ("a", b"q", 1, 700), ("some", b"p", 2, 300))()
        machine.group(("b", b"q", 2, 30), ("kept", b"p", 1, 200))()
    machine.repeat()  # all that is last is a duplicate
    machine.settle(A, "a", 20)
    machine.settle(B, "a", 25)
    machine.settle(A, "some", 20)
    machine.commit()


def serve(machine: Machine, points: CrashPoints) -> None:
    """Everything a server does to its disk, and some crashes whose recoveries crash as well."""
    fill(machine)
    serve_through_crashes(machine, points)
    serve_other_topics(machine, points)
    machine.settle(A, "a", 44)
    machine.settle(B, "a", 40)
    machine.settle(B, "b", 20)
    machine.commit()
    machine.housekeep(16)
    machine.put("a", b"q", 2)
    machine.settle(A, "a", 46, lazy=True)
    machine.disk.kill()
    machine.again()
    machine.unsubscribe(A, "some")
    machine.housekeep()
    machine.log.close()
    machine.open()
    machine.group(("a", b"p", 1, 10))()
    points.crash_here()


def serve_through_crashes(machine: Machine, points: CrashPoints) -> None:
    """Checkpoints and compaction that do not get to their end, a torn group, a failed sync."""
    points.after(machine.housekeep, "rename", ".ckpt", variant=KILL)
    machine.again()
    points.after(lambda: machine.housekeep(40), "rename", ".cold", variant=KILL)
    machine.again()
    work = machine.group(("a", b"p", 3, 900), ("b", b"p", 2, 700))
    points.after(work, "write", ".log", variant=PowerCut.REORDERED)
    machine.again()
    points.failing(machine.group(("a", b"q", 2, 400), ("kept", b"q", 1, 400)), "sync", ".log")
    machine.again()
    machine.settle(A, "a", 28, lazy=True)
    machine.settle(B, "b", 15)
    machine.put("b", b"p", 4)
    machine.housekeep()


def serve_other_topics(machine: Machine, points: CrashPoints) -> None:
    """A topic and a subscription end and are made again; a seal that fails; a torn write."""
    machine.delete("b")
    machine.subscribe(B, "b")
    machine.put("b", b"q", 2)  # the topic is another one: numbers begin again
    machine.commit()
    machine.unsubscribe(B, "a")
    machine.subscribe(B, "a")
    for number in range(8):
        machine.group(("a", b"p", 2, 500), ("b", b"q", 1 + number, 60))()

    def roll() -> None:
        for _ in range(9):
            machine.group(("a", b"q", 1, 900))()

    points.failing(roll, "sync", ".idx")
    machine.again()
    work = machine.group(("a", b"p", 4, 600), ("a", b"q", 4, 600))
    points.after(work, "write", ".log", variant=PowerCut.TORN)
    machine.again()


def enumerate_server(*, part: int = 0, parts: int = 1, seed: int = 0) -> CrashPoints:
    disk, ledger = FaultyDisk(Random(5)), Ledger()

    def verify(crashed: FaultyDisk, random: Random) -> int:
        return verify_server(ledger, crashed, random)

    points = CrashPoints(disk, verify, part=part, parts=parts, seed=seed)
    serve(Machine(disk, ledger), points)
    return points


def verify_outbox(mails: dict[str, Mail], disk: FaultyDisk, random: Random) -> int:
    """Take over; crash again at once; record more, crash, and take over once more."""
    mine = {name: replace(m, asked=list(m.asked), done=dict(m.done)) for name, m in mails.items()}
    post = Post(disk, mine)
    post.open()
    known = {name: (slot.producer, slot.lanes, slot.pending) for name, slot in post.slots.items()}
    assert mails.keys() <= known.keys() | {name for name, m in mails.items() if not m.producer}

    again = disk.fork(random)
    again.crash(PowerCut.NOTHING)
    second = Post(again, {}, seed=4)
    slots = open_slots(again, "/state", second.random.randbytes)
    assert [(slot.producer, slot.lanes, slot.pending) for slot in slots] == [*known.values()]

    for name in post.slots:
        post.record(name, 300, 20)
    disk.crash(PowerCut.NOTHING)
    Post(disk, mine).open()
    return 3


def failing_record(post: Post) -> None:
    with pytest.raises(StorageUnsure):
        post.record("2", 80)


def post_all(post: Post, points: CrashPoints) -> None:
    """Everything a client does to its outbox."""
    post.open()
    post.record("1", 100)
    post.record("1", 700, 30, 900)
    post.record("1", 50, topic="b")
    post.done("1", 2)
    post.record("1", 400)
    post.rotate("1")
    post.record("1", 200)
    twin = Post(post.disk, post.mails, seed=9)
    twin.open()  # the first is alive: another slot
    assert list(twin.slots) == ["2"]
    twin.record("2", 600, 600)
    post.done("1", 5)
    post.rotate("1")
    post.disk.kill()
    post.open()
    assert list(post.slots) == ["1", "2"]
    post.record("1", 3000, 10)
    points.after(lambda: post.rotate("1"), "write", "1/4/log", variant=PowerCut.TORN)
    post.open()
    points.after(lambda: post.record("2", 900, 900), "write", ".log", variant=PowerCut.REORDERED)
    post.open()
    points.failing(partial(failing_record, post), "sync", ".log")
    post.open()
    post.record("1", 40, 50, 60, topic="c")
    post.renumber("1", OutboxResumed("c", TopicId(8), Sequence(3), Sequence(9), (Sequence(5),)))
    post.record("1", 70)
    post.done("2", 1)
    for slot in post.slots.values():
        slot.close()
    post.mails["2"].done_kept = dict(post.mails["2"].done)
    post.open()


def enumerate_outbox(*, part: int = 0, parts: int = 1, seed: int = 0) -> CrashPoints:
    disk, mails = FaultyDisk(Random(5)), dict[str, Mail]()

    def verify(crashed: FaultyDisk, random: Random) -> int:
        return verify_outbox(mails, crashed, random)

    points = CrashPoints(disk, verify, part=part, parts=parts, seed=seed)
    post_all(Post(disk, mails), points)
    points.crash_here()
    return points


# ------------------------------------------------------------------ the tests

Enumerate = Callable[..., CrashPoints]
BOTH = pytest.mark.parametrize("enumerate_all", [enumerate_server, enumerate_outbox])


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So little room at once that segments roll and grow all the time."""
    monkeypatch.setattr(driver, "GATHER_BYTES", 4096)
    monkeypatch.setattr(outbox, "_OPTIONS", LogOptions(1 << 16, 4096, 512))


@BOTH
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))]
)
def test_no_crash_at_any_call_loses_or_repeats_anything(
    enumerate_all: Enumerate,
    part: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    what = enumerate_all.__name__.removeprefix("enumerate_")
    with proof.campaign(f"crash-{what}-{part}") as tally:
        points = enumerate_all(part=part, parts=PARTS)
        tally.add("recoveries", points.recoveries)
    assert points.recoveries > 6_000 // PARTS
    with capsys.disabled():
        print(f"\n{what} part {part}: {points.recoveries} recoveries, {points.points} points")


def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers leave before their group is synced."""

    def lie(writer: GroupWriter) -> None:
        writer.synced = writer._written

    monkeypatch.setattr(GroupWriter, "_sync", lie)


def no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """New names are never synced."""
    monkeypatch.setattr(FaultyDisk, "sync_directory", lambda *_: None)


def no_mending(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was recovered is synced, but not written again."""
    mend = _Opening._mend

    def believe(opening: _Opening, segment: Segment, found: Verified, _proven: int) -> None:
        mend(opening, segment, found, segment.last_serial)

    monkeypatch.setattr(_Opening, "_mend", believe)


def no_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint forgets who put."""
    restored = snapshot.restore_topic

    def forgetful(state: TopicState) -> Topic:
        topic = restored(state)
        topic.producers.clear()
        return topic

    monkeypatch.setattr(snapshot, "restore_topic", forgetful)


def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cold segment is renamed before it is synced."""
    sync = FaultyFile.sync

    def hasty(file: FaultyFile) -> None:
        if ".cold" not in file._path:
            sync(file)

    monkeypatch.setattr(FaultyFile, "sync", hasty)


@pytest.mark.parametrize(
    ("plant", "enumerate_all", "parts"),
    [
        (no_sync, enumerate_server, 1),
        (no_sync, enumerate_outbox, 1),
        (no_names, enumerate_server, 1),
        (no_names, enumerate_outbox, 1),
        pytest.param(no_mending, enumerate_server, 8, marks=pytest.mark.slow),
        pytest.param(no_mending, enumerate_outbox, 8, marks=pytest.mark.slow),
        pytest.param(no_producers, enumerate_server, 8, marks=pytest.mark.slow),
        pytest.param(no_wait, enumerate_server, 4, marks=pytest.mark.slow),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    enumerate_all: Enumerate,
    parts: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, Corrupt)) as raised:
        enumerate_all(parts=parts)
    assert "crashed at point" in raised.value.__notes__[0]


# ------------------------------------------------------------------ what the enumeration found


def open_data(disk: FaultyDisk) -> OpenedLog:
    return open_log(disk, "/data", LogOptions(8192, 4096, 512), random_bytes=Random(1).randbytes)


def test_a_log_whose_making_was_killed_does_not_lose_its_format_later() -> None:
    """Killed before FORMAT's name was synced; the next server took it, answered, lost power."""
    disk = FaultyDisk(Random(1))
    points = CrashPoints(disk, lambda *_: 0)
    points.after(lambda: open_data(disk), "rename", "FORMAT", variant=KILL)
    log = open_data(disk).log
    log.append(Marked())
    group = log.take_group()
    assert group is not None
    log.write(group)
    disk.crash(PowerCut.NOTHING)
    assert open_data(disk).log.last_serial == 1


def test_the_sources_of_a_cold_segment_go_only_when_its_name_is_durable() -> None:
    """Killed before the name was synced; the next opening removed the sources, and lost power."""
    disk, ledger = FaultyDisk(Random(5)), Ledger()
    points = CrashPoints(disk, lambda *_: 0)
    machine = Machine(disk, ledger)
    fill(machine)
    points.after(lambda: machine.housekeep(40), "rename", ".cold", variant=KILL)
    points.after(machine.open, "remove", ".log", variant=KILL)
    for seed in range(20):
        copy = disk.fork(Random(seed))
        copy.crash(PowerCut.REORDERED)
        assert verify_server(ledger, copy, Random(seed)) == 3


@pytest.mark.parametrize("point", range(12))
def test_a_log_that_is_half_removed_is_no_damaged_log(point: int) -> None:
    """An outbox drops an unfinished copy of itself, and is killed at some point of that."""
    disk = FaultyDisk(Random(1))
    disk.make_directory("/state/1")
    log = open_log(disk, "/state/1/1", LogOptions(), random_bytes=Random(1).randbytes).log
    log.append(OutboxLane("a", TopicId(1), Sequence(1)))  # no OutboxOpened: a copy was under way
    group = log.take_group()
    assert group is not None
    log.write(group)
    log.close()
    calls = 0

    def stop(call: str, _path: str, _size: int) -> None:
        nonlocal calls
        calls += call in ("remove", "rename")
        if calls > point:
            raise KeyboardInterrupt

    disk.faults.hook = stop
    with suppress(KeyboardInterrupt):
        open_slots(disk, "/state", Random(2).randbytes)
    disk.faults.hook = None
    disk.kill()
    (slot,) = open_slots(disk, "/state", Random(3).randbytes)
    slot.rotate({}, [])
    assert [name for name in disk.names("/state/1") if not name.isdigit()] == ["lock"]
