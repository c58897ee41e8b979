"""What every lock on a directory does, and what the local one does on its file systems."""

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from oncemq.errors import Locked
from oncemq.storage.disk import LocalDisk, LockingDisk
from tests.contracts.test_disk import LOCKING


@pytest.fixture(params=list(LOCKING))
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> LockingDisk:
    disk = LOCKING[request.param]()
    disk.make_directory(f"{tmp_path}/data")
    return disk


@pytest.fixture
def locks_files_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As NFS does: a lock needs a descriptor to write with, and a directory has none."""
    flock = fcntl.flock

    def of_files(descriptor: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "bad file descriptor")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", of_files)


def test_a_lock_excludes_though_its_file_is_removed(disk: LockingDisk, tmp_path: Path) -> None:
    lock = disk.lock(f"{tmp_path}/data/lock")
    assert lock.keep() is False
    disk.remove(f"{tmp_path}/data/lock")
    with pytest.raises(Locked, match="held by process"):
        disk.lock(f"{tmp_path}/data/lock")
    assert disk.names(f"{tmp_path}/data") == []  # who is refused leaves nothing
    assert lock.keep() is True  # it is there again, for versions that know of nothing else
    assert disk.names(f"{tmp_path}/data") == ["lock"]
    assert lock.keep() is False
    with pytest.raises(Locked, match="held by process"):
        disk.lock(f"{tmp_path}/data/lock")
    lock.release()
    disk.lock(f"{tmp_path}/data/lock").release()


def test_a_lock_whose_file_is_another_one_is_lost(disk: LockingDisk, tmp_path: Path) -> None:
    lock = disk.lock(f"{tmp_path}/data/lock")
    disk.open(f"{tmp_path}/data/other", create=True).close()
    disk.rename(f"{tmp_path}/data/other", f"{tmp_path}/data/lock")
    with pytest.raises(Locked, match="another lock file"):
        lock.keep()
    lock.release()


def test_a_lock_whose_directory_is_another_one_is_lost(disk: LockingDisk, tmp_path: Path) -> None:
    lock = disk.lock(f"{tmp_path}/data/lock")
    disk.rename(f"{tmp_path}/data", f"{tmp_path}/old")
    with pytest.raises(Locked, match="moved away"):
        lock.keep()
    disk.make_directory(f"{tmp_path}/data")
    with pytest.raises(Locked, match="moved away"):
        lock.keep()
    lock.release()


def _as_older_versions_lock(path: str) -> Callable[[], None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    return lambda: os.close(descriptor)


def test_a_version_that_locks_the_file_alone_excludes_and_is_excluded(tmp_path: Path) -> None:
    path = f"{tmp_path}/lock"
    end = _as_older_versions_lock(path)
    for _ in range(2):  # whoever is refused holds nothing afterwards
        with pytest.raises(Locked, match="held by process"):
            LocalDisk().lock(path)
    end()
    lock = LocalDisk().lock(path)
    with pytest.raises(BlockingIOError):
        _as_older_versions_lock(path)
    os.unlink(path)
    lock.keep()
    with pytest.raises(BlockingIOError):
        _as_older_versions_lock(path)
    os.unlink(path)
    end = _as_older_versions_lock(path)  # quicker than the next look
    with pytest.raises(Locked, match="another lock file"):
        lock.keep()
    end()
    lock.release()


@pytest.mark.usefixtures("locks_files_only")
def test_where_no_directory_can_be_locked_its_file_is_and_whoever_lost_it_hears(
    tmp_path: Path,
) -> None:
    path = f"{tmp_path}/lock"
    lock = LocalDisk().lock(path)
    with pytest.raises(Locked, match=f"held by process {os.getpid()}"):
        LocalDisk().lock(path)
    os.unlink(path)
    other = LocalDisk().lock(path)
    assert other.keep() is False
    with pytest.raises(Locked, match="another lock file"):
        lock.keep()
    lock.release()
    other.release()


@pytest.mark.usefixtures("locks_files_only")
def test_a_lock_file_that_is_removed_while_it_is_taken_is_not_taken_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flock, removals = tmp_path / "lock", fcntl.flock, iter([True])

    def too_late(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        if next(removals, False):
            path.unlink()

    monkeypatch.setattr(fcntl, "flock", too_late)
    lock = LocalDisk().lock(str(path))
    with pytest.raises(Locked, match="held by process"):
        LocalDisk().lock(str(path))
    lock.release()


def test_another_failure_to_lock_a_directory_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def fails(descriptor: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "broken")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", fails)
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(OSError, match="broken"):
        LocalDisk().lock(f"{tmp_path}/lock")
    assert len(os.listdir("/dev/fd")) == before


def test_databases_in_one_directory_have_a_lock_each(tmp_path: Path) -> None:
    disk = LocalDisk()
    first, second = (disk.lock_file(f"{tmp_path}/{name}") for name in ("a", "b"))
    with pytest.raises(Locked, match="held by process"):
        disk.lock_file(f"{tmp_path}/a")
    disk.lock(f"{tmp_path}/lock").release()
    assert (first.keep(), second.keep()) == (False, False)
    first.release()
    second.release()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the runner has threads
def test_a_forked_process_has_no_part_in_the_lock_of_its_parent(tmp_path: Path) -> None:
    """It may live on for long when the parent is dead."""
    lock = LocalDisk().lock(f"{tmp_path}/lock")
    (begun, begins), (end, ends) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ends)
        os.write(begins, b"!")
        os.read(end, 1)
        os._exit(0)
    try:
        os.read(begun, 1)
        with pytest.raises(Locked, match=f"process {os.getpid()};"):
            LocalDisk().lock(f"{tmp_path}/lock")
        lock.release()
        LocalDisk().lock(f"{tmp_path}/lock").release()
    finally:
        for descriptor in (begun, begins, end, ends):
            os.close(descriptor)
        os.waitpid(child, 0)
