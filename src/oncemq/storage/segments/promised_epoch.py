"""DIR/EPOCH: the highest epoch of a leader that this replica promised to follow.

A promise is durable before anything is answered in its epoch: a replica that forgot one could take
frames from a leader that was deposed, and help it to commit them. It stays when the directory is
refilled, and lies in no backup: a restored directory has another incarnation, and is not counted on
before it was refilled.

Law: it only grows. What cannot be read is no promise of 0: the directory is refused.
"""

import zlib

import msgspec

from oncemq.errors import Corrupt
from oncemq.protocol.names import LeaderEpoch
from oncemq.protocol.replicas.leader_epochs import ALONE
from oncemq.storage.disk import Disk
from oncemq.storage.segments.layout import replace_file

NAME = "EPOCH"


class _Promise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    leader_epoch: LeaderEpoch
    checksum: int = 0

    @property
    def seal(self) -> int:
        return zlib.crc32(b"epoch %d" % self.leader_epoch)


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
        promise = _Promise(leader_epoch)
        promise = msgspec.structs.replace(promise, checksum=promise.seal)
        replace_file(self._disk, self._path, msgspec.json.encode(promise))
        self.leader_epoch = leader_epoch
        return True

    def _read(self) -> LeaderEpoch:
        if NAME not in self._disk.names(self._directory):
            return ALONE
        self._disk.sync_directory(self._directory)  # its name may be only in the page cache
        file = self._disk.open(self._path)
        try:
            promise = msgspec.json.decode(file.read(0, file.size()), type=_Promise)
        except (msgspec.MsgspecError, OSError) as error:
            raise self._damaged(str(error)) from error
        finally:
            file.close()
        if promise.checksum != promise.seal:
            raise self._damaged("its checksum differs")
        return promise.leader_epoch

    def _damaged(self, why: str) -> Corrupt:
        return Corrupt(
            f"{self._path} cannot be read ({why}): which leaders this replica must refuse is not "
            f"known. Move {self._directory} away, and start with an empty directory: it is filled "
            "by the shard's leader"
        )
