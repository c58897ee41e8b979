"""A damaged cold segment: named, salvaged around the damage, and in no backup."""

import errno
import secrets
from pathlib import Path
from typing import Any

import pytest

from oncemq.errors import Corrupt
from oncemq.storage.backup.backup import back_up
from oncemq.storage.catalog.batch_places import BatchPlace
from oncemq.storage.compaction.plan import LiveShare
from oncemq.storage.disk import LocalFile
from oncemq.storage.repair.findings import Damage, Diagnosis
from oncemq.storage.repair.repair import accept_loss, diagnose

KEPT, SETTLED, DAMAGED = 1, 2, 3  # topics, in the order in which a cold segment has them


def live(topic: int) -> LiveShare | None:
    return None if topic == SETTLED else LiveShare(f"t{topic}", 0)


@pytest.fixture
def place(scribe: Any) -> BatchPlace:
    """The last batch of the only cold segment, in a log that was closed."""
    for number in range(20):
        scribe.put(KEPT, b"kept %d" % number)
        scribe.put(SETTLED, b"settled" + b"x" * 300)
        scribe.put(DAMAGED, b"damaged %d" % number)
        scribe.commit()
    for number in range(2):
        scribe.fact(number)
        scribe.commit()
        scribe.checkpoint(b"state")
    job = scribe.log.plan(live)
    job.run()
    scribe.log.complete(job)
    job.clean()
    place = scribe.log.find(DAMAGED, 0)
    scribe.log.close()
    assert [place.segment.path] == [str(path) for path in scribe.directory.glob("log/*.cold")]
    return place


def flip(place: BatchPlace, position: int) -> None:
    path = Path(place.segment.path)
    data = bytearray(path.read_bytes())
    data[position] ^= 0x41
    path.write_bytes(data)


def mended(scribe: Any) -> tuple[list[int], list[int]]:
    """Which messages are there when the loss was accepted."""
    accept_loss(scribe.disk, str(scribe.directory), random_bytes=secrets.token_bytes)
    scribe.open()
    found = [scribe.payloads(topic) for topic in (KEPT, DAMAGED)]
    for topic, payloads in zip((KEPT, DAMAGED), found, strict=True):
        assert payloads == {at: scribe.topics[topic][at] for at in payloads}
    scribe.log.close()
    assert diagnose(scribe.disk, str(scribe.directory)).healthy
    return list(found[0]), list(found[1])


def test_a_cold_segment_is_looked_at_with_the_others(scribe: Any, place: BatchPlace) -> None:
    found = diagnose(scribe.disk, str(scribe.directory))
    assert found.healthy
    assert found.contents is not None
    logs = [path.name for path in scribe.segments]
    assert [each.name for each in found.contents.catalog.segments] == [place.segment.name, *logs]


def test_a_damaged_batch_of_a_cold_segment_is_all_that_is_lost(
    scribe: Any, place: BatchPlace
) -> None:
    flip(place, place.position + place.size - 1)
    why = "the body of serial 3 does not hold"
    found = diagnose(scribe.disk, str(scribe.directory))
    assert found.damages == [
        Damage(place.segment.path, place.position, why, 1, covered=True, home=1)
    ]
    assert mended(scribe) == (list(range(20)), list(range(place.count, 20)))


def test_without_its_header_a_cold_segment_loses_nothing(scribe: Any, place: BatchPlace) -> None:
    flip(place, 20)
    found = diagnose(scribe.disk, str(scribe.directory))
    why = "the header does not hold"
    assert found.damages == [Damage(place.segment.path, 0, why, 1, covered=True, home=1)]
    assert mended(scribe) == (list(range(20)), list(range(20)))


class Sick(LocalFile):
    """A read gives the header, the next one fails, and those after it give everything."""

    reads = 0

    def read(self, position: int, size: int) -> bytes:
        self.reads += 1
        if self.reads == 2:
            raise OSError(errno.EIO, "bad sector")
        return super().read(position, size)


def test_a_cold_segment_that_was_hard_to_read_is_written_anew(
    scribe: Any, place: BatchPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = scribe.disk.open

    def sick(path: str, create: bool = False) -> LocalFile:
        file = opened(path, create)
        if path == place.segment.path:
            file.__class__ = Sick
        return file

    with monkeypatch.context() as trouble:
        trouble.setattr(scribe.disk, "open", sick)
        found = diagnose(scribe.disk, str(scribe.directory))
    why = "it cannot be read: [Errno 5] bad sector"
    assert found.damages == [Damage(place.segment.path, 0, why, 1, covered=True, home=1)]
    with monkeypatch.context() as trouble:
        trouble.setattr(scribe.disk, "open", sick)
        accept_loss(scribe.disk, str(scribe.directory), random_bytes=secrets.token_bytes)
    assert mended(scribe) == (list(range(20)), list(range(20)))
    assert not Path(place.segment.path).exists()


def test_a_damaged_cold_segment_without_its_index_is_refused(
    scribe: Any, place: BatchPlace
) -> None:
    flip(place, place.position + place.size - 1)
    Path(place.segment.path).with_suffix(".idx").unlink()
    with pytest.raises(Corrupt) as refused:
        scribe.open()
    assert refused.value.detail == (
        f"{place.segment.path} is damaged at byte {place.position}: the body of serial 3 does not "
        "hold; run `once repair`"
    )


@pytest.mark.parametrize("of", ["body", "header"])
def test_a_damaged_cold_segment_is_not_backed_up(
    scribe: Any, place: BatchPlace, tmp_path: Path, of: str
) -> None:
    flip(place, 20 if of == "header" else place.position + place.size - 1)
    with pytest.raises(Corrupt) as refused:
        back_up(
            scribe.disk,
            str(scribe.directory),
            str(tmp_path / "backup"),
            progress=lambda *_: None,
            judge=Diagnosis.faults,
        )
    told = {
        "body": f" is damaged at byte {place.position}: the body of serial 3 does not hold",
        "header": ": the header does not hold; run `once repair`",
    }
    assert refused.value.detail == place.segment.name + told[of]
    assert [path.name for path in (tmp_path / "backup").iterdir() if path.is_file()] == ["lock"]
