"""A disk that does not give what is stored (EIO): it is damage, told in words, with a way out."""

import errno
import secrets
from pathlib import Path
from typing import Any

import pytest

from oncemq.broker.state import snapshot
from oncemq.errors import Corrupt, StorageRefused
from oncemq.protocol.names import Micros
from oncemq.protocol.records import Retention
from oncemq.protocol.requests import CreateTopic
from oncemq.server import completeness, examination
from oncemq.storage.disk import LocalDisk, LocalFile
from oncemq.storage.log.log import LogOptions

SMALL = LogOptions(segment_bytes=4096, allocate_bytes=2048, reserve_bytes=256)
SECTOR = 512


class SickFile(LocalFile):
    """A file with one sector that cannot be read."""

    sector = 0

    def read(self, position: int, size: int) -> bytes:
        if position < self.sector + SECTOR and self.sector < position + size:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(position, size)

    def sync(self) -> None: ...


class SickDisk(LocalDisk):
    """Files, by path, with the sector of each that cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.sectors: dict[str, int] = {}

    def open(self, path: str, create: bool = False) -> LocalFile:
        file = super().open(path, create)
        if path in self.sectors:
            file.__class__ = SickFile
            vars(file)["sector"] = self.sectors[path]
        return file

    def sync_directory(self, path: str) -> None: ...


def checkpoint(host: Any) -> None:
    host.driver.mark(Micros(host.now))
    host.commit()
    writer = host.log.begin_checkpoint()
    for blob in snapshot.capture(host.broker.shard):
        writer.add(blob)
    host.run(writer.finish())


@pytest.fixture
def host(make_host: Any) -> Any:
    """A topic in several segments, closed; most of them the checkpoints cover."""
    host = make_host(SMALL)
    host.disk = SickDisk()
    host.restart()
    host.ask(CreateTopic("a", Retention(forever=True)))
    for number in range(30):
        host.put("a", b"m%d " % number + b"x" * 500)
    for _ in range(2):
        checkpoint(host)
        host.put("a", b"behind the checkpoint " + b"x" * 500)
    host.log.close()
    return host


def spoil(host: Any, path: Path, sector: int = 0) -> None:
    host.disk.sectors[str(path)] = sector


def examine(host: Any) -> examination.Examination:
    return examination.examine(host.disk, str(host.directory))


@pytest.mark.parametrize("sector", [0, 600, 2000])
@pytest.mark.parametrize("number", [0, 2, -1])
def test_of_a_segment(host: Any, number: int, sector: int) -> None:
    segments = sorted(host.directory.glob("log/*.log"))
    spoil(host, segments[number], sector)
    found = examine(host)
    assert not found.sound
    assert found.diagnosis.damages[0].path == str(segments[number])
    if not found.diagnosis.mendable:
        assert number == -1, "the checkpoint lies behind what is left"
        return
    examination.accept_loss(host.disk, str(host.directory), random_bytes=secrets.token_bytes)
    host.disk.sectors.clear()  # what could not be read was taken out, or written anew
    host.start()
    assert completeness.missing(host.broker.shard, host.log) == found.missing


def test_of_a_checkpoint(host: Any) -> None:
    older, newer = sorted(host.directory.glob("checkpoints/*.ckpt"))
    spoil(host, newer)
    found = examine(host)
    assert found.sound
    assert found.diagnosis.passed_over == [str(newer)]
    host.start()  # as it was said
    assert len(host.broker.shard.by_name) == 1
    host.log.close()
    assert (host.directory / "torn" / newer.name).exists()
    spoil(host, older)
    assert examine(host).sound, "the log begins at serial 1"


def test_of_the_format_file(host: Any) -> None:
    spoil(host, host.directory / "FORMAT")
    with pytest.raises(Corrupt, match="FORMAT cannot be read"):
        host.start()
    found = examine(host)
    assert "cannot be read" in found.diagnosis.format_fault
    examination.accept_loss(host.disk, str(host.directory), random_bytes=secrets.token_bytes)
    host.disk.sectors.clear()
    host.start()
    assert len(host.read("a")) == 32


def test_of_an_index(host: Any) -> None:
    for path in host.directory.glob("log/*.idx"):
        spoil(host, path)
    assert examine(host).sound
    host.start()  # they are made again
    host.disk.sectors.clear()
    assert len(host.read("a")) == 32


def test_of_everything(host: Any) -> None:
    for path in host.directory.rglob("*"):
        if path.is_file() and path.name != "lock":
            spoil(host, path)
    with pytest.raises(StorageRefused, match="no segment says whose log it is"):
        examine(host)
