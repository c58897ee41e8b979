"""A power cut may keep the later half of a group and lose the earlier: torn, not corrupt."""

from pathlib import Path
from typing import Any

import pytest

from oncemq.errors import Corrupt
from oncemq.protocol.records import Marked
from oncemq.storage.log.log import LogOptions

WIDE = LogOptions(segment_bytes=1 << 20, allocate_bytes=512, reserve_bytes=64)


def blank(directory: Path, name: str, start: int, end: int) -> None:
    with (directory / "log" / name).open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))


def test_a_hole_in_the_group_that_was_being_synced_is_a_torn_tail(
    tmp_path: Path, make_scribe: Any, quick_disk: Any
) -> None:
    scribe = make_scribe(tmp_path / "data", quick_disk, WIDE)
    scribe.store(1, b"finished")
    start = scribe.log._current.end
    for number in range(3):
        scribe.put(1, b"unfinished %d" % number)
        if number == 0:
            end = scribe.log._current.end
    scribe.log.write(scribe.log.take_group())  # written, but nobody was told
    name = scribe.segments[0].name
    scribe.kill()
    blank(tmp_path / "data", name, start, end)
    again = make_scribe(tmp_path / "data", quick_disk, WIDE)
    assert [serial for serial, _ in again.opened.replay] == [1]
    assert len(again.opened.report.torn) == 1
    again.kill()


@pytest.mark.parametrize("rest", ["another group", "a mark"])
def test_a_hole_in_a_group_that_was_answered_is_corruption(
    tmp_path: Path, make_scribe: Any, quick_disk: Any, rest: str
) -> None:
    scribe = make_scribe(tmp_path / "data", quick_disk, WIDE)
    start = scribe.log._current.end
    scribe.put(1, b"answered")
    end = scribe.log._current.end
    scribe.put(1, b"answered too")
    scribe.commit()
    if rest == "a mark":
        scribe.log.append(Marked())
        scribe.commit()
    else:
        scribe.store(1, b"later")
    name = scribe.segments[0].name
    scribe.log.close()
    blank(tmp_path / "data", name, start, end)
    with pytest.raises(Corrupt, match="says it was durable"):
        make_scribe(tmp_path / "data", quick_disk, WIDE)
