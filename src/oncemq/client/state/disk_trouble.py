"""What the disk of a client did, in words for whoever put."""

from oncemq.errors import StorageFull, StorageRefused
from oncemq.storage.shortage import DISK_FULL, NO_DESCRIPTORS


def in_words(error: OSError, what: str) -> StorageRefused:
    """The error for whoever put."""
    if error.errno in NO_DESCRIPTORS:
        return StorageRefused(
            f"{what}: this process may open no more files. Close what is not needed, or raise the "
            "limit (ulimit -n)",
            code="too_many_files",
        )
    if error.errno in DISK_FULL:
        return StorageFull(f"the disk of this client is full: {what}; make room there")
    return StorageRefused(f"the disk of this client failed ({error}): {what}", code="disk_failed")


class InWords:
    """What its block meets of the disk is said so; not a generator, which costs each put more."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            raise in_words(error, self._what) from error
