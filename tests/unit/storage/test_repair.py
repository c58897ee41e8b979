"""Diagnosis and repair: what is lost is named, kept aside, and only when a person says so."""

import secrets
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncemq.errors import Corrupt, StorageRefused
from oncemq.protocol.generations import NAME_BITS, continued
from oncemq.protocol.names import Micros, TopicId
from oncemq.protocol.records import Retention, TopicCreated
from oncemq.storage.compaction.compaction import CompactionJob
from oncemq.storage.compaction.plan import CompactionPlan, LiveShare
from oncemq.storage.repair.findings import DamagedMessages, Diagnosis
from oncemq.storage.repair.repair import accept_loss, diagnose
from oncemq.storage.segments.index import BlockCache
from oncemq.storage.segments.layout import raise_generation, read_format


def damage(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x41
    path.write_bytes(data)


def mend(scribe: Any) -> Diagnosis:
    return accept_loss(scribe.disk, str(scribe.directory), random_bytes=secrets.token_bytes)


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def test_a_healthy_log_needs_nothing(scribe: Any) -> None:
    for _ in range(30):
        scribe.store(1, b"x" * 100)
    scribe.checkpoint(b"state")
    scribe.log.close()
    before = tree(scribe.directory)
    found = diagnose(scribe.disk, str(scribe.directory))
    assert found.healthy
    assert found.last_serial == 30
    assert mend(scribe).healthy
    assert tree(scribe.directory) == before
    scribe.open()


def test_a_torn_tail_is_no_damage(scribe: Any) -> None:
    scribe.store(1, b"a")
    end = scribe.log._current.end
    scribe.store(1, b"b")
    scribe.kill()
    damage(scribe.segments[-1], end + 50)
    assert diagnose(scribe.disk, str(scribe.directory)).healthy
    scribe.open()


@pytest.mark.parametrize("stops_cleanly", [True, False])
def test_damage_to_the_very_last_record_is_told_where_it_is_known_to_be_durable(
    scribe: Any, stops_cleanly: bool
) -> None:
    """A clean stop notes the end; after a kill the same bytes are a torn tail."""
    scribe.store(1, b"a")
    end = scribe.log._current.end
    scribe.store(1, b"b")
    if stops_cleanly:
        scribe.log.close()
    else:
        scribe.kill()
    damage(scribe.segments[-1], end + 50)
    found = diagnose(scribe.disk, str(scribe.directory))
    assert found.healthy is not stops_cleanly
    if stops_cleanly:
        assert [each.first_serial for each in found.damages] == [2]
        with pytest.raises(Corrupt):
            scribe.open()
        mend(scribe)
    scribe.open()


def test_damage_in_the_chain_is_named_and_cut_when_accepted(scribe: Any) -> None:
    for number in range(30):
        scribe.store(1 + number % 2, b"m%d " % number + b"x" * 100)
    place = scribe.log.find(1, 3)  # serial 7
    scribe.log.close()
    damage(Path(place.segment.path), place.position + place.size - 1)
    with pytest.raises(Corrupt, match="once repair"):
        scribe.open()
    before = tree(scribe.directory)
    found = diagnose(scribe.disk, str(scribe.directory))
    assert tree(scribe.directory) == before
    (only,) = found.damages
    assert (only.path, only.position, only.first_serial) == (place.segment.path, place.position, 7)
    assert only.lost == [DamagedMessages(1, 3, 15), DamagedMessages(2, 3, 15)]
    assert found.mendable

    mend(scribe)
    kept = b"".join(tree(scribe.directory / "quarantine").values())
    assert b"m29 " in kept
    tag = scribe.log.tag
    scribe.open()
    assert scribe.log.generation >> NAME_BITS == 1
    assert scribe.log.tag != tag
    assert scribe.log.last_serial == 6
    assert scribe.payloads(1) == dict(enumerate(scribe.topics[1][:3]))
    scribe.topics[1] = scribe.topics[1][:3]
    scribe.store(1, b"it goes on")
    scribe.reopen()
    assert scribe.payloads(1)[3] == b"it goes on"


def test_a_covered_segment_is_salvaged_around_the_damage(scribe: Any) -> None:
    for number in range(30):
        scribe.store(1, b"m%d " % number + b"x" * 100)
    scribe.checkpoint(b"state")
    place = scribe.log.find(1, 2)
    scribe.log.close()
    damage(Path(place.segment.path), place.position + place.size - 1)
    found = mend(scribe)
    assert [one.covered for one in found.damages] == [True]
    assert scribe.open().states == [b"state"]
    expected = dict(enumerate(scribe.topics[1]))
    del expected[2]
    assert scribe.payloads(1) == expected
    scribe.reopen()
    assert scribe.payloads(1) == expected
    for number in range(2):  # what is compacted later keeps the gap where it is
        scribe.fact(number)
        scribe.commit()
        scribe.checkpoint(b"later")
    rewritten = CompactionJob(
        scribe.disk,
        f"{scribe.directory}/log",
        scribe.log.identity,
        BlockCache(),
        CompactionPlan(
            tuple(scribe.log._catalog.segments[:2]), {1: LiveShare("t1", 0)}, rewrite=True
        ),
    )
    rewritten.run()
    scribe.log.complete(rewritten)
    rewritten.clean()
    assert scribe.payloads(1) == expected


def test_a_log_shorter_than_its_checkpoint_goes_on_with_the_one_before(scribe: Any) -> None:
    scribe.store(1, b"a")
    scribe.checkpoint(b"one")
    end = scribe.log._current.end
    scribe.store(1, b"b")
    scribe.checkpoint(b"two")
    scribe.log.close()
    with scribe.segments[-1].open("r+b") as file:
        file.truncate(end)
    with pytest.raises(Corrupt, match="are lost"):
        scribe.open()
    found = mend(scribe)
    assert [Path(path).name for path in found.checkpoints] == [f"{2:020d}.ckpt"]
    assert scribe.open().states == [b"one"]


def test_what_cannot_be_rebuilt_is_refused(scribe: Any) -> None:
    for number in range(30):
        scribe.store(1, b"m%d " % number + b"x" * 100)
        if number in (23, 25):
            scribe.checkpoint(b"%d" % number)
    scribe.compact(lambda _: 30)
    scribe.log.close()
    damage(scribe.segments[0], 200)
    with pytest.raises(Corrupt):
        scribe.open()
    before = tree(scribe.directory)
    with pytest.raises(StorageRefused, match="restore the directory from a backup"):
        mend(scribe)
    assert tree(scribe.directory) == before
    damage(scribe.segments[0], 200)  # mended by hand
    scribe.open()


def test_the_generation_is_raised_before_anything_is_taken_out(
    tmp_path: Path, make_scribe: Any, copying_disk: Any
) -> None:
    """A server that starts after a crash inside the repair must know that something was lost."""
    disk = copying_disk(tmp_path / "data", tmp_path / "copies")
    scribe = make_scribe(tmp_path / "data", disk)
    for number in range(30):
        scribe.store(1, b"m%d " % number + b"x" * 100)
    scribe.checkpoint(b"state")
    place, later = scribe.log.find(1, 2), scribe.log.find(1, 29)
    scribe.log.close()
    for each in (place, later):
        damage(Path(each.segment.path), each.position + each.size - 1)
    before = tree(scribe.directory / "log")
    disk.armed = True
    mend(scribe)
    copies = sorted((tmp_path / "copies").iterdir())
    changed = [copy for copy in copies if tree(copy / "log") != before]
    assert len(changed) > 5
    for copy in changed:
        form = read_format(disk, str(copy))
        assert form is not None
        assert form.generation >> NAME_BITS == 1


def test_a_log_from_before_generations_is_of_the_first(scribe: Any) -> None:
    path = scribe.directory / "FORMAT"
    form = msgspec.json.decode(path.read_bytes())
    del form["generation"], form["checksum"], form["incarnation"]
    path.write_bytes(msgspec.json.encode(form | {"format": 1}))
    scribe.reopen()
    assert scribe.log.generation == 1
    raised = raise_generation(scribe.disk, str(scribe.directory), lambda size: b"\x05" * size)
    assert raised == read_format(scribe.disk, str(scribe.directory))
    assert (raised.generation, raised.identity) == (continued(1, 0x05050505), scribe.log.identity)
    assert raised.tag != scribe.log.tag


# ------------------------------------------------------------------ checkpoints that do not hold


def compacted(scribe: Any) -> list[Path]:
    """A log that no longer begins at serial 1, closed; its checkpoints."""
    for number in range(30):
        scribe.store(1, b"m%d " % number + b"x" * 100)
    for number in range(2):
        scribe.fact(number)
        scribe.commit()
        scribe.checkpoint(b"state")
    assert scribe.compact(lambda _: 20) > 0
    scribe.log.close()
    assert scribe.segments[0].name != f"{1:020d}.log"
    return sorted((scribe.directory / "checkpoints").glob("*.ckpt"))


def spoil(path: Path) -> None:
    damage(path, path.stat().st_size // 2)


def test_a_checkpoint_whose_next_record_is_gone_is_none(scribe: Any) -> None:
    """That record was appended while the state was gathered, so it may not be in it."""
    scribe.store(1, b"a")
    writer = scribe.log.begin_checkpoint()
    scribe.store(1, b"x" * 900)  # the last of its segment
    job = writer.finish()
    job.run()
    scribe.log.complete(job)
    scribe.store(1, b"x" * 900)
    assert len(scribe.segments) == 2
    scribe.log.close()
    for path in (scribe.segments[0], *scribe.directory.glob("log/*.idx")):
        path.unlink()
    with pytest.raises(Corrupt, match="must begin at serial 2 but the log begins at 3"):
        scribe.open()
    found = diagnose(scribe.disk, str(scribe.directory))
    assert not found.healthy
    assert not found.mendable


@pytest.mark.parametrize("harm", [spoil, Path.unlink])
def test_without_a_checkpoint_a_log_that_begins_later_is_damaged(scribe: Any, harm: Any) -> None:
    for path in compacted(scribe):
        harm(path)
    before = tree(scribe.directory)
    found = diagnose(scribe.disk, str(scribe.directory))
    assert not found.healthy
    assert not found.mendable
    assert "no checkpoint that holds" in found.damages[-1].why
    with pytest.raises(StorageRefused, match="restore the directory from a backup"):
        mend(scribe)
    begins = int(scribe.segments[0].stem)
    with pytest.raises(Corrupt, match=f"serial 1 but the log begins at {begins};"):
        scribe.open()
    assert tree(scribe.directory) == before, "who refuses a directory leaves it as it is"


def test_a_checkpoint_from_before_the_beginning_of_the_log_is_none(scribe: Any) -> None:
    scribe.store(1, b"m")
    scribe.checkpoint(b"old")
    (old,) = (scribe.directory / "checkpoints").glob("*.ckpt")
    kept = old.read_bytes()
    for path in compacted(scribe):
        path.unlink()
    old.write_bytes(kept)
    with pytest.raises(Corrupt, match="recovery must begin at serial 2 "):
        scribe.open()
    found = diagnose(scribe.disk, str(scribe.directory))
    assert not found.healthy
    assert not found.mendable


def test_a_segment_of_another_log_or_under_another_name_is_damage(
    scribe: Any, make_scribe: Any, tmp_path: Path
) -> None:
    other = make_scribe(tmp_path / "other", scribe.disk, identity=b"\7")
    for each in (scribe, other):
        for number in range(30):
            each.store(1, b"m%d " % number + b"x" * 100)
        each.log.close()
    victim, stranger = scribe.segments[2], other.segments[2].read_bytes()
    kept = victim.read_bytes()
    misplaced = scribe.segments[1]
    for data, why in (
        (stranger, "it belongs to another log: take it away"),
        (misplaced.read_bytes(), f"it says it is {misplaced.name}: give it back its name"),
    ):
        victim.write_bytes(data)
        with pytest.raises(Corrupt, match="another log" if data is stranger else "says it is"):
            scribe.open()
        found = diagnose(scribe.disk, str(scribe.directory))
        damages = [(each.path, each.position, each.why) for each in found.damages]
        assert damages == [(str(victim), 0, why)]
    victim.write_bytes(kept)
    assert diagnose(scribe.disk, str(scribe.directory)).healthy


def test_one_checkpoint_that_does_not_hold_is_named_and_passed_over(scribe: Any) -> None:
    checkpoints = compacted(scribe)
    spoil(checkpoints[-1])
    found = diagnose(scribe.disk, str(scribe.directory))
    assert found.healthy
    assert found.passed_over == [str(checkpoints[-1])]
    scribe.open()
    assert scribe.opened.report.damaged_checkpoints == [checkpoints[-1].name]


def test_a_directory_without_its_segments_is_not_called_sound(scribe: Any) -> None:
    scribe.store(1, b"a")
    scribe.log.close()
    (scribe.directory / "END").unlink()
    for path in (scribe.directory / "log").iterdir():
        path.unlink()
    found = diagnose(scribe.disk, str(scribe.directory))
    assert not found.healthy
    assert "has no segment" in found.damages[-1].why
    (scribe.directory / "log").rmdir()
    assert not diagnose(scribe.disk, str(scribe.directory)).healthy


# ------------------------------------------------------------------ the checkpoint before


def with_two_checkpoints(scribe: Any) -> list[Path]:
    """A log that begins behind serial 1, closed; the older checkpoint begins segments before."""
    for number in range(60):
        scribe.store(1, b"m%02d " % number + b"x" * 100)
        if number in (30, 50):
            scribe.checkpoint(b"at %d" % scribe.log.last_serial)
    assert scribe.compact(lambda _: 20) > 0
    scribe.log.close()
    assert scribe.segments[0].name != f"{1:020d}.log"
    return scribe.segments


def holding(segments: list[Path], serial: int) -> int:
    """Which segment a serial is in."""
    return max(n for n, path in enumerate(segments) if int(path.name[:20]) <= serial)


def test_a_damaged_header_where_the_newest_checkpoint_begins_costs_what_comes_after(
    scribe: Any,
) -> None:
    segments = with_two_checkpoints(scribe)
    victim = segments[holding(segments, 52)]
    with victim.open("r+b") as file:
        file.write(bytes(64))
    found = mend(scribe)
    assert found.last_serial == int(victim.name[:20]) - 1
    assert [Path(path).name for path in found.checkpoints if "END" not in path] == [
        f"{51:020d}.ckpt"
    ]
    assert scribe.open().states == [b"at 31"]
    assert sorted(scribe.payloads(1, 20)) == list(range(20, found.last_serial))


def test_a_damaged_header_of_a_segment_that_was_just_begun_is_mended_in_one_go(
    scribe: Any,
) -> None:
    """What is noted of the end then names a segment that the repair takes out."""
    while len(scribe.segments) < 2:
        scribe.store(1, b"x" * 100)
    scribe.kill()
    damage(scribe.segments[-1], 10)
    found = mend(scribe)
    assert [Path(path).name for path in found.checkpoints] == ["END"]
    assert diagnose(scribe.disk, str(scribe.directory)).healthy
    assert scribe.open().log.last_serial == found.last_serial


def test_damage_that_the_older_checkpoint_does_not_cover_ends_the_log_there(scribe: Any) -> None:
    """The newest is lost with the end of the log, and the one before needs what lies between."""
    segments = with_two_checkpoints(scribe)
    between = segments[holding(segments, 40)]
    damage(between, 200)
    newest = segments[holding(segments, 52)]
    newest.write_bytes(bytes(64) + newest.read_bytes()[64:])
    found = mend(scribe)
    assert found.last_serial < 41
    assert [damage.path for damage in found.damages if not damage.path.endswith("END")] == [
        str(between)
    ]
    assert scribe.open().states == [b"at 31"]
    assert sorted(scribe.payloads(1, 20)) == list(range(20, found.last_serial))


def test_a_newest_checkpoint_of_another_history_is_given_up_for_the_one_before(
    scribe: Any, make_scribe: Any, tmp_path: Path
) -> None:
    segments = with_two_checkpoints(scribe)
    other = make_scribe(tmp_path / "other", scribe.disk)
    for number in range(60):
        other.store(1, b"n%02d " % number + b"x" * 100)
        if number in (30, 50):
            other.checkpoint(b"another")
    other.log.close()
    name = f"checkpoints/{51:020d}.ckpt"
    (scribe.directory / name).write_bytes((other.directory / name).read_bytes())
    with pytest.raises(Corrupt, match="another time"):
        scribe.open()
    found = mend(scribe)
    assert (found.damages, found.last_serial) == ([], 60)
    assert scribe.open().states == [b"at 31"]
    assert sorted(scribe.payloads(1, 20)) == list(range(20, 60))
    assert scribe.segments == segments


# ------------------------------------------------------------------ segments under wrong names


def test_a_segment_with_the_content_of_another_is_not_salvaged_twice(scribe: Any) -> None:
    """In its place the messages of the other would be found before those that come earlier."""
    segments = with_two_checkpoints(scribe)
    victim, original = segments[0], segments[2]
    after = int(segments[1].name[:20]) - 1  # the first offset behind it: one message a serial
    victim.write_bytes(original.read_bytes())
    victim.with_suffix(".idx").unlink()
    found = mend(scribe)
    assert ["says it is" in damage.why for damage in found.damages] == [True]
    assert (scribe.directory / "quarantine" / victim.name).exists()
    scribe.open()
    assert diagnose_again(scribe).healthy
    assert list(scribe.payloads(1, after)) == list(range(after, 60))
    holders = scribe.log._catalog.extents(1)
    assert all(one.end_offset <= two.first_offset for one, two in pairwise(holders))


def diagnose_again(scribe: Any) -> Diagnosis:
    scribe.log.close()
    found = diagnose(scribe.disk, str(scribe.directory))
    scribe.open()
    return found


def test_a_segment_that_is_only_there_under_a_wrong_name_is_salvaged_in_its_own_place(
    scribe: Any,
) -> None:
    segments = with_two_checkpoints(scribe)
    first, misplaced, after = segments[0], segments[2], segments[3]
    gone = range(int(first.name[:20]) - 1, int(segments[1].name[:20]) - 1)
    for path in (first, misplaced):
        path.with_suffix(".idx").unlink()
    misplaced.rename(first)
    assert int(after.name[:20]) < 51, "the newest checkpoint covers it"
    mend(scribe)
    scribe.open()
    kept = [offset for offset in range(20, 60) if offset not in gone]
    assert [offset for offset in scribe.payloads(1, gone.stop) if offset >= 20] == [
        offset for offset in kept if offset >= gone.stop
    ]


def test_a_segment_of_the_tail_under_an_older_name_is_not_salvaged_beyond_the_end(
    scribe: Any,
) -> None:
    segments = with_two_checkpoints(scribe)
    first, last = segments[0], segments[-1]
    first.with_suffix(".idx").unlink()
    last.rename(first)
    looked = diagnose(scribe.disk, str(scribe.directory)).contents
    assert looked is not None
    assert str(first) not in [each.path for each in looked.catalog.segments]
    found = mend(scribe)
    scribe.open()
    assert found.last_serial == scribe.log.last_serial == int(last.name[:20]) - 1
    assert max(scribe.payloads(1, int(segments[1].name[:20]) - 1)) == found.last_serial - 1


def test_a_segment_that_ends_where_the_checkpoint_begins_is_covered_where_it_belongs(
    scribe: Any,
) -> None:
    for number in range(40):
        scribe.store(1, b"m%02d " % number + b"x" * 100)
    scribe.checkpoint(b"state")
    scribe.log._roll(700)
    scribe.store(1, b"behind it")
    scribe.log.close()
    first, *_, covered, last = scribe.segments
    assert int(last.stem) == 41
    for path in (first, covered):
        path.with_suffix(".idx").unlink()
    covered.rename(first)
    (damage,) = (each for each in mend(scribe).damages if each.covered)
    assert damage.home == int(covered.stem)
    scribe.open()
    assert scribe.payloads(1, int(covered.stem) - 1) == {
        offset: scribe.topics[1][offset] for offset in range(int(covered.stem) - 1, 41)
    }


def test_a_segment_of_another_history_ends_the_log_before_it(
    scribe: Any, make_scribe: Any, tmp_path: Path
) -> None:
    """Its topics are named, as far as their making is in what is lost."""
    other = make_scribe(tmp_path / "other", scribe.disk)
    for each, letter in ((scribe, b"a"), (other, b"b")):
        for number in range(30):
            each.store(1, letter * 100)
            if number == 20:
                name = f"made-{letter.decode()}"
                each.log.append(TopicCreated(TopicId(5), name, Retention(), Micros(1)))
                each.commit()
        each.log.close()
    strange = [path for path in scribe.segments if int(path.stem) > 12]
    for path in strange:
        path.write_bytes((other.directory / "log" / path.name).read_bytes())
    found = diagnose(scribe.disk, str(scribe.directory))
    first, *beyond = strange
    assert [(each.path, each.position, each.why) for each in found.damages] == [
        (str(first), 0, "it does not go on where the segment before it ends")
    ]
    assert found.beyond == [path.name for path in beyond]
    assert found.names == {5: "made-b"}
    assert found.last_serial == int(first.stem) - 1
