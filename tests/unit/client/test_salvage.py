"""A damaged outbox: what is whole goes on, once and in order; what is lost is said."""

import errno
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from msgspec import structs

from oncemq.client.admin.accepting import ClientFiles
from oncemq.client.state import outbox
from oncemq.client.state.damage import naming_repair
from oncemq.client.state.outbox import Slot, open_slots
from oncemq.client.state.salvage import Damaged, Outboxes
from oncemq.client.state.state import open_state
from oncemq.client.state.unsent import Unsent
from oncemq.client.verbs import messages
from oncemq.errors import Corrupt, Locked, OnceMQError, StorageFull, StorageRefused
from oncemq.protocol.names import Sequence, TopicId
from oncemq.protocol.records import Retention
from oncemq.server.examination import accept_loss, examine
from oncemq.storage.disk import LocalDisk
from oncemq.storage.log.log import LogOptions
from oncemq.storage.repair.ownership import must_be_a_servers
from oncemq.storage.segments.segment import HEADER_BYTES, log_name
from oncemq.testing.crash_points import CrashPoints
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.testing.unsynced_changes import PowerCut
from oncemq.wire import batch
from tests.harness.client import Node, QuickDisk, World, random_bytes
from tests.harness.storage import still_open
from tests.unit.server.test_bad_sectors import SickDisk

SMALL = LogOptions(segment_bytes=1 << 14, allocate_bytes=1 << 12, reserve_bytes=1 << 10)
UNSENT = [b"unsent%d" % number for number in range(4)]


@pytest.fixture
def state(world: World) -> Path:
    """Where a client has put one message, and then four that the server did not get."""
    admin = world.client()
    admin.run(messages.create_topic(admin.engine, "orders", Retention(forever=True)))
    shop = world.client("shop")
    shop.put("orders", b"first")
    shop.turn()
    shop.wire.cut()
    for payload in UNSENT:
        shop.put("orders", payload)
    shop.close()
    return world.directory / "shop"


def log_of(state: Path) -> Path:
    (path,) = (state / "outbox").rglob("*.log")
    return path


def flip(state: Path, payload: bytes, before: int = 0) -> None:
    """One bit of a put, or of what lies so many bytes before it."""
    path = log_of(state)
    raw = bytearray(path.read_bytes())
    raw[raw.index(payload) - before] ^= 1
    path.write_bytes(raw)


def mend(state: Path) -> Damaged:
    (damaged,) = Outboxes(QuickDisk(), state, random_bytes).mend()
    return damaged


def start(world: World) -> Node:
    shop = world.client("shop")
    shop.turn(20)
    assert shop.engine.failure is None
    assert shop.engine.outflow.idle
    return shop


def test_a_damaged_put_is_lost_and_the_others_are_sent_once_in_order(world, state) -> None:
    flip(state, UNSENT[1])
    damaged = mend(state)
    assert [each.body[-7:] for each in damaged.kept] == [UNSENT[0], UNSENT[2], UNSENT[3]]
    assert ([each.topic for each in damaged.lost], damaged.unreadable) == (["orders"], 0)
    shop = start(world)
    assert world.server.stored("orders") == [b"first", UNSENT[0], UNSENT[2], UNSENT[3]]
    failure = shop.engine.outflow.take_failure()
    assert isinstance(failure, OnceMQError)
    assert "damaged on the disk of the client" in failure.detail
    shop.put("orders", b"later")
    shop.turn(20)
    shop.close()
    start(world)
    assert world.server.stored("orders")[4:] == [b"later"]


@pytest.mark.parametrize("lost", range(4))
def test_whichever_put_is_damaged_the_server_lost_nothing(world, state, lost) -> None:
    flip(state, UNSENT[lost])
    mend(state)
    start(world)
    whole = [each for number, each in enumerate(UNSENT) if number != lost]
    assert world.server.stored("orders") == [b"first", *whole]


def test_a_damaged_put_that_the_server_has_is_not_lost(world, state) -> None:
    sender = world.crashed("shop")  # sends everything; the answers are not noted on `state`
    sender.turn(20)
    stored = [b"first", *UNSENT]
    assert world.server.stored("orders") == stored
    sender.close()
    flip(state, UNSENT[1])
    (state / "state.db").write_bytes((sender_state(world) / "state.db").read_bytes())
    mend(state)
    shop = start(world)
    assert world.server.stored("orders") == stored
    assert shop.engine.outflow.take_failure() is None


def sender_state(world: World) -> Path:
    (copy,) = world.directory.glob("shop-*")
    return copy


def test_numbers_of_a_record_that_cannot_be_read_at_all_are_not_taken_for_acknowledged(
    world, state
) -> None:
    flip(state, UNSENT[1], before=40)
    damaged = mend(state)
    assert damaged.unreadable == 1
    assert [(each.topic, each.count) for each in damaged.lost] == [("orders", 1)]
    start(world)
    assert world.server.stored("orders") == [b"first", UNSENT[0], UNSENT[2], UNSENT[3]]


def test_of_the_last_record_it_is_known_by_the_end_that_it_was_there(world, state) -> None:
    path = log_of(state)
    raw = path.read_bytes()
    whole = raw[: raw.index(UNSENT[3]) - 40]
    path.write_bytes(whole + bytes(len(raw) - len(whole)))
    damaged = mend(state)
    assert damaged.unreadable == 2  # the put, and what was noted behind it
    start(world)
    assert world.server.stored("orders") == [b"first", *UNSENT[:3]]


def test_looking_changes_nothing_and_mending_keeps_the_damaged_log(world, state) -> None:
    flip(state, UNSENT[1])
    before = log_of(state).read_bytes()
    outboxes = Outboxes(QuickDisk(), state, random_bytes)
    assert outboxes.look() == outboxes.look()
    assert log_of(state).read_bytes() == before
    outboxes.mend()
    (kept,) = (state / "quarantine").rglob("*.log")
    assert kept.read_bytes() == before
    assert outboxes.look() == []


def test_what_is_no_slot_and_no_log_is_left_alone(world: World, state: Path) -> None:
    stray = state / "outbox" / "lost+found"
    stray.mkdir()
    (log_of(state).parent / "notes.txt").write_text("by a person")
    assert Outboxes(QuickDisk(), state, random_bytes).look() == []
    assert list(stray.iterdir()) == []
    flip(state, UNSENT[1])
    assert len(mend(state).kept) == 3
    start(world)
    assert world.server.stored("orders") == [b"first", UNSENT[0], *UNSENT[2:]]


def test_what_was_kept_aside_before_is_not_written_over(state: Path) -> None:
    flip(state, UNSENT[1])
    for name in ("outbox-1-1", "outbox-1-1-again"):
        (state / "quarantine" / name).mkdir(parents=True)
    mend(state)
    found = sorted(each.name for each in (state / "quarantine").iterdir())
    assert found == ["outbox-1-1", "outbox-1-1-again", "outbox-1-1-again-again"]
    assert list((state / "quarantine" / "outbox-1-1").iterdir()) == []


def test_an_edition_that_nobody_can_read_is_passed_over_for_the_one_before(
    world: World, state: Path
) -> None:
    slot = log_of(state).parents[2]
    shutil.copytree(slot / "1", slot / "2")
    (slot / "2" / "FORMAT").write_bytes(b"nonsense")
    damaged = mend(state)
    assert (damaged.is_known, len(damaged.kept), damaged.lost) == (True, 4, [])
    start(world)
    assert world.server.stored("orders") == [b"first", *UNSENT]


def test_the_outbox_of_a_client_that_runs_is_left_alone(world, state) -> None:
    world.client("shop")
    with pytest.raises(Locked, match="end it first"):
        mend(state)


def test_an_outbox_that_does_not_say_whose_it_is_sends_nothing(world, state) -> None:
    path = log_of(state)
    raw = bytearray(path.read_bytes())
    at = raw.index(b"first")
    raw[4096 : at - 200] = bytes(at - 200 - 4096) if at > 4296 else b""
    header = raw.index(b"orders")
    for place in range(header - 160, header - 60):
        raw[place] ^= 1
    path.write_bytes(raw)
    damaged = mend(state)
    assert (damaged.is_known, damaged.kept) == (False, [])
    assert damaged.unreadable == 0  # nothing is counted where nothing can be told apart
    start(world)
    assert world.server.stored("orders") == [b"first"]


def test_puts_that_the_disk_does_not_give_are_lost_and_the_others_are_kept(tmp_path) -> None:
    disk = SickDisk()
    slot = Slot(disk, str(tmp_path / "outbox" / "1"), random_bytes)
    puts = [
        structs.replace(put(first, T), body=batch.encode_payloads([b"%d" % first * 5000]))
        for first in (1, 2, 3)
    ]
    slot.record(puts)
    slot.close()
    path = log_of(tmp_path)
    disk.sectors[str(path)] = path.read_bytes().index(b"2" * 5000) + 1000
    with (
        pytest.raises(Corrupt, match=r"Input/output error.*`once client repair --id shop"),
        naming_repair("shop", str(tmp_path)),
    ):
        open_slots(disk, str(tmp_path / "outbox"), random_bytes)
    (damaged,) = Outboxes(disk, tmp_path, random_bytes).mend()
    assert "Input/output error" in damaged.why
    assert [each.first_sequence for each in damaged.kept] == [1, 3]
    assert [each.first_sequence for each in damaged.lost] == [2]
    assert Outboxes(disk, tmp_path, random_bytes).look() == []


def test_a_full_disk_is_not_taken_for_a_damaged_outbox(state, monkeypatch) -> None:
    disk = QuickDisk()

    def full(path: str) -> None:
        raise OSError(errno.ENOSPC, "no room left", path)

    monkeypatch.setattr(disk, "make_directory", full)
    with pytest.raises(StorageFull):
        Outboxes(disk, state, random_bytes).look()


def test_the_error_names_the_command_with_its_arguments(world, state) -> None:
    flip(state, UNSENT[1])
    with pytest.raises(Corrupt) as refused:
        open_state("shop", state)
    assert f"once client repair --id shop --state {state}" in refused.value.detail
    assert "`once repair`" not in refused.value.detail


@pytest.mark.parametrize("look", [examine, lambda *to: accept_loss(*to, random_bytes=random_bytes)])
@pytest.mark.parametrize("place", ["outbox/1/1", "outbox/1"])
def test_a_servers_repair_refuses_an_outbox_in_words(world, state, place, look) -> None:
    flip(state, UNSENT[1])
    before = log_of(state).read_bytes()
    with pytest.raises(StorageRefused, match=r"outbox of a client.*once client repair"):
        look(LocalDisk(), str(state / place))
    assert log_of(state).read_bytes() == before
    assert still_open(state / "outbox") == []


@pytest.mark.parametrize("inside", ["1/FORMAT", "1/log/some.log"])
def test_a_directory_of_something_else_is_not_taken_for_an_outbox(
    tmp_path: Path, inside: str
) -> None:
    must_be_a_servers(LocalDisk(), str(tmp_path))  # nothing is in it
    for path in (tmp_path / inside, tmp_path / "2026" / "picture"):
        path.parent.mkdir(parents=True)
        path.touch()
    must_be_a_servers(LocalDisk(), str(tmp_path))


# ------------------------------------------------------------------ one slot by itself

T = TopicId(7)


def recorded(disk: FaultyDisk, *firsts: int, topic_id: TopicId = T) -> None:
    """A slot whose puts, one message each, begin with these numbers."""
    slot = Slot(disk, "/state/outbox/1", random_bytes)
    slot.record(put(first, topic_id) for first in firsts)
    slot.close()


def put(first: int, topic_id: TopicId) -> Unsent:
    body = batch.encode_payloads([b"number %020d" % first])
    return Unsent("orders", topic_id, Sequence(first), 1, 0, body)


def change(disk: FaultyDisk, part: bytes, before: int = 0) -> None:
    """One bit of the log, durably."""
    (name,) = (each for each in disk.names("/state/outbox/1/1/log") if each.endswith(".log"))
    file = disk.open(f"/state/outbox/1/1/log/{name}")
    disk.flip_bit(f"/state/outbox/1/1/log/{name}", file.read(0, file.size()).index(part) - before)


def outboxes(disk: FaultyDisk) -> Outboxes:
    return Outboxes(disk, Path("/state"), random_bytes)


def test_numbers_of_another_producer_leave_no_hole_before_them() -> None:
    """Between the last number of the one and the first of the other nothing was put."""
    disk = FaultyDisk(Random(1))
    recorded(disk, 1, 2, topic_id=TopicId(0))
    slot = Slot(disk, "/state/outbox/1", random_bytes)
    slot.record([structs.replace(put(9, TopicId(0)), producer=slot.renew())])
    slot.close()
    change(disk, b"number %020d" % 1, before=40)
    (damaged,) = outboxes(disk).mend()
    assert damaged.unreadable == 1
    assert (damaged.lost, [each.first_sequence for each in damaged.kept]) == ([], [2, 9])


def test_no_power_cut_while_it_is_mended_loses_a_whole_put(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "_OPTIONS", SMALL)
    disk = FaultyDisk(Random(1))
    recorded(disk, 1, 2, 3, 4)
    change(disk, b"number %020d" % 2)
    expected = [(1, False), (2, True), (3, False), (4, False)]

    def verify(crashed: FaultyDisk, _: Random) -> int:
        outboxes(crashed).mend()
        slot = Slot(crashed, "/state/outbox/1", random_bytes)
        assert [(each.first_sequence, each.lost) for each in slot.pending] == expected
        slot.close()
        return 1

    points = CrashPoints(disk, verify)
    outboxes(disk).mend()
    points.crash_here()
    assert points.recoveries > 100


def test_what_was_damaged_is_in_quarantine_for_good_before_its_name_is_given_up() -> None:
    disk = FaultyDisk(Random(1))
    recorded(disk, 1, 2)
    change(disk, b"number %020d" % 2)
    calls: list[tuple[str, str]] = []

    def note(call: str, path: str, _: int) -> None:
        calls.append((call, path))

    disk.faults.hook = note
    outboxes(disk).mend()
    assert calls[-3:] == [
        ("rename", "/state/quarantine/outbox-1-1"),
        ("sync_directory", "/state/quarantine"),  # first: it is in both rather than in none
        ("sync_directory", "/state/outbox/1"),
    ]
    disk.crash(PowerCut.NOTHING)
    assert disk.names("/state/quarantine") == ["outbox-1-1"]
    assert disk.names("/state/outbox/1") == ["2", "lock"]


def test_an_outbox_is_known_by_any_record_that_only_an_outbox_has() -> None:
    disk = FaultyDisk(Random(1))
    recorded(disk, 1)
    recorded(disk, 2)
    change(disk, b"number %020d" % 1, before=40)
    disk.flip_bit(f"/state/outbox/1/1/log/{log_name(1)}", HEADER_BYTES + 8)
    with pytest.raises(StorageRefused, match="outbox of a client"):
        examine(disk, "/state/outbox/1/1")


def test_a_damaged_journal_is_not_taken_for_a_damaged_outbox(world: World, state: Path) -> None:
    with closing(sqlite3.connect(state / "state.db")) as journal, journal:
        journal.execute("INSERT INTO cursors VALUES ('orders', 1, 5, 12345)")
    with pytest.raises(Corrupt) as refused:
        open_state("shop", state)
    assert "once client repair" not in refused.value.detail


def test_who_accepts_a_loss_is_told_of_a_damaged_outbox_too(world: World, state: Path) -> None:
    flip(state, UNSENT[1])
    with pytest.raises(Corrupt, match="once client repair --id shop --state"):
        ClientFiles("shop", state, random_bytes)
