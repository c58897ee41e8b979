"""An empty log of a shard that is there already: how a new replica begins.

The shard's identity, tag and generation were given when it was made; a server that is to keep it
takes them over, with an incarnation of its own. All else comes from the leader.

Laws: nothing with a record in it is emptied here, by whatever mistake. The directory is filled as
by `refill`: a crash leaves it as it was, or half filled, and both may be tried again. The promised
epoch (EPOCH) stays.
"""

from collections.abc import Callable

from msgspec import structs

from oncemq.errors import Corrupt, StorageRefused
from oncemq.storage.disk import Disk, LockingDisk
from oncemq.storage.log.pinned_files import PinnedFile
from oncemq.storage.log.refill import Refill
from oncemq.storage.segments.end import read_end
from oncemq.storage.segments.framing import frame_key
from oncemq.storage.segments.layout import (
    REFILLING,
    RESTORING,
    VERSION,
    Format,
    adopt_format,
    read_format,
)
from oncemq.storage.segments.segment import HEADER_BYTES, log_name, new_log_segment
from oncemq.storage.segments.verify import is_blank


def new_replica(
    disk: LockingDisk,
    directory: str,
    identity: bytes,
    *,
    tag: int,
    generation: int,
    random_bytes: Callable[[int], bytes],
) -> Format:
    """Make an empty log of a shard; a directory that holds a log with records is refused."""
    disk.make_directory(directory)
    lock = disk.lock(f"{directory}/lock")
    try:
        held = holds_log(disk, directory)
        if held is not None:
            raise StorageRefused(
                f"{directory} holds a log with records, of the shard {held.identity.hex()}: a new "
                "replica begins with an empty directory. Move it away, or name another one",
                code="not_empty",
            )
    except BaseException:
        lock.release()
        raise
    first = new_log_segment(f"{directory}/log", identity, 1, frame_key(identity))
    header = PinnedFile("log", first.name, HEADER_BYTES)
    refill = Refill(disk, directory, [header], lock=lock)
    try:
        refill.write(first.name, 0, first.header.encode())
        return refill.finish(Format(VERSION, identity, tag, generation), random_bytes)
    except BaseException:
        refill.give_up()
        raise


def holds_log(disk: Disk, directory: str) -> Format | None:
    """Whose log is there, if it has or had a record. None: it may be filled without loss.

    So where there is no directory, an empty one, one that is half filled from another replica, and
    an empty log. Half a restore is refused, and records without a FORMAT beside them.
    """
    try:
        names = disk.names(directory)
    except FileNotFoundError:
        return None
    if "FORMAT" not in names and RESTORING not in names:
        if REFILLING not in names:
            _must_have_no_records(disk, directory)
        return None
    form = read_format(disk, directory)
    assert form is not None, "half a restore is refused"
    return form if _has_records(disk, directory, form) else None


def begun(disk: Disk, directory: str, identity: bytes) -> Format | None:
    """The log of this shard, if it is there, with records or without.

    Without one it is still the directory that it was: it may be in sync by its incarnation, and
    be the only one, where the shard's first record was never synced.
    """
    try:
        names = disk.names(directory)
    except FileNotFoundError:
        return None
    if "FORMAT" not in names or REFILLING in names:
        return None
    form = read_format(disk, directory)
    return form if form is not None and form.identity == identity else None


def take_generation(disk: LockingDisk, directory: str, form: Format) -> None:
    """The shard went back in time since this log was opened last: so did this one, with it.

    Its numbers go on with the shard's tag: its own gave some in the future that was lost. It is
    the same directory still.
    """
    lock = disk.lock(f"{directory}/lock")
    try:
        held = read_format(disk, directory)
        assert held is not None
        taken = structs.replace(held, tag=form.tag, generation=form.generation, agreed=())
        adopt_format(disk, directory, taken, lambda _: held.incarnation)
    finally:
        lock.release()


def _has_records(disk: Disk, directory: str, form: Format) -> bool:
    names = _names(disk, f"{directory}/log")
    if names != [log_name(1)] or _names(disk, f"{directory}/checkpoints"):
        return bool(names)
    if read_end(disk, directory).serial:
        return True  # and they are gone: the opening says so
    file = disk.open(f"{directory}/log/{names[0]}")
    try:
        return not is_blank(file, frame_key(form.identity))
    finally:
        file.close()


def _must_have_no_records(disk: Disk, directory: str) -> None:
    for folder in (f"{directory}/checkpoints", f"{directory}/log"):
        for name in _names(disk, folder):
            file = disk.open(f"{folder}/{name}")
            size = file.size()
            file.close()
            if size > HEADER_BYTES:
                raise Corrupt(
                    f"{folder} holds {name} but there is no FORMAT file beside it; `once repair` "
                    "shows the way out"
                )


def _names(disk: Disk, folder: str) -> list[str]:
    """The files of a folder, but those that a crash left behind; none, if it is not there."""
    try:
        return [name for name in disk.names(folder) if not name.endswith(".tmp")]
    except FileNotFoundError:
        return []
