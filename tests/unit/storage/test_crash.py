"""A crash after each single change of the disk: the log opens again with everything in it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncemq.storage.segments.segment import read_header

Work = Callable[[Any], None]


def roll_and_seal(scribe: Any) -> None:
    for number in range(14):
        scribe.store(1 + number % 2, b"n%d" % number + b"x" * 120)
        scribe.disk.mark = scribe.log.durable_serial


def write_checkpoint(scribe: Any) -> None:
    scribe.checkpoint(b"state 3", b"more")


def compact(scribe: Any) -> None:
    assert scribe.compact(lambda topic: {1: 6, 2: 10**6}.get(topic)) >= 2


def prepare(scribe: Any) -> None:
    """Two topics over several segments, most of them covered by both checkpoints."""
    for number in range(12):
        for topic in (1, 2, 2):
            scribe.store(topic, b"t%d m%d " % (topic, number) + b"x" * 60)
    scribe.checkpoint(b"state 1")
    for number in range(4):
        scribe.store(1, b"tail %d" % number)
    scribe.checkpoint(b"state 2")


@pytest.mark.parametrize("work", [roll_and_seal, write_checkpoint, compact])
def test_a_crash_at_any_step_loses_nothing(
    tmp_path: Path,
    make_scribe: Any,
    quick_disk: Any,
    copying_disk: Any,
    payloads_of: Callable[..., dict[int, bytes]],
    work: Work,
) -> None:
    copies = tmp_path / "copies"
    disk = copying_disk(tmp_path / "data", copies)
    scribe = make_scribe(tmp_path / "data", disk)
    prepare(scribe)
    disk.mark = scribe.log.durable_serial
    disk.armed = True
    work(scribe)
    disk.armed = False
    low = {1: 6} if work is compact else {1: 0, 2: 0}
    scribe.log.close()
    crashes = sorted(copies.iterdir())
    assert len(crashes) > 5
    for crash, mark in zip(crashes, disk.marks, strict=True):
        again = make_scribe(crash, quick_disk)
        assert again.log.last_serial >= mark, crash
        assert again.opened.states in ([b"state 2"], [b"state 3", b"more"])
        for topic, first in low.items():
            found = payloads_of(again.log, topic, first)
            expected = dict(enumerate(scribe.topics[topic]))
            assert found.items() <= expected.items()
            if work is not roll_and_seal:
                assert found == {at: p for at, p in expected.items() if at >= first}, crash
        again.store(3, b"it goes on")
        again.reopen()
        assert again.payloads(3) == {0: b"it goes on"}
        again.log.close()
        assert not list(crash.glob("**/*.tmp"))
        for path in crash.glob("log/*.cold"):
            header = read_header(quick_disk.open(str(path)))
            assert header is not None
            assert not [name for name in header.sources if (crash / "log" / name).exists()]


def test_a_crash_while_a_log_is_made_leaves_a_directory_that_can_be_made_again(
    tmp_path: Path, make_scribe: Any, quick_disk: Any, copying_disk: Any
) -> None:
    disk = copying_disk(tmp_path / "data", tmp_path / "copies")
    disk.armed = True
    make_scribe(tmp_path / "data", disk).log.close()
    disk.armed = False
    for crash in sorted((tmp_path / "copies").iterdir()):
        again = make_scribe(crash, quick_disk)
        assert again.store(1, b"a") == 1
        again.reopen()
        assert again.payloads(1) == {0: b"a"}
        again.log.close()
