"""A directory filled with another replica's files, while that one goes on and whatever crashes."""

from random import Random
from typing import Any

import pytest

from oncemq.errors import Locked, StorageRefused
from oncemq.protocol.names import LeaderEpoch
from oncemq.storage.log.pinned_files import PinnedFile, PinnedFiles
from oncemq.storage.log.recovery import open_log
from oncemq.storage.log.refill import Refill
from oncemq.storage.repair.repair import diagnose
from oncemq.storage.segments.promised_epoch import PromisedEpoch
from oncemq.testing.faulty_disk import FaultyDisk
from oncemq.testing.unsynced_changes import PowerCut
from tests.harness.replicas import Replica, fill, records
from tests.harness.storage import SMALL, read_payloads


def busy() -> Replica:
    """A log with cold and sealed segments, two checkpoints, and a tail."""
    leader = Replica()
    for number in range(20):
        leader.store(1, b"m%d " % number + b"x" * 200)
        leader.store(2, b"settled" * 30)
    for number in range(2):
        leader.checkpoint(b"state %d" % number, b"more")
        leader.store(1, b"later %d" % number)
    assert leader.compact({1: 0}.get) > 0
    for number in range(6):
        leader.store(1, b"tail %d " % number + b"x" * 400)
    return leader


def test_a_log_that_goes_on_is_copied_as_it_was() -> None:
    leader, follower = busy(), Replica(b"\6")
    assert len({each.name[-4:] for each in leader.log._catalog.segments}) == 2
    pinned = leader.log.pin()
    expected = list(leader.topics[1])
    newest = leader.log.newest
    assert {each.folder for each in pinned.files} == {"checkpoints", "log"}
    assert pinned.size == sum(each.size for each in pinned.files)
    for number in range(2):  # meanwhile all of it is replaced
        for _ in range(12):
            leader.store(1, b"x" * 300)
        leader.checkpoint(b"newer %d" % number)
        leader.checkpoint(b"newest %d" % number)
        assert leader.compact({1: len(leader.topics[1]) - 4}.get) > 0
    gone = [
        each.name
        for each in pinned.files
        if each.name not in leader.disk.names(f"/data/{each.folder}")
    ]
    assert len(gone) > 3
    follower.log.close()
    fill(follower.disk, pinned, step=333)  # type: ignore[arg-type]
    pinned.release()
    opened = follower.open()
    assert opened.log.newest == newest
    assert opened.states == [b"state 1", b"more"]
    assert list(read_payloads(opened.log, 1).values()) == expected
    assert diagnose_closed(follower)


def diagnose_closed(replica: Replica) -> bool:
    replica.log.close()
    return diagnose(replica.disk, "/data").healthy


def test_what_is_pinned_is_closed_when_it_is_released_or_cannot_be_had() -> None:
    leader = busy()
    pinned = leader.log.pin()
    name = pinned.files[0].name
    assert len(pinned.read(name, 0, 1 << 20)) == pinned.files[0].size
    assert pinned.read(name, pinned.files[0].size, 10) == b""
    pinned.release()
    with pytest.raises(OSError, match="closed"):
        pinned.read(name, 0, 1)
    leader.disk.remove(leader.log._catalog.segments[-1].path)
    released: list[PinnedFiles] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PinnedFiles, "release", lambda pinned: released.append(pinned))
        with pytest.raises(FileNotFoundError):
            leader.log.pin()
    (half,) = released
    assert half.files  # those before the one that was not there


def test_only_files_of_a_log_are_taken_and_whole_ones() -> None:
    disk = FaultyDisk(Random("names"))
    for folder, name in (
        ("log", "../FORMAT"),
        ("checkpoints", f"{1:020d}.log"),
        ("torn", f"{1:020d}.log"),
        ("log", f"{1:020d}.idx"),
        ("log", f"{1:020d}.log\n"),
    ):
        with pytest.raises(StorageRefused, match="which is no file of a log"):
            Refill(disk, "/data", [PinnedFile(folder, name, 1)])
    leader = busy()
    pinned = leader.log.pin()
    refill = Refill(disk, "/data", pinned.files)
    with pytest.raises(Locked):
        Refill(disk, "/data", pinned.files)
    first = pinned.files[0]
    refill.write(first.name, 0, pinned.read(first.name, 0, first.size))
    with pytest.raises(AssertionError, match="beyond its end"):
        refill.write(first.name, 1, bytes(first.size))
    with pytest.raises(StorageRefused, match="was not sent whole"):
        refill.finish(pinned.form, bytes)
    refill.give_up()
    with pytest.raises(StorageRefused, match="half filled with the files of another") as caught:
        open_log(disk, "/data", SMALL, random_bytes=bytes)
    assert caught.value.code == "refill_cut_off"
    fill(disk, pinned, step=1000)
    opened = open_log(disk, "/data", SMALL, random_bytes=bytes)
    assert opened.log.newest == leader.log.newest
    opened.log.close()


@pytest.mark.parametrize(
    "cut", [None, *PowerCut], ids=lambda cut: cut.name.lower() if cut else "kill"
)
def test_a_crash_at_any_step_leaves_the_old_log_or_half_a_one_or_the_new(
    cut: PowerCut | None,
) -> None:
    leader, follower = busy(), Replica(b"\6")
    follower.store(3, b"of a log of its own")
    assert PromisedEpoch(follower.disk, "/data").promise(LeaderEpoch(7))
    own = follower.log.newest
    follower.log.close()
    disk: Any = follower.disk
    forks: list[FaultyDisk] = []
    disk.faults.hook = lambda call, _, __: (
        forks.append(disk.fork(Random(len(forks)))) if call not in ("read", "lock") else None
    )
    pinned = leader.log.pin()
    fill(disk, pinned, step=3000)
    disk.faults.hook = None
    seen: set[str] = set()
    for each in forks:
        if cut is not None:
            each.crash(cut)
        assert PromisedEpoch(each, "/data").leader_epoch == 7
        half = "FORMAT" not in each.names("/data")
        if half:
            with pytest.raises(StorageRefused, match="half filled"):
                open_log(each, "/data", SMALL, random_bytes=bytes)
            fill(each, pinned, step=10_000)
        opened = open_log(each, "/data", SMALL, random_bytes=bytes)
        new = opened.log.newest == leader.log.newest
        seen.add("half" if half else "new" if new else "old")
        assert new or (opened.log.newest == own and not half)
        assert opened.log.form.incarnation == (b"\x0b" if new else b"\6") * 16
        opened.log.close()
    pinned.release()
    assert seen >= {"old", "half"}
    follower.open()
    assert records(follower.log) == records(leader.log)
    assert PromisedEpoch(disk, "/data").leader_epoch == 7


def test_what_a_refill_clears_is_gone_for_good_before_anything_is_written() -> None:
    """The incarnation first: half a directory must not be taken for the one that was in sync."""
    leader, follower = busy(), busy()
    follower.log.close()
    disk: Any = follower.disk
    removing: list[FaultyDisk] = []

    def note(call: str, path: str, _: int) -> None:
        if call == "remove" and path.startswith(("/data/log/", "/data/checkpoints/")):
            removing.append(disk.fork(Random(len(removing))))

    disk.faults.hook = note
    refill = Refill(disk, "/data", leader.log.pin().files)
    disk.faults.hook = None
    disk.crash(PowerCut.NOTHING)
    assert removing
    for each in removing:
        each.crash(PowerCut.NOTHING)
        assert "FORMAT" not in each.names("/data")
    assert disk.names("/data/log") == disk.names("/data/checkpoints") == []
    assert not {"FORMAT", "END", "OPENED"} & set(disk.names("/data"))
    refill.give_up()
