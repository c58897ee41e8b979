"""What the local disk asks of the operating system, so that the device has the bytes."""

import errno
import os
import sys
from pathlib import Path

import pytest

from oncemq.errors import Locked
from oncemq.storage.disk import LocalDisk

Synced = list[tuple[str, int]]  # the call, and the inode it was for


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Synced:
    calls: Synced = []
    for call in ("fsync", "fdatasync"):
        monkeypatch.setattr(
            os, call, lambda on, call=call: calls.append((call, os.fstat(on).st_ino)), raising=False
        )
    monkeypatch.setattr(sys, "platform", "linux")
    return calls


def inode(path: Path) -> int:
    return path.stat().st_ino


def test_a_file_is_synced_with_its_size(tmp_path: Path, synced: Synced) -> None:
    file = LocalDisk().open(f"{tmp_path}/a", create=True)
    file.write([b"a"], 0)
    assert synced == []
    file.sync()
    assert synced == [("fdatasync", inode(tmp_path / "a"))]
    file.close()


def test_a_file_is_synced_where_there_is_no_fdatasync(
    tmp_path: Path, synced: Synced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "fdatasync")
    file = LocalDisk().open(f"{tmp_path}/a", create=True)
    file.sync()
    assert synced == [("fsync", inode(tmp_path / "a"))]
    file.close()


def test_the_names_in_a_directory_are_synced(tmp_path: Path, synced: Synced) -> None:
    LocalDisk().sync_directory(str(tmp_path))
    assert synced == [("fsync", inode(tmp_path))]


def test_every_new_directory_is_synced_in_its_parent(tmp_path: Path, synced: Synced) -> None:
    LocalDisk().make_directory(f"{tmp_path}/a/b/c")
    parents = [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    assert synced == [("fsync", inode(parent)) for parent in parents]


def test_a_lock_is_taken_on_a_full_disk_though_it_cannot_say_by_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"12345678\n")  # of a process that was here before

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "pwrite", full)
    held = LocalDisk().lock(str(path))
    monkeypatch.undo()
    with pytest.raises(Locked, match="held by process unknown"):
        LocalDisk().lock(str(path))
    held.release()
    LocalDisk().lock(str(path)).release()
    assert path.read_bytes() == b"%d\n" % os.getpid()
