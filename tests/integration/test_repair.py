"""From damage to a server that serves: on the real server, with a client that was there before."""

import os
import secrets
import threading
from pathlib import Path

import pytest

from oncemq import Client, testing
from oncemq.assembly import Server
from oncemq.broker.state import snapshot
from oncemq.broker.state.shard import Shard
from oncemq.errors import Corrupt, StorageRefused
from oncemq.protocol.generations import NAME_BITS
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import LeaderEpoch
from oncemq.protocol.records import Marked, Retention
from oncemq.server.examination import accept_loss, examine, faults
from oncemq.server.recovery import fold
from oncemq.storage.backup.backup import BackupReport, back_up
from oncemq.storage.backup.restore import restore
from oncemq.storage.disk import LocalDisk
from oncemq.storage.log.log import LogOptions
from oncemq.storage.log.recovery import open_log
from oncemq.storage.log.room import Room
from oncemq.storage.segments.layout import read_format
from oncemq.storage.segments.promised_epoch import PromisedEpoch

SMALL = LogOptions(
    segment_bytes=1 << 16, allocate_bytes=1 << 14, reserve_bytes=1 << 12, checkpoint_records=40
)


def save(data: Path, backup: Path) -> BackupReport:
    return back_up(LocalDisk(), str(data), str(backup), progress=lambda _, __: None, judge=faults)


def bring_back(backup: Path, directory: Path) -> None:
    restore(
        LocalDisk(),
        str(backup),
        str(directory),
        random_bytes=secrets.token_bytes,
        progress=lambda _, __: None,
    )


def fill(data: Path, count: int) -> None:
    """Messages over several segments, the first of which two checkpoints cover."""
    with testing.server(data=data, options=SMALL) as address, Client(address) as client:
        client.create_topic("orders", Retention(forever=True))
        for number in range(count):
            client.put("orders", b"%06d" % number + bytes(2000))
    opened = open_log(LocalDisk(), str(data), SMALL, random_bytes=secrets.token_bytes)
    shard = Shard(opened.log.tag, opened.log.identity)
    fold(shard, opened.states, opened.checkpoint_end, opened.replay)
    for _ in range(2):
        shard.apply(Marked(), opened.log.append(Marked()))
        group = opened.log.take_group()
        assert group is not None
        opened.log.write(group)
        opened.log.finished(group)
        writer = opened.log.begin_checkpoint()
        for blob in snapshot.capture(shard):
            writer.add(blob)
        job = writer.finish()
        job.run()
        opened.log.complete(job)
        job.clean()
    opened.log.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory that was filled."""
    fill(tmp_path / "data", 150)
    return tmp_path / "data"


@pytest.fixture
def holed(data: Path) -> Path:
    """The same, without a segment that the checkpoints cover, and without its index."""
    victim = sorted((data / "log").glob("*.log"))[1]
    victim.unlink()
    victim.with_suffix(".idx").unlink()
    return data


def test_a_replica_is_mended_by_the_others_unless_it_is_the_last_copy(holed: Path) -> None:
    PromisedEpoch(LocalDisk(), str(holed)).promise(LeaderEpoch(3))
    with pytest.raises(StorageRefused, match="the others have what is damaged here: start"):
        accept_loss(LocalDisk(), str(holed), random_bytes=secrets.token_bytes)
    assert examine(LocalDisk(), str(holed)).is_replica
    accept_loss(LocalDisk(), str(holed), random_bytes=secrets.token_bytes, is_last_copy=True)
    assert examine(LocalDisk(), str(holed)).sound


def test_a_lost_segment_is_a_hole_that_readers_are_told_of(
    holed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = holed
    with pytest.raises(Corrupt, match="is in no segment"), testing.server(data=data, options=SMALL):
        raise AssertionError("it serves with a hole that nobody agreed to")
    found = examine(LocalDisk(), str(data))
    assert not found.sound
    (hole,) = [(each.record.first_offset, each.record.end_offset) for each in found.missing]
    accept_loss(LocalDisk(), str(data), random_bytes=secrets.token_bytes)
    for _ in range(2):  # agreed to once, it stays so
        with testing.server(data=data, options=SMALL) as address, Client(address) as client:
            assert client.topic("orders").topic.lost == (hole,)
            first = client.read("orders", hole[0], limit=1)
            assert [message.offset for message in first] == [hole[1]]
            client.put("orders", b"it goes on")
    assert "messages lost for good, as a person agreed: orders@" in caplog.text
    assert examine(LocalDisk(), str(data)).sound


def test_a_backup_of_a_server_at_work_holds_what_was_acknowledged_before(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    stop = threading.Event()
    acknowledged: list[int] = []
    reached = [threading.Event() for _ in range(4)]

    def publish(address: str) -> None:
        with Client(address) as client:
            while not stop.is_set():
                receipt = client.put("orders", b"%06d" % len(acknowledged) + bytes(2000))
                assert receipt.offset == len(acknowledged)
                acknowledged.append(len(acknowledged))
                if len(acknowledged) % 60 == 0 and len(acknowledged) <= 240:
                    reached[len(acknowledged) // 60 - 1].set()

    with testing.server(data=data, options=SMALL) as address:
        with Client(address) as client:
            client.create_topic("orders", Retention(forever=True))
        thread = threading.Thread(target=publish, args=(address,))
        thread.start()
        try:
            reports = []
            for number in range(4):
                reached[number].wait(60)
                before = len(acknowledged)
                report = save(data, backup)
                reports.append(report)
                again = tmp_path / f"restored{number}"
                bring_back(backup, again)
                assert examine(LocalDisk(), str(again)).sound
                with testing.server(data=again, options=SMALL) as other, Client(other) as client:
                    found = client.topic("orders").topic
                    assert (found.low, found.lost) == (0, ())
                    assert found.end >= before
                    messages = client.read("orders", 0, limit=found.end)
                    numbers = [int(message.payload[:6]) for message in messages]
                    assert numbers == list(range(len(numbers)))
        finally:
            stop.set()
            thread.join()
    assert reports[-1].copied_files < reports[-1].files, "sealed segments are copied once"


@pytest.mark.parametrize("left", [None, b"", b"\xff" * 80, b'{"format": 1}'])
def test_a_format_file_that_is_gone_or_damaged_is_written_again(
    left: bytes | None, tmp_path: Path
) -> None:
    data, state = tmp_path / "data", tmp_path / "state"
    with testing.server(data=data) as address, Client(address, id="ada", state=state) as client:
        client.subscribe("orders")
        for number in range(4):
            client.put("orders", b"%d" % number)
        assert [each.payload for each in client.get("orders", limit=2)] == [b"0", b"1"]
    path = data / "FORMAT"
    path.unlink() if left is None else path.write_bytes(left)
    with pytest.raises(Corrupt, match="once repair"), testing.server(data=data):
        raise AssertionError("it serves a log whose identity nobody knows")
    found = examine(LocalDisk(), str(data))
    assert not found.sound
    assert found.diagnosis.format_fault
    assert (found.diagnosis.damages, found.missing, path.exists()) == ([], [], left is not None)
    accept_loss(LocalDisk(), str(data), random_bytes=secrets.token_bytes)
    assert examine(LocalDisk(), str(data)).sound
    if left is not None:
        assert (data / "quarantine" / "FORMAT").read_bytes() == left
    with testing.server(data=data) as address, Client(address, id="ada", state=state) as client:
        assert [each.payload for each in client.get("orders", limit=9)] == [b"2", b"3"]
        client.put("orders", b"4")
        assert [each.payload for each in client.get("orders", limit=9)] == [b"4"]


def test_a_format_file_written_again_has_a_generation_that_nobody_saw(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with testing.server(data=data) as address, Client(address) as client:
        client.create_topic("orders", Retention(forever=True))
    seen: list[tuple[int, int]] = []
    for _ in range(3):
        (data / "FORMAT").unlink()
        accept_loss(LocalDisk(), str(data), random_bytes=secrets.token_bytes)
        with testing.server(data=data):
            pass
        form = read_format(LocalDisk(), str(data))
        assert form is not None
        seen.append((form.generation, form.tag))
    assert [generation >> NAME_BITS for generation, _ in seen] == [1, 2, 3]
    assert len({tag for _, tag in seen}) == 3


def test_without_a_segment_nobody_knows_whose_log_it_was(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    with pytest.raises(Corrupt, match="no segment says whose log it is"):
        examine(LocalDisk(), str(tmp_path))


def test_a_restore_agrees_to_no_hole(data: Path, tmp_path: Path) -> None:
    """Files of the restored directory are missing, and its generation is raised all the same."""
    backup, again = tmp_path / "backup", tmp_path / "again"
    save(data, backup)
    bring_back(backup, again)
    sorted((again / "log").glob("*.log"))[1].unlink()
    with (
        pytest.raises(Corrupt, match="is in no segment"),
        testing.server(data=again, options=SMALL),
    ):
        raise AssertionError("it serves with a hole that nobody agreed to")


def test_a_hole_is_not_backed_up_before_a_person_agreed_to_it(holed: Path, tmp_path: Path) -> None:
    data, backup, again = holed, tmp_path / "backup", tmp_path / "again"
    with pytest.raises(Corrupt, match=r"no server would start .*orders@\d+ up to"):
        save(data, backup)
    assert not (backup / "MANIFEST").exists()
    found = accept_loss(LocalDisk(), str(data), random_bytes=secrets.token_bytes)
    save(data, backup)  # before any start has noted it: the list of what was agreed to goes along
    bring_back(backup, again)
    (hole,) = [(each.record.first_offset, each.record.end_offset) for each in found.missing]
    with testing.server(data=again, options=SMALL) as address, Client(address) as client:
        assert client.topic("orders").topic.lost == (hole,)


def test_a_server_that_finds_no_room_for_a_hole_leaves_nothing_open(
    holed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = holed
    accept_loss(LocalDisk(), str(data), random_bytes=secrets.token_bytes)
    bind = f"ipc://{tmp_path}/socket"

    def server() -> Server:
        return Server(data, bind, rules=ServerLimits(), options=SMALL)

    before = set(os.listdir("/dev/fd"))
    monkeypatch.setattr(Room, "has_room", lambda *_, **__: False)
    for _ in range(2):  # its lock, its files and its sockets are free again
        with pytest.raises(StorageRefused, match="no room to note 1 holes"):
            server()
    assert set(os.listdir("/dev/fd")) == before
    monkeypatch.undo()
    started = server()
    started.stop()
    started.run()
