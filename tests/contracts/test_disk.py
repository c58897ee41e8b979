"""What every Disk does, with its files and locks. A new one is added to DISKS and passes this.

A disk that only shows another one (`DiskView`) has no locks, and one that shows a backup is only
read: each passes what is left of it.
"""

import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from oncemq.errors import Locked
from oncemq.storage import disk as disk_module
from oncemq.storage.backup.manifest import BackupView, Copied
from oncemq.storage.disk import (
    Disk,
    DiskView,
    File,
    LocalDisk,
    LocalFile,
    LocalLock,
    LockingDisk,
    others_may_write,
)
from oncemq.storage.repair.forgiving import ForgivingDisk, ForgivingFile
from oncemq.testing.chaos import Chaos
from oncemq.testing.chaotic_disk import ChaoticDisk, ChaoticFile, Crashed
from oncemq.testing.faulty_disk import FaultyDisk, FaultyFile, FaultyLock
from simulator.machines.machine import Died, Machine, ProcessDisk, ProcessFile

LOCKING: dict[str, Callable[[], LockingDisk]] = {
    "local": LocalDisk,
    "faulty": lambda: FaultyDisk(Random(1)),
    "chaotic": lambda: ChaoticDisk(Chaos()),
    "process": lambda: ProcessDisk(Machine(Random(1)), lambda trap: None),
}
DISKS: dict[str, Callable[[], Disk]] = {
    **LOCKING,
    "view": lambda: DiskView(LocalDisk()),
    "forgiving": lambda: ForgivingDisk(LocalDisk()),
}


@pytest.fixture(params=list(DISKS))
def disk(request: pytest.FixtureRequest) -> Disk:
    return DISKS[request.param]()


@pytest.fixture(params=list(LOCKING))
def locking(request: pytest.FixtureRequest) -> LockingDisk:
    return LOCKING[request.param]()


@pytest.fixture
def directory(disk: Disk, tmp_path: Path) -> str:
    path = f"{tmp_path}/deep/data"
    disk.make_directory(path)
    return path


def test_what_is_written_is_read(disk: Disk, directory: str) -> None:
    file = disk.open(f"{directory}/a", create=True)
    file.write([b"one", bytearray(b"two"), memoryview(b"three")], 4)
    file.sync()
    assert file.read(0, 100) == b"\0\0\0\0onetwothree"
    assert file.read(4, 3) == b"one"
    assert file.read(100, 5) == b""
    assert file.size() == 15
    file.write([], 0)
    file.close()


def test_a_write_of_very_many_buffers_is_whole(disk: Disk, directory: str) -> None:
    file = disk.open(f"{directory}/a", create=True)
    buffers = [b"%05d" % number for number in range(5000)]
    file.write(buffers, 3)
    assert file.read(3, 10**6) == b"".join(buffers)
    file.close()


def test_a_file_that_is_not_there_is_not_made(disk: Disk, directory: str) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(f"{directory}/a")
    with pytest.raises(FileNotFoundError):
        disk.remove(f"{directory}/a")
    assert disk.names(directory) == []


def test_room_is_zeros_and_never_shrinks(disk: Disk, directory: str) -> None:
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


def test_names_renames_and_removals(disk: Disk, directory: str) -> None:
    for name in ("b", "a", "c"):
        disk.open(f"{directory}/{name}", create=True).close()
    disk.rename(f"{directory}/a", f"{directory}/c")
    disk.remove(f"{directory}/b")
    disk.sync_directory(directory)
    assert disk.names(directory) == ["c"]
    disk.make_directory(directory)  # again: nothing happens
    assert disk.free_bytes(directory) > 0


def test_each_kind_of_disk_has_its_kind_of_file(tmp_path: Path) -> None:
    kinds: list[type] = []
    for make in DISKS.values():
        disk = make()
        disk.make_directory(f"{tmp_path}/data")
        kinds.append(type(disk.open(f"{tmp_path}/data/a", create=True)))
    assert kinds == [LocalFile, FaultyFile, ChaoticFile, ProcessFile, LocalFile, ForgivingFile]


def test_a_file_is_one_however_often_it_is_opened(disk: Disk, directory: str) -> None:
    first, second = (disk.open(f"{directory}/a", create=True) for _ in range(2))
    first.write([b"abc"], 0)
    assert (second.read(0, 9), second.size()) == (b"abc", 3)
    disk.rename(f"{directory}/a", f"{directory}/b")
    second.write([b"d"], 3)
    disk.remove(f"{directory}/b")
    assert first.read(0, 9) == b"abcd"  # whoever has it open keeps it
    first.close()
    second.close()
    assert disk.names(directory) == []


def test_a_file_that_is_closed_is_not_used_any_more(disk: Disk, directory: str) -> None:
    file = disk.open(f"{directory}/a", create=True)
    file.write([b"abc"], 0)
    file.close()
    file.close()  # again: nothing happens
    calls: list[Callable[[], object]] = [
        lambda: file.write([b"x"], 0),
        lambda: file.read(0, 1),
        file.sync,
        lambda: file.truncate(0),
        lambda: file.allocate(9),
        file.size,
    ]
    for call in calls:
        with pytest.raises((OSError, ValueError)):  # the latter: Python looks at it first
            call()
    again = disk.open(f"{directory}/a")
    assert again.read(0, 9) == b"abc"
    again.close()


def test_a_directory_is_no_file_and_a_file_no_directory(disk: Disk, directory: str) -> None:
    disk.make_directory(f"{directory}/inner")
    disk.open(f"{directory}/a", create=True).close()
    with pytest.raises(IsADirectoryError):
        disk.open(f"{directory}/inner", create=True)
    with pytest.raises(NotADirectoryError):
        disk.names(f"{directory}/a")
    with pytest.raises(NotADirectoryError):
        disk.open(f"{directory}/a/b", create=True)
    with pytest.raises(NotADirectoryError):
        disk.sync_directory(f"{directory}/a")
    with pytest.raises((FileExistsError, NotADirectoryError)):
        disk.make_directory(f"{directory}/a")
    assert disk.names(directory) == ["a", "inner"]


def test_what_is_not_there_is_not_found(disk: Disk, directory: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: disk.names(f"{directory}/none"),
        lambda: disk.open(f"{directory}/none/a", create=True),
        lambda: disk.rename(f"{directory}/none", f"{directory}/some"),
        lambda: disk.sync_directory(f"{directory}/none"),
        lambda: disk.free_bytes(f"{directory}/none"),
    ]
    for call in calls:
        with pytest.raises(FileNotFoundError):
            call()
    assert disk.names(directory) == []


def test_a_directory_is_removed_and_replaced_only_when_it_is_empty(
    disk: Disk, directory: str
) -> None:
    disk.make_directory(f"{directory}/full")
    disk.open(f"{directory}/full/a", create=True).close()
    disk.make_directory(f"{directory}/empty")
    with pytest.raises(OSError, match="not empty"):
        disk.remove(f"{directory}/full")
    with pytest.raises(OSError, match="not empty"):
        disk.rename(f"{directory}/empty", f"{directory}/full")
    disk.rename(f"{directory}/full", f"{directory}/empty")
    assert (disk.names(directory), disk.names(f"{directory}/empty")) == (["empty"], ["a"])


def test_a_file_does_not_replace_a_directory_nor_that_a_file(disk: Disk, directory: str) -> None:
    disk.make_directory(f"{directory}/inner")
    disk.open(f"{directory}/a", create=True).close()
    with pytest.raises(IsADirectoryError):
        disk.rename(f"{directory}/a", f"{directory}/inner")
    with pytest.raises(NotADirectoryError):
        disk.rename(f"{directory}/inner", f"{directory}/a")
    assert disk.names(directory) == ["a", "inner"]


def test_a_lock_excludes_until_it_is_released(locking: LockingDisk, tmp_path: Path) -> None:
    locking.make_directory(f"{tmp_path}/data")
    lock = locking.lock(f"{tmp_path}/data/lock")
    with pytest.raises(Locked, match="held by process"):
        locking.lock(f"{tmp_path}/data/lock")
    lock.release()
    again = locking.lock(f"{tmp_path}/data/lock")
    lock.release()  # it was released before: that gives nothing free that another holds
    with pytest.raises(Locked, match="held by process"):
        locking.lock(f"{tmp_path}/data/lock")
    again.release()
    assert locking.names(f"{tmp_path}/data") == ["lock"]
    with pytest.raises(FileNotFoundError):
        locking.lock(f"{tmp_path}/none/lock")


def test_each_kind_of_disk_has_its_kind_of_lock(tmp_path: Path) -> None:
    kinds: list[type] = []
    for make in LOCKING.values():
        disk = make()
        disk.make_directory(f"{tmp_path}/data")
        lock = disk.lock(f"{tmp_path}/data/lock")
        kinds.append(type(lock))
        lock.release()
    assert kinds == [LocalLock, FaultyLock, LocalLock, FaultyLock]


def test_a_backup_is_read_under_the_names_of_the_data(tmp_path: Path) -> None:
    disk = LocalDisk()
    disk.make_directory(f"{tmp_path}/backup/files")
    file = disk.open(f"{tmp_path}/backup/files/7", create=True)
    file.write([b"abc"], 0)
    file.close()
    copied = Copied("log", "00.seg", 3, 0, file="7")
    view: Disk = BackupView(disk, "/data", f"{tmp_path}/backup", [copied])
    assert view.names("/data/log") == ["00.seg"]
    found = view.open("/data/log/00.seg")
    assert (found.read(0, 9), found.size()) == (b"abc", 3)
    found.close()
    with pytest.raises(AssertionError, match="nothing is added"):
        view.open("/data/log/01.seg", create=True)


def test_a_server_that_died_by_chaos_does_nothing_more(tmp_path: Path) -> None:
    chaos = Chaos()
    disk = ChaoticDisk(chaos)
    disk.make_directory(f"{tmp_path}/log")
    file = disk.open(f"{tmp_path}/log/a", create=True)
    file.write([b"abc"], 0)
    disk.armed = True
    chaos.crash_after_sync()
    with pytest.raises(Crashed):
        file.sync()
    _nothing_is_done_by_the_dead(disk, file, str(tmp_path), Crashed)


def test_a_process_that_died_in_a_simulation_changes_nothing_more() -> None:
    disk = ProcessDisk(Machine(Random(1)), lambda trap: None)
    disk.make_directory("/log")
    file = disk.open("/log/a", create=True)
    disk.die()
    _nothing_is_done_by_the_dead(disk, file, "", Died)


def _nothing_is_done_by_the_dead(
    disk: LockingDisk, file: File, root: str, error: type[BaseException]
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: file.write([b"x"], 0),
        file.sync,
        lambda: file.truncate(0),
        lambda: file.allocate(9),
        lambda: disk.open(f"{root}/log/b", create=True),
        lambda: disk.rename(f"{root}/log/a", f"{root}/log/b"),
        lambda: disk.remove(f"{root}/log/a"),
        lambda: disk.make_directory(f"{root}/more"),
        lambda: disk.sync_directory(f"{root}/log"),
        lambda: disk.lock(f"{root}/log/lock"),  # nobody could give it free again
    ]
    for call in calls:
        with pytest.raises(error):
            call()


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


@pytest.mark.parametrize("again", [1, 2, 99])
@pytest.mark.parametrize("short", [1, 4, 7])
def test_a_short_write_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: int, again: int
) -> None:
    """Also where those that finish it are short `again`."""
    write_all, write = disk_module.os.pwritev, disk_module.os.pwrite

    def cut(descriptor: int, buffers: list[bytes], position: int) -> int:
        return write_all(descriptor, [b"".join(buffers)[:short]], position)

    monkeypatch.setattr(disk_module.os, "pwritev", cut)
    monkeypatch.setattr(disk_module.os, "pwrite", lambda on, data, at: write(on, data[:again], at))
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


@pytest.mark.parametrize(
    ("mode", "answer"), [(0o700, False), (0o755, False), (0o720, True), (0o702, True)]
)
def test_others_may_write_where_their_group_or_everyone_may(
    tmp_path: Path, mode: int, answer: bool
) -> None:
    tmp_path.chmod(mode)
    assert others_may_write(str(tmp_path)) is answer
    assert not others_may_write(f"{tmp_path}/nothing")
