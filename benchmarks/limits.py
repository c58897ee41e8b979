"""The machine's own limits, measured beside ours in the same run.

The disk: write and fdatasync into a file that was allocated before, as the log does. The network:
ZeroMQ alone, single messages between two processes. Both: plain sockets with a sync in between.
"""

import os
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.lab import Lab, quantile
from oncemq.cli.demo.process import Child
from oncemq.transport.baseline import Ping, Pull

ALLOCATED_BYTES = 64 << 20
PLAIN_END = Path(__file__).with_name("plain_end.py")  # run as a program of its own
FAR_END = ["-m", "oncemq.transport.baseline"]
SYNC_BYTES = 200  # a single put of 100 B with what goes around it


class SyncFile:
    """A file, allocated before, that is written on and on and synced after each write."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._position = 0
        self._allocate()

    def write(self, raw: bytes) -> float:
        """Write and sync; the seconds of it."""
        if self._position + len(raw) > ALLOCATED_BYTES:
            self._position = 0
            self._allocate()
        started = time.perf_counter()
        os.pwrite(self._descriptor, raw, self._position)
        _sync(self._descriptor)
        self._position += len(raw)
        return time.perf_counter() - started

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)

    def _allocate(self) -> None:
        os.ftruncate(self._descriptor, 0)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._descriptor, 0, ALLOCATED_BYTES)
        os.fsync(self._descriptor)


def _sync(descriptor: int) -> None:
    # macOS has no fdatasync.
    getattr(os, "fdatasync", os.fsync)(descriptor)


def sync_seconds(lab: Lab, payload_bytes: int = SYNC_BYTES, *, count: int = 300) -> float:
    """The median seconds of a bare write and fdatasync of so many bytes."""
    raw = os.urandom(payload_bytes)
    with sync_file(lab) as file:
        return quantile([file.write(raw) for _ in range(count)], 0.5)


@contextmanager
def sync_file(lab: Lab) -> Generator[SyncFile]:
    """A file for bare writes, on the disk that is measured."""
    with lab.scratch() as path:
        file = SyncFile(path / "bare")
        try:
            yield file
        finally:
            file.close()


@contextmanager
def plain_sockets(lab: Lab) -> Generator[Callable[[], None]]:
    """A request to another process, which writes it and syncs, and back: two plain sockets."""
    raw = bytes(SYNC_BYTES)
    with lab.scratch() as path:
        far = Child("plain", [str(PLAIN_END), str(path / "plain.log")], path)
        far.start()
        try:
            with socket.create_connection(("127.0.0.1", int(far.line()))) as near:
                near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

                def put() -> None:
                    near.send(raw)
                    near.recv(4_096)

                yield put
        finally:
            far.kill()


def disk_bytes_per_second(lab: Lab, group_bytes: int) -> float:
    """How many bytes a second bare writes of a group, each synced, bring to the disk."""
    count = max(5, min(200, (128 << 20) // group_bytes))
    return group_bytes / sync_seconds(lab, group_bytes, count=count)


def push_pull_rate(lab: Lab, payload_bytes: int) -> float:
    """Single messages a second through a bare PUSH/PULL between two processes; one run."""
    count = max(1_000, min(300_000, (256 << 20) // payload_bytes))
    near = Pull()
    arguments = [*FAR_END, "push", near.address, str(count), str(payload_bytes)]
    far = Child("push", arguments, lab.directory)
    try:
        far.start()
        seconds = near.seconds(count)
        far.wait(60)
    finally:
        far.kill()
        near.close()
    return count / seconds


def round_trip_seconds(lab: Lab, payload_bytes: int, *, count: int = 1_000) -> float:
    """The median seconds of a bare ZeroMQ message there and back between two processes."""
    near = Ping()
    far = Child("echo", [*FAR_END, "echo", near.address, str(count)], lab.directory)
    try:
        far.start()
        times = near.round_trips(count, payload_bytes)
        far.wait(60)
    finally:
        far.kill()
        near.close()
    return quantile(times, 0.5)
