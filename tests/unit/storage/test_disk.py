"""What the local disk asks of the operating system, so that the device has the bytes."""

import errno
import fcntl
import os
import sys
from pathlib import Path

import pytest

from oncemq.errors import Locked
from oncemq.storage.disk import LocalDisk, Spares

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


def test_a_lock_that_cannot_be_noted_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "planned")

    with monkeypatch.context() as trouble:
        trouble.setattr(os, "pwrite", broken)
        with pytest.raises(OSError, match="planned"):
            LocalDisk().lock(f"{tmp_path}/lock")
    LocalDisk().lock(f"{tmp_path}/lock").release()


def test_a_file_is_synced_down_to_the_device_on_a_mac(
    tmp_path: Path, synced: Synced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An fsync stops at the cache of the device there."""
    calls: list[tuple[int, int]] = []
    file = LocalDisk().open(f"{tmp_path}/a", create=True)
    with monkeypatch.context() as mac:
        mac.setattr(sys, "platform", "darwin")
        mac.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
        mac.setattr(fcntl, "fcntl", lambda on, what: calls.append((os.fstat(on).st_ino, what)))
        file.sync()
    assert (calls, synced) == ([(inode(tmp_path / "a"), 51)], [])
    file.close()


def test_a_spare_descriptor_is_given_free_for_a_file_that_finds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spares = Spares(2)
    disk = LocalDisk(spares)
    disk.open(f"{tmp_path}/a", create=True).close()
    held, system = list(spares._held), os.open
    assert len(held) == 2

    def scarce(path: str, flags: int, mode: int = 0o777) -> int:
        """There is no descriptor beyond those that are open now."""
        if all(is_open(each) for each in held):
            raise OSError(errno.EMFILE, "planned")
        return system(path, flags, mode)

    monkeypatch.setattr(os, "open", scarce)
    file = disk.open(f"{tmp_path}/b", create=True)
    monkeypatch.undo()
    file.write([b"b"], 0)
    file.close()
    assert (tmp_path / "b").read_bytes() == b"b"
    spares.release()
    with pytest.raises(FileNotFoundError):
        disk.open(f"{tmp_path}/c")


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_what_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    LocalDisk().open(str(tmp_path / "file"), create=True).close()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
