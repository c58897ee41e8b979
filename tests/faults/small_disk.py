"""A disk of a few MB, which others may fill: a tmpfs."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.processes import until


@contextmanager
def tmpfs(path: Path, size: str) -> Iterator[Path]:
    """Mounted for a while; where nobody may, the test is skipped."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def take_all_room(place: Path) -> None:
    """Somebody else's file takes what is left, and what a server gives back meanwhile."""
    until(lambda: _take(place) == 0, what=f"no room in {place}")


def _take(place: Path) -> int:
    """How much is left then."""
    with (place / "others").open("ab", buffering=0) as others, suppress(OSError):
        free = os.statvfs(place)
        with suppress(OSError):  # most of it at once
            end = os.fstat(others.fileno()).st_size
            os.posix_fallocate(others.fileno(), end, free.f_bavail * free.f_frsize * 9 // 10)
        while others.write(bytes(65_536)):
            pass
    return os.statvfs(place).f_bavail


def free_room(place: Path) -> None:
    """Somebody else's file is removed."""
    (place / "others").unlink()
