"""A damaged outbox: which unsent puts are whole, and an outbox of those, when a person said so.

An outbox is a chain of records, and a client refuses to start on a broken one. Here every record
that still holds is read, wherever it lies. A batch whose body is damaged keeps its place and its
numbers (`OutboxLost`): the server may have it, and is asked with the next start. Numbers that no
record has (its header was damaged, too) are such a place as well, where a later batch shows them.

Laws: looking changes nothing. The new edition is durable before the damaged one is moved to
STATE/quarantine (killed in between, the next start removes it, as any edition that was replaced).
A damaged outbox that does not say whose numbers it has cannot be sent from: the same puts under
other numbers might be stored twice.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from oncemq.client.state.damage import is_damage, without_advice
from oncemq.client.state.outbox import RandomBytes, Slot, write_edition
from oncemq.client.state.outbox_contents import OutboxContents, lost_batch
from oncemq.client.state.unsent import Unsent
from oncemq.errors import Corrupt, Locked, StorageRefused
from oncemq.protocol.names import Sequence
from oncemq.protocol.outbox_records import OutboxBatch
from oncemq.storage.disk import LockingDisk
from oncemq.storage.repair.findings import valid_frames
from oncemq.storage.repair.forgiving import ForgivingFile
from oncemq.storage.repair.lost_format import find_format
from oncemq.storage.segments.end import read_end
from oncemq.storage.segments.framing import Frame, frame_key


class Edition(NamedTuple):
    """What is left of one edition of an outbox."""

    contents: OutboxContents
    unreadable: int  # records of which not even the kind is known


class Damaged(NamedTuple):
    """A damaged slot, and what is left of it."""

    slot: str
    why: str
    kept: list[Unsent]  # whole, without an answer
    lost: list[Unsent]  # damaged, and without an answer so far
    unreadable: int
    is_known: bool  # whose numbers these are; else nothing can be sent


class Outboxes:
    """The slots of a client that does not run."""

    def __init__(self, disk: LockingDisk, state: Path, random_bytes: RandomBytes) -> None:
        self._disk = disk
        self._state = str(state)
        self._random_bytes = random_bytes

    def look(self) -> list[Damaged]:
        """The damaged slots; nothing is changed but what a start of the client changes."""
        outbox = f"{self._state}/outbox"
        if "outbox" not in self._disk.names(self._state):
            return []
        found: list[Damaged] = []
        for name in sorted(self._disk.names(outbox)):
            slot = f"{outbox}/{name}"
            if not name.isdigit():
                continue
            try:
                Slot(self._disk, slot, self._random_bytes).close()
            except Locked as error:
                raise Locked(f"the client runs on {self._state}: end it first") from error
            except StorageRefused as error:
                if not is_damage(error):
                    raise
                found.append(_damaged(slot, error, self._chosen(slot)))
        return found

    def mend(self) -> list[Damaged]:
        """Go on with what is whole; what was damaged, as found before."""
        found = self.look()
        for each in found:
            self._mend(each.slot)
        return found

    def _mend(self, slot: str) -> None:
        editions = self._editions(slot)
        with ExitStack() as stack:
            stack.callback(self._disk.lock(f"{slot}/lock").release)
            edition = self._chosen(slot)
            if edition is not None:
                contents = edition.contents
                assert contents.producer is not None
                write_edition(
                    self._disk,
                    f"{slot}/{editions[0] + 1}",
                    self._random_bytes,
                    producer=contents.producer,
                    lanes=contents.lanes,
                    pending=contents.pending,
                )
            for number in editions:
                self._quarantine(slot, number)

    def _quarantine(self, slot: str, edition: int) -> None:
        folder = f"{self._state}/quarantine"
        self._disk.make_directory(folder)
        taken = self._disk.names(folder)
        name = f"outbox-{slot.rpartition('/')[2]}-{edition}"
        while name in taken:
            name += "-again"
        self._disk.rename(f"{slot}/{edition}", f"{folder}/{name}")
        self._disk.sync_directory(folder)
        self._disk.sync_directory(slot)

    def _editions(self, slot: str) -> list[int]:
        names = self._disk.names(slot)
        return sorted((int(name) for name in names if name.isdigit()), reverse=True)

    def _chosen(self, slot: str) -> Edition | None:
        """The newest edition that says whose numbers it has, as a start would choose."""
        for number in self._editions(slot):
            try:
                edition = self._read(f"{slot}/{number}")
            except Corrupt:
                continue  # nobody knows which log it was
            if edition.contents.producer is not None:
                return edition
        return None

    def _read(self, path: str) -> Edition:
        contents, unreadable, before = OutboxContents(), 0, 0
        for frame in self._frames(path):
            if frame.serial <= before:
                continue  # bytes of an older time, among those that are damaged
            unreadable += frame.serial - before - 1
            before = frame.serial
            _apply(contents, frame, unsure=unreadable > 0)
        return Edition(contents, unreadable + max(0, read_end(self._disk, path).serial - before))

    def _frames(self, path: str) -> Iterator[Frame]:
        """Every record whose header holds, with the body that lies beside it."""
        form, _ = find_format(self._disk, path)
        key = frame_key(form.identity)
        for name in sorted(self._disk.names(f"{path}/log")):
            if not name.endswith(".log"):
                continue
            file = ForgivingFile(self._disk.open(f"{path}/log/{name}"))
            try:
                for frame in valid_frames(file, 0, key):
                    body = file.read(frame.body_position, frame.body_bytes)
                    yield replace(frame, body=memoryview(body))
            finally:
                file.close()


def _apply(contents: OutboxContents, frame: Frame, *, unsure: bool) -> None:
    record = frame.outbox_record()
    if not isinstance(record, OutboxBatch):
        contents.apply(frame)
        return
    first, unknown = record.first_sequence, (record.topic_id, record.first_sequence, b"")
    topic_id, expected, producer = contents.lanes.get(record.topic, unknown)
    own = contents.producer
    goes_on = topic_id == record.topic_id and (producer or own) == (record.producer or own)
    if unsure and goes_on and expected < first:
        # A producer's numbers on a topic have no gap: what had these is among the records that
        # are unreadable.
        hole = replace(record, first_sequence=Sequence(expected), count=first - expected)
        contents.add(frame.serial, lost_batch(hole))
    if frame.body_holds():
        contents.apply(frame)
    else:
        contents.add(frame.serial, lost_batch(record))


def _damaged(slot: str, error: StorageRefused, edition: Edition | None) -> Damaged:
    why = without_advice(error)
    if edition is None:
        return Damaged(slot, why, [], [], 0, is_known=False)
    pending = edition.contents.pending
    return Damaged(
        slot,
        why,
        [each for each in pending if not each.lost],
        [each for each in pending if each.lost],
        edition.unreadable,
        is_known=True,
    )
