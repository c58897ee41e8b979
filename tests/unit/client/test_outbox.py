"""The outbox: a put is on disk before it is sent, and a dead client's is taken over whole."""

import errno
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from oncemq.client.state import outbox
from oncemq.client.state.outbox import ROTATE_BYTES, Slot, open_slots
from oncemq.client.state.unsent import Unsent
from oncemq.errors import Corrupt, Locked, StorageFull, StorageRefused
from oncemq.protocol.names import ProducerId, Sequence, TopicId
from oncemq.protocol.outbox_records import OutboxPut
from oncemq.protocol.records import TopicDeleted
from oncemq.storage.log.log import JOINED_BYTES, Log
from oncemq.storage.log.room import Room
from oncemq.storage.segments.framing import HEADER_BYTES, STRETCH_BYTES
from tests.harness.storage import still_open

ID = TopicId(9)
NOBODY = ProducerId(b"")  # the slot's own


def put(first: int, count: int = 1, topic: str = "orders", body: bytes = b"x") -> Unsent:
    return Unsent(topic, ID, Sequence(first), count, 0, body)


class Desk:
    """Slots in a directory, and copies of it as a crash would leave it."""

    def __init__(self, directory: Path, disk, random_bytes) -> None:
        self.directory, self.disk, self.random_bytes = directory, disk, random_bytes
        self.open: list[Slot] = []
        self.copies = count(1)

    def slot(self, directory: Path | None = None) -> Slot:
        slot = Slot(self.disk, str(directory or self.directory / "1"), self.random_bytes)
        self.open.append(slot)
        return slot

    def slots(self, directory: Path | None = None) -> list[Slot]:
        found = open_slots(self.disk, str(directory or self.directory), self.random_bytes)
        self.open += found
        return found

    def copy(self) -> Path:
        copy = self.directory.with_name(f"crash{next(self.copies)}")
        shutil.copytree(self.directory, copy)
        return copy

    def crashed(self) -> Slot:
        """What a start finds when the process was killed now."""
        return self.slot(self.copy() / "1")


def die(slot: Slot) -> None:
    """The kernel gives up a dead process's locks; nothing more is written."""
    slot._log.close()
    slot._lock.release()


@pytest.fixture
def desk(tmp_path: Path, quick_disk, some_bytes) -> Iterator[Desk]:
    (tmp_path / "outbox").mkdir()
    desk = Desk(tmp_path / "outbox", quick_disk, some_bytes)
    yield desk
    for slot in desk.open:
        die(slot)


def test_a_new_slot_has_a_producer_for_good(desk) -> None:
    slot = desk.slot()
    assert (len(slot.producer), slot.lanes, slot.pending) == (16, {}, [])
    assert desk.crashed().producer == slot.producer
    slot.close()
    assert desk.slot().producer == slot.producer


def test_a_recorded_put_is_there_after_a_crash_with_its_numbers(desk) -> None:
    slot = desk.slot()
    slot.record([put(1, 2)])
    slot.record([put(3), put(1, topic="refunds")])
    after = desk.crashed()
    assert after.pending == [put(1, 2), put(3), put(1, topic="refunds")]
    assert after.lanes == {"orders": (ID, 4, NOBODY), "refunds": (ID, 2, NOBODY)}


def test_what_has_its_answer_is_not_sent_again_once_that_is_on_disk(desk) -> None:
    slot = desk.slot()
    slot.record([put(1, 2), put(3), put(1, topic="refunds")])
    slot.done(put(1, 2))
    assert len(desk.crashed().pending) == 3  # the server recognizes what comes twice
    slot.record([put(4)])
    assert desk.crashed().pending == [put(3), put(1, topic="refunds"), put(4)]


def test_the_numbers_go_on_after_everything_had_its_answer(desk) -> None:
    slot = desk.slot()
    slot.record([put(1, 5)])
    slot.done(put(1, 5))
    slot.close()
    after = desk.slot()
    assert (after.pending, after.lanes) == ([], {"orders": (ID, 6, NOBODY)})


def test_an_answer_out_of_turn_leaves_what_is_before_it_to_the_server(desk) -> None:
    slot = desk.slot()
    slot.record([put(1), put(2), put(3)])
    slot.done(put(2))
    slot.close()
    assert desk.slot().pending == [put(3)]


def test_an_outbox_of_an_older_version_is_still_read(desk) -> None:
    slot = desk.slot()
    slot._log.append(OutboxPut("orders", ID, Sequence(1), 2, 0, 77, b"old"))
    slot.record([put(3)])
    assert desk.crashed().pending == [put(1, 2, body=b"old"), put(3)]


MEBIBYTE = 1 << 20


@pytest.mark.parametrize("size", [1, 16, 64])
def test_a_recorded_put_of_any_size_that_is_allowed_is_there_after_a_crash(desk, size) -> None:
    slot = desk.slot()
    bodies = [b"x" * (size * MEBIBYTE + more) for more in (-49, -1, 0)]
    for number, body in enumerate(bodies, start=1):
        slot.record([put(number, body=body)])
    slot.record([put(4)])
    after = desk.crashed()
    assert [len(each.body) for each in after.pending] == [*map(len, bodies), 1]
    assert all(mine.body == body for mine, body in zip(after.pending, bodies, strict=False))


def test_a_recorded_put_is_there_after_a_crash_at_every_boundary_of_size(desk) -> None:
    """Frames are read in stretches, and small bodies are written beside their header."""
    edges = (0, 1, JOINED_BYTES, 1 << 16, STRETCH_BYTES - HEADER_BYTES, STRETCH_BYTES)
    sizes = [max(0, edge + more) for edge in edges for more in range(-3, 4)]
    slot = desk.slot()
    for number, size in enumerate(sizes, start=1):
        slot.record([put(number, body=bytes([number]) * size)])
    after = desk.crashed()
    assert [each.body for each in after.pending] == [
        bytes([number]) * size for number, size in enumerate(sizes, start=1)
    ]


def test_each_topic_keeps_its_producer_and_others_get_the_newest(desk) -> None:
    slot = desk.slot()
    first = slot.producer
    slot.record([put(1, topic="old")])
    newest = slot.renew()
    slot.record([replace(put(1, topic="new"), producer=newest)])
    before = desk.crashed()
    assert (before.producer, before.lanes["old"][2], before.lanes["new"][2]) == (
        first, NOBODY, newest,
    )  # fmt: skip
    assert [each.producer for each in before.pending] == [NOBODY, newest]
    slot.rotate({"old": (ID, Sequence(2), first), "new": (ID, Sequence(2), newest)}, [])
    after = desk.crashed()
    assert (after.producer, after.lanes["old"][2], after.lanes["new"][2]) == (newest, first, newest)


# ------------------------------------------------------------------ rewriting


def test_a_rewritten_slot_holds_only_what_it_was_given(desk) -> None:
    slot = desk.slot()
    slot.record([put(1), put(2), put(3)])
    lanes = {"orders": (ID, Sequence(9), NOBODY), "idle": (ID, Sequence(4), NOBODY)}
    slot.rotate(lanes, [put(8)])
    for after in (desk.crashed(), slot):
        assert after.producer == slot.producer
    after = desk.crashed()
    assert after.pending == [put(8)]
    assert after.lanes == {"orders": (ID, 9, NOBODY), "idle": (ID, 4, NOBODY)}
    assert [each.name for each in (desk.directory / "1").iterdir() if each.is_dir()] == ["2"]


def test_a_rewritten_slot_goes_on(desk) -> None:
    slot = desk.slot()
    slot.rotate({}, [put(1)])
    slot.record([put(2)])
    slot.done(put(1))
    slot.close()
    assert desk.slot().pending == [put(2)]


def test_a_crash_within_a_rewrite_leaves_the_old_or_the_new_never_half(desk, monkeypatch) -> None:
    slot = desk.slot()
    slot.record([put(1), put(2)])
    copies: list[Path] = []
    write = outbox._write

    def watched(log: Log) -> None:
        copies.append(desk.copy())  # before the new log is durable
        write(log)
        copies.append(desk.copy())  # before the old one is gone

    monkeypatch.setattr(outbox, "_write", watched)
    slot.rotate({"orders": (ID, Sequence(2))}, [put(1, topic="orders", body=b"new")])
    monkeypatch.undo()
    before, after = (desk.slot(copy / "1") for copy in copies)
    assert before.pending == [put(1), put(2)]
    assert after.pending == [put(1, body=b"new")]
    assert before.producer == after.producer == slot.producer
    removed = [path for path in still_open(copies[0]) if path.endswith("(deleted)")]
    assert removed == []  # the unfinished one is not kept open


def test_a_slot_is_due_for_rotation_when_most_of_its_log_is_answered(desk) -> None:
    slot = desk.slot()
    half = b"x" * (ROTATE_BYTES // 2)
    for number in (1, 2, 3):
        slot.record([put(number, body=half)])
        assert not slot.rotate_due
    slot.done(put(1, body=half))
    assert not slot.rotate_due
    slot.done(put(2, body=half))
    assert slot.rotate_due
    slot.rotate({"orders": (ID, Sequence(4))}, [put(3, body=half)])
    assert not slot.rotate_due


def test_much_that_is_unsent_is_not_written_anew_at_every_answer(desk) -> None:
    slot = desk.slot()
    part = b"x" * (ROTATE_BYTES // 2)
    puts = [put(number, body=part) for number in range(1, 13)]
    slot.record(puts)
    rotated = []
    for number, each in enumerate(puts, start=1):
        slot.done(each)
        if slot.rotate_due:
            rotated.append(number)
            slot.rotate({"orders": (ID, Sequence(13))}, puts[number:])
    assert rotated == [6, 9, 11]  # what is unsent is counted from the rotation on, too


# ------------------------------------------------------------------ twins and the dead


def test_a_slot_has_one_holder(desk) -> None:
    desk.slot()
    with pytest.raises(Locked):
        desk.slot()


def test_a_slot_has_one_holder_though_its_lock_files_are_removed(desk) -> None:
    slot = desk.slot()
    for lock in list(desk.directory.rglob("lock")):
        lock.unlink()
    with pytest.raises(Locked):
        desk.slot()
    slot.record([put(1)])
    slot.rotate({}, [put(1)])
    assert desk.crashed().pending == [put(1)]


def test_a_slot_that_was_replaced_is_not_written_anew_into_the_other(desk) -> None:
    slot = desk.slot()
    slot.record([put(1)])
    (desk.directory / "1").rename(desk.directory / "moved")
    desk.slot().record([put(7)])
    slot.rotate({}, [put(1)])
    with pytest.raises(StorageRefused, match="moved away"):
        slot.record([put(2)])
    assert desk.crashed().pending == [put(7)]


def test_a_dead_clients_slot_is_taken_over_whole(desk) -> None:
    (slot,) = desk.slots()
    slot.record([put(1)])
    die(slot)
    (after,) = desk.slots()
    assert (after.producer, after.pending) == (slot.producer, [put(1)])


def test_a_twin_gets_a_slot_of_its_own(desk) -> None:
    (mine,) = desk.slots()
    mine.record([put(1)])
    (twins,) = desk.slots()
    assert twins.producer != mine.producer
    assert twins.pending == []


def test_slots_of_all_the_dead_are_taken_over(desk) -> None:
    (one,) = desk.slots()
    (two,) = desk.slots()
    one.record([put(1)])
    two.record([put(1, topic="refunds")])
    die(one)
    die(two)
    assert [slot.pending for slot in desk.slots()] == [[put(1)], [put(1, topic="refunds")]]


# ------------------------------------------------------------------ disks that fail


def test_a_full_disk_refuses_the_put_and_takes_the_next_once_there_is_room(
    desk, monkeypatch
) -> None:
    slot = desk.slot()
    free = 0
    monkeypatch.setattr(type(desk.disk), "free_bytes", lambda self, directory: free)
    big = b"x" * (2 << 20)
    with pytest.raises(StorageFull):
        slot.record([put(1, body=big)])
    free = 1 << 40
    slot.record([put(1, body=big)])
    assert len(desk.crashed().pending) == 1


def _damage(desk: Desk, name: str = "1") -> None:
    slot = desk.slot(desk.directory / name)
    for number, body in enumerate([b"x", b"needle", b"x", b"x"], start=1):
        slot.record([put(number, body=body)])  # each says that those before are durable
    slot.close()
    (path,) = (desk.directory / name / "1" / "log").glob("*.log")
    path.write_bytes(path.read_bytes().replace(b"needle", b"noodle"))


def test_a_damaged_slot_is_said_to_be_so(desk) -> None:
    _damage(desk)
    with pytest.raises(Corrupt):
        desk.slots()


def test_a_damaged_slot_is_said_to_be_so_each_time_not_passed_over(desk) -> None:
    _damage(desk)
    for _ in range(2):
        with pytest.raises(Corrupt):
            desk.slots()


def test_slots_that_cannot_all_be_opened_are_all_let_go(desk) -> None:
    first, second = desk.slots(), desk.slots()
    for slot in (*first, *second):
        slot.close()
    _damage(desk, "2")
    for _ in range(2):
        with pytest.raises(Corrupt):
            desk.slots()
        desk.slot(desk.directory / "1").close()


def test_a_record_that_is_none_of_an_outbox_is_said_and_nothing_is_left_open(desk) -> None:
    slot = desk.slot()
    slot._log.append(TopicDeleted(ID))
    slot.close()
    with pytest.raises(StorageRefused, match="holds a record of kind 3,"):
        desk.slots()
    assert still_open(desk.directory) == []


def test_new_numbers_are_of_what_is_not_answered_though_nobody_noted_the_answer(desk) -> None:
    """The topic was deleted: what waits gets the numbers that an answered put had."""
    slot = desk.slot()
    slot.record([put(1, 3), put(4)])
    new = {"kept_below": Sequence(4), "first": Sequence(1), "gone": ()}
    slot.renumber("orders", TopicId(0), **new)
    assert [(each.first_sequence, each.count) for each in desk.crashed().pending] == [(1, 1)]


def test_a_number_that_is_given_again_was_answered(desk) -> None:
    slot = desk.slot()
    slot.record([put(1, 3), put(4)])
    slot.record([put(2)])
    assert desk.crashed().pending == [put(2)]


class FullNow:
    """A disk that has room for what must be noted, and for nothing else, while `full`."""

    def __init__(self, slot: Slot, monkeypatch) -> None:
        self.full = True
        has_room = slot._log.has_room

        def asked(size: int, *, now_ms: int, fact: bool = False) -> bool:
            return (fact or not self.full) and has_room(size, now_ms=now_ms, fact=fact)

        monkeypatch.setattr(slot._log, "has_room", asked)


def test_an_answer_noted_late_is_not_taken_for_that_of_a_put_with_a_new_number(
    desk: Desk, monkeypatch
) -> None:
    slot = desk.slot()
    slot.record([put(1), put(2)])
    slot.done(put(1))
    disk = FullNow(slot, monkeypatch)  # the answer cannot be noted, the new number can
    slot.renumber("orders", TopicId(10), kept_below=Sequence(2), first=Sequence(1), gone=())
    disk.full = False
    slot.record([put(1, topic="other")])  # notes what is answered
    assert [(each.topic, each.first_sequence) for each in desk.crashed().pending] == [
        ("orders", 1),
        ("other", 1),
    ]


def test_a_put_is_not_recorded_before_the_answers_on_its_topic(desk: Desk, monkeypatch) -> None:
    """Else the answer, noted behind it, could be taken for its own: its number is a lower one."""
    slot = desk.slot()
    slot.record([put(1), put(2)])
    slot.done(put(2))
    answers: list[bool] = []
    has_room = slot._log.has_room

    def room_at_the_second_look(size: int, *, now_ms: int, fact: bool = False) -> bool:
        answers.append(len(answers) > 0)
        return answers[-1] and has_room(size, now_ms=now_ms, fact=fact)

    monkeypatch.setattr(slot._log, "has_room", room_at_the_second_look)
    with pytest.raises(StorageFull):
        slot.record([put(1)])
    slot.record([put(1)])
    slot.close()
    assert [each.first_sequence for each in desk.slot().pending] == [1]


@pytest.mark.parametrize("lacking", [1, 2, 3])
def test_a_slot_is_not_written_anew_without_room_for_every_put_and_topic(
    desk, monkeypatch, caplog, lacking: int
) -> None:
    """Without its numbers on a topic the next start would give them to other puts."""
    slot = desk.slot()
    slot.record([put(1)])
    lanes = {"orders": (ID, Sequence(2), NOBODY), "idle": (ID, Sequence(7), NOBODY)}
    asked = count(1)
    with monkeypatch.context() as full:
        full.setattr(Room, "has_room", lambda *_, **__: next(asked) != lacking)
        slot.rotate(lanes, [put(1)])
    assert "outbox not rotated" in caplog.text
    slot.record([put(2)])
    assert desk.crashed().pending == [put(1), put(2)]
    assert [each.name for each in (desk.directory / "1").iterdir() if each.is_dir()] == ["1"]


def test_an_edition_that_may_be_whole_and_cannot_be_removed_ends_the_slot(
    desk, monkeypatch
) -> None:
    """The next start would take it, and pass over whatever is recorded from here on."""

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    slot = desk.slot()
    slot.record([put(1)])
    monkeypatch.setattr(outbox, "remove_log", fails)
    with monkeypatch.context() as full:
        full.setattr(Room, "has_room", lambda *_, **__: False)
        slot.rotate({}, [put(1)])
    assert slot.failure is None  # it was not finished: no start takes it
    slot.record([put(2)])
    with monkeypatch.context() as broken:
        broken.setattr(outbox, "_write", fails)
        slot.rotate({}, [put(1), put(2)])
    assert slot.failure is not None
    with pytest.raises(StorageRefused, match="nothing more is recorded"):
        slot.record([put(3)])
