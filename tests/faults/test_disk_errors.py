"""Errors, delays and want of room, injected into the calls a running server makes (strace), and
on a disk that is really full (a small tmpfs): no false acknowledgement, clear words, recovery.
"""

import secrets
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncemq import Client
from oncemq.errors import StorageFull, StorageUnreadable
from oncemq.protocol.records import Retention
from oncemq.server.examination import faults
from oncemq.storage.backup.backup import back_up
from oncemq.storage.backup.restore import restore
from oncemq.storage.disk import LocalDisk
from oncemq.testing.power import power_disk, why_no_power_disk
from simulator import proof
from tests.e2e.conftest import ONCE, Ran, clean_environment
from tests.e2e.processes import until
from tests.faults.cast import DISK_FAILED, CommandServing, FaultNursery, FaultStorm
from tests.faults.inject import injection, why_no_strace
from tests.faults.small_disk import take_all_room, tmpfs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("full_gets"),
]

SLOW_SECONDS = 0.25


@pytest.fixture(autouse=True)
def strace() -> None:
    if reason := why_no_strace():
        pytest.skip(f"no faults can be injected here: {reason}")


@pytest.fixture
def serving(nursery: FaultNursery, tmp_path: Path) -> Iterator[CommandServing]:
    serving = CommandServing(nursery, tmp_path, tmp_path / "data", "--segment-bytes", "1MiB")
    serving.start()
    yield serving
    nursery.end(serving.process)


def once(serving: CommandServing, home: Path, *arguments: str) -> Ran:
    environment = clean_environment(home, ONCEMQ_SERVER=serving.address)
    done = subprocess.run(
        [*ONCE, *arguments], capture_output=True, env=environment, timeout=30, check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr.decode())


# ------------------------------------------------------------------ errors


def test_a_failed_sync_stops_once_serve_with_7_and_nothing_acknowledged_is_lost(
    nursery: FaultNursery, tmp_path: Path, seed: int
) -> None:
    storm = FaultStorm(nursery, tmp_path, seed, command=True)
    storm.begin()
    for fault in range(6):
        storm.make_progress(5)
        when = storm.random.randint(1, 8)
        error = storm.random.choice(("EIO", "ENOSPC", "EDQUOT"))
        server = storm.serving.process
        with injection(server.pid, f"fdatasync:error={error}:when={when}") as injected:
            code = server.wait()
        assert (code, injected.injected) == (DISK_FAILED, 1), server.errors
        assert "the disk failed" in server.errors
        assert "Traceback" not in server.errors
        storm.faults[f"fdatasync {error}"] += 1
        if fault < 5:
            storm.serving.begin()
    storm.serving.start()
    storm.prove("faults-failed-sync", "failed sync, and restart of the server")


def test_any_call_may_fail_in_a_server_that_rolls_checkpoints_and_compacts(
    nursery: FaultNursery, tmp_path: Path, seed: int
) -> None:
    storm = FaultStorm(nursery, tmp_path, seed)
    storm.begin()
    for _ in range(12):
        storm.make_progress(5)
        storm.fail_call()
    storm.prove("faults-server-calls", "failed disk call, and restart of the server")
    assert storm.stopped > 0


def test_any_call_may_fail_in_a_client(nursery: FaultNursery, tmp_path: Path, seed: int) -> None:
    storm = FaultStorm(nursery, tmp_path, seed)
    storm.begin()
    for _ in range(12):
        storm.make_progress(5)
        storm.fail_call(storm.random.choice([*storm.publishers, *storm.subscribers]))
    storm.prove("faults-client-calls", "failed disk call of a client")


def test_what_a_failed_sync_left_in_the_cache_is_durable_before_it_is_confirmed(
    nursery: FaultNursery, tmp_path: Path, seed: int
) -> None:
    """Recovered is not durable: sync fails, the server comes back, the power goes."""
    if reason := why_no_power_disk():
        pytest.skip(f"no power cuts here: {reason}")
    with power_disk(tmp_path) as disk:
        storm = FaultStorm(nursery, tmp_path, seed, disk=disk, on_disk=("server",))
        storm.begin()
        for _ in range(4):
            storm.make_progress(5)
            server = storm.serving.process
            with injection(server.pid, "fdatasync:error=EIO:when=3+"):
                server.wait()
            storm.serving.begin()
            storm.make_progress()
            storm.cut_power()
        storm.make_progress()
        storm.prove("power-after-failed-sync", "power cut")


def test_a_dead_disk_stops_once_serve_with_7(nursery: FaultNursery, tmp_path: Path) -> None:
    if reason := why_no_power_disk():
        pytest.skip(f"no power cuts here: {reason}")
    with power_disk(tmp_path) as disk:
        serving = CommandServing(nursery, tmp_path, disk.path / "data")
        with Client(serving.start()) as client:
            client.create_topic("orders", Retention(forever=True))
            client.put("orders", b"kept")
            disk.cut()
            client.put("orders", b"on its way", wait=False)
            assert serving.process.wait() == DISK_FAILED
            assert "the disk failed" in serving.process.errors
            disk.restore()
            serving.start()
            client.flush()
            assert [m.payload for m in client.read("orders", 0)] == [b"kept", b"on its way"]
        nursery.end(serving.process)


# ------------------------------------------------------------------ no room


def test_without_room_puts_are_refused_gets_go_on_and_it_resumes(
    serving: CommandServing, tmp_path: Path
) -> None:
    with Client(serving.address, id="ada", state=tmp_path / "ada") as client:
        client.subscribe("orders")
        client.put_many("orders", [b"%d" % number for number in range(10)])
        with injection(serving.process.pid, "fallocate:error=ENOSPC") as full:
            # what is reserved already may still be used, by large ones first, then by small ones
            until(lambda: refused(client, b"more" * 4_000), what="a large put is refused")
            until(lambda: refused(client), what="a put is refused")
            ran = once(serving, tmp_path, "put", "orders", "eleven")
            assert (ran.code, ran.out) == (DISK_FAILED, b"")
            assert "no room left" in ran.err
            assert [m.payload for m in client.get("orders", limit=10)] == [
                b"%d" % number for number in range(10)
            ]
            assert full.injected
        begun = time.monotonic()
        until(lambda: not refused(client), what="puts are taken again")
        print(f"resumed after {time.monotonic() - begun:.2f} s")
        got = client.get("orders", limit=1000, wait=5)
        assert {m.payload[:4] for m in got} == {b"more"}, "a refused put was stored"


def refused(client: Client, payload: bytes = b"more") -> bool:
    try:
        client.put("orders", payload)
    except StorageFull:
        return True
    return False


def test_a_full_disk_refuses_delivers_and_resumes_by_itself(
    nursery: FaultNursery, tmp_path: Path
) -> None:
    with tmpfs(tmp_path / "small", "12m") as small:
        serving = CommandServing(nursery, tmp_path, small / "data", "--segment-bytes", "1MiB")
        with Client(serving.start(), id="ada", state=tmp_path / "ada") as client:
            client.subscribe("orders")
            stored = fill(client, 0)
            assert stored, "nothing fits"
            got: list[int] = []
            while messages := client.get("orders", limit=1000):
                got += [int(m.payload[:8]) for m in messages]
            assert got == list(range(stored))
            begun = time.monotonic()
            until(lambda: fill(client, stored, most=1), 60, what="room after the subscriber")
            resumed = time.monotonic() - begun
            again = stored + 1 + fill(client, stored + 1)
            while messages := client.get("orders", limit=1000):
                got += [int(m.payload[:8]) for m in messages]
            print(f"{stored} fitted, resumed after {resumed:.1f} s, then {again - stored} more")
            assert got == list(range(again))
            assert resumed < 8, "it waited as if nobody needed the room"
            assert again > stored + stored // 2, "little of the disk came back"
        nursery.end(serving.process)


@pytest.mark.parametrize("segments", [(), ("--segment-bytes", "1MiB")], ids=["64MiB", "1MiB"])
@pytest.mark.parametrize("spare", [0, 60_000, 1 << 20, 4 << 20])
def test_a_server_killed_and_started_on_a_full_disk_goes_on(
    nursery: FaultNursery, tmp_path: Path, spare: int, segments: tuple[str, ...]
) -> None:
    """Others took the room that it left, but for `spare`: subscribers catch up, which frees it."""
    with tmpfs(tmp_path / "small", "12m") as small:
        serving = CommandServing(nursery, tmp_path, small / "data", *segments)
        with Client(serving.start(), id="ada", state=tmp_path / "ada") as client:
            client.subscribe("orders")
            stored = fill(client, 0)
            assert stored > 50
        nursery.kill(serving.process)
        take_room(small, but=spare)
        with Client(serving.start(), id="ada", state=tmp_path / "ada") as client:
            client.subscribe("orders")
            client.create_topic("short-lived")
            client.delete_topic("short-lived")
            stored += fill(client, stored)
            got: list[int] = []
            while messages := client.get("orders", limit=1000):
                got += [int(m.payload[:8]) for m in messages]
            assert got == list(range(stored))
            client.status()
            # A checkpoint leaves some room that was kept for it, compaction the rest.
            until(lambda: fill(client, stored, most=20) == 20, 60, what="room after the subscriber")
        nursery.end(serving.process)


def test_a_restored_server_on_a_full_disk_goes_on(nursery: FaultNursery, tmp_path: Path) -> None:
    """Others took all that the restore left: it has its reserve, and subscribers catch up."""
    with tmpfs(tmp_path / "first", "12m") as first, tmpfs(tmp_path / "small", "12m") as small:
        serving = CommandServing(nursery, tmp_path, first / "data")
        with Client(serving.start(), id="ada", state=tmp_path / "ada") as client:
            client.subscribe("orders")
            stored = fill(client, 0)
            assert stored > 50
        save(first / "data", tmp_path / "backup")
        nursery.end(serving.process)
        bring_back(tmp_path / "backup", small / "data")
        take_room(small, but=0)
        (tmp_path / "again").mkdir()
        serving = CommandServing(nursery, tmp_path / "again", small / "data")
        with Client(serving.start(), id="ada", state=tmp_path / "ada") as client:
            got: list[int] = []
            while messages := client.get("orders", limit=1000):
                got += [int(m.payload[:8]) for m in messages]
            assert got == list(range(stored))
            until(lambda: fill(client, stored, most=1), 60, what="room after the subscriber")
        nursery.end(serving.process)


def test_a_restore_without_room_says_how_much_it_needs(
    nursery: FaultNursery, tmp_path: Path
) -> None:
    serving = CommandServing(nursery, tmp_path, tmp_path / "data")
    with Client(serving.start()) as client:
        client.create_topic("orders", Retention(forever=True))
        fill(client, 0, most=30)
    nursery.end(serving.process)
    save(tmp_path / "data", tmp_path / "backup")
    with (
        tmpfs(tmp_path / "small", "2m") as small,
        pytest.raises(StorageFull, match=r"no room for the backup.*needs 2,\d{3},\d{3} bytes"),
    ):
        bring_back(tmp_path / "backup", small / "data")


def save(data: Path, backup: Path) -> None:
    back_up(LocalDisk(), str(data), str(backup), progress=lambda _, __: None, judge=faults)


def bring_back(backup: Path, data: Path) -> None:
    restore(
        LocalDisk(),
        str(backup),
        str(data),
        random_bytes=secrets.token_bytes,
        progress=lambda _, __: None,
    )


def take_room(place: Path, *, but: int) -> None:
    take_all_room(place)
    size = f"remount,size={(12 << 20) + but}"
    subprocess.run(["mount", "-o", size, str(place)], check=True)


def fill(client: Client, first: int, most: int = 1 << 30) -> int:
    """Put large messages until there is no room; how many were taken."""
    for number in range(first, first + most):
        try:
            client.put("orders", b"%08d" % number + bytes(50_000))
        except StorageFull:
            return number - first
    return most


# ------------------------------------------------------------------ no file handles


def test_a_server_without_file_handles_refuses_what_it_cannot_read_and_goes_on(
    serving: CommandServing, tmp_path: Path
) -> None:
    payloads = [b"%08d" % number + bytes(200_000) for number in range(20)]
    with (
        proof.campaign("faults-file-handles") as tally,
        Client(serving.address, id="ada", state=tmp_path / "ada") as client,
    ):
        client.create_topic("orders", Retention(forever=True))
        for payload in payloads:  # into several segments
            client.put("orders", payload)
        assert client.read("orders", 19)  # pyzmq loads a module with the first large answer
        with injection(serving.process.pid, "openat:error=EMFILE") as none:
            with pytest.raises(StorageUnreadable, match="could not read its log") as refused:
                client.read("orders", 0)
            assert refused.value.code == "storage_unreadable"
            assert client.status()
            tally.fault("no file descriptors", none.injected)
        assert none.injected
        found: list[bytes] = []
        while len(found) < len(payloads):
            found += [m.payload for m in client.read("orders", len(found))]
        assert found == payloads
        tally.add("messages", len(found))


# ------------------------------------------------------------------ a slow disk


def test_slow_syncs_gather_puts_and_hold_nobody_else_up(
    serving: CommandServing, tmp_path: Path
) -> None:
    with Client(serving.address) as client:
        for topic in ("slow", "other"):
            client.create_topic(topic, Retention(forever=True))
        client.put_many("other", [b"%d" % number for number in range(1000)])
        delay = f"fdatasync:delay_exit={int(SLOW_SECONDS * 1_000_000)}"
        with injection(serving.process.pid, delay) as slow:
            client.put("slow", b"the first shows how slow the disk is")
            publishers = [threading.Thread(target=put_some, args=[serving]) for _ in range(12)]
            before = slow.calls
            for each in publishers:
                each.start()
            reads: list[float] = []
            while any(each.is_alive() for each in publishers):
                begun = time.monotonic()
                assert len(client.read("other", 0, limit=1000)) == 1000
                reads.append(time.monotonic() - begun)
            syncs = slow.calls - before
        stored = int(client.topic("slow").topic.end)
    reads.sort()
    worst, middle = reads[-1] * 1000, statistics.median(reads) * 1000
    print(f"{stored} puts in {syncs} syncs of {SLOW_SECONDS} s", end="; ")
    print(f"{len(reads)} reads meanwhile, median {middle:.1f} ms, worst {worst:.0f} ms")
    assert stored == 1 + 12 * 5
    assert syncs <= 30, "every put had a sync of its own"
    assert reads[len(reads) * 9 // 10] < SLOW_SECONDS / 2, "reads waited for syncs"


def put_some(serving: CommandServing) -> None:
    with Client(serving.address) as client:
        for number in range(5):
            client.put("slow", b"%d" % number)


# ------------------------------------------------------------------ names


def test_a_new_state_directory_is_durable_in_its_parent(tmp_path: Path) -> None:
    """ext4 commits new names with any sync, so no cut shows it here; others may not."""
    trace = tmp_path / "trace"
    state = tmp_path / "clients" / "ada"
    code = (
        "import sys; from oncemq.client.state.state import open_state; "
        "open_state('ada', sys.argv[1])"
    )
    subprocess.run(
        [
            *("strace", "-f", "-y", "-qq", "-o", str(trace), "-e", "trace=mkdir,fsync"),
            *(sys.executable, "-c", code, str(state)),
        ],
        check=True,
    )
    calls = trace.read_text()
    for parent, name in ((tmp_path, "clients"), (tmp_path / "clients", "ada")):
        made = calls.index(f'mkdir("{parent / name}"')
        assert f"<{parent}>) = 0" in calls[made:], f"{parent} was not synced after {name} was made"
