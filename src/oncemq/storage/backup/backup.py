"""A copy of a log's files, taken while its server runs.

Why files: sealed segments, cold segments and checkpoints never change under their name, so a
second backup copies only new ones, and nothing is asked of the server. Only the segment in use
grows: what holds of it, frame by frame, is its copy. The same name and size are not enough, for a
power cut (or a copy put back by hand) may have put other frames in the place of those that were
copied: the chain of a segment leads to the next one's header. What a backup is made of: `manifest`.

Laws: the manifest is written last, and no file that the present one names is written over before
the next one counts: a backup that was cut off or refused leaves the one before as it was, whatever
the source has become. A manifest is written only for a set of files that a server would start on:
the copy is looked at as a whole, its older files too, as `once repair` looks at a directory. The
files are those of one moment, held open: compaction may replace segments by others while they are
copied, however often. Where there are too many to be held, nothing may have vanished while they
were copied.
"""

import shlex
from collections.abc import Callable, Generator
from contextlib import contextmanager

import msgspec

from oncemq.errors import Corrupt, StorageRefused
from oncemq.storage.backup.manifest import (
    FOLDERS,
    MANIFEST,
    BackupView,
    Copied,
    Manifest,
    Progress,
    checksum_of,
    holds,
    lock_backup,
    read_manifest,
)
from oncemq.storage.disk import Disk, File, LockingDisk
from oncemq.storage.log.checkpoint import read_checkpoint
from oncemq.storage.repair.diagnosis import diagnose_copy
from oncemq.storage.repair.findings import Diagnosis
from oncemq.storage.segments.end import read_end
from oncemq.storage.segments.framing import Bad, frame_key
from oncemq.storage.segments.layout import Format, read_format, replace_file, stretches
from oncemq.storage.segments.segment import COLD, read_header, scan_cold
from oncemq.storage.segments.verify import is_blank, verify

PASSES_MAX = 100  # each is followed by another only when compaction took a file away meanwhile
HELD_MAX = 200  # files held open; where a process may open few, it may open 256
FAULTS_TOLD = 5
HEAD_BYTES = 4096  # more than the header of a segment or a checkpoint, where it has few sources

Judge = Callable[[Diagnosis], list[str]]  # what is wrong with a log, in words


class BackupReport(msgspec.Struct, frozen=True):
    """What a backup did."""

    last_serial: int
    files: int
    size: int
    copied_files: int
    copied_bytes: int
    replaced: tuple[str, ...]  # files of the backup that did not hold any more, copied again


def back_up(
    disk: LockingDisk, directory: str, backup: str, *, progress: Progress, judge: Judge
) -> BackupReport:
    """Bring a backup up to the log of a directory, whether or not a server runs on it."""
    form = read_format(disk, directory)
    if form is None:
        raise StorageRefused(f"{directory} has no FORMAT file: it is not a data directory")
    disk.make_directory(f"{backup}/files")
    lock = lock_backup(disk, backup)
    try:
        before = read_manifest(disk, backup)
        if before is not None and not form.is_of(before.format):
            raise StorageRefused(
                f"{backup} is the backup of another log, or of this one before it went back in "
                "time (a restore, or accepted loss), or of another replica; back up into another "
                "directory"
            )
        known = {each.name: each for each in before.files} if before else {}
        return _BackUp(disk, directory, backup, form, known, progress).run(judge)
    finally:
        lock.release()


class _BackUp:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        backup: str,
        form: Format,
        known: dict[str, Copied],
        progress: Progress,
    ) -> None:
        self.disk, self.directory, self.backup = disk, directory, backup
        self.form = form
        self.key = frame_key(form.identity)
        self.known = known
        self.relied_on = {each.place for each in known.values()}  # by the present manifest
        self.progress = progress
        self.last_serial = 0
        self.copied_files = 0
        self.copied_bytes = 0
        self.replaced: list[str] = []
        self.chain = 0  # of the file that was copied last
        self.logs: list[str] = []  # of this pass, in order
        self.held: dict[str, File] = {}  # new files of this pass
        self.all_held = False
        self.done: dict[str, Copied | None] = {}  # what is sealed, and was looked at

    def run(self, judge: Judge) -> BackupReport:
        end = read_end(self.disk, self.directory)  # before the copy: which goes at least as far
        files = self._copy_all()
        self.disk.sync_directory(f"{self.backup}/files")
        view = BackupView(self.disk, self.directory, self.backup, files)
        faults = judge(diagnose_copy(view, self.directory, self.form, end))
        if faults:
            told = "; ".join(faults[:FAULTS_TOLD])
            more = f"; and {len(faults) - FAULTS_TOLD} more" if len(faults) > FAULTS_TOLD else ""
            raise Corrupt(
                f"no server would start on the copy of {self.directory} ({told}{more}). The "
                f"backup that {self.backup} holds stays as it was; stop the server, and look with "
                f"`once repair --data {shlex.quote(self.directory)}`"
            )
        manifest = Manifest(self.form, tuple(files), self.last_serial)
        text = msgspec.json.format(msgspec.json.encode(manifest))
        replace_file(self.disk, f"{self.backup}/{MANIFEST}", text)
        self._tidy({each.place for each in files})
        copied = self.copied_files, self.copied_bytes, tuple(self.replaced)
        return BackupReport(self.last_serial, len(files), manifest.size, *copied)

    def _tidy(self, kept: set[str]) -> None:
        for name in self.disk.names(f"{self.backup}/files"):
            if f"files/{name}" not in kept:
                self.disk.remove(f"{self.backup}/files/{name}")

    def _copy_all(self) -> list[Copied]:
        """Copy until it is the log of one moment; what was copied once stays."""
        for _ in range(PASSES_MAX):
            try:
                names = self._hold()
                found = [self._copy(folder, name, last=last) for folder, name, last in names]
                still = {name for _, name, _ in self._names()}
            except FileNotFoundError:
                continue
            finally:
                self._let_go()
            files = [each for each in found if each is not None]
            if self.all_held or all(each.name in still for each in files):
                return files
        raise StorageRefused(
            f"files of {self.directory} were replaced in each of {PASSES_MAX} passes; back up "
            "again when the server has less to compact"
        )

    def _hold(self) -> list[tuple[str, str, bool]]:
        """The files of one moment; those that are new are open, and can be read to their end."""
        names = self._names()
        new = [(folder, name) for folder, name, last in names if last or name not in self.done]
        for folder, name in new[:HELD_MAX]:
            self.held[name] = self.disk.open(f"{self.directory}/{folder}/{name}")
        self.all_held = len(new) <= HELD_MAX
        if self._names() != names:  # while a directory is read, names may come and go unseen
            raise FileNotFoundError(self.directory)
        return names

    def _let_go(self) -> None:
        for file in self.held.values():
            file.close()
        self.held.clear()

    @contextmanager
    def _reading(self, folder: str, name: str) -> Generator[File]:
        held = self.held.get(name)
        file = held or self.disk.open(f"{self.directory}/{folder}/{name}")
        try:
            yield file
        finally:
            if held is None:
                file.close()

    def _names(self) -> list[tuple[str, str, bool]]:
        """Checkpoints first: the log that is copied after them goes further than they do."""
        ends = {"checkpoints": (".ckpt",), "log": (".cold", ".log")}
        found = [
            (folder, name)
            for folder in FOLDERS
            for name in self.disk.names(f"{self.directory}/{folder}")
            if name.endswith(ends[folder])
        ]
        self.logs = [name for _, name in found if name.endswith(".log")]
        last = self._in_use(self.logs)
        return [
            (folder, name, name == last)
            for folder, name in found
            if not name.endswith(".log") or name <= last
        ]

    def _in_use(self, logs: list[str]) -> str:
        """The newest log segment that was begun: what lies before it is whole, and durable.

        The next one may be there already, without a header: nothing is in it.
        """
        for name in reversed(logs):
            file = self.disk.open(f"{self.directory}/log/{name}")
            try:
                if read_header(file) is None and is_blank(file, self.key):
                    continue
                if read_header(file) is None:  # read again: it may have been begun just now
                    raise Corrupt(f"{name}: the header does not hold; run `once repair`")
                return name
            finally:
                file.close()
        return ""

    def _is_same(self, source: File, known: Copied) -> bool:
        """Whether a file that was copied before is still the one of this log."""
        copy = self.disk.open(f"{self.backup}/{known.place}")
        try:
            if copy.read(0, HEAD_BYTES) != source.read(0, HEAD_BYTES):
                return False  # a segment says what it follows, a checkpoint where it ends
        finally:
            copy.close()
        if not known.name.endswith(".log"):
            return True
        following = self.logs[self.logs.index(known.name) + 1]
        with self._reading("log", following) as after:
            header = read_header(after)
        return header is not None and header.chain == known.chain

    def _copy(self, folder: str, name: str, *, last: bool) -> Copied | None:
        """A file of the log in the backup; None for a checkpoint that does not hold."""
        if last:
            return self._copy_now(folder, name, last=True)
        if name not in self.done:
            self.done[name] = self._copy_now(folder, name, last=False)
        return self.done[name]

    def _copy_now(self, folder: str, name: str, *, last: bool) -> Copied | None:
        with self._reading(folder, name) as source:
            known = self.known.get(name)
            if known is not None and known.size == source.size() and not last:
                if not holds(self.disk, self.backup, known):
                    self.replaced.append(name)
                elif self._is_same(source, known):
                    return known
            temporary = f"{self.backup}/files/{name}.tmp"
            copy = self.disk.open(temporary, create=True)
            try:
                size = self._fill(copy, source, folder, name, last=last)
                if size is None:
                    return None  # the server passes over it, and so does the backup
                copy.truncate(size)
                copy.sync()
                checksum = checksum_of(copy, size)
            finally:
                copy.close()
        file = f"{name}.1" if f"files/{name}" in self.relied_on else name
        self.disk.rename(temporary, f"{self.backup}/files/{file}")
        copied = self.known[name] = Copied(folder, name, size, checksum, self.chain, file)
        self.copied_files += 1
        self.copied_bytes += size
        return copied

    def _fill(self, copy: File, source: File, folder: str, name: str, *, last: bool) -> int | None:
        """Copy a file; how much of the copy holds. None: nothing of it is any good.

        All of it has to hold, but for the segment in use: it may be written while it is read, and
        a later frame be copied that comes behind one which was not there yet. Then it is copied
        again. A frame that is bad once more, though it was durable before, is damage.
        """
        bad_before = -1
        self.chain = 0
        for _ in range(PASSES_MAX):
            copy.truncate(0)
            for position, stretch in stretches(source, source.size()):
                copy.write([stretch], position)
                self.progress(name, len(stretch))
            if folder == "checkpoints":
                path = f"{self.backup}/files/{name}.tmp"
                found = read_checkpoint(self.disk, path, self.form.identity)
                return copy.size() if found is not None else None
            header = read_header(copy)
            if header is None:
                raise Corrupt(f"{name}: the header does not hold; run `once repair`")
            if header.form == COLD:
                bad = scan_cold(copy, header, self.key)
                if isinstance(bad, Bad):
                    raise _damaged(name, bad)
                return copy.size()
            whole = verify(copy, header, self.key)
            if whole.bad is not None and (not last or whole.bad.position == bad_before):
                raise _damaged(name, whole.bad)
            if whole.bad is None or whole.after is None:
                self.last_serial = max(self.last_serial, whole.last_serial)
                self.chain = whole.chain
                return whole.end if last else copy.size()
            bad_before = whole.bad.position
        raise StorageRefused(
            f"{name} was written faster than it could be copied; back up again when the server "
            "has less to do"
        )


def _damaged(name: str, bad: Bad) -> Corrupt:
    return Corrupt(f"{name} is damaged at byte {bad.position}: {bad.why}")
