"""DIR/EPOCH: the highest epoch of a leader that this replica promised to follow.

    two slots, 4,096 bytes apart: leader epoch u64 · checksum u32

A promise is durable before anything is answered in its epoch: a replica that forgot one could take
frames from a leader that was deposed, and help it to commit them. It stays when the directory is
refilled, and lies in no backup: a restored directory has another incarnation, and is not counted on
before it was refilled.

How it works. A promise is written in place, since a full disk must be able to make one: else no
other server could be elected while the room is gone. It is written and synced in one slot, then in
the other. So a crash leaves a slot that holds, with this promise or with the one before it if this
one was not answered yet; and damage to one slot loses nothing. The first servers of clusters kept
it as JSON, in a file that each promise replaced: what they left is read, and replaced once more.

Law: it only grows. What cannot be read is no promise of 0: the directory is refused.
"""

import struct
import zlib

import msgspec

from oncemq.errors import Corrupt
from oncemq.protocol.names import LeaderEpoch
from oncemq.protocol.replicas.leader_epochs import ALONE
from oncemq.storage.disk import Disk, File
from oncemq.storage.segments.layout import replace_file

NAME = "EPOCH"

_SLOT = struct.Struct("<QI")
_SLOT_BYTES = 4096


class _FirstPromise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    leader_epoch: LeaderEpoch
    checksum: int


class PromisedEpoch:
    """The promise of one directory; its lock is held."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{NAME}"
        self.leader_epoch = self._read()

    def promise(self, leader_epoch: LeaderEpoch) -> bool:
        """Follow nobody of a lower epoch from now on; False: a higher one was promised before.

        Durable when it returns. An OSError leaves open which of the two the disk has, and so this
        object is not to be asked again: the directory is opened anew.
        """
        if leader_epoch <= self.leader_epoch:
            return leader_epoch == self.leader_epoch
        file = self._disk.open(self._path)
        try:
            self._write(file, leader_epoch)
        finally:
            file.close()
        self.leader_epoch = leader_epoch
        return True

    @staticmethod
    def _write(file: File, leader_epoch: LeaderEpoch) -> None:
        for start in (0, _SLOT_BYTES):
            file.write([_slot(leader_epoch)], start)
            file.sync()

    def _read(self) -> LeaderEpoch:
        if NAME not in self._disk.names(self._directory):
            return self._begin(ALONE)
        self._disk.sync_directory(self._directory)  # its name may be only in the page cache
        file = self._disk.open(self._path)
        try:
            found = _slots(file)
            held = [each for each in found if each is not None]
            if not held:
                return self._begin(_of_first_servers(file, self._directory))
            if len(set(found)) > 1:  # of a promise under way, or damage: both are to have it
                self._write(file, max(held))
            else:
                file.sync()  # what was read may be only in the page cache, too
        finally:
            file.close()
        return max(held)

    def _begin(self, leader_epoch: LeaderEpoch) -> LeaderEpoch:
        slot = _slot(leader_epoch)
        replace_file(self._disk, self._path, slot.ljust(_SLOT_BYTES, b"\0") + slot)
        return leader_epoch


def promised_in(disk: Disk, directory: str) -> LeaderEpoch:
    """What was promised in a directory. Nothing is written there: a full disk would refuse it."""
    if NAME not in disk.names(directory):
        return ALONE
    file = disk.open(f"{directory}/{NAME}")
    try:
        held = [each for each in _slots(file) if each is not None]
        return max(held) if held else _of_first_servers(file, directory)
    finally:
        file.close()


def _slots(file: File) -> list[LeaderEpoch | None]:
    return [_promised(file.read(start, _SLOT.size)) for start in (0, _SLOT_BYTES)]


def _of_first_servers(file: File, directory: str) -> LeaderEpoch:
    try:
        promise = msgspec.json.decode(file.read(0, file.size()), type=_FirstPromise)
    except msgspec.MsgspecError:
        raise _damaged(directory) from None
    if promise.checksum != _seal(promise.leader_epoch):
        raise _damaged(directory)
    return promise.leader_epoch


def _damaged(directory: str) -> Corrupt:
    return Corrupt(
        f"{directory}/{NAME} cannot be read (neither of its checksums holds): which leaders this "
        f"replica must refuse is not known. Move {directory} away, and start with an "
        "empty directory: it is filled by the shard's leader"
    )


def _slot(leader_epoch: LeaderEpoch) -> bytes:
    return _SLOT.pack(leader_epoch, _seal(leader_epoch))


def _seal(leader_epoch: LeaderEpoch) -> int:
    return zlib.crc32(b"epoch %d" % leader_epoch)


def _promised(slot: bytes) -> LeaderEpoch | None:
    """None: it does not hold."""
    if len(slot) != _SLOT.size:
        return None
    leader_epoch = LeaderEpoch(_SLOT.unpack(slot)[0])
    return leader_epoch if slot == _slot(leader_epoch) else None
