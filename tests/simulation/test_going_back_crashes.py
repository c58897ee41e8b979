"""A power cut before every call to the disk of `once repair --accept-loss`, backup and restore.

Afterwards the same command, given once more, leads to a log that a server starts on. Nothing that
was taken out of a log is anywhere else than in the log or in quarantine; a backup that was cut off
leaves the one before, and one that is not whole is refused in words.
"""

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from oncemq.errors import StorageRefused
from oncemq.protocol.names import ClientId
from oncemq.protocol.records import Retention
from oncemq.server import driver
from oncemq.server.examination import accept_loss, examine, faults
from oncemq.storage.backup.backup import back_up
from oncemq.storage.backup.manifest import read_manifest
from oncemq.storage.backup.restore import restore
from oncemq.storage.log.checkpoint import read_checkpoint
from oncemq.storage.log.recovery import open_log
from oncemq.storage.segments.layout import read_format
from oncemq.storage.segments.segment import HEADER_BYTES
from oncemq.testing.crash_points import CrashPoints
from oncemq.testing.faulty_disk import FaultyDisk
from simulator import proof
from tests.simulation.crashed_server import OPTIONS, Ledger, Machine

A = ClientId("alice")
DATA, BACKUP, NEW = "/data", "/backup", "/new"


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "GATHER_BYTES", 4096)


def nothing(_: str, __: int) -> None: ...


def filled(disk: FaultyDisk) -> Machine:
    """Several segments, the first of them covered by checkpoints."""
    machine = Machine(disk, Ledger())
    machine.hello(A)
    machine.commit()
    machine.create("kept", Retention(forever=True))
    machine.subscribe(A, "a")
    machine.commit()
    for _ in range(12):
        machine.group(("a", b"p", 2, 400), ("kept", b"q", 1, 500))()
    machine.housekeep(12)
    grow(machine)
    return machine


def filled_more(disk: FaultyDisk) -> Machine:
    """The newest checkpoint begins segments behind the one before."""
    machine = filled(disk)
    grow(machine)
    grow(machine)
    machine.housekeep(4)
    return machine


def grow(machine: Machine) -> None:
    for _ in range(8):
        machine.group(("a", b"p", 1, 300), ("kept", b"q", 2, 300))()


def payloads(machine: Machine) -> set[bytes]:
    return {each for found in machine.found().values() for each in found.messages.values()}


def everything(disk: FaultyDisk, folder: str) -> bytes:
    """All bytes of the files in a folder."""
    found = b""
    for name in disk.names(folder):
        file = disk.open(f"{folder}/{name}")
        found += file.read(0, file.size())
        file.close()
    return found


# ------------------------------------------------------------------ accepted loss


def damage(disk: FaultyDisk, share: float) -> bytes:
    """Change a byte in the middle of one of the segments; what is there now, and around it."""
    names = [name for name in disk.names(f"{DATA}/log") if name.endswith((".log", ".cold"))]
    path = f"{DATA}/log/{names[int(share * len(names))]}"
    file = disk.open(path)
    position = len(file.read(0, file.size()).rstrip(b"\0")) // 2
    byte = file.read(position, 1)
    file.write([bytes([byte[0] ^ 0x41])], position)
    file.sync()
    around = file.read(position - 8, 16)
    file.close()
    return around


def behead(disk: FaultyDisk) -> bytes:
    """Take the header of the segment where the newest checkpoint begins; what is there now."""
    form = read_format(disk, DATA)
    assert form is not None
    names = disk.names(f"{DATA}/checkpoints")
    read = read_checkpoint(disk, f"{DATA}/checkpoints/{names[-1]}", form.identity)
    assert read is not None
    assert len(names) == 2, "the one before is to help"
    logs = [name for name in disk.names(f"{DATA}/log") if name.endswith(".log")]
    name = [name for name in logs if int(name[:20]) <= read[0].begin + 1][-1]
    assert name > names[0][:20], "it begins behind the older one"
    file = disk.open(f"{DATA}/log/{name}")
    file.write([bytes(HEADER_BYTES)], 0)
    file.sync()
    around = file.read(HEADER_BYTES - 8, 32)
    file.close()
    return around


def mend(disk: FaultyDisk) -> None:
    accept_loss(disk, DATA, random_bytes=Random(9).randbytes)


def places(disk: FaultyDisk) -> bytes:
    kept = everything(disk, f"{DATA}/quarantine") if "quarantine" in disk.names(DATA) else b""
    return kept + everything(disk, f"{DATA}/log")


def enumerate_repair(
    fill: Callable[[FaultyDisk], Machine], harm: Callable[[FaultyDisk], bytes]
) -> CrashPoints:
    disk = FaultyDisk(Random(5))
    machine = fill(disk)
    before = payloads(machine)
    machine.log.close()
    damaged = harm(disk)
    assert not examine(disk, DATA).sound
    readable = {damaged, *(each for each in before if each in places(disk))}

    def verify(crashed: FaultyDisk, _: Random) -> int:
        lost = [each for each in readable if each not in places(crashed)]
        assert not lost, f"{len(lost)} messages are in no place: {lost[0][:20]!r}"
        mend(crashed)
        assert examine(crashed, DATA).sound, "not mended"
        lost = [each for each in readable if each not in places(crashed)]
        assert not lost, f"{len(lost)} messages are in no place after the repair"
        served = Machine(crashed, Ledger())
        assert served.log.generation > 1, "it does not say that it went back"
        found = payloads(served)
        assert found <= before
        served.log.close()
        assert payloads(Machine(crashed, Ledger())) == found
        return 2

    points = CrashPoints(disk, verify, parts=2)
    mend(disk)
    points.crash_here()
    disk.faults.hook = None
    return points


@pytest.mark.parametrize(
    ("name", "fill", "harm"),
    [
        ("0", filled, partial(damage, share=0.0)),
        ("70", filled, partial(damage, share=0.7)),
        ("95", filled, partial(damage, share=0.95)),
        ("header", filled_more, behead),
    ],
)
def test_no_power_cut_at_any_call_of_a_repair_leaves_a_log_that_cannot_be_mended(
    name: str, fill: Callable[[FaultyDisk], Machine], harm: Callable[[FaultyDisk], bytes]
) -> None:
    with proof.campaign(f"crash-repair-{name}") as tally:
        points = enumerate_repair(fill, harm)
        tally.add("recoveries", points.recoveries)
    assert points.recoveries > 50


# ------------------------------------------------------------------ backup and restore


def save(disk: FaultyDisk) -> None:
    back_up(disk, DATA, BACKUP, progress=nothing, judge=faults)


def bring_back(disk: FaultyDisk, target: str) -> None:
    restore(disk, BACKUP, target, random_bytes=Random(9).randbytes, progress=nothing)


def enumerate_backup(*, part: int = 0, parts: int = 1) -> CrashPoints:
    """The first backup, then one on top of it; each is killed and cut before every call."""
    disk = FaultyDisk(Random(5))
    machine = filled(disk)
    due: set[bytes] = set()  # what the last finished backup has, at least

    def verify(crashed: FaultyDisk, _: Random) -> int:
        if "backup" not in crashed.names("/") or read_manifest(crashed, BACKUP) is None:
            assert not due, "a finished backup is gone"
            crashed.make_directory(BACKUP)
            with pytest.raises(StorageRefused, match="never finished"):
                bring_back(crashed, NEW)
            return 1
        bring_back(crashed, NEW)
        assert examine(crashed, NEW).sound
        found = payloads_at(crashed, NEW)
        assert due <= found, f"{len(due - found)} messages of the backup are gone"
        save(crashed)  # and the next backup goes on from what is there
        return 2

    points = CrashPoints(disk, verify, part=part, parts=parts)
    for _ in range(2):
        if "backup" not in disk.names("/"):
            disk.make_directory(BACKUP)
        save(disk)
        points.crash_here()
        due |= payloads_of(disk, machine)
        hook, disk.faults.hook = disk.faults.hook, None
        grow(machine)
        disk.faults.hook = hook
    return points


def payloads_of(disk: FaultyDisk, machine: Machine) -> set[bytes]:
    hook, disk.faults.hook = disk.faults.hook, None
    try:
        return payloads(machine)
    finally:
        disk.faults.hook = hook


def payloads_at(disk: FaultyDisk, directory: str) -> set[bytes]:
    disk.rename(DATA, "/was")
    disk.rename(directory, DATA)
    try:
        return payloads(Machine(disk, Ledger()))
    finally:
        disk.kill()
        disk.rename(DATA, directory)
        disk.rename("/was", DATA)


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2))]
)
def test_a_backup_that_is_cut_off_leaves_the_one_before(part: int) -> None:
    with proof.campaign(f"crash-backup-{part}") as tally:
        points = enumerate_backup(part=part, parts=3)
        tally.add("recoveries", points.recoveries)
    assert points.recoveries > 100


def serve_new(disk: FaultyDisk) -> None:
    open_log(disk, NEW, OPTIONS, random_bytes=Random(1).randbytes)


def look_at_new(disk: FaultyDisk) -> None:
    examine(disk, NEW)


def save_new(disk: FaultyDisk) -> None:
    back_up(disk, NEW, "/backup2", progress=nothing, judge=faults)


def bring_back_new(disk: FaultyDisk) -> None:
    bring_back(disk, NEW)


def test_a_restore_that_is_cut_off_is_refused_and_can_be_begun_again() -> None:
    disk = FaultyDisk(Random(5))
    machine = filled(disk)
    due = payloads(machine)
    disk.make_directory(BACKUP)
    save(disk)

    def verify(crashed: FaultyDisk, _: Random) -> int:
        names = crashed.names(NEW) if "new" in crashed.names("/") else []
        if "FORMAT" in names:
            assert examine(crashed, NEW).sound
            assert payloads_at(crashed, NEW) == due
            assert "RESTORING" not in crashed.names(NEW), "the mark stays on a log that is served"
        elif "RESTORING" in names:
            for use in (serve_new, look_at_new, save_new, bring_back_new):
                with pytest.raises(StorageRefused, match="was cut off"):
                    use(crashed)
        else:
            assert set(names) <= {"RESTORING.tmp", "lock"}, "something was restored before the mark"
        bring_back(crashed, "/other")
        return 1

    points = CrashPoints(disk, verify)
    bring_back(disk, NEW)
    points.crash_here()
    assert points.recoveries > 100
    assert read_manifest(disk, BACKUP) is not None
