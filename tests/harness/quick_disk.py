"""A local disk that is not synced, for tests that cut no power."""

import pytest

from oncemq.storage.disk import LocalDisk, LocalFile


class QuickFile(LocalFile):
    """A file that is not synced."""

    def sync(self) -> None: ...


class QuickDisk(LocalDisk):
    """Opens files that are not synced."""

    def open(self, path: str, create: bool = False) -> LocalFile:
        file = super().open(path, create)
        file.__class__ = QuickFile
        return file

    def sync_directory(self, path: str) -> None: ...


@pytest.fixture
def quick_disk() -> QuickDisk:
    return QuickDisk()
