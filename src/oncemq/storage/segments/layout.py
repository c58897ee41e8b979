"""The data directory: its FORMAT file, its folders, what a crash may leave lying about.

    DIR/FORMAT        JSON: format, the shard's identity, tag and generation, the holes that a
                      person agreed to, the directory's incarnation; written last when a log is made
    DIR/OPENED        how often the directory was opened
    DIR/EPOCH         the newest epoch of a leader that this replica promised to follow
    DIR/END           JSON: how far the log is known to be durable
    DIR/RESTORING     while a backup is copied into the directory; without FORMAT: it was cut off
    DIR/REFILLING     the same, while another replica fills the directory: see `log/refill`
    DIR/lock          held (flock) while the log is open
    DIR/log/          segments and their indexes
    DIR/checkpoints/  the two newest checkpoints
    DIR/damaged/      logs that a replica put aside whole: see `log/set_aside`
    DIR/torn/         copies of what recovery cut off · DIR/quarantine/ of what repair cut off

Law: a directory without FORMAT is new, or was never finished, or is refused; it is never
taken for an empty log when it holds records, nor for a log when a restore stopped halfway.

Identity and tag are the shard's: each of its replicas has them, and the chain of frames begins from
the identity. The incarnation is this directory's alone: a directory that was made, restored,
refilled or cut by a repair has a new one, so nobody counts on what another directory had.
A directory of format 1 has none. Its next opening gives it one (`migrated`): that one write is the
whole migration, because frames of both formats are read wherever they lie. No frame of format 2 is
written before it, so a crash leaves a directory of the one format or of the other.
"""

import shlex
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from oncemq.errors import Corrupt, StorageRefused
from oncemq.protocol.generations import continued
from oncemq.storage.disk import Disk, File
from oncemq.storage.segments.framing import STRETCH_BYTES, frame_key
from oncemq.storage.segments.segment import HEADER_BYTES, new_log_segment

VERSION = 2
IDENTITY_BYTES = 16
INCARNATION_BYTES = 16
RESTORING = "RESTORING"
REFILLING = "REFILLING"
GONE = ".gone"  # the end of a directory's name: a log that is being removed


class FormatHole(NamedTuple):
    """Messages of a topic (or stage) that are lost: from the first offset, up to the end."""

    topic_id: int
    first_offset: int
    end_offset: int


class Format(msgspec.Struct, frozen=True):
    """What FORMAT says."""

    format: int
    identity: bytes  # of the shard
    tag: int  # the upper half of every identity that this generation of the log gives
    generation: int = 1  # grows when the log goes on from an earlier state: `core.generations`
    checksum: int = 0  # of all of it; 0: written before there was one
    agreed: tuple[
        FormatHole, ...
    ] = ()  # what the log may lack when this generation begins, and no more
    incarnation: bytes = b""  # of this directory; none in format 1

    @property
    def seal(self) -> int:
        """The checksum that it has to have."""
        text = b"%d %b %d %d" % (self.format, self.identity, self.tag, self.generation)
        if self.agreed:
            text += msgspec.json.encode(self.agreed)
        return zlib.crc32(text + self.incarnation) or 1

    def is_of(self, other: "Format") -> bool:
        """Whether this is the same log in the same directory; format 1 named no directory."""
        named = self.incarnation and other.incarnation
        other = msgspec.structs.replace(
            other,
            format=self.format,
            checksum=self.checksum,
            incarnation=other.incarnation if named else self.incarnation,
        )
        return self == other


class _Version(msgspec.Struct, frozen=True):
    format: int


def ensure_format(disk: Disk, directory: str, random_bytes: Callable[[int], bytes]) -> Format:
    """The directory's FORMAT; made, with an empty log, when the directory is new."""
    found = read_format(disk, directory)
    if found is not None:
        disk.sync_directory(directory)  # after a kill its name may be only in the page cache
        return found
    for folder in ("log", "checkpoints"):
        disk.make_directory(f"{directory}/{folder}")
    _must_be_new(disk, directory)
    tag = _random_tag(random_bytes)
    form = Format(VERSION, random_bytes(IDENTITY_BYTES), tag)
    first = new_log_segment(f"{directory}/log", form.identity, 1, frame_key(form.identity))
    replace_file(disk, first.path, first.header.encode())
    return _incarnate(disk, directory, form, random_bytes)


def migrated(
    disk: Disk, directory: str, form: Format, random_bytes: Callable[[int], bytes]
) -> Format:
    """FORMAT as this version writes it; its log was found whole, and nothing is appended yet."""
    return form if form.format == VERSION else _incarnate(disk, directory, form, random_bytes)


def raise_generation(
    disk: Disk,
    directory: str,
    random_bytes: Callable[[int], bytes],
    *,
    old: Format | None = None,
    known: int = 0,
    agreed: Sequence[FormatHole] = (),
) -> Format:
    """Say durably that the log goes on from a state its clients may have seen the future of.

    The tag is new too: topics and subscriptions made from now on never get an identity that was
    given in the future that was lost. The identity stays: the frames' checksums start from it.
    `old`: what FORMAT says, or said; `known`: the newest generation that the log itself knows;
    `agreed`: every hole that a person agreed to go on with.
    """
    old = old or read_format(disk, directory)
    assert old is not None, "only a log that has a FORMAT file can be continued"
    old = msgspec.structs.replace(old, agreed=tuple(agreed))
    return _continue(disk, directory, old, max(old.generation, known), random_bytes)


def continue_format(
    disk: Disk, directory: str, old: Format, random_bytes: Callable[[int], bytes]
) -> Format:
    """FORMAT for a log that goes on from a copy: the last thing written when it is restored.

    Nobody agreed to lose more than was agreed to where the copy was made.
    """
    return _continue(disk, directory, old, old.generation, random_bytes)


def adopt_format(
    disk: Disk, directory: str, form: Format, random_bytes: Callable[[int], bytes]
) -> Format:
    """FORMAT for a replica of a shard: the last thing written when its directory is filled."""
    return _incarnate(disk, directory, form, random_bytes)


def _continue(
    disk: Disk,
    directory: str,
    old: Format,
    newest: int,
    random_bytes: Callable[[int], bytes],
) -> Format:
    """With a generation that no other log has, though it goes on from the same state."""
    generation = continued(newest, int.from_bytes(random_bytes(4), "little"))
    tag = _random_tag(random_bytes)
    if tag == old.tag:
        tag = tag % 0x7FFFFFFF + 1
    form = msgspec.structs.replace(old, tag=tag, generation=generation)
    return _incarnate(disk, directory, form, random_bytes)


def _random_tag(random_bytes: Callable[[int], bytes]) -> int:
    return int.from_bytes(random_bytes(4), "little") & 0x7FFFFFFF or 1


def _incarnate(
    disk: Disk, directory: str, form: Format, random_bytes: Callable[[int], bytes]
) -> Format:
    """Write FORMAT, for a directory that is none of those that were there before."""
    form = msgspec.structs.replace(
        form, format=VERSION, incarnation=random_bytes(INCARNATION_BYTES)
    )
    form = msgspec.structs.replace(form, checksum=form.seal)
    replace_file(disk, f"{directory}/FORMAT", msgspec.json.format(msgspec.json.encode(form)))
    return form


def read_format(disk: Disk, directory: str) -> Format | None:
    """What FORMAT says; None when there is none. A newer format is refused, and half a restore."""
    path = f"{directory}/FORMAT"
    names = disk.names(directory)
    must_not_be_half(directory, names)
    if "FORMAT" not in names:
        return None
    file = disk.open(path)
    try:
        data = file.read(0, file.size())
    except OSError as error:
        raise Corrupt(
            f"{path} cannot be read ({error}); `once repair` shows the way out"
        ) from error
    finally:
        file.close()
    try:
        version = msgspec.json.decode(data, type=_Version).format
        must_be_known(directory, version)
        form = msgspec.json.decode(data, type=Format)
    except msgspec.MsgspecError as error:
        raise Corrupt(
            f"{path} cannot be read ({error}); `once repair` shows the way out"
        ) from error
    if len(form.identity) != IDENTITY_BYTES:
        raise Corrupt(f"{path} holds an identity of {len(form.identity)} bytes, not 16")
    if version > 1 and len(form.incarnation) != INCARNATION_BYTES:
        raise Corrupt(f"{path} holds an incarnation of {len(form.incarnation)} bytes, not 16")
    if form.checksum not in ((0, form.seal) if version == 1 else (form.seal,)):
        raise Corrupt(
            f"{path} is not what was written: its checksum differs; `once repair` shows the way out"
        )
    return form


def must_be_known(place: str, version: int) -> None:
    """Refuse what a newer version wrote: a directory, or a backup."""
    if version > VERSION:
        raise StorageRefused(
            f"{place} was written by a newer OnceMQ (format {version}); this one knows {VERSION}: "
            "run the newer version on it, or use another directory",
            code="format_too_new",
        )


def must_not_be_half(directory: str, names: Sequence[str]) -> None:
    """Refuse a directory that a restore has begun and not finished: FORMAT is its last file."""
    if RESTORING in names and "FORMAT" not in names:
        place = shlex.quote(directory)
        raise StorageRefused(
            f"a restore into {directory} was cut off, and what is there is not whole. Remove it "
            f"(`rm -r {place}`), and restore again: `once restore BACKUP --data {place}`",
            code="restore_cut_off",
        )
    if REFILLING in names and "FORMAT" not in names:
        raise StorageRefused(
            f"{directory} is half filled with the files of another replica: start its server as a "
            "replica of that shard, which fills it again",
            code="refill_cut_off",
        )


def _must_be_new(disk: Disk, directory: str) -> None:
    """Without FORMAT, only what the making of a log leaves behind may lie here."""
    for name in disk.names(f"{directory}/checkpoints"):
        raise _nameless(f"{directory}/checkpoints", name)
    folder = f"{directory}/log"
    for name in disk.names(folder):
        file = disk.open(f"{folder}/{name}")
        size = file.size()
        file.close()
        if size > HEADER_BYTES:
            raise _nameless(folder, name)
        disk.remove(f"{folder}/{name}")


def _nameless(folder: str, name: str) -> Corrupt:
    return Corrupt(
        f"{folder} holds {name} but there is no FORMAT file beside it; `once repair` shows the way "
        "out"
    )


def tidy(disk: Disk, directory: str) -> list[str]:
    """Remove what a crash left: temporary files, the mark of a restore that was just finished."""
    removed: list[str] = []
    for folder in (directory, f"{directory}/log", f"{directory}/checkpoints"):
        for name in disk.names(folder):
            if name.endswith(".tmp") or name in (RESTORING, REFILLING):
                disk.remove(f"{folder}/{name}")
                removed.append(name)
    return removed


def remove_log(disk: Disk, directory: str) -> None:
    """Remove a whole log; nothing may have it open.

    It loses its name first: half a log would be refused as damaged by the next opening. What
    a crash leaves under the other name goes with the next log removed beside it.
    """
    parent = directory.rpartition("/")[0]
    _remove_gone(disk, parent)
    disk.rename(directory, directory + GONE)
    disk.sync_directory(parent)
    _remove_gone(disk, parent)


def _remove_gone(disk: Disk, parent: str) -> None:
    folders = ("log", "checkpoints", "torn", "quarantine")
    for gone in [f"{parent}/{name}" for name in disk.names(parent) if name.endswith(GONE)]:
        for name in disk.names(gone):
            if name in folders:
                for inner in disk.names(f"{gone}/{name}"):
                    disk.remove(f"{gone}/{name}/{inner}")
            disk.remove(f"{gone}/{name}")
        disk.remove(gone)


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """A small file, whole under its name or not there at all."""
    temporary = path + ".tmp"
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write([data], 0)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(path.rpartition("/")[0])


def save_copy(disk: Disk, source: File, start: int, path: str) -> None:
    """Copy a file from `start` on (without the zeros at its end), durably."""
    disk.make_directory(path.rpartition("/")[0])
    copy = disk.open(path, create=True)
    try:
        copy.truncate(0)
        position, end = start, _end_of_data(source, start)
        while position < end:
            stretch = source.read(position, min(STRETCH_BYTES, end - position))
            copy.write([stretch], position - start)
            position += len(stretch)
        copy.sync()
    finally:
        copy.close()
    disk.sync_directory(path.rpartition("/")[0])


def stretches(file: File, size: int, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """The bytes of a file from `start` up to `size`, in pieces, each with its position."""
    while start < size:
        stretch = file.read(start, min(STRETCH_BYTES, size - start))
        if not stretch:
            return
        yield start, stretch
        start += len(stretch)


def _end_of_data(source: File, start: int) -> int:
    """Where the zeros at the end of a file begin."""
    end = source.size()
    while end > start:
        begin = max(start, end - STRETCH_BYTES)
        kept = len(source.read(begin, end - begin).rstrip(b"\0"))
        if kept:
            return begin + kept
        end = begin
    return start
