"""The order of writes and syncs, which no crash forgives."""

from pathlib import Path
from typing import Any

import pytest

from oncemq.storage.disk import LocalDisk, LocalFile
from oncemq.storage.log.log import LogOptions
from oncemq.storage.repair.repair import accept_loss
from oncemq.storage.segments.layout import ensure_format, remove_log

Event = tuple[str, str]


class NotingDisk(LocalDisk):
    """Notes every write, sync and rename by file name."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def note(self, what: str, path: str) -> None:
        self.events.append((what, path.rpartition("/")[2]))

    def open(self, path: str, create: bool = False) -> LocalFile:
        file = super().open(path, create)
        noting = NotingFile.__new__(NotingFile)
        noting.__dict__.update(file.__dict__, disk=self, path=path)
        return noting

    def rename(self, source: str, target: str) -> None:
        self.note("rename", target)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.note("remove", path)
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self.note("sync directory", path)


class NotingFile(LocalFile):
    disk: NotingDisk
    path: str

    def write(self, buffers: Any, position: int) -> None:
        self.disk.note("write", self.path)
        super().write(buffers, position)

    def truncate(self, size: int) -> None:
        self.disk.note("truncate", self.path)
        super().truncate(size)

    def sync(self) -> None:
        self.disk.note("sync", self.path)


@pytest.fixture
def noting(tmp_path: Path, make_scribe: Any) -> Any:
    scribe = make_scribe(tmp_path / "data", NotingDisk())
    scribe.disk.events.clear()
    return scribe


def test_a_group_is_written_then_synced(noting: Any) -> None:
    noting.put(1, b"a")
    noting.put(1, b"b" * 400)
    assert noting.disk.events == []  # appending touches no disk
    noting.commit()
    name = f"{1:020d}.log"
    assert noting.disk.events == [("write", name), ("sync", name)]
    noting.log.close()


def test_a_segment_is_durable_before_the_next_begins(noting: Any) -> None:
    old, index = f"{1:020d}.log", f"{1:020d}.idx"
    while len(noting.segments) < 2:
        noting.commit()
        noting.disk.events.clear()
        noting.put(1, b"x" * 200)
    noting.commit()
    new = noting.segments[-1].name
    assert noting.disk.events == [
        ("sync", old),
        ("truncate", old),
        ("sync", old),
        ("truncate", index + ".tmp"),
        ("write", index + ".tmp"),
        ("sync", index + ".tmp"),
        ("rename", index),
        ("sync directory", "log"),
        ("write", new),
        ("sync", new),
        ("sync directory", "log"),
        ("truncate", "END.tmp"),  # only now: the note is never ahead of what is durable
        ("write", "END.tmp"),
        ("sync", "END.tmp"),
        ("rename", "END"),
        ("sync directory", "data"),
        ("write", new),
        ("sync", new),
    ]
    noting.disk.events.clear()
    noting.log.close()
    assert noting.disk.events == [
        ("truncate", "END.tmp"),
        ("write", "END.tmp"),
        ("sync", "END.tmp"),
        ("rename", "END"),
        ("sync directory", "data"),
    ]


def test_checkpoints_and_cold_segments_are_durable_before_they_have_their_names(
    noting: Any,
) -> None:
    for number in range(30):
        noting.store(1, b"m%d" % number + b"x" * 100)
        noting.store(2, b"small")
    noting.checkpoint(b"one")
    noting.fact(1)
    noting.commit()
    noting.disk.events.clear()
    noting.checkpoint(b"two")
    temporary, name = "new.ckpt.tmp", f"{61:020d}.ckpt"
    assert noting.disk.events[-4:] == [
        ("write", temporary),
        ("sync", temporary),
        ("rename", name),
        ("sync directory", "checkpoints"),
    ]
    noting.disk.events.clear()
    assert noting.compact(lambda topic: 0 if topic == 2 else 10**6) >= 1
    events = noting.disk.events
    named = next(n for n, (what, name) in enumerate(events) if what == "rename" and "cold" in name)
    cold = events[named][1]
    assert ("sync", cold + ".tmp") in events[:named]
    assert ("write", cold + ".tmp") not in events[events.index(("sync", cold + ".tmp")) :]
    assert events[named + 1] == ("sync directory", "log")
    assert not [name for what, name in events[:named] if what == "remove"]
    removed = [at for at, (what, _) in enumerate(events) if what == "remove"]
    assert ("sync directory", "log") in events[removed[-1] :]  # no source comes back after it
    noting.log.close()


def test_a_clean_stop_syncs_what_an_interval_left_waiting(tmp_path: Path, make_scribe: Any) -> None:
    scribe = make_scribe(tmp_path / "data", NotingDisk(), LogOptions(sync_ms=1000))
    scribe.put(1, b"a")
    scribe.commit()
    scribe.disk.events.clear()
    scribe.log.close()
    assert scribe.disk.events[0] == ("sync", f"{1:020d}.log")


def test_what_recovery_cuts_off_is_durable_elsewhere_before(noting: Any) -> None:
    noting.store(1, b"a")
    end = noting.log._current.end
    noting.store(1, b"torn")
    noting.kill()
    with noting.segments[-1].open("r+b") as file:
        file.seek(end + 60)
        file.write(b"\xff")
    noting.disk.events.clear()
    noting.open()
    events, name = noting.disk.events, noting.segments[-1].name
    copy = f"{name}-{end}.torn"
    cut = events.index(("truncate", name))
    assert events.index(("sync", copy)) < events.index(("sync directory", "torn")) < cut
    assert events.index(("sync directory", "log"), cut) > events.index(("sync", name), cut)
    noting.log.close()


def test_what_repair_takes_out_is_durable_elsewhere_before(noting: Any) -> None:
    for number in range(30):
        noting.store(1, b"m%d " % number + b"x" * 100)
    place = noting.log.find(1, 3)
    noting.log.close()
    path = Path(place.segment.path)
    data = bytearray(path.read_bytes())
    data[place.position + place.size - 1] ^= 1
    path.write_bytes(data)
    noting.disk.events.clear()
    accept_loss(noting.disk, str(noting.directory), random_bytes=lambda size: b"\7" * size)
    events, name = noting.disk.events, path.name
    copy = f"{name}-{place.position}.cut"
    cut = events.index(("truncate", name))
    assert events.index(("sync", copy)) < cut
    assert ("sync", name) in events[cut:]
    moved = [at for at, (what, _) in enumerate(events) if what == "rename"][1:]  # after FORMAT
    assert moved
    for at in moved:  # in its new place before it is gone from the old one, for good
        after = [each for each in events[at + 1 :] if each[0] == "sync directory"][:2]
        assert after[0] == ("sync directory", "quarantine")
        assert after[1] in (("sync directory", "log"), ("sync directory", "data"))
    noting.open()
    noting.log.close()


def test_a_salvaged_segment_is_removed_for_good(noting: Any) -> None:
    for number in range(30):
        noting.store(1, b"m%d " % number + b"x" * 100)
    noting.checkpoint(b"state")
    place = noting.log.find(1, 2)
    noting.log.close()
    path = Path(place.segment.path)
    data = bytearray(path.read_bytes())
    data[place.position + place.size - 1] ^= 1
    path.write_bytes(data)
    noting.disk.events.clear()
    accept_loss(noting.disk, str(noting.directory), random_bytes=lambda size: b"\7" * size)
    events = noting.disk.events
    assert ("sync directory", "log") in events[events.index(("remove", path.name)) :]


def test_a_segment_before_the_last_is_cut_to_its_end_and_synced(noting: Any) -> None:
    while len(noting.segments) < 2:
        noting.store(1, b"x" * 100)
    noting.kill()
    first = noting.segments[0]
    with first.open("ab") as file:
        file.write(bytes(700))
    noting.disk.events.clear()
    noting.open()
    events = [what for what, name in noting.disk.events if name == first.name]
    assert events == ["truncate", "sync"]


def test_a_log_loses_its_name_for_good_before_its_files_are_removed(noting: Any) -> None:
    noting.store(1, b"a")
    noting.log.close()
    noting.disk.events.clear()
    remove_log(noting.disk, str(noting.directory))
    parent = noting.directory.parent.name
    assert noting.disk.events[:2] == [("rename", "data.gone"), ("sync directory", parent)]
    assert {what for what, _ in noting.disk.events[2:]} == {"remove"}
    assert not list(noting.directory.parent.iterdir())


def test_the_name_of_a_format_that_is_found_is_made_durable(noting: Any) -> None:
    """After a kill it may be in the page cache alone."""
    noting.log.close()
    noting.disk.events.clear()
    ensure_format(noting.disk, str(noting.directory), bytes)
    assert noting.disk.events == [("sync directory", "data")]


def test_a_damaged_checkpoint_is_put_aside_for_good(noting: Any) -> None:
    for number in range(2):
        noting.store(1, b"a")
        noting.checkpoint(b"%d" % number)
    noting.log.close()
    newest = max((noting.directory / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    noting.disk.events.clear()
    assert noting.open().states == [b"0"]
    events = noting.disk.events
    assert events[events.index(("rename", newest.name)) + 1] == ("sync directory", "checkpoints")
    noting.log.close()
