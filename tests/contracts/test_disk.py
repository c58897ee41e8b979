"""What every Disk does. A new one is added to DISKS and passes all of this."""

import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from oncemq.errors import Locked
from oncemq.storage import disk as disk_module
from oncemq.storage.disk import LocalDisk, LockingDisk
from oncemq.testing.faulty_disk import FaultyDisk

DISKS: dict[str, Callable[[], LockingDisk]] = {
    "local": LocalDisk,
    "faulty": lambda: FaultyDisk(Random(1)),
}


@pytest.fixture(params=list(DISKS))
def disk(request: pytest.FixtureRequest) -> LockingDisk:
    return DISKS[request.param]()


@pytest.fixture
def directory(disk: LockingDisk, tmp_path: Path) -> str:
    path = f"{tmp_path}/deep/data"
    disk.make_directory(path)
    return path


def test_what_is_written_is_read(disk: LockingDisk, directory: str) -> None:
    file = disk.open(f"{directory}/a", create=True)
    file.write([b"one", bytearray(b"two"), memoryview(b"three")], 4)
    file.sync()
    assert file.read(0, 100) == b"\0\0\0\0onetwothree"
    assert file.read(4, 3) == b"one"
    assert file.read(100, 5) == b""
    assert file.size() == 15
    file.write([], 0)
    file.close()


def test_a_write_of_very_many_buffers_is_whole(disk: LockingDisk, directory: str) -> None:
    file = disk.open(f"{directory}/a", create=True)
    buffers = [b"%05d" % number for number in range(5000)]
    file.write(buffers, 3)
    assert file.read(3, 10**6) == b"".join(buffers)
    file.close()


def test_a_file_that_is_not_there_is_not_made(disk: LockingDisk, directory: str) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(f"{directory}/a")
    with pytest.raises(FileNotFoundError):
        disk.remove(f"{directory}/a")
    assert disk.names(directory) == []


def test_room_is_zeros_and_never_shrinks(disk: LockingDisk, directory: str) -> None:
    file = disk.open(f"{directory}/a", create=True)
    file.write([b"abc"], 0)
    file.allocate(10)
    assert file.read(0, 99) == b"abc" + bytes(7)
    file.allocate(5)
    assert file.size() == 10
    file.truncate(2)
    file.allocate(4)
    assert file.read(0, 99) == b"ab\0\0"
    file.close()


def test_names_renames_and_removals(disk: LockingDisk, directory: str) -> None:
    for name in ("b", "a", "c"):
        disk.open(f"{directory}/{name}", create=True).close()
    disk.rename(f"{directory}/a", f"{directory}/c")
    disk.remove(f"{directory}/b")
    disk.sync_directory(directory)
    assert disk.names(directory) == ["c"]
    disk.make_directory(directory)  # again: nothing happens
    assert disk.free_bytes(directory) > 0


def test_a_lock_excludes_until_it_is_released(disk: LockingDisk, directory: str) -> None:
    lock = disk.lock(f"{directory}/lock")
    with pytest.raises(Locked, match="held by process"):
        disk.lock(f"{directory}/lock")
    lock.release()
    disk.lock(f"{directory}/lock").release()


def test_local_files_are_their_owners_alone(tmp_path: Path) -> None:
    disk = LocalDisk()
    disk.make_directory(f"{tmp_path}/data")
    disk.open(f"{tmp_path}/data/a", create=True).close()
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "data" / "a").stat().st_mode & 0o777 == 0o600


def test_a_local_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = f"import os; from oncemq.storage.disk import LocalDisk; \
LocalDisk().lock({str(tmp_path / 'lock')!r}); os._exit(1)"
    subprocess.run([sys.executable, "-c", code], check=False)
    LocalDisk().lock(str(tmp_path / "lock")).release()


@pytest.mark.parametrize("short", [1, 4, 7])
def test_a_short_write_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: int
) -> None:
    real = disk_module.os.pwritev

    def cut(descriptor: int, buffers: list[bytes], position: int) -> int:
        return real(descriptor, [b"".join(buffers)[:short]], position)

    monkeypatch.setattr(disk_module.os, "pwritev", cut)
    file = LocalDisk().open(f"{tmp_path}/a", create=True)
    file.write([b"one", b"two", b"three"], 2)
    assert file.read(2, 99) == b"onetwothree"
    file.close()


@pytest.mark.parametrize("short", [1, 4, 7])
def test_a_short_read_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: int
) -> None:
    real = disk_module.os.pread
    file = LocalDisk().open(f"{tmp_path}/a", create=True)
    file.write([b"onetwothree"], 0)
    monkeypatch.setattr(
        disk_module.os, "pread", lambda on, size, at: real(on, min(size, short), at)
    )
    assert file.read(0, 11) == b"onetwothree"
    assert file.read(3, 6) == b"twothr"
    assert file.read(6, 99) == b"three"
    assert file.read(11, 5) == b""
    file.close()


def test_without_pwritev_and_fallocate_it_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "_IOV_MAX", 0)
    monkeypatch.delattr(disk_module.os, "posix_fallocate")
    file = LocalDisk().open(f"{tmp_path}/a", create=True)
    file.write([b"one", b"two"], 1)
    file.allocate(3 << 20)
    assert file.read(0, 8) == b"\0onetwo\0"
    assert file.size() == 3 << 20
    file.close()


def test_the_local_disk_has_descriptors_when_there_are_no_others(tmp_path: Path) -> None:
    """Idle peers of a server may have all of them: a segment is opened, a directory synced."""
    code = """
import os, resource, sys
from oncemq.storage.disk import LocalDisk, Spares
disk = LocalDisk(Spares(4))
disk.open(sys.argv[1] + "/first", create=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
try:
    LocalDisk().open(sys.argv[1] + "/first")
except OSError as error:
    print(error.errno)
for number in range(20):
    file = disk.open(f"{sys.argv[1]}/{number}", create=True)
    disk.sync_directory(sys.argv[1])
    file.close()
"""
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, f"{errno.EMFILE}\n"), ran.stderr


def test_a_lock_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(Locked, match="symbolic link"):
        LocalDisk().lock(f"{tmp_path}/lock")
    assert (tmp_path / "victim").read_text() == "precious"
