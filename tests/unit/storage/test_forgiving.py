"""A file of which a block cannot be read."""

import errno
from pathlib import Path

import pytest

from oncemq.storage.disk import LocalDisk, LocalFile
from oncemq.storage.repair.forgiving import BLOCK_BYTES, ForgivingFile


class BadBlock(LocalFile):
    """The second block of this file is lost: a read that touches it fails."""

    syncs = 0

    def sync(self) -> None:
        self.syncs += 1

    def read(self, position: int, size: int) -> bytes:
        if position < 2 * BLOCK_BYTES and position + size > BLOCK_BYTES:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(position, size)


@pytest.fixture
def content() -> bytes:
    return b"".join(bytes([65 + block]) * BLOCK_BYTES for block in range(4)) + b"the end"


@pytest.fixture
def file(tmp_path: Path, content: bytes) -> ForgivingFile:
    (tmp_path / "file").write_bytes(content)
    local = LocalDisk().open(str(tmp_path / "file"))
    local.__class__ = BadBlock
    return ForgivingFile(local)


def test_everything_else_is_the_files_own(file: ForgivingFile, tmp_path: Path) -> None:
    file.write([b"new ", b"words"], 0)
    file.truncate(9)
    assert (tmp_path / "file").read_bytes() == b"new words"
    file.allocate(20)
    assert file.size() == (tmp_path / "file").stat().st_size == 20
    file.sync()
    assert isinstance(file._file, BadBlock)
    assert file._file.syncs == 1
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file._file.size()


@pytest.mark.parametrize("position", [0, 1, 100, BLOCK_BYTES - 1])
@pytest.mark.parametrize("more", [1, BLOCK_BYTES, BLOCK_BYTES + 1, 10 * BLOCK_BYTES])
def test_only_the_lost_block_reads_as_zeros(
    file: ForgivingFile, content: bytes, position: int, more: int
) -> None:
    readable = content[:BLOCK_BYTES] + bytes(BLOCK_BYTES) + content[2 * BLOCK_BYTES :]
    size = BLOCK_BYTES - position + more
    assert file.read(position, size) == readable[position : position + size]
    assert file.trouble is not None
    assert file.trouble.errno == errno.EIO


def test_what_begins_inside_of_the_lost_block(file: ForgivingFile, content: bytes) -> None:
    begin = BLOCK_BYTES + 7
    found = file.read(begin, BLOCK_BYTES)
    assert found == bytes(BLOCK_BYTES - 7) + content[2 * BLOCK_BYTES :][:7]


def test_what_can_be_read_is_no_trouble(file: ForgivingFile, content: bytes) -> None:
    assert file.read(0, BLOCK_BYTES) == content[:BLOCK_BYTES]
    assert file.read(2 * BLOCK_BYTES, 1 << 20) == content[2 * BLOCK_BYTES :]
    assert file.trouble is None


def test_the_first_trouble_is_kept(file: ForgivingFile) -> None:
    file.read(0, 2 * BLOCK_BYTES)
    first = file.trouble
    file.read(BLOCK_BYTES, 1)
    assert file.trouble is first
    file.close()
