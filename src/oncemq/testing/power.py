"""A disk whose power can be cut: an ext4 image on a loop device, and ext4's shutdown ioctl.

Law: a cut loses what a power cut may lose, on the kernel's own file system: bytes, names and
sizes that were not synced. What is done after it fails with EIO, until `restore`, which replays
the journal as a boot would. The device and the mount go with the block, whatever happens in it.

    with power_disk(directory) as disk:
        ...  # a server on disk.path
        disk.cut(server.pid)
        disk.restore()

A machine without power runs no process either, so name those that live on the disk: they are
killed at the same moment. It matters. A sync that the shutdown overtakes may still say yes (two
of 334 did on Linux 6.18, plain pwrite and fdatasync), and a process that hears it tells others.

Needs Linux, root, and e2fsprogs and util-linux; `why_no_power_disk` says what is missing.
"""

import fcntl
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
NO_LOG_FLUSH = 2  # the journal is not flushed first: this is a cut, not a shutdown
MEBIBYTES = 64
BUSY_SECONDS = 10.0  # a process that was just killed may hold its files a moment longer

# By itself ext4 syncs a file that a rename replaces; what relies on that is not safe elsewhere.
STRICT = "noauto_da_alloc"

_WARDEN = 'trap "" INT TERM; read -r _; umount --lazy "$1"; losetup --detach "$2"'


class PowerDisk:
    """A file system of its own, mounted at `path`."""

    def __init__(self, image: Path, path: Path, mebibytes: int) -> None:
        self.path = path
        self.cuts = 0
        self._mounted = False
        with image.open("wb") as file:
            file.truncate(mebibytes << 20)
        _run("mkfs.ext4", "-q", "-m", "0", str(image))
        self._device = _run("losetup", "--find", "--show", str(image)).strip()
        # Mounts outlive processes: this one cleans up when ours dies without a word.
        self._warden = subprocess.Popen(
            ["sh", "-c", _WARDEN, "warden", str(path), self._device],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        path.mkdir()

    def mount(self, options: str = "") -> None:
        """Mount it: the journal is replayed when the power was cut."""
        strict = ",".join(filter(None, (STRICT, options)))
        _run("mount", "-t", "ext4", "-o", strict, self._device, str(self.path))
        self._mounted = True

    def cut(self, *processes: int) -> None:
        """Cut the power of the disk and of these processes; what was not synced is lost."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for process in processes:  # in the kernel a sync goes on, and is cut in the middle
                os.kill(process, signal.SIGKILL)
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(descriptor)
        self.cuts += 1

    def restore(self, options: str = "") -> None:
        """The power is back. Whoever had files open on it must have ended."""
        self._unmount()
        self.mount(options)

    def close(self) -> None:
        """Unmount and detach, even if someone still uses it."""
        try:
            self._unmount()
        except subprocess.CalledProcessError:
            _run("umount", "--lazy", str(self.path))
        finally:
            _run("losetup", "--detach", self._device)
            self._warden.kill()
            self._warden.communicate()

    def _unmount(self) -> None:
        deadline = time.monotonic() + BUSY_SECONDS
        while self._mounted:
            try:
                _run("umount", str(self.path))
                self._mounted = False
            except subprocess.CalledProcessError:
                if time.monotonic() > deadline:
                    raise
                select.select((), (), (), 0.005)


@contextmanager
def power_disk(
    directory: Path | None = None, *, mebibytes: int = MEBIBYTES, options: str = ""
) -> Generator[PowerDisk]:
    """A disk whose power can be cut, mounted; its image is in `directory`, or a temporary one."""
    with TemporaryDirectory(prefix="oncemq-power-", dir=directory) as scratch:
        disk = PowerDisk(Path(scratch) / "image", Path(scratch) / "disk", mebibytes)
        try:
            disk.mount(options)
            yield disk
        finally:
            disk.close()


@cache
def why_no_power_disk() -> str | None:
    """Why this machine cannot cut the power of a disk; None when it can. It tries."""
    if sys.platform != "linux":
        return f"needs Linux, this is {sys.platform}"
    if os.geteuid() != 0:
        return "needs root, to mount a file system"
    for tool in ("mkfs.ext4", "losetup", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    try:
        with power_disk(mebibytes=8) as disk:
            disk.cut()
            disk.restore()
    except subprocess.CalledProcessError as error:
        return f"{error.cmd[0]} failed: {error.stderr.strip()}"
    except OSError as error:
        return f"the shutdown of ext4 failed: {error}"
    return None


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout
