"""The directory of an archive: whose it is, what it holds, and that one process writes it.

    PATH/_oncemq/archive.json                     its identity and format
    PATH/_oncemq/topics.json                      which topics, by identity, from which offset on
    PATH/_oncemq/lock                             held by the process that writes
    PATH/_oncemq/hidden/…                         files that are not part of it yet
    PATH/topic=orders/day=2026-01-31/….parquet    what readers see (see `archive_files`)

Readers pass `_oncemq` over. Laws: a file here is replaced whole, and is on the disk before
anything rests on it; a directory that is not an archive is never written to.
"""

import secrets
from pathlib import Path
from typing import Literal

import msgspec

from oncemq.errors import ConfigError, Locked, StorageFull, StorageRefused
from oncemq.storage.disk import LocalDisk, Lock

VERSION = 1
HOME, HIDDEN = "_oncemq", "hidden"
NO_ROOM = 28  # ENOSPC

Format = Literal["parquet", "delta"]


class Identity(msgspec.Struct, frozen=True):
    """Which archive this is."""

    version: int
    id: str
    format: Format


class Begun(msgspec.Struct, frozen=True):
    """A topic of the archive: its identity on the server, and the first offset archived."""

    id: int
    since: int


class ArchivePlace:
    """An archive on the disk."""

    def __init__(self, path: Path, identity: Identity) -> None:
        self.path = path
        self.id, self.format = identity.id, identity.format
        self._home = path / HOME
        self._disk = LocalDisk()
        self._lock: Lock | None = None
        self._durable: set[Path] = set()  # directories that this process has made sure of

    @property
    def subscription(self) -> str:
        """The name under which the server keeps what is not archived yet."""
        return f"archive-{self.id}"

    @property
    def hidden(self) -> Path:
        """Where files are that nobody reads."""
        return self._home / HIDDEN

    def topics(self) -> dict[str, Begun]:
        """The topics of the archive."""
        file = self._home / "topics.json"
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Begun]) if _is(file) else {}

    def begin(self, topics: dict[str, Begun]) -> None:
        """These are its topics from now on."""
        replace(self._home / "topics.json", msgspec.json.encode(topics))

    def lock(self) -> None:
        """Write alone; what a process that died left behind hidden is removed.

        What it left behind renamed may not be durable: that is seen to before it is believed.
        """
        try:
            self._lock = self._disk.lock(str(self._home / "lock"))
        except Locked as locked:
            raise Locked(
                f"another process archives to {self.path} now ({locked.detail}). One at a time: "
                "name all topics in one command, or give each its own directory"
            ) from None
        for directory in (self._home, self.path):
            sync_directory(directory)
        self.hidden.mkdir(exist_ok=True)
        for file in self.hidden.iterdir():
            file.unlink(missing_ok=True)

    def release(self) -> None:
        """Let others write."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def room(self, directory: str) -> Path:
        """A directory of the archive, made when it is not there, durable in those above it."""
        path = self.path
        for name in Path(directory).parts:
            path = path / name
            path.mkdir(exist_ok=True)
            if path not in self._durable:
                sync_directory(path.parent)
                self._durable.add(path)
        return path


def make(path: str, format: Format) -> ArchivePlace:
    """The archive at a path, to be written: the one there, else a new one in an empty directory."""
    root = _local(path)
    try:
        if root.exists() and not root.is_dir():
            raise ConfigError(f"{root} is a file; an archive is a directory: name another")
        found = _identity(root)
        if found is None:
            found = _new(root, format)
    except OSError as error:
        raise refused(error, root) from None
    if found.format != format:
        raise ConfigError(
            f"{root} is an archive in {found.format}, not in {format}: "
            f"{'leave --delta out' if format == 'delta' else 'say --delta'}, or name another"
        )
    return ArchivePlace(root, found)


def find(path: str) -> ArchivePlace:
    """The archive at a path, to be read; ConfigError when there is none."""
    root = _local(path)
    try:
        found = _identity(root)
    except OSError as error:
        raise refused(error, root) from None
    if found is None:
        what = "is not there" if not root.exists() else "is not an archive"
        raise ConfigError(f"{root} {what}: `once pipeline archive TOPIC --to PATH` makes one")
    return ArchivePlace(root, found)


def refused(error: OSError, path: Path) -> StorageRefused:
    """What the disk said, in our words."""
    where = error.filename or path
    if error.errno == NO_ROOM:
        return StorageFull(
            f"{where}: no room left on the disk. What is archived is whole and can be read; make "
            "room and start again, and it goes on"
        )
    return StorageRefused(f"{where}: {error.strerror or error}")


def replace(file: Path, content: bytes) -> None:
    """Give a file this content, all of it or none, whatever happens."""
    fresh = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    fresh.write_bytes(content)
    sync_file(fresh)
    fresh.replace(file)
    sync_directory(file.parent)


def sync_file(file: Path) -> None:
    """Return when the device has its bytes."""
    opened = LocalDisk().open(str(file))
    try:
        opened.sync()
    finally:
        opened.close()


def sync_directory(directory: Path) -> None:
    """Return when the names in it are durable."""
    LocalDisk().sync_directory(str(directory))


def _local(path: str) -> Path:
    if "://" in path and not path.startswith("file://"):
        raise ConfigError(
            f"{path}: an archive is a directory of a file system that the driver and the tasks "
            "share; mount it, and give its path"
        )
    return Path(path.removeprefix("file://")).absolute()


def _identity(root: Path) -> Identity | None:
    """Of the archive in a directory; None when there is none."""
    file = root / HOME / "archive.json"
    if not _is(file):
        return None
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Identity)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{file} is not what an archive has there: {error}") from None
    if found.version != VERSION:
        raise ConfigError(
            f"{root} is an archive of version {found.version}, this is {VERSION}: use the version "
            "of oncemq that wrote it"
        )
    return found


def _new(root: Path, format: Format) -> Identity:
    root.mkdir(parents=True, exist_ok=True)
    if strangers := sorted(file.name for file in root.iterdir() if file.name != HOME):
        raise ConfigError(
            f"{root} is not an archive and not empty (it has {strangers[0]}): name a new directory"
        )
    (root / HOME / HIDDEN).mkdir(parents=True, exist_ok=True)
    sync_directory(root.parent)
    sync_directory(root)
    made = Identity(VERSION, secrets.token_hex(8), format)
    replace(root / HOME / "archive.json", msgspec.json.encode(made))
    return made


def _is(file: Path) -> bool:
    return file.is_file()
